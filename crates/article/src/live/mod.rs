//! A real server on the model, and a client of it: what the rows about a server look at.

mod answer;
mod client;
mod days;
pub(crate) mod files;
pub(crate) mod incident;
mod inside;
pub(crate) mod pair;
pub(crate) mod prefix;
pub(crate) mod request;
pub(crate) mod runtime;
mod server;
pub(crate) mod sharing;
pub(crate) mod small;
pub(crate) mod steps;
#[cfg(test)]
mod tests;

use std::rc::Rc;
use std::sync::Arc;

use engine::{EngineOptions, EngineStats, MemoryNeed};
use kernels::PAGE_TOKENS;
use package::{ChatTemplate, Package};
use serde_json::{Map, Value, json};

use crate::error::ArticleError;
use crate::tally::Stop;

use client::User;
use days::Incident;
use inside::Inside;
use server::Server;

/// For models that come without a chat template: roles in angle brackets, tools before all.
const PLAIN_TEMPLATE: &str = "\
{% if tools %}<tools>\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}</tools>\n\
{% endif %}\
{% for message in messages %}<{{ message.role }}>\n{{ message.content }}\n{% endfor %}\
{% if add_generation_prompt %}<assistant>\n{% endif %}";

/// Most tries of a check that depends on time.
const TRIES: usize = 5;
/// Tokens of the context that the rows' requests fit into.
const CONTEXT_MIN: usize = 512;
/// Answers that the servers compute at the same time, and requests that may wait: few, so that
/// both limits can be reached.
const RUNNING: usize = 4;
/// The context and the pages of the small server.
const SMALL_CONTEXT: usize = 96;
const SMALL_PAGES: usize = 14;
const SMALL_RUNNING: usize = 2;

/// How the servers run.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// How their engines run; the answers and requests at once are few unless this says how many.
    pub(crate) engine: EngineOptions,
    /// Fields of every request that does not say otherwise.
    pub(crate) fields: Map<String, Value>,
}

impl Default for Setup {
    fn default() -> Self {
        let fields = json!({"max_tokens": 1, "temperature": 0, "ignore_eos": true});
        let fields = fields.as_object().cloned().unwrap_or_default();
        Setup { engine: EngineOptions::default(), fields }
    }
}

/// Servers on loopback ports.
pub(crate) struct Live {
    /// What they serve.
    pub(crate) package: Arc<Package>,
    /// Whether the package came without a chat template and was given a plain one.
    plain_template: bool,
    setup: Setup,
    main: Server,
    small: Option<Server>,
    inside: Option<Rc<Inside>>,
    incident: Option<Rc<Incident>>,
    users: usize,
}

impl Live {
    /// Starts a server on `package`.
    ///
    /// # Errors
    /// The engine cannot be started, or no port listened at.
    pub(crate) fn start(package: &Arc<Package>, setup: Setup) -> Result<Live, ArticleError> {
        let plain_template = package.chat_template.is_none();
        let package = match plain_template {
            false => package.clone(),
            true => {
                let mut own = Package::open(&package.path)?;
                let end = own.tokenizer.eos().map(|id| own.tokenizer.decode(&[id], true));
                let end = end.unwrap_or_default();
                own.chat_template = Some(ChatTemplate::new(PLAIN_TEMPLATE, "", &end)?);
                Arc::new(own)
            }
        };
        let options = EngineOptions {
            max_running: setup.engine.max_running.or(Some(RUNNING)),
            max_queue: Some(RUNNING),
            // The article decodes a token in a step.
            speculation: false,
            ..setup.engine.clone()
        };
        let main = Server::start(&package, options)?;
        Ok(Live {
            package,
            plain_template,
            setup,
            main,
            small: None,
            inside: None,
            incident: None,
            users: 0,
        })
    }

    /// The context must hold the conversations that are asked.
    pub(crate) fn has_room(&self) -> Result<(), Stop> {
        match self.package.config.context {
            CONTEXT_MIN.. => Ok(()),
            context => {
                let least = format!("needs a context of {CONTEXT_MIN} tokens or more");
                Err(Stop::not_run(format!("{least}; the model's is {context}")))
            }
        }
    }

    /// A client of the server, who shares prefixes with no other.
    fn user(&mut self) -> User {
        self.users += 1;
        User::new(self.main.address(), self.setup.fields.clone(), self.users)
    }

    /// A client of the [small](Self::small) server, whose cache all of them share.
    fn small_user(&mut self) -> Result<User, Stop> {
        let address = self.small()?.address();
        Ok(User::new(address, self.setup.fields.clone(), 0))
    }

    /// A server with little memory; started once.
    fn small(&mut self) -> Result<&Server, Stop> {
        let server = match self.small.take() {
            Some(server) => server,
            None => {
                let failed = |error| Stop::failed("a server with little memory", error);
                let need = MemoryNeed::of(&self.package).map_err(|error| failed(error.into()))?;
                let page_bytes = page_bytes(&need, self.package.config.context);
                let options = EngineOptions {
                    context: Some(SMALL_CONTEXT.min(self.package.config.context)),
                    kv_bytes: Some(SMALL_PAGES as u64 * page_bytes),
                    max_running: Some(SMALL_RUNNING),
                    max_queue: Some(SMALL_RUNNING),
                    speculation: false,
                    ..self.setup.engine.clone()
                };
                Server::start(&self.package, options).map_err(failed)?
            }
        };
        Ok(self.small.insert(server))
    }

    /// What the model computes inside; looked at once, in a model of its own.
    fn inside(&mut self) -> Result<Rc<Inside>, Stop> {
        if let Some(inside) = &self.inside {
            return Ok(inside.clone());
        }
        let inside = Rc::new(Inside::look(&self.package, self.setup.engine.threads)?);
        self.inside = Some(inside.clone());
        Ok(inside)
    }

    /// The server's counters once it has nothing to do.
    fn stats(&self) -> Result<EngineStats, Stop> {
        self.main.idle_stats()
    }

    /// `count` token ids, others for each `seed`: no special ones, no two successive ones the same.
    fn ids(&self, count: usize, seed: usize) -> Vec<u32> {
        let tokenizer = &self.package.tokenizer;
        let vocabulary = tokenizer.vocab_size().max(2);
        // Multiplicative hashing (Knuth, The Art of Computer Programming 3, 6.4).
        let id = |number: usize| (number.wrapping_mul(2_654_435_761) >> 7) % vocabulary;
        let mut number = seed.wrapping_mul(1_000_003);
        let mut ids = Vec::with_capacity(count);
        while ids.len() < count {
            number = number.wrapping_add(1);
            let id = id(number) as u32;
            let fits = !tokenizer.is_special(id) && !tokenizer.end_ids().contains(&id);
            if fits && ids.last() != Some(&id) {
                ids.push(id);
            }
        }
        ids
    }

    /// An id that is not `id`.
    fn another(&self, id: u32) -> u32 {
        let ids = self.ids(2, 7);
        if ids[0] == id { ids[1] } else { ids[0] }
    }

    /// Repeats of `sentence` that take about `tokens` tokens.
    fn repeated(&self, sentence: &str, tokens: usize) -> Result<String, Stop> {
        let encoding = self.package.tokenizer.encode(sentence, false);
        let one = encoding.map_err(|error| Stop::failed("a sentence", error))?.ids.len();
        Ok(sentence.repeat(tokens.div_ceil(one.max(1)).max(1)))
    }

    /// What a figure adds where the template is not the model's own.
    fn template_note(&self) -> &'static str {
        if self.plain_template { "; a plain template, the model has none" } else { "" }
    }
}

/// Bytes of one page of K and V.
fn page_bytes(need: &MemoryNeed, context: usize) -> u64 {
    need.kv_bytes_at_context / context.div_ceil(PAGE_TOKENS).max(1) as u64
}

/// The outcome of `check`, tried a few times, since it depends on how long something takes.
fn tried<T>(mut check: impl FnMut() -> Result<T, Stop>) -> Result<T, Stop> {
    let mut outcome = check();
    for _ in 1..TRIES {
        if !matches!(outcome, Err(Stop::Different { .. })) {
            break;
        }
        outcome = check();
    }
    outcome
}

/// How many ids two prompts begin with in common.
fn common_prefix(one: &[u32], other: &[u32]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}
