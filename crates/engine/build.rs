//! Tells the crate a digest of the sources that decide which bits K, V and logits have, so that K/V
//! which a build from other sources has stored are not taken for this one's.

#[path = "src/source_digest.rs"]
mod source_digest;

use std::env;
use std::error::Error;
use std::path::Path;

/// Files and folders, beside this crate: all arithmetic; what is read of a model's configuration
/// and weights; and the way through the model.
const SOURCES: [&str; 12] = [
    "kernels/src",
    "package/src/config",
    "package/src/gguf",
    "package/src/package.rs",
    "package/src/safetensor_files.rs",
    "package/src/tensor.rs",
    "package/src/weights",
    "engine/src/architecture",
    "engine/src/fast",
    "engine/src/model.rs",
    "engine/src/ops.rs",
    "engine/src/rows.rs",
];

fn main() -> Result<(), Box<dyn Error>> {
    let here = env::var("CARGO_MANIFEST_DIR")?;
    let root = Path::new(&here).parent().ok_or("this crate lies in no folder")?;
    let files = source_digest::files(root, &SOURCES)?;
    for path in SOURCES {
        println!("cargo:rerun-if-changed={}", root.join(path).display());
    }
    println!("cargo:rustc-env=NUMERICS_DIGEST={}", source_digest::digest(root, &files)?);
    println!("cargo:rustc-env=NUMERICS_SOURCES={}", SOURCES.join(" "));
    Ok(())
}
