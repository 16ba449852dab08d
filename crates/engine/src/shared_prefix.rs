//! A prefix that is being computed for one request is not computed for another: that one waits
//! until the pages are there. If who computes goes away, somebody who waits takes over.

use kernels::PAGE_TOKENS;

use crate::request::Request;
use crate::running::{Running, Waiting};
use crate::sequence::Sequence;

/// A sequence that could go on from what others have computed.
#[derive(Clone, Copy)]
pub(crate) struct Candidate<'a> {
    pub(crate) request: &'a Request,
    /// Its request's place among the running ones, if it runs.
    pub(crate) own: Option<usize>,
    pub(crate) tokens: &'a [u32],
    /// Tokens that it may reuse at most.
    pub(crate) limit: usize,
    /// Whether it may use the prompt cache.
    pub(crate) cached: bool,
    /// Whether it has waited for a prefix before, and so waits for the rest of it.
    pub(crate) waited: bool,
}

impl<'a> Candidate<'a> {
    /// A request that waits.
    pub(crate) fn of_waiting(waiting: &'a Waiting, prompt_cache: bool) -> Self {
        let Waiting { request, held_before, .. } = waiting;
        let cached = request.use_cache && prompt_cache && request.prompt_logprobs.is_none();
        let tokens = &request.prompt[..];
        let (limit, waited) = (tokens.len() - 1, held_before.is_some());
        Candidate { request, own: None, tokens, limit, cached, waited }
    }

    /// A choice, that was preempted, of the running request at place `own`.
    pub(crate) fn of_choice(
        running: &'a Running,
        own: usize,
        choice: usize,
        prompt_cache: bool,
    ) -> Self {
        let (request, tokens) = (&running.request, running.choices[choice].sequence.tokens());
        // Rows whose logits are still wanted are computed again.
        let handed_out = running.prompt_logprobs.len();
        let limit = if running.wants_prompt_rows() { handed_out } else { tokens.len() - 1 };
        let cached = request.use_cache && prompt_cache;
        Candidate { request, own: Some(own), tokens, limit, cached, waited: false }
    }

    /// The running request which is computing a prefix of the candidate's that is longer, by a
    /// page to begin with, than the `held` tokens that it could go on from now.
    pub(crate) fn computed_by(&self, running: &[Running], held: usize) -> Option<usize> {
        running.iter().position(|leader| {
            let sequences = leader.open_choices().map(|(_, choice)| &choice.sequence);
            let own = self.own.is_some_and(|own| std::ptr::eq(leader, &running[own]));
            (own || self.may_share(leader))
                && sequences.into_iter().any(|s| self.gains(s, own, held))
        })
    }

    /// Whether what the other computes comes to the candidate through the prompt cache.
    fn may_share(&self, other: &Running) -> bool {
        let Running { request, .. } = other;
        self.cached && request.use_cache && request.namespace == self.request.namespace
    }

    fn gains(&self, leader: &Sequence, own: bool, held: usize) -> bool {
        if !leader.is_attached() || leader.pending() <= 1 {
            return false;
        }
        let pairs = self.tokens[..self.limit].iter().zip(leader.tokens());
        let mut common = pairs.take_while(|(ours, theirs)| ours == theirs).count();
        if own && !self.cached {
            common = common.min(shared_pages(self.request) * PAGE_TOKENS);
        }
        // Full pages are shared as they are computed, also one that is common in part.
        let whole = common.next_multiple_of(PAGE_TOKENS);
        let full = common / PAGE_TOKENS * PAGE_TOKENS;
        let (until, gain) =
            if whole <= leader.tokens().len() { (whole, common) } else { (full, full) };
        let least = if self.waited { 1 } else { PAGE_TOKENS };
        leader.computed() < until && gain >= held + least
    }
}

/// The pages that all choices of a request share: the prompt's full ones.
pub(crate) fn shared_pages(request: &Request) -> usize {
    request.prompt.len() / PAGE_TOKENS
}
