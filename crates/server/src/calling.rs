//! Which tools an answer may call.

use doctor::{ToolChoice, declared_tools};
use serde_json::Value;

use crate::error::ApiError;
use crate::fields::Fields;

/// Which tools an answer may call, and how many at once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Calling {
    pub(crate) choice: ToolChoice,
    /// Whether one answer may hold several calls.
    pub(crate) parallel: bool,
}

impl Calling {
    /// Takes `tool_choice` and `parallel_tool_calls` of OpenAI's requests.
    pub(crate) fn take_openai(
        fields: &mut Fields,
        tools: Option<&Value>,
    ) -> Result<Self, ApiError> {
        let choice = fields.value("tool_choice").unwrap_or_default();
        let parallel = fields.boolean("parallel_tool_calls")?.unwrap_or(true);
        Self::checked(ToolChoice::read(&choice)?, parallel, tools)
    }

    /// Takes `tool_choice` of Anthropic's requests.
    pub(crate) fn take_anthropic(
        fields: &mut Fields,
        tools: Option<&Value>,
    ) -> Result<Self, ApiError> {
        let choice = fields.value("tool_choice").unwrap_or_default();
        let alone = match &choice["disable_parallel_tool_use"] {
            Value::Null => false,
            Value::Bool(alone) => *alone,
            other => {
                let field = "tool_choice.disable_parallel_tool_use";
                return Err(crate::fields::wrong_type(field, "true or false", other));
            }
        };
        Self::checked(ToolChoice::read(&choice)?, !alone, tools)
    }

    /// Of the fields that were accepted, those that have no effect: `tools` that are not called, of
    /// a model whose template does not read them; and the form of a text, asked for in the field
    /// `form`, where the answer is to be a call.
    pub(crate) fn without_effect(
        &self,
        has_tools: bool,
        reads_tools: bool,
        form: Option<&str>,
    ) -> impl Iterator<Item = String> {
        let tools = has_tools && !reads_tools && !self.choice.may_call();
        let tools = tools.then(|| "tools".to_owned());
        let form = form.filter(|_| self.choice.must_call()).map(str::to_owned);
        tools.into_iter().chain(form)
    }

    fn checked(
        choice: ToolChoice,
        parallel: bool,
        tools: Option<&Value>,
    ) -> Result<Self, ApiError> {
        let wrong = |message: String| Err(ApiError::bad_request("tool_choice", message));
        match &choice {
            ToolChoice::None | ToolChoice::Auto => {}
            ToolChoice::Required if tools.is_none() => {
                return wrong("'tool_choice' asks for a call, and there are no 'tools'".to_owned());
            }
            ToolChoice::Named(name) if !declared_tools(tools).any(|tool| tool.0 == name) => {
                let name = doctor::shown(name);
                return wrong(format!("'tool_choice' names {name}, and no such tool is declared"));
            }
            ToolChoice::Required | ToolChoice::Named(_) => {}
        }
        Ok(Self { choice, parallel })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn openai(body: Value, tools: Option<&Value>) -> Result<Calling, ApiError> {
        let Value::Object(body) = body else { panic!("an object") };
        Calling::take_openai(&mut Fields::new(body), tools)
    }

    #[test]
    fn what_cannot_be_called_is_refused() {
        let tools = json!([{"type": "function", "function": {"name": "f"}}]);
        let named =
            |name: &str| json!({"tool_choice": {"type": "function", "function": {"name": name}}});
        assert!(openai(named("f"), Some(&tools)).is_ok());
        for (body, tools) in [
            (named("g"), Some(&tools)),
            (named("f"), None),
            (json!({"tool_choice": "required"}), None),
            (json!({"tool_choice": "sometimes"}), Some(&tools)),
        ] {
            let error = openai(body.clone(), tools).unwrap_err();
            assert!(error.message().contains("tool_choice"), "{body}: {}", error.message());
        }
    }

    #[test]
    fn calls_are_parallel_unless_the_request_says_otherwise() {
        assert!(openai(json!({}), None).unwrap().parallel);
        assert!(!openai(json!({"parallel_tool_calls": false}), None).unwrap().parallel);
        let anthropic = |choice: Value| {
            let Value::Object(body) = json!({"tool_choice": choice}) else { panic!("an object") };
            Calling::take_anthropic(&mut Fields::new(body), None)
        };
        assert!(anthropic(json!({"type": "auto"})).unwrap().parallel);
        let alone = json!({"type": "auto", "disable_parallel_tool_use": true});
        assert!(!anthropic(alone).unwrap().parallel);
        assert!(anthropic(json!({"type": "auto", "disable_parallel_tool_use": 1})).is_err());
    }
}
