//! Small texts beside the pages: what they were made with, for those who come later.

use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::SystemTime;

use crate::disk::directory::{Directory, FileKind, Listed, TEXT_ENDING};

/// Texts that are kept; of more, those that were not used for the longest time go.
const TEXTS_MAX: usize = 8;
/// Bytes of a text; a longer one is not kept.
const TEXT_BYTES_MAX: u64 = 256 << 10;
/// Digits of a text's name.
const NAME_DIGITS: usize = 32;

/// Keeps a text in the directory as the last used one, and gives the others that are kept there,
/// the last used first. Makes the directory where it is missing. A file that is not what its name
/// says is left out. Several processes may call this at the same time.
///
/// # Errors
///
/// When the directory cannot be made or made private, or not be read or written.
pub fn keep_text(directory: &Path, text: &str) -> io::Result<Vec<String>> {
    let directory = Directory::open(directory)?;
    let own = name(text);
    let mut listed = directory.list()?;
    listed.retain(|one| one.kind == FileKind::Text && one.name != own);
    listed.sort_by(|a, b| (b.modified, &a.name).cmp(&(a.modified, &b.name)));
    for one in listed.iter().skip(TEXTS_MAX - 1) {
        directory.remove_unlocked(&one.name);
    }
    listed.truncate(TEXTS_MAX - 1);
    if text.len() as u64 <= TEXT_BYTES_MAX {
        keep(&directory, &own, text)?;
    }
    Ok(listed.iter().filter_map(|one| read(&directory, one)).collect())
}

fn keep(directory: &Directory, own: &str, text: &str) -> io::Result<()> {
    if let Ok(file) = directory.open_file(own) {
        return file.set_modified(SystemTime::now());
    }
    let (new, mut file) = directory.create_new()?;
    file.write_all(text.as_bytes())?;
    fs::rename(directory.file(&new), directory.file(own))
}

fn read(directory: &Directory, listed: &Listed) -> Option<String> {
    let mut text = String::new();
    let file = directory.open_file(&listed.name).ok()?;
    file.take(TEXT_BYTES_MAX).read_to_string(&mut text).ok()?;
    (name(&text) == listed.name).then_some(text)
}

/// The file's name follows from what is in it.
fn name(text: &str) -> String {
    let hash = blake3::hash(text.as_bytes()).to_hex();
    format!("{}{TEXT_ENDING}", &hash[..NAME_DIGITS])
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use super::*;

    /// Makes a text the one that was used so many seconds after 1970.
    fn used(directory: &Path, text: &str, seconds: u64) {
        let file = fs::File::options().write(true).open(directory.join(name(text)));
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        file.and_then(|file| file.set_modified(at)).expect("its time is set");
    }

    #[test]
    fn the_last_used_texts_are_kept_and_a_changed_one_is_left_out() {
        let scratch = tempfile::tempdir().expect("a directory");
        let directory = scratch.path().join("prompts");
        assert_eq!(keep_text(&directory, "0").expect("kept"), Vec::<String>::new());
        for number in 0..12_u64 {
            let text = number.to_string();
            keep_text(&directory, &text).expect("kept");
            used(&directory, &text, number);
        }
        let others = keep_text(&directory, "7").expect("kept");
        assert_eq!(others, ["11", "10", "9", "8", "6", "5", "4"]);
        used(&directory, "7", 20);
        assert_eq!(keep_text(&directory, "new").expect("kept").first().expect("one"), "7");
        fs::write(directory.join(name("7")), "8").expect("written");
        let others = keep_text(&directory, "new").expect("kept");
        assert!(!others.is_empty() && !others.contains(&"7".to_owned()), "{others:?}");
        for entry in fs::read_dir(&directory).expect("listed").flatten() {
            let mode = entry.metadata().expect("there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{entry:?}");
        }
    }

    #[test]
    fn a_text_that_is_too_long_is_not_kept() {
        let scratch = tempfile::tempdir().expect("a directory");
        let long = "x".repeat(TEXT_BYTES_MAX as usize + 1);
        keep_text(scratch.path(), &long).expect("let be");
        assert_eq!(keep_text(scratch.path(), "short").expect("kept"), Vec::<String>::new());
    }
}
