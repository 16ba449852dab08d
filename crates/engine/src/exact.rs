//! The equality matrix: whether reuse, chunks, threads and neighbours leave every bit alone.
//!
//! Each cell runs the same prompts under another condition and compares logits, logprobs and
//! tokens with a plain run (nothing cached, one chunk, one thread, alone), bit by bit. A cell
//! fails too if its condition did not occur: if nothing was reused, no neighbour shared a step,
//! or nobody was preempted. And a kernel whose sums depend on the batch must be caught, or the
//! check is blind.

use std::sync::Arc;
use std::time::Duration;

use kernels::{Isa, KvType, Team};
use package::Package;
use serde::Serialize;

use crate::exact_run::{self, ANSWER_TOKENS, Condition, Difference, Observed, Prompt};
use crate::fault::Fault;
use crate::guessing::Speculation;
use crate::model::Model;
use crate::options::{EngineOptions, StartError};

/// Lengths around a page, a tile and a segment, and one over a thousand.
pub const LENGTHS: [usize; 10] = [15, 16, 17, 63, 64, 65, 511, 512, 513, 1037];
/// Lengths for K and V in q8_0 beside another type; the answers reach over the boundaries.
const LENGTHS_OF_Q8_0: [usize; 4] = [15, 64, 511, 1037];
/// Lengths for instruction sets other than the fastest, which can be very slow.
const LENGTHS_OF_OTHER_ISAS: [usize; 2] = [17, 65];
/// Requests beside the compared one, which come and go.
const NEIGHBOURS: [usize; 4] = [0, 1, 7, 31];
/// Those of most cells.
const NEIGHBOURS_USUAL: [usize; 2] = [0, 7];
/// Prompt rows per step of the cells with other numbers of neighbours, and of preempted requests.
const CHUNK_USUAL: Option<usize> = Some(64);

/// What to cross.
#[derive(Clone, Debug)]
pub struct ExactOptions {
    /// Prompt lengths; those beyond the model's context are left out.
    pub lengths: Vec<usize>,
    /// Prompt rows per step; `None` is the whole prompt at once.
    pub chunks: Vec<Option<usize>>,
    /// Sizes of the team.
    pub threads: Vec<usize>,
    /// Instruction sets: the first with everything, the others with short prompts.
    pub isas: Vec<Isa>,
    /// The only type of K and V; by default the model's with everything, and q8_0 with some
    /// conditions and lengths.
    pub kv_type: Option<KvType>,
}

impl Default for ExactOptions {
    fn default() -> Self {
        let best = Isa::best();
        let others = Isa::available().into_iter().filter(|&isa| isa != best);
        ExactOptions {
            lengths: LENGTHS.to_vec(),
            chunks: vec![Some(1), Some(7), Some(64), None],
            threads: vec![1, 2],
            isas: std::iter::once(best).chain(others).collect(),
            kv_type: None,
        }
    }
}

/// What was found; the document of `refrain check exact --json`.
#[derive(Clone, Debug, Serialize)]
pub struct ExactReport {
    /// `refrain.exact/1`.
    pub schema: &'static str,
    /// The package's name.
    pub model: String,
    /// Lengths of the prompts of the fastest instruction set.
    pub lengths: Vec<usize>,
    /// Types of K and V that were checked.
    pub kv_types: Vec<&'static str>,
    /// Tokens drawn after each prompt.
    pub answer_tokens: usize,
    /// One entry per condition.
    pub cells: Vec<Cell>,
    /// Whether the kernel that depends on the batch was caught, for each instruction set.
    pub self_tests: Vec<SelfTest>,
    /// Whether every cell and self-test passed.
    pub passed: bool,
}

/// One condition and what came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// Instruction set.
    pub isa: &'static str,
    /// Type of K and V.
    pub kv_type: &'static str,
    /// Size of the team.
    pub threads: usize,
    /// Prompt rows per step; `None` is the whole prompt at once.
    pub chunk: Option<usize>,
    /// Whether prefixes were reused.
    pub cached: bool,
    /// Whether unrelated requests came and went beside.
    pub neighbours: bool,
    /// How many of them at any time.
    pub neighbours_beside: usize,
    /// Whether requests were preempted at random steps, and went on later.
    pub preempted: bool,
    /// Whether tokens were guessed in every step, right ones and wrong ones.
    pub speculation: bool,
    /// Requests compared.
    pub requests: usize,
    /// Rows of logits compared.
    pub rows: usize,
    /// Prompt tokens really reused.
    pub reused_tokens: usize,
    /// Prompt chunks really computed.
    pub chunks: usize,
    /// Steps that really computed a neighbour's rows too.
    pub shared_steps: usize,
    /// Most neighbours whose rows were really computed in one step with a compared request's.
    pub neighbours_at_once: usize,
    /// Requests that really came and went beside.
    pub neighbours_served: usize,
    /// How often a compared request really gave its pages up and went on.
    pub preemptions: usize,
    /// Guessed tokens that were really computed.
    pub proposed: usize,
    /// Of these, tokens that were drawn.
    pub accepted: usize,
    /// Whether the bits were equal under the condition.
    pub outcome: Outcome,
}

/// What became of a cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// All bits are equal.
    Equal,
    /// The first bits that differ.
    Different(Difference),
    /// What should have occurred did not.
    ConditionMissed {
        /// What that was.
        condition: String,
    },
    /// A request failed.
    Failed {
        /// Why.
        error: String,
    },
}

/// Whether a broken kernel is seen.
#[derive(Clone, Debug, Serialize)]
pub struct SelfTest {
    /// Instruction set.
    pub isa: &'static str,
    /// The kernel's sums depended on the batch, and the comparison said so.
    pub caught: bool,
}

/// How far the matrix is.
pub enum ExactProgress<'a> {
    /// A step was run.
    Step,
    /// A cell ended.
    Cell(&'a Cell),
}

/// Runs the matrix; `progress` is shown each step, and each cell as it ends.
///
/// # Errors
/// A model that cannot be loaded; whatever the matrix finds is in the report.
pub fn check_exact(
    package: &Arc<Package>,
    options: &ExactOptions,
    progress: &mut dyn FnMut(ExactProgress<'_>),
) -> Result<ExactReport, StartError> {
    let longest = package.config.context.saturating_sub(ANSWER_TOKENS);
    let fits = |lengths: &[usize]| -> Vec<usize> {
        lengths.iter().copied().filter(|&length| length <= longest).collect()
    };
    let mut cells: Vec<Cell> = Vec::new();
    let mut self_tests = Vec::new();
    for (index, &isa) in options.isas.iter().enumerate() {
        let main = index == 0;
        let check = |kv_type, lengths: &[usize], part| {
            let lengths = fits(if main { lengths } else { &LENGTHS_OF_OTHER_ISAS });
            let prompts = exact_run::prompts(&lengths, package.config.vocab);
            Check { package, isa, kv_type, part, prompts, reference: Vec::new() }
        };
        let part = if main { Part::All } else { Part::Some };
        let mut checks = vec![check(options.kv_type, &options.lengths, part)];
        if options.kv_type.is_none() {
            let part = if main { Part::Some } else { Part::Few };
            checks.push(check(Some(KvType::Q8_0), &LENGTHS_OF_Q8_0, part));
        }
        for (index, &threads) in options.threads.iter().enumerate() {
            let mut model = load(package, isa, threads)?;
            for check in &mut checks {
                if index == 0 {
                    check.reference = check.reference(&mut model, progress)?;
                }
                for condition in check.part.conditions(options, threads) {
                    let cell = check.cell(&mut model, condition, progress)?;
                    progress(ExactProgress::Cell(&cell));
                    cells.push(cell);
                }
            }
            if index == 0 {
                self_tests.push(checks[0].self_test(&mut model, progress)?);
            }
        }
    }
    let equal = cells.iter().all(|cell| cell.outcome == Outcome::Equal) && !cells.is_empty();
    let passed = equal && self_tests.iter().all(|test| test.caught);
    Ok(ExactReport {
        schema: "refrain.exact/1",
        model: package.name.clone(),
        lengths: fits(&options.lengths),
        kv_types: kv_types(&cells),
        answer_tokens: ANSWER_TOKENS,
        cells,
        self_tests,
        passed,
    })
}

/// The types of K and V of some cells, in order.
fn kv_types(cells: &[Cell]) -> Vec<&'static str> {
    let mut types: Vec<&str> = Vec::new();
    for cell in cells {
        if !types.contains(&cell.kv_type) {
            types.push(cell.kv_type);
        }
    }
    types
}

fn load(package: &Package, isa: Isa, threads: usize) -> Result<Model, StartError> {
    let team = Arc::new(Team::with_isa(threads, isa)?);
    Ok(Model::load(package, team, package.config.context, &|_, _| {})?)
}

/// Which of the conditions are run.
#[derive(Clone, Copy)]
enum Part {
    All,
    /// Those where most comes together, and not the slowest.
    Some,
    /// One size of chunks, beside neighbours.
    Few,
}

impl Part {
    /// The conditions for one team.
    fn conditions(self, options: &ExactOptions, threads: usize) -> Vec<Condition> {
        let mut conditions = Vec::new();
        for &chunk in &options.chunks {
            for cached in [false, true] {
                for neighbours in NEIGHBOURS {
                    for (preempted, speculation) in
                        [(false, false), (true, false), (false, true), (true, true)]
                    {
                        let condition = Condition {
                            threads,
                            chunk,
                            cached,
                            neighbours,
                            preempted,
                            speculation,
                        };
                        conditions.extend(Some(condition).filter(|it| self.runs(it)));
                    }
                }
            }
        }
        conditions
    }

    fn runs(self, condition: &Condition) -> bool {
        let Condition { chunk, neighbours, preempted, speculation, .. } = *condition;
        let company = NEIGHBOURS_USUAL.contains(&neighbours);
        match self {
            // Where answers are held, some guesses are right; the others are wrong everywhere.
            Part::All | Part::Some if speculation => {
                chunk == CHUNK_USUAL && condition.cached && neighbours == 7
            }
            Part::Few if speculation => false,
            Part::All if preempted => company && chunk == CHUNK_USUAL,
            Part::All => company || chunk == CHUNK_USUAL,
            Part::Some if preempted => neighbours == 7 && chunk == CHUNK_USUAL,
            Part::Some => neighbours == 7 && chunk != Some(1),
            Part::Few => neighbours == 7 && chunk == Some(7),
        }
    }
}

/// The matrix of one instruction set and type of K and V, which is compared with itself alone.
struct Check<'a> {
    package: &'a Arc<Package>,
    isa: Isa,
    /// `None` is the model's own.
    kv_type: Option<KvType>,
    part: Part,
    prompts: Vec<Prompt>,
    reference: Vec<Observed>,
}

impl Check<'_> {
    fn run(
        &self,
        model: &mut Model,
        condition: Condition,
        progress: &mut dyn FnMut(ExactProgress<'_>),
    ) -> Result<exact_run::Run, StartError> {
        let options = EngineOptions {
            chunk_tokens: Some(condition.chunk.unwrap_or(usize::MAX)),
            // As fast as this machine is or not, the same chunks.
            step_budget: Some(Duration::MAX),
            max_running: Some(condition.neighbours + 1),
            kv_type: self.kv_type,
            ..EngineOptions::default()
        };
        let mut plan = options.resolve(self.package, model)?;
        plan.limits.speculation = match condition.speculation {
            true => Speculation::Forced,
            false => Speculation::Off,
        };
        let scheduler = plan.scheduler(self.package, Arc::new(|| {}))?;
        let mut stepped = || progress(ExactProgress::Step);
        Ok(exact_run::run(scheduler, model, &self.prompts, condition, &mut stepped))
    }

    /// The plain run that all cells are compared with.
    fn reference(
        &self,
        model: &mut Model,
        progress: &mut dyn FnMut(ExactProgress<'_>),
    ) -> Result<Vec<Observed>, StartError> {
        let (chunk, cached) = (None, false);
        let plain = Condition { threads: 1, chunk, cached, ..Condition::default() };
        Ok(self.run(model, plain, progress)?.observed)
    }

    fn cell(
        &self,
        model: &mut Model,
        condition: Condition,
        progress: &mut dyn FnMut(ExactProgress<'_>),
    ) -> Result<Cell, StartError> {
        let run = self.run(model, condition, progress)?;
        let different = run.observed.iter().find_map(|observed| {
            let reference = self.reference.iter().find(|r| r.prompt == observed.prompt)?;
            reference.difference(observed)
        });
        let outcome = match (run.failed, different, run.missed) {
            (Some(error), ..) => Outcome::Failed { error },
            (None, Some(difference), _) => Outcome::Different(difference),
            (None, None, Some(condition)) => Outcome::ConditionMissed { condition },
            (None, None, None) => Outcome::Equal,
        };
        Ok(Cell {
            isa: self.isa.name(),
            kv_type: self.kv_type.unwrap_or(model.kv_geometry().kv_type).name(),
            threads: condition.threads,
            chunk: condition.chunk,
            cached: condition.cached,
            neighbours: condition.neighbours > 0,
            neighbours_beside: condition.neighbours,
            preempted: condition.preempted,
            speculation: condition.speculation,
            requests: run.observed.len(),
            rows: run.observed.iter().map(|observed| observed.logits.len()).sum(),
            reused_tokens: run.reused_tokens,
            chunks: run.chunks,
            shared_steps: run.shared_steps,
            neighbours_at_once: run.neighbours_at_once,
            neighbours_served: run.neighbours_served,
            preemptions: run.preemptions,
            proposed: run.proposed,
            accepted: run.accepted,
            outcome,
        })
    }

    /// Breaks the model's matmul and looks whether a short comparison sees it.
    fn self_test(
        &self,
        model: &mut Model,
        progress: &mut dyn FnMut(ExactProgress<'_>),
    ) -> Result<SelfTest, StartError> {
        let prompts = self.prompts.iter().take(3).cloned().collect();
        let mut broken = Check { prompts, reference: Vec::new(), ..*self };
        model.set_fault(Some(Fault::BatchDependent));
        broken.reference = broken.reference(model, progress)?;
        let (chunk, cached) = (Some(7), false);
        let plain = Condition::default();
        let condition = Condition { threads: 1, chunk, cached, neighbours: 2, ..plain };
        let cell = broken.cell(model, condition, progress)?;
        model.set_fault(None);
        let caught = matches!(cell.outcome, Outcome::Different(_));
        Ok(SelfTest { isa: self.isa.name(), caught })
    }
}
