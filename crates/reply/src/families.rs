//! The ways of writing calls that models are trained for.

use crate::shape::{Body, CallShape, Place, Shape, Tags};

/// A way of writing answers with calls.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) name: &'static str,
    /// In the order in which they are tried.
    pub(crate) shapes: &'static [Shape],
    /// Texts around the parts of an answer that say nothing, and are left out.
    pub(crate) silent: &'static [&'static str],
    /// What of all these texts may be special tokens.
    pub(crate) markers: &'static [&'static str],
    pub(crate) forced: CallShape,
}

const PLAIN: Shape = Shape {
    opening: "",
    place: Place::Beginning,
    body: Body::Json,
    closings: &[],
    before: "",
    declared_only: true,
};
const FENCED: Shape = Shape { opening: "```json", closings: &["```"], ..PLAIN };

const TOOL_CALL: Shape = Shape {
    opening: "<tool_call>",
    place: Place::Anywhere,
    body: Body::Json,
    closings: &["</tool_call>"],
    before: "\n",
    declared_only: false,
};
const TOOL_CALL_FORCED: CallShape = CallShape {
    before: "<tool_call>\n",
    between: Some("\n</tool_call>\n<tool_call>\n"),
    after: "\n</tool_call>",
    suffix: "}",
    before_name: "{\"name\": \"",
    after_name: "\", \"arguments\": ",
};
const TOOL_CALL_MARKERS: &[&str] = &["<tool_call>", "</tool_call>"];

const CODER: Tags = Tags {
    before_name: "<function=",
    after_name: ">",
    before_key: "<parameter=",
    after_key: ">",
    before_value: "",
    after_value: "</parameter>",
    end: "</function>",
    own_lines: true,
};

/// Hermes 2 Pro, Qwen2.5, Qwen3 and SmolLM3 (JSON); Qwen3-Coder (elements).
pub(crate) const HERMES: Family = Family {
    name: "hermes",
    shapes: &[TOOL_CALL, Shape { body: Body::Tagged(CODER), ..TOOL_CALL }],
    silent: &[],
    markers: TOOL_CALL_MARKERS,
    forced: TOOL_CALL_FORCED,
};

const ELEMENTS: Tags = Tags {
    before_name: "",
    after_name: "",
    before_key: "<arg_key>",
    after_key: "</arg_key>",
    before_value: "<arg_value>",
    after_value: "</arg_value>",
    end: "</tool_call>",
    own_lines: false,
};

/// GLM 4.5 and later.
pub(crate) const GLM: Family = Family {
    name: "glm",
    shapes: &[Shape { body: Body::Tagged(ELEMENTS), ..TOOL_CALL }, TOOL_CALL],
    silent: &[],
    markers: &[
        "<tool_call>",
        "</tool_call>",
        "<arg_key>",
        "</arg_key>",
        "<arg_value>",
        "</arg_value>",
    ],
    forced: TOOL_CALL_FORCED,
};

const PYTHON_TAG: Shape = Shape {
    opening: "<|python_tag|>",
    place: Place::Anywhere,
    body: Body::Json,
    closings: &[],
    before: "",
    declared_only: false,
};

/// Llama 3.1 and later.
pub(crate) const LLAMA: Family = Family {
    name: "llama",
    shapes: &[PYTHON_TAG, PLAIN, FENCED],
    silent: &[],
    markers: &["<|python_tag|>"],
    // The template refuses a conversation with more than one call in a message.
    forced: CallShape {
        before: "",
        between: None,
        after: "",
        suffix: "}",
        before_name: "{\"name\": \"",
        after_name: "\", \"parameters\": ",
    },
};

/// Models whose template says nothing of calls, or asks for plain JSON.
pub(crate) const JSON: Family = Family {
    name: "json",
    shapes: &[PLAIN, FENCED],
    silent: &[],
    markers: &[],
    forced: CallShape {
        before: "",
        between: Some("\n"),
        after: "",
        suffix: "}",
        before_name: "{\"name\": \"",
        after_name: "\", \"arguments\": ",
    },
};

const MISTRAL_LIST: Shape =
    Shape { opening: "[TOOL_CALLS]", closings: &[], before: "", ..TOOL_CALL };
const MISTRAL_NAMED: Shape =
    Shape { body: Body::Named { id: "[CALL_ID]", between: "[ARGS]" }, ..MISTRAL_LIST };

/// Mistral with a list of calls.
pub(crate) const MISTRAL: Family = Family {
    name: "mistral",
    shapes: &[MISTRAL_LIST, MISTRAL_NAMED],
    silent: &[],
    markers: &["[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"],
    forced: CallShape {
        before: "[TOOL_CALLS] [",
        between: Some(", "),
        after: "]",
        suffix: "}",
        before_name: "{\"name\": \"",
        after_name: "\", \"arguments\": ",
    },
};

/// Later Mistral, with a marker before each name and each call's arguments.
pub(crate) const MISTRAL_ARGS: Family = Family {
    name: "mistral-args",
    forced: CallShape {
        before: "",
        between: Some(""),
        after: "",
        suffix: "",
        before_name: "[TOOL_CALLS]",
        after_name: "[ARGS]",
    },
    ..MISTRAL
};

/// Gemma, which has no template for tools: JSON or Python, as its documentation asks for, or
/// Python between fences.
pub(crate) const GEMMA: Family = Family {
    name: "gemma",
    shapes: &[
        Shape {
            opening: "```tool_code",
            place: Place::Anywhere,
            body: Body::Python,
            closings: &["```"],
            before: "\n",
            declared_only: true,
        },
        FENCED,
        PLAIN,
        Shape { body: Body::Python, ..PLAIN },
    ],
    silent: &[],
    markers: &[],
    forced: CallShape {
        before: "",
        between: Some("\n"),
        after: "",
        suffix: "}",
        before_name: "{\"name\": \"",
        after_name: "\", \"parameters\": ",
    },
};

/// Cohere's Command A and later.
pub(crate) const COHERE: Family = Family {
    name: "cohere",
    shapes: &[Shape {
        opening: "<|START_ACTION|>",
        closings: &["<|END_ACTION|>"],
        before: "",
        ..TOOL_CALL
    }],
    silent: &["<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"],
    markers: &[
        "<|START_ACTION|>",
        "<|END_ACTION|>",
        "<|START_RESPONSE|>",
        "<|END_RESPONSE|>",
        "<|START_TEXT|>",
        "<|END_TEXT|>",
    ],
    forced: CallShape {
        before: "<|START_ACTION|>[\n    ",
        between: Some(",\n    "),
        after: "\n]<|END_ACTION|>",
        suffix: "}",
        before_name: "{\"tool_name\": \"",
        after_name: "\", \"parameters\": ",
    },
};

/// Cohere's Command R.
pub(crate) const COMMAND_R: Family = Family {
    name: "command-r",
    // It calls a tool `directly-answer` where it calls none.
    shapes: &[Shape {
        opening: "Action:\n```json",
        closings: &["```"],
        declared_only: true,
        ..TOOL_CALL
    }],
    silent: &[],
    markers: &[],
    forced: CallShape {
        before: "Action:\n```json\n[\n    ",
        between: Some(",\n    "),
        after: "\n]```",
        suffix: "\n    }",
        before_name: "{\n        \"tool_name\": \"",
        after_name: "\",\n        \"parameters\": ",
    },
};

const DEEPSEEK_CALL: Shape = Shape {
    opening: "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
    place: Place::Anywhere,
    body: Body::Named { id: "", between: "\n```json\n" },
    closings: &["```<｜tool▁call▁end｜>", "<｜tool▁call▁end｜>"],
    before: "",
    declared_only: false,
};

/// DeepSeek's R1 and V3, and the shorter way of V3.1.
pub(crate) const DEEPSEEK: Family = Family {
    name: "deepseek",
    shapes: &[
        DEEPSEEK_CALL,
        Shape {
            opening: "<｜tool▁call▁begin｜>",
            body: Body::Named { id: "", between: "<｜tool▁sep｜>" },
            ..DEEPSEEK_CALL
        },
    ],
    silent: &["<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"],
    markers: &[
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁end｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁call▁end｜>",
        "<｜tool▁sep｜>",
    ],
    forced: CallShape {
        before: "<｜tool▁calls▁begin｜>",
        between: Some("\n"),
        after: "<｜tool▁calls▁end｜>",
        suffix: "\n```<｜tool▁call▁end｜>",
        before_name: "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
        after_name: "\n```json\n",
    },
};

/// Moonshot's Kimi K2.
pub(crate) const KIMI: Family = Family {
    name: "kimi",
    shapes: &[Shape {
        opening: "<|tool_call_begin|>",
        body: Body::Named { id: "", between: "<|tool_call_argument_begin|>" },
        closings: &["<|tool_call_end|>"],
        before: "",
        ..TOOL_CALL
    }],
    silent: &["<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"],
    markers: &[
        "<|tool_calls_section_begin|>",
        "<|tool_calls_section_end|>",
        "<|tool_call_begin|>",
        "<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
    ],
    forced: CallShape {
        before: "<|tool_calls_section_begin|>",
        // The number in a call's name counts the calls, which no fixed text can.
        between: None,
        after: "<|tool_calls_section_end|>",
        suffix: "<|tool_call_end|>",
        before_name: "<|tool_call_begin|>functions.",
        after_name: ":0<|tool_call_argument_begin|>",
    },
};

const PYTHON_CALL: Shape = Shape {
    opening: "<|tool_call_start|>",
    place: Place::Anywhere,
    body: Body::Python,
    closings: &["```", "<|tool_call_end|>"],
    before: "",
    declared_only: false,
};

/// Liquid's LFM2 and MiniCPM3.
pub(crate) const PYTHON: Family = Family {
    name: "python",
    shapes: &[
        Shape { opening: "<|tool_call_start|>\n```python", ..PYTHON_CALL },
        PYTHON_CALL,
        Shape { body: Body::Json, ..PYTHON_CALL },
    ],
    silent: &[],
    markers: &["<|tool_call_start|>", "<|tool_call_end|>"],
    forced: CallShape {
        before: "<|tool_call_start|>[",
        between: Some(", "),
        after: "]<|tool_call_end|>",
        suffix: "}",
        before_name: "{\"name\": \"",
        after_name: "\", \"arguments\": ",
    },
};

/// Firefunction.
pub(crate) const FIREFUNCTION: Family = Family {
    name: "firefunction",
    shapes: &[Shape { opening: "<functioncall>", closings: &[], before: "", ..TOOL_CALL }],
    silent: &["<plain>"],
    markers: &["<functioncall>", "<plain>"],
    forced: CallShape {
        before: "<functioncall>",
        between: Some("<functioncall>"),
        after: "",
        suffix: "}",
        before_name: "{\"name\": \"",
        after_name: "\", \"arguments\": ",
    },
};
