//! Conversations with tools: what transformers renders of them, for well-known templates
//! (`golden/make_tool_chats.py`); and what tells a template how much its model is to reason.

use package::{ChatError, ChatRequest, ChatTemplate, REASONING_EFFORTS};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::path::Path;

/// The templates of huggingface.js's test suite, by name; `None` where the data is absent.
fn templates() -> Option<Vec<(String, ChatTemplate)>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("../shared/data/templates/cases.json")).ok()?;
    let cases: Vec<Value> = serde_json::from_str(&text).expect("the cases");
    let template = |case: &Value| {
        let special = |name: &str| case["data"][name].as_str().unwrap_or_default().to_owned();
        let source = case["chat_template"].as_str().expect("a template");
        let template = ChatTemplate::new(source, &special("bos_token"), &special("eos_token"));
        (case["name"].as_str().expect("a name").to_owned(), template.expect("compiles"))
    };
    Some(cases.iter().map(template).collect())
}

fn render(
    template: &ChatTemplate,
    messages: &[Value],
    tools: Option<&Value>,
    variables: &Map<String, Value>,
) -> Result<String, ChatError> {
    let request = ChatRequest {
        messages,
        tools,
        add_generation_prompt: true,
        date: Some("2025-07-10"),
        variables,
    };
    template.render(&request).map(|rendered| rendered.text)
}

/// Where transformers renders a conversation with tools, so is it here, byte for byte.
#[test]
fn conversations_with_tools_render_as_in_transformers() {
    let Some(templates) = templates() else {
        println!("not run: no data");
        return;
    };
    let golden: Value = serde_json::from_str(include_str!("golden/tool_chats.json")).expect("JSON");
    let renderings = golden["renderings"].as_array().expect("a list");
    let mut failed = Vec::new();
    let mut same = 0;
    // What huggingface.js expects of this template is JSON where Python writes its own.
    let contradicted = "MadeAgents/Hammer2.1";
    for rendering in renderings {
        let [Value::String(name), Value::String(conversation), digest] =
            rendering.as_array().expect("a list").as_slice()
        else {
            panic!("{rendering}")
        };
        let (_, template) = templates.iter().find(|(one, _)| one == name).expect("a template");
        let messages = golden["conversations"][conversation].as_array().expect("messages");
        let rendered = render(template, messages, Some(&golden["tools"]), &Map::new());
        let Some(digest) = digest.as_str() else {
            // What transformers fails on, a client may still send: it may be rendered.
            continue;
        };
        let found = rendered.as_ref().map(|text| hexadecimal(&Sha256::digest(text)));
        match found {
            Ok(found) if found == digest => same += 1,
            Ok(_) if name == contradicted => {}
            _ => failed.push(format!("{name}, {conversation}: {rendered:?}")),
        }
    }
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
    // Of 266 that transformers renders, 7 are of the template that is contradicted.
    assert_eq!((renderings.len(), same), (294, 259));
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn an_effort_becomes_what_the_template_reads() {
    let variables = |source: &str| {
        let template = ChatTemplate::new(source, "", "").expect("compiles");
        assert_eq!(template.source(), source);
        REASONING_EFFORTS.map(|effort| Value::from(template.reasoning_variables(effort)))
    };
    let nothing = json!({});
    let unread = ["{{ messages[0].content }}", "{# enable_thinking #}{{ 'reasoning_effort' }}"];
    for source in unread {
        assert_eq!(variables(source), [(); 6].map(|()| nothing.clone()));
    }
    let switch = "{% if enable_thinking is defined and enable_thinking is false %}no{% endif %}";
    let on = |on: bool| json!({"enable_thinking": on});
    assert_eq!(variables(switch), [false, false, true, true, true, true].map(on));
    let thinking = "{% if not thinking is defined %}{% set thinking = false %}{% endif %}\
        {{ '<think>' if thinking else '</think>' }}";
    assert_eq!(variables(thinking)[5], json!({"thinking": true}));

    let word = |word: &str| json!({"reasoning_effort": word});
    let written = "{{ 'Reasoning: ' + (reasoning_effort or 'medium') }}";
    let expected = ["low", "low", "low", "medium", "high", "high"].map(word);
    assert_eq!(variables(written), expected);
    let chosen = "{% if reasoning_effort not in ['none', 'high'] %}\
        {{ raise_exception('no such effort') }}{% endif %}{{ reasoning_effort }}";
    let expected = ["none", "none", "none", "high", "high", "high"].map(word);
    assert_eq!(variables(chosen), expected);
    let template = ChatTemplate::new(written, "", "").expect("compiles");
    assert_eq!(template.reasoning_variables("much"), Map::new());
}

/// Templates of models that reason, as they are: an effort changes what they render.
#[test]
fn well_known_templates_can_be_told_not_to_reason() {
    let Some(templates) = templates() else {
        println!("not run: no data");
        return;
    };
    let messages = [json!({"role": "user", "content": "What is 1 + 1?"})];
    let mut told = Vec::new();
    for (name, template) in &templates {
        let text = |effort: &str| {
            render(template, &messages, None, &template.reasoning_variables(effort)).ok()
        };
        if text("none") != text("high") {
            told.push(name.as_str());
        }
    }
    let expected = [
        "CohereLabs/command-a-reasoning-08-2025",
        "HuggingFaceTB/SmolLM3-3B",
        "Qwen/Qwen3-0.6B",
        "zai-org/GLM-5.1",
    ];
    assert_eq!(told, expected);
}
