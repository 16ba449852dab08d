//! What every handler can reach.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cache::Namespace;
use doctor::{KnownTexts, PromptMaker, Renderings};
use engine::{Engine, Events, Request};
use grammar::{Constraint, Vocabulary};
use package::{ChatTemplate, Package};
use tokio::sync::Semaphore;

use crate::callers::{Caller, Callers};
use crate::constraint::Wanted;
use crate::diagnostics::EarlierPrompts;
use crate::error::ApiError;
use crate::log::{AccessLog, Entry, Log};
use crate::origins::Origin;
use crate::price::Prices;
use crate::reading::AnswerFormat;
use crate::stored_responses::StoredResponses;
use crate::tally::Tally;
use crate::tls::Tls;

/// How the server answers, beyond what the engine decides.
#[derive(Default)]
pub struct ServerOptions {
    /// Refuse requests that name another model than the one served.
    pub strict_model: bool,
    /// Other names of the model, for clients that know it by them.
    pub model_names: Vec<String>,
    /// The date that chat templates see instead of today's, for templates that print it.
    pub template_date: Option<String>,
    /// How long what a request uses of the prompt cache lives, where it does not say so itself;
    /// `None` is as long as there is room.
    pub cache_lifetime: Option<Duration>,
    /// Those who may use the server; `None` is everybody, in one namespace.
    pub callers: Option<Callers>,
    /// The names that requests may use for this server besides `localhost` and addresses of this
    /// machine, in lower case; `None` takes any name.
    pub host_names: Option<Vec<String>>,
    /// Pages of these origins may talk to the server from a browser.
    pub origins: Vec<Origin>,
    /// What TLS is spoken with; without, plain HTTP is.
    pub tls: Option<Tls>,
    /// What tokens cost; without, answers have no price.
    pub prices: Option<Prices>,
    /// Takes what the operator is told; `None` says nothing.
    pub log: Option<Log>,
    /// Takes a line of JSON for each request; `None` writes none.
    pub access_log: Option<AccessLog>,
    /// Chat templates of this model that rendered what is held on disk, other than the one that
    /// renders now.
    pub earlier_templates: Vec<ChatTemplate>,
    /// Becomes true when what is to be computed before the server counts as ready is computed;
    /// `None` is ready at once.
    pub ready: Option<Arc<AtomicBool>>,
}

impl ServerOptions {
    /// Tells the operator.
    pub(crate) fn say(&self, entry: Entry, text: &str) {
        if let Some(log) = &self.log {
            log(entry, text);
        }
    }
}

/// The served model and how to serve it; cheap to clone.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) engine: Engine,
    pub(crate) package: Arc<Package>,
    pub(crate) options: Arc<ServerOptions>,
    pub(crate) started_s: u64,
    pub(crate) tally: Arc<Tally>,
    pub(crate) renderings: Arc<Renderings>,
    pub(crate) answer_format: Arc<AnswerFormat>,
    pub(crate) earlier_prompts: Arc<EarlierPrompts>,
    pub(crate) stored_responses: Arc<StoredResponses>,
    known: Arc<KnownTexts>,
    /// The vocabulary of constrained answers, or why there is none; made when one is first asked.
    vocabulary: Arc<OnceLock<Result<Vocabulary, String>>>,
    /// Prompts that may be rendered and tokenized at the same time.
    preparing: Arc<Semaphore>,
}

/// A tokenizer takes a hundred times its text in memory, so that only few may work at once.
const PREPARING_MAX: usize = 2;

impl App {
    pub(crate) fn new(engine: Engine, package: Arc<Package>, mut options: ServerOptions) -> Self {
        let renderings = Renderings::new(std::mem::take(&mut options.earlier_templates));
        Self {
            renderings: Arc::new(renderings),
            answer_format: Arc::new(AnswerFormat::of(&package)),
            earlier_prompts: Arc::default(),
            stored_responses: Arc::default(),
            engine,
            package,
            options: Arc::new(options),
            started_s: now_s(),
            tally: Arc::default(),
            known: Arc::default(),
            vocabulary: Arc::default(),
            preparing: Arc::new(Semaphore::new(PREPARING_MAX)),
        }
    }

    /// Checks the model that a request names. Any name does, unless the server is strict.
    pub(crate) fn check_model(&self, model: Option<&str>) -> Result<(), ApiError> {
        match model {
            Some(model) if self.options.strict_model && self.model_names().all(|n| n != model) => {
                Err(self.unknown_model(model))
            }
            _ => Ok(()),
        }
    }

    /// The names of the model, its own first.
    pub(crate) fn model_names(&self) -> impl Iterator<Item = &str> {
        let others = self.options.model_names.iter().map(String::as_str);
        std::iter::once(self.package.name.as_str()).chain(others)
    }

    pub(crate) fn unknown_model(&self, model: &str) -> ApiError {
        let served: Vec<String> = self.model_names().map(|name| format!("{name:?}")).collect();
        let (model, served) = (doctor::shown(&model), served.join(", "));
        let message = format!("the model {model:?} is not served here; this server has {served}");
        ApiError::not_found(message, Some("model_not_found"))
    }

    /// Runs `work`, which renders or tokenizes, where it does not hold up other connections.
    pub(crate) async fn prepare<T: Send + 'static>(
        &self,
        work: impl FnOnce(&App) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let place = self.preparing.clone().acquire_owned().await;
        let app = self.clone();
        let task = tokio::task::spawn_blocking(move || {
            let result = work(&app);
            drop(place);
            result
        });
        task.await
            .map_err(|error| ApiError::internal(format!("preparing the prompt failed: {error}")))?
    }

    /// What makes prompts of this model for this engine; the tokens of texts are remembered for
    /// the namespace that is given.
    pub(crate) fn prompt_maker(&self, namespace: Option<Namespace>) -> PromptMaker<'_> {
        PromptMaker {
            tokenizer: &self.package.tokenizer,
            chat_template: self.package.chat_template.as_ref(),
            date: self.options.template_date.as_deref(),
            context: Some(self.engine.info().context),
            known: namespace.map(|namespace| (&*self.known, namespace)),
        }
    }

    /// Whether the served model's chat template reads tools.
    pub(crate) fn reads_tools(&self) -> bool {
        self.package.chat_template.as_ref().is_some_and(ChatTemplate::uses_tools)
    }

    /// What holds an answer to a grammar.
    pub(crate) fn constraint(&self, wanted: &Wanted) -> Result<Constraint, ApiError> {
        let tokenizer = &self.package.tokenizer;
        let vocabulary = self.vocabulary.get_or_init(|| {
            let ids = 0..tokenizer.vocab_size() as u32;
            let tokens =
                ids.map(|id| (tokenizer.bytes(id).unwrap_or_default(), tokenizer.is_special(id)));
            Vocabulary::new(tokens, tokenizer.end_ids()).map_err(|error| error.to_string())
        });
        let vocabulary = vocabulary.as_ref().map_err(|error| {
            ApiError::unsupported(wanted.field, &format!("of this model's vocabulary: {error}"))
        })?;
        wanted.grammar.compile(vocabulary).map_err(|error| wanted.refused(&error))
    }

    /// Whose prefixes a caller shares: with a key, those under its name, and of these only those
    /// with the same salt. Without, everybody's or those with that salt.
    pub(crate) fn namespace(&self, caller: &Caller, salt: Option<&str>) -> Namespace {
        match (&self.options.callers, &caller.name) {
            (Some(callers), Some(name)) => callers.namespace(name, salt),
            _ => salt.map_or_else(Namespace::public, Namespace::from_salt),
        }
    }

    pub(crate) fn submit(&self, request: Request, field: &str) -> Result<Events, ApiError> {
        self.engine.submit(request).map_err(|error| ApiError::from_submit(error, field))
    }
}

/// Seconds since 1970.
pub(crate) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// The id of one prompt of a request: the request's own where there is no other.
pub(crate) fn id_of_prompt(id: &str, index: usize, prompts: usize) -> String {
    if prompts == 1 { id.to_owned() } else { format!("{id}-{index}") }
}

/// `prefix` and 24 random hexadecimal digits.
pub(crate) fn new_id(prefix: &str) -> Result<String, ApiError> {
    let mut bytes = [0_u8; 12];
    getrandom::fill(&mut bytes)
        .map_err(|error| ApiError::internal(format!("no random numbers: {error}")))?;
    let digits = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    Ok(format!("{prefix}{digits}"))
}
