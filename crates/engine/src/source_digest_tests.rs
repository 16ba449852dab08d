//! The digest of the sources: the same everywhere, and another for another source.

use std::fs;
use std::path::Path;

use crate::source_digest::{digest, files};

fn write(root: &Path, content: &[(&str, &str)]) {
    for (file, text) in content {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

fn of(content: &[(&str, &str)]) -> String {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), content);
    digest(root.path(), &files(root.path(), &["a", "b/one.rs"]).unwrap()).unwrap()
}

#[test]
fn a_digest_follows_from_names_and_lines_alone() {
    let content = [("a/x.rs", "one\ntwo\n"), ("a/deep/y.rs", "three"), ("b/one.rs", "")];
    let digest = of(&content);
    assert_eq!(digest.len(), 32);
    let mut reversed = content;
    reversed.reverse();
    assert_eq!(of(&reversed), digest, "written in another order, elsewhere");
    let ends = [("a/x.rs", "one\r\ntwo\r\n"), content[1], content[2]];
    assert_eq!(of(&ends), digest);
    let beside = [&content[..], &[("b/two.rs", "four"), ("a/notes.md", "five")]].concat();
    assert_eq!(of(&beside), digest, "what was not asked for");
    let others = [
        vec![("a/x.rs", "one\nTwo\n"), content[1], content[2]],
        vec![("a/z.rs", "one\ntwo\n"), content[1], content[2]],
        vec![("a/x.rs", ""), ("a/deep/y.rs", "three"), ("b/one.rs", "one\ntwo\n")],
        vec![content[0], content[2]],
        [&content[..], &[("a/w.rs", "")]].concat(),
    ];
    let mut seen: Vec<String> = others.iter().map(|other| of(other)).collect();
    seen.push(digest);
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), others.len() + 1, "{seen:?}");
}

#[test]
fn the_digest_of_nothing_is_the_functions_offset() {
    let root = tempfile::tempdir().unwrap();
    assert_eq!(digest(root.path(), &[]).unwrap(), "6c62272e07bb014262b821756295c58d");
}

#[test]
fn this_build_has_the_digest_of_the_sources_that_it_was_made_of() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let files = files(root, &env!("NUMERICS_SOURCES").split(' ').collect::<Vec<_>>()).unwrap();
    for file in ["kernels/src/math.rs", "engine/src/fast/mod.rs", "engine/src/model.rs"] {
        assert!(files.iter().any(|one| one == file), "{file}");
    }
    assert_eq!(digest(root, &files).unwrap(), env!("NUMERICS_DIGEST"));
}
