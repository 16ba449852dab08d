//! Functions under 70 lines, files under 700, lines of at most 100 columns.

use anyhow::Result;
use proc_macro2::TokenTree;

use super::finding::Finding;
use super::source::{Project, SourceFile, braces, ident, inside, punct};

const FUNCTION_LINES: usize = 70;
const FILE_LINES: usize = 700;
const COLUMNS: usize = 100;

pub(super) fn check(project: &Project) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for file in project.files.iter().filter(|file| is_code(&file.path)) {
        lines(file, &mut findings);
    }
    for file in project.rust() {
        functions(&file.path, &file.tokens()?, &mut findings);
    }
    Ok(findings)
}

fn is_code(path: &str) -> bool {
    [".rs", ".py", ".ts", ".tsx", ".sh", ".toml", ".ci/run"]
        .iter()
        .any(|ending| path.ends_with(ending))
}

fn lines(file: &SourceFile, findings: &mut Vec<Finding>) {
    let count = file.text.lines().count();
    if count >= FILE_LINES {
        let message = format!("{count} lines; a file has fewer than {FILE_LINES}");
        findings.push(Finding::new(&file.path, count, message));
    }
    for (index, line) in file.text.lines().enumerate() {
        let columns = line.chars().count();
        if columns > COLUMNS {
            let message = format!("{columns} columns; a line has at most {COLUMNS}");
            findings.push(Finding::new(&file.path, index + 1, message));
        }
    }
}

fn functions(path: &str, tokens: &[TokenTree], findings: &mut Vec<Finding>) {
    for index in 0..tokens.len() {
        if let TokenTree::Group(group) = &tokens[index] {
            functions(path, &inside(group), findings);
        }
        if ident(tokens, index).as_deref() != Some("fn") {
            continue;
        }
        let Some(name) = ident(tokens, index + 1) else { continue };
        let Some(end) = body_end(tokens, index + 2) else { continue };
        let start = tokens[index].span().start().line;
        let count = end + 1 - start;
        if count >= FUNCTION_LINES {
            let message =
                format!("fn {name} has {count} lines; a function has fewer than {FUNCTION_LINES}");
            findings.push(Finding::new(path, start, message));
        }
    }
}

/// The line on which the body ends of the function whose signature goes on at `index`.
fn body_end(tokens: &[TokenTree], mut index: usize) -> Option<usize> {
    while index < tokens.len() && !punct(tokens, index, ';') {
        if let Some(body) = braces(tokens, index) {
            return Some(body.span_close().end().line);
        }
        index += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, text: &str) -> Vec<String> {
        let findings = check(&Project::of(&[(path, text)])).unwrap();
        findings.into_iter().map(|finding| finding.message).collect()
    }

    fn function(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    work();\n".repeat(lines - 2))
    }

    #[test]
    fn a_function_of_70_lines_is_found_and_one_of_69_is_not() {
        assert_eq!(messages("a.rs", &function(69)), [""; 0]);
        assert_eq!(
            messages("a.rs", &function(70)),
            ["fn long has 70 lines; a function has fewer than 70"]
        );
    }

    #[test]
    fn a_long_function_is_found_inside_impls_and_macros() {
        let inner = function(70);
        assert_eq!(messages("a.rs", &format!("impl A {{\n{inner}}}\n")).len(), 1);
        assert_eq!(messages("a.rs", &format!("proptest! {{\n{inner}}}\n")).len(), 1);
    }

    #[test]
    fn a_declaration_does_not_take_the_body_of_the_next_function() {
        assert_eq!(messages("a.rs", &format!("fn short();\n{}", function(69))), [""; 0]);
    }

    #[test]
    fn a_file_of_700_lines_is_found() {
        assert_eq!(messages("a.py", &"x = 1\n".repeat(699)), [""; 0]);
        assert_eq!(messages("a.py", &"x = 1\n".repeat(700)).len(), 1);
    }

    #[test]
    fn a_line_of_101_columns_is_found_and_columns_are_characters() {
        assert_eq!(messages("a.rs", &format!("//{}\n", "é".repeat(98))), [""; 0]);
        assert_eq!(messages("a.rs", &format!("//{}\n", "é".repeat(99))).len(), 1);
    }
}
