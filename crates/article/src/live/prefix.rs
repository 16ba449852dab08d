//! What of a prompt is reused: prompts of token ids, so that every position is known.

use serde_json::{Value, json};

use super::{Live, common_prefix};
use crate::tally::{Seen, Tally};

/// Tokens of the prompts: some pages of 16, and a part of one.
const PROMPT: usize = 40;
/// Tokens of a common prefix and of the questions after it.
const PREFIX: usize = 24;
const QUESTION: usize = 8;

/// Row 134: K and V of a prefix are kept, so that its tokens are not computed again.
pub(crate) fn kept(live: &mut Live, tally: &mut Tally) -> Seen {
    let (user, prompt) = (live.user(), live.ids(PROMPT, 134));
    let before = live.stats()?;
    let first = user.complete(prompt.clone(), json!({}))?;
    let between = live.stats()?;
    let second = user.complete(prompt, json!({}))?;
    let after = live.stats()?;
    tally.equal("tokens computed at first", &PROMPT, &first.computed())?;
    tally.equal("tokens computed then", &1, &second.computed())?;
    tally.equal("tokens reused then", &(PROMPT - 1), &second.reused())?;
    let counted = |from: u64, to: u64| (to - from) as usize;
    let reused = counted(before.reused_tokens, between.reused_tokens);
    tally.equal("the engine's count of reused tokens at first", &0, &reused)?;
    let reused = counted(between.reused_tokens, after.reused_tokens);
    tally.equal("the engine's count of reused tokens then", &(PROMPT - 1), &reused)?;
    Ok(format!("{PROMPT} tokens computed at first, then 1; {reused} reused"))
}

/// Row 135: the prefix's answer is not kept: with another question, another answer is computed,
/// the one that would be given without a cache.
pub(crate) fn no_answers(live: &mut Live, tally: &mut Tally) -> Seen {
    let user = live.user();
    let [first, second] = questions(live, 135);
    let more = json!({"max_tokens": 4, "logprobs": 5});
    let answer = user.complete(first, more.clone())?;
    let other = user.complete(second.clone(), more.clone())?;
    let mut uncached = more;
    uncached["cache_prompt"] = json!(false);
    let alone = user.complete(second, uncached)?;
    tally.equal("tokens reused", &PREFIX, &other.reused())?;
    tally.equal("tokens reused without a cache", &0, &alone.reused())?;
    tally.equal("the second answer", alone.logprobs(), other.logprobs())?;
    let differ = answer.logprobs() != other.logprobs();
    tally.holds("the two answers", "different ones", differ, "the same one")?;
    Ok(format!("{PREFIX} tokens reused; the answer is the one without a cache, not the first's"))
}

/// Two prompts with one prefix and different questions.
fn questions(live: &Live, seed: usize) -> [Vec<u32>; 2] {
    let prefix = live.ids(PREFIX, seed);
    let first = live.ids(QUESTION, seed + 1000);
    let mut second = live.ids(QUESTION, seed + 2000);
    second[0] = live.another(first[0]);
    [first, second].map(|question| [&prefix[..], &question].concat())
}

/// Row 136: of several held prompts, the one with the longest common prefix counts.
pub(crate) fn longest(live: &mut Live, tally: &mut Tally) -> Seen {
    let (user, prompt) = (live.user(), live.ids(PROMPT, 136));
    let shared = [5, 21, 13];
    for length in shared {
        let mut held = live.ids(PROMPT, 136 + 100 * length);
        held[..length].copy_from_slice(&prompt[..length]);
        held[length] = live.another(prompt[length]);
        user.complete(held, json!({}))?;
    }
    let answer = user.complete(prompt, json!({}))?;
    tally.equal("tokens reused", &21, &answer.reused())?;
    tally.equal("tokens computed", &(PROMPT - 21), &answer.computed())?;
    Ok("held prompts share 5, 21 and 13 tokens with it; 21 reused".to_owned())
}

/// Row 137: B, which begins as A does, computes only its own question.
pub(crate) fn own_question(live: &mut Live, tally: &mut Tally) -> Seen {
    let user = live.user();
    let [first, second] = questions(live, 137);
    let first = user.complete(first, json!({}))?;
    let second = user.complete(second, json!({}))?;
    tally.equal("tokens that A computes", &(PREFIX + QUESTION), &first.computed())?;
    tally.equal("tokens that B computes", &QUESTION, &second.computed())?;
    let all = PREFIX + QUESTION;
    Ok(format!("A computes {all} tokens, B {QUESTION} of {all}: its question"))
}

/// Positions of a single changed token: around the ends of pages, and inside them.
const CHANGED: [usize; 6] = [1, 7, 15, 16, 17, 33];

/// The answers to a prompt whose token at one of [`CHANGED`] was changed, each after the prompt
/// itself and nothing else.
fn changed(
    live: &mut Live,
    mut look: impl FnMut(usize, &super::answer::Answer, [u32; 2]) -> Result<(), crate::tally::Stop>,
) -> Result<(), crate::tally::Stop> {
    for at in CHANGED {
        let (user, prompt) = (live.user(), live.ids(PROMPT, 138));
        user.complete(prompt.clone(), json!({}))?;
        let mut other = prompt.clone();
        other[at] = live.another(prompt[at]);
        let answer = user.complete(other.clone(), json!({}))?;
        look(at, &answer, [prompt[at], other[at]])?;
    }
    Ok(())
}

/// Row 138: reuse stops at the first different token, and the verdict names both.
pub(crate) fn stops(live: &mut Live, tally: &mut Tally) -> Seen {
    changed(live, |at, answer, [held, asked]| {
        let what = format!("with token {at} changed");
        tally.equal(format!("the reason {what}"), "different_token", answer.reason())?;
        tally.equal(format!("the position {what}"), &at, &answer.at())?;
        let ids = [&answer.stop()["cached"]["id"], &answer.stop()["request"]["id"]];
        tally.equal(format!("the tokens {what}"), &[&json!(held), &json!(asked)], &ids)
    })?;
    Ok(format!("token {CHANGED:?} of {PROMPT} changed: reuse stops there"))
}

/// Row 139: what is before the difference is reused, to the token.
pub(crate) fn before(live: &mut Live, tally: &mut Tally) -> Seen {
    changed(live, |at, answer, _| {
        tally.equal(format!("tokens reused with token {at} changed"), &at, &answer.reused())
    })?;
    Ok(format!("reused {CHANGED:?} of {PROMPT}: all before the difference"))
}

/// Row 140: what is after it is computed again, though its tokens are the same.
pub(crate) fn after(live: &mut Live, tally: &mut Tally) -> Seen {
    let mut computed = Vec::new();
    changed(live, |at, answer, _| {
        let what = format!("with token {at} changed");
        computed.push(answer.computed());
        tally.equal(format!("tokens computed {what}"), &(PROMPT - at), &answer.computed())?;
        let same = json!(PROMPT - at - 1);
        let found = &answer.stop()["identical_after"];
        tally.equal(format!("identical tokens after it, {what}"), &same, found)
    })?;
    Ok(format!("computed {computed:?} of {PROMPT}, all but one of each the same tokens"))
}

/// Row 182: of a prompt that is held whole, the last token is computed, for its logits.
pub(crate) fn whole(live: &mut Live, tally: &mut Tally) -> Seen {
    for length in [2, 16, 17, 32, PROMPT] {
        let (user, prompt) = (live.user(), live.ids(length, 182));
        user.complete(prompt.clone(), json!({}))?;
        let again = user.complete(prompt, json!({}))?;
        tally.equal(format!("tokens reused of {length}"), &(length - 1), &again.reused())?;
        tally.equal(format!("tokens computed of {length}"), &1, &again.computed())?;
        tally.equal("the reason", "end_of_prompt", again.reason())?;
    }
    Ok("of 2, 16, 17, 32 and 40 held tokens, all but 1 reused".to_owned())
}

/// Row 183: positions are absolute: the same tokens one place further are others.
pub(crate) fn shifted(live: &mut Live, tally: &mut Tally) -> Seen {
    let (user, prompt) = (live.user(), live.ids(PROMPT, 183));
    user.complete(prompt.clone(), json!({}))?;
    let again = user.complete(prompt.clone(), json!({}))?;
    tally.equal("tokens reused unshifted", &(PROMPT - 1), &again.reused())?;
    let shifted = [&[live.another(prompt[0])], &prompt[..]].concat();
    let answer = user.complete(shifted, json!({}))?;
    tally.equal("tokens reused", &0, &answer.reused())?;
    tally.equal("tokens computed", &(PROMPT + 1), &answer.computed())?;
    Ok(format!("with a token in front, 0 of {} reused; without, {}", PROMPT + 1, PROMPT - 1))
}

/// Row 185: what the template adds before the first message counts as prefix.
pub(crate) fn template(live: &mut Live, tally: &mut Tally) -> Seen {
    let user = live.user();
    let say = |text: &str| json!([{"role": "system", "content": text}]);
    let [one, other] = [say("Zebras run."), say("All men sleep.")];
    let ids = |messages: &Value| user.tokenize(&json!({"messages": messages}));
    let (ids, others) = (ids(&one)?, ids(&other)?);
    let common = common_prefix(&ids, &others);
    let text = live.package.tokenizer.decode(&ids[..common], true);
    let own = !text.is_empty() && !text.contains(['Z', 'A']);
    tally.holds("what both begin with", "the template's text alone", own, format!("{text:?}"))?;
    user.chat(&one, json!({}))?;
    let answer = user.chat(&other, json!({}))?;
    tally.equal("tokens reused", &common, &answer.reused())?;
    let note = live.template_note();
    Ok(format!("{common} tokens reused, the template's {text:?}{note}"))
}
