//! `refrain serve`: the OpenAI-compatible server.

use std::cell::Cell;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::{DiskTierOptions, EngineOptions, MemoryNeed};
use package::{ChatTemplate, Sources};
use server::{AccessLog, Callers, ServerOptions, Tls};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::access_arguments::{AccessArguments, is_loopback};
use crate::bytes;
use crate::cli::ServeArguments;
use crate::commands::{access_log, operator_log, warm};
use crate::failure::Failure;
use crate::interrupt::{self, Handler};
use crate::loading::{self, Loaded};
use crate::terminal::{Terminal, say};

/// Default of --cache-disk.
const CACHE_DISK_BYTES: u64 = 4 << 30;

pub(crate) fn run(arguments: &ServeArguments, terminal: &Terminal) -> Result<(), Failure> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    // The port first: a model takes a while to load, and a port that is taken is known at once.
    let listener = runtime.block_on(listen(arguments))?;
    let tls = tls(&arguments.access)?;
    let access_log = access_log(&arguments.access)?;
    let disk = disk_tier(arguments);
    let directory = disk.as_ref().map(|disk| disk.directory.as_path());
    let kept = directory.map(Path::to_path_buf);
    let keys = arguments.api_keys.as_deref();
    let callers = keys.map(|keys| callers(keys, directory)).transpose()?;
    let options = EngineOptions {
        max_running: arguments.max_running.map(usize::from),
        max_queue: arguments.max_queue.map(usize::from),
        max_wait: arguments.max_wait.map(|s| Duration::from_secs(s.into())),
        max_prompt: arguments.max_prompt.map(|tokens| tokens as usize),
        step_budget: arguments.step_budget.map(|ms| Duration::from_millis(ms.into())),
        prompt_cache: !arguments.no_prompt_cache,
        disk,
        speculation: !arguments.no_speculation,
        ..loading::options(&arguments.engine)
    };
    let loaded = loading::load(arguments.model.as_deref(), options, terminal)?;
    let info = loaded.engine.info();
    let budget = bytes::show(info.kv_budget_bytes);
    terminal.status("Serving", &format!("{} tokens of context, {budget} for K/V", info.context));
    warn_of_memory(&loaded, terminal)?;
    let earlier_templates = kept.map_or(Vec::new(), |kept| earlier_templates(&kept, &loaded));
    let options = ServerOptions {
        strict_model: arguments.strict_model,
        model_names: arguments.model_names.clone(),
        template_date: arguments.template_date.clone(),
        cache_lifetime: arguments.cache_ttl,
        callers,
        host_names: arguments.access.host_names(listener.local_addr()?.ip()),
        tls,
        origins: arguments.access.origins.clone(),
        prices: arguments.price.clone(),
        access_log,
        log: Some(operator_log::start(terminal)?),
        earlier_templates,
        ready: arguments.warm.is_some().then(Arc::default),
    };
    runtime.block_on(answer(arguments, listener, loaded, options, terminal))
}

/// The chat templates that rendered what the directory holds, other than the model's own, which is
/// kept there for later starts. Where that fails, misses are explained without them.
fn earlier_templates(directory: &Path, loaded: &Loaded) -> Vec<ChatTemplate> {
    let Some(template) = &loaded.package.chat_template else { return Vec::new() };
    let earlier = cache::disk::keep_text(directory, template.source()).unwrap_or_default();
    // One that no longer compiles can have rendered nothing that is still found.
    earlier.iter().filter_map(|source| template.with_source(source).ok()).collect()
}

/// Where each request is told of, if it is.
fn access_log(access: &AccessArguments) -> Result<Option<AccessLog>, Failure> {
    let open = |path: &Path| {
        access_log::open(path)
            .map_err(|error| Failure::new(format!("no access log in {}: {error}", path.display())))
    };
    access.access_log.as_deref().map(open).transpose()
}

/// What TLS is spoken with, where it is.
fn tls(access: &AccessArguments) -> Result<Option<Tls>, Failure> {
    let files = access.tls_cert.as_deref().zip(access.tls_key.as_deref());
    let tls = files.map(|(certificate, key)| Tls::open(certificate, key)).transpose();
    tls.map_err(|error| Failure::new(format!("no TLS: {error}; --tls-cert, --tls-key")))
}

/// The keys that are asked for. Their namespaces are told apart by a secret that is kept where the
/// prompt cache is; without such a place, or if it fails, by one of this process.
fn callers(keys: &Path, directory: Option<&Path>) -> Result<Callers, Failure> {
    let secret = directory.and_then(|directory| {
        let secret = cache::disk::secret(directory);
        let warn = |error| {
            say(format_args!("what is on disk is not found by API keys' holders: {error}"));
        };
        secret.map_err(warn).ok()
    });
    Callers::open(keys, secret).map_err(|error| {
        let hint = "refrain key NAME makes a line of it";
        Failure::new(format!("no API keys from {}: {error}; {hint}", keys.display()))
    })
}

/// Where the prompt cache is kept on disk; without a place for it, which is said, in memory only.
fn disk_tier(arguments: &ServeArguments) -> Option<DiskTierOptions> {
    let budget_bytes = arguments.cache_disk.unwrap_or(CACHE_DISK_BYTES);
    if budget_bytes == 0 || arguments.no_prompt_cache {
        return None;
    }
    let report = |line: &str| say(format_args!("{line}"));
    let usual = || Sources::from_environment().map(|sources| sources.cache_directory);
    match arguments.cache_dir.clone().map_or_else(|| usual().map(|dir| dir.join("prompts")), Ok) {
        Ok(directory) => Some(DiskTierOptions { directory, budget_bytes, report }),
        Err(error) => {
            report(&format!("the prompt cache is in memory only: {error}"));
            None
        }
    }
}

/// Memory is committed as it is used, so that a budget beyond the machine's starts, and ends badly
/// once it fills.
fn warn_of_memory(loaded: &Loaded, terminal: &Terminal) -> Result<(), Failure> {
    let info = loaded.engine.info();
    let need = MemoryNeed::of(&loaded.package).map_err(Failure::new)?;
    if need.weights_bytes.saturating_add(info.kv_budget_bytes) > info.memory_bytes {
        let [weights, budget, memory] =
            [need.weights_bytes, info.kv_budget_bytes, info.memory_bytes].map(bytes::show);
        let text = format!(
            "{weights} of weights and up to {budget} of K/V are more than the {memory} of memory \
             here; lower --kv-budget"
        );
        terminal.status("Warning", &text);
    }
    Ok(())
}

async fn listen(arguments: &ServeArguments) -> Result<TcpListener, Failure> {
    let (host, port) = (arguments.host.as_str(), arguments.port);
    TcpListener::bind((host, port)).await.map_err(|error| {
        let hint = match error.kind() {
            ErrorKind::AddrInUse | ErrorKind::PermissionDenied => {
                "choose another with --port, or 0 for a free one"
            }
            _ => "name an address of this machine with --host",
        };
        Failure::new(format!("cannot listen on {host}:{port}: {error}; {hint}"))
    })
}

async fn answer(
    arguments: &ServeArguments,
    listener: TcpListener,
    loaded: Loaded,
    options: ServerOptions,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let address = listener.local_addr()?;
    let date = arguments.template_date.as_deref();
    let prompts = arguments
        .warm
        .as_deref()
        .map(|path| warm::read(path, &loaded, date, options.callers.as_ref()));
    let prompts = prompts.transpose()?.unwrap_or_default();
    let has_prompts = !prompts.is_empty();
    if !is_loopback(address.ip()) && options.callers.is_none() {
        terminal.status("Warning", "anyone who reaches this address can use the model");
    }
    // Before the line that tells others they may begin: they may also end.
    let ending = Ending::new()?;
    // Always said, also with --quiet: programs read the port from it.
    let scheme = if options.tls.is_some() { "https" } else { "http" };
    say(format_args!("listening on {scheme}://{address}"));
    let ready = options.ready.clone();
    let engine = loaded.engine.clone();
    let is_ending = Cell::new(false);
    let ended = async {
        ending.first().await;
        is_ending.set(true);
    };
    let warming = warm::compute(prompts, engine.clone(), &is_ending, terminal);
    let serving = server::serve(listener, loaded.engine, loaded.package, options, ended);
    tokio::join!(serving, async {
        if has_prompts {
            warming.await;
        }
        if let Some(ready) = ready {
            ready.store(true, Ordering::Release);
        }
    });
    engine.shutdown();
    Ok(())
}

/// What ends the server: Ctrl-C and SIGTERM.
struct Ending {
    handler: Handler,
    terminate: Signal,
}

impl Ending {
    /// Noticed from now on.
    fn new() -> std::io::Result<Self> {
        Ok(Self { handler: Handler::new(), terminate: signal(SignalKind::terminate())? })
    }

    /// Resolves at the first. A second one ends the program at once.
    async fn first(mut self) {
        self.next().await;
        say(format_args!("finishing what runs; interrupt again to stop at once"));
        tokio::spawn(async move {
            self.next().await;
            std::process::exit(i32::from(interrupt::EXIT_CODE));
        });
    }

    async fn next(&mut self) {
        tokio::select! {
            () = self.handler.interrupted() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
