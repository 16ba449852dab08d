//! The fields of a request that its response repeats.

use doctor::ToolChoice;
use serde_json::{Map, Value, json};

use crate::calling::Calling;
use crate::fields::Fields;

/// The fields of a request that its response repeats, with what stands for those that it lacks.
#[derive(Debug, Clone)]
pub(super) struct Echo(Map<String, Value>);

/// Fields that are texts, or null.
const TEXTS: [&str; 5] =
    ["instructions", "previous_response_id", "prompt_cache_key", "safety_identifier", "user"];
const SUMMARIES: [&str; 3] = ["auto", "concise", "detailed"];
const VERBOSITIES: [&str; 3] = ["low", "medium", "high"];

impl Echo {
    /// What `fields` holds before it is taken and checked.
    pub(super) fn of(fields: &Fields) -> Self {
        let or = |name: &str, other: Value| fields.get(name).cloned().unwrap_or(other);
        let inner = |object: &str, name: &str| fields.get(object).and_then(|one| one.get(name));
        let word = |object: &str, name: &str, known: &[&str]| {
            let word = inner(object, name).and_then(Value::as_str);
            word.filter(|word| known.contains(word)).map(str::to_owned)
        };
        let mut echo = Map::new();
        for name in TEXTS {
            let text = fields.get(name).filter(|value| value.is_string());
            echo.insert(name.to_owned(), text.cloned().unwrap_or_default());
        }
        let retention = match fields.get("prompt_cache_retention").and_then(Value::as_str) {
            Some("in-memory") => Some("in_memory"),
            other => other,
        };
        let format = inner("text", "format").filter(|format| !format.is_null()).cloned();
        let mut text = json!({"format": format.unwrap_or_else(|| json!({"type": "text"}))});
        if let Some(verbosity) = word("text", "verbosity", &VERBOSITIES) {
            text["verbosity"] = Value::from(verbosity);
        }
        let rest = json!({
            "background": false,
            "max_output_tokens": or("max_output_tokens", Value::Null),
            "max_tool_calls": null,
            "metadata": or("metadata", json!({})),
            "prompt_cache_retention": retention,
            "reasoning": {
                "effort": inner("reasoning", "effort"),
                "summary": word("reasoning", "summary", &SUMMARIES),
            },
            "service_tier": "default",
            "store": or("store", json!(true)),
            "temperature": or("temperature", json!(1.0)),
            "text": text,
            "top_logprobs": or("top_logprobs", json!(0)),
            "top_p": or("top_p", json!(1.0)),
            "truncation": "disabled",
        });
        if let Value::Object(rest) = rest {
            echo.extend(rest);
        }
        Self(echo)
    }

    /// Adds the tools, which are in the form of chat completions, and how they may be called.
    pub(super) fn calls(&mut self, tools: Option<&Value>, calling: &Calling) {
        let tools = tools.and_then(Value::as_array).into_iter().flatten().map(|tool| {
            let function = &tool["function"];
            json!({
                "type": "function",
                "name": function["name"],
                "description": function["description"],
                "parameters": function["parameters"],
                "strict": function["strict"],
            })
        });
        let choice = match &calling.choice {
            ToolChoice::None => json!("none"),
            ToolChoice::Auto => json!("auto"),
            ToolChoice::Required => json!("required"),
            ToolChoice::Named(name) => json!({"type": "function", "name": name}),
        };
        self.0.insert("tools".to_owned(), tools.collect());
        self.0.insert("tool_choice".to_owned(), choice);
        self.0.insert("parallel_tool_calls".to_owned(), Value::from(calling.parallel));
    }

    /// The fields.
    pub(super) fn fields(&self) -> &Map<String, Value> {
        &self.0
    }
}
