//! Conversations with tools: what transformers renders of them, for well-known templates
//! (`golden/make_tool_chats.py`).

use package::{ChatError, ChatRequest, ChatTemplate};
use serde_json::{Map, Value};
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
