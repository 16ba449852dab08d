//! A digest of source files, for the build script and for its test.

use std::io;
use std::path::{Path, PathBuf};

/// FNV-1a with 128 bits (Fowler, Noll, Vo; draft-eastlake-fnv): enough where nobody wants two
/// versions to meet.
const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

/// The files with the ending `.rs` in these folders, and these files: by name below `root`, in
/// order.
pub(crate) fn files(root: &Path, paths: &[&str]) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    let mut waiting: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
    while let Some(path) = waiting.pop() {
        if root.join(&path).is_dir() {
            for entry in root.join(&path).read_dir()? {
                waiting.push(path.join(entry?.file_name()));
            }
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let parts = path.iter().map(|part| part.to_string_lossy());
            found.push(parts.collect::<Vec<_>>().join("/"));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// 32 hexadecimal digits that follow from the files' names and lines, and from nothing else: not
/// from where they lie, nor from how their lines end.
pub(crate) fn digest(root: &Path, files: &[String]) -> io::Result<String> {
    let mut hash = OFFSET;
    let mut take = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u128::from(*byte)).wrapping_mul(PRIME);
        }
    };
    for file in files {
        take(file.as_bytes());
        let text = std::fs::read_to_string(root.join(file))?.replace("\r\n", "\n");
        // No text begins like this, so that no line can be taken for a name.
        take(&[0xff]);
        take(text.as_bytes());
        take(&[0xff]);
    }
    Ok(format!("{hash:032x}"))
}
