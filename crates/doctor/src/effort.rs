//! How much the model is to reason, as a request's body says it.

use serde_json::{Map, Value};

use crate::tools::ToolChoice;

/// Fields that hold an answer's text to a form, and what of them does.
const FORMS: [&str; 3] = ["guided_json", "guided_regex", "guided_choice"];
const OUTPUTS: [&str; 3] = ["json", "regex", "choice"];

/// How much the model is to reason, in OpenAI's words: what a chat request, one for a response or
/// Anthropic's says. An answer that is held to a form does not reason unless it is asked to.
pub(crate) fn effort<'a>(body: &'a Map<String, Value>, choice: &ToolChoice) -> Option<&'a str> {
    let within = |field: &str, name: &str| body.get(field)?.get(name)?.as_str();
    let thinking = match within("thinking", "type") {
        Some("disabled") => Some("none"),
        Some("enabled") => Some("high"),
        _ => None,
    };
    let others = || within("reasoning", "effort").or_else(|| within("output_config", "effort"));
    let others = || others().map(|effort| if effort == "max" { "xhigh" } else { effort });
    let said = body.get("reasoning_effort").and_then(Value::as_str);
    let held = || (choice.must_call() || has_form(body)).then_some("none");
    said.or(thinking).or_else(others).or_else(held)
}

/// Whether the answer's text is held to a form.
fn has_form(body: &Map<String, Value>) -> bool {
    let within = |field: &str| body.get(field).and_then(|value| value.get("format"));
    let formats = [body.get("response_format"), within("text"), within("output_config")];
    let formats = formats.into_iter().chain([body.get("output_format")]).flatten();
    let outputs = body.get("structured_outputs").and_then(Value::as_object);
    formats.into_iter().any(|format| format.is_object() && format["type"] != "text")
        || outputs.is_some_and(|outputs| OUTPUTS.iter().any(|name| outputs.contains_key(*name)))
        || FORMS.iter().any(|name| body.contains_key(*name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_api_says_it_in_its_own_field() {
        for (body, expected) in [
            (json!({}), None),
            (json!({"reasoning_effort": "low"}), Some("low")),
            (json!({"reasoning": {"effort": "low"}}), Some("low")),
            (json!({"reasoning": {"effort": "max"}}), Some("xhigh")),
            (json!({"reasoning": {"summary": "auto"}}), None),
            (json!({"output_config": {"effort": "medium"}}), Some("medium")),
            (json!({"thinking": {"type": "enabled", "budget_tokens": 2048}}), Some("high")),
            (json!({"thinking": {"type": "disabled"}}), Some("none")),
            (json!({"thinking": {"type": "adaptive"}}), None),
            (json!({"response_format": {"type": "json_object"}}), Some("none")),
            (json!({"response_format": {"type": "text"}}), None),
            (json!({"text": {"format": {"type": "json_schema"}}}), Some("none")),
            (json!({"structured_outputs": {"regex": "a"}}), Some("none")),
            (json!({"guided_choice": ["a"], "reasoning_effort": "high"}), Some("high")),
        ] {
            let body = body.as_object().expect("an object");
            assert_eq!(effort(body, &ToolChoice::Auto), expected, "{body:?}");
        }
        assert_eq!(effort(&Map::new(), &ToolChoice::Required), Some("none"));
    }
}
