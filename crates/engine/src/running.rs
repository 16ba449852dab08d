//! A request that was admitted: its choices, its clock and its channel.

use std::time::Instant;

use cache::{Pin, Restorable, Verdict};
use kernels::PageId;
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

use crate::output::{OutputText, Piece};
use crate::rank::Rank;
use crate::request::{
    EVENTS_OF_A_STEP_MAX, Event, FinishReason, Request, Timings, TokenCounts, TokenLogprobs,
};
use crate::sampler::ChoiceState;
use crate::sequence::Sequence;
use crate::speculation::Guesses;

/// A request that waits for its turn.
pub(crate) struct Waiting {
    pub(crate) request: Request,
    pub(crate) events: Sender<Event>,
    pub(crate) submitted: Instant,
    pub(crate) rank: Rank,
    /// What it could have reused when it first waited for a prefix that is being computed.
    pub(crate) held_before: Option<usize>,
    /// Whether its turn had come before, but others needed the pages.
    pub(crate) was_admitted: bool,
}

impl Waiting {
    /// A request that begins to wait now; its rank is that of the first to arrive.
    pub(crate) fn new(request: Request, events: Sender<Event>) -> Self {
        let submitted = Instant::now();
        let rank = Rank::new(&request, submitted, 0);
        Waiting { request, events, submitted, rank, held_before: None, was_admitted: false }
    }
}

/// A request whose steps are being run.
pub(crate) struct Running {
    pub(crate) request: Request,
    pub(crate) events: Sender<Event>,
    pub(crate) rank: Rank,
    pub(crate) verdict: Verdict,
    /// Whether the prompt cache was asked.
    pub(crate) looked_up: bool,
    /// Longest answer, in tokens.
    pub(crate) answer_tokens: usize,
    /// While the prompt is computed only the first choice exists.
    pub(crate) choices: Vec<Choice>,
    /// Filled as prompt rows are computed.
    pub(crate) prompt_logprobs: Vec<Option<TokenLogprobs>>,
    /// Prompt rows computed for it.
    pub(crate) prompt_rows: usize,
    /// The step in which a chunk of its prompt was computed last.
    pub(crate) served_at_step: u64,
    /// Priority and tokens left of the most urgent request that waits for what this one computes.
    pub(crate) wanted: Option<(i32, usize)>,
    pub(crate) clock: Clock,
    /// Of all draws, the caller's or a fresh one.
    pub(crate) seed: u64,
    /// Tokens that were guessed and computed, and those of them that were drawn.
    pub(crate) proposed: usize,
    pub(crate) accepted: usize,
    /// Nothing more is to be done for it.
    pub(crate) ended: bool,
}

/// One answer of a request.
pub(crate) struct Choice {
    pub(crate) sequence: Sequence,
    pub(crate) output: OutputText,
    pub(crate) state: ChoiceState,
    pub(crate) guesses: Guesses,
    /// Tokens drawn, the hidden last one included.
    pub(crate) drawn: usize,
    pub(crate) finished: Option<FinishReason>,
}

/// When things happened to a request.
pub(crate) struct Clock {
    pub(crate) submitted: Instant,
    pub(crate) admitted: Instant,
    pub(crate) looked_up: Instant,
    /// What lay on disk has come.
    pub(crate) restored: Instant,
    pub(crate) prefilled: Option<Instant>,
    pub(crate) first_token: Option<Instant>,
    pub(crate) last_token: Option<Instant>,
}

impl Clock {
    /// A clock that was started by submission at `submitted` and admission at `admitted`.
    pub(crate) fn new(submitted: Instant, admitted: Instant) -> Self {
        let now = Instant::now();
        Clock {
            submitted,
            admitted,
            looked_up: now,
            restored: now,
            prefilled: None,
            first_token: None,
            last_token: None,
        }
    }

    /// A token was drawn.
    pub(crate) fn note_token(&mut self) {
        let now = Instant::now();
        self.first_token.get_or_insert(now);
        self.last_token = Some(now);
    }

    /// The times between, `lost_ms` left open.
    fn timings(&self, looked_up: bool) -> Timings {
        let ms = |from: Instant, to: Instant| to.duration_since(from).as_secs_f64() * 1e3;
        let first = self.first_token;
        Timings {
            queue_ms: Some(ms(self.submitted, self.admitted)),
            lookup_ms: looked_up.then(|| ms(self.admitted, self.looked_up)),
            restore_ms: looked_up.then(|| ms(self.looked_up, self.restored)),
            prefill_ms: self.prefilled.map(|at| ms(self.restored, at)),
            ttft_ms: first.map(|at| ms(self.submitted, at)),
            decode_ms: first.zip(self.last_token).map(|(from, to)| ms(from, to)),
            lost_ms: None,
        }
    }
}

impl Running {
    /// The choices still being answered.
    pub(crate) fn open_choices(&self) -> impl Iterator<Item = (usize, &Choice)> {
        let choices = self.choices.iter().enumerate();
        choices.filter(|(_, choice)| choice.finished.is_none() && !self.ended)
    }

    /// A new answer over `sequence`, the request's number `index`.
    pub(crate) fn choice(&self, index: usize, sequence: Sequence, vocab: usize) -> Choice {
        let Running { request, seed, .. } = self;
        Choice {
            sequence,
            output: OutputText::new(&request.stop),
            state: ChoiceState::new(request, *seed, index, vocab),
            guesses: Guesses::default(),
            drawn: 0,
            finished: None,
        }
    }

    /// Whether the row of a token guessed at `position` is the next to draw from: the token was
    /// drawn there. Takes note that it is computed.
    pub(crate) fn accept(&mut self, choice: usize, position: usize, guessed: u32) -> bool {
        let Choice { sequence, finished, .. } = &mut self.choices[choice];
        let open = !self.ended && finished.is_none();
        let next = open && sequence.computed() == position;
        let accepted = next && sequence.tokens()[position..] == [guessed];
        if accepted {
            sequence.advance(1);
            self.accepted += 1;
        }
        accepted
    }

    /// Takes note of a request that waits for what this one computes, with so many tokens left.
    pub(crate) fn want(&mut self, priority: i32, left: usize) {
        let (most, least) = self.wanted.unwrap_or((priority, left));
        self.wanted = Some((most.min(priority), least.min(left)));
    }

    /// Whether it is still to be given log-probabilities of prompt tokens.
    pub(crate) fn wants_prompt_rows(&self) -> bool {
        self.request.prompt_logprobs.is_some() && self.clock.prefilled.is_none()
    }

    /// Whether its caller has read so much that the events of a step surely fit beside the rest.
    pub(crate) fn is_read(&self) -> bool {
        self.events.capacity() > EVENTS_OF_A_STEP_MAX * self.request.choices
    }

    /// Takes note that the next `rows` tokens of a choice have their K/V.
    pub(crate) fn advance(&mut self, choice: usize, rows: usize, prefill: bool) {
        let sequence = &mut self.choices[choice].sequence;
        sequence.advance(rows);
        let tokens = sequence.computed();
        self.prompt_rows += if prefill { rows } else { 0 };
        if self.request.progress && self.clock.prefilled.is_none() {
            self.send(Event::Progress { tokens });
        }
    }

    /// Sends an event; a receiver that has gone is noticed at the next step.
    pub(crate) fn send(&self, event: Event) {
        let sent = self.events.try_send(event);
        debug_assert!(!matches!(sent, Err(TrySendError::Full(_))), "more events than in any step");
    }

    /// Sends what an answer has more.
    pub(crate) fn send_piece(&self, choice: usize, piece: Piece) {
        if !piece.is_empty() {
            self.send(Event::Delta { choice, text: piece.text, tokens: piece.tokens });
        }
    }

    /// The event that closes a request that went well.
    pub(crate) fn done(&self, lost_ms: Option<f64>) -> Event {
        let tokens = TokenCounts {
            input: self.verdict.computed_tokens,
            cached_input: self.verdict.reused_tokens,
            output: self.choices.iter().map(|choice| choice.drawn).sum(),
            proposed: self.proposed,
            accepted: self.accepted,
        };
        let timings = Timings { lost_ms, ..self.clock.timings(self.looked_up) };
        Event::Done { verdict: self.verdict.clone(), timings, tokens }
    }
}

/// The pages of a hit, to be adopted by a sequence.
pub(crate) struct Prefix {
    pub(crate) pages: Vec<PageId>,
    pub(crate) reused: usize,
    pub(crate) verdict: Verdict,
    pub(crate) pin: Option<Pin>,
    /// What lies on disk and goes on from the full pages.
    pub(crate) restorable: Option<Restorable>,
}
