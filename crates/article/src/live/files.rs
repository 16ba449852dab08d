//! The package's files, and the context that it has.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;

use package::Package;
use serde_json::json;

use super::Live;
use crate::shape::has_the_shape;
use crate::tally::{Seen, Stop, Tally};

/// A GGUF file's beginning: metadata and the tensors' names lie in it.
const HEAD_BYTES_MAX: u64 = 32 << 20;

/// Row 10: 1024 positions, 0 to 1023, and not one more.
pub(crate) fn context(live: &mut Live, tally: &mut Tally) -> Seen {
    has_the_shape(&live.package.config)?;
    let user = live.user();
    let told = user.post("/tokenize", &json!({"prompt": "The cat"}))?.json()?;
    tally.equal("the context, as told", &json!(1024), &told["max_model_len"])?;
    let body = json!({"prompt": live.ids(1024, 10)});
    let refused = user.post("/v1/completions", &body)?;
    tally.equal("the status of 1024 tokens and an answer", &400, &refused.status)?;
    let code = refused.json()?["error"]["code"].take();
    tally.equal("the error's code", &json!("context_length_exceeded"), &code)?;
    let prompt = live.ids(1020, 10);
    let more = json!({"max_tokens": 50, "cache_prompt": false});
    let answer = user.complete(prompt, more)?;
    tally.equal("tokens after 1020", &4, &answer.output())?;
    Ok("1020 tokens and 4 more; 1024 and an answer are refused".to_owned())
}

/// Row 16: without weights, configuration or tokenizer, the package does not open, and the message
/// says what is missing.
pub(crate) fn incomplete(live: &mut Live, tally: &mut Tally) -> Seen {
    let folder = tempfile::tempdir().map_err(|error| Stop::failed("a folder", error))?;
    let path = live.package.path.clone();
    match path.is_dir() {
        true => directory(&path, folder.path(), tally),
        false => gguf(&path, folder.path(), tally),
    }
}

/// What a message must say, and the names of the files that are left out.
const PARTS: [(&str, &str, &[&str]); 3] = [
    ("weights", "safetensors", &[".safetensors", ".safetensors.index.json"]),
    ("configuration", "config.json", &["config.json"]),
    (
        "tokenizer",
        "tokenizer",
        &["tokenizer.json", "vocab.json", "merges.txt", "encoder.json", "vocab.bpe"],
    ),
];

fn directory(source: &Path, folder: &Path, tally: &mut Tally) -> Seen {
    let failed = |error: std::io::Error| Stop::failed("an incomplete copy", error);
    let source = source.canonicalize().map_err(failed)?;
    let copy = |name: &str, left_out: &dyn Fn(&str) -> bool| {
        let copy = folder.join(name).join("model");
        fs::create_dir_all(&copy)?;
        for entry in fs::read_dir(&source)? {
            let file = entry?.file_name();
            if !left_out(&file.to_string_lossy()) {
                std::os::unix::fs::symlink(source.join(&file), copy.join(&file))?;
            }
        }
        Ok(copy)
    };
    let whole = copy("0", &|_| false).map_err(failed)?;
    let opened = Package::open(&whole).map(|package| package.config.layers);
    tally.holds("the whole copy", "opens", opened.is_ok(), format!("{opened:?}"))?;
    let mut messages = Vec::new();
    for (number, (part, says, names)) in ["1", "2", "3"].into_iter().zip(PARTS) {
        let left_out = |file: &str| match part {
            "weights" => names.iter().any(|name| file.ends_with(name)),
            _ => names.contains(&file),
        };
        let copy = copy(number, &left_out).map_err(failed)?;
        messages.push(refused(part, &copy, says, tally)?);
    }
    Ok(format!("without each of the three: refused; \"{}\"", messages[2]))
}

/// The message that opening ends with.
fn refused(part: &str, path: &Path, says: &str, tally: &mut Tally) -> Seen {
    let what = format!("opening without {part}");
    let message = match Package::open(path) {
        Ok(_) => "it opens".to_owned(),
        Err(error) => error.to_string(),
    };
    // The path itself, of which the folder may be called anything, must not be what says it.
    let folder = path.parent().unwrap_or(path).display().to_string();
    let message = message.replace(&format!("{folder}/"), "");
    let named = message.to_ascii_lowercase().contains(says);
    tally.holds(what, format!("a message with {says:?}"), named, &message)?;
    Ok(message)
}

/// Copies of the file's beginning, in which a name is another, or that end in the weights.
fn gguf(source: &Path, folder: &Path, tally: &mut Tally) -> Seen {
    let failed = |error: std::io::Error| Stop::failed("an incomplete copy", error);
    let mut head = Vec::new();
    let file = File::open(source).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    file.take(HEAD_BYTES_MAX).read_to_end(&mut head).map_err(failed)?;
    // The weights' bytes are zeros in the copies: nobody reads them.
    let copy = |name: &str, head: &[u8], length: u64| {
        let path = folder.join(format!("{name}.gguf"));
        let mut file = File::create(&path)?;
        file.write_all(&head[..head.len().min(length as usize)])?;
        file.set_len(length)?;
        Ok(path)
    };
    let whole = copy("0", &head, length).map_err(failed)?;
    let opened = Package::open(&whole);
    let problem = opened.as_ref().err().map(ToString::to_string).unwrap_or_default();
    tally.holds("the whole copy", "opens", opened.is_ok(), problem)?;
    let layers =
        format!("{}.block_count", opened.map_or("gpt2", |own| own.config.architecture.name()));
    for (part, key, says) in [
        ("configuration", layers.as_str(), "block_count"),
        ("tokenizer", "tokenizer.ggml.tokens", "tokenizer"),
    ] {
        let renamed = without(&head, key).ok_or_else(|| Stop::failed(key, "it is not there"))?;
        let path = copy("1", &renamed, length).map_err(failed)?;
        refused(part, &path, says, tally)?;
    }
    let path = copy("2", &head, length / 2).map_err(failed)?;
    let message = refused("weights", &path, "tensor", tally)?;
    Ok(format!("a key renamed in a copy, or the weights cut off: refused; \"{message}\""))
}

/// The bytes with the last letter of `key` changed where it stands as a GGUF string, after its
/// length in eight bytes.
fn without(head: &[u8], key: &str) -> Option<Vec<u8>> {
    let string = [&(key.len() as u64).to_le_bytes()[..], key.as_bytes()].concat();
    let at = head.windows(string.len()).position(|window| window == string)?;
    let mut changed = head.to_vec();
    changed[at + string.len() - 1] = b'_';
    Some(changed)
}
