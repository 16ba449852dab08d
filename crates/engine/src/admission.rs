//! Who is served first, and who may run beside the others.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use cache::Namespace;
use tokio::sync::mpsc::Sender;

use crate::rank::Rank;
use crate::request::{EngineError, Event, Request};
use crate::running::{Running, Waiting};

/// What each answer that a caller has running is worth in waiting, against other callers.
const ANSWER_WORTH: Duration = Duration::from_secs(1);

/// The order in which the waiting are admitted: by rank, and later for those whose caller has
/// much running already.
pub(crate) fn order<'w>(
    waiting: impl Iterator<Item = &'w Waiting>,
    running: &[Running],
) -> Vec<usize> {
    let mut answers: HashMap<Namespace, u32> = HashMap::new();
    for Running { request, .. } in running {
        *answers.entry(request.namespace).or_default() += request.choices as u32;
    }
    let due = |Waiting { request, rank, .. }: &Waiting| {
        let answers = answers.get(&request.namespace).copied().unwrap_or(0);
        rank.later(ANSWER_WORTH * answers)
    };
    let mut order: Vec<(Rank, usize)> = waiting.map(due).zip(0..).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, index)| index).collect()
}

/// Takes out who has waited for too long, with the event that says so. Whose turn has come once
/// has not.
pub(crate) fn take_expired(
    waiting: &mut VecDeque<Waiting>,
    max_wait: Duration,
) -> Vec<(Sender<Event>, Event)> {
    let mut expired = Vec::new();
    waiting.retain(|waiting| {
        let waited = waiting.submitted.elapsed();
        let stays = waited <= max_wait || waiting.was_admitted;
        if !stays {
            let error = EngineError::WaitedTooLong { waited_s: waited.as_secs() };
            expired.push((waiting.events.clone(), Event::Failed(error)));
        }
        stays
    });
    expired
}

/// What requests take of the places to run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    answers: usize,
    /// Requests that wait for others to end.
    pub(crate) waiting: usize,
}

impl Load {
    /// The load of requests that run.
    pub(crate) fn of<'r>(running: impl Iterator<Item = &'r Request>) -> Self {
        Load { answers: running.map(|request| request.choices).sum(), waiting: 0 }
    }

    /// Adds a request if there is a place for each of its answers and none waits before it.
    /// Alone, every request may run.
    pub(crate) fn add(&mut self, request: &Request, places: usize) -> bool {
        let answers = self.answers + request.choices;
        if self.waiting > 0 || answers > places && self.answers > 0 {
            return false;
        }
        self.answers = answers;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::request::events_of;

    fn waiting(caller: &str, priority: i32, submitted: Instant, arrival: u64) -> Waiting {
        let namespace = Namespace::from_salt(caller);
        let request = Request { priority, ..Request::new("", vec![1], namespace) };
        let rank = Rank::new(&request, submitted, arrival);
        let events = events_of(&request).0;
        Waiting { rank, ..Waiting::new(request, events) }
    }

    #[test]
    fn a_priority_goes_first_but_nobody_waits_for_ever() {
        let now = Instant::now();
        let after = |seconds| now + Duration::from_secs(seconds);
        let all = [
            waiting("a", 0, now, 0),
            waiting("a", -1, after(5), 1),
            waiting("a", 1, now, 2),
            waiting("a", -1, after(11), 3),
            waiting("a", 0, now, 4),
        ];
        assert_eq!(order(all.iter(), &[]), [1, 0, 4, 3, 2]);
    }

    #[test]
    fn places_are_counted_in_answers() {
        let request =
            |choices| Request { choices, ..Request::new("", vec![1], Namespace::public()) };
        let mut load = Load::default();
        assert!(load.add(&request(9), 4), "alone, all may run");
        assert!(!load.add(&request(1), 4));
        let mut load = Load::default();
        assert!(load.add(&request(3), 4) && load.add(&request(1), 4));
        assert!(!load.add(&request(1), 4));
    }
}
