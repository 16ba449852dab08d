//! Which prompts the prompt rows of a step belong to.
//!
//! Most rows go to the prompt that has least left, so that a small request does not wait for a
//! large one; the others to the one that has waited longest, so that none waits for ever.

use crate::rank::Rank;
use crate::running::Running;
use crate::step_budget::Room;

/// The share of a step's prompt rows that the first prompt gets, beside others.
const FIRST_SHARE: f64 = 0.75;
/// Where rows are too few to be shared, a prompt that has waited for so many steps is first.
const STEPS_UNSERVED_MAX: u64 = 4;

/// Prompt rows in one step when logits of all of them are wanted, to bound their memory.
const LOGIT_ROWS_MAX: usize = 64;

/// A choice with tokens to compute.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prompt {
    /// Its request's place among the running ones.
    pub(crate) running: usize,
    pub(crate) choice: usize,
    /// How urgent it is, as [`Urgency`] orders.
    pub(crate) urgency: Urgency,
    pub(crate) rank: Rank,
    /// The step in which it was served last.
    pub(crate) served_at_step: u64,
    /// Position of its next row.
    pub(crate) depth: usize,
    /// Rows that it can use.
    pub(crate) rows: usize,
}

impl Prompt {
    /// Choice `choice` of the running request at place `index`, for whose caller so many rows were
    /// computed.
    pub(crate) fn new(
        running: &Running,
        (index, choice): (usize, usize),
        caller_rows: usize,
    ) -> Self {
        let sequence = &running.choices[choice].sequence;
        let rows_max = if running.wants_prompt_rows() { LOGIT_ROWS_MAX } else { usize::MAX };
        let (priority, pending) = (running.request.priority, sequence.pending());
        let wanted = running.wanted.unwrap_or((priority, pending));
        let urgency = Urgency {
            priority: priority.min(wanted.0),
            caller_rows,
            pending: pending.min(wanted.1),
        };
        Prompt {
            running: index,
            choice,
            urgency,
            rank: running.rank,
            served_at_step: running.served_at_step,
            depth: sequence.computed(),
            rows: pending.min(rows_max),
        }
    }
}

/// Smaller is more urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Urgency {
    pub(crate) priority: i32,
    /// Prompt rows computed for the caller's running requests.
    pub(crate) caller_rows: usize,
    /// Rows until its prompt is computed.
    pub(crate) pending: usize,
}

/// Divides the room of the step number `step`: who is served, with how many rows.
pub(crate) fn share(mut prompts: Vec<Prompt>, mut room: Room, step: u64) -> Vec<(Prompt, usize)> {
    prompts.sort_by_key(|prompt| (prompt.urgency, prompt.rank));
    let longest = (0..prompts.len()).min_by_key(|&at| (prompts[at].served_at_step, at));
    if let Some(longest) = longest.filter(|_| prompts.len() > 1) {
        let prompt = prompts.remove(longest);
        let overdue = step.saturating_sub(prompt.served_at_step) >= STEPS_UNSERVED_MAX;
        let alone_first = longest == 0 || room.is_small() && overdue;
        prompts.insert(usize::from(!alone_first), prompt);
    }
    let mut served = Vec::new();
    for (at, prompt) in prompts.iter().enumerate() {
        let share = if at == 0 && prompts.len() > 1 { FIRST_SHARE } else { 1.0 };
        let rows = room.take(share, prompt.depth, prompt.rows);
        if rows > 0 {
            served.push((*prompt, rows));
        }
    }
    served
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use cache::Namespace;

    use super::*;
    use crate::request::Request;

    fn prompt(running: usize, pending: usize, served_at_step: u64) -> Prompt {
        let request = Request::new("", vec![1], Namespace::public());
        let rank = Rank::new(&request, Instant::now(), running as u64);
        let urgency = Urgency { priority: 0, caller_rows: 0, pending };
        let (choice, depth, rows) = (0, 0, pending);
        Prompt { running, choice, urgency, rank, served_at_step, depth, rows }
    }

    fn shared(prompts: &[Prompt], rows: usize, step: u64) -> Vec<(usize, usize)> {
        let served = share(prompts.to_vec(), Room::of_rows(rows), step);
        served.iter().map(|(prompt, rows)| (prompt.running, *rows)).collect()
    }

    #[test]
    fn one_prompt_gets_all_rows() {
        assert_eq!(shared(&[prompt(0, 1000, 0)], 256, 1), [(0, 256)]);
        assert_eq!(shared(&[prompt(0, 10, 0)], 256, 1), [(0, 10)]);
    }

    #[test]
    fn a_small_prompt_goes_before_a_large_one_which_goes_on() {
        let both = [prompt(0, 5000, 7), prompt(1, 300, 8)];
        assert_eq!(shared(&both, 256, 9), [(1, 192), (0, 64)]);
        let both = [prompt(0, 5000, 7), prompt(1, 30, 8)];
        assert_eq!(shared(&both, 256, 9), [(1, 30), (0, 226)]);
    }

    #[test]
    fn rows_too_few_to_share_are_taken_in_turns() {
        let mut both = [prompt(0, 5000, 0), prompt(1, 300, 0)];
        let mut served = [0, 0];
        for step in 1..=100 {
            for (running, rows) in shared(&both, 1, step) {
                served[running] += rows;
                both[running].served_at_step = step;
            }
        }
        assert!(served[0] >= 20 && served[1] >= 70, "{served:?}");
    }

    #[test]
    fn a_priority_goes_before_a_shorter_prompt() {
        let mut both = [prompt(0, 5000, 7), prompt(1, 300, 7)];
        both[0].urgency.priority = -1;
        assert_eq!(shared(&both, 100, 8), [(0, 75), (1, 25)]);
    }
}
