//! How answers are read: what of the text is reasoning, what is said, and what calls a tool.

use doctor::{ToolChoice, declared_tools};
use package::Package;
use reply::{CallShape, Format, Reader, Tools};
use serde_json::Value;

/// Tokens at the end of a prompt that show whether it ends inside reasoning.
const TAIL_TOKENS: usize = 16;

/// How the served model writes its answers.
pub(crate) struct AnswerFormat {
    format: Format,
    /// Special tokens whose texts mark parts of an answer, so that they are part of its text.
    pub(crate) marker_ids: Vec<u32>,
}

impl AnswerFormat {
    pub(crate) fn of(package: &Package) -> Self {
        let format = Format::of(package.chat_template.as_ref().map_or("", |one| one.source()));
        let tokenizer = &package.tokenizer;
        let special = |id: &u32| tokenizer.is_special(*id);
        let ids = format.markers().filter_map(|text| tokenizer.id_of(text)).filter(special);
        Self { format, marker_ids: ids.collect() }
    }

    /// How calls are written.
    pub(crate) fn call_shape(&self) -> CallShape {
        self.format.call_shape()
    }

    /// How the answer to a prompt is read that may call `tools` as `choice` says.
    pub(crate) fn reading(
        &self,
        package: &Package,
        prompt: &[u32],
        tools: Option<&Value>,
        choice: &ToolChoice,
        is_constrained: bool,
    ) -> Reading {
        let tail = &prompt[prompt.len().saturating_sub(TAIL_TOKENS)..];
        let tail = package.tokenizer.decode(tail, true);
        let in_reasoning = self.format.opens_reasoning(&tail);
        let tools = declared_tools(tools.filter(|_| choice.may_call())).collect();
        Reading { format: self.format, tools, in_reasoning, is_constrained }
    }
}

/// How the answers to one prompt are read.
#[derive(Clone)]
pub(crate) struct Reading {
    format: Format,
    tools: Tools,
    in_reasoning: bool,
    is_constrained: bool,
}

impl Reading {
    /// A reader of one of them.
    pub(crate) fn reader(&self) -> Reader {
        match self.is_constrained {
            // It holds nothing but what was asked for.
            true => Reader::held(self.format, self.tools.clone()),
            false => Reader::new(self.format, self.tools.clone(), self.in_reasoning),
        }
    }
}
