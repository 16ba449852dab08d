//! `refrain bench`: rates in llama-bench's test names, beside other engines and beside what the
//! machine could do at most.

mod answers;
mod busy;
mod clients;
mod engine;
mod growth;
mod peer;
mod report;
mod run;
mod servers;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use ::engine::{EngineOptions, KvType, Limits, MemoryNeed, Work};
use package::Package;

use self::clients::Texts;
use self::peer::{Peer, Setting};
use self::run::{LIMIT, OURS, PLAIN, Purpose, Question, Run, Test};
use self::servers::Whose;
use crate::cli::BenchArguments;
use crate::failure::Failure;
use crate::loading::{self, Loaded};
use crate::plot;
use crate::terminal::Terminal;

/// How long each limit is measured.
const LIMIT_SECONDS: f64 = 0.5;
/// A setting at this share of the best's rate may be better in truth.
const NEAR: f64 = 0.93;

pub(crate) fn run(arguments: &BenchArguments, terminal: &Terminal) -> Result<(), Failure> {
    let tests = tests(arguments);
    if tests.is_empty() && arguments.busy.is_empty() && !arguments.limits {
        return Err(Failure::Usage(
            "nothing to measure: give -p, -n, --clients or --busy".to_owned(),
        ));
    }
    let peer = |peer: &String| Peer::new(peer, arguments.kv.kv_type);
    let peers = arguments.peer.iter().map(peer).collect::<Result<Vec<_>, _>>()?;
    let models: Vec<&str> = match arguments.model.as_slice() {
        [] => vec![package::DEFAULT_MODEL],
        models => models.iter().map(String::as_str).collect(),
    };
    let file = arguments.runs.as_ref().map(|path| {
        File::options()
            .create(true)
            .append(true)
            .open(path)
            .map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))
    });
    let file = file.transpose()?;
    if let Some(path) = &arguments.plot {
        plot::check(path)?;
    }
    let mut bench =
        Bench { arguments, terminal, peers, file, runs: Vec::new(), limits: Vec::new() };
    for model in models {
        let path = loading::find(model, terminal)?;
        if !bench.peers.is_empty() && !path.is_file() {
            let message = "--peer needs models that are one GGUF file each";
            return Err(Failure::Usage(message.to_owned()));
        }
        let threads: Vec<Option<u16>> = match arguments.threads.as_slice() {
            [] => vec![None],
            counts => counts.iter().copied().map(Some).collect(),
        };
        for count in threads {
            bench.model(&path, count, &tests)?;
        }
    }
    if bench.runs.is_empty() && bench.limits.is_empty() {
        return Err(Failure::Usage("nothing was measured: give smaller -p, -n or -d".to_owned()));
    }
    report::write(&bench.runs, &bench.limits, arguments.json)?;
    arguments.plot.as_ref().map_or(Ok(()), |path| growth::draw(&bench.runs, path))
}

/// What is asked for: the tests of a comparison or a plot, or those of -p, -n, -d and -s; and those
/// of --clients.
fn tests(arguments: &BenchArguments) -> Vec<Test> {
    let mut tests = tests_of_one(arguments);
    for &clients in &arguments.clients {
        tests.extend([Test::ClientsCold { clients }, Test::ClientsWarm { clients }]);
    }
    tests
}

fn tests_of_one(arguments: &BenchArguments) -> Vec<Test> {
    if arguments.speculation {
        return Question::ALL.map(Test::Answer).to_vec();
    }
    if arguments.compare {
        let mut tests = vec![
            Test::Prefill { tokens: 512, depth: 0 },
            Test::Prefill { tokens: 2_048, depth: 0 },
        ];
        tests.extend([0, 64, 1_024, 4_096].map(|depth| Test::Decode { tokens: 128, depth }));
        tests.extend(Test::OF_SERVERS);
        return tests;
    }
    if arguments.plot.is_some() {
        return growth::tests();
    }
    let mut tests = Vec::new();
    for &depth in &arguments.depth {
        let some = |counts: &[u32]| counts.iter().copied().filter(|&count| count > 0).collect();
        let (prompts, generates): (Vec<u32>, Vec<u32>) =
            (some(&arguments.prompt), some(&arguments.generate));
        tests.extend(prompts.into_iter().map(|tokens| Test::Prefill { tokens, depth }));
        for tokens in generates {
            tests.extend(arguments.sequences.iter().map(|&sequences| match sequences {
                1 => Test::Decode { tokens, depth },
                _ => Test::Batch { sequences, tokens, depth },
            }));
        }
    }
    tests
}

/// Results so far, and what is needed to get more.
struct Bench<'a> {
    arguments: &'a BenchArguments,
    terminal: &'a Terminal,
    peers: Vec<Peer>,
    /// Where the runs are kept.
    file: Option<File>,
    runs: Vec<Run>,
    limits: Vec<Limits>,
}

/// A model at one number of threads.
struct Subject {
    path: PathBuf,
    name: String,
    loaded: Loaded,
    threads: u16,
}

impl Bench<'_> {
    /// All tests of one model at one number of threads.
    fn model(&mut self, path: &Path, count: Option<u16>, tests: &[Test]) -> Result<(), Failure> {
        let running = self.arguments.sequences.iter().copied().max().map_or(1, usize::from);
        let running =
            if self.arguments.busy.is_empty() { running } else { running.max(busy::RUNNING) };
        let options = EngineOptions {
            threads: count.map(usize::from),
            kv_type: self.arguments.kv.kv_type,
            max_running: Some(running),
            // Each step of decoding is to be one of plain decoding.
            speculation: false,
            ..EngineOptions::default()
        };
        let loaded = loading::load(path.to_str(), options.clone(), self.terminal)?;
        let threads = u16::try_from(loaded.engine.info().threads).unwrap_or(u16::MAX);
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let subject = Subject { path: path.to_owned(), name, loaded, threads };
        if self.arguments.limits {
            self.limits(&subject, tests)?;
        }
        let context = subject.loaded.engine.info().context as u32;
        if self.arguments.speculation {
            self.answers(&subject, options)?;
        }
        let (of_servers, of_engines): (Vec<Test>, Vec<Test>) =
            tests.iter().partition(|test| test.is_of_servers());
        for test in of_engines.into_iter().filter(|test| !matches!(test, Test::Answer(_))) {
            if engine::tokens_needed(test) > context {
                let text = format!("{test} needs more than the model's context of {context}");
                self.terminal.dim(&format!("{text}: left out"));
            } else {
                self.engines(&subject, test)?;
            }
        }
        for &tokens in &self.arguments.busy {
            self.busy(&subject, tokens)?;
        }
        let package = subject.loaded.package.clone();
        subject.loaded.engine.shutdown();
        let Subject { path, name, threads, .. } = subject;
        let mut asked: Vec<Option<u16>> = of_servers.iter().map(|test| test.clients()).collect();
        asked.dedup();
        for clients in asked {
            let (several, context) = match clients {
                None => (1, clients::CONTEXT),
                Some(clients) => (clients, clients::CONTEXT_OF_EACH),
            };
            let converses = package.chat_template.is_some();
            let purpose = Purpose { model: &path, threads, clients: several, context, converses };
            self.servers(purpose, clients, &name, &package)?;
        }
        Ok(())
    }

    /// The machine's rates, and what they allow for each test.
    fn limits(&mut self, subject: &Subject, tests: &[Test]) -> Result<(), Failure> {
        let package = &subject.loaded.package;
        let need = MemoryNeed::of(package).map_err(Failure::new)?;
        let info = subject.loaded.engine.info();
        let kv_bytes = info.kv_bytes_per_token as u64;
        let kv_type = KvType::of_name(info.kv_type);
        let kv_type = kv_type.ok_or_else(|| Failure::new("the engine's K/V has no known type"))?;
        let threads = usize::from(subject.threads);
        let limits = Limits::measure(threads, need.weights_bytes, LIMIT_SECONDS);
        let limits = limits.map_err(Failure::new)?;
        for &test in tests {
            let value = match test {
                Test::Prefill { tokens, depth } => {
                    let work = Work::prefill(package, tokens as usize, depth as usize, kv_type);
                    f64::from(tokens) / limits.least_s(&work)
                }
                Test::Decode { tokens, depth } => {
                    // Halfway, the depth is greater by half of what is decoded.
                    let depth = (depth + tokens / 2) as usize;
                    1.0 / limits.least_s(&Work::decode(package, depth, kv_type, kv_bytes))
                }
                _ => continue,
            };
            self.keep(&subject.name, test, subject.threads, LIMIT, String::new(), value)?;
        }
        self.limits.push(limits);
        Ok(())
    }

    /// A test of the engine as often as asked, ours and the peers' in turn.
    fn engines(&mut self, subject: &Subject, test: Test) -> Result<(), Failure> {
        let Subject { path, name, loaded, threads } = subject;
        let vocabulary = loaded.package.config.vocab as u32;
        // The first run warms caches and page tables up and is not counted.
        engine::run_once(&loaded.engine, test, vocabulary, 0)?;
        let mut rivals = Vec::new();
        for (index, peer) in self.peers.iter().enumerate() {
            let measure = |setting| peer.measure(path, test, *threads, setting);
            rivals
                .extend(best_settings(peer, measure)?.into_iter().map(|setting| (index, setting)));
        }
        for repetition in 1..=self.arguments.repetitions {
            let ours = engine::run_once(&loaded.engine, test, vocabulary, repetition.into())?;
            self.keep(name, test, *threads, OURS, String::new(), ours)?;
            for &(index, setting) in &rivals {
                let peer = &self.peers[index];
                if let Some(value) = peer.measure(path, test, *threads, setting)? {
                    let program = peer.name.clone();
                    self.keep(name, test, *threads, &program, setting.name(), value)?;
                }
            }
            let of = self.arguments.repetitions;
            self.terminal.dim(&format!("{name}, {threads} threads: {test} {repetition}/{of}"));
        }
        Ok(())
    }

    /// Four answers beside a prompt of so many tokens, as often as asked.
    fn busy(&mut self, subject: &Subject, tokens: u32) -> Result<(), Failure> {
        let Subject { name, loaded, threads, .. } = subject;
        let vocabulary = loaded.package.config.vocab as u32;
        for repetition in 1..=self.arguments.repetitions {
            let results = busy::run_once(&loaded.engine, tokens, vocabulary, repetition.into())?;
            for (test, value) in results {
                self.keep(name, test, *threads, OURS, String::new(), value)?;
            }
            let of = self.arguments.repetitions;
            self.terminal.dim(&format!("{name}, {threads} threads: busy {repetition}/{of}"));
        }
        Ok(())
    }

    /// Answers with guesses and without, in turn.
    fn answers(&mut self, subject: &Subject, options: EngineOptions) -> Result<(), Failure> {
        let Subject { path, name, loaded, threads } = subject;
        let options = EngineOptions { speculation: true, ..options };
        let guessing = loading::load(path.to_str(), options, self.terminal)?;
        let engines = [(OURS, &guessing.engine), (PLAIN, &loaded.engine)];
        let mut answers = Vec::new();
        for question in Question::ALL {
            let prompt = answers::prompt(&loaded.package, question)?;
            // The first run also measures what rows cost, and is not counted.
            let (with, _) = answers::ask(engines[0].1, &prompt)?;
            let (without, _) = answers::ask(engines[1].1, &prompt)?;
            if with != without {
                return Err(Failure::new(format!("{question}: another answer with guesses")));
            }
            answers.push((Test::Answer(question), prompt));
        }
        for repetition in 1..=self.arguments.repetitions {
            for (test, prompt) in &answers {
                for (program, engine) in engines {
                    let (_, rate) = answers::ask(engine, prompt)?;
                    self.keep(name, *test, *threads, program, String::new(), rate)?;
                }
            }
            let of = self.arguments.repetitions;
            self.terminal.dim(&format!("{name}, {threads} threads: answers {repetition}/{of}"));
        }
        guessing.engine.shutdown();
        Ok(())
    }

    /// The servers, each started anew for each repetition, and asked by one client or by several.
    fn servers(
        &mut self,
        purpose: Purpose<'_>,
        clients: Option<u16>,
        name: &str,
        package: &Package,
    ) -> Result<(), Failure> {
        let texts = |repetition| Texts::new(&package.tokenizer, repetition);
        let ask = |whose: Whose<'_>, texts: &Texts| {
            let server = whose.start(purpose)?;
            match clients {
                None => clients::one(&server, texts),
                Some(clients) => clients::several(&server, clients, texts),
            }
        };
        let threads = purpose.threads;
        let mut rivals = Vec::new();
        for (index, peer) in self.peers.iter().enumerate().filter(|(_, peer)| peer.serves()) {
            let texts = texts(0)?;
            let measure = |setting| {
                let results = ask(Whose::Theirs(peer, setting), &texts)?;
                let is_cold = |test| matches!(test, Test::Cold | Test::ClientsCold { .. });
                let cold = results.iter().find(|(test, _)| is_cold(*test));
                Ok(cold.map(|(_, ms)| 1.0 / ms))
            };
            let best = best_settings(peer, measure)?;
            rivals.extend(best.first().map(|&setting| (index, setting)));
        }
        for repetition in 1..=self.arguments.repetitions {
            let texts = texts(repetition.into())?;
            for (test, value) in ask(Whose::Ours(self.arguments.kv.kv_type), &texts)? {
                self.keep(name, test, threads, OURS, String::new(), value)?;
            }
            for &(index, setting) in &rivals {
                let peer = &self.peers[index];
                let program = peer.name.clone();
                for (test, value) in ask(Whose::Theirs(peer, setting), &texts)? {
                    self.keep(name, test, threads, &program, setting.name(), value)?;
                }
            }
            let of = self.arguments.repetitions;
            self.terminal.dim(&format!("{name}, {threads} threads: servers {repetition}/{of}"));
        }
        Ok(())
    }

    /// Keeps a result, in the file too.
    fn keep(
        &mut self,
        model: &str,
        test: Test,
        threads: u16,
        program: &str,
        setting: String,
        value: f64,
    ) -> Result<(), Failure> {
        let (model, program, unit) = (model.to_owned(), program.to_owned(), test.unit());
        let run = Run { model, test, threads, program, setting, unit, value };
        if let Some(file) = &mut self.file {
            let line = serde_json::to_string(&run).map_err(Failure::new)?;
            writeln!(file, "{line}")?;
        }
        self.runs.push(run);
        Ok(())
    }
}

/// The setting in which one run of the peer is fastest, and the next if it is nearly as fast: it
/// will be seen over many runs which is better.
fn best_settings(
    peer: &Peer,
    measure: impl Fn(Setting) -> Result<Option<f64>, Failure>,
) -> Result<Vec<Setting>, Failure> {
    let mut tried = Vec::new();
    for setting in peer.settings() {
        if let Some(rate) = measure(setting)? {
            tried.push((rate, setting));
        }
    }
    tried.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let near = tried.first().map_or(0.0, |(best, _)| best * NEAR);
    tried.retain(|(rate, _)| *rate >= near);
    Ok(tried.into_iter().take(2).map(|(_, setting)| setting).collect())
}
