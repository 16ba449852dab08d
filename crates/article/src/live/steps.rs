//! What is a step of the model, and what is not.

use serde_json::{Value, json};

use super::answer::has_key;
use super::{Live, tried};
use crate::subject::PROMPT;
use crate::tally::{Seen, Stop, Tally};

/// Row 25: the model sees ids; the text and its ids are one prompt to it.
pub(crate) fn ids(live: &mut Live, tally: &mut Tally) -> Seen {
    let (user, inside) = (live.user(), live.inside()?);
    let trace = &inside.trace;
    let joined: Vec<u8> = trace.tokens.iter().flat_map(|token| token.bytes.clone()).collect();
    tally.equal("the tokens' texts, joined", PROMPT.as_bytes(), &joined[..])?;
    let traced: Vec<u32> = trace.tokens.iter().map(|token| token.id).collect();
    let plain = user.tokenize(&json!({"prompt": PROMPT, "add_special_tokens": false}))?;
    tally.equal("the trace's ids and the server's", &traced, &plain)?;
    let ids = user.ids(PROMPT)?;
    let more = json!({"max_tokens": 4, "logprobs": 3});
    let of_text = user.complete(PROMPT, more.clone())?;
    let of_ids = user.complete(ids.clone(), more)?;
    tally.equal("the answers", of_text.logprobs(), of_ids.logprobs())?;
    tally.equal("tokens of the text reused for the ids", &(ids.len() - 1), &of_ids.reused())?;
    Ok(format!("{PROMPT:?} and {ids:?} get one answer; the trace shows both"))
}

/// Row 26: tokenizing needs no step of the model.
pub(crate) fn tokenizing(live: &mut Live, tally: &mut Tally) -> Seen {
    let (user, inside) = (live.user(), live.inside()?);
    let before = live.stats()?;
    let ids = user.ids(PROMPT)?;
    let after = live.stats()?;
    tally.holds("tokens", "some", !ids.is_empty(), ids.len())?;
    tally.equal("steps that tokenizing took", &0, &(after.steps - before.steps))?;
    user.complete(ids.clone(), json!({}))?;
    let then = live.stats()?;
    tally.equal("steps that the answer took", &1, &(then.steps - after.steps))?;
    let first = inside.trace.steps.first().map(|step| step.name.as_str());
    tally.equal("the trace's first tensor", &Some("hook_embed"), &first)?;
    Ok(format!("{} tokens made in 0 steps of the model, the answer in 1", ids.len()))
}

/// Row 38: text, tokens, ids, token table, position table, sum, in this order.
pub(crate) fn chain(live: &mut Live, tally: &mut Tally) -> Seen {
    let inside = live.inside()?;
    let trace = &inside.trace;
    let step = |name: &str| {
        let place = trace.steps.iter().position(|step| step.name == name);
        place.map(|place| (place, &trace.steps[place]))
    };
    let failed = |name: &str| Stop::failed(name, "the trace does not show it");
    let (embed_at, embed) = step("hook_embed").ok_or_else(|| failed("hook_embed"))?;
    let name = "blocks.0.hook_resid_pre";
    let (sum_at, sum) = step(name).ok_or_else(|| failed(name))?;
    tally.equal("the place of the token table", &0, &embed_at)?;
    let tokens = trace.tokens.len();
    tally.equal("its shape", &vec![1, tokens, trace.model.hidden], &embed.shape)?;
    let Some((position_at, position)) = step("hook_pos_embed") else {
        let holds = sum_at == 1;
        tally.holds("the place of the residual stream", 1, holds, sum_at)?;
        tally.same_bits("what enters the first layer", &embed.first, &sum.first)?;
        let found = "text, tokens, ids, token table; no position table, no sum: q and k are turned";
        return tally.otherwise(found);
    };
    tally.equal("the place of the position table", &1, &position_at)?;
    tally.equal("the place of the sum", &2, &sum_at)?;
    let added: Vec<f32> = embed.first.iter().zip(&position.first).map(|(a, b)| a + b).collect();
    tally.same_bits("the sum", &added, &sum.first)?;
    Ok(format!("{PROMPT:?}, {tokens} tokens and ids, two tables, their sum"))
}

/// Row 106: prefill is one pass over the whole prompt.
pub(crate) fn prefill(live: &mut Live, tally: &mut Tally) -> Seen {
    let (user, prompt) = (live.user(), live.ids(40, 106));
    let before = live.stats()?;
    let answer = user.complete(prompt, json!({}))?;
    let after = live.stats()?;
    tally.equal("tokens computed", &40, &answer.computed())?;
    tally.equal("steps for all of them", &1, &(after.steps - before.steps))?;
    let time = answer.time_ms("prefill_ms").unwrap_or_default();
    tally.holds("prefill_ms", "a time", time > 0.0, time)?;
    let inside = live.inside()?;
    let tokens = inside.trace.tokens.len();
    let rows = inside.trace.rows.len();
    tally.equal("rows of logits of the traced prefill", &tokens, &rows)?;
    Ok(format!("40 tokens in 1 step, prefill_ms {time:.1}"))
}

/// Row 125: attention weights are not in an answer; a trace gives them, and changes nothing.
pub(crate) fn attention(live: &mut Live, tally: &mut Tally) -> Seen {
    let (user, inside) = (live.user(), live.inside()?);
    let ids: Vec<u32> = inside.trace.tokens.iter().map(|token| token.id).collect();
    let more = json!({"logprobs": 1, "output_attentions": true});
    let answer = user.complete(ids.clone(), more)?;
    for name in ["attention", "attentions", "pattern", "weights"] {
        let absent = !has_key(&answer.0, name);
        tally.holds(format!("'{name}' in an answer"), "nothing", absent, "something")?;
    }
    tally.equal("without effect", &json!(["output_attentions"]), answer.ignored())?;
    let weights = &inside.trace.attention.weights;
    tally.equal("weights in a trace", &ids.len(), &weights.len())?;
    close(tally, "the likeliest token's probability", &answer, &inside.trace.next[0])?;
    Ok(format!("none in an answer, {} in a trace, of the same numbers", weights.len()))
}

/// The probability that an answer's first token had, and the trace's likeliest.
fn close(
    tally: &mut Tally,
    what: &str,
    answer: &super::answer::Answer,
    expected: &engine::trace::Candidate,
) -> Result<(), Stop> {
    let logprob = answer.logprobs()["token_logprobs"][0].as_f64().unwrap_or(f64::NAN);
    let (found, expected) = (logprob.exp(), f64::from(expected.probability));
    let near = (found - expected).abs() <= 1e-4 * expected;
    tally.holds(what, expected, near, found)
}

/// Row 170: the client gets the numbers that the model computes, and computes none.
pub(crate) fn matrices(live: &mut Live, tally: &mut Tally) -> Seen {
    let (user, inside) = (live.user(), live.inside()?);
    let trace = &inside.trace;
    let ids: Vec<u32> = trace.tokens.iter().map(|token| token.id).collect();
    let first = user.complete(ids.clone(), json!({"logprobs": 1}))?;
    close(tally, "the first token's probability", &first, &trace.next[0])?;
    let longer = [&ids[..], &[trace.next[0].id]].concat();
    let second = user.complete(longer, json!({"logprobs": 1}))?;
    let after = trace.decode.first().and_then(|step| step.next.first());
    let after = after.ok_or_else(|| Stop::failed("a decode step", "the trace has none"))?;
    close(tally, "the next token's probability", &second, after)?;
    let [one, other] = [trace.next[0].probability, after.probability];
    Ok(format!("probabilities {one:.6} and {other:.6}, as in the trace"))
}

/// Row 129: a longer prompt takes more prefill, and its first token comes later.
pub(crate) fn longer(live: &mut Live, tally: &mut Tally) -> Seen {
    tried(|| longer_seen(live, tally))
}

fn longer_seen(live: &mut Live, tally: &mut Tally) -> Seen {
    let user = live.user();
    let long = (live.package.config.context / 2).min(384);
    let lengths = [long / 24, long];
    let mut times = [f64::INFINITY; 2];
    for _ in 0..3 {
        for (shortest, length) in times.iter_mut().zip(lengths) {
            let prompt = live.ids(length, 129);
            let answer = user.complete(prompt, json!({"cache_prompt": false}))?;
            tally.equal("tokens computed", &length, &answer.computed())?;
            let time = answer.time_ms("ttft_ms").unwrap_or(f64::NAN);
            *shortest = shortest.min(time);
        }
    }
    let ratio = times[1] / times[0];
    tally.holds("TTFT, times", "over 1.5", ratio > 1.5, format!("{ratio:.1}"))?;
    let ([short, long], [few, many]) = (times, lengths);
    Ok(format!("{few} tokens: TTFT {short:.1} ms; {many} tokens: {long:.1} ms"))
}

/// Row 130: each new token reads K and V of all positions before it, and its own.
pub(crate) fn history(live: &mut Live, tally: &mut Tally) -> Seen {
    let inside = live.inside()?;
    tally.holds("lengths of the history", "some", !inside.reads.is_empty(), inside.reads.len())?;
    let mut seen = Vec::new();
    for read in &inside.reads {
        let what = format!("after {} tokens", read.history);
        tally.equal(format!("heads {what}"), &live.package.config.heads, &read.heads.len())?;
        for (positions, sum) in &read.heads {
            let all = read.history + 1;
            tally.equal(format!("positions that a head reads {what}"), &all, positions)?;
            let is_one = (sum - 1.0).abs() < 1e-3;
            tally.holds(format!("the sum of its weights {what}"), 1, is_one, sum)?;
        }
        seen.push(format!("{}+1", read.history));
    }
    let context = live.package.config.context;
    Ok(format!("read {} positions; the context is {context}", seen.join(", ")))
}

/// Row 133: the KV cache is each request's own; the prompt cache is kept, and is another thing.
pub(crate) fn two_caches(live: &mut Live, tally: &mut Tally) -> Seen {
    let (user, prompt) = (live.user(), live.ids(20, 133));
    let before = live.stats()?;
    let more = json!({"max_tokens": 6, "cache_prompt": false});
    let off = user.complete(prompt.clone(), more)?;
    let between = live.stats()?;
    // Six tokens in six steps: without a KV cache, each step would compute all rows again.
    tally.equal("steps without the prompt cache", &6, &(between.steps - before.steps))?;
    tally.equal("tokens drawn", &6, &off.output())?;
    tally.equal("tokens kept then", &before.tokens_cached, &between.tokens_cached)?;
    user.complete(prompt, json!({"max_tokens": 6}))?;
    let after = live.stats()?;
    let kept = after.tokens_cached - between.tokens_cached;
    tally.equal("tokens kept with the prompt cache", &25, &kept)?;
    let named = serde_json::to_value(&after).unwrap_or(Value::Null);
    for name in ["pages", "pages_free", "pages_cached", "tokens_cached"] {
        let known = named[name].is_u64();
        tally.holds(format!("the counter '{name}'"), "a number", known, &named[name])?;
    }
    Ok(format!("6 steps with a KV cache either way; kept afterwards: 0 or {kept} tokens"))
}
