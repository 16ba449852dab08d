//! The Jinja environment of chat templates, as transformers sets it up
//! (`transformers.utils.chat_template_utils`).

use super::guard;
use super::json::{Style, write};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, Value};
use std::borrow::Cow;

/// Work of one rendering: about one unit for an instruction and one for 64 bytes
/// (`Environment::set_fuel`), twice where the guard's filter is handed a text. Templates of today
/// use a few hundred for a message; the longest message that a body can hold must come through.
const FUEL: u64 = 4_000_000;
/// Widest indent of a line.
const INDENT_MAX: usize = 256;
/// Nesting of template constructs; macros count tenfold.
const RECURSION_MAX: usize = 120;

/// What `raise_exception` was called with, found again in the error's chain of causes.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Raised(pub(super) String);

/// Compiles a template.
///
/// # Errors
/// For text that is no valid Jinja.
pub(super) fn environment(source: &str, name: &'static str) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?;
    environment.set_syntax(syntax);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_recursion_limit(RECURSION_MAX);
    environment.set_fuel(Some(FUEL));
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_filter("tojson", tojson);
    environment.add_filter("indent", indent);
    environment.add_filter("string", string);
    environment.add_function("raise_exception", raise_exception);
    guard::set_up(&mut environment);
    environment.add_template_owned(name, without_generation(source).into_owned())?;
    Ok(environment)
}

fn raise_exception(message: String) -> Result<Value, Error> {
    let raised = Raised(message.clone());
    Err(Error::new(ErrorKind::InvalidOperation, message).with_source(raised))
}

/// transformers' `tojson`: Python's `json.dumps` without HTML escapes.
fn tojson(state: &State<'_, '_>, value: &Value, kwargs: Kwargs) -> Result<Value, Error> {
    let invalid = |what: String| Error::new(ErrorKind::InvalidOperation, what);
    if value.is_undefined() {
        return Err(invalid("an undefined value has no JSON".to_owned()));
    }
    let indent: Option<usize> = kwargs.get("indent")?;
    let mut style = Style::new(indent.map(|indent| indent.min(INDENT_MAX)));
    style.ensure_ascii = kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
    style.sort_keys = kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    if let Some(separators) = kwargs.get::<Option<Vec<String>>>("separators")? {
        let [item, key] = <[String; 2]>::try_from(separators)
            .map_err(|_| invalid("separators is no pair of texts".to_owned()))?;
        (style.item_separator, style.key_separator) = (item, key);
    }
    kwargs.assert_all_used()?;
    written(state, value, &style)
}

fn written(state: &State<'_, '_>, value: &Value, style: &Style) -> Result<Value, Error> {
    guard::check(state, value)?;
    let value = serde_json::to_value(value)
        .map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))?;
    let mut out = String::new();
    write(&value, style, 0, &mut out)
        .map_err(|error| Error::new(ErrorKind::OutOfFuel, error.to_string()))?;
    state.consume_fuel(out.len() as u64 / 64)?;
    Ok(Value::from(out))
}

/// Jinja's `indent`; minijinja's own loses a line break at the end.
fn indent(
    state: &State<'_, '_>,
    text: &str,
    options: Rest<Value>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let option = |place: usize, name: &str| match options.get(place) {
        Some(value) => Ok(Some(value.clone())),
        None => kwargs.get::<Option<Value>>(name),
    };
    let width = option(0, "width")?;
    let first = option(1, "first")?.is_some_and(|value| value.is_true());
    let blank = option(2, "blank")?.is_some_and(|value| value.is_true());
    kwargs.assert_all_used()?;
    let indention = match width {
        None => " ".repeat(4),
        Some(width) => match width.as_str() {
            Some(text) => text.to_owned(),
            None => " ".repeat(usize::try_from(width)?.min(INDENT_MAX)),
        },
    };
    let lines = text.split('\n').count() as u64;
    state.consume_fuel((text.len() as u64 + lines * indention.len() as u64) / 64)?;
    let mut out = String::new();
    for (index, line) in text.split('\n').enumerate() {
        if index > 0 {
            out.push('\n');
        }
        if if index == 0 { first } else { blank || !line.is_empty() } {
            out.push_str(&indention);
        }
        out.push_str(line);
    }
    Ok(out)
}

/// Jinja's `string`, which is Python's `str`, except that lists of maps, such as tools, become
/// JSON, as huggingface.js has it.
fn string(state: &State<'_, '_>, value: &Value) -> Result<Value, Error> {
    let is_map = |item: Value| item.kind() == ValueKind::Map;
    match value.kind() {
        ValueKind::String => Ok(value.clone()),
        ValueKind::Seq if value.len() > Some(0) && value.try_iter()?.all(is_map) => {
            written(state, value, &Style::new(None))
        }
        ValueKind::Seq | ValueKind::Map => written(state, value, &Style::python()),
        _ => Ok(Value::from(value.to_string())),
    }
}

/// Replaces `{% generation %}` … `{% endgeneration %}`, which transformers uses to mark what a
/// model wrote and which renders its contents, by a condition that is always true: both leave
/// the white space around them to the same rules.
fn without_generation(source: &str) -> Cow<'_, str> {
    if !source.contains("generation") {
        return Cow::Borrowed(source);
    }
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        out.push_str(before);
        // Past the opening: `{%}` closes nothing.
        let Some(length) = tag[2..].find("%}") else {
            rest = tag;
            break;
        };
        let end = 2 + length;
        let inner = &tag[2..end];
        let name = inner.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        match name {
            "generation" => out.push_str(&format!("{{%{}%}}", inner.replace(name, "if true"))),
            "endgeneration" => out.push_str(&format!("{{%{}%}}", inner.replace(name, "endif"))),
            _ => out.push_str(&tag[..end + 2]),
        }
        rest = &tag[end + 2..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::without_generation;

    #[test]
    fn generation_tags_become_conditions() {
        let source = "{%- generation -%}{{ generation }}{% endgeneration %}{% if a %}{%";
        let expected = "{%- if true -%}{{ generation }}{% endif %}{% if a %}{%";
        assert_eq!(without_generation(source), expected);
        // Regression: the end of a tag was looked for in its beginning.
        assert_eq!(without_generation("{% generation %}{%}}"), "{% if true %}{%}}");
    }
}
