//! What was counted in the two ways of the article's incident.

use super::answer::Answer;

/// Both ways of writing the system message, asked several times.
pub(super) struct Incident {
    pub(super) clock_first: Day,
    pub(super) clock_last: Day,
}

/// The requests after the first, each with another time.
pub(super) struct Day {
    /// Tokens of the prompt.
    pub(super) prompt: usize,
    /// Of these, reused ones, for each request.
    pub(super) reused: Vec<usize>,
    /// The others.
    pub(super) computed: Vec<usize>,
    /// The shortest time to the first token: what others do on the machine only adds to it.
    pub(super) ttft_ms: f64,
}

impl Day {
    pub(super) fn of(answers: &[Answer]) -> Day {
        let times = answers.iter().filter_map(|answer| answer.time_ms("ttft_ms"));
        Day {
            prompt: answers.first().map_or(0, Answer::prompt),
            reused: answers.iter().map(Answer::reused).collect(),
            computed: answers.iter().map(Answer::computed).collect(),
            ttft_ms: times.fold(f64::INFINITY, f64::min),
        }
    }

    pub(super) fn computed(&self) -> usize {
        self.computed.iter().sum()
    }
}
