//! What an engine is started with, and the defaults where nothing is said.

use std::sync::Arc;
use std::time::Duration;

use cache::PromptCache;
use kernels::{KvError, KvGeometry, KvType, PAGE_TOKENS, Team, TeamError};
use package::Package;
use serde::Serialize;

use crate::disk_tier::{DiskTier, DiskTierOptions, Wake};
use crate::error::LoadError;
use crate::guessing::Speculation;
use crate::kv_memory::KvMemory;
use crate::kv_pool::KvPool;
use crate::machine::Machine;
use crate::model::Model;
use crate::request::RequestLimits;
use crate::scheduler::{Limits, Scheduler, wall_clock};

/// Default of [`EngineOptions::max_running`].
pub const MAX_RUNNING: usize = 16;
/// Default of [`EngineOptions::max_queue`].
pub const MAX_QUEUE: usize = 256;
/// Default of [`EngineOptions::max_wait`]: as long as OpenAI's clients wait by default.
pub const MAX_WAIT: Duration = Duration::from_secs(600);
/// Default of [`EngineOptions::chunk_tokens`].
pub const CHUNK_TOKENS: usize = 256;
/// Default of [`EngineOptions::answer_tokens`].
pub const ANSWER_TOKENS: usize = 2048;
/// The share of memory that K/V may take by default: one part in so many.
pub const KV_MEMORY_SHARE: u64 = 4;
/// Most pages; bounds the tables that count them.
const PAGES_MAX: usize = 1 << 22;

/// How an engine runs; `None` takes the documented default.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Threads that compute; by default the physical cores of the affinity mask, cut to the
    /// cgroup's CPU quota.
    pub threads: Option<usize>,
    /// Tokens of prompt and answer together; by default the model's, cut to what the KV
    /// memory holds. An answer that reaches it ends with
    /// [`FinishReason::Length`](crate::FinishReason): nothing is shifted or dropped.
    pub context: Option<usize>,
    /// Bytes of KV memory for running requests and the prompt cache together; by default a
    /// quarter ([`KV_MEMORY_SHARE`]) of the machine's or cgroup's memory. It is committed as
    /// it is used.
    pub kv_bytes: Option<u64>,
    /// Type of K/V; by default f32 if all weights are f32, else f16.
    pub kv_type: Option<KvType>,
    /// Answers computed at the same time; by default [`MAX_RUNNING`].
    pub max_running: Option<usize>,
    /// Requests that may wait for others to end; by default [`MAX_QUEUE`]. With 0 a request
    /// is taken only if it can run at once.
    pub max_queue: Option<usize>,
    /// How long a request may wait for its turn; by default [`MAX_WAIT`]. It then fails with
    /// [`EngineError::WaitedTooLong`](crate::EngineError).
    pub max_wait: Option<Duration>,
    /// Longest prompt in tokens; by default what the context holds.
    pub max_prompt: Option<usize>,
    /// Prompt rows computed in one step; by default [`CHUNK_TOKENS`].
    pub chunk_tokens: Option<usize>,
    /// How long a step with prompt rows may take while answers are decoded, so that their next
    /// tokens are not late; [`Duration::MAX`] is as long as it takes. By default
    /// [`STEP_BUDGET_ORDINARY`](crate::STEP_BUDGET_ORDINARY) times a step without prompt rows.
    pub step_budget: Option<Duration>,
    /// Longest answer of a request that says nothing; by default [`ANSWER_TOKENS`].
    pub answer_tokens: Option<usize>,
    /// Whether prefixes are kept and reused. If not, verdicts say `disabled_by_request`.
    pub prompt_cache: bool,
    /// Where the prompt cache is kept on disk too; `None` is in memory only.
    pub disk: Option<DiskTierOptions>,
    /// Whether an answer's next tokens are guessed from what it may copy, and computed in one step
    /// where that pays. Answers are the same without.
    pub speculation: bool,
}

impl Default for EngineOptions {
    fn default() -> Self {
        EngineOptions {
            threads: None,
            context: None,
            kv_bytes: None,
            kv_type: None,
            max_running: None,
            max_queue: None,
            max_wait: None,
            max_prompt: None,
            chunk_tokens: None,
            step_budget: None,
            answer_tokens: None,
            prompt_cache: true,
            disk: None,
            speculation: true,
        }
    }
}

/// What an engine runs with.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EngineInfo {
    /// The package's name.
    pub model: String,
    /// Tokens of prompt and answer together.
    pub context: usize,
    /// Token ids.
    pub vocab: usize,
    /// Bytes of KV memory, at most. It is committed as it is used, and some ahead, so that a budget
    /// beyond `memory_bytes` starts, and ends badly once it fills.
    pub kv_budget_bytes: u64,
    /// Bytes of memory that the machine has or the tightest cgroup allows.
    pub memory_bytes: u64,
    /// Bytes of K/V of one page of 16 tokens.
    pub page_bytes: usize,
    /// Bytes of K/V of one token, without what pads the pages.
    pub kv_bytes_per_token: usize,
    /// Type of K and V: `f32`, `f16`, `bf16` or `q8_0`.
    pub kv_type: &'static str,
    /// Threads that compute.
    pub threads: usize,
    /// Instruction set of the kernels.
    pub isa: &'static str,
    /// What all bits depend on besides weights and tokens.
    pub numerics_id: String,
    /// Answers computed at the same time.
    pub max_running: usize,
    /// Requests that may wait for others to end.
    pub max_queue: usize,
    /// How long a request may wait for its turn, in seconds.
    pub max_wait_s: f64,
    /// Longest prompt in tokens.
    pub max_prompt: usize,
    /// Prompt rows computed in one step.
    pub chunk_tokens: usize,
    /// How long a step with prompt rows may take while answers are decoded, in milliseconds;
    /// `None` is a multiple of a step without.
    pub step_budget_ms: Option<f64>,
    /// Longest answer of a request that says nothing.
    pub answer_tokens: usize,
    /// Whether prefixes are kept and reused.
    pub prompt_cache: bool,
    /// Whether an answer's next tokens are guessed.
    pub speculation: bool,
}

/// Why an engine did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The weights could not be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The team of threads could not be formed.
    #[error(transparent)]
    Team(#[from] TeamError),
    /// The KV memory could not be reserved.
    #[error(transparent)]
    Kv(#[from] KvError),
    /// The engine's thread could not be started.
    #[error("the engine's thread could not be started: {0}")]
    Thread(std::io::Error),
    /// An option contradicts the model or the machine.
    #[error("{field}: {message}")]
    Option {
        /// The option's name in plain words: `threads`, `context`, `kv budget`, `max
        /// running`, `max queue`, `max prompt`, `chunk tokens` or `answer tokens`.
        field: &'static str,
        /// What is wrong with it.
        message: String,
    },
}

/// Options with the defaults resolved.
pub(crate) struct Plan {
    pub(crate) limits: Limits,
    pub(crate) info: EngineInfo,
    geometry: KvGeometry,
    /// The directory of the disk tier, and the model and its numerics id as a digest.
    pub(crate) disk: Option<(DiskTierOptions, [u8; 32])>,
}

impl EngineOptions {
    /// Loads the package's model for the team that the options ask for, without an engine.
    ///
    /// # Errors
    /// [`StartError`] if the model cannot be loaded, or has not the context that is asked for.
    pub fn load(
        &self,
        package: &Package,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Model, StartError> {
        let own = package.config.context;
        if self.context.is_some_and(|context| context > own) {
            let message = format!("the model's is {own} tokens; ask for no more");
            return Err(StartError::Option { field: "context", message });
        }
        let threads = self.threads.unwrap_or_else(|| Machine::detect().physical_cores);
        let team = Team::new(threads).map_err(|error| match error {
            TeamError::Threads(_) => {
                StartError::Option { field: "threads", message: error.to_string() }
            }
            error => error.into(),
        })?;
        let team = Arc::new(team);
        Ok(Model::load(package, team, self.context.unwrap_or(own), progress)?)
    }

    /// Resolves what was left open, now that the model is known.
    pub(crate) fn resolve(&self, package: &Package, model: &Model) -> Result<Plan, StartError> {
        let mut geometry = model.kv_geometry();
        geometry.kv_type = self.kv_type.unwrap_or(geometry.kv_type);
        let memory_bytes = Machine::detect().memory_bytes;
        let pages = self.pages(geometry, memory_bytes)?;
        let positive = |field, value| match value {
            0 => Err(StartError::Option { field, message: "must be at least 1".to_string() }),
            value => Ok(value),
        };
        let context = context_within(model.config().context, pages);
        let (or, team) = (Option::unwrap_or, model.team());
        let context = positive("context", self.context.unwrap_or(context).min(context))?;
        let max_prompt = positive("max prompt", or(self.max_prompt, context))?;
        let info = EngineInfo {
            model: package.name.clone(),
            context,
            vocab: model.config().vocab,
            kv_budget_bytes: (pages * geometry.page_bytes()) as u64,
            memory_bytes,
            page_bytes: geometry.page_bytes(),
            kv_bytes_per_token: geometry.token_bytes(),
            kv_type: geometry.kv_type.name(),
            threads: team.threads(),
            isa: team.isa().name(),
            numerics_id: model.numerics_id(geometry.kv_type),
            max_running: positive("max running", or(self.max_running, MAX_RUNNING))?,
            max_queue: or(self.max_queue, MAX_QUEUE),
            max_wait_s: self.max_wait.unwrap_or(MAX_WAIT).as_secs_f64(),
            max_prompt: max_prompt.min(context),
            chunk_tokens: positive("chunk tokens", or(self.chunk_tokens, CHUNK_TOKENS))?,
            step_budget_ms: self.step_budget.map(|budget| budget.as_secs_f64() * 1e3),
            answer_tokens: positive("answer tokens", or(self.answer_tokens, ANSWER_TOKENS))?,
            prompt_cache: self.prompt_cache,
            speculation: self.speculation,
        };
        let request = RequestLimits {
            context: info.context,
            prompt: info.max_prompt,
            vocab: info.vocab,
            answer_tokens: info.answer_tokens,
            pages,
        };
        let limits = Limits {
            request,
            running: info.max_running,
            max_wait: self.max_wait.unwrap_or(MAX_WAIT),
            chunk_tokens: info.chunk_tokens,
            step_budget: self.step_budget,
            prompt_cache: info.prompt_cache,
            speculation: match info.speculation {
                true => Speculation::Adaptive,
                false => Speculation::Off,
            },
        };
        Ok(Plan { limits, info, geometry, disk: None })
    }

    /// Pages of the KV memory's budget, at least two.
    pub(crate) fn pages(
        &self,
        geometry: KvGeometry,
        memory_bytes: u64,
    ) -> Result<usize, StartError> {
        let page_bytes = geometry.page_bytes() as u64;
        let budget = self.kv_bytes.unwrap_or(memory_bytes / KV_MEMORY_SHARE);
        let pages = usize::try_from(budget / page_bytes).unwrap_or(PAGES_MAX).min(PAGES_MAX);
        if pages < 2 {
            let least = 2 * page_bytes;
            let message = format!("{budget} bytes are too few; this model needs {least} or more");
            return Err(StartError::Option { field: "kv budget", message });
        }
        Ok(pages)
    }
}

/// The longest sequence of a model with this context in so many pages: one page is left for the
/// copy of a partial page that a request goes on from.
pub(crate) fn context_within(context: usize, pages: usize) -> usize {
    context.min((pages - 1) * PAGE_TOKENS)
}

impl Plan {
    /// An empty scheduler on new KV memory. It is woken when something has come from disk.
    pub(crate) fn scheduler(
        &self,
        package: &Arc<Package>,
        wake: Wake,
    ) -> Result<Scheduler, StartError> {
        let pool = KvPool::new(self.geometry, self.limits.request.pages)?;
        let now = wall_clock();
        let mut cache = PromptCache::new(cache::Limits::default(), now);
        let disk = self.disk.as_ref().and_then(|(options, model)| {
            let (page_bytes, pages) = (self.geometry.page_bytes(), pool.pages());
            DiskTier::open(options, *model, page_bytes, pages, &mut cache, now)
        });
        let memory = KvMemory::new(pool, cache, disk);
        Ok(Scheduler::new(Arc::clone(package), self.limits, memory, wake))
    }
}
