//! Pairs of texts that differ in one place: where the token ids differ, reuse must stop.

use serde_json::{Value, json};

use super::answer::Answer;
use super::client::User;
use super::{Live, common_prefix};
use crate::shape::has_the_vocabulary;
use crate::tally::{Seen, Stop, Tally};

/// The article's prompt with a clock, up to the second and after it.
pub(super) const CLOCK: [&str; 2] = [
    "You are a helpful assistant.\nCurrent time: 2026-01-05 10:00:01\nTools:",
    "You are a helpful assistant.\nCurrent time: 2026-01-05 10:00:02\nTools:",
];

/// What came of the second of two texts after the first.
struct Pair {
    /// Tokens of the second.
    tokens: usize,
    /// The first position at which they differ.
    at: usize,
    /// The tokens there, if both have one.
    ids: [Option<u32>; 2],
}

/// Asks both texts, and compares the verdict on the second with their ids.
fn ask(user: &User, tally: &mut Tally, texts: [&str; 2]) -> Result<Pair, Stop> {
    let (first, second) = (user.ids(texts[0])?, user.ids(texts[1])?);
    let at = common_prefix(&first, &second);
    user.complete(texts[0], json!({}))?;
    let answer = user.complete(texts[1], json!({}))?;
    let ids = [first.get(at).copied(), second.get(at).copied()];
    check(tally, "different_token", &answer, at, ids)?;
    Ok(Pair { tokens: second.len(), at, ids })
}

fn check(
    tally: &mut Tally,
    reason: &str,
    answer: &Answer,
    at: usize,
    ids: [Option<u32>; 2],
) -> Result<(), Stop> {
    tally.equal("the reason", reason, answer.reason())?;
    tally.equal("the position of the stop", &at, &answer.at())?;
    tally.equal("tokens reused", &at, &answer.reused())?;
    tally.equal("tokens computed", &(answer.prompt() - at), &answer.computed())?;
    let found = [&answer.stop()["cached"]["id"], &answer.stop()["request"]["id"]];
    tally.equal("the tokens at the stop", &[&json!(ids[0]), &json!(ids[1])], &found)
}

impl Pair {
    fn figure(&self, live: &Live) -> String {
        let Pair { tokens, at, ids } = *self;
        let tokenizer = &live.package.tokenizer;
        let shown = |id: Option<u32>| match id {
            Some(id) => format!("{:?} ({id})", tokenizer.decode(&[id], true)),
            None => "nothing".to_owned(),
        };
        let [held, asked] = ids.map(shown);
        format!("reused {at} of {tokens}; held {held}, now {asked}")
    }
}

/// Row 141: a rewritten word stops reuse where it is.
pub(crate) fn word(live: &mut Live, tally: &mut Tally) -> Seen {
    let user = live.user();
    let texts = ["The cat sat on the mat and slept.", "The cat sat on the rug and slept."];
    let pair = ask(&user, tally, texts)?;
    Ok(pair.figure(live))
}

/// Row 142: a clock stops it at its second: 20 of 24 tokens in GPT-2's vocabulary.
pub(crate) fn clock(live: &mut Live, tally: &mut Tally) -> Seen {
    let user = live.user();
    let pair = ask(&user, tally, CLOCK)?;
    if has_the_vocabulary(&live.package.tokenizer).is_ok() {
        tally.equal("common tokens, in GPT-2's vocabulary", &20, &pair.at)?;
        tally.equal("all tokens, in GPT-2's vocabulary", &24, &pair.tokens)?;
        tally.equal("the tokens, in GPT-2's vocabulary", &[Some(486), Some(2999)], &pair.ids)?;
    }
    Ok(pair.figure(live))
}

/// Row 144: one space more stops it.
pub(crate) fn white_space(live: &mut Live, tally: &mut Tally) -> Seen {
    let user = live.user();
    let pair = ask(&user, tally, ["The cat sat on", "The cat  sat on"])?;
    if has_the_vocabulary(&live.package.tokenizer).is_ok() {
        tally.equal("common tokens, in GPT-2's vocabulary", &2, &pair.at)?;
        tally.equal("the tokens, in GPT-2's vocabulary", &[Some(3332), Some(220)], &pair.ids)?;
    }
    Ok(pair.figure(live))
}

/// Row 143: another order of the tools stops it among the tools.
pub(crate) fn tools(live: &mut Live, tally: &mut Tally) -> Seen {
    let user = live.user();
    let tool = |name: &str| {
        json!({"type": "function", "function": {
            "name": name, "description": "Says it.", "parameters": {"type": "object"}}})
    };
    let reads = live.package.chat_template.as_ref().is_some_and(|own| own.uses_tools());
    let request = |tools: [Value; 2]| {
        let mut system = "Be brief.".to_owned();
        if !reads {
            system = format!("Tools: {}\n{}\n{system}", tools[0], tools[1]);
        }
        let messages = json!([
            {"role": "system", "content": system}, {"role": "user", "content": "Go on."}]);
        match reads {
            true => json!({"messages": messages, "tools": tools}),
            false => json!({"messages": messages}),
        }
    };
    let [first, second] = [
        request([tool("weather"), tool("calendar")]),
        request([tool("calendar"), tool("weather")]),
    ];
    let (ids, others) = (user.tokenize(&first)?, user.tokenize(&second)?);
    let at = common_prefix(&ids, &others);
    let ask = |mut request: Value| {
        let messages = request["messages"].take();
        if reads {
            request["tool_choice"] = json!("none");
        }
        user.chat(&messages, request)
    };
    ask(first)?;
    let answer = ask(second)?;
    let differing = [ids.get(at).copied(), others.get(at).copied()];
    check(tally, "different_token", &answer, at, differing)?;
    let text = |ids: &[u32]| live.package.tokenizer.decode(ids, true);
    let (before, after) = (text(&others[..at]), text(&others[at..]));
    let among = before.contains("function") && !before.contains("weather");
    let among = among && after.contains("weather") && after.contains("Says it.");
    tally.holds("the stop", "a place among the tools", among, format!("after {before:?}"))?;
    let role = if reads { "template" } else { "system" };
    tally.equal("whose text it is", role, answer.stop()["role"].as_str().unwrap_or_default())?;
    let note = match reads {
        true => live.template_note(),
        false => "; in the system message, the template reads no tools",
    };
    Ok(format!("reused {at} of {}, up to the first tool's name{note}", others.len()))
}

/// Row 184: the same text by other ids is another prompt.
pub(crate) fn retokenized(live: &mut Live, tally: &mut Tally) -> Seen {
    let (user, package) = (live.user(), live.package.clone());
    let tokenizer = &package.tokenizer;
    let text = "The cat sat on";
    let ids = user.ids(text)?;
    // The last token of several bytes, in tokens of one byte each.
    let long = |id: &u32| tokenizer.bytes(*id).is_some_and(|bytes| bytes.len() > 1);
    let place = ids.iter().rposition(long);
    let place = place.ok_or_else(|| Stop::not_run("every token of the text is one byte"))?;
    let bytes = tokenizer.bytes(ids[place]).unwrap_or_default();
    let byte_id = |byte: &u8| {
        (0..tokenizer.vocab_size() as u32).find(|&id| tokenizer.bytes(id) == Some(&[*byte]))
    };
    let split: Option<Vec<u32>> = bytes.iter().map(byte_id).collect();
    let split = split.ok_or_else(|| Stop::not_run("the vocabulary lacks single bytes"))?;
    let other = [&ids[..place], &split, &ids[place + 1..]].concat();
    let (one, same) = (tokenizer.decode(&ids, true), tokenizer.decode(&other, true));
    tally.equal("the text of both", &one, &same)?;
    user.complete(ids.clone(), json!({}))?;
    let answer = user.complete(other.clone(), json!({}))?;
    let at = common_prefix(&ids, &other);
    let differing = [ids.get(at).copied(), other.get(at).copied()];
    check(tally, "retokenized", &answer, at, differing)?;
    Ok(format!("{same:?} in {} and in {} tokens: {at} reused", ids.len(), other.len()))
}
