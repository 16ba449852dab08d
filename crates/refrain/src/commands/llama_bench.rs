//! Running llama.cpp's `llama-bench` beside our own benchmark.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::failure::Failure;

/// A `llama-bench` binary and the model file that it is to load.
pub(crate) struct LlamaBench {
    binary: PathBuf,
    model: PathBuf,
}

/// What llama-bench is asked to measure once.
#[derive(Clone, Copy)]
pub(crate) struct Measurement {
    pub(crate) prompt: u32,
    pub(crate) generate: u32,
    pub(crate) depth: u32,
    pub(crate) threads: u16,
    pub(crate) flash_attention: bool,
}

impl LlamaBench {
    pub(crate) fn new(binary: &Path, model: &Path) -> Result<Self, Failure> {
        if !binary.is_file() {
            let binary = binary.display();
            let message = format!("--peer {binary} is not a file; name a llama-bench binary");
            return Err(Failure::Usage(message));
        }
        if !model.is_file() {
            let message = "--peer needs a model that is one GGUF file";
            return Err(Failure::Usage(message.to_owned()));
        }
        Ok(Self { binary: binary.to_owned(), model: model.to_owned() })
    }

    /// Tokens per second of one run.
    pub(crate) fn measure(&self, what: Measurement) -> Result<f64, Failure> {
        let output = Command::new(&self.binary)
            .arg("-m")
            .arg(&self.model)
            .args(["-p", &what.prompt.to_string(), "-n", &what.generate.to_string()])
            .args([
                "-t",
                &what.threads.to_string(),
                "-fa",
                if what.flash_attention { "1" } else { "0" },
            ])
            // Depth 0 is the default; older versions do not know the flag.
            .args(if what.depth > 0 {
                vec!["-d".to_owned(), what.depth.to_string()]
            } else {
                vec![]
            })
            .args(["-r", "1", "-o", "json"])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| Failure::new(format!("cannot run the peer: {error}")))?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            let last = stderr.lines().last().unwrap_or("it said nothing");
            return Err(Failure::new(format!("the peer failed ({}): {last}", output.status)));
        }
        parse(&output.stdout)
            .ok_or_else(|| Failure::new("the peer printed no result that can be read"))
    }
}

/// The rate out of llama-bench's JSON: an array with one result.
fn parse(stdout: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(stdout).ok()?;
    let start = text.find('[')?;
    let results: Value =
        serde_json::Deserializer::from_str(&text[start..]).into_iter().next()?.ok()?;
    results.get(0)?.get("avg_ts")?.as_f64()
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn the_rate_is_found_in_the_output() {
        let output =
            b"build: warm\n[\n {\"n_prompt\": 512, \"avg_ts\": 503.25, \"stddev_ts\": 0.0}\n]\n";
        assert_eq!(parse(output), Some(503.25));
        assert_eq!(parse(b"[]"), None);
        assert_eq!(parse(b"no model"), None);
    }
}
