//! From tokens back to messages.

use package::{ChatRequest, ChatTemplate, Location, Package, PromptMap, StreamDecoder, Tokenizer};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::sync::LazyLock;

static GPT2: LazyLock<Option<Tokenizer>> = LazyLock::new(|| {
    let Some(directory) = std::env::var_os("REFRAIN_GPT2_VOCAB").map(PathBuf::from) else {
        println!("not run: no data (REFRAIN_GPT2_VOCAB is not set)");
        return None;
    };
    Some(Tokenizer::from_directory(&directory).expect("the GPT-2 vocabulary loads"))
});

const TEMPLATE: &str = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}";

fn map(tokenizer: &Tokenizer, messages: &[Value]) -> (Vec<u32>, PromptMap) {
    let template = ChatTemplate::new(TEMPLATE, "", "").expect("compiles");
    let rendered = template
        .render(&ChatRequest {
            messages,
            tools: None,
            add_generation_prompt: false,
            date: None,
            variables: &Map::new(),
        })
        .expect("renders");
    let encoding = tokenizer.encode(&rendered.text, false).expect("encodes");
    let map = PromptMap::new(&rendered, &encoding);
    (encoding.ids, map)
}

/// The article's prompts, as a system message: token 486 becomes 2999.
#[test]
fn a_changed_second_is_found_in_its_message() {
    let Some(gpt2) = GPT2.as_ref() else { return };
    let system = "You are a helpful assistant.\nCurrent time: 2026-01-05 10:00:01\nTools:";
    let messages =
        [json!({"role": "system", "content": system}), json!({"role": "user", "content": "hi"})];
    let (ids, map) = map(gpt2, &messages);
    let at = ids.iter().rposition(|id| *id == 486).expect("the token of the article");
    let location = map.locate(at..at + 1);
    assert_eq!((location.message, location.role.as_str()), (Some(0), "system"));
    let [from, to] = location.chars.expect("known");
    assert_eq!((&system[from..to], from), ("01", 60));
    let template = Location { message: None, role: "template".to_owned(), chars: None };
    assert_eq!(map.locate(0..1), template);
    assert_eq!(map.locate(ids.len()..ids.len() + 1), template);
    assert_eq!(map.locate(3..3), template);
}

#[test]
fn a_part_of_a_character_is_the_whole() {
    let Some(gpt2) = GPT2.as_ref() else { return };
    let content = "今天😀?";
    let (ids, map) = map(gpt2, &[json!({"role": "user", "content": content})]);
    let found: Vec<[usize; 2]> =
        (0..ids.len()).filter_map(|at| map.locate(at..at + 1).chars).collect();
    assert!(found.contains(&[0, 1]) && found.contains(&[2, 3]), "{found:?}");
    assert!(found.iter().all(|[from, to]| from < to && *to <= 4));
    let all = map.locate(0..ids.len());
    assert_eq!(all.chars, Some([0, 4]));
}

proptest! {
    /// What `locate` names is what the tokens' bytes are.
    #[test]
    fn locations_hold_the_tokens_text(
        contents in prop::collection::vec("[a-c今é😀 \n]{0,9}", 0..4),
        start in 0usize..40,
        length in 1usize..5,
    ) {
        let Some(gpt2) = GPT2.as_ref() else { return Ok(()) };
        let messages: Vec<Value> =
            contents.iter().map(|text| json!({"role": "user", "content": text})).collect();
        let (ids, map) = map(gpt2, &messages);
        let end = (start + length).min(ids.len());
        if start >= end {
            return Ok(());
        }
        let location = map.locate(start..end);
        let Some(message) = location.message else { return Ok(()) };
        let [from, to] = location.chars.expect("a message has characters");
        let named: String = contents[message].chars().skip(from).take(to - from).collect();
        prop_assert_eq!(named.chars().count(), to - from);
        let mut decoder = StreamDecoder::new();
        let mut push = |id: &u32| decoder.push(gpt2.bytes(*id).expect("bytes"));
        let mut text: String = ids[start..end].iter().map(&mut push).collect();
        text += &decoder.finish();
        // At the edges, a token may hold a part of a character that is named whole, or text of
        // the template.
        let inner: String =
            named.chars().skip(1).take(named.chars().count().saturating_sub(2)).collect();
        prop_assert!(text.contains(&inner), "{text:?} {named:?}");
    }
}
#[test]
fn a_package_has_its_chat_template() {
    let Some(path) = std::env::var_os("REFRAIN_SMOLLM2").map(PathBuf::from) else {
        println!("not run: no data (REFRAIN_SMOLLM2 is not set)");
        return;
    };
    let package = Package::open(&path).expect("opens");
    let messages = [json!({"role": "user", "content": "Hello"})];
    let request = ChatRequest {
        messages: &messages,
        tools: None,
        add_generation_prompt: true,
        date: None,
        variables: &Map::new(),
    };
    let template = package.chat_template.as_ref().expect("has a template");
    let rendered = template.render(&request).expect("renders");
    assert_eq!(
        rendered.text,
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging \
         Face<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    );
    let ids = package.tokenizer.encode(&rendered.text, false).expect("encodes").ids;
    assert_eq!((ids[0], ids.iter().filter(|id| **id == 1).count()), (1, 3));
}
