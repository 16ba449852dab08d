//! What an answer is to be, and whether that can be held.

use doctor::{ToolChoice, declared_tools};
use grammar::{Grammar, GrammarError, Tool};
use reply::CallShape;
use serde_json::{Map, Value, json};

use crate::calling::Calling;
use crate::error::ApiError;
use crate::fields::{Fields, wrong_type};

/// A grammar, and the field that asked for it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Wanted {
    pub(crate) grammar: Grammar,
    pub(crate) field: &'static str,
}

impl Wanted {
    /// Takes what the answer's text is to be: `response_format`, and what vLLM's clients send
    /// instead of it.
    pub(crate) fn take(fields: &mut Fields) -> Result<Option<Self>, ApiError> {
        let format = fields.object("response_format")?;
        Self::take_with(fields, format, "response_format")
    }

    /// The same, where the first of these came in `field`.
    pub(crate) fn take_with(
        fields: &mut Fields,
        format: Option<Map<String, Value>>,
        field: &'static str,
    ) -> Result<Option<Self>, ApiError> {
        let mut found = Vec::new();
        if let Some(format) = format {
            let grammar = response_format(&format, field)?;
            found.extend(grammar.map(|grammar| Wanted { grammar, field }));
        }
        if let Some(outputs) = fields.object("structured_outputs")? {
            let mut outputs = Fields::new(outputs);
            let grammars = texts(&mut outputs, ["json", "regex", "choice"])?;
            let field = "structured_outputs";
            found.extend(grammars.into_iter().map(|grammar| Wanted { grammar, field }));
            fields.put_back(field, outputs);
        }
        let guided = texts(fields, ["guided_json", "guided_regex", "guided_choice"])?;
        found.extend(guided.into_iter().map(|grammar| Wanted { grammar, field: "guided_json" }));
        if found.len() > 1 {
            let message = "an answer can only be constrained in one way";
            return Err(ApiError::bad_request(found[1].field, message));
        }
        Ok(found.pop())
    }

    /// The calls that an answer may make.
    pub(crate) fn calls(calling: &Calling, tools: Option<&Value>, shape: CallShape) -> Self {
        let only = match &calling.choice {
            ToolChoice::None | ToolChoice::Auto | ToolChoice::Required => None,
            ToolChoice::Named(name) => Some(name.as_str()),
        };
        let tools = declared_tools(tools).filter(|(name, _)| only.is_none_or(|only| only == *name));
        let tools = tools.map(|(name, schema)| Tool {
            prefix: shape.prefix(name),
            schema: if schema.is_null() { json!({"type": "object"}) } else { schema.clone() },
            suffix: shape.suffix.to_owned(),
        });
        let grammar = Grammar::Calls {
            before: shape.before.to_owned(),
            between: shape.between.unwrap_or_default().to_owned(),
            after: shape.after.to_owned(),
            tools: tools.collect(),
            parallel: calling.parallel && only.is_none() && shape.between.is_some(),
        };
        Wanted { grammar, field: "tools" }
    }

    /// The error for a grammar that is not held.
    pub(crate) fn refused(&self, error: &GrammarError) -> ApiError {
        let message = format!("'{}' cannot be held: {error}", self.field);
        match error {
            GrammarError::Unsupported { .. } => ApiError::unsupported(self.field, &message),
            _ => ApiError::bad_request(self.field, message),
        }
    }
}

fn response_format(format: &Map<String, Value>, field: &str) -> Result<Option<Grammar>, ApiError> {
    match format.get("type").and_then(Value::as_str) {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(Grammar::JsonObject)),
        Some("json_schema") => {
            // The Responses API has the schema one level higher.
            let (named, at) = match format.get("json_schema").and_then(Value::as_object) {
                Some(named) => (named, format!("{field}.json_schema.schema")),
                None => (format, format!("{field}.schema")),
            };
            schema(named.get("schema"), &at).map(Some)
        }
        Some("regex") => match format.get("pattern").or(format.get("regex")) {
            Some(Value::String(pattern)) => Ok(Some(Grammar::Regex(pattern.clone()))),
            _ => {
                let message = format!("'{field}.pattern' must be a string");
                Err(ApiError::bad_request(field, message))
            }
        },
        _ => {
            let message = format!(
                "'{field}.type' must be \"text\", \"json_object\", \"json_schema\" or \"regex\""
            );
            Err(ApiError::bad_request(field, message))
        }
    }
}

/// A JSON schema, which is an object or a truth value.
pub(crate) fn schema(schema: Option<&Value>, field: &str) -> Result<Grammar, ApiError> {
    match schema {
        Some(schema @ (Value::Object(_) | Value::Bool(_))) => {
            Ok(Grammar::JsonSchema(schema.clone()))
        }
        Some(other) => Err(wrong_type(field, "a JSON schema", other)),
        None => Err(ApiError::bad_request(field, format!("'{field}' is missing"))),
    }
}

/// The grammars of fields that hold a JSON schema, a regular expression and a list of choices.
fn texts(fields: &mut Fields, [json, regex, choice]: [&str; 3]) -> Result<Vec<Grammar>, ApiError> {
    let mut found = Vec::new();
    match fields.value(json) {
        // Written out, as some clients send it.
        Some(Value::String(text)) => {
            let parsed: Value = serde_json::from_str(&text).map_err(|error| {
                ApiError::bad_request(json, format!("'{json}' is not JSON: {error}"))
            })?;
            found.push(schema(Some(&parsed), json)?);
        }
        Some(value) => found.push(schema(Some(&value), json)?),
        None => {}
    }
    found.extend(fields.string(regex)?.map(Grammar::Regex));
    if let Some(choices) = fields.array(choice)? {
        let texts = choices.into_iter().map(|one| match one {
            Value::String(text) => Ok(text),
            other => Err(wrong_type(choice, "an array of strings", &other)),
        });
        found.push(Grammar::Choice(texts.collect::<Result<_, _>>()?));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(body: Value) -> Result<Option<Grammar>, ApiError> {
        let Value::Object(body) = body else { panic!("an object") };
        Ok(Wanted::take(&mut Fields::new(body))?.map(|wanted| wanted.grammar))
    }

    #[test]
    fn each_way_to_ask_is_taken() {
        let schema = json!({"type": "object"});
        let as_schema = Some(Grammar::JsonSchema(schema.clone()));
        let format = |format: Value| json!({"response_format": format});
        let cases = [
            (json!({}), None),
            (format(json!({"type": "text"})), None),
            (format(json!({"type": "json_object"})), Some(Grammar::JsonObject)),
            (
                format(
                    json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}),
                ),
                as_schema.clone(),
            ),
            (json!({"guided_json": schema}), as_schema.clone()),
            (json!({"guided_json": schema.to_string()}), as_schema.clone()),
            (json!({"structured_outputs": {"json": schema}}), as_schema),
            (json!({"guided_regex": "a+"}), Some(Grammar::Regex("a+".to_owned()))),
            (
                json!({"structured_outputs": {"choice": ["a", "b"]}}),
                Some(Grammar::Choice(vec!["a".to_owned(), "b".to_owned()])),
            ),
        ];
        for (body, expected) in cases {
            assert_eq!(take(body.clone()).unwrap(), expected, "{body}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (body, word) in [
            (json!({"response_format": "json"}), "response_format"),
            (json!({"response_format": {"type": "xml"}}), "response_format.type"),
            (json!({"response_format": {"type": "json_schema"}}), "schema"),
            (json!({"guided_json": "{"}), "guided_json"),
            (json!({"guided_choice": [1]}), "guided_choice"),
            (json!({"guided_regex": "a", "guided_choice": ["b"]}), "one way"),
        ] {
            let error = take(body.clone()).unwrap_err();
            assert!(error.message().contains(word), "{body}: {}", error.message());
        }
    }
}
