//! A request, end to end.

use package::ChatRequest;
use serde_json::{Map, Value, json};

use super::answer::has_key;
use super::{Live, common_prefix};
use crate::tally::{Seen, Stop, Tally};

/// Tokens of the answers.
const ANSWER: usize = 12;

fn conversation() -> Value {
    json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Where did the cat sit?"},
    ])
}

/// Row 153: the client sends messages and gets text; ids, K and V are not its matter.
pub(crate) fn messages(live: &mut Live, tally: &mut Tally) -> Seen {
    let user = live.user();
    let answer = user.chat(&conversation(), json!({"max_tokens": ANSWER}))?;
    let message = &answer.0["choices"][0]["message"];
    tally.equal("whose message", &json!("assistant"), &message["role"])?;
    let is_text = message["content"].is_string();
    tally.holds("the content", "a text", is_text, &message["content"])?;
    for name in ["past_key_values", "input_ids", "token_ids", "attention_mask"] {
        let absent = !has_key(&answer.0, name);
        tally.holds(format!("'{name}' in the answer"), "nothing", absent, "something")?;
    }
    let more = json!({"past_key_values": [[0.0]]});
    let ignored = user.chat(&conversation(), more)?;
    tally.equal("without effect", &json!(["past_key_values"]), ignored.ignored())?;
    let note = live.template_note();
    Ok(format!("2 messages in, {} tokens of text out{note}", answer.output()))
}

/// Row 154: the chat template makes a text of the messages, and the tokenizer ids of the text.
pub(crate) fn template(live: &mut Live, tally: &mut Tally) -> Seen {
    let (user, package, messages) = (live.user(), live.package.clone(), conversation());
    let list = messages.as_array().map_or(&[][..], Vec::as_slice);
    let request = ChatRequest {
        messages: list,
        tools: None,
        add_generation_prompt: true,
        date: None,
        variables: &Map::new(),
    };
    let template = package.chat_template.as_ref();
    let template = template.ok_or_else(|| Stop::failed("the template", "there is none"))?;
    let text = template.render(&request).map_err(|error| Stop::failed("the template", error))?.text;
    for message in list {
        let said = message["content"].as_str().unwrap_or_default();
        let there = text.contains(said);
        tally.holds("the rendered text", format!("with {said:?}"), there, format!("{text:?}"))?;
    }
    let of_text = user.tokenize(&json!({"prompt": text, "add_special_tokens": false}))?;
    let of_messages = user.tokenize(&json!({"messages": messages}))?;
    tally.equal("the ids of text and messages", &of_text, &of_messages)?;
    let answer = user.chat(&messages, json!({}))?;
    tally.equal("the prompt's tokens", &of_text.len(), &answer.prompt())?;
    let characters = text.chars().count();
    let (tokens, note) = (of_text.len(), live.template_note());
    Ok(format!("2 messages, {characters} characters, {tokens} tokens{note}"))
}

/// Row 155: then the prompt cache is looked into, and the answer says with what result.
pub(crate) fn looked_up(live: &mut Live, tally: &mut Tally) -> Seen {
    let user = live.user();
    let first = user.chat(&conversation(), json!({}))?;
    let second = user.chat(&conversation(), json!({}))?;
    tally.equal("the first result", "first_request", first.reason())?;
    tally.equal("the second result", "end_of_prompt", second.reason())?;
    let compared = &second.0["refrain"]["verdict"]["compared_with"];
    tally.equal("what the second was compared with", &first.0["id"], compared)?;
    for (which, answer) in [("first", &first), ("second", &second)] {
        let known = answer.time_ms("lookup_ms").is_some();
        tally.holds(format!("the {which} lookup's time"), "a number", known, "null")?;
    }
    Ok(format!("first: {}; again: {}", first.reason(), second.reason()))
}

/// Row 156: prefill computes what was not found, and builds the request's own KV cache.
pub(crate) fn unmatched(live: &mut Live, tally: &mut Tally) -> Seen {
    let (user, first) = (live.user(), conversation());
    let mut second = first.clone();
    if let Some(messages) = second.as_array_mut() {
        messages.push(json!({"role": "assistant", "content": "On the mat."}));
        messages.push(json!({"role": "user", "content": "And the dog?"}));
    }
    let ids = |messages: &Value| user.tokenize(&json!({"messages": messages}));
    let (ids, others) = (ids(&first)?, ids(&second)?);
    let at = common_prefix(&ids, &others);
    user.chat(&first, json!({}))?;
    let before = live.stats()?;
    let answer = user.chat(&second, json!({}))?;
    let after = live.stats()?;
    tally.equal("tokens found", &at, &answer.reused())?;
    tally.equal("tokens computed", &(others.len() - at), &answer.computed())?;
    let added = after.tokens_cached - before.tokens_cached;
    tally.equal("tokens added to what is held", &(others.len() - at), &added)?;
    let again = user.chat(&second, json!({}))?;
    tally.equal("tokens found of it then", &(others.len() - 1), &again.reused())?;
    let (all, note) = (others.len(), live.template_note());
    Ok(format!("second turn: {at} of {all} tokens found, {} computed{note}", all - at))
}

/// Row 157: decode adds one token in each step, and its K and V to the request's cache.
pub(crate) fn decode(live: &mut Live, tally: &mut Tally) -> Seen {
    let (user, prompt) = (live.user(), live.ids(20, 157));
    let before = live.stats()?;
    let answer = user.complete(prompt, json!({"max_tokens": ANSWER}))?;
    let after = live.stats()?;
    tally.equal("tokens of the answer", &ANSWER, &answer.output())?;
    // The prefill gives the first token; the last one is drawn and not computed.
    let steps = (after.steps - before.steps) as usize;
    tally.equal("steps", &ANSWER, &steps)?;
    let held = after.tokens_cached - before.tokens_cached;
    tally.equal("positions held", &(20 + ANSWER - 1), &held)?;
    Ok(format!("20 tokens and {ANSWER} more: {steps} steps, {held} positions held"))
}

/// Row 158: at once or as a stream, the same answer.
pub(crate) fn both_ways(live: &mut Live, tally: &mut Tally) -> Seen {
    let (user, prompt) = (live.user(), live.ids(20, 158));
    let body = json!({"prompt": prompt, "max_tokens": ANSWER, "cache_prompt": false});
    let at_once = user.post("/v1/completions", &body)?;
    let whole = at_once.json()?["choices"][0]["text"].as_str().unwrap_or_default().to_owned();
    let streamed = Streamed::ask(live, body)?;
    tally.equal("the streamed text", &whole, &streamed.fragments.concat())?;
    tally.equal("the reason of its end", &json!("length"), &streamed.finish)?;
    let fragments = streamed.fragments.len();
    tally.holds("fragments", "several", fragments > 1, fragments)?;
    Ok(format!("{} characters at once, and in {fragments} events", whole.chars().count()))
}

/// Row 159: the fragments join to the whole text, token by token; what is no whole character yet
/// is held back.
pub(crate) fn fragments(live: &mut Live, tally: &mut Tally) -> Seen {
    let package = live.package.clone();
    let id_of = |byte: u8| {
        let ids = 0..package.tokenizer.vocab_size() as u32;
        ids.into_iter().find(|&id| package.tokenizer.bytes(id) == Some(&[byte]))
    };
    // The two bytes of é: likelier than all other tokens, and each unlikelier once it was drawn.
    let (Some(first), Some(second)) = (id_of(0xC3), id_of(0xA9)) else {
        return Err(Stop::not_run("the vocabulary lacks single bytes"));
    };
    let mut bias = Map::new();
    bias.insert(first.to_string(), json!(100));
    bias.insert(second.to_string(), json!(100));
    let body = json!({
        "prompt": live.ids(20, 159), "max_tokens": 2 * ANSWER, "logprobs": 0, "logit_bias": bias,
        "frequency_penalty": 2, "temperature": 0, "cache_prompt": false,
    });
    let user = live.user();
    let whole = user.post("/v1/completions", &body)?.json()?;
    let whole = whole["choices"][0]["text"].as_str().unwrap_or_default().to_owned();
    let streamed = Streamed::ask(live, body)?;
    tally.equal("the fragments, joined", &whole, &streamed.fragments.concat())?;
    tally.equal("tokens in the stream", &(2 * ANSWER), &streamed.tokens)?;
    let letters = whole.matches('é').count();
    tally.holds("characters of two tokens", "some", letters > 0, format!("{whole:?}"))?;
    let apart: usize = streamed.fragments.iter().map(|text| text.matches('é').count()).sum();
    tally.equal("such characters in one fragment", &letters, &apart)?;
    let (count, tokens) = (streamed.fragments.len(), streamed.tokens);
    Ok(format!("{tokens} tokens in {count} fragments; {letters} characters of two tokens, whole"))
}

/// Row 176: server-sent events, up to `[DONE]`.
pub(crate) fn events(live: &mut Live, tally: &mut Tally) -> Seen {
    let (user, messages) = (live.user(), conversation());
    let mut body = json!({"messages": messages, "max_tokens": ANSWER, "stream": true});
    body["stream_options"] = json!({"include_usage": true});
    let reply = user.post("/v1/chat/completions", &body)?;
    let kind = reply.header("content-type").unwrap_or_default();
    let is_stream = kind.starts_with("text/event-stream");
    tally.holds("the content type", "text/event-stream", is_stream, kind)?;
    let events = reply.events();
    tally.equal("the last event", &Some(&"[DONE]"), &events.last())?;
    for event in &events[..events.len() - 1] {
        let chunk: Value = serde_json::from_str(event)
            .map_err(|error| Stop::failed("an event", format!("{error}: {event}")))?;
        tally.equal("what an event is", &json!("chat.completion.chunk"), &chunk["object"])?;
    }
    tally.holds("events", "several", events.len() > 3, events.len())?;
    let (count, arrivals) = (events.len(), reply.arrivals);
    Ok(format!("{count} events, which arrived in {arrivals} parts; the last: [DONE]"))
}

/// A streamed text completion.
struct Streamed {
    fragments: Vec<String>,
    tokens: usize,
    finish: Value,
}

impl Streamed {
    fn ask(live: &mut Live, mut body: Value) -> Result<Streamed, Stop> {
        body["stream"] = json!(true);
        let reply = live.user().post("/v1/completions", &body)?;
        let mut streamed = Streamed { fragments: Vec::new(), tokens: 0, finish: Value::Null };
        for event in reply.events().into_iter().filter(|&event| event != "[DONE]") {
            let event: Value = serde_json::from_str(event)
                .map_err(|error| Stop::failed("an event", format!("{error}: {event}")))?;
            let choice = &event["choices"][0];
            let text = choice["text"].as_str().unwrap_or_default();
            if !text.is_empty() {
                streamed.fragments.push(text.to_owned());
            }
            streamed.tokens += choice["logprobs"]["tokens"].as_array().map_or(0, Vec::len);
            if !choice["finish_reason"].is_null() {
                streamed.finish = choice["finish_reason"].clone();
            }
        }
        Ok(streamed)
    }
}
