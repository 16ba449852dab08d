//! The article's incident: a clock in the system prompt, and the same clock behind what stays.

use std::rc::Rc;

use serde_json::{Value, json};

use super::client::User;
use super::days::{Day, Incident};
use super::{Live, common_prefix, tried};
use crate::tally::{Seen, Stop, Tally};

/// What the system message says besides the time.
const RULE: &str = "Answer in one short sentence, and say so if you do not know. ";
/// Tokens of the rules, if the context has room for them.
const RULES_TOKENS: usize = 256;
/// Requests after the first.
const REQUESTS: usize = 3;

fn rules(live: &Live) -> Result<String, Stop> {
    live.repeated(RULE, RULES_TOKENS.min(live.package.config.context / 4))
}

/// A conversation with the clock before the rules or after them.
fn messages(rules: &str, second: usize, clock_first: bool) -> Value {
    let time = format!("Current time: 2026-01-05 10:00:0{second}");
    let system = match clock_first {
        true => format!("{time}\n{rules}"),
        false => format!("{rules}\n{time}"),
    };
    json!([{"role": "system", "content": system}, {"role": "user", "content": "Why?"}])
}

fn day(user: &User, rules: &str, clock_first: bool) -> Result<Day, Stop> {
    let ask = |second| user.chat(&messages(rules, second, clock_first), json!({}));
    ask(0)?;
    let answers = (1..=REQUESTS).map(ask).collect::<Result<Vec<_>, _>>()?;
    Ok(Day::of(&answers))
}

impl Live {
    /// Both days; asked once.
    fn incident(&mut self) -> Result<Rc<Incident>, Stop> {
        if let Some(incident) = &self.incident {
            return Ok(incident.clone());
        }
        let rules = rules(self)?;
        let clock_first = day(&self.user(), &rules, true)?;
        let clock_last = day(&self.user(), &rules, false)?;
        let incident = Rc::new(Incident { clock_first, clock_last });
        self.incident = Some(incident.clone());
        Ok(incident)
    }
}

/// Row 150: with a clock before the rest, hits become misses: more tokens are computed and billed
/// as uncached, and the first token comes later.
pub(crate) fn clock(live: &mut Live, tally: &mut Tally) -> Seen {
    tried(|| {
        // Asked again where the machine was busy with something else.
        live.incident = None;
        clock_seen(live, tally)
    })
}

fn clock_seen(live: &mut Live, tally: &mut Tally) -> Seen {
    let incident = live.incident()?;
    let Incident { clock_first, clock_last } = &*incident;
    let tokens = clock_first.computed() as f64 / clock_last.computed().max(1) as f64;
    let times = clock_first.ttft_ms / clock_last.ttft_ms;
    tally.holds("uncached tokens, times", "2 or more", tokens >= 2.0, format!("{tokens:.1}"))?;
    tally.holds(
        "time to the first token, times",
        "over 1.2",
        times > 1.2,
        format!("{times:.1}"),
    )?;
    let (first, last) = (clock_first.computed[0], clock_last.computed[0]);
    Ok(format!(
        "{first} tokens computed against {last}: {tokens:.1} times; \
         TTFT {:.1} ms against {:.1}: {times:.1} times",
        clock_first.ttft_ms, clock_last.ttft_ms
    ))
}

/// Row 151: it is the value's change that stops reuse, at the value.
pub(crate) fn cause(live: &mut Live, tally: &mut Tally) -> Seen {
    let (user, rules) = (live.user(), rules(live)?);
    let ask = |second| user.chat(&messages(&rules, second, true), json!({}));
    ask(1)?;
    let same = ask(1)?;
    let changed = ask(2)?;
    let tokens = same.prompt();
    tally.equal("tokens reused at the same time", &(tokens - 1), &same.reused())?;
    tally.equal("the reason a second later", "different_token", changed.reason())?;
    let ids = |second| user.tokenize(&json!({"messages": messages(&rules, second, true)}));
    let at = common_prefix(&ids(1)?, &ids(2)?);
    tally.equal("the position of the stop", &at, &changed.at())?;
    let stop = changed.stop();
    tally.equal("the message", &json!(0), &stop["message"])?;
    let system = messages(&rules, 2, true)[0]["content"].take();
    let place = system.as_str().unwrap_or_default().find("10:00:02").unwrap_or_default() as u64;
    let [from, to] = [0, 1].map(|side| stop["chars"][side].as_u64().unwrap_or(u64::MAX));
    let inside = from < place + 8 && to > place;
    tally.holds("the characters", "some of 10:00:02", inside, format!("{from} to {to}"))?;
    Ok(format!("same second: {} of {tokens} reused; the next: {at}, stopped in it", tokens - 1))
}

/// Row 152: behind what stays the same, the clock lets all of it be reused again.
pub(crate) fn moved(live: &mut Live, tally: &mut Tally) -> Seen {
    let incident = live.incident()?;
    let Incident { clock_first, clock_last } = &*incident;
    let half = clock_last.prompt / 2;
    for (&first, &last) in clock_first.reused.iter().zip(&clock_last.reused) {
        let found = format!("{last} of {}", clock_last.prompt);
        tally.holds("tokens reused, clock last", "over half", last > half, found)?;
        let found = format!("{first} of {}", clock_first.prompt);
        tally.holds("tokens reused, clock first", "under half", first < half, found)?;
    }
    let (first, last) = (clock_first.reused[0], clock_last.reused[0]);
    Ok(format!("clock first: {first} of {} reused; last: {last}", clock_last.prompt))
}

/// Row 145: what is stable and long first, what changes last: the benefit, without a template.
pub(crate) fn order(live: &mut Live, tally: &mut Tally) -> Seen {
    let rules = live.repeated(RULE, 64.min(live.package.config.context / 8))?;
    let mut reused = [0, 0];
    let mut prompts = 0;
    for (sum, stable_first) in reused.iter_mut().zip([true, false]) {
        let user = live.user();
        for question in ["Why?", "Who is it?", "And when?"] {
            let text = match stable_first {
                true => format!("{rules}{question}"),
                false => format!("{question} {rules}"),
            };
            let answer = user.complete(text, json!({}))?;
            *sum += answer.reused();
            prompts += answer.prompt();
        }
    }
    let [first, last] = reused;
    let found = format!("{first} against {last}");
    tally.holds("tokens reused", "more, stable first", first > 2 * last, found)?;
    let each = prompts / 2;
    Ok(format!("three questions: {first} of {each} tokens reused, stable first; else {last}"))
}
