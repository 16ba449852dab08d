//! Room for a sequence that wants to be computed: whether there is, and how it takes it.

use cache::{PAGE_TOKENS, Reason, Timestamp, Verdict};
use doctor::{Compared, DIFFERENCE_TOKENS_MAX};
use kernels::PageId;
use package::Tokenizer;

use crate::kv_memory::{By, KvMemory};
use crate::request::Request;
use crate::restoring::Restoring;
use crate::running::{Prefix, Running};
use crate::sequence::{OutOfPages, Sequence};
use crate::shared_prefix::{Candidate, shared_pages};

/// What there is for a sequence that wants to be computed.
pub(crate) enum Outlook {
    /// There is room for it.
    Room,
    /// There is not.
    NoRoom,
    /// A longer prefix than the `held` tokens is being computed by another request.
    Shared { leader: usize, held: usize },
}

/// Whether to compute a candidate with so many answers now. It needs pages for the tokens that
/// are not held, and one for each answer's next token; how long the answers become is not known.
pub(crate) fn outlook(
    candidate: &Candidate<'_>,
    answers: usize,
    running: &[Running],
    restoring: &[Restoring],
    memory: &KvMemory,
) -> Outlook {
    let mut pages = candidate.own.map_or(Vec::new(), |own| sibling_pages(&running[own]));
    let mut held = pages.len() * PAGE_TOKENS;
    if candidate.cached {
        let cached = memory.held(&candidate.request.namespace, candidate.tokens);
        held = held.max(cached.tokens.min(candidate.limit));
        pages.extend(cached.pages.iter().skip(pages.len()));
        pages.truncate(held / PAGE_TOKENS);
    }
    if let Some(leader) = candidate.computed_by(running, held) {
        return Outlook::Shared { leader, held };
    }
    let (mut attached, mut pages_used) = (0, memory.pages_in_use());
    for (_, choice) in running.iter().flat_map(Running::open_choices) {
        if choice.sequence.is_attached() {
            attached += 1;
            pages_used += choice.sequence.pages_wanted();
        }
    }
    for restoring in restoring {
        attached += 1;
        pages_used += restoring.pages_wanted(memory);
    }
    let shared = pages.iter().filter(|&&page| memory.is_in_use(page)).count();
    let needed = candidate.tokens.len() / PAGE_TOKENS + answers - shared;
    // One more page for each that runs, so that none is preempted at once.
    match attached == 0 || pages_used + needed + attached <= memory.pool().pages() {
        true => Outlook::Room,
        false => Outlook::NoRoom,
    }
}

/// The pages of the prompt as far as an answer of the request has computed them.
fn sibling_pages(running: &Running) -> Vec<PageId> {
    let computed = |sequence: &Sequence| {
        let full = sequence.computed() / PAGE_TOKENS;
        sequence.pages()[..full.min(shared_pages(&running.request))].to_vec()
    };
    let open = running.open_choices().map(|(_, choice)| computed(&choice.sequence));
    open.max_by_key(Vec::len).unwrap_or_default()
}

/// What a request can reuse, and why it is no more.
pub(crate) fn find_prefix(
    request: &Request,
    memory: &mut KvMemory,
    tokenizer: &Tokenizer,
    prompt_cache: bool,
    now: Timestamp,
) -> Prefix {
    let tokens = request.prompt.len();
    let none = |verdict| {
        let (pages, pin, restorable) = (Vec::new(), None, None);
        Prefix { pages, reused: 0, verdict, pin, restorable }
    };
    if !request.use_cache || !prompt_cache {
        return none(Verdict::disabled_by_request(tokens));
    }
    if request.prompt_logprobs.is_some() {
        return none(Verdict::rows_requested(tokens));
    }
    let by = By::of(request, now);
    let public = memory.take_over_public(&request.prompt, by);
    let hit = memory.lookup(&request.prompt, by);
    let mut verdict = hit.verdict;
    verdict.reused_from.public = public.end.min(hit.reused_tokens).saturating_sub(public.start);
    // Asked at once, while the branch that was compared is the most recently used.
    complete(&mut verdict, request, memory, tokenizer);
    let mut restorable = hit.restorable;
    if let Some(restorable) = &mut restorable {
        complete(&mut restorable.verdict, request, memory, tokenizer);
    }
    Prefix { pages: hit.pages, reused: hit.reused_tokens, verdict, pin: Some(hit.pin), restorable }
}

/// Fills in what the cache does not know.
fn complete(verdict: &mut Verdict, request: &Request, memory: &KvMemory, tokenizer: &Tokenizer) {
    let cached = match verdict.stop.reason {
        Reason::DifferentToken => {
            let same = &request.prompt[..verdict.stop.at];
            memory.cache().continuation(&request.namespace, same, DIFFERENCE_TOKENS_MAX)
        }
        _ => Vec::new(),
    };
    let (prompt, map) = (request.prompt.as_slice(), request.prompt_map.as_ref());
    doctor::complete(verdict, Compared { prompt, map, cached: &cached }, tokenizer);
}

/// Lets an answer that was preempted go on: from what another answer of its request holds, and
/// what the prompt cache has kept; the rest is computed again.
pub(crate) fn resume(
    running: &mut Running,
    choice: usize,
    prompt_cache: bool,
    memory: &mut KvMemory,
    now: Timestamp,
) -> Result<(), OutOfPages> {
    let mut pages = sibling_pages(running);
    let mut reused = pages.len() * PAGE_TOKENS;
    let Candidate { limit, cached, .. } = Candidate::of_choice(running, 0, choice, prompt_cache);
    let Running { request, choices, .. } = running;
    let by = By::of(request, now);
    let sequence = &mut choices[choice].sequence;
    let hit = cached.then(|| memory.lookup(sequence.tokens(), by));
    if let Some(hit) = hit.as_ref().filter(|hit| hit.reused_tokens.min(limit) > reused) {
        reused = hit.reused_tokens.min(limit);
        pages.extend(hit.pages.iter().skip(pages.len()));
    }
    let attached = attach(sequence, &pages, reused, memory, by);
    if let Some(hit) = hit {
        memory.unpin(hit.pin);
    }
    attached
}

/// Attaches a sequence. Pages of the prompt cache that stand before pages in use are not given up
/// otherwise; where those are what is missing, the cache gives up all.
pub(crate) fn attach(
    sequence: &mut Sequence,
    pages: &[PageId],
    reused: usize,
    memory: &mut KvMemory,
    by: By<'_>,
) -> Result<(), OutOfPages> {
    sequence.attach(pages, reused, memory, by).or_else(|_| {
        memory.give_up_cached(by.now);
        sequence.attach(pages, reused, memory, by)
    })
}
