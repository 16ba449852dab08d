//! `unsafe` stands only where it may, and each one says why it is sound.

use anyhow::Result;
use proc_macro2::TokenTree;

use super::finding::Finding;
use super::source::{Project, ident, inside};

/// Where `unsafe` may stand: the kernels, and the memory map of a model's file.
const ALLOWED: [&str; 2] = ["crates/kernels/", "crates/package/src/map.rs"];

pub(super) fn check(project: &Project) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for file in project.rust() {
        let mut places = Vec::new();
        collect(&file.tokens()?, &mut places);
        let text: Vec<&str> = file.text.lines().collect();
        for line in places {
            if !ALLOWED.iter().any(|allowed| file.path.starts_with(allowed)) {
                findings.push(Finding::new(&file.path, line, "unsafe code is not allowed here"));
            }
            if !is_explained(&text, line) {
                let message = "no `// SAFETY:` comment (or `# Safety` section) above this unsafe";
                findings.push(Finding::new(&file.path, line, message));
            }
        }
    }
    Ok(findings)
}

/// The lines on which the keyword stands; pointer types such as `unsafe fn()` are not code.
fn collect(tokens: &[TokenTree], places: &mut Vec<usize>) {
    for (index, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => collect(&inside(group), places),
            TokenTree::Ident(keyword) if keyword == "unsafe" => {
                let is_pointer_type = ident(tokens, index + 1).as_deref() == Some("fn")
                    && ident(tokens, index + 2).is_none();
                // `#[unsafe(no_mangle)]` and the like are no code either.
                if !is_pointer_type {
                    places.push(keyword.span().start().line);
                }
            }
            _ => {}
        }
    }
}

/// True if the statement or item that holds line `line` has the comment on it or right above it.
fn is_explained(text: &[&str], line: usize) -> bool {
    let explains = |line: &str| line.contains("// SAFETY:") || line.contains("# Safety");
    if explains(text[line - 1]) {
        return true;
    }
    let mut in_comment = false;
    for above in text[..line - 1].iter().rev().map(|line| line.trim()) {
        if explains(above) {
            return true;
        }
        let is_comment = above.starts_with("//");
        let is_attribute = above.starts_with("#[") || above.ends_with(")]");
        let ends_statement = above.is_empty()
            || above.ends_with(';')
            || above.ends_with('{')
            || above.ends_with('}');
        if !is_comment && (in_comment || (ends_statement && !is_attribute)) {
            return false;
        }
        in_comment |= is_comment && !above.starts_with("///");
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, text: &str) -> Vec<String> {
        let findings = check(&Project::of(&[(path, text)])).unwrap();
        findings.into_iter().map(|finding| finding.message).collect()
    }

    const KERNEL: &str = "crates/kernels/src/a.rs";

    #[test]
    fn unsafe_without_a_comment_is_found() {
        assert_eq!(messages(KERNEL, "fn f() {\n    unsafe { g() }\n}\n").len(), 1);
        assert_eq!(messages(KERNEL, "unsafe impl Send for A {}\n").len(), 1);
        assert_eq!(messages(KERNEL, "m! {\n    unsafe { g() }\n}\n").len(), 1);
    }

    #[test]
    fn a_comment_of_an_earlier_statement_does_not_count() {
        let text = "fn f() {\n    // SAFETY: checked.\n    h();\n    unsafe { g() }\n}\n";
        assert_eq!(messages(KERNEL, text).len(), 1);
    }

    #[test]
    fn a_comment_above_the_statement_or_its_attributes_counts() {
        for text in [
            "fn f() {\n    // SAFETY: checked\n    // above.\n    unsafe { g() }\n}\n",
            "fn f() {\n    // SAFETY: checked.\n    let a =\n        unsafe { g() };\n}\n",
            "/// Does.\n///\n/// # Safety\n///\n/// Mind.\n#[inline]\nunsafe fn f() {}\n",
        ] {
            assert_eq!(messages(KERNEL, text), [""; 0], "{text}");
        }
    }

    #[test]
    fn unsafe_elsewhere_is_found_and_the_word_in_text_is_not() {
        let text = "// SAFETY: checked.\nunsafe impl Send for A {}\n";
        assert_eq!(messages("crates/server/src/a.rs", text), ["unsafe code is not allowed here"]);
        assert_eq!(
            messages("crates/server/src/a.rs", "// unsafe\nconst A: &str = \"unsafe\";\n").len(),
            0
        );
    }
}
