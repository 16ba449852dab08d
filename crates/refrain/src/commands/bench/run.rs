//! What is measured, and the raw results.

use std::fmt;
use std::path::Path;

use serde::Serialize;

/// The name of our own results, beside the peers'.
pub(super) const OURS: &str = "refrain";
/// The name of our own results without guesses.
pub(super) const PLAIN: &str = "plain";
/// The name of the least time, as a rate, that the machine allows.
pub(super) const LIMIT: &str = "limit";

/// Something to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Test {
    /// Computing so many prompt tokens after `depth` others.
    Prefill { tokens: u32, depth: u32 },
    /// Decoding so many tokens after `depth` others.
    Decode { tokens: u32, depth: u32 },
    /// Decoding so many tokens in each of some sequences together, after `depth` others in each.
    Batch { sequences: u16, tokens: u32, depth: u32 },
    /// From starting a server to its first answer.
    Start,
    /// From sending a long prompt that is new to its first token, over HTTP.
    Cold,
    /// The same with another last question.
    OtherQuestion,
    /// The same once more, unchanged.
    Repeat,
    /// The most memory that the server took.
    PeakMemory,
    /// From the first of so many clients' requests, with a system prompt that is new, to the last
    /// one's answer.
    ClientsCold { clients: u16 },
    /// The same with other questions.
    ClientsWarm { clients: u16 },
    /// Something of four answers, a prompt of so many tokens and a small request after it.
    Busy { tokens: u32, what: Busy },
    /// Decoding the answer to a question, while its tokens are guessed.
    Answer(Question),
}

/// What is measured while a long prompt is computed beside four answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Busy {
    /// The time between two tokens of an answer before and after, of both the median, halfway.
    Step,
    /// The same meanwhile, in those of before.
    Median,
    /// What 99 in 100 of them do not exceed.
    Slowest,
    /// From sending the long prompt to its first token.
    Long,
    /// From sending a small prompt a little later to its first token.
    Late,
}

impl Test {
    /// What one client asks a server, in this order.
    pub(super) const OF_SERVERS: [Test; 5] =
        [Test::Start, Test::Cold, Test::OtherQuestion, Test::Repeat, Test::PeakMemory];

    /// Whether a server is asked, by one client or by several.
    pub(super) fn is_of_servers(self) -> bool {
        Test::OF_SERVERS.contains(&self) || self.clients().is_some()
    }

    /// How many clients ask a server, where it is several.
    pub(super) fn clients(self) -> Option<u16> {
        match self {
            Test::ClientsCold { clients } | Test::ClientsWarm { clients } => Some(clients),
            _ => None,
        }
    }

    pub(super) fn unit(self) -> Unit {
        match self {
            Test::Prefill { .. } | Test::Decode { .. } | Test::Batch { .. } | Test::Answer(_) => {
                Unit::TokensPerSecond
            }
            Test::PeakMemory => Unit::Mebibytes,
            Test::Busy { what: Busy::Median | Busy::Slowest, .. } => Unit::Steps,
            _ => Unit::Milliseconds,
        }
    }
}

/// llama-bench's names where it has any: `pp512`, `tg128`, `tg128@d4096`; `tg128x8` is in eight
/// sequences.
impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let depth = match *self {
            Test::Prefill { tokens, depth } => {
                write!(f, "pp{tokens}")?;
                depth
            }
            Test::Decode { tokens, depth } => {
                write!(f, "tg{tokens}")?;
                depth
            }
            Test::Batch { sequences, tokens, depth } => {
                write!(f, "tg{tokens}x{sequences}")?;
                depth
            }
            Test::Start => return f.write_str("start"),
            Test::Cold => return f.write_str("cold"),
            Test::OtherQuestion => return f.write_str("other-question"),
            Test::Repeat => return f.write_str("repeat"),
            Test::PeakMemory => return f.write_str("peak-memory"),
            Test::ClientsCold { clients } => return write!(f, "clients{clients}-cold"),
            Test::ClientsWarm { clients } => return write!(f, "clients{clients}-warm"),
            Test::Busy { tokens, what } => return write!(f, "busy{tokens}-{}", what.name()),
            Test::Answer(question) => return write!(f, "{question}"),
        };
        match depth {
            0 => Ok(()),
            depth => write!(f, "@d{depth}"),
        }
    }
}

impl Busy {
    fn name(self) -> &'static str {
        match self {
            Busy::Step => "step",
            Busy::Median => "p50",
            Busy::Slowest => "p99",
            Busy::Long => "first",
            Busy::Late => "late",
        }
    }
}

/// A question, by what its answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// A text, word for word.
    Repeat,
    /// A file with a change.
    Edit,
    /// Passages of a document.
    Extract,
    Story,
    Explanation,
    Advice,
}

impl Question {
    pub(super) const ALL: [Question; 6] = [
        Question::Repeat,
        Question::Edit,
        Question::Extract,
        Question::Story,
        Question::Explanation,
        Question::Advice,
    ];
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Question::Repeat => "copy-text",
            Question::Edit => "copy-file",
            Question::Extract => "copy-passages",
            Question::Story => "free-story",
            Question::Explanation => "free-explanation",
            Question::Advice => "free-advice",
        })
    }
}

/// What a server is started for.
#[derive(Clone, Copy)]
pub(super) struct Purpose<'a> {
    pub(super) model: &'a Path,
    pub(super) threads: u16,
    /// How many ask at once.
    pub(super) clients: u16,
    /// Tokens that each must have room for.
    pub(super) context: u32,
    /// Whether the model has a chat template.
    pub(super) converses: bool,
}

/// What a result counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Unit {
    #[serde(rename = "tok/s")]
    TokensPerSecond,
    #[serde(rename = "ms")]
    Milliseconds,
    #[serde(rename = "MiB")]
    Mebibytes,
    /// Ordinary steps.
    #[serde(rename = "steps")]
    Steps,
}

impl Unit {
    pub(super) fn name(self) -> &'static str {
        match self {
            Unit::TokensPerSecond => "tok/s",
            Unit::Milliseconds => "ms",
            Unit::Mebibytes => "MiB",
            Unit::Steps => "steps",
        }
    }

    /// How many times as good `ours` is as `theirs`: above one is better, whatever is counted.
    pub(super) fn ratio(self, ours: f64, theirs: f64) -> f64 {
        if self == Unit::TokensPerSecond { ours / theirs } else { theirs / ours }
    }
}

/// One measurement: a line of the file that `--runs` names.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Run {
    /// The model's file, without its folder.
    pub(super) model: String,
    /// The test's name.
    #[serde(serialize_with = "by_name")]
    pub(super) test: Test,
    pub(super) threads: u16,
    /// `refrain`, or a peer's name.
    pub(super) program: String,
    /// The peer's options, beyond those that the test needs.
    pub(super) setting: String,
    pub(super) unit: Unit,
    pub(super) value: f64,
}

fn by_name<S: serde::Serializer>(test: &Test, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(test)
}

/// The middle and the ends of some values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    /// Of at least one value.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (&min, &max) = (values.first()?, values.last()?);
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            1 => values[middle],
            _ => (values[middle - 1] + values[middle]) / 2.0,
        };
        Some(Spread { median, min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_few_and_of_many() {
        assert_eq!(Spread::of([]), None);
        let spread = Spread { median: 2.5, min: 1.0, max: 4.0 };
        assert_eq!(Spread::of([4.0, 1.0, 3.0, 2.0]), Some(spread));
        assert_eq!(Spread::of([5.0]), Some(Spread { median: 5.0, min: 5.0, max: 5.0 }));
    }

    #[test]
    fn tests_have_the_names_of_llama_bench() {
        let name = |test: Test| test.to_string();
        assert_eq!(name(Test::Prefill { tokens: 512, depth: 0 }), "pp512");
        assert_eq!(name(Test::Decode { tokens: 128, depth: 4096 }), "tg128@d4096");
        assert_eq!(name(Test::Batch { sequences: 8, tokens: 64, depth: 512 }), "tg64x8@d512");
    }

    #[test]
    fn a_ratio_above_one_is_better() {
        assert_eq!(Unit::TokensPerSecond.ratio(20.0, 10.0), 2.0);
        assert_eq!(Unit::Milliseconds.ratio(5.0, 10.0), 2.0);
    }
}
