//! What became of the prefix that a request has in common with an earlier one, which it names: for
//! OpenAI's `prompt_cache_diagnostics` and Anthropic's `diagnostics`.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cache::{Namespace, Reason, Verdict, compare};
use doctor::{Compared, complete};
use package::{PromptMap, Tokenizer};

/// Earlier prompts that are remembered, …
const PROMPTS_MAX: usize = 1_024;
/// … and tokens in them.
const TOKENS_MAX: usize = 4 << 20;

/// The prompts of the last requests, by their ids, for those that want to be compared with one.
#[derive(Default)]
pub(crate) struct EarlierPrompts(Mutex<Prompts>);

#[derive(Default)]
struct Prompts {
    by_id: HashMap<String, Earlier>,
    /// The oldest first.
    ids: VecDeque<String>,
    tokens: usize,
}

/// An earlier request's prompt.
#[derive(Clone)]
struct Earlier {
    namespace: Namespace,
    tokens: Arc<[u32]>,
    /// How many messages it is of; 0 for a text.
    messages: usize,
}

/// A request that wants to be compared, and what with; `None` where that is not known in its
/// namespace.
pub(crate) struct Comparison {
    earlier: Option<Earlier>,
    prompt: Arc<[u32]>,
    map: Option<PromptMap>,
    messages: usize,
}

impl EarlierPrompts {
    /// Remembers the prompt of the request `id`; of too many, the last ones.
    pub(crate) fn remember(
        &self,
        id: &str,
        namespace: Namespace,
        tokens: Arc<[u32]>,
        messages: usize,
    ) {
        let mut prompts = self.lock();
        prompts.tokens += tokens.len();
        prompts.ids.push_back(id.to_owned());
        let same = prompts.by_id.insert(id.to_owned(), Earlier { namespace, tokens, messages });
        prompts.tokens -= same.map_or(0, |earlier| earlier.tokens.len());
        while prompts.ids.len() > PROMPTS_MAX || prompts.tokens > TOKENS_MAX {
            let Some(oldest) = prompts.ids.pop_front() else { return };
            let forgotten = prompts.by_id.remove(&oldest);
            prompts.tokens -= forgotten.map_or(0, |earlier| earlier.tokens.len());
        }
    }

    /// For a prompt of so many messages that wants to be compared with the request `id` of its own
    /// namespace.
    pub(crate) fn comparison(
        &self,
        id: &str,
        namespace: Namespace,
        (prompt, map): (Arc<[u32]>, Option<PromptMap>),
        messages: usize,
    ) -> Comparison {
        let earlier = self.lock().by_id.get(id).cloned();
        let earlier = earlier.filter(|earlier| earlier.namespace == namespace);
        Comparison { earlier, prompt, map, messages }
    }

    /// Ids are unique, so that a lock which a panic poisoned is as good as another.
    fn lock(&self) -> MutexGuard<'_, Prompts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What became of the prefix in common with an earlier request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Diagnosis {
    /// All of it was reused.
    Hit,
    /// The prompts differ, or the model does.
    Miss {
        /// In what.
        change: Change,
        /// Tokens of the prompt from the difference on.
        missed_tokens: usize,
        /// Tokens before it.
        reusable_tokens: usize,
    },
    /// The earlier request is not known.
    NotFound,
    /// It was not reused for a reason that the providers have no word for, as that it was evicted;
    /// the verdict says it.
    Unavailable,
}

/// What differs between two requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Model,
    Tools,
    /// The system prompt.
    System,
    /// Messages were taken out.
    Compacted,
    Messages,
}

impl Comparison {
    /// The diagnosis of a request with this verdict.
    pub(crate) fn diagnose(&self, verdict: &Verdict, tokenizer: &Tokenizer) -> Diagnosis {
        let Some(earlier) = &self.earlier else { return Diagnosis::NotFound };
        let mut compared = verdict.clone();
        compared.stop = compare(&earlier.tokens, &self.prompt);
        let at = compared.stop.at;
        let cached = &earlier.tokens[at..];
        let (prompt, map) = (&*self.prompt, self.map.as_ref());
        complete(&mut compared, Compared { prompt, map, cached }, tokenizer);
        let in_common = matches!(compared.stop.reason, Reason::EndOfPrompt | Reason::EndOfCached);
        let miss = |change: Change| {
            let missed_tokens = verdict.prompt_tokens - at;
            Diagnosis::Miss { change, missed_tokens, reusable_tokens: at }
        };
        match verdict.stop.reason {
            Reason::RowsRequested | Reason::DisabledByRequest => Diagnosis::Unavailable,
            Reason::DifferentModel => miss(Change::Model),
            _ if !in_common => miss(self.change(&compared, earlier)),
            _ if verdict.reused_tokens >= at => Diagnosis::Hit,
            _ => Diagnosis::Unavailable,
        }
    }

    fn change(&self, compared: &Verdict, earlier: &Earlier) -> Change {
        let stop = &compared.stop;
        if stop.difference.as_ref().is_some_and(|difference| difference.tool.is_some()) {
            Change::Tools
        } else if self.messages < earlier.messages && stop.message != Some(0) {
            Change::Compacted
        } else if stop.role.as_deref() == Some("system") {
            Change::System
        } else {
            Change::Messages
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_prompts_are_remembered_for_their_namespace() {
        let prompts = EarlierPrompts::default();
        let (one, other) = (Namespace::from_salt("a"), Namespace::from_salt("b"));
        let tokens = |count: usize| -> Arc<[u32]> { vec![1; count].into() };
        for number in 0..=PROMPTS_MAX {
            prompts.remember(&number.to_string(), one, tokens(10), 1);
        }
        let knows = |id: &str, namespace| {
            prompts.comparison(id, namespace, (tokens(1), None), 1).earlier.is_some()
        };
        assert!(!knows("0", one) && knows("1", one) && !knows("1", other));
        assert_eq!(prompts.lock().tokens, 10 * PROMPTS_MAX);
        prompts.remember("long", other, tokens(TOKENS_MAX), 1);
        assert!(knows("long", other) && !knows(&PROMPTS_MAX.to_string(), one));
        prompts.remember("too long", other, tokens(TOKENS_MAX + 1), 1);
        assert!(!knows("too long", other));
        let rest = prompts.lock();
        assert_eq!((rest.tokens, rest.by_id.len()), (0, 0));
    }

    #[test]
    fn an_id_that_comes_again_is_counted_once() {
        let prompts = EarlierPrompts::default();
        for count in [7, 5, 9] {
            prompts.remember("same", Namespace::from_salt("a"), vec![1; count].into(), 1);
        }
        assert_eq!(prompts.lock().tokens, 9);
    }
}
