//! No answer makes a reader panic, and none reads otherwise in pieces than as a whole.

#![no_main]

use reply::{Format, Reader, Reply, Tools};
use serde_json::Value;

/// A text of a template of each format.
const SIGNS: [&str; 14] = [
    "<tool_call></think>",
    "<tool_call><arg_key></think>",
    "<|python_tag|></think>",
    "<|start_header_id|>\"parameters\"",
    "</think>",
    "[TOOL_CALLS][/THINK]",
    "[TOOL_CALLS][ARGS][/THINK]",
    "<start_of_turn>",
    "<|START_ACTION|><|END_THINKING|>",
    "Action: tool_name",
    "<｜tool▁call▁begin｜></think>",
    "<|tool_call_begin|></think>",
    "<|tool_call_start|><|thought_end|>",
    "<functioncall>",
];

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let [format, length, answer @ ..] = input else { return };
    let answer = String::from_utf8_lossy(answer);
    let in_reasoning = format & 1 == 1;
    let format = Format::of(SIGNS[usize::from(format >> 1) % SIGNS.len()]);
    let read = |length: usize| {
        let declared = [("f", &Value::Null), ("get_weather", &Value::Null)];
        let tools: Tools = declared.into_iter().collect();
        let mut reader = Reader::new(format, tools, in_reasoning);
        let mut reply = Reply::default();
        let mut rest = answer.as_ref();
        while !rest.is_empty() {
            let (piece, other) = rest.split_at(rest.ceil_char_boundary(length));
            reply.extend(reader.push(piece));
            rest = other;
        }
        reply.extend(reader.finish());
        reply
    };
    assert_eq!(read(usize::from(*length).max(1)), read(answer.len().max(1)));
});
