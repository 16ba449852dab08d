//! What a server with little memory does when it is full. All rows share it, in order.

use serde_json::json;

use super::client::User;
use super::{Live, SMALL_PAGES, SMALL_RUNNING};
use crate::tally::{Seen, Stop, Tally};

/// Tokens of the prompts that fill the cache: three pages.
const PROMPT: usize = 48;
/// Tokens of answers that keep others waiting.
const ANSWER: usize = 40;

/// The engine's counters once it has nothing to do.
fn stats(live: &mut Live) -> Result<engine::EngineStats, Stop> {
    live.small()?.idle_stats()
}

/// Asks new prompts until at least as many tokens were computed as there is memory for.
fn fill(live: &Live, user: &User, seed: usize) -> Result<usize, Stop> {
    let prompts = SMALL_PAGES.div_ceil(PROMPT / 16);
    for number in 0..prompts {
        user.complete(live.ids(PROMPT, seed + number), json!({}))?;
    }
    Ok(prompts)
}

/// Row 162: what hits depends on memory too: the least recently used gives way.
pub(crate) fn policy(live: &mut Live, tally: &mut Tally) -> Seen {
    let user = live.small_user()?;
    let [old, used] = [1620, 1621].map(|seed| live.ids(PROMPT, seed));
    fill(live, &user, 1640)?;
    user.complete(used.clone(), json!({}))?;
    user.complete(old.clone(), json!({}))?;
    let asked = user.complete(used.clone(), json!({}))?;
    tally.equal("tokens reused before", &(PROMPT - 1), &asked.reused())?;
    // Pages for all but two prompts are taken by others, until one of the two must go.
    let mut others = 0;
    for number in 0..SMALL_PAGES {
        let before = stats(live)?;
        user.complete(live.ids(PROMPT, 1660 + number), json!({}))?;
        others = number + 1;
        let taken = 3 * others + 6;
        if taken > before.pages {
            break;
        }
    }
    let kept = user.complete(used, json!({}))?;
    let gone = user.complete(old, json!({}))?;
    tally.equal("of the recently used prompt, reused", &(PROMPT - 1), &kept.reused())?;
    let less = gone.reused() < PROMPT - 1;
    tally.holds("of the other, reused", "less", less, gone.reused())?;
    tally.equal("why", "evicted", gone.reason())?;
    let named = gone.stop()["evicted_for"].is_string();
    tally.holds("the request that it gave way to", "named", named, &gone.stop()["evicted_for"])?;
    let (one, other) = (kept.reused(), gone.reused());
    Ok(format!("after {others} other prompts, {one} of {PROMPT} reused, of the older {other}"))
}

/// Row 172: some requests run, some wait in their order, the rest are told when to come again.
pub(crate) fn queue(live: &mut Live, tally: &mut Tally) -> Seen {
    let user = live.small_user()?;
    let all = 2 * SMALL_RUNNING;
    let prompts: Vec<Vec<u32>> = (0..=all).map(|number| live.ids(8, 1720 + number)).collect();
    let seconds = refused(&user, &prompts, tally)?;
    stats(live)?;
    let wait_ms = waited(&user, &prompts[..all], tally)?;
    let running = SMALL_RUNNING;
    Ok(format!(
        "{running} run, {running} wait {wait_ms:.0} ms; one more: 429, again in {seconds} s"
    ))
}

/// One request more than run and wait; gives the seconds after which it may come again.
fn refused(user: &User, prompts: &[Vec<u32>], tally: &mut Tally) -> Result<u64, Stop> {
    let body = json!({"prompt": prompts, "max_tokens": ANSWER});
    let refused = user.post("/v1/completions", &body)?;
    tally.equal("the status of one too many", &429, &refused.status)?;
    let code = refused.json()?["error"]["code"].take();
    tally.equal("the error's code", &json!("queue_full"), &code)?;
    let again: Option<u64> = refused.header("retry-after").and_then(|value| value.parse().ok());
    let again = again.unwrap_or_default();
    tally.holds("Retry-After", "1 to 60", (1..=60).contains(&again), again)?;
    Ok(again)
}

/// As many requests as run and wait; gives the shortest time that the later half waited.
fn waited(user: &User, prompts: &[Vec<u32>], tally: &mut Tally) -> Result<f64, Stop> {
    let answer = user.complete(json!(prompts), json!({"max_tokens": ANSWER}))?;
    let waited = |index: usize| {
        let timings = &answer.0["refrain"]["prompts"][index]["timings"];
        timings["queue_ms"].as_f64().unwrap_or(f64::NAN)
    };
    let half = SMALL_RUNNING;
    let longest = (0..half).map(waited).fold(0.0, f64::max);
    let shortest = (half..2 * half).map(waited).fold(f64::INFINITY, f64::min);
    let found = format!("{longest:.2} and {shortest:.2} ms");
    tally.holds("waiting of first and last", "the last longer", shortest > longest, found)?;
    Ok(shortest)
}

/// Row 173: K and V have a budget: pages are free, held, or given to who comes.
pub(crate) fn budget(live: &mut Live, tally: &mut Tally) -> Seen {
    let user = live.small_user()?;
    let info = live.small()?.engine.info().clone();
    let pages = info.kv_budget_bytes as usize / info.page_bytes;
    tally.equal("pages of the budget", &SMALL_PAGES, &pages)?;
    let prompts = fill(live, &user, 1730)?;
    let full = stats(live)?;
    tally.equal("pages, free or held", &pages, &(full.pages_free + full.pages_cached))?;
    let computed = prompts * PROMPT;
    let room = pages * 16;
    tally.holds("tokens computed", format!("over {room}"), computed > room, computed)?;
    let holds = full.tokens_cached <= room && full.ghosts > 0;
    let found = format!("{} held, {} pages evicted", full.tokens_cached, full.ghosts);
    tally.holds("when full", "some evicted", holds, &found)?;
    let body = json!({"prompt": live.ids(16, 173), "n": 64, "max_tokens": 32});
    let refused = user.post("/v1/completions", &body)?;
    tally.equal("the status of more than fits at all", &400, &refused.status)?;
    let field = refused.json()?["error"]["param"].take();
    tally.equal("the field that it names", &json!("n"), &field)?;
    Ok(format!("{pages} pages; {computed} tokens computed: {found}"))
}

/// Row 174: a prompt beyond the context is refused in so many words; an answer ends there.
pub(crate) fn context(live: &mut Live, tally: &mut Tally) -> Seen {
    let user = live.small_user()?;
    let context = live.small()?.engine.info().context;
    let body = json!({"prompt": live.ids(context, 1740)});
    let refused = user.post("/v1/completions", &body)?;
    tally.equal("the status", &400, &refused.status)?;
    let error = refused.json()?["error"].take();
    tally.equal("the error's code", &json!("context_length_exceeded"), &error["code"])?;
    let message = error["message"].as_str().unwrap_or_default();
    let says = message.matches(&context.to_string()).count() >= 2;
    tally.holds("the message", "both lengths", says, message)?;
    let prompt = live.ids(context - 6, 1741);
    let answer = user.complete(prompt, json!({"max_tokens": 50}))?;
    tally.equal("tokens up to the context's end", &6, &answer.output())?;
    let reason = &answer.0["choices"][0]["finish_reason"];
    tally.equal("why the answer ended", &json!("length"), reason)?;
    Ok(format!("{context} tokens: \"{message}\"; {} and 6 more end there", context - 6))
}

/// Row 177: what is kept, and for whom, is the server's; a request can stay out of it.
pub(crate) fn configurable(live: &mut Live, tally: &mut Tally) -> Seen {
    let (one, other) = (live.user(), live.user());
    let prompt = live.ids(40, 177);
    one.complete(prompt.clone(), json!({}))?;
    let salted = other.complete(prompt.clone(), json!({}))?;
    tally.equal("reused with another salt", &0, &salted.reused())?;
    tally.equal("why", "first_request", salted.reason())?;
    let off = one.complete(prompt.clone(), json!({"cache_prompt": false}))?;
    tally.equal("reused with \"cache_prompt\": false", &0, &off.reused())?;
    tally.equal("why then", "disabled_by_request", off.reason())?;
    let on = one.complete(prompt, json!({}))?;
    tally.equal("reused otherwise", &39, &on.reused())?;
    let user = live.small_user()?;
    fill(live, &user, 1770)?;
    let before = stats(live)?;
    fill(live, &user, 1790)?;
    let after = stats(live)?;
    let more = after.ghosts > before.ghosts;
    let found = format!("{} then {}", before.ghosts, after.ghosts);
    tally.holds("evicted pages of a full budget", "more", more, found)?;
    Ok("39 reused by salt, 0 with another or when told so; a full budget evicts".to_owned())
}
