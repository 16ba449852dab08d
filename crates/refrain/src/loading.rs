//! From what the user wrote to a running engine.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use engine::{Engine, EngineOptions};
use package::{Package, Progress};

use crate::engine_arguments::EngineArguments;
use crate::failure::Failure;
use crate::terminal::{Terminal, Work};
use crate::words::counted;

pub(crate) fn model_or_default(model: Option<&str>) -> &str {
    model.unwrap_or(package::DEFAULT_MODEL)
}

/// A model that is ready to answer.
pub(crate) struct Loaded {
    pub(crate) engine: Engine,
    pub(crate) package: Arc<Package>,
    pub(crate) load_ms: f64,
}

/// The file or directory of `model`; fetched first if it is not here yet.
pub(crate) fn find(model: &str, terminal: &Terminal) -> Result<PathBuf, Failure> {
    let fetching = Fetching(terminal.work("Fetching"));
    package::resolve(model, &fetching).map_err(Failure::new)
}

/// The file or directory of `model`, every byte of which has been checked.
pub(crate) fn fetch(model: &str, terminal: &Terminal) -> Result<PathBuf, Failure> {
    let fetching = Fetching(terminal.work("Fetching"));
    package::pull(model, &fetching).map_err(Failure::new)
}

/// Finds and opens `model`. One that was not given as a path goes by the name it was asked for.
pub(crate) fn open(model: Option<&str>, terminal: &Terminal) -> Result<Package, Failure> {
    let model = model_or_default(model);
    let path = find(model, terminal)?;
    let mut package = Package::open(&path).map_err(Failure::new)?;
    if path.as_os_str() != model {
        model.clone_into(&mut package.name);
    }
    Ok(package)
}

/// Finds, reads and packs `model`.
pub(crate) fn load(
    model: Option<&str>,
    options: EngineOptions,
    terminal: &Terminal,
) -> Result<Loaded, Failure> {
    find(model_or_default(model), terminal)?;
    let start = Instant::now();
    let package = Arc::new(open(model, terminal)?);
    let work = terminal.work("Loading");
    let progress = |done, total| work.set(done, total);
    let engine = Engine::start(package.clone(), options, &progress).map_err(Failure::new)?;
    drop(work);
    let load_ms = start.elapsed().as_secs_f64() * 1e3;
    let config = &package.config;
    let info = engine.info();
    terminal.status(
        "Loaded",
        &format!(
            "{} ({}, hidden {}, vocabulary {}) in {load_ms:.0} ms; {}, {}",
            package.name,
            counted(config.layers, "layer"),
            config.hidden,
            config.vocab,
            counted(info.threads, "thread"),
            info.isa
        ),
    );
    Ok(Loaded { engine, package, load_ms })
}

/// The engine's options as the flags set them.
pub(crate) fn options(arguments: &EngineArguments) -> EngineOptions {
    EngineOptions {
        threads: arguments.threads.map(usize::from),
        context: arguments.context.map(|tokens| tokens as usize),
        kv_bytes: arguments.kv_budget,
        kv_type: arguments.kv.kv_type,
        chunk_tokens: arguments.chunk.map(|tokens| tokens as usize),
        ..EngineOptions::default()
    }
}

struct Fetching(Work);

impl Progress for Fetching {
    fn stage(&self, text: &str) {
        self.0.stage(text);
    }

    fn bytes(&self, done: u64, total: Option<u64>) {
        self.0.set(done, total.unwrap_or(0));
    }
}
