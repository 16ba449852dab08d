//! How a model writes its answers, found out from its chat template.

use crate::families::{
    COHERE, COMMAND_R, DEEPSEEK, FIREFUNCTION, Family, GEMMA, GLM, HERMES, JSON, KIMI, LLAMA,
    MISTRAL, MISTRAL_ARGS, PYTHON,
};
use crate::shape::CallShape;

/// Where a template has all texts of an entry, its model writes calls like that; the first counts.
const SIGNS: [(&[&str], &Family); 14] = [
    (&["<|START_ACTION|>"], &COHERE),
    (&["[TOOL_CALLS]", "[ARGS]"], &MISTRAL_ARGS),
    (&["[TOOL_CALLS]"], &MISTRAL),
    (&["<｜tool▁call▁begin｜>"], &DEEPSEEK),
    (&["<|tool_call_begin|>"], &KIMI),
    (&["<|tool_call_start|>"], &PYTHON),
    (&["<tool_call>", "<arg_key>"], &GLM),
    (&["<tool_call>"], &HERMES),
    (&["<functioncall>"], &FIREFUNCTION),
    (&["Action:", "tool_name"], &COMMAND_R),
    (&["<|python_tag|>"], &LLAMA),
    (&["<|start_header_id|>", "\"parameters\""], &LLAMA),
    (&["<start_of_turn>"], &GEMMA),
    (&[], &JSON),
];

/// The marks around reasoning; a template that has the second writes with both.
const THINKING: [Thinking; 4] = [
    Thinking { open: "<think>", close: "</think>" },
    Thinking { open: "<|START_THINKING|>", close: "<|END_THINKING|>" },
    Thinking { open: "<|thought_start|>", close: "<|thought_end|>" },
    Thinking { open: "[THINK]", close: "[/THINK]" },
];

/// How a model writes its answers: its way to call tools, and to mark its reasoning.
#[derive(Debug, Clone, Copy)]
pub struct Format {
    pub(crate) family: &'static Family,
    pub(crate) thinking: Option<Thinking>,
}

/// The marks around reasoning.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Thinking {
    pub(crate) open: &'static str,
    pub(crate) close: &'static str,
}

impl Format {
    /// The format of the model that has this chat template.
    ///
    /// One that says nothing of calls, or an empty text where there is no template, gives plain
    /// JSON: an object with `name` and `arguments` where the answer begins.
    pub fn of(template: &str) -> Format {
        let has = |sign: &&str| template.contains(*sign);
        let family = SIGNS.iter().find(|(signs, _)| signs.iter().all(has)).map(|(_, one)| *one);
        let thinking = THINKING.into_iter().find(|thinking| template.contains(thinking.close));
        Format { family: family.unwrap_or(&JSON), thinking }
    }

    /// What the way to call tools is named here.
    pub fn name(&self) -> &'static str {
        self.family.name
    }

    /// Texts that mark parts of an answer. Where a vocabulary has one as a special token, the
    /// token must come through as text to a [`Reader`](crate::Reader).
    pub fn markers(&self) -> impl Iterator<Item = &'static str> + use<> {
        let thinking = self.thinking.into_iter();
        thinking.flat_map(|one| [one.open, one.close]).chain(self.family.markers.iter().copied())
    }

    /// How calls must be written that a model is made to make.
    ///
    /// The arguments are JSON in every format; a model that writes them otherwise on its own is
    /// made to write calls as others do.
    pub fn call_shape(&self) -> CallShape {
        self.family.forced
    }

    /// Whether the model may write reasoning that is marked.
    pub fn has_reasoning(&self) -> bool {
        self.thinking.is_some()
    }

    /// Whether the prompt, as it was rendered, ends inside reasoning, so that the answer begins
    /// with it.
    pub fn opens_reasoning(&self, prompt: &str) -> bool {
        self.thinking.is_some_and(|thinking| prompt.trim_end().ends_with(thinking.open))
    }
}
