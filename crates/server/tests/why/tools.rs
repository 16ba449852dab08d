//! Random tools, and edits of them.

use serde_json::{Map, Value, json};

use crate::random::{Random, WORDS};

const NAMES: [&str; 5] = ["weather", "get_time", "search-web", "f", "Look_Up2"];
const KEYS: [&str; 4] = ["city", "unit", "when", "note"];

/// At least `least` tools with different names and at least two parameters each, and at most four.
pub(crate) fn random(random: &mut Random, least: usize) -> Vec<Value> {
    let start = random.below(NAMES.len());
    let count = least + random.below(5 - least);
    (start..start + count).map(|index| tool(random, NAMES[index % NAMES.len()])).collect()
}

fn tool(random: &mut Random, name: &str) -> Value {
    let description = (0..1 + random.below(6)).map(|_| WORDS[random.below(WORDS.len())]);
    let description = description.collect::<Vec<_>>().join(" ");
    let properties: Map<String, Value> = KEYS[..2 + random.below(3)]
        .iter()
        .map(|key| (key.to_string(), json!({"type": "string", "description": key})))
        .collect();
    json!({"type": "function", "function": {
        "name": name,
        "description": description,
        "parameters": {"type": "object", "properties": properties, "required": []},
    }})
}

/// Changes the tools in one place.
pub(crate) fn edit(random: &mut Random, tools: &mut Vec<Value>, edit: &str) {
    let at = random.below(tools.len());
    let text = |tools: &[Value]| {
        let text = tools[at]["function"]["description"].as_str().unwrap_or_default();
        text.to_owned()
    };
    match edit {
        "tool added" => tools.insert(at, tool(random, "another")),
        "tool removed" => drop(tools.remove(at)),
        "tools swapped" => {
            let other = (at + 1 + random.below(tools.len() - 1)) % tools.len();
            tools.swap(at, other);
        }
        "tool named" => tools[at]["function"]["name"] = json!("renamed"),
        "tool described" => {
            tools[at]["function"]["description"] = json!(format!("{} now", text(tools)));
        }
        "white space in tools" => {
            tools[at]["function"]["description"] = json!(format!(" {}", text(tools)));
        }
        // The same parameters, declared the other way round.
        _ => {
            let properties = &mut tools[at]["function"]["parameters"]["properties"];
            let keys = properties.as_object().cloned().unwrap_or_default();
            *properties = Value::Object(keys.into_iter().rev().collect());
        }
    }
}
