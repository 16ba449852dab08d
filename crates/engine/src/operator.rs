//! What an operator asks of the prompt cache of a running engine.
//!
//! The cache lives in the engine's thread, so that what is asked is done there, between two steps,
//! and the answer comes through a channel.

use std::time::Duration;

use cache::{Entry, Namespace, PinRefused, Timestamp};
use tokio::sync::oneshot;

use crate::engine::Engine;
use crate::kv_memory::{GivenUp, KvMemory};
use crate::order_error::{OrderError, PinError};
use crate::request::{Event, Request};

/// How much of a prefix that is to be pinned is in memory.
enum InMemory {
    /// All; so many tokens are pinned.
    Pinned(usize),
    /// Not all of so many tokens that are held, which live so long.
    InPart(usize, Option<Duration>),
}

/// What pinning a prefix has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixPinned {
    /// How many tokens the pin keeps.
    pub tokens: usize,
    /// Tokens that had to be computed for it.
    pub computed_tokens: usize,
}

impl Engine {
    /// Up to `entries_max` longest prefixes of a namespace that the prompt cache holds, the most
    /// recently used first.
    ///
    /// # Errors
    /// When too many orders wait, or the engine is shutting down.
    pub async fn cached_prefixes(
        &self,
        namespace: Namespace,
        entries_max: usize,
    ) -> Result<Vec<Entry>, OrderError> {
        let order = move |memory: &mut KvMemory, now| {
            memory.expire(now);
            memory.cache().entries(&namespace, entries_max)
        };
        carried_out(self, order).await
    }

    /// How many tokens of each sequence the prompt cache holds, in memory or on disk. Nothing
    /// counts as used.
    ///
    /// # Errors
    /// As [`cached_prefixes`](Self::cached_prefixes).
    pub async fn held_tokens(
        &self,
        namespace: Namespace,
        sequences: Vec<Vec<u32>>,
    ) -> Result<Vec<usize>, OrderError> {
        let order = move |memory: &mut KvMemory, now| {
            memory.expire(now);
            let held = |tokens: &Vec<u32>| {
                let held = memory.held(&namespace, tokens).tokens;
                held.max(memory.cache().alive_tokens(&namespace, tokens))
            };
            sequences.iter().map(held).collect()
        };
        carried_out(self, order).await
    }

    /// Keeps a prefix in memory, as far as it is held, until [`unpin_prefix`](Self::unpin_prefix)
    /// is given the name. What of it is on disk only is brought into memory first, as for a request
    /// that asks for it. What was on disk, or was to be, is kept there too. A pin of the namespace
    /// with this name is taken back.
    ///
    /// # Errors
    /// When nothing of it is held, or pins would keep too much; and when what is on disk cannot be
    /// brought into memory. Nothing is pinned then.
    pub async fn pin_prefix(
        &self,
        namespace: Namespace,
        name: String,
        tokens: Vec<u32>,
    ) -> Result<PrefixPinned, PinError> {
        let (pin_name, pin_tokens) = (name.clone(), tokens.clone());
        let order = move |memory: &mut KvMemory, now: Timestamp| {
            memory.expire(now);
            let pinnable = memory.pinnable(&namespace, &pin_name, &pin_tokens)?;
            if pinnable.in_memory >= pinnable.tokens {
                let pinned = memory.pin_prefix(&namespace, &pin_name, &pin_tokens, now)?;
                return Ok(InMemory::Pinned(pinned));
            }
            let left = |at: Timestamp| Duration::from_millis(at.0.saturating_sub(now.0));
            Ok(InMemory::InPart(pinnable.tokens, pinnable.expires_at.map(left)))
        };
        let found: Result<InMemory, PinRefused> = carried_out(self, order).await?;
        let (held, lifetime) = match found? {
            InMemory::Pinned(tokens) => return Ok(PrefixPinned { tokens, computed_tokens: 0 }),
            InMemory::InPart(held, lifetime) => (held, lifetime),
        };
        let request = Request {
            max_tokens: Some(0),
            lifetime,
            ..Request::new(format!("pin-{name}"), tokens[..held].to_vec(), namespace)
        };
        let mut events = self.submit(request)?;
        let mut computed_tokens = 0;
        while let Some(event) = events.recv().await {
            match event {
                Event::Failed(error) => return Err(error.into()),
                Event::Done { tokens, .. } => computed_tokens = tokens.input + tokens.output,
                _ => {}
            }
        }
        let order =
            move |memory: &mut KvMemory, now| memory.pin_prefix(&namespace, &name, &tokens, now);
        Ok(PrefixPinned { tokens: carried_out(self, order).await??, computed_tokens })
    }

    /// Takes a named pin back; whether there was one.
    ///
    /// # Errors
    /// As [`cached_prefixes`](Self::cached_prefixes).
    pub async fn unpin_prefix(
        &self,
        namespace: Namespace,
        name: String,
    ) -> Result<bool, OrderError> {
        carried_out(self, move |memory, _| memory.unpin_prefix(&namespace, &name)).await
    }

    /// Gives up one prefix as far as no other shares it, in memory and on disk. Requests that use
    /// its pages go on.
    ///
    /// # Errors
    /// As [`cached_prefixes`](Self::cached_prefixes), and when the disk is far behind.
    pub async fn evict_prefix(
        &self,
        namespace: Namespace,
        tokens: Vec<u32>,
    ) -> Result<GivenUp, OrderError> {
        carried_out(self, move |memory, now| memory.evict_prefix(&namespace, &tokens, now)).await?
    }

    /// Gives up all of a namespace that is not pinned, in memory and on disk, and forgets that it
    /// was there. Requests that use its pages go on.
    ///
    /// # Errors
    /// As [`cached_prefixes`](Self::cached_prefixes), and when the disk is far behind.
    pub async fn clear_prefixes(&self, namespace: Namespace) -> Result<GivenUp, OrderError> {
        carried_out(self, move |memory, now| memory.clear_namespace(&namespace, now)).await?
    }
}

/// Hands an order to the engine's thread, and waits for what comes back.
async fn carried_out<T: Send + 'static>(
    engine: &Engine,
    order: impl FnOnce(&mut KvMemory, Timestamp) -> T + Send + 'static,
) -> Result<T, OrderError> {
    let (answer, answered) = oneshot::channel();
    engine.order(Box::new(move |memory, now| {
        // Who asked may have gone.
        let _ = answer.send(order(memory, now));
    }))?;
    answered.await.map_err(|_| OrderError::ShuttingDown)
}
