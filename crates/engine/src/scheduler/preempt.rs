//! Room for a step's rows, and who gives pages up where there is none.

use super::Scheduler;
use crate::kv_memory::By;
use crate::rank::Rank;
use crate::request::EngineError;
use crate::running::{Running, Waiting};
use crate::sequence::OutOfPages;
use crate::step::Part;

/// Who holds pages that others may need.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    /// The answer `choice` of the running request `index`.
    Answer { index: usize, choice: usize },
    /// A request whose prefix is being read from disk.
    Restoring { at: usize },
}

impl Scheduler {
    /// Makes room for the plan's rows, in the order of ranks. When no page is left, the last in
    /// rank that holds some gives them up; what it had planned is left out.
    pub(super) fn make_room(&mut self, mut plan: Vec<Part>) -> Vec<Part> {
        plan.sort_by_key(|part| (self.running[part.running].rank, part.choice));
        plan.retain(|part| {
            while self.may_run(part) {
                match self.room_for(part) {
                    Ok(()) => return true,
                    Err(error) => self.preempt_last(part, error),
                }
            }
            false
        });
        plan
    }

    fn may_run(&self, part: &Part) -> bool {
        let running = &self.running[part.running];
        !running.ended && running.choices[part.choice].sequence.is_attached()
    }

    fn room_for(&mut self, part: &Part) -> Result<(), OutOfPages> {
        let Running { request, choices, .. } = &mut self.running[part.running];
        let by = By::of(request, self.now);
        let sequence = &mut choices[part.choice].sequence;
        sequence.make_room(part.positions.len(), &mut self.memory, by)
    }

    /// Makes the last in rank give its pages up. If that is the only one, nothing but the prompt
    /// cache can stand in its way, and at last what is pinned there: a request that fits the memory
    /// alone does not fail for a pin.
    fn preempt_last(&mut self, part: &Part, error: OutOfPages) {
        let holders: Vec<_> = self.holders().collect();
        match holders.iter().max() {
            Some(&(_, Holder::Answer { index, choice })) if holders.len() > 1 => {
                self.preempt(index, choice);
            }
            Some(&(_, Holder::Restoring { at })) => self.abandon(at),
            _ => {
                self.memory.give_up_cached(self.now);
                if self.room_for(part).is_ok() {
                    return;
                }
                if self.memory.give_up_pins() {
                    self.memory.give_up_cached(self.now);
                }
                if self.room_for(part).is_err() {
                    self.fail(part.running, EngineError::Step(error.to_string()));
                }
            }
        }
    }

    /// Everybody who holds pages, or is about to, with the rank of the request.
    fn holders(&self) -> impl Iterator<Item = (Rank, Holder)> {
        let running = self.running.iter().enumerate().flat_map(|(index, running)| {
            let open = running.open_choices().filter(|(_, open)| open.sequence.is_attached());
            open.map(move |(choice, _)| (running.rank, Holder::Answer { index, choice }))
        });
        let restoring = self.restoring.iter().enumerate();
        running.chain(restoring.map(|(at, it)| (it.waiting.rank, Holder::Restoring { at })))
    }

    /// Whether somebody holds pages who will give them back in time.
    pub(super) fn is_any_held(&self) -> bool {
        self.holders().next().is_some()
    }

    /// Puts a request whose turn had come back to those who wait, where it keeps its rank.
    pub(super) fn wait_again(&mut self, waiting: Waiting) {
        self.waiting.push_back(Waiting { was_admitted: true, ..waiting });
    }

    /// Takes the pages of a request that is being restored for others. It begins anew later.
    pub(super) fn abandon(&mut self, at: usize) {
        self.stats.preemptions += 1;
        let waiting = self.restoring.remove(at).abandon(&mut self.memory);
        self.wait_again(waiting);
    }

    /// Takes an answer's pages for others. It goes on later, and nobody sees a difference.
    fn preempt(&mut self, index: usize, choice: usize) {
        self.stats.preemptions += 1;
        self.retire(index, choice);
    }

    /// Preempts a request's answers, for tests; returns how many.
    pub(crate) fn preempt_request(&mut self, id: &str) -> usize {
        let before = self.stats.preemptions;
        for index in 0..self.running.len() {
            for choice in 0..self.running[index].choices.len() {
                let Running { request, choices, .. } = &self.running[index];
                let open = choices[choice].finished.is_none();
                if request.id == id && open && choices[choice].sequence.is_attached() {
                    self.preempt(index, choice);
                }
            }
        }
        (self.stats.preemptions - before) as usize
    }
}
