//! `unsafe` stands only where it may, and each one says why it is sound.

use anyhow::Result;
use proc_macro2::{Delimiter, TokenTree};

use super::finding::Finding;
use super::source::{Project, ident, inside, punct};

/// Where `unsafe` may stand: the kernels, and the memory map of a model's file.
const ALLOWED: [&str; 2] = ["crates/kernels/", "crates/package/src/map.rs"];

pub(super) fn check(project: &Project) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for file in project.rust() {
        let mut places = Vec::new();
        collect(&file.tokens()?, false, &mut places);
        let text: Vec<&str> = file.text.lines().collect();
        for place in places {
            if !ALLOWED.iter().any(|allowed| file.path.starts_with(allowed)) {
                let message = "unsafe code is not allowed here";
                findings.push(Finding::new(&file.path, place.line, message));
            }
            if place.explains_itself && !is_explained(&text, place.line) {
                let message = "no `// SAFETY:` comment (or `Safety` doc) above this unsafe";
                findings.push(Finding::new(&file.path, place.line, message));
            }
        }
    }
    Ok(findings)
}

/// One `unsafe`.
struct Place {
    line: usize,
    /// False for a method of a trait, whose contract stands at the trait.
    explains_itself: bool,
}

/// Collects where the keyword stands; `in_trait_impl` tells what `tokens` are the body of.
fn collect(tokens: &[TokenTree], in_trait_impl: bool, places: &mut Vec<Place>) {
    let mut after_impl = false;
    let mut after_for = false;
    for (index, token) in tokens.iter().enumerate() {
        let next_is_fn = ident(tokens, index + 1).as_deref() == Some("fn");
        let is_type = next_is_fn && ident(tokens, index + 2).is_none();
        match token {
            TokenTree::Group(group) => {
                collect(&inside(group), after_impl && after_for, places);
                if group.delimiter() == Delimiter::Brace {
                    (after_impl, after_for) = (false, false);
                }
            }
            TokenTree::Ident(word) if word == "impl" => (after_impl, after_for) = (true, false),
            TokenTree::Ident(word) if word == "for" && !punct(tokens, index + 1, '<') => {
                after_for = true;
            }
            // The type `unsafe fn(…)` is not code.
            TokenTree::Ident(word) if word == "unsafe" && !is_type => {
                let line = word.span().start().line;
                places.push(Place { line, explains_itself: !(in_trait_impl && next_is_fn) });
            }
            _ => {}
        }
    }
}

/// True if the statement or item that holds line `line` has the comment on it or right above it.
fn is_explained(text: &[&str], line: usize) -> bool {
    let explains = |line: &str| {
        line.contains("// SAFETY:")
            || line.contains("# Safety")
            || line.trim_start().starts_with("///") && line.contains("Safety: ")
    };
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
        assert_eq!(messages(KERNEL, "impl A {\n    unsafe fn f() {}\n}\n").len(), 1);
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
            "impl Trait for A {\n    #[inline]\n    unsafe fn f() {}\n}\n",
            "trait Trait {\n    /// Reads. Safety: readable.\n    unsafe fn f();\n}\n",
            "/// Does.\n///\n/// # Safety\n///\n/// Mind.\n#[inline]\nunsafe fn f() {}\n",
        ] {
            assert_eq!(messages(KERNEL, text), [""; 0], "{text}");
        }
    }

    #[test]
    fn unsafe_elsewhere_is_found_and_the_word_in_text_is_not() {
        let text = "// SAFETY: checked.\nunsafe impl Send for A {}\n";
        assert_eq!(messages("crates/server/src/a.rs", text), ["unsafe code is not allowed here"]);
        let text = "// unsafe\nconst A: &str = \"unsafe\";\n";
        assert_eq!(messages("crates/server/src/a.rs", text), [""; 0]);
    }
}
