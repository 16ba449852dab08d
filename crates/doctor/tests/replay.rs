//! Replays of small traces, beside a simulation of an LRU cache that knows no tree.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;

use doctor::{PromptMaker, Replay, ReplayError, Trace, TraceFormat};
use package::{ChatTemplate, Tokenizer};
use proptest::prelude::*;
use serde_json::{Value, json};

const BLOCK: u64 = 512;

fn replay(
    text: &str,
    capacities: &[Option<u64>],
    maker: Option<PromptMaker<'_>>,
) -> Result<Replay, ReplayError> {
    Trace::open(text.as_bytes())?.replay(capacities, maker, &mut |_| {})
}

/// A request of a trace: the hash ids of its blocks, and the tokens of its prompt.
#[derive(Debug, Clone)]
struct Request {
    hash_ids: Vec<u64>,
    input_length: u64,
}

fn lines(requests: &[Request]) -> String {
    let line = |(index, request): (usize, &Request)| {
        let line = json!({
            "timestamp": 10 * index, "input_length": request.input_length, "output_length": 1,
            "hash_ids": request.hash_ids,
        });
        format!("{line}\n")
    };
    requests.iter().enumerate().map(line).collect()
}

/// Tokens that each request reuses in a list of blocks of which the longest unused go first. A
/// request uses its blocks from the last to the first.
fn hits_of_a_list(requests: &[Request], capacity: Option<u64>) -> Vec<u64> {
    let blocks_max = capacity.map_or(usize::MAX, |capacity| (capacity / BLOCK) as usize);
    let mut last_use: HashMap<u64, usize> = HashMap::new();
    let mut uses = 0;
    let mut hits = Vec::new();
    for request in requests {
        let held = request.hash_ids.iter().take_while(|id| last_use.contains_key(id)).count();
        hits.push((held as u64 * BLOCK).min(request.input_length));
        for id in request.hash_ids.iter().rev() {
            uses += 1;
            last_use.insert(*id, uses);
        }
        while last_use.len() > blocks_max {
            let oldest = last_use.iter().min_by_key(|(_, used)| **used).map(|(id, _)| *id);
            last_use.remove(&oldest.expect("one is held"));
        }
    }
    hits
}

/// Conversations: each request goes on from a prefix of an earlier one, with chained ids.
fn requests() -> impl Strategy<Value = Vec<Request>> {
    let one = (any::<prop::sample::Index>(), 0_usize..12, 0_usize..9, 1..=BLOCK);
    prop::collection::vec(one, 1..60).prop_map(|parts| {
        let mut requests: Vec<Request> = Vec::new();
        // Far above 32 bits, where hashes are.
        let mut next = u64::MAX / 2;
        for (from, kept, added, in_last) in parts {
            let mut hash_ids = match requests.len() {
                0 => Vec::new(),
                count => requests[from.index(count)].hash_ids.clone(),
            };
            hash_ids.truncate(kept);
            let added = added.max(usize::from(hash_ids.is_empty()));
            hash_ids.extend((next..).take(added));
            next += added as u64;
            let input_length = (hash_ids.len() as u64 - 1) * BLOCK + in_last;
            requests.push(Request { hash_ids, input_length });
        }
        requests
    })
}

proptest! {
    #[test]
    fn a_replay_finds_what_a_list_finds(
        requests in requests(), blocks in prop::collection::vec(1_u64..50, 1..4),
    ) {
        let mut capacities: Vec<_> = blocks.iter().map(|blocks| Some(blocks * BLOCK)).collect();
        capacities.push(None);
        let replay = replay(&lines(&requests), &capacities, None).expect("a trace");
        prop_assert_eq!(replay.format, TraceFormat::Mooncake);
        prop_assert_eq!(replay.requests, requests.len());
        let lengths: Vec<u64> = requests.iter().map(|request| request.input_length).collect();
        let tokens: u64 = lengths.iter().sum();
        prop_assert_eq!(replay.prompt_tokens, tokens);
        for (found, capacity) in replay.capacities.iter().zip(capacities) {
            let hits = hits_of_a_list(&requests, capacity);
            let reused: u64 = hits.iter().sum();
            prop_assert_eq!(found.capacity_tokens, capacity);
            prop_assert_eq!(found.reused_tokens, reused);
            prop_assert_eq!(found.computed_tokens, tokens - reused);
            prop_assert_eq!(found.hit_rate, reused as f64 / tokens as f64);
            let half = requests.len() / 2;
            let sum_of_half = |all: &[u64]| all[half..].iter().sum::<u64>() as f64;
            let last_half = sum_of_half(&hits) / sum_of_half(&lengths);
            prop_assert_eq!(found.last_half_hit_rate, last_half);
            if let Some(capacity) = capacity {
                prop_assert!(found.held_tokens <= capacity);
            }
            let mut stops = [0; 3];
            for stop in &found.stops {
                stops[0] += stop.requests;
                stops[1] += stop.reused_tokens;
                stops[2] += stop.computed_tokens;
            }
            prop_assert_eq!(stops, [requests.len() as u64, reused, tokens - reused]);
            // One part for each request.
            let over_trace = found.over_trace(requests.len());
            for ((end, rate), index) in over_trace.into_iter().zip(0..) {
                prop_assert_eq!(end, index + 1);
                prop_assert_eq!(rate, hits[index] as f64 / lengths[index] as f64);
            }
        }
    }
}

#[test]
fn the_reasons_of_a_small_trace_are_those_that_a_reader_would_give() {
    let request =
        |hash_ids: &[u64], input_length| Request { hash_ids: hash_ids.to_vec(), input_length };
    let trace = [
        request(&[1, 2], 1_000),
        // Goes on where the first one ended.
        request(&[1, 2, 3], 1_100),
        // Goes on otherwise.
        request(&[1, 4], 700),
        // The whole prompt is held, and counts as its tokens, not as whole blocks.
        request(&[1, 4], 700),
        // Begins otherwise.
        request(&[9], 512),
    ];
    let replay = replay(&lines(&trace), &[None, Some(2 * BLOCK)], None).expect("a trace");
    assert_eq!((replay.block_tokens, replay.duration_ms), (BLOCK, Some(40)));
    let stops = |index: usize| {
        let stops = replay.capacities[index].stops.iter();
        let mut stops: Vec<_> =
            stops.map(|stop| (stop.reason.code(), stop.requests, stop.reused_tokens)).collect();
        stops.sort_unstable();
        stops
    };
    let unbounded = [
        ("different_token", 1, 512),
        ("end_of_cached", 1, 1_024),
        ("end_of_prompt", 1, 700),
        ("first_request", 2, 0),
    ];
    // What is held begins with the first request's blocks, of which none is the last one's.
    assert_eq!(stops(0), unbounded);
    // In two blocks, the second request leaves 1 and 2 behind, and the third 1 and 4.
    let reused = replay.capacities[1].reused_tokens;
    assert_eq!(reused, hits_of_a_list(&trace, Some(2 * BLOCK)).iter().sum::<u64>());
    assert_eq!(replay.capacities[1].held_tokens, 2 * BLOCK);
    // Three blocks were wanted for the second request, and one more for each of the later ones.
    assert_eq!(replay.capacities[1].evicted_tokens, 2 * BLOCK);
}

fn fixture() -> (Tokenizer, ChatTemplate) {
    let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/goldens");
    let tokenizer = Tokenizer::from_directory(&goldens.join("llama-gqa2-biased"));
    let template = "{% for message in messages %}<{{ message.role }}>{{ message.content }}\n\
                    {% endfor %}";
    let template = ChatTemplate::new(template, "", "").expect("a template");
    (tokenizer.expect("a tokenizer"), template)
}

#[test]
fn requests_are_replayed_by_their_prompts_tokens() {
    let (tokenizer, template) = fixture();
    let maker = PromptMaker {
        tokenizer: &tokenizer,
        chat_template: Some(&template),
        date: None,
        context: None,
        known: None,
    };
    let chat = |text: &str, fields: Value| {
        let mut body = json!({"messages": [{"role": "user", "content": text}]});
        let body_fields = body.as_object_mut().expect("an object");
        body_fields.extend(fields.as_object().expect("an object").clone());
        body
    };
    let ids: Vec<u32> = (0..40).collect();
    let bodies = [
        chat("What is a refrain?", json!({})),
        chat("What is a refrain?", json!({})),
        chat("What is a refrain?", json!({"cache_salt": "other"})),
        chat("What is a refrain?", json!({"cache_prompt": false})),
        json!({"prompt": ids}),
        json!({"prompt": ids, "echo": true, "logprobs": 1, "max_tokens": 0}),
        json!({"system": "Be brief.", "messages": [{"role": "user", "content": "Hi"}]}),
        json!("a text"),
    ];
    let mut text: String = bodies.iter().map(|body| format!("{body}\r\n\n")).collect();
    text += "{\"input\": [\"What is a refrain?\"], \"encoding_format\": \"float\"}\n";
    let replay = replay(&text, &[None, Some(40)], Some(maker)).expect("requests");
    assert_eq!((replay.format, replay.requests), (TraceFormat::Requests, bodies.len()));
    assert_eq!((replay.block_tokens, replay.duration_ms), (16, None));
    assert_eq!(replay.embeddings, 1, "they are told apart, and left out");
    let encoded = |text: &str| tokenizer.encode(text, false).expect("ids").ids.len() as u64;
    let question = encoded("<user>What is a refrain?\n");
    let unbounded = &replay.capacities[0];
    let of_reason = |reason: &str| {
        let found = unbounded.stops.iter().find(|stop| stop.reason.code() == reason);
        found.map(|stop| (stop.requests, stop.reused_tokens, stop.computed_tokens))
    };
    // The last token is always computed.
    assert_eq!(of_reason("end_of_prompt"), Some((1, question - 1, 1)));
    assert_eq!(of_reason("disabled_by_request"), Some((1, 0, question)));
    assert_eq!(of_reason("rows_requested"), Some((1, 0, 40)));
    let tokens = 4 * question
        + 80
        + encoded("<system>Be brief.\n<user>Hi\n")
        + tokenizer.encode("a text", true).expect("ids").ids.len() as u64;
    assert_eq!(replay.prompt_tokens, tokens);
    // 40 tokens are two pages of 16.
    assert!(replay.capacities[1].held_tokens <= 32);
}

#[test]
fn a_line_at_fault_is_named() {
    let (tokenizer, template) = fixture();
    let maker = PromptMaker {
        tokenizer: &tokenizer,
        chat_template: Some(&template),
        date: None,
        context: Some(64),
        known: None,
    };
    let good = r#"{"timestamp": 5, "input_length": 513, "output_length": 1, "hash_ids": [1, 2]}"#;
    let body = r#"{"prompt": "Hi"}"#;
    let long = format!(r#"{{"prompt": "{}"}}"#, "Hi ".repeat(200));
    let with = |first: &str, second: &str| format!("{first}\n\n{second}\n");
    let cases = [
        (String::new(), "there is no request in it"),
        (" \n\n".to_owned(), "there is no request in it"),
        ("{".to_owned(), "line 1: column 1: EOF while parsing an object"),
        (with(good, "{\"timestamp\": 5,"), "line 3: column 16: EOF"),
        (with(good, body), "line 3: column 16: missing field `timestamp`"),
        (with(good, &good.replace("5,", "4,")), "line 3: its 'timestamp' 4 is before 5"),
        (with(good, &good.replace("1, 2", "1")), "line 3: it has 1 'hash_ids' for 513 input"),
        (with(good, &good.replace("513", "0")), "line 3: its 'input_length' is 0"),
        (with(good, &good.replace("513", "-1")), "line 3: column 35: invalid value"),
        (with(good, &good.replace("1, 2", "1, \"2\"")), "line 3: column"),
        (with(body, good), "line 3: it has neither 'messages' nor 'prompt' nor 'input'"),
        (with(body, "[1]"), "line 3: it is [1], and not the body of a request"),
        (
            with(body, r#"{"input": "Hi", "previous_response_id": "resp_1"}"#),
            "line 3: 'previous_response_id' names a response",
        ),
        (with(body, r#"{"prompt": ""}"#), "line 3: the prompt is empty"),
        (with(body, &long), "line 3: the prompt is too long: 600 tokens"),
    ];
    for (text, part) in cases {
        let error = replay(&text, &[None], Some(maker)).expect_err(part).to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
    let error = replay(body, &[None], None).expect_err("no model");
    assert!(matches!(error, ReplayError::NoModel));
    for (text, capacity) in [(good, 511), (body, 15)] {
        let error = replay(text, &[None, Some(capacity)], Some(maker)).expect_err("too small");
        assert!(matches!(error, ReplayError::TooSmall { .. }), "{error}");
    }
    let mut bytes = vec![b'"'; 1];
    bytes.resize((16 << 20) + 2, b'a');
    bytes.write_all(b"\"\n").expect("a vector takes all");
    let error = Trace::open(bytes.as_slice()).err().expect("too long").to_string();
    assert_eq!(error, "line 1: it is longer than 16777216 bytes");
}
