//! What the model computes inside, for the rows that a server's answers are compared with.

use std::sync::Arc;

use engine::trace::{Options, Trace, trace};
use engine::{Model, NoTaps, Site, TapPoint, Taps};
use kernels::Team;
use package::Package;

use crate::sequence::Sequence;
use crate::subject::PROMPT;
use crate::tally::Stop;

/// Lengths of the history that a new token is given, where the context allows.
const HISTORIES: [usize; 4] = [10, 100, 1_000, 10_000];
/// Rows of a prompt that are computed at once.
const CHUNK: usize = 256;

/// What was seen inside.
pub(super) struct Inside {
    /// The article's prompt and two steps after it.
    pub(super) trace: Trace,
    /// For each length of the history, what one new token read.
    pub(super) reads: Vec<Read>,
}

/// What one new token's attention read in the first layer.
pub(super) struct Read {
    pub(super) history: usize,
    /// For each head, how many positions have a weight, and the sum of all weights.
    pub(super) heads: Vec<(usize, f64)>,
}

impl Inside {
    /// Loads the model, and drops it when it has looked.
    pub(super) fn look(package: &Arc<Package>, threads: Option<usize>) -> Result<Inside, Stop> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let team = Team::new(threads.unwrap_or(cores));
        let team = team.map_err(|error| Stop::failed("threads", error))?;
        let context = package.config.context;
        let mut model = Model::load(package, Arc::new(team), context, &|_, _| {})
            .map_err(|error| Stop::failed("a model to look into", error))?;
        let prompt = package.tokenizer.encode(PROMPT, false);
        let prompt = prompt.map_err(|error| Stop::failed("the prompt", error))?.ids;
        let options = Options { layer: 0, head: 0, query: -1, decode: 2, top: 5, keep: &|_| false };
        let trace = trace(&mut model, package, &prompt, &options)
            .map_err(|error| Stop::failed("a trace of the prompt", error))?;
        let reads = histories(&mut model, &prompt, context)?;
        Ok(Inside { trace, reads })
    }
}

/// Lengthens one sequence, and looks at the token that follows each of the lengths.
fn histories(model: &mut Model, prompt: &[u32], context: usize) -> Result<Vec<Read>, Stop> {
    let lengths: Vec<usize> = HISTORIES.into_iter().filter(|&length| length < context).collect();
    let failed = |error| Stop::failed("a sequence of many tokens", error);
    let most = lengths.last().map_or(1, |length| length + 1);
    let mut sequence = Sequence::new(model, most).map_err(failed)?;
    let (mut length, mut reads) = (0, Vec::new());
    for history in lengths {
        while length < history {
            let rows = CHUNK.min(history - length);
            let tokens: Vec<u32> =
                (length..length + rows).map(|at| prompt[at % prompt.len()]).collect();
            sequence.run(model, &tokens, &[], &mut NoTaps).map_err(failed)?;
            length += rows;
        }
        let mut pattern = Pattern { history, heads: Vec::new() };
        sequence.run(model, &prompt[..1], &[], &mut pattern).map_err(failed)?;
        length += 1;
        reads.push(Read { history, heads: pattern.heads });
    }
    Ok(reads)
}

/// Looks at the attention weights of the first layer.
struct Pattern {
    history: usize,
    heads: Vec<(usize, f64)>,
}

impl Taps for Pattern {
    fn wants(&self, point: TapPoint) -> bool {
        point == TapPoint { layer: Some(0), site: Site::Pattern }
    }

    fn record(&mut self, _point: TapPoint, _shape: &[usize], values: &[f32]) {
        let heads = values.chunks(self.history + 1);
        let head = |weights: &[f32]| {
            let read = weights.iter().filter(|&&weight| weight > 0.0).count();
            (read, weights.iter().map(|&weight| f64::from(weight)).sum())
        };
        self.heads = heads.map(head).collect();
    }
}
