//! The flags of every command.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, value_parser};

use crate::bytes;
use crate::explain::Language;

const MODEL_HELP: &str = "A .gguf file, a directory with config.json, an alias (smollm2, \
    distilgpt2), hub:org/name[/file] or pip:package==version; left out, it is smollm2";

/// Serve open-weight language models on CPUs, keep the prefixes that come back, and say what was
/// reused and why not more.
#[derive(Parser)]
#[command(
    version,
    propagate_version = true,
    after_help = "\
Examples:
  refrain serve                      an OpenAI-compatible server on 127.0.0.1:8080
  refrain run                        a chat in the terminal
  refrain run -p 'Why is the sky blue?'
  refrain trace -p 'The cat sat on'  every step of the model, with its numbers
  refrain bench -p 512 -n 128        tokens per second, in llama-bench's test names"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Serve a model over the OpenAI API
    Serve(ServeArguments),
    /// Answer one prompt, or chat when the input is a terminal
    Run(RunArguments),
    /// Show every step of one prompt's way through the model, with its numbers
    Trace(TraceArguments),
    /// Fetch a model into the cache and verify it
    Pull(PullArguments),
    /// Say what is in a model package, and what memory serving it takes
    Info(InfoArguments),
    /// Show the tokens of a text
    Tokenize(TokenizeArguments),
    /// Say what one prompt reuses after another, and why not more, without a server
    Why(WhyArguments),
    /// Measure prefill and decode speed
    Bench(BenchArguments),
    /// Check a promise on a model
    Check(CheckArguments),
}

/// What is written besides the result.
#[derive(Args)]
pub(crate) struct OutputArguments {
    /// Colours: by default only on a terminal, and not when NO_COLOR is set
    #[arg(long, global = true, value_enum, default_value_t = When::Auto, value_name = "WHEN")]
    pub(crate) color: When,
    /// Progress bars: by default only on a terminal
    #[arg(long, global = true, value_enum, default_value_t = When::Auto, value_name = "WHEN")]
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
pub(crate) struct EngineArguments {
    /// Threads that compute [default: the physical cores this process may use]
    #[arg(short, long, env = "REFRAIN_THREADS", value_parser = value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// Longest prompt and answer together, in tokens [default: the model's, if memory allows]
    #[arg(
        long, env = "REFRAIN_CONTEXT", value_name = "TOKENS",
        value_parser = value_parser!(u32).range(16..)
    )]
    pub(crate) context: Option<u32>,
    /// Memory for K/V, running and cached [default: a quarter of the machine's memory]
    #[arg(long, env = "REFRAIN_KV_BUDGET", value_name = "SIZE", value_parser = bytes::parse)]
    pub(crate) kv_budget: Option<u64>,
    /// Prompt tokens computed in one step [default: 256]
    #[arg(
        long, env = "REFRAIN_CHUNK", value_name = "TOKENS",
        value_parser = value_parser!(u32).range(1..=65536)
    )]
    pub(crate) chunk: Option<u32>,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  refrain serve
  refrain serve ./model.gguf --port 8000 --kv-budget 2GiB
  curl 127.0.0.1:8080/v1/chat/completions \\
    -d '{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}'")]
pub(crate) struct ServeArguments {
    #[arg(help = MODEL_HELP)]
    pub(crate) model: Option<String>,
    /// Address to listen on; anything but loopback lets others in
    #[arg(long, default_value = "127.0.0.1", env = "REFRAIN_HOST")]
    pub(crate) host: String,
    /// Port to listen on; 0 picks a free one
    #[arg(long, default_value_t = 8080, env = "REFRAIN_PORT")]
    pub(crate) port: u16,
    #[command(flatten)]
    pub(crate) engine: EngineArguments,
    /// Answers that are computed at the same time; more requests wait [default: 16]
    #[arg(
        long, env = "REFRAIN_MAX_RUNNING", value_name = "N",
        value_parser = value_parser!(u16).range(1..=4096)
    )]
    pub(crate) max_running: Option<u16>,
    /// Requests that may wait; more are answered with 429 [default: 256]
    #[arg(
        long, env = "REFRAIN_MAX_QUEUE", value_name = "N",
        value_parser = value_parser!(u16).range(0..=65535)
    )]
    pub(crate) max_queue: Option<u16>,
    /// Do not keep prefixes for later requests
    #[arg(long)]
    pub(crate) no_prompt_cache: bool,
    /// Refuse requests that name another model
    #[arg(long)]
    pub(crate) strict_model: bool,
    /// The date that chat templates print, instead of today's (some templates break the cache
    /// at midnight)
    #[arg(long, value_name = "TEXT")]
    pub(crate) template_date: Option<String>,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  refrain run                                   chat; Ctrl-C stops an answer, Ctrl-D leaves
  refrain run -p 'Name three rivers.' --temperature 0
  refrain run ./model.gguf --raw -p 'The cat sat on' --max-tokens 8 --json")]
pub(crate) struct RunArguments {
    #[arg(help = MODEL_HELP)]
    pub(crate) model: Option<String>,
    /// The prompt; left out, it is read from the input, or asked for on a terminal
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) prompt: Option<String>,
    /// A system message before the conversation
    #[arg(long, value_name = "TEXT", conflicts_with = "raw")]
    pub(crate) system: Option<String>,
    /// Continue the text as it is, without the chat template
    #[arg(long)]
    pub(crate) raw: bool,
    /// Longest answer, in tokens [default: what the context leaves]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub(crate) max_tokens: Option<u32>,
    /// 0 takes the likeliest token each time [default: 0.2]
    #[arg(long, value_parser = number::<0, 2>)]
    pub(crate) temperature: Option<f32>,
    /// Draw among the K likeliest tokens; 0 is all of them [default: 0]
    #[arg(long, value_name = "K")]
    pub(crate) top_k: Option<u32>,
    /// Draw among the likeliest tokens that hold P of the probability [default: 0.9]
    #[arg(long, value_name = "P", value_parser = number::<0, 1>)]
    pub(crate) top_p: Option<f32>,
    /// Draw among tokens at least P times as likely as the likeliest [default: 0]
    #[arg(long, value_name = "P", value_parser = number::<0, 1>)]
    pub(crate) min_p: Option<f32>,
    /// Draws are a function of this number [default: another one each time]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) engine: EngineArguments,
    /// One JSON document (schema refrain.run/1)
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  refrain trace -p 'The cat sat on'
  refrain trace ./model.gguf -p 'The cat sat on' --layer 3 --head 1 --query 2
  refrain trace -p 'The cat sat on' --decode 2 --rows --top 3
  refrain trace -p 'The cat sat on' --explain --lang zh
  refrain trace -p 'The cat sat on' --tensor 'blocks.0.attn.hook_pattern[0,0,-1]'
  refrain trace -p 'The cat sat on' --decode 1 --tensor 'decode.0.kv_cache.0.keys[0,0]'
  refrain trace -p 'The cat sat on' --save cat.safetensors
  refrain trace -p 'The cat sat on' --compare pytorch.safetensors --tolerance 0.01
  refrain trace -p 'The cat sat on' --json | jq .attention.weights")]
pub(crate) struct TraceArguments {
    #[arg(help = MODEL_HELP)]
    pub(crate) model: Option<String>,
    /// The prompt, taken as it is: without the chat template
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) prompt: String,
    /// Take the prompt as a user's message and render the chat template around it
    #[arg(long)]
    pub(crate) chat: bool,
    /// The layer to look into, counted from 0
    #[arg(long, default_value_t = 0, value_name = "L")]
    pub(crate) layer: usize,
    /// The attention head to look into, counted from 0
    #[arg(long, default_value_t = 0, value_name = "H")]
    pub(crate) head: usize,
    /// The token whose attention is shown, counted from 0; -1 is the last
    #[arg(long, default_value_t = -1, value_name = "Q", allow_negative_numbers = true)]
    pub(crate) query: i64,
    /// Decode so many tokens, each the likeliest, and show how the KV cache grows
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) decode: usize,
    /// How many of the likeliest tokens are listed
    #[arg(
        long, default_value_t = 5, value_name = "K",
        value_parser = value_parser!(u16).range(1..=1000)
    )]
    pub(crate) top: u16,
    /// List the likeliest tokens after every token of the prompt
    #[arg(long)]
    pub(crate) rows: bool,
    /// Say what each step is for
    #[arg(long)]
    pub(crate) explain: bool,
    /// The language of --explain [default: by LANG]
    #[arg(long, value_enum)]
    pub(crate) lang: Option<Language>,
    /// Threads that compute [default: the physical cores this process may use]
    #[arg(short, long, env = "REFRAIN_THREADS", value_parser = value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// Show this tensor instead, by its name or alias, whole or in part: hook_embed[0,3,:8]; --json
    /// lists the names, those of decode step 0 begin with decode.0.; can be given several times
    #[arg(long, value_name = "NAME[SLICE]")]
    pub(crate) tensor: Vec<String>,
    /// Save all tensors, or those of --tensor, to a .safetensors, .npy or .json file
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
    /// Compare with the tensors of a .safetensors, .npy or .json file; exits with 3 if one differs
    #[arg(long, value_name = "FILE")]
    pub(crate) compare: Option<PathBuf>,
    /// Largest difference of two numbers that --compare lets pass
    #[arg(long, default_value_t = 1e-3, value_name = "X", value_parser = tolerance)]
    pub(crate) tolerance: f64,
    /// One JSON document (schema refrain.trace/1; refrain.tensors/1 with --tensor,
    /// refrain.compare/1 with --compare)
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct PullArguments {
    #[arg(help = MODEL_HELP)]
    pub(crate) model: Option<String>,
    /// One JSON document (schema refrain.pull/1)
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct InfoArguments {
    #[arg(help = MODEL_HELP)]
    pub(crate) model: Option<String>,
    /// One JSON document (schema refrain.info/1)
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
#[command(override_usage = "refrain tokenize [OPTIONS] [MODEL] <TEXT>")]
pub(crate) struct TokenizeArguments {
    /// The model whose tokenizer to use (left out: smollm2), and the text
    #[arg(required = true, num_args = 1..=2, value_name = "TEXT")]
    pub(crate) words: Vec<String>,
    /// One JSON document (schema refrain.tokenize/1)
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
#[command(after_help = "\
A file holds the body of a request, as OpenAI's or Anthropic's clients send it ({\"messages\": …}
or {\"prompt\": …}), or else a plain text. Only the model's tokenizer and chat template are read.
The verdict is of the prompts alone: a server also keeps the first one's answer.

Examples:
  refrain why --prompt a.json --against b.json
  refrain why ./model.gguf --prompt before.txt --against after.txt --json")]
pub(crate) struct WhyArguments {
    #[arg(help = MODEL_HELP)]
    pub(crate) model: Option<String>,
    /// The request that came first
    #[arg(long, value_name = "FILE")]
    pub(crate) prompt: PathBuf,
    /// The request that comes after it, whose verdict this is
    #[arg(long, value_name = "FILE")]
    pub(crate) against: PathBuf,
    /// The date that the chat template prints, instead of today's
    #[arg(long, value_name = "TEXT")]
    pub(crate) template_date: Option<String>,
    /// One JSON document (schema refrain.why/1)
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  refrain bench                                      pp512 and tg128
  refrain bench -p 512,2048 -n 128 -d 0,4096 -t 1,2
  refrain bench --peer ../llama.cpp/build/bin/llama-bench --json")]
pub(crate) struct BenchArguments {
    #[arg(help = MODEL_HELP)]
    pub(crate) model: Option<String>,
    /// Prompt lengths to prefill; 0 leaves prefill out
    #[arg(short = 'p', long, value_delimiter = ',', default_value = "512")]
    pub(crate) prompt: Vec<u32>,
    /// Numbers of tokens to decode; 0 leaves decode out
    #[arg(short = 'n', long, value_delimiter = ',', default_value = "128")]
    pub(crate) generate: Vec<u32>,
    /// Depths: tokens already in the KV cache before the measurement
    #[arg(short, long, value_delimiter = ',', default_value = "0")]
    pub(crate) depth: Vec<u32>,
    /// Numbers of threads [default: the physical cores this process may use]
    #[arg(short, long, value_delimiter = ',', value_parser = value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Vec<u16>,
    /// Repetitions of each test; the median is reported
    #[arg(short, long, default_value_t = 5, value_parser = value_parser!(u16).range(1..=1000))]
    pub(crate) repetitions: u16,
    /// A llama-bench binary to run beside, interleaved, at its better flash attention setting
    #[arg(long, value_name = "PATH")]
    pub(crate) peer: Option<PathBuf>,
    /// One JSON document (schema refrain.bench/1)
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
    /// Reuse, chunks, threads and neighbours change no bit of the logits; exits with 3 if they do
    Exact(CheckExactArguments),
    /// The article's checklist, row by row; exits with 3 if a row is not ok
    Article(CheckArticleArguments),
}

#[derive(Args)]
#[command(after_help = "\
Rows need a model of DistilGPT-2's shape (C), GPT-2's vocabulary (T), any model (R), a server on it
(S), DistilGPT-2's real weights (W) or a reader (D); a row whose need is not met is 'not run'.

Examples:
  refrain check article
  refrain check article ./random-distilgpt2 --json
  refrain check article --distilgpt2 ./distilgpt2")]
pub(crate) struct CheckArticleArguments {
    #[arg(help = MODEL_HELP)]
    pub(crate) model: Option<String>,
    /// A folder with DistilGPT-2's real weights, for the rows whose numbers only they give
    #[arg(long, env = "REFRAIN_DISTILGPT2", value_name = "FOLDER")]
    pub(crate) distilgpt2: Option<PathBuf>,
    /// Threads that compute [default: the physical cores this process may use]
    #[arg(short, long, env = "REFRAIN_THREADS", value_parser = value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// One JSON document (schema refrain.article/1)
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct CheckExactArguments {
    #[arg(help = MODEL_HELP)]
    pub(crate) model: Option<String>,
    /// One JSON document (schema refrain.exact/1)
    #[arg(long)]
    pub(crate) json: bool,
}

fn tolerance(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number >= 0.0 => Ok(number),
        _ => Err("must be a number, zero or more".to_owned()),
    }
}

/// A number between `LOW` and `HIGH`.
fn number<const LOW: i32, const HIGH: i32>(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(number) if (LOW as f32..=HIGH as f32).contains(&number) => Ok(number),
        _ => Err(format!("must be a number between {LOW} and {HIGH}")),
    }
}
