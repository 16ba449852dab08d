//! How much a template can be told to let its model reason.

use serde_json::{Map, Value};

/// OpenAI's words for how much a model is to reason, from none at all on.
pub const REASONING_EFFORTS: [&str; 6] = ["none", "minimal", "low", "medium", "high", "xhigh"];
/// The words that a template takes which writes out what it is given.
const COMMON: [&str; 3] = ["low", "medium", "high"];
/// Variables that turn reasoning on and off: of Qwen3, SmolLM3 and GLM; of DeepSeek and Granite;
/// of Cohere.
const SWITCHES: [&str; 3] = ["enable_thinking", "thinking", "reasoning"];
/// The variable that takes a word.
const EFFORT: &str = "reasoning_effort";

/// The variables that a template reads.
#[derive(Debug, Default)]
pub(super) struct Reasoning {
    switches: Vec<&'static str>,
    /// Indices into [`REASONING_EFFORTS`] of the words that it takes.
    efforts: Vec<usize>,
}

impl Reasoning {
    /// Finds out by rendering: `render` gives the text of a short conversation with one variable
    /// set, `None` where the template fails.
    pub(super) fn find(
        source: &str,
        render: impl Fn(&'static str, Value) -> Option<String>,
    ) -> Reasoning {
        let reads = |name: &&&str| source.contains(**name);
        let differs = |name: &&&'static str| {
            render(name, Value::from(true)) != render(name, Value::from(false))
        };
        let switches = SWITCHES.iter().filter(reads).filter(differs).copied().collect();
        if !source.contains(EFFORT) {
            return Reasoning { switches, efforts: Vec::new() };
        }
        let is_quoted = |word: &str| {
            COMMON.contains(&word)
                || ['"', '\''].iter().any(|q| source.contains(&format!("{q}{word}{q}")))
        };
        let words = REASONING_EFFORTS.iter().enumerate().filter(|(_, word)| is_quoted(word));
        let texts: Vec<(usize, String)> = words
            .filter_map(|(index, word)| Some((index, render(EFFORT, Value::from(*word))?)))
            .collect();
        let is_read = texts.windows(2).any(|pair| pair[0].1 != pair[1].1);
        let efforts = texts.iter().filter(|_| is_read).map(|(index, _)| *index).collect();
        Reasoning { switches, efforts }
    }

    pub(super) fn variables(&self, effort: &str) -> Map<String, Value> {
        let mut variables = Map::new();
        let Some(wanted) = REASONING_EFFORTS.iter().position(|word| *word == effort) else {
            return variables;
        };
        for switch in &self.switches {
            let on = !["none", "minimal"].contains(&effort);
            variables.insert((*switch).to_owned(), Value::from(on));
        }
        // The next one; of two as near, the one with less.
        if let Some(index) = self.efforts.iter().min_by_key(|index| index.abs_diff(wanted)) {
            variables.insert(EFFORT.to_owned(), Value::from(REASONING_EFFORTS[*index]));
        }
        variables
    }
}
