//! What four running answers, and a small request that comes late, notice of a long prompt.

use std::time::{Duration, Instant};

use engine::{Engine, Event, Events, Request, Sampling};
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::engine::tokens;
use super::run::{Busy, Spread, Test};
use crate::failure::Failure;

/// Requests that are answered all the time; the long prompt and the late request come after them.
const ANSWERS: usize = 4;
const LONG: usize = ANSWERS;
const LATE: usize = ANSWERS + 1;
/// Requests that must be able to run.
pub(super) const RUNNING: usize = ANSWERS + 2;
/// Prompts of the answers and of the late request.
const SHORT_TOKENS: u32 = 32;
/// Tokens of each answer before those that an ordinary step is measured by, and those: so many
/// before the long prompt, and so many after it, since a step takes longer as answers grow.
const WARM_TOKENS: usize = 32;
const ORDINARY_TOKENS: usize = 128;
/// Tokens of each answer between the long prompt and the late request.
const LATE_AFTER_TOKENS: usize = 32;
/// How long the engine may take to let go of what is not read any more.
const PATIENCE: Duration = Duration::from_secs(10);

/// Tokens, or the end, of one of the requests.
struct Came {
    who: usize,
    at: Instant,
    /// Some come together, where one is no whole character.
    tokens: Result<usize, String>,
}

/// One run: all that is measured of a prompt of so many tokens.
pub(super) fn run_once(
    engine: &Engine,
    long: u32,
    vocabulary: u32,
    repetition: u32,
) -> Result<Vec<(Test, f64)>, Failure> {
    // One thread hears of all tokens, so that hearing takes little from computing.
    let runtime = Builder::new_current_thread().build()?;
    let heard = runtime.block_on(async {
        let (sender, came) = unbounded_channel();
        let mut clients = Clients { engine, vocabulary, repetition, sender, came, heard: vec![] };
        clients.ask(long).await
    })?;
    drop(runtime);
    let start = Instant::now();
    while engine.stats().running > 0 && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
    heard.results(long)
}

/// All requests, and what came of them.
struct Clients<'a> {
    engine: &'a Engine,
    vocabulary: u32,
    repetition: u32,
    sender: UnboundedSender<Came>,
    came: UnboundedReceiver<Came>,
    /// When each request's tokens came.
    heard: Vec<Vec<Instant>>,
}

impl Clients<'_> {
    async fn ask(&mut self, long: u32) -> Result<Heard, Failure> {
        self.heard = vec![Vec::new(); RUNNING];
        // None may end before the long prompt is computed.
        let answer = self.engine.info().context - SHORT_TOKENS as usize;
        for who in 0..ANSWERS {
            self.submit(who, SHORT_TOKENS, answer)?;
        }
        self.until_tokens(WARM_TOKENS + ORDINARY_TOKENS).await?;
        let ordinary: Vec<usize> = self.heard.iter().map(Vec::len).collect();
        let long_sent = self.submit(LONG, long, 1)?;
        let least = self.heard[..ANSWERS].iter().map(Vec::len).max().unwrap_or_default();
        self.until_tokens(least + LATE_AFTER_TOKENS).await?;
        if !self.heard[LONG].is_empty() {
            return Err(Failure::Usage(format!("--busy {long} is too short: nothing is late")));
        }
        let late_sent = self.submit(LATE, SHORT_TOKENS, 1)?;
        while self.heard[LONG].is_empty() || self.heard[LATE].is_empty() {
            self.next().await?;
        }
        let most = self.heard[..ANSWERS].iter().map(Vec::len).max().unwrap_or_default();
        self.until_tokens(most + ORDINARY_TOKENS).await?;
        Ok(Heard { tokens: std::mem::take(&mut self.heard), ordinary, long_sent, late_sent })
    }

    /// Sends a request, and says when.
    fn submit(&self, who: usize, prompt: u32, answer: usize) -> Result<Instant, Failure> {
        let stream = 1_000_000 + self.repetition * RUNNING as u32 + who as u32;
        // Drawn, so that no answer falls into repeating itself.
        let seed = Some(u64::from(stream));
        let request = Request {
            max_tokens: Some(answer),
            sampling: Sampling { seed, ..Sampling::default() },
            ignore_end: true,
            ..Request::new(
                "busy",
                tokens(prompt, self.vocabulary, stream),
                cache::Namespace::default(),
            )
        };
        let sent = Instant::now();
        let events = self.engine.submit(request).map_err(Failure::new)?;
        tokio::spawn(listen(who, events, self.sender.clone()));
        Ok(sent)
    }

    /// Until each answer has so many tokens.
    async fn until_tokens(&mut self, least: usize) -> Result<(), Failure> {
        while self.heard[..ANSWERS].iter().any(|came| came.len() < least) {
            self.next().await?;
        }
        Ok(())
    }

    async fn next(&mut self) -> Result<(), Failure> {
        let gone = || Failure::new("the engine stopped");
        let Came { who, at, tokens } = self.came.recv().await.ok_or_else(gone)?;
        let tokens = tokens.map_err(Failure::new)? as u32;
        // Those that came together were drawn one after the other.
        let before = self.heard[who].last().copied().unwrap_or(at);
        let gap = at.duration_since(before) / tokens.max(1);
        self.heard[who].extend((1..=tokens).map(|token| before + gap * token));
        Ok(())
    }
}

/// Passes on when the tokens of a request came.
async fn listen(who: usize, mut events: Events, sender: UnboundedSender<Came>) {
    while let Some(event) = events.recv().await {
        let tokens = match event {
            Event::Delta { tokens, .. } => Ok(tokens.len()),
            Event::Failed(error) => Err(error.to_string()),
            Event::Done { .. } if who < ANSWERS => {
                Err("an answer ended before the prompt was computed".to_owned())
            }
            _ => continue,
        };
        // Nobody hears of it where the run is over.
        let _ = sender.send(Came { who, at: Instant::now(), tokens });
    }
}

/// When all tokens came.
struct Heard {
    tokens: Vec<Vec<Instant>>,
    /// How many each answer had when the long prompt was sent.
    ordinary: Vec<usize>,
    long_sent: Instant,
    late_sent: Instant,
}

impl Heard {
    fn results(&self, tokens: u32) -> Result<Vec<(Test, f64)>, Failure> {
        let ms = |from: Instant, to: Instant| to.duration_since(from).as_secs_f64() * 1e3;
        let gaps = |came: &[Instant]| -> Vec<f64> {
            came.windows(2).map(|pair| ms(pair[0], pair[1])).collect()
        };
        let done = self.tokens[LONG][0];
        let (mut ordinary, mut after, mut beside) = (Vec::new(), Vec::new(), Vec::new());
        for (came, &before) in self.tokens[..ANSWERS].iter().zip(&self.ordinary) {
            let until = came.iter().take_while(|&&at| at <= done).count();
            ordinary.extend(gaps(&came[WARM_TOKENS..before]));
            beside.extend(gaps(&came[before - 1..until]));
            after.extend(gaps(&came[until..]));
        }
        let medians = Spread::of(ordinary).zip(Spread::of(after));
        let step = medians.map(|(before, after)| (before.median + after.median) / 2.0);
        let step = step.filter(|&step| step > 0.0);
        let step = step.ok_or_else(|| Failure::new("the run was too short to be timed"))?;
        let in_steps = |hundredths| share_of(&mut beside.clone(), hundredths) / step;
        let result = |what, value| (Test::Busy { tokens, what }, value);
        Ok(vec![
            result(Busy::Step, step),
            result(Busy::Median, in_steps(50)),
            result(Busy::Slowest, in_steps(99)),
            result(Busy::Long, ms(self.long_sent, done)),
            result(Busy::Late, ms(self.late_sent, self.tokens[LATE][0])),
        ])
    }
}

/// The value that so many hundredths of all do not exceed.
fn share_of(values: &mut [f64], hundredths: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() * hundredths).div_ceil(100).max(1);
    values.get(rank - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_value_that_occurred() {
        let mut values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!(share_of(&mut values, 99), 198.0);
        assert_eq!(share_of(&mut values, 50), 100.0);
        assert_eq!(share_of(&mut [7.0], 99), 7.0);
        assert_eq!(share_of(&mut [], 50), 0.0);
    }
}
