//! Running other engines beside our own: the `llama-bench`, `llama-batched-bench` and
//! `llama-server` of llama.cpp, and of what descends from it.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use engine::KvType;
use serde_json::Value;

use super::run::{Purpose, Test};
use crate::failure::Failure;

/// What is read of a program's output; a result takes a few kilobytes.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;
/// The longest that a peer may take for one run.
const RUN_MAX: Duration = Duration::from_secs(600);
/// Contexts are whole multiples of so many tokens.
const CONTEXT_BLOCK: u32 = 256;
/// The longest that it may take to print its help.
const HELP_MAX: Duration = Duration::from_secs(20);

/// Another engine.
pub(super) struct Peer {
    pub(super) name: String,
    bench: PathBuf,
    /// The type of its K and V; its own default if nothing is said.
    kv_type: Option<KvType>,
    /// What its bench, its bench of batches and its server say of their options.
    bench_help: String,
    batched_help: Option<String>,
    server_help: Option<String>,
}

/// What the programs that lie beside the bench are called.
const BATCHED: &str = "llama-batched-bench";
const SERVER: &str = "llama-server";

/// Options of a peer, which may or may not be to its advantage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) flash_attention: bool,
    /// Whether weights are packed anew while loading, where the peer can.
    pub(super) repack: bool,
}

impl Setting {
    pub(super) fn name(self) -> String {
        let flash = if self.flash_attention { "fa" } else { "no fa" };
        format!("{flash}{}", if self.repack { ", repacked" } else { "" })
    }
}

impl Peer {
    /// `PATH` of a llama-bench, or `NAME=PATH`.
    pub(super) fn new(argument: &str, kv_type: Option<KvType>) -> Result<Peer, Failure> {
        let (name, bench) = match argument.split_once('=') {
            Some((name, path)) => (name.to_owned(), PathBuf::from(path)),
            None => ("peer".to_owned(), PathBuf::from(argument)),
        };
        if !bench.is_file() {
            let bench = bench.display();
            let message = format!("--peer {bench} is not a file; name a llama-bench binary");
            return Err(Failure::Usage(message));
        }
        // A name alone would be looked for in PATH, not in this folder.
        let bench = bench.canonicalize().map_err(Failure::new)?;
        let help_beside = |name: &str| {
            let program = bench.with_file_name(name);
            program.is_file().then(|| help_of(&program)).transpose()
        };
        let (batched_help, server_help) = (help_beside(BATCHED)?, help_beside(SERVER)?);
        Ok(Peer { name, bench_help: help_of(&bench)?, bench, kv_type, batched_help, server_help })
    }

    /// Whether there is a server beside the bench.
    pub(super) fn serves(&self) -> bool {
        self.server_help.is_some()
    }

    /// All settings that it has. Without flash attention it takes no quantized V.
    pub(super) fn settings(&self) -> Vec<Setting> {
        let repacks =
            if self.bench_help.contains("-rtr") { vec![false, true] } else { vec![false] };
        let all = |repack| [false, true].map(|flash_attention| Setting { flash_attention, repack });
        let takes =
            |setting: &Setting| setting.flash_attention || self.kv_type != Some(KvType::Q8_0);
        repacks.into_iter().flat_map(all).filter(takes).collect()
    }

    /// The type of K and V in the arguments of its programs.
    fn kv_arguments(&self) -> Vec<&'static str> {
        let name = self.kv_type.map(KvType::name);
        name.map_or(Vec::new(), |name| ["-ctk", name, "-ctv", name].to_vec())
    }

    /// One run; tokens per second. `None` if it cannot measure this.
    pub(super) fn measure(
        &self,
        model: &Path,
        test: Test,
        threads: u16,
        setting: Setting,
    ) -> Result<Option<f64>, Failure> {
        if let Test::Batch { sequences, tokens, depth } = test {
            return self.measure_batch(model, [sequences.into(), tokens, depth], threads, setting);
        }
        let Some(what) = self.arguments(test) else { return Ok(None) };
        let mut command = command_of(&self.bench);
        command.arg("-m").arg(model.canonicalize()?).args([
            "-t",
            &threads.to_string(),
            "-r",
            "1",
            "-o",
            "json",
        ]);
        command.args(["-fa", if setting.flash_attention { "1" } else { "0" }]).args(what);
        command.args(self.kv_arguments());
        if setting.repack {
            command.args(["-rtr", "1"]);
        }
        let output = self.output_of_run(command)?;
        self.read(parse(&output.stdout))
    }

    /// One run of its bench of batches, of so many sequences, tokens in each and tokens before
    /// them; tokens per second of all.
    fn measure_batch(
        &self,
        model: &Path,
        [sequences, tokens, depth]: [u32; 3],
        threads: u16,
        setting: Setting,
    ) -> Result<Option<f64>, Failure> {
        let Some(help) = &self.batched_help else { return Ok(None) };
        let mut command = command_of(&self.bench.with_file_name(BATCHED));
        command.arg("-m").arg(model.canonicalize()?).args(["-t", &threads.to_string()]);
        command.args(flash_arguments(help, setting)).args(self.kv_arguments());
        if setting.repack {
            command.arg("-rtr");
        }
        // One token is the least to decode from. Each sequence may get an equal share of the
        // context, in whole blocks.
        let depth = depth.max(1);
        let context = sequences * (depth + tokens).next_multiple_of(CONTEXT_BLOCK);
        for (option, value) in
            [("-npp", depth), ("-ntg", tokens), ("-npl", sequences), ("-c", context)]
        {
            command.args([option, &value.to_string()]);
        }
        let output = self.output_of_run(command)?;
        let lines = output.stdout.lines().chain(output.stderr.lines());
        self.read(lines.filter_map(|line| parse_batch(line, sequences)).next_back())
    }

    /// What a program printed that must succeed.
    fn output_of_run(&self, command: Command) -> Result<Output, Failure> {
        let output = output_of(command, &self.name, RUN_MAX)?;
        if !output.status.success() {
            let last = output.stderr.lines().last().unwrap_or("it said nothing");
            return Err(Failure::new(format!("{} failed ({}): {last}", self.name, output.status)));
        }
        Ok(output)
    }

    fn read(&self, rate: Option<f64>) -> Result<Option<f64>, Failure> {
        let unread = || Failure::new(format!("{} printed no result that can be read", self.name));
        rate.map(Some).ok_or_else(unread)
    }

    /// The test in llama-bench's arguments. Older ones know a depth only for decoding.
    fn arguments(&self, test: Test) -> Option<Vec<String>> {
        let (prompt, generate, depth) = match test {
            Test::Prefill { tokens, depth } => (tokens, 0, depth),
            Test::Decode { tokens, depth } => (0, tokens, depth),
            _ => return None,
        };
        let plain = |prompt: u32, generate: u32| {
            ["-p".to_owned(), prompt.to_string(), "-n".to_owned(), generate.to_string()].to_vec()
        };
        if depth == 0 {
            return Some(plain(prompt, generate));
        }
        if self.bench_help.contains("--n-depth") {
            let depth = ["-d".to_owned(), depth.to_string()];
            return Some([plain(prompt, generate), depth.to_vec()].concat());
        }
        let pair = ["-gp".to_owned(), format!("{depth},{generate}")];
        let knows = generate > 0 && self.bench_help.contains("-gp");
        knows.then(|| [plain(0, 0), pair.to_vec()].concat())
    }

    /// Its server on a port, ready to be started, for `clients` with a context of so many tokens
    /// each.
    pub(super) fn server(
        &self,
        purpose: Purpose<'_>,
        setting: Setting,
        port: u16,
    ) -> Result<Command, Failure> {
        let Purpose { model, threads, clients, context, converses: _ } = purpose;
        let mut command = command_of(&self.bench.with_file_name(SERVER));
        command.arg("-m").arg(model.canonicalize()?).args(["-t", &threads.to_string()]);
        command.args(["--host", "127.0.0.1", "--port", &port.to_string()]);
        let context = context * u32::from(clients);
        command.args(["-c", &context.to_string(), "-np", &clients.to_string()]);
        command.args(self.kv_arguments());
        let help = self.server_help.as_deref().unwrap_or_default();
        command.args(flash_arguments(help, setting));
        if setting.repack {
            command.arg("-rtr");
        }
        Ok(command)
    }
}

/// Flash attention, in the arguments of a program with this help. Newer programs take a word, older
/// ones have a plain flag, off unless given.
fn flash_arguments(help: &str, setting: Setting) -> &'static [&'static str] {
    match (help.contains("on|off"), setting.flash_attention) {
        (true, true) => &["-fa", "on"],
        (true, false) => &["-fa", "off"],
        (false, true) => &["-fa"],
        (false, false) => &[],
    }
}

/// A program that is run outside the current folder, into which some write a log.
fn command_of(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(std::env::temp_dir());
    command
}

/// What a program prints when asked for help.
fn help_of(program: &Path) -> Result<String, Failure> {
    let mut command = command_of(program);
    command.arg("--help");
    let output = output_of(command, &program.display().to_string(), HELP_MAX)?;
    Ok(output.stdout + &output.stderr)
}

/// How a program ended, and the beginnings of what it printed.
struct Output {
    status: ExitStatus,
    stdout: String,
    stderr: String,
}

/// Runs a program to its end, or kills it when that takes longer than `longest` or it prints more
/// than any result has.
fn output_of(mut command: Command, name: &str, longest: Duration) -> Result<Output, Failure> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let start = Instant::now();
    let spawned = command.spawn();
    let mut child = spawned.map_err(|error| Failure::new(format!("cannot run {name}: {error}")))?;
    let stdout = child.stdout.take().map(|pipe| std::thread::spawn(move || beginning(pipe)));
    let stderr = child.stderr.take().map(|pipe| std::thread::spawn(move || beginning(pipe)));
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > longest {
            child.kill()?;
            child.wait()?;
            let seconds = longest.as_secs();
            return Err(Failure::new(format!("{name} was stopped: it took {seconds} s")));
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let text = |reader: Option<std::thread::JoinHandle<Vec<u8>>>| {
        let bytes = reader.and_then(|reader| reader.join().ok()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    Ok(Output { status, stdout: text(stdout), stderr: text(stderr) })
}

/// What is read of a pipe. It is closed then, which ends a program that goes on printing.
fn beginning(pipe: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Whatever came before an error is as good as what there is.
    let _ = pipe.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes);
    bytes
}

/// The rate out of llama-bench's JSON: an array with one result.
fn parse(text: &str) -> Option<f64> {
    let start = text.find('[')?;
    let results: Value =
        serde_json::Deserializer::from_str(&text[start..]).into_iter().next()?.ok()?;
    results.get(0)?.get("avg_ts")?.as_f64()
}

/// The rate of decoding out of a line of llama-batched-bench's table, if it is one of results: the
/// prompt's tokens, decoded tokens, sequences, all tokens, and seconds and rate of the prompts, of
/// decoding and of both.
fn parse_batch(line: &str, sequences: u32) -> Option<f64> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    let cells: Vec<f64> = inner.split('|').map_while(|cell| cell.trim().parse().ok()).collect();
    match cells[..] {
        [_, _, count, _, _, _, _, rate, _, _] if count == f64::from(sequences) => Some(rate),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(bench_help: &str) -> Peer {
        Peer {
            name: "peer".to_owned(),
            bench: PathBuf::new(),
            kv_type: None,
            bench_help: bench_help.to_owned(),
            batched_help: None,
            server_help: None,
        }
    }

    #[test]
    fn the_rate_is_found_in_the_output() {
        let output =
            "build: warm\n[\n {\"n_prompt\": 512, \"avg_ts\": 503.25, \"stddev_ts\": 0.0}\n]\n";
        assert_eq!(parse(output), Some(503.25));
        assert_eq!(parse("[]"), None);
        assert_eq!(parse("no model"), None);
    }

    #[test]
    fn the_rate_of_a_batch_is_found_in_the_table() {
        let head = "|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |";
        let line = "|    16 |     64 |    8 |    640 |    0.050 |  2577.48 |    0.827 |   618.81 |\
                        0.877 |   729.72 |";
        assert_eq!(parse_batch(line, 8), Some(618.81));
        for other in [head, "|-----|-----|", "main: n_kv_max = 640", ""] {
            assert_eq!(parse_batch(other, 8), None, "{other}");
        }
        assert_eq!(parse_batch(line, 16), None);
    }

    #[test]
    fn flash_attention_is_asked_for_as_the_program_knows_it() {
        let setting = |flash_attention| Setting { flash_attention, repack: false };
        for newer in ["-fa [on|off|auto]", "-fa, --flash-attn (auto|on|off|0|1)"] {
            assert_eq!(flash_arguments(newer, setting(true)), ["-fa", "on"]);
            assert_eq!(flash_arguments(newer, setting(false)), ["-fa", "off"]);
        }
        assert_eq!(flash_arguments("-fa, --flash-attn", setting(true)), ["-fa"]);
        assert_eq!(flash_arguments("-fa, --flash-attn", setting(false)), [""; 0]);
    }

    #[test]
    fn a_program_that_never_ends_or_never_stops_printing_is_ended() {
        let run = |program: &str, argument: &str| {
            let mut command = Command::new(program);
            command.arg(argument);
            output_of(command, program, Duration::from_millis(300))
        };
        let start = Instant::now();
        let Err(Failure::Failed(message)) = run("sleep", "30") else { panic!("not ended") };
        assert!(message.starts_with("sleep was stopped"), "{message}");
        let output = run("yes", "no").expect("it ends when nobody reads");
        assert_eq!(output.stdout.len() as u64, OUTPUT_BYTES_MAX);
        assert!(!output.status.success() && start.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn a_depth_is_asked_for_as_the_peer_knows_it() {
        let decode = Test::Decode { tokens: 8, depth: 64 };
        let (new, old) = (peer("-d, --n-depth <n>"), peer("-gp <pp,tg>\n-rtr <0|1>"));
        assert_eq!(new.arguments(decode).unwrap(), ["-p", "0", "-n", "8", "-d", "64"]);
        assert_eq!(old.arguments(decode).unwrap(), ["-p", "0", "-n", "0", "-gp", "64,8"]);
        assert_eq!(old.arguments(Test::Prefill { tokens: 8, depth: 64 }), None);
        assert_eq!((new.settings().len(), old.settings().len()), (2, 4));
        assert_eq!(new.kv_arguments(), [""; 0]);
        let quantized = Peer { kv_type: Some(KvType::Q8_0), ..old };
        assert!(quantized.settings().iter().all(|setting| setting.flash_attention));
        assert_eq!(quantized.kv_arguments(), ["-ctk", "q8_0", "-ctv", "q8_0"]);
    }
}
