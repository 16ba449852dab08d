//! Guesses of an answer's next tokens, from text that is there already.
//!
//! What an answer copies can be guessed: a passage of its prompt, its own words, or an answer that
//! the prompt cache holds after the very same tokens (prompt lookup: Saxena 2023; Yang et al. 2023,
//! arXiv:2304.04487). A step computes the guessed tokens' rows beside the one that is due, and the
//! sampler draws from each row what it would draw without. A guess that is not drawn is thrown away
//! with all that follow it, so that no answer depends on guesses.

/// Most tokens guessed at once.
pub(crate) const GUESSED_MAX: usize = 8;
/// An end of the text that occurred before has at least so many tokens.
const MATCH_MIN: usize = 2;
/// Longer ends are not told apart.
const MATCH_MAX: usize = 16;
/// After a wrong guess, the text that it came from is looked for within so many tokens.
const NEAR: usize = 12;
/// So far back, in tokens, an end is looked for.
const LOOKED_BACK_MAX: usize = 1 << 16;
/// Tokens that are asked of the prompt cache at once.
pub(crate) const HELD_MAX: usize = 64;
/// What a record knows before anything was drawn weighs as much as so many guesses.
const PRIOR_WEIGHT: f64 = 2.0;
/// At each guess that turns out right or wrong, those before keep so much of their weight.
const WEIGHT_KEPT: f64 = 0.9;

/// The reason why a token is guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grounds {
    /// The prompt cache holds it after the same tokens.
    Held,
    /// It came after the same so many tokens before.
    Matched(usize),
    /// It comes after the same token, near where a guess was wrong: one that inserts, leaves out or
    /// replaces a word goes on copying.
    Near,
}

impl Grounds {
    const KINDS: usize = 6;
    /// How often guesses of each kind are taken to be right before any was made.
    const PRIORS: [f64; Grounds::KINDS] = [0.6, 0.2, 0.5, 0.75, 0.9, 0.4];

    fn kind(self) -> usize {
        match self {
            Grounds::Held => 0,
            Grounds::Matched(..=2) => 1,
            Grounds::Matched(3..=4) => 2,
            Grounds::Matched(5..=8) => 3,
            Grounds::Matched(_) => 4,
            Grounds::Near => 5,
        }
    }

    /// The grounds of the token that follows `right` guessed ones, if those are right.
    fn after(self, right: usize) -> Self {
        match self {
            Grounds::Held => Grounds::Held,
            Grounds::Matched(length) => Grounds::Matched(length + right),
            Grounds::Near if right == 0 => Grounds::Near,
            Grounds::Near => Grounds::Matched(1 + right),
        }
    }
}

/// Tokens that may come next, and why.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Proposal {
    pub(crate) tokens: Vec<u32>,
    pub(crate) grounds: Grounds,
    /// Where the text has them, if it is this answer's.
    pub(crate) from: Option<usize>,
}

impl Proposal {
    /// `most` tokens of the text from `from` on. Where they reach its end, they are taken to
    /// repeat.
    fn copied(tokens: &[u32], from: usize, most: usize, grounds: Grounds) -> Self {
        let copied = tokens[from..].iter().cycle().take(most).copied().collect();
        Proposal { tokens: copied, grounds, from: Some(from) }
    }
}

/// What follows the last token in the text near `place`, where a guess was wrong.
pub(crate) fn resumed(tokens: &[u32], place: usize, most: usize) -> Option<Proposal> {
    let ((&last, before), 1..) = (tokens.split_last()?, most) else { return None };
    let near = before.get(place..)?.iter().take(NEAR).position(|&token| token == last)?;
    Some(Proposal::copied(tokens, place + near + 1, most, Grounds::Near))
}

/// What came after the longest end of `tokens` that occurred in them before, the last time that it
/// did: `most` tokens.
pub(crate) fn repeated(tokens: &[u32], most: usize) -> Option<Proposal> {
    let (&[.., before, last], 1..) = (tokens, most) else { return None };
    let start = tokens.len().saturating_sub(LOOKED_BACK_MAX);
    let mut longest: Option<(usize, usize)> = None;
    for next in (start + MATCH_MIN..tokens.len()).rev() {
        if tokens[next - 1] != last || tokens[next - 2] != before {
            continue;
        }
        let pairs = tokens[start..next].iter().rev().zip(tokens.iter().rev());
        let length = pairs.take(MATCH_MAX).take_while(|(a, b)| a == b).count();
        if longest.is_none_or(|(most, _)| length > most) {
            longest = Some((length, next));
        }
        if length == MATCH_MAX {
            break;
        }
    }
    let (length, next) = longest?;
    Some(Proposal::copied(tokens, next, most, Grounds::Matched(length)))
}

/// What one answer's guesses are made of, and how right they were.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guesses {
    record: Record,
    held: HeldText,
    /// What may come next; some of it, or nothing, is computed.
    proposal: Option<Proposal>,
    /// Tokens before it.
    proposed_at: usize,
    missed: Option<Missed>,
}

/// The last wrong guess.
#[derive(Clone, Copy, Debug)]
struct Missed {
    /// Where the text has what was guessed.
    place: usize,
    /// Where another token was drawn.
    at: usize,
}

impl Guesses {
    /// Thinks of up to `most` tokens after `tokens`. `held` gives what the prompt cache holds after
    /// tokens; it is asked at the beginning, and as long as it has something to say.
    pub(crate) fn propose(
        &mut self,
        tokens: &[u32],
        most: usize,
        held: impl FnOnce(&[u32]) -> Vec<u32>,
    ) -> &[u32] {
        let held = self.held.after(tokens, most, held);
        let held = (!held.is_empty()).then(|| Proposal {
            tokens: held.to_vec(),
            grounds: Grounds::Held,
            from: None,
        });
        let missed = self.missed.filter(|_| self.is_near(tokens.len()));
        let resumed = missed.and_then(|missed| resumed(tokens, missed.place, most));
        let all = [held, repeated(tokens, most), resumed].into_iter().flatten();
        let chance = |it: &Proposal| self.record.chance(it.grounds);
        self.proposal = all.max_by(|a, b| chance(a).total_cmp(&chance(b)));
        self.proposed_at = tokens.len();
        self.tokens()
    }

    /// The tokens that may come next.
    pub(crate) fn tokens(&self) -> &[u32] {
        self.proposal.as_ref().map_or(&[], |proposal| &proposal.tokens)
    }

    /// For each proposed token, how probable it is that it and all before it are drawn.
    pub(crate) fn chances(&self) -> impl Iterator<Item = f64> {
        let proposal = self.proposal.iter();
        proposal.flat_map(|Proposal { tokens, grounds, .. }| {
            (0..tokens.len()).scan(1.0, |chance, right| {
                *chance *= self.record.chance(grounds.after(right));
                Some(*chance)
            })
        })
    }

    /// Takes note of what was drawn instead of, or as, the proposed tokens. That teaches as much of
    /// tokens that were not computed.
    pub(crate) fn learn(&mut self, drawn: &[u32]) {
        let Some(Proposal { tokens, grounds, from }) = self.proposal.take() else { return };
        for (index, (guessed, drawn)) in tokens.iter().zip(drawn).enumerate() {
            self.record.note(grounds.after(index), guessed == drawn);
            if guessed != drawn {
                let at = self.proposed_at + index;
                // One that was made soon after another is less likely to be in place.
                let follows = grounds == Grounds::Matched(MATCH_MIN) && self.is_near(at);
                let missed = from.map(|from| Missed { place: from + index, at });
                self.missed = if follows { self.missed } else { missed.or(self.missed) };
                break;
            }
        }
    }

    /// Whether a guess was wrong shortly before.
    fn is_near(&self, at: usize) -> bool {
        self.missed.is_some_and(|missed| at < missed.at + NEAR)
    }

    /// For checks: makes the proposal as long as it may be, and one of its tokens wrong, which
    /// `pick` chooses by a number below its argument. So some of it is drawn, and some is not.
    pub(crate) fn spoil(&mut self, tokens: &[u32], most: usize, pick: impl Fn(usize) -> usize) {
        let mut guessed = self.tokens().to_vec();
        let pad = tokens.iter().cycle().take(most - guessed.len().min(most));
        guessed.extend(pad);
        if let Some(token) = guessed.get_mut(pick(most.max(1))) {
            let other = tokens[pick(tokens.len())];
            *token = if other == *token { u32::from(*token == 0) } else { other };
        }
        let grounds = Grounds::Matched(MATCH_MIN);
        self.proposal = Some(Proposal { tokens: guessed, grounds, from: None });
    }
}

/// What the prompt cache held after some tokens, as long as the answer follows it.
#[derive(Clone, Debug, Default)]
struct HeldText {
    tokens: Vec<u32>,
    /// Tokens before them.
    at: usize,
    /// The cache held nothing more.
    ended: bool,
}

impl HeldText {
    fn after(
        &mut self,
        tokens: &[u32],
        most: usize,
        held: impl FnOnce(&[u32]) -> Vec<u32>,
    ) -> &[u32] {
        let passed = tokens.get(self.at..).unwrap_or(&[]);
        let follows = passed.len() < self.tokens.len() && self.tokens.starts_with(passed);
        if !follows && !self.ended {
            (self.tokens, self.at) = (held(tokens), tokens.len());
            self.ended = self.tokens.is_empty();
        }
        let next = self.tokens.get(tokens.len().saturating_sub(self.at)..).unwrap_or(&[]);
        &next[..next.len().min(most)]
    }
}

/// How often guesses were right, by the kind of their grounds; the last weigh most.
#[derive(Clone, Copy, Debug, Default)]
struct Record {
    kinds: [Kind; Grounds::KINDS],
}

#[derive(Clone, Copy, Debug, Default)]
struct Kind {
    guessed: f64,
    right: f64,
}

impl Record {
    fn note(&mut self, grounds: Grounds, right: bool) {
        let kind = &mut self.kinds[grounds.kind()];
        kind.guessed = kind.guessed * WEIGHT_KEPT + 1.0;
        kind.right = kind.right * WEIGHT_KEPT + f64::from(u8::from(right));
    }

    fn chance(&self, grounds: Grounds) -> f64 {
        let (Kind { guessed, right }, prior) =
            (self.kinds[grounds.kind()], Grounds::PRIORS[grounds.kind()]);
        (right + prior * PRIOR_WEIGHT) / (guessed + PRIOR_WEIGHT)
    }
}

#[cfg(test)]
#[path = "speculation_tests.rs"]
mod tests;
