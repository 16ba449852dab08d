//! `refrain info`: what is in a model package, and what serving it will take.

use std::collections::BTreeMap;
use std::io::Write;

use anstyle::Style;
use engine::MemoryNeed;
use package::{Activation, Biases, Config, Package, RopeScaling, Tensor, Tokenizer};
use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr;

use crate::bytes;
use crate::cli::InfoArguments;
use crate::failure::Failure;
use crate::loading;
use crate::quoted::{quoted, visible};
use crate::screen::Screen;
use crate::terminal::Terminal;
use crate::words::counted;

/// What a model package is not.
const OPEN: &str = "Open weights are numbers that can be run; they are not open code, open data \
    or open training.";

pub(crate) fn run(arguments: &InfoArguments, terminal: &Terminal) -> Result<(), Failure> {
    let package = loading::open(arguments.model.as_deref(), terminal)?;
    let memory = MemoryNeed::of(&package).map_err(Failure::new)?;
    let mut out = anstream::stdout();
    if arguments.json {
        writeln!(out, "{}", document(&package, &memory))?;
        return Ok(());
    }
    line(&mut out, "model", &package.name)?;
    write_path(&mut out, &visible(&package.path.display().to_string()))?;
    line(&mut out, "licence", package.license.as_deref().unwrap_or("not stated"))?;
    write_config(&mut out, &package.config)?;
    write_text(&mut out, &package)?;
    write_memory(&mut out, &package.config, &memory)?;
    write_tensors(&mut out, &package)?;
    let screen = Screen::detect();
    writeln!(out, "\n{}", screen.wrap(OPEN, screen.width).join("\n"))?;
    Ok(())
}

// For people.

/// Columns of a line's label.
const LABEL: usize = 15;

/// A path is to be copied, and so stays whole; a long one gets a line of its own.
fn write_path(out: &mut impl Write, path: &str) -> std::io::Result<()> {
    let dim = Style::new().dimmed();
    if LABEL + path.width() <= Screen::detect().width {
        return writeln!(out, "{dim}{:<LABEL$}{dim:#}{path}", "files");
    }
    writeln!(out, "{dim}files{dim:#}\n{path}")
}

fn heading(out: &mut impl Write, text: &str) -> std::io::Result<()> {
    let bold = Style::new().bold();
    writeln!(out, "\n{bold}{text}{bold:#}")
}

fn line(out: &mut impl Write, label: &str, text: &str) -> std::io::Result<()> {
    writeln!(out, "{}", Screen::detect().labelled(label, LABEL, text))
}

fn write_config(out: &mut impl Write, config: &Config) -> std::io::Result<()> {
    let Config { layers, hidden, heads, kv_heads, head_dim, intermediate, .. } = config;
    heading(out, "Configuration")?;
    line(out, "architecture", config.architecture.name())?;
    line(out, "layers", &layers.to_string())?;
    line(out, "hidden", &hidden.to_string())?;
    line(out, "heads", &format!("{heads} of {head_dim}, {kv_heads} for keys and values"))?;
    line(out, "MLP", &format!("{intermediate}, {}", activation(config.activation)))?;
    line(out, "vocabulary", &config.vocab.to_string())?;
    line(out, "context", &counted(config.context, "token"))?;
    let positions = match &config.rope {
        None => "learned".to_owned(),
        Some(rope) => match rope.scaling {
            RopeScaling::None => format!("rotary, base {}", rope.base),
            RopeScaling::Linear { factor } => {
                format!("rotary, base {}, divided by {factor}", rope.base)
            }
            RopeScaling::Llama3 { factor, original_context, .. } => format!(
                "rotary, base {}, Llama 3's scaling by {factor} from {original_context} tokens",
                rope.base
            ),
        },
    };
    line(out, "positions", &positions)?;
    line(out, "norm epsilon", &config.norm_epsilon.to_string())?;
    let head = match config.tied_head {
        true => "tied: the token embedding is the head too, in memory once",
        false => "not tied: the head has weights of its own",
    };
    line(out, "head", head)
}

fn write_text(out: &mut impl Write, package: &Package) -> std::io::Result<()> {
    let tokenizer = &package.tokenizer;
    heading(out, "Tokenizer")?;
    line(out, "kind", tokenizer.kind())?;
    line(out, "vocabulary", &counted(tokenizer.vocab_size(), "token"))?;
    let token = |id: u32| format!("{} ({id})", quoted(tokenizer.bytes(id).unwrap_or_default()));
    let screen = Screen::detect();
    let list = |ids: &[u32]| {
        let tokens: Vec<String> = ids.iter().map(|&id| token(id)).collect();
        screen.list(&tokens, "  ", screen.width - LABEL)
    };
    let special = special(tokenizer);
    line(out, "special", &counted(special.len(), "token"))?;
    if !special.is_empty() {
        line(out, "", &list(&special))?;
    }
    let bos = tokenizer.bos().map_or("none".to_owned(), token);
    let added = if tokenizer.adds_bos() { "put before a text" } else { "not put before a text" };
    line(out, "begin", &format!("{bos}, {added}"))?;
    let ends = tokenizer.end_ids();
    line(out, "end", &if ends.is_empty() { "none".to_owned() } else { list(ends) })?;
    let template = match package.chat_template {
        Some(_) => "there is one",
        None => "none: a base model, which continues text",
    };
    line(out, "chat template", template)
}

fn write_memory(out: &mut impl Write, config: &Config, need: &MemoryNeed) -> std::io::Result<()> {
    heading(out, "Memory that serving takes")?;
    line(out, "weights", &bytes::show(need.weights_bytes))?;
    let Config { layers, kv_heads, head_dim, context, .. } = config;
    let token = bytes::show(need.kv_bytes_per_token);
    let kv =
        format!("{token}: 2 × {layers} layers × {kv_heads} heads × {head_dim}, {}", need.kv_type);
    line(out, "K/V per token", &kv)?;
    let whole = bytes::show(need.kv_bytes_at_context);
    line(out, "K/V at context", &format!("{whole} for one sequence of {context} tokens"))?;
    let budget = bytes::show(need.kv_budget_bytes);
    let budget = format!("{budget} on this machine: up to {} tokens each", need.context);
    line(out, "K/V budget", &budget)
}

fn write_tensors(out: &mut impl Write, package: &Package) -> std::io::Result<()> {
    let tensors: Vec<Tensor> = package.weights.tensors().collect();
    heading(out, &format!("Tensors: {}", tensors.len()))?;
    let rows = tensors.iter().map(|tensor| {
        let (shape, bytes) = (format!("{:?}", tensor.shape), tensor.bytes.len() as u64);
        [tensor.name.to_string(), shape, tensor.dtype.name().to_owned(), bytes::show(bytes)]
    });
    let rows: Vec<[String; 4]> = rows.collect();
    let widest = |column: usize| rows.iter().map(|row| row[column].width()).max().unwrap_or(0);
    let [mut name, shape, dtype, size] = [0, 1, 2, 3].map(widest);
    let screen = Screen::detect();
    name = name.min(screen.width.saturating_sub(shape + dtype + size + 6).max(8));
    for row in &rows {
        let first = screen.fit(&row[0], name);
        writeln!(
            out,
            "{first}{:gap$}  {:<shape$}  {:<dtype$}  {:>size$}",
            "",
            row[1],
            row[2],
            row[3],
            gap = name.saturating_sub(first.width()),
        )?;
    }
    let totals = totals(&tensors);
    writeln!(out)?;
    for (dtype, total) in &totals.by_type {
        let text = format!(
            "{} in {}, {} numbers",
            bytes::show(total.bytes),
            counted(total.tensors, "tensor"),
            total.numbers
        );
        line(out, dtype, &text)?;
    }
    let Total { bytes, numbers, .. } = totals.all;
    line(out, "total", &format!("{}, {numbers} numbers", bytes::show(bytes)))
}

fn special(tokenizer: &Tokenizer) -> Vec<u32> {
    (0..tokenizer.vocab_size() as u32).filter(|&id| tokenizer.is_special(id)).collect()
}

fn activation(activation: Activation) -> &'static str {
    match activation {
        Activation::Gelu => "gelu",
        Activation::GeluTanh => "gelu_tanh",
        Activation::Silu => "silu",
    }
}

/// What several tensors come to.
#[derive(Default)]
struct Total {
    tensors: usize,
    numbers: u64,
    bytes: u64,
}

struct Totals {
    all: Total,
    by_type: BTreeMap<&'static str, Total>,
}

fn totals(tensors: &[Tensor<'_>]) -> Totals {
    let mut totals = Totals { all: Total::default(), by_type: BTreeMap::new() };
    for tensor in tensors {
        let of_type = totals.by_type.entry(tensor.dtype.name()).or_default();
        for total in [&mut totals.all, of_type] {
            total.tensors += 1;
            total.numbers += tensor.shape.iter().map(|&size| size as u64).product::<u64>();
            total.bytes += tensor.bytes.len() as u64;
        }
    }
    totals
}

// For programs.

fn document(package: &Package, memory: &MemoryNeed) -> Value {
    let tensors: Vec<Tensor> = package.weights.tensors().collect();
    let totals = totals(&tensors);
    let total = |total: &Total| {
        let Total { tensors, numbers, bytes } = total;
        json!({"tensors": tensors, "numbers": numbers, "bytes": bytes})
    };
    let one = |tensor: &Tensor| {
        json!({
            "name": tensor.name, "shape": tensor.shape, "type": tensor.dtype.name(),
            "bytes": tensor.bytes.len(),
        })
    };
    let by_type: serde_json::Map<_, _> =
        totals.by_type.iter().map(|(name, of)| ((*name).to_owned(), total(of))).collect();
    json!({
        "schema": "refrain.info/1",
        "model": package.name,
        "path": package.path,
        "license": package.license,
        "config": config(&package.config),
        "tokenizer": tokenizer(&package.tokenizer),
        "chat_template": package.chat_template.is_some(),
        "memory": memory,
        "totals": {"all": total(&totals.all), "by_type": by_type},
        "tensors": tensors.iter().map(one).collect::<Vec<_>>(),
        "note": OPEN,
    })
}

fn config(config: &Config) -> Value {
    let biases = match config.biases {
        Biases::Unstated => Value::Null,
        Biases::Stated { attention, mlp } => json!({"attention": attention, "mlp": mlp}),
    };
    let rope = config.rope.as_ref().map(|rope| {
        let scaling = match rope.scaling {
            RopeScaling::None => Value::Null,
            RopeScaling::Linear { factor } => json!({"kind": "linear", "factor": factor}),
            RopeScaling::Llama3 {
                factor,
                low_frequency_factor,
                high_frequency_factor,
                original_context,
            } => json!({
                "kind": "llama3",
                "factor": factor,
                "low_frequency_factor": low_frequency_factor,
                "high_frequency_factor": high_frequency_factor,
                "original_context": original_context,
            }),
        };
        let factors = rope.frequency_factors.as_ref();
        let factors = factors.map(|all| all.iter().copied().map(shortest).collect::<Vec<_>>());
        json!({
            "base": rope.base, "dims": rope.dims, "scaling": scaling,
            "frequency_factors": factors,
        })
    });
    json!({
        "architecture": config.architecture.name(),
        "layers": config.layers,
        "hidden": config.hidden,
        "heads": config.heads,
        "kv_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "intermediate": config.intermediate,
        "vocab": config.vocab,
        "context": config.context,
        "norm_epsilon": shortest(config.norm_epsilon),
        "activation": activation(config.activation),
        "rope": rope,
        "tied_head": config.tied_head,
        "biases": biases,
    })
}

/// The number that is written with the fewest digits of those that round to this one: 1e-5, and not
/// all the digits that its f32 has as an f64.
fn shortest(number: f32) -> f64 {
    number.to_string().parse().unwrap_or(f64::from(number))
}

fn tokenizer(tokenizer: &Tokenizer) -> Value {
    let token = |id: u32| json!({"id": id, "text": tokenizer.decode(&[id], true)});
    let list = |ids: &[u32]| ids.iter().map(|&id| token(id)).collect::<Vec<_>>();
    json!({
        "kind": tokenizer.kind(),
        "vocab": tokenizer.vocab_size(),
        "special": list(&special(tokenizer)),
        "bos": tokenizer.bos().map(token),
        "adds_bos": tokenizer.adds_bos(),
        "ends": list(tokenizer.end_ids()),
    })
}
