//! What a request for a response asks for.

use doctor::{from_response_input, from_response_tools};
use serde_json::{Map, Value, json};

use super::echo::Echo;
use crate::calling::Calling;
use crate::constraint::Wanted;
use crate::error::ApiError;
use crate::fields::{Fields, wrong_type};
use crate::openai::parameters::{Parameters, checked_effort};

const TOP_LOGPROBS_MAX: usize = 20;
/// What `include` may ask for that is to be had here.
const LOGPROBS: &str = "message.output_text.logprobs";

/// What a request for a response asks for.
pub(crate) struct ResponseCall {
    /// `input`, as it came.
    pub(super) input: Value,
    /// The messages that it makes, checked.
    pub(super) messages: Vec<Value>,
    pub(super) instructions: Option<String>,
    /// Checked, in the form of chat completions.
    pub(super) tools: Option<Value>,
    /// Further variables of the chat template.
    pub(super) variables: Map<String, Value>,
    pub(super) calling: Calling,
    pub(super) wanted: Option<Wanted>,
    pub(super) effort: Option<String>,
    pub(super) parameters: Parameters,
    pub(super) max_tokens: Option<usize>,
    pub(super) logprobs: Option<usize>,
    /// The response that it goes on from.
    pub(super) previous: Option<String>,
    /// Whether its response is kept.
    pub(super) store: bool,
    pub(super) echo: Echo,
    ignored: Vec<String>,
}

pub(crate) fn parse(mut fields: Fields) -> Result<ResponseCall, ApiError> {
    refuse_unsupported(&mut fields)?;
    let mut echo = Echo::of(&fields);
    let tools = take_tools(&mut fields)?;
    let calling = Calling::take_openai(&mut fields, tools.as_ref())?;
    echo.calls(tools.as_ref(), &calling);
    let instructions = fields.string("instructions")?;
    let previous = fields.string("previous_response_id")?;
    let input = fields.value("input").unwrap_or_else(|| json!([]));
    let messages = from_response_input(&input)?;
    let messages = match messages.is_empty() {
        true => Vec::new(),
        false => doctor::check_messages(Some(messages))
            .map_err(|error| ApiError::from(error).in_field("messages", "input"))?,
    };
    if messages.is_empty() && instructions.is_none() && previous.is_none() {
        let message = "'input' must hold at least one item";
        return Err(ApiError::bad_request("input", message));
    }
    let (wanted, effort) = (take_text(&mut fields)?, take_reasoning(&mut fields)?);
    let logprobs = take_logprobs(&mut fields)?;
    let max_tokens = fields.count("max_output_tokens", 1, usize::MAX)?;
    take_metadata(&mut fields)?;
    take_truncation(&mut fields)?;
    let variables = fields.object("chat_template_kwargs")?.unwrap_or_default();
    let store = fields.get("store").and_then(Value::as_bool).unwrap_or(true);
    Ok(ResponseCall {
        input,
        messages,
        instructions,
        tools,
        variables,
        calling,
        wanted,
        effort,
        parameters: Parameters::take(&mut fields)?,
        max_tokens,
        logprobs,
        previous,
        store,
        echo,
        ignored: fields.ignored(),
    })
}

impl ResponseCall {
    /// The fields that were accepted and have no effect on a model whose template reads tools or
    /// does not.
    pub(crate) fn ignored(&self, reads_tools: bool) -> Vec<String> {
        let (tools, form) = (self.tools.is_some(), self.wanted.as_ref());
        let unused = self.calling.without_effect(tools, reads_tools, form.map(|form| form.field));
        unused.chain(self.ignored.iter().cloned()).collect()
    }
}

/// Refuses the fields that would change the answer and do not work here. Their values that ask
/// for nothing are taken.
fn refuse_unsupported(fields: &mut Fields) -> Result<(), ApiError> {
    let waits = "the answer is made while the client waits for it";
    fields.refuse_unless("background", &json!(false), waits)?;
    fields.refuse("conversation", "'previous_response_id' goes on from a stored response")?;
    fields.refuse("prompt", "there are no stored prompts")?;
    fields.refuse_unless("context_management", &json!([]), "the conversation is taken as it is")?;
    fields.refuse("moderation", "there is no moderation")?;
    fields.refuse("audio", "the model answers with text only")?;
    fields.refuse_unless("modalities", &json!(["text"]), "the model answers with text only")?;
    fields.refuse("chat_template", "the template comes with the model")?;
    for name in ["grammar", "guided_grammar"] {
        fields.refuse(name, "'text.format' takes schemas and regular expressions")?;
    }
    fields.refuse_unless("n", &json!(1), "a response has one answer")?;
    fields.refuse_unless("best_of", &json!(1), "only one answer is computed")?;
    fields.refuse_unless("add_generation_prompt", &json!(true), "an answer always begins")?;
    fields.refuse_unless("continue_final_message", &json!(false), "an answer cannot go on yet")
}

fn take_tools(fields: &mut Fields) -> Result<Option<Value>, ApiError> {
    let tools = fields.array("tools")?.unwrap_or_default();
    let functions = from_response_tools(&tools)?;
    let choice = fields.get("tool_choice").and_then(|choice| choice.get("type"));
    if choice.is_some_and(|kind| kind == "allowed_tools") {
        let what = "send only the 'tools' that may be called";
        return Err(ApiError::unsupported("tool_choice", what));
    }
    // The fields of a function are the tool's own here.
    doctor::check_tools(Some(functions)).map_err(|error| {
        let plain = |text: &str| text.replace("].function", "]");
        let (field, message) = (plain(&error.field), plain(&error.message));
        ApiError::bad_request(field, message)
    })
}

/// `text`: what the answer's text is to be.
fn take_text(fields: &mut Fields) -> Result<Option<Wanted>, ApiError> {
    let mut text = Fields::new(fields.object("text")?.unwrap_or_default());
    let format = match text.value("format") {
        None => None,
        Some(Value::Object(format)) => Some(format),
        Some(other) => return Err(wrong_type("text.format", "an object", &other)),
    };
    fields.put_back("text", text);
    Wanted::take_with(fields, format, "text.format")
}

/// `reasoning`: how much the model is to reason.
fn take_reasoning(fields: &mut Fields) -> Result<Option<String>, ApiError> {
    const FIELD: &str = "reasoning.effort";
    let mut reasoning = Fields::new(fields.object("reasoning")?.unwrap_or_default());
    let effort = match reasoning.value("effort") {
        None => None,
        Some(Value::String(effort)) if effort == "max" => Some("xhigh".to_owned()),
        Some(Value::String(effort)) => Some(effort),
        Some(other) => return Err(wrong_type(FIELD, "a string", &other)),
    };
    fields.put_back("reasoning", reasoning);
    checked_effort(effort, FIELD)
}

/// How many alternatives are wanted beside a token's log-probability, if these are. What else
/// `include` names is not to be had here, and ignored.
fn take_logprobs(fields: &mut Fields) -> Result<Option<usize>, ApiError> {
    let top = fields.count("top_logprobs", 0, TOP_LOGPROBS_MAX)?;
    let include = fields.array("include")?.unwrap_or_default();
    if let Some(other) = include.iter().find(|name| !name.is_string()) {
        return Err(wrong_type("include", "an array of strings", other));
    }
    let others = include.iter().filter_map(Value::as_str).filter(|name| *name != LOGPROBS);
    let others = others.map(|name| (name.to_owned(), Value::from(true))).collect();
    fields.put_back("include", Fields::new(others));
    let wanted = include.iter().any(|name| name == LOGPROBS) || top.is_some_and(|top| top > 0);
    Ok(wanted.then(|| top.unwrap_or(0)))
}

/// `metadata`, which is only repeated.
fn take_metadata(fields: &mut Fields) -> Result<(), ApiError> {
    const FIELDS_MAX: usize = 16;
    const KEY_CHARS_MAX: usize = 64;
    const VALUE_CHARS_MAX: usize = 512;
    let metadata = fields.object("metadata")?.unwrap_or_default();
    let fits = |(key, value): (&String, &Value)| {
        let value = value.as_str();
        key.chars().count() <= KEY_CHARS_MAX
            && value.is_some_and(|text| text.chars().count() <= VALUE_CHARS_MAX)
    };
    if metadata.len() <= FIELDS_MAX && metadata.iter().all(fits) {
        return Ok(());
    }
    let message = format!(
        "'metadata' may hold at most {FIELDS_MAX} strings of at most {VALUE_CHARS_MAX} characters, \
         with keys of at most {KEY_CHARS_MAX}"
    );
    Err(ApiError::bad_request("metadata", message))
}

/// `truncation`: a conversation that is too long is refused, so that the wish to have it cut where
/// it is has no effect on another.
fn take_truncation(fields: &mut Fields) -> Result<(), ApiError> {
    match fields.get("truncation").map(Value::as_str) {
        None | Some(Some("auto")) => Ok(()),
        Some(Some("disabled")) => {
            fields.value("truncation");
            Ok(())
        }
        Some(_) => {
            let message = "'truncation' must be \"auto\" or \"disabled\"";
            Err(ApiError::bad_request("truncation", message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(body: Value) -> Result<ResponseCall, ApiError> {
        let Value::Object(body) = body else { panic!("an object") };
        parse(Fields::new(body))
    }

    fn with(field: &str, value: Value) -> Result<ResponseCall, ApiError> {
        let mut body = json!({"input": "Hi"});
        body[field] = value;
        call(body)
    }

    #[test]
    fn what_does_not_work_is_refused_by_its_name() {
        let image = json!([{"role": "user", "content": [{"type": "input_image"}]}]);
        let cases = [
            ("background", json!(true), "background"),
            ("conversation", json!("conv_1"), "conversation"),
            ("prompt", json!({"id": "pmpt_1"}), "prompt"),
            ("input", json!(1), "input"),
            ("input", json!([]), "input"),
            ("input", image, "input[0].content[0]"),
            ("input", json!([{"type": "web_search_call"}]), "input[0]"),
            ("input", json!([{"type": "function_call", "name": "f"}]), "input[0].call_id"),
            ("input", json!([{"role": "alien", "content": "Hi"}]), "input[0].role"),
            ("tools", json!([{"type": "web_search"}]), "tools[0].type"),
            ("tools", json!([{"type": "function", "name": ""}]), "tools[0].name"),
            ("tool_choice", json!("required"), "tool_choice"),
            ("tool_choice", json!({"type": "allowed_tools"}), "tool_choice"),
            ("text", json!({"format": {"type": "json_schema"}}), "text.format.schema"),
            ("text", json!({"format": {"type": "xml"}}), "text.format"),
            ("reasoning", json!({"effort": "a lot"}), "reasoning.effort"),
            ("top_logprobs", json!(21), "top_logprobs"),
            ("include", json!([1]), "include"),
            ("metadata", json!({"a": 1}), "metadata"),
            ("truncation", json!("middle"), "truncation"),
            ("max_output_tokens", json!(0), "max_output_tokens"),
            ("store", json!("yes"), "store"),
            ("n", json!(2), "n"),
        ];
        for (field, value, named) in cases {
            let error = with(field, value.clone()).err().expect(named);
            assert_eq!(error.body()["error"]["param"], named, "{field}: {value}");
        }
        assert_eq!(call(json!({})).err().unwrap().body()["error"]["param"], "input");
    }

    #[test]
    fn what_has_no_effect_is_listed() {
        let body = json!({
            "input": "Hi",
            "user": "u",
            "truncation": "auto",
            "include": ["reasoning.encrypted_content", LOGPROBS],
            "reasoning": {"effort": "max", "summary": "auto"},
            "text": {"format": {"type": "text"}, "verbosity": "low"},
            "metadata": {"a": "b"},
        });
        let call = call(body).unwrap();
        let mut ignored = call.ignored(true);
        ignored.sort();
        let expected = [
            "include.reasoning.encrypted_content",
            "reasoning.summary",
            "text.verbosity",
            "truncation",
            "user",
        ];
        assert_eq!(ignored, expected);
        assert_eq!((call.effort.as_deref(), call.logprobs), (Some("xhigh"), Some(0)));
        let echo = call.echo.fields();
        assert_eq!(echo["metadata"], json!({"a": "b"}));
        assert_eq!((&echo["user"], &echo["tool_choice"]), (&json!("u"), &json!("auto")));
    }

    #[test]
    fn tools_are_those_of_chat_completions() {
        let tool = json!({
            "type": "function", "strict": true, "parameters": {"type": "object"}, "name": "f",
        });
        let call = with("tools", json!([tool])).unwrap();
        let function = json!({"name": "f", "parameters": {"type": "object"}});
        assert_eq!(call.tools, Some(json!([{"type": "function", "function": function}])));
        assert_eq!(call.echo.fields()["tools"][0]["name"], "f");
    }
}
