//! Requests beside each other: nothing of one changes another.

use serde_json::{Value, json};

use super::Live;
use crate::tally::{Seen, Stop, Tally};

/// Tokens of an answer that is compared.
const ANSWER: usize = 8;

/// The choices' log-probabilities, each choice in its own.
fn logprobs(answer: &super::answer::Answer) -> Vec<Value> {
    let choices = answer.0["choices"].as_array().map_or(&[][..], Vec::as_slice);
    choices.iter().map(|choice| choice["logprobs"]["token_logprobs"].clone()).collect()
}

/// Row 146: several requests go on from one held prefix at the same time; each gives what it gives
/// alone, and so does the prefix's owner afterwards.
pub(crate) fn isolated(live: &mut Live, tally: &mut Tally) -> Seen {
    let (user, prefix) = (live.user(), live.ids(24, 146));
    let tails = (0..super::RUNNING).map(|tail| live.ids(4, 1460 + tail));
    let prompts: Vec<Vec<u32>> = tails.map(|tail| [&prefix[..], &tail].concat()).collect();
    let more = json!({"max_tokens": ANSWER, "logprobs": 1});
    let mut alone = Vec::new();
    for prompt in &prompts {
        let mut more = more.clone();
        more["cache_prompt"] = json!(false);
        alone.extend(logprobs(&user.complete(prompt.clone(), more)?));
    }
    user.complete(prefix, json!({}))?;
    let apart = (prompts.len() * ANSWER) as u64;
    let before = live.stats()?;
    let together = user.complete(json!(prompts), more.clone())?;
    let after = live.stats()?;
    tally.equal("the answers, beside each other", &alone, &logprobs(&together))?;
    let reused = after.reused_tokens - before.reused_tokens;
    let prefixes = 23 * prompts.len() as u64;
    tally.holds("tokens reused by all", "prefixes", reused >= prefixes, reused)?;
    let steps = after.steps - before.steps;
    tally.holds("steps", format!("under {apart}"), steps < apart, steps)?;
    let again = user.complete(prompts[0].clone(), more)?;
    tally.equal("the first one again", &alone[..1], &logprobs(&again))?;
    let count = prompts.len();
    Ok(format!("{count} requests on one prefix, in {steps} steps, not {apart}: bits as alone"))
}

/// Row 147: the lookup happens once for a request, at its start, and only if it may.
pub(crate) fn once(live: &mut Live, tally: &mut Tally) -> Seen {
    let (user, prompt) = (live.user(), live.ids(40, 147));
    user.complete(prompt.clone(), json!({}))?;
    let before = live.stats()?;
    let more = json!({"max_tokens": 4, "n": 2, "temperature": 1});
    let answer = user.complete(prompt.clone(), more)?;
    let after = live.stats()?;
    let counted = (after.reused_tokens - before.reused_tokens) as usize;
    tally.equal("tokens reused, counted once for two choices", &39, &counted)?;
    let time = |name: &str| {
        let failed = || Stop::failed(name.to_owned(), "it is not known");
        answer.time_ms(name).ok_or_else(failed)
    };
    let lookup = time("lookup_ms")?;
    let (parts, ttft) = (time("queue_ms")? + lookup + time("prefill_ms")?, time("ttft_ms")?);
    // Queue, lookup and prefill follow each other up to the first token.
    let found = format!("{parts:.3} ms of {ttft:.3}");
    tally.holds("queue, lookup and prefill", "no more than TTFT", parts <= ttft + 0.01, found)?;
    let off = user.complete(prompt, json!({"cache_prompt": false}))?;
    tally.equal("the lookup's time without a lookup", &None, &off.time_ms("lookup_ms"))?;
    Ok(format!("one lookup, {lookup:.3} ms, then prefill; none where it is forbidden"))
}

/// Row 148: with the cache or without, the same answer, to the bit.
pub(crate) fn same_answer(live: &mut Live, tally: &mut Tally) -> Seen {
    let (user, prompt) = (live.user(), live.ids(40, 148));
    let more = json!({"max_tokens": ANSWER, "logprobs": 5});
    let mut off = more.clone();
    off["cache_prompt"] = json!(false);
    let without = user.complete(prompt.clone(), off)?;
    user.complete(prompt.clone(), json!({}))?;
    let with = user.complete(prompt, more)?;
    tally.equal("tokens reused without", &0, &without.reused())?;
    tally.equal("tokens reused with", &39, &with.reused())?;
    tally.equal("the text", without.text(), with.text())?;
    tally.equal("the log-probabilities", without.logprobs(), with.logprobs())?;
    Ok(format!("{ANSWER} tokens and their log-probabilities equal; 39 of 40 reused, or none"))
}

/// Row 160: how tokens are drawn changes nothing that the cache counts.
pub(crate) fn sampling(live: &mut Live, tally: &mut Tally) -> Seen {
    let (user, prompt) = (live.user(), live.ids(40, 160));
    user.complete(prompt.clone(), json!({}))?;
    let settings = [
        json!({"temperature": 0}),
        json!({"temperature": 1}),
        json!({"temperature": 2, "seed": 3}),
        json!({"temperature": 1, "top_p": 0.5}),
        json!({"temperature": 1, "top_k": 5, "min_p": 0.1}),
    ];
    for setting in &settings {
        let answer = user.complete(prompt.clone(), setting.clone())?;
        let counts = (answer.reused(), answer.computed(), answer.reason());
        tally.equal(format!("the counts with {setting}"), &(39, 1, "end_of_prompt"), &counts)?;
    }
    Ok(format!("{} settings: 39 of 40 tokens reused with each", settings.len()))
}

/// Row 161: an answer's KV cache is given back, or handed to the prompt cache.
pub(crate) fn released(live: &mut Live, tally: &mut Tally) -> Seen {
    let (user, prompt) = (live.user(), live.ids(40, 161));
    let before = live.stats()?;
    let kept = |more: Value| {
        user.complete(prompt.clone(), more)?;
        live.stats()
    };
    let forbidden = kept(json!({"max_tokens": ANSWER, "cache_prompt": false}))?;
    tally.equal("free pages as before", &before.pages_free, &forbidden.pages_free)?;
    tally.equal("cached tokens as before", &before.tokens_cached, &forbidden.tokens_cached)?;
    let after = kept(json!({"max_tokens": ANSWER}))?;
    let handed = after.tokens_cached - before.tokens_cached;
    // The last token was drawn and never computed.
    tally.equal("tokens handed to the cache", &(40 + ANSWER - 1), &handed)?;
    let all = after.pages_free + after.pages_cached;
    tally.equal("free and cached pages together", &after.pages, &all)?;
    Ok(format!("{handed} tokens to the prompt cache, or all pages free; none is lost"))
}
