//! The `tools` of a conversation: checked, and passed on to the chat template as they came.

use serde_json::{Map, Value};

use crate::error::{PromptError, shown};

/// As many as OpenAI takes.
const TOOLS_MAX: usize = 128;
/// As long as Anthropic takes; OpenAI's limit is 64.
const NAME_CHARS_MAX: usize = 128;

/// Checks `tools` as OpenAI's clients declare them and returns them as the template gets them:
/// unchanged, the order of their keys included. No tools are `None`.
///
/// # Errors
/// [`PromptError`] that names the first field at fault, for instance `tools[0].function.name`.
pub fn check_tools(tools: Option<Vec<Value>>) -> Result<Option<Value>, PromptError> {
    let Some(tools) = tools.filter(|tools| !tools.is_empty()) else { return Ok(None) };
    if tools.len() > TOOLS_MAX {
        let message = format!("'tools' may hold at most {TOOLS_MAX} tools");
        return Err(PromptError::new("tools", message));
    }
    tools.iter().enumerate().try_for_each(|(index, tool)| check_one(index, tool))?;
    Ok(Some(Value::from(tools)))
}

/// Which tools an answer may call, or must.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// None: the answer is text.
    None,
    /// Those that the model chooses.
    #[default]
    Auto,
    /// At least one, which the model chooses.
    Required,
    /// The one of this name.
    Named(String),
}

impl ToolChoice {
    /// Reads a `tool_choice` of OpenAI's or Anthropic's clients; null is what the provider takes it
    /// for.
    ///
    /// # Errors
    /// [`PromptError`] that says what it may be.
    pub fn read(choice: &Value) -> Result<Self, PromptError> {
        let word = match choice {
            Value::Null => Some("auto"),
            Value::String(word) => Some(word.as_str()),
            Value::Object(choice) => choice.get("type").and_then(Value::as_str),
            _ => None,
        };
        match word {
            Some("none") => Ok(Self::None),
            Some("auto") => Ok(Self::Auto),
            Some("required" | "any") => Ok(Self::Required),
            Some("function" | "tool") => named(choice).map(Self::Named),
            _ => {
                let found = shown(choice);
                let message = format!(
                    "'tool_choice' must be \"none\", \"auto\", \"required\" or an object that \
                     names a tool, and is {found}"
                );
                Err(PromptError::new("tool_choice", message))
            }
        }
    }

    /// Whether tools are of any use to an answer.
    pub fn may_call(&self) -> bool {
        *self != Self::None
    }

    /// Whether the answer is to be nothing but calls.
    pub fn must_call(&self) -> bool {
        matches!(self, Self::Required | Self::Named(_))
    }
}

/// The name in `{"type": "function", "function": {"name": …}}`, in the Responses API's shorter form
/// or in Anthropic's, which are one.
fn named(choice: &Value) -> Result<String, PromptError> {
    let name = [&choice["function"]["name"], &choice["name"]].into_iter().find_map(Value::as_str);
    name.map(str::to_owned).ok_or_else(|| {
        let message = "'tool_choice' names no tool: its 'name' is missing";
        PromptError::new("tool_choice", message)
    })
}

/// Names and schemas of the parameters of [checked](check_tools) tools.
pub fn declared_tools(tools: Option<&Value>) -> impl Iterator<Item = (&str, &Value)> {
    tools.and_then(Value::as_array).into_iter().flatten().filter_map(|tool| {
        let function = &tool["function"];
        Some((function["name"].as_str()?, &function["parameters"]))
    })
}

fn check_one(index: usize, tool: &Value) -> Result<(), PromptError> {
    let at = format!("tools[{index}]");
    let Value::Object(tool) = tool else {
        return Err(PromptError::wrong_type(&at, "an object", tool));
    };
    if tool.get("type").is_none_or(|kind| kind != "function") {
        let found = tool.get("type").map_or_else(|| "missing".to_owned(), shown);
        let message = format!("'{at}.type' must be \"function\", and is {found}");
        return Err(PromptError::new(format!("{at}.type"), message));
    }
    let at = format!("{at}.function");
    match tool.get("function") {
        Some(Value::Object(function)) => check_function(&at, function),
        Some(other) => Err(PromptError::wrong_type(&at, "an object", other)),
        None => Err(PromptError::new(at.clone(), format!("'{at}' is missing"))),
    }
}

fn check_function(at: &str, function: &Map<String, Value>) -> Result<(), PromptError> {
    check_name(&format!("{at}.name"), function.get("name"))?;
    let optional = |key: &str, fits: fn(&Value) -> bool, wanted: &str| match function.get(key) {
        Some(value) if !value.is_null() && !fits(value) => {
            Err(PromptError::wrong_type(&format!("{at}.{key}"), wanted, value))
        }
        _ => Ok(()),
    };
    optional("description", Value::is_string, "a string")?;
    optional("parameters", Value::is_object, "an object")?;
    optional("strict", Value::is_boolean, "true or false")
}

fn check_name(field: &str, name: Option<&Value>) -> Result<(), PromptError> {
    let name = match name {
        Some(Value::String(name)) => name,
        Some(other) => return Err(PromptError::wrong_type(field, "a string", other)),
        None => return Err(PromptError::new(field, format!("'{field}' is missing"))),
    };
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if (1..=NAME_CHARS_MAX).contains(&name.len()) && name.chars().all(allowed) {
        return Ok(());
    }
    let message = format!(
        "'{field}' must have between 1 and {NAME_CHARS_MAX} letters, digits, underscores and \
         dashes, and is \"{}\"",
        shown(name)
    );
    Err(PromptError::new(field, message))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::{ToolChoice, check_tools, declared_tools};

    fn tool(function: Value) -> Value {
        json!({"type": "function", "function": function})
    }

    #[test]
    fn the_field_at_fault_is_named() {
        let cases = [
            (json!(1), "tools[0]"),
            (json!({"function": {"name": "f"}}), "tools[0].type"),
            (json!({"type": "custom", "custom": {"name": "f"}}), "tools[0].type"),
            (json!({"type": "function"}), "tools[0].function"),
            (tool(json!("f")), "tools[0].function"),
            (tool(json!({})), "tools[0].function.name"),
            (tool(json!({"name": null})), "tools[0].function.name"),
            (tool(json!({"name": ""})), "tools[0].function.name"),
            (tool(json!({"name": "no spaces"})), "tools[0].function.name"),
            (tool(json!({"name": "天气"})), "tools[0].function.name"),
            (tool(json!({"name": "x".repeat(129)})), "tools[0].function.name"),
            (tool(json!({"name": "f", "description": 1})), "tools[0].function.description"),
            (tool(json!({"name": "f", "parameters": []})), "tools[0].function.parameters"),
            (tool(json!({"name": "f", "strict": "yes"})), "tools[0].function.strict"),
        ];
        for (tool, field) in cases {
            let error = check_tools(Some(vec![tool.clone()])).expect_err(field);
            assert_eq!(error.field, field, "{tool}");
            assert!(error.message.contains(field), "{error}");
        }
        let many = vec![tool(json!({"name": "f"})); 129];
        assert_eq!(check_tools(Some(many)).expect_err("too many").field, "tools");
    }

    proptest! {
        #[test]
        fn sound_tools_come_through_unchanged(
            name in "[a-zA-Z0-9_-]{1,128}",
            description in prop::option::of(".{0,40}"),
            keys in prop::collection::vec("[a-z]{1,4}", 0..6),
        ) {
            let parameters = keys.iter().map(|key| (key.clone(), json!({"type": "string"})));
            let parameters: serde_json::Map<_, _> = parameters.collect();
            let function = json!({
                "description": description, "name": name, "parameters": parameters, "strict": null,
            });
            let tools = vec![tool(function)];
            let text = json!(tools).to_string();
            let checked = check_tools(Some(tools)).expect("sound").expect("tools");
            // As text, since objects are equal in any order.
            prop_assert_eq!(checked.to_string(), text);
        }
    }

    #[test]
    fn choices_of_both_dialects_are_read() {
        let named = ToolChoice::Named("f".to_owned());
        let cases = [
            (json!(null), ToolChoice::Auto),
            (json!("none"), ToolChoice::None),
            (json!("auto"), ToolChoice::Auto),
            (json!("required"), ToolChoice::Required),
            (json!({"type": "function", "function": {"name": "f"}}), named.clone()),
            (json!({"type": "function", "name": "f"}), named.clone()),
            (json!({"type": "tool", "name": "f"}), named),
            (json!({"type": "any"}), ToolChoice::Required),
            (json!({"type": "none"}), ToolChoice::None),
        ];
        for (choice, expected) in cases {
            assert_eq!(ToolChoice::read(&choice), Ok(expected), "{choice}");
        }
        for choice in [json!(5), json!([]), json!({}), json!("x"), json!({"type": 1})] {
            let error = ToolChoice::read(&choice).expect_err("no choice");
            assert_eq!(error.field, "tool_choice");
            assert!(error.message.contains("\"none\", \"auto\", \"required\""), "{error}");
        }
        let nameless = ToolChoice::read(&json!({"type": "tool"})).expect_err("no name");
        assert!(nameless.message.contains("'name' is missing"), "{nameless}");
    }

    #[test]
    fn declared_tools_have_names_and_schemas() {
        let schema = json!({"type": "object"});
        let tools =
            json!([tool(json!({"name": "f", "parameters": schema})), tool(json!({"name": "g"}))]);
        let declared: Vec<_> = declared_tools(Some(&tools)).collect();
        assert_eq!(declared, [("f", &schema), ("g", &Value::Null)]);
        assert_eq!(declared_tools(None).count(), 0);
    }

    #[test]
    fn no_tools_are_none() {
        assert_eq!(check_tools(None), Ok(None));
        assert_eq!(check_tools(Some(Vec::new())), Ok(None));
    }
}
