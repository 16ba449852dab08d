//! The files that are checked, and how Rust's tokens are read from them.

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// Everything that the repository holds.
pub(super) struct Project {
    pub(super) files: Vec<SourceFile>,
}

/// One file; `path` is relative to the root, with `/`.
pub(super) struct SourceFile {
    pub(super) path: String,
    pub(super) text: String,
}

impl Project {
    /// The file at `path`.
    pub(super) fn file(&self, path: &str) -> Option<&SourceFile> {
        self.files.iter().find(|file| file.path == path)
    }

    /// All files that hold Rust.
    pub(super) fn rust(&self) -> impl Iterator<Item = &SourceFile> {
        self.files.iter().filter(|file| file.path.ends_with(".rs"))
    }

    /// A project made of `(path, text)`, for tests.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let file = |&(path, text): &(&str, &str)| SourceFile {
            path: path.to_string(),
            text: text.to_string(),
        };
        Self { files: files.iter().map(file).collect() }
    }
}

impl SourceFile {
    /// The file's tokens; comments are not among them.
    pub(super) fn tokens(&self) -> Result<Vec<TokenTree>> {
        let stream: TokenStream =
            self.text.parse().map_err(|error| anyhow!("{}: {error}", self.path))?;
        Ok(stream.into_iter().collect())
    }
}

/// The identifier at `index`, if there is one.
pub(super) fn ident(tokens: &[TokenTree], index: usize) -> Option<String> {
    match tokens.get(index) {
        Some(TokenTree::Ident(ident)) => Some(ident.to_string()),
        _ => None,
    }
}

/// True if the token at `index` is the punctuation `character`.
pub(super) fn punct(tokens: &[TokenTree], index: usize, character: char) -> bool {
    matches!(tokens.get(index), Some(TokenTree::Punct(punct)) if punct.as_char() == character)
}

/// True if `::` stands at `index`.
pub(super) fn path_separator(tokens: &[TokenTree], index: usize) -> bool {
    punct(tokens, index, ':') && punct(tokens, index + 1, ':')
}

/// The brace group at `index`, if there is one.
pub(super) fn braces(tokens: &[TokenTree], index: usize) -> Option<&Group> {
    match tokens.get(index) {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => Some(group),
        _ => None,
    }
}

/// The tokens inside `group`.
pub(super) fn inside(group: &Group) -> Vec<TokenTree> {
    group.stream().into_iter().collect()
}
