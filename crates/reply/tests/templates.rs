//! Well-known chat templates as the oracle: an assistant's turn that a template renders must be
//! read back as it was.

use package::{ChatRequest, ChatTemplate};
use reply::{Format, Reader, Reply, Tools};
use serde_json::{Map, Value, json};
use std::path::Path;

/// What ends a turn in any template.
const TURN_ENDS: [&str; 9] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "</s>",
    "<｜end▁of▁sentence｜>",
    "<|END_OF_TURN_TOKEN|>",
    "<|START_OF_TURN_TOKEN|>",
    "<|stop|>",
    "<|observation|>",
];

/// Templates that render calls which are not read: their answers begin inside the line that says
/// who is spoken to, so that plain text is no plain text either.
const NOT_READ: [&str; 1] = ["meetkai/functionary-medium-v2.2"];

/// Templates that render calls, and how many of the [`VARIANTS`] they take: Llama's refuses two
/// calls, Cohere's fails on empty content without reasoning.
const READ: [(&str, usize); 14] = [
    ("CohereForAI/c4ai-command-r-v01 (JSON Schema)", 4),
    ("CohereLabs/c4ai-command-a-03-2025", 4),
    ("CohereLabs/command-a-reasoning-08-2025", 2),
    ("LiquidAI/LFM2.5-VL-450M", 4),
    ("NousResearch/Hermes-2-Pro-Llama-3-8B (JSON Schema)", 4),
    ("Qwen/Qwen2.5-7B-Instruct", 4),
    ("Qwen/Qwen3-0.6B", 4),
    ("deepseek-ai/DeepSeek-R1", 4),
    ("fireworks-ai/firefunction-v1", 4),
    ("meta-llama/Llama-3.1-8B-Instruct", 2),
    ("mistralai/Mistral-7B-Instruct-v0.3 (JSON Schema)", 4),
    ("moonshotai/Kimi-K2-Thinking", 4),
    ("openbmb/MiniCPM3-4B", 4),
    ("zai-org/GLM-5.1", 4),
];

/// Templates that write texts without escapes, so that quotes cannot come back.
const UNESCAPED: [&str; 1] = ["LiquidAI/LFM2.5-VL-450M"];

fn tools() -> Value {
    let parameters = json!({
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Where"},
            "days": {"type": "integer", "description": "How many"},
            "exact": {"type": "boolean", "description": "Whether"},
        },
        "required": ["city", "days"],
    });
    let tool = |name: &str| {
        json!({"type": "function", "function": {"name": name, "description": "Tells the weather.",
            "parameters": parameters}})
    };
    json!([tool("get_weather"), tool("get_tides")])
}

fn call(number: usize, name: &str, arguments: &Value) -> Value {
    // Mistral wants nine characters; Kimi counts.
    let id = format!("functions.{name}:{number}");
    json!({"id": id, "type": "function",
        "function": {"name": name, "arguments": arguments.to_string()}})
}

struct Rendering<'a> {
    template: &'a ChatTemplate,
    opens: bool,
}

impl Rendering<'_> {
    fn text(&self, messages: &[Value]) -> Option<String> {
        let variables = Map::new();
        let request = ChatRequest {
            messages,
            tools: Some(&tools()),
            add_generation_prompt: self.opens,
            date: Some("2025-07-10"),
            variables: &variables,
        };
        self.template.render(&request).ok().map(|rendered| rendered.text)
    }
}

/// What the model would have generated, and the prompt before it.
fn turn(template: &ChatTemplate, before: &[Value], answer: &Value) -> Option<(String, String)> {
    let whole = [before, std::slice::from_ref(answer)].concat();
    let full = Rendering { template, opens: false }.text(&whole)?;
    let prompt = Rendering { template, opens: true }.text(before)?;
    // The last characters of a prompt may be of the answer's first line.
    let prompt = (0..prompt.len())
        .rev()
        .filter(|at| prompt.is_char_boundary(*at))
        .map(|at| &prompt[..at])
        .chain([prompt.as_str()])
        .max_by_key(|prompt| if full.starts_with(*prompt) { prompt.len() } else { 0 })?
        .to_owned();
    let turn = &full[prompt.len()..];
    // Command R's prompt ends with an instruction that the conversation does not keep.
    let turn = turn.strip_prefix("CHATBOT_TOKEN|>").unwrap_or(turn);
    let end = TURN_ENDS.iter().filter_map(|end| turn.find(end)).min().unwrap_or(turn.len());
    Some((prompt, turn[..end].to_owned()))
}

/// The prompt and the turn, after a question in the form that the template takes.
fn rendered_turn(template: &ChatTemplate, message: &Value) -> Option<(String, String)> {
    let user = json!({"role": "user", "content": "How is the weather?"});
    // Firefunction's template takes its tools from a message.
    let functions = json!({"role": "functions", "content": tools().to_string()});
    turn(template, std::slice::from_ref(&user), message)
        .or_else(|| turn(template, &[functions, user], message))
}

fn read(format: Format, in_reasoning: bool, turn: &str) -> Reply {
    let declared = tools();
    let functions = declared.as_array().expect("tools").iter().map(|tool| &tool["function"]);
    let tools: Tools = functions
        .map(|function| (function["name"].as_str().expect("a name"), &function["parameters"]))
        .collect();
    let mut reader = Reader::new(format, tools, in_reasoning);
    let mut reply = Reply::default();
    for character in turn.chars() {
        reply.extend(reader.push(&character.to_string()));
    }
    reply.extend(reader.finish());
    reply
}

/// What an answer is made of: content, reasoning, and how many calls.
type Variant = (&'static str, &'static str, usize);

const VARIANTS: [Variant; 4] =
    [("", "", 1), ("", "", 2), ("Let me look.", "", 1), ("Let me look.", "Hm, the weather.", 2)];

/// The assistant's message, and its calls.
fn answer(name: &str, (content, reasoning, count): Variant) -> (Value, Vec<(String, Value)>) {
    let city = if UNESCAPED.contains(&name) { "Köln am Rhein" } else { "\"Köln\" <Rhein>\n\\" };
    let calls = [
        ("get_weather", json!({"city": city, "days": 3, "exact": true})),
        ("get_tides", json!({"city": "</tool_call>{", "days": -1, "exact": false})),
    ];
    let calls = &calls[..count];
    let rendered: Vec<Value> = calls
        .iter()
        .enumerate()
        .map(|(number, (name, arguments))| call(number, name, arguments))
        .collect();
    let mut message = json!({"role": "assistant", "content": content, "tool_calls": rendered});
    if !reasoning.is_empty() {
        for key in ["reasoning_content", "thinking", "thought"] {
            message[key] = reasoning.into();
        }
    }
    let expected = calls.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
    (message, expected)
}

/// Checks one answer; false where the template does not render it, or not its calls.
fn comes_back(name: &str, template: &ChatTemplate, source: &str, variant: Variant) -> bool {
    let (content, reasoning, _) = variant;
    let format = Format::of(source);
    let (message, expected) = answer(name, variant);
    let Some((prompt, turn)) = rendered_turn(template, &message) else { return false };
    if !turn.contains("get_weather") {
        return false;
    }
    let reply = read(format, format.opens_reasoning(&prompt), &turn);
    let found: Vec<(String, Value)> = reply
        .calls
        .iter()
        .map(|call| {
            assert!(call.whole, "{name}: {turn}");
            let arguments = serde_json::from_str(&call.arguments).expect("JSON");
            (call.name.clone(), arguments)
        })
        .collect();
    assert_eq!(found, expected, "{name} ({}): {turn}", format.name());
    let rendered = |text: &str| if turn.contains(text) { text.to_owned() } else { String::new() };
    assert_eq!(reply.text, rendered(content), "{name} ({}): {turn}", format.name());
    if format.has_reasoning() {
        assert_eq!(reply.reasoning, rendered(reasoning), "{name}: {turn}");
    }
    // What came back is rendered as it was generated, so that its prompt is cached.
    let mut again = message.clone();
    if turn.contains(content) {
        again["content"] = reply.text.into();
    }
    for (number, call) in reply.calls.into_iter().enumerate() {
        again["tool_calls"][number]["function"]["arguments"] = call.arguments.into();
    }
    assert_eq!(rendered_turn(template, &again).expect("renders").1, turn, "{name}");
    true
}

#[test]
fn what_templates_render_is_read_back() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = root.join("../shared/data/templates/cases.json");
    let Ok(text) = std::fs::read_to_string(path) else {
        println!("not run: no data");
        return;
    };
    let cases: Vec<Value> = serde_json::from_str(&text).expect("the cases");
    let mut read = Vec::new();
    for case in &cases {
        let source = case["chat_template"].as_str().expect("a template");
        let name = case["name"].as_str().expect("a name");
        let special = |which: &str| case["data"][which].as_str().unwrap_or_default();
        let (bos, eos) = (special("bos_token"), special("eos_token"));
        let eos = if eos.is_empty() { "</s>" } else { eos };
        let template = ChatTemplate::new(source, bos, eos).expect("compiles");
        if NOT_READ.contains(&name) {
            continue;
        }
        let checked =
            VARIANTS.iter().filter(|variant| comes_back(name, &template, source, **variant));
        let checked = checked.count();
        println!("{name}: {} as {}", checked, Format::of(source).name());
        if checked > 0 {
            read.push((name, checked));
        }
    }
    assert_eq!(read, READ);
}
