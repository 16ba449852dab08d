//! Responses that are kept to be gone on from, and to be asked for again.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cache::Namespace;
use doctor::Computed;

/// How much is kept.
struct Limits {
    /// Responses of one caller, …
    of_caller: usize,
    /// … bytes in them, …
    bytes_of_caller: usize,
    /// … and bytes in those of all callers.
    bytes: usize,
}

const LIMITS: Limits = Limits { of_caller: 1_024, bytes_of_caller: 64 << 20, bytes: 512 << 20 };

/// The last responses, by their ids. Where there are too many of one caller, its oldest go; where
/// all are too large, the oldest of whoever has most.
pub(crate) struct StoredResponses {
    limits: Limits,
    responses: Mutex<Responses>,
}

impl Default for StoredResponses {
    fn default() -> Self {
        Self { limits: LIMITS, responses: Mutex::default() }
    }
}

/// A response that is kept.
pub(crate) struct StoredResponse {
    /// As it was sent, in JSON.
    pub(crate) body: String,
    /// The items of its input, an array in JSON.
    pub(crate) input: String,
    /// The conversation's messages without instructions, an array in JSON; the reply is the last.
    pub(crate) messages: String,
    /// The conversation as it was computed; `None` where the reply's text ends inside what was
    /// drawn.
    pub(crate) computed: Option<Arc<Computed>>,
}

/// Whose a response is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    /// The caller, whatever the salt.
    pub(crate) caller: Namespace,
    /// Who finds it.
    pub(crate) namespace: Namespace,
}

#[derive(Default)]
struct Responses {
    by_id: HashMap<String, Entry>,
    shares: HashMap<Namespace, Share>,
    bytes: usize,
}

struct Entry {
    owner: Owner,
    response: Arc<StoredResponse>,
    bytes: usize,
}

/// What is one caller's.
#[derive(Default)]
struct Share {
    /// The oldest first.
    ids: VecDeque<String>,
    bytes: usize,
}

impl StoredResponse {
    /// Bytes of memory that it takes, about.
    fn memory_bytes(&self) -> usize {
        let computed = self.computed.as_ref().map_or(0, |computed| computed.memory_bytes());
        self.body.len() + self.input.len() + self.messages.len() + computed
    }
}

impl StoredResponses {
    /// Keeps a response under an id that no other has.
    pub(crate) fn keep(&self, id: &str, owner: Owner, response: StoredResponse) {
        let bytes = response.memory_bytes() + size_of::<Entry>() + 2 * id.len();
        let entry = Entry { owner, response: Arc::new(response), bytes };
        let mut responses = self.lock();
        responses.by_id.insert(id.to_owned(), entry);
        responses.bytes += bytes;
        let share = responses.shares.entry(owner.caller).or_default();
        share.ids.push_back(id.to_owned());
        share.bytes += bytes;
        let is_over = |share: &Share| {
            share.ids.len() > self.limits.of_caller || share.bytes > self.limits.bytes_of_caller
        };
        while responses.shares.get(&owner.caller).is_some_and(is_over) {
            responses.give_up(owner.caller);
        }
        while responses.bytes > self.limits.bytes {
            let largest = responses.shares.iter().max_by_key(|(_, share)| share.bytes);
            let Some(caller) = largest.map(|(caller, _)| *caller) else { return };
            responses.give_up(caller);
        }
    }

    /// The response of this id, if it is one of this namespace.
    pub(crate) fn find(&self, id: &str, namespace: Namespace) -> Option<Arc<StoredResponse>> {
        let responses = self.lock();
        let entry = responses.by_id.get(id).filter(|entry| entry.owner.namespace == namespace)?;
        Some(Arc::clone(&entry.response))
    }

    /// Forgets the response of this id; whether there was one of this namespace.
    pub(crate) fn forget(&self, id: &str, namespace: Namespace) -> bool {
        let mut responses = self.lock();
        let owned = |entry: &&Entry| entry.owner.namespace == namespace;
        match responses.by_id.get(id).filter(owned).map(|entry| entry.owner.caller) {
            Some(caller) => {
                responses.remove(caller, id);
                true
            }
            None => false,
        }
    }

    /// A panic with the lock held is not to be had, and a count that is off would be no harm.
    fn lock(&self) -> MutexGuard<'_, Responses> {
        self.responses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Responses {
    /// Forgets a caller's oldest.
    fn give_up(&mut self, caller: Namespace) {
        let oldest = self.shares.get(&caller).and_then(|share| share.ids.front().cloned());
        match oldest {
            Some(id) => self.remove(caller, &id),
            None => drop(self.shares.remove(&caller)),
        }
    }

    fn remove(&mut self, caller: Namespace, id: &str) {
        let bytes = self.by_id.remove(id).map_or(0, |entry| entry.bytes);
        self.bytes -= bytes;
        if let Some(share) = self.shares.get_mut(&caller) {
            share.ids.retain(|own| own != id);
            share.bytes -= bytes;
            if share.ids.is_empty() {
                self.shares.remove(&caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str) -> Owner {
        let caller = Namespace::from_salt(name);
        Owner { caller, namespace: caller }
    }

    fn response(bytes: usize) -> StoredResponse {
        let (input, messages) = (String::new(), String::new());
        StoredResponse { body: "x".repeat(bytes), input, messages, computed: None }
    }

    #[test]
    fn a_response_is_found_in_its_namespace_until_it_is_forgotten() {
        let stored = StoredResponses::default();
        let (one, other) = (owner("a"), owner("b"));
        stored.keep("1", one, response(1));
        assert!(stored.find("1", one.namespace).is_some());
        assert!(stored.find("1", other.namespace).is_none());
        assert!(!stored.forget("1", other.namespace));
        assert!(stored.forget("1", one.namespace) && !stored.forget("1", one.namespace));
        assert!(stored.find("1", one.namespace).is_none());
        let rest = stored.lock();
        assert_eq!((rest.by_id.len(), rest.shares.len(), rest.bytes), (0, 0, 0));
    }

    const KIB: usize = 1 << 10;

    fn small() -> StoredResponses {
        let limits = Limits { of_caller: 4, bytes_of_caller: 64 * KIB, bytes: 256 * KIB };
        StoredResponses { limits, ..StoredResponses::default() }
    }

    #[test]
    fn the_oldest_of_a_caller_go_whatever_their_salt() {
        let stored = small();
        let (one, other) = (owner("a"), owner("b"));
        stored.keep("other", other, response(1));
        for number in 0..=4 {
            let namespace = Namespace::from_salt(&number.to_string());
            stored.keep(&number.to_string(), Owner { namespace, ..one }, response(1));
        }
        let has = |id: &str| stored.find(id, Namespace::from_salt(id)).is_some();
        assert!(!has("0") && has("1") && has("4"));
        stored.keep("large", one, response(32 * KIB));
        assert!(!has("1") && has("2"));
        stored.keep("larger", one, response(32 * KIB));
        assert!(!has("4") && stored.find("large", one.namespace).is_none());
        assert!(stored.find("larger", one.namespace).is_some());
        stored.keep("too large", one, response(64 * KIB));
        assert!(stored.find("too large", one.namespace).is_none());
        assert!(stored.find("other", other.namespace).is_some());
    }

    #[test]
    fn where_all_are_too_large_who_has_most_gives_up() {
        let stored = small();
        let modest = owner("modest");
        stored.keep("modest", modest, response(1));
        for number in 0..5 {
            let id = number.to_string();
            stored.keep(&id, owner(&id), response(60 * KIB + number));
        }
        assert!(stored.find("modest", modest.namespace).is_some());
        assert!(stored.lock().bytes <= 256 * KIB);
        let has = |number: &usize| {
            let id = number.to_string();
            stored.find(&id, owner(&id).namespace).is_some()
        };
        assert_eq!((0..5).filter(has).count(), 4);
    }
}
