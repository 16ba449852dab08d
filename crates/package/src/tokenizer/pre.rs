//! The rules by which text is split before BPE, under the names that GGUF files give them.

use super::description::Splitting;
use super::error::TokenizerError;
use serde_json::{Value, json};

/// The splitting of Llama 3's `tokenizer.json`.
const LLAMA3: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
/// The splitting of Qwen 2's `tokenizer.json`: Llama 3's with single digits.
const QWEN2: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
/// GPT-2's splitting (`encoder.py`).
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// What llama.cpp does first, and last, for files that name no rule.
const DEFAULT_PUNCTUATION: &str = r"[\p{P}\$\+<=>\^~\|]+";
const DEFAULT_NUMBERS: &str = r"\p{N}+";
const DEFAULT_THREE_DIGITS: &str = "[0-9][0-9][0-9]";

/// A named rule, with what else its name implies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PreRule {
    /// GPT-2.
    Gpt2,
    /// GPT-2 after single digits: SmolLM, StarCoder, Command R.
    Smollm,
    /// Llama 3.
    Llama3,
    /// Llama 3's splitting, but merges are followed.
    SmaugBpe,
    /// Qwen 2.
    Qwen2,
    /// llama.cpp's rule for files that name none.
    Default,
}

impl PreRule {
    /// The rule of a `tokenizer.ggml.pre` value, by llama.cpp's table of names.
    ///
    /// # Errors
    /// [`TokenizerError::Unsupported`] for a name that is not known: another rule would split
    /// text in ways that the model never saw.
    pub(super) fn from_name(name: &str) -> Result<PreRule, TokenizerError> {
        Ok(match name {
            "default" => PreRule::Default,
            "gpt-2" | "phi-2" | "jina-es" | "jina-de" | "jina-v2-es" | "jina-v2-de"
            | "jina-v2-code" | "gigachat" | "a.x-4.0" | "mellum" | "mpt" | "olmo" | "jais" => {
                PreRule::Gpt2
            }
            "smollm" | "starcoder" | "refact" | "command-r" | "codeshell" => PreRule::Smollm,
            "llama-bpe" | "llama3" | "llama-v3" | "falcon3" | "falcon-h1" | "midm-2.0" => {
                PreRule::Llama3
            }
            "smaug-bpe" => PreRule::SmaugBpe,
            "qwen2" | "deepseek-r1-qwen" | "megrez" | "stablelm2" => PreRule::Qwen2,
            _ => {
                return Err(TokenizerError::Unsupported {
                    what: "the pre-tokenizer",
                    name: name.to_owned(),
                    supported: "gpt-2, smollm, llama-bpe, smaug-bpe, qwen2 and default are"
                        .to_owned(),
                });
            }
        })
    }

    /// The rule as parts of a `tokenizer.json`.
    ///
    /// GGUF metadata has no normalizer and llama.cpp applies none, so neither is one applied
    /// here: the tokens' bytes are the text's.
    pub(super) fn splitting(self) -> Splitting {
        let parts = match self {
            PreRule::Gpt2 => vec![byte_level(true)],
            PreRule::Smollm => {
                vec![json!({"type": "Digits", "individual_digits": true}), byte_level(true)]
            }
            PreRule::Llama3 | PreRule::SmaugBpe => vec![split(LLAMA3), byte_level(false)],
            PreRule::Qwen2 => vec![split(QWEN2), byte_level(false)],
            PreRule::Default => vec![
                split(DEFAULT_PUNCTUATION),
                split(GPT2),
                split(DEFAULT_NUMBERS),
                split(DEFAULT_THREE_DIGITS),
                byte_level(false),
            ],
        };
        Splitting {
            normalizer: Value::Null,
            pre_tokenizer: json!({"type": "Sequence", "pretokenizers": parts}),
            ignore_merges: self == PreRule::Llama3,
        }
    }

    /// Whether BOS comes before a text when the file does not say.
    pub(super) fn adds_bos(self) -> bool {
        self == PreRule::Llama3
    }
}

fn split(pattern: &str) -> Value {
    json!({
        "type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false,
    })
}

/// The byte-level part; `use_regex` adds GPT-2's splitting.
fn byte_level(use_regex: bool) -> Value {
    json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
        "use_regex": use_regex,
    })
}

#[cfg(test)]
mod tests {
    use super::PreRule;
    use crate::tokenizer::byte_level::byte_of;
    use tokenizers::PreTokenizerWrapper;
    use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};

    fn pieces(rule: &str, text: &str) -> Vec<String> {
        let splitting = PreRule::from_name(rule).expect("a known rule").splitting();
        let splitter: PreTokenizerWrapper =
            serde_json::from_value(splitting.pre_tokenizer).expect("a valid rule");
        let mut pieces = PreTokenizedString::from(text);
        splitter.pre_tokenize(&mut pieces).expect("splits");
        let written = pieces.get_splits(OffsetReferential::Normalized, OffsetType::Byte);
        let bytes = |piece: &str| piece.chars().filter_map(byte_of).collect::<Vec<u8>>();
        written
            .into_iter()
            .map(|(piece, _, _)| String::from_utf8(bytes(piece)).expect("whole characters"))
            .collect()
    }

    /// With these rules, ids equal llama.cpp's for its own vocabularies and their test files
    /// (gpt-2, refact, llama-bpe, qwen2, and aquila for the default).
    #[test]
    fn rules_differ_in_digits_contractions_and_line_breaks() {
        let text = "I'LL pay $1234.5\n\n  now ";
        assert_eq!(
            pieces("gpt-2", text),
            ["I", "'", "LL", " pay", " $", "1234", ".", "5", "\n\n ", " now", " "]
        );
        assert_eq!(
            pieces("smollm", text),
            ["I", "'", "LL", " pay", " $", "1", "2", "3", "4", ".", "5", "\n\n ", " now", " "]
        );
        assert_eq!(
            pieces("llama-bpe", text),
            ["I", "'LL", " pay", " $", "123", "4", ".", "5", "\n\n", " ", " now", " "]
        );
        assert_eq!(
            pieces("qwen2", text),
            ["I", "'LL", " pay", " $", "1", "2", "3", "4", ".", "5", "\n\n", " ", " now", " "]
        );
        assert_eq!(
            pieces("default", text),
            ["I", "'", "LL", " pay", " ", "$", "123", "4", ".", "5", "\n\n ", " now", " "]
        );
        assert!(PreRule::from_name("tekken").is_err_and(|e| e.to_string().contains("tekken")));
    }
}
