//! Marks of unfinished work, skipped tests, and paths of one person's machine.

use super::finding::Finding;
use super::source::Project;

/// What must not stand in a file, and why.
const FORBIDDEN: [(&str, &str); 12] = [
    ("TODO", "unfinished work is finished or goes to the tracker"),
    ("FIXME", "unfinished work is finished or goes to the tracker"),
    ("XXX", "unfinished work is finished or goes to the tracker"),
    ("todo!(", "unfinished code"),
    ("unimplemented!(", "unfinished code"),
    ("dbg!(", "left over from debugging"),
    ("#[ignore", "a test runs or goes"),
    ("pytest.skip", "a test runs or goes"),
    ("mark.skip", "a test runs or goes"),
    ("xfail", "a test passes or goes"),
    ("/work/", "a path of one machine"),
    ("/root/", "a path of one machine"),
];

/// Its list has to say the words.
const EXEMPT: &str = "xtask/src/tidy/words.rs";

pub(super) fn check(project: &Project) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in project.files.iter().filter(|file| file.path != EXEMPT && is_ours(&file.path)) {
        for (index, line) in file.text.lines().enumerate() {
            for (word, why) in FORBIDDEN.iter().filter(|(word, _)| contains_word(line, word)) {
                let message = format!("{word:?}: {why}");
                findings.push(Finding::new(&file.path, index + 1, message));
            }
        }
    }
    findings
}

/// Text that was written for this project, not data that it was given.
fn is_ours(path: &str) -> bool {
    [".rs", ".py", ".ts", ".md", ".toml", ".sh", "run"].iter().any(|end| path.ends_with(end))
}

/// True if `line` holds `word`, and not as a part of a longer one.
fn contains_word(line: &str, word: &str) -> bool {
    let is_word = |character: Option<char>| character.is_some_and(char::is_alphanumeric);
    let ends_in_letter = is_word(word.chars().next_back());
    line.match_indices(word).any(|(at, _)| {
        let goes_on = ends_in_letter && is_word(line[at + word.len()..].chars().next());
        !goes_on && !is_word(line[..at].chars().next_back())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        check(&Project::of(&[(path, text)])).len()
    }

    #[test]
    fn each_forbidden_word_is_found() {
        for (word, _) in FORBIDDEN {
            assert_eq!(count("a.rs", &format!("fn f() {{}} // {word}\n")), 1, "{word}");
        }
    }

    #[test]
    fn longer_words_and_data_are_left_alone() {
        assert_eq!(count("a.rs", "const XXXL: u8 = 1; // mark.skipped\n"), 0);
        assert_eq!(count("data.json", "\"TODO\""), 0);
    }
}
