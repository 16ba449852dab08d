//! What the runtime does for everybody.

use engine::MemoryNeed;
use serde_json::{Value, json};

use super::{Live, RUNNING, page_bytes};
use crate::tally::{Seen, Stop, Tally};

/// Tokens of the answers that are computed together, at first.
const ANSWER: usize = 16;

/// Row 149: cached and uncached input are counted apart, for whoever bills them.
pub(crate) fn counted(live: &mut Live, tally: &mut Tally) -> Seen {
    let (user, prompt) = (live.user(), live.ids(40, 149));
    user.complete(prompt[..24].to_vec(), json!({}))?;
    let answer = user.complete(prompt, json!({"max_tokens": 3}))?;
    let usage = &answer.0["usage"];
    let cached = &usage["prompt_tokens_details"]["cached_tokens"];
    let found = [&usage["prompt_tokens"], cached, &usage["completion_tokens"]];
    tally.equal(
        "prompt, cached and answer tokens",
        &[&json!(40), &json!(24), &json!(3)],
        &found,
    )?;
    let counts = &answer.0["refrain"]["tokens"];
    let counts = ["input", "cached_input", "output"].map(|name| &counts[name]);
    tally.equal("the tokens by price", &[&json!(16), &json!(24), &json!(3)], &counts)?;
    tally.equal("the price, none being set", &Value::Null, &answer.0["refrain"]["price"])?;
    Ok("of 40 prompt tokens 24 cached and 16 not; no prices are set: null".to_owned())
}

/// Row 164: the runtime loads, attends, keeps K and V, batches and streams.
pub(crate) fn five(live: &mut Live, tally: &mut Tally) -> Seen {
    let user = live.user();
    let health = user.get("/health")?;
    tally.equal("loaded: the status of /health", &200, &health.status)?;
    let prompt = live.ids(12, 164);
    let more = json!({"max_tokens": 4, "logprobs": 1});
    let before = live.stats()?;
    let answer = user.complete(prompt.clone(), more.clone())?;
    let after = live.stats()?;
    tally.equal("K and V kept: steps for 4 tokens", &4, &(after.steps - before.steps))?;
    let mut other = prompt.clone();
    other[0] = live.another(prompt[0]);
    let other = user.complete(other, more)?;
    let differ = answer.logprobs() != other.logprobs();
    tally.holds("attention: with another first token", "another end", differ, "the same")?;
    let (steps, _) = shared(live, tally)?;
    let stream = json!({"prompt": prompt, "stream": true});
    let events = user.post("/v1/completions", &stream)?;
    let count = events.events().len();
    tally.holds("streaming: events", "several", count > 1, count)?;
    Ok(format!("4 tokens in 4 steps, {RUNNING} requests in {steps} steps, {count} events"))
}

/// Requests that come together must take fewer steps than apart.
fn shared(live: &mut Live, tally: &mut Tally) -> Result<(u64, u64), Stop> {
    let (steps, apart) = together(live)?;
    let most = apart * 3 / 4;
    tally.holds("steps for several requests", format!("at most {most}"), steps <= most, steps)?;
    Ok((steps, apart))
}

/// Steps for several requests that come together, and as many as they would take apart.
fn together(live: &mut Live) -> Result<(u64, u64), Stop> {
    let user = live.user();
    let prompts: Vec<Vec<u32>> = (0..RUNNING).map(|number| live.ids(12, 1710 + number)).collect();
    let before = live.stats()?;
    let more = json!({"max_tokens": ANSWER, "cache_prompt": false});
    user.complete(json!(prompts), more)?;
    let after = live.stats()?;
    Ok((after.steps - before.steps, (RUNNING * ANSWER) as u64))
}

/// Row 171: requests that come together share steps.
pub(crate) fn batching(live: &mut Live, tally: &mut Tally) -> Seen {
    let (steps, apart) = shared(live, tally)?;
    Ok(format!("{RUNNING} answers, {apart} tokens, in {steps} steps"))
}

/// Row 169: what memory serving takes is known before; then one call serves.
pub(crate) fn memory(live: &mut Live, tally: &mut Tally) -> Seen {
    let need = MemoryNeed::of(&live.package);
    let need = need.map_err(|error| Stop::failed("what memory is needed", error))?;
    tally.holds("bytes of weights", "some", need.weights_bytes > 0, need.weights_bytes)?;
    let info = live.main.engine.info();
    let page = page_bytes(&need, live.package.config.context);
    tally.equal("bytes of a page, told and taken", &page, &(info.page_bytes as u64))?;
    let (told, taken) = (need.kv_budget_bytes, info.kv_budget_bytes);
    tally.equal("bytes for K and V, told and taken", &told, &taken)?;
    tally.equal("the context, told and served", &need.context, &info.context)?;
    let status = live.user().get("/v1/models")?.status;
    tally.equal("the status of /v1/models", &200, &status)?;
    let mib = |bytes: u64| bytes >> 20;
    let (weights, kv) = (mib(need.weights_bytes), mib(need.kv_bytes_at_context));
    Ok(format!("told before: {weights} MiB of weights, {kv} MiB of K and V at the full context"))
}

/// Row 175: temperature, top-p, top-k and a seed choose among the same numbers.
pub(crate) fn sampling(live: &mut Live, tally: &mut Tally) -> Seen {
    let (user, prompt) = (live.user(), live.ids(20, 175));
    let draw = |mut more: Value| {
        more["max_tokens"] = json!(8);
        more["logprobs"] = json!(0);
        let answer = user.complete(prompt.clone(), more)?;
        Ok::<_, Stop>(answer.logprobs().clone())
    };
    let greedy = draw(json!({"temperature": 0}))?;
    let seeded = |seed: u32| draw(json!({"temperature": 2, "seed": seed}));
    tally.equal("greedy, again", &greedy, &draw(json!({"temperature": 0}))?)?;
    let hot = json!({"temperature": 2, "top_k": 1});
    tally.equal("the likeliest one only", &greedy, &draw(hot)?)?;
    let hot = json!({"temperature": 1, "top_p": 1e-6});
    tally.equal("the least nucleus", &greedy, &draw(hot)?)?;
    let one = seeded(1)?;
    tally.equal("the same seed, again", &one, &seeded(1)?)?;
    let differ = one != seeded(2)? || one != seeded(3)?;
    tally.holds("other seeds", "other tokens", differ, "the same tokens")?;
    Ok("greedy, top-k 1 and top-p 0.000001 agree; seeds repeat, and differ".to_owned())
}

/// Row 180: health and limits are there for who hosts it.
pub(crate) fn hosting(live: &mut Live, tally: &mut Tally) -> Seen {
    let user = live.user();
    let health = user.get("/health")?;
    tally.equal("the status of /health", &200, &health.status)?;
    let name = live.package.name.clone();
    tally.equal("the model that it names", &json!(name), &health.json()?["model"])?;
    tally.equal("the status of no such path", &404, &user.get("/nowhere")?.status)?;
    let prompt = live.ids(4, 180);
    for (field, value) in [("n", json!(1_000_000)), ("stop", json!(vec!["x"; 100]))] {
        let mut body = json!({"prompt": prompt});
        body[field] = value;
        let reply = user.post("/v1/completions", &body)?;
        tally.equal(format!("the status of too much '{field}'"), &400, &reply.status)?;
        let named = reply.json()?["error"]["param"].take();
        tally.equal("the field that it names", &json!(field), &named)?;
    }
    let info = live.main.engine.info();
    let (running, queue) = (info.max_running, info.max_queue);
    Ok(format!("health, limits ({running} running, {queue} waiting); no metrics, no keys yet"))
}
