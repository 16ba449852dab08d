//! `refrain cache`: prompt caches. `replay` says what one would have reused of a trace; the other
//! commands ask a running server.

use std::fs::File;
use std::io::{BufReader, Write};

use anstyle::Style;
use doctor::{AtCapacity, PromptMaker, Replay, Trace, TraceFormat};
use package::Package;
use serde_json::json;

use crate::cli::{CacheArguments, CacheCommand, CacheReplayArguments};
use crate::commands::cache_order;
use crate::failure::Failure;
use crate::loading;
use crate::plot::{self, Curve, Panel, SeriesLabelPosition};
use crate::terminal::Terminal;
use crate::values::Capacity;
use crate::words::{counted, grouped};

/// Parts of the trace whose hit rates are drawn.
const PARTS: usize = 48;
/// The curve by capacity goes on from the least that was asked for by so many halvings, and from
/// the most by so many doublings.
const CURVE_HALVINGS: u32 = 4;
const CURVE_DOUBLINGS: u32 = 2;
/// Columns of a label, and of a number.
const LABEL: usize = 21;
const NUMBER: usize = 14;

pub(crate) fn run(arguments: &CacheArguments, terminal: &Terminal) -> Result<(), Failure> {
    match &arguments.command {
        CacheCommand::Order(order) => cache_order::run(order),
        CacheCommand::Replay(arguments) => replay(arguments, terminal),
        CacheCommand::Incident(arguments) => super::incident::run(arguments, terminal),
    }
}

fn replay(arguments: &CacheReplayArguments, terminal: &Terminal) -> Result<(), Failure> {
    if let Some(path) = &arguments.plot {
        plot::check(path)?;
    }
    let name = arguments.file.display().to_string();
    let failed = |problem: &dyn std::fmt::Display| Failure::new(format!("{name}: {problem}"));
    let file = File::open(&arguments.file).map_err(|error| failed(&error))?;
    // 0 where it is not known, as of a pipe.
    let bytes = file.metadata().map_or(0, |metadata| metadata.len());
    let trace = Trace::open(BufReader::new(file)).map_err(|error| failed(&error))?;
    let text = match trace.format() {
        TraceFormat::Mooncake => None,
        TraceFormat::Requests => {
            let model = loading::model_or_default(arguments.model.as_deref());
            Some(Package::open_text(&loading::find(model, terminal)?).map_err(Failure::new)?)
        }
    };
    let maker = text.as_ref().map(|text| PromptMaker {
        tokenizer: &text.tokenizer,
        chat_template: text.chat_template.as_ref(),
        date: None,
        // What would have been reused does not depend on how much one model reads.
        context: None,
        known: None,
    });
    let mut capacities: Vec<Option<u64>> = arguments.capacity.iter().map(|one| one.0).collect();
    let asked = capacities.len();
    if arguments.plot.is_some() {
        capacities.extend(curve_capacities(&capacities));
    }
    let work = terminal.work("Replaying");
    let mut progress = |done| work.set(done, bytes);
    let mut replay =
        trace.replay(&capacities, maker, &mut progress).map_err(|error| failed(&error))?;
    drop(work);
    let of_curve = replay.capacities.split_off(asked);
    if let Some(path) = &arguments.plot {
        plot::draw(&[over_trace(&replay), by_capacity(&replay, &of_curve)], path)?;
    }
    write(&replay, &name, arguments.json)
}

/// Capacities between and around those that were asked for, a factor of two apart.
fn curve_capacities(asked: &[Option<u64>]) -> Vec<Option<u64>> {
    let bounded = || asked.iter().flatten().copied();
    let (Some(least), Some(most)) = (bounded().min(), bounded().max()) else { return Vec::new() };
    let least = least >> CURVE_HALVINGS;
    let doublings = (most / least.max(1)).max(1).ilog2() + CURVE_DOUBLINGS;
    let all = (0..=doublings).map(|doubling| least << doubling);
    all.filter(|capacity| *capacity >= 512 && !bounded().any(|one| one == *capacity))
        .map(Some)
        .collect()
}

fn percent(share: &f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

fn over_trace(replay: &Replay) -> Panel {
    let curve = |one: &AtCapacity| Curve {
        name: Capacity(one.capacity_tokens).to_string(),
        points: one.over_trace(PARTS).iter().map(|&(end, rate)| (end as f64, rate)).collect(),
    };
    Panel {
        title: "Hit rate over the trace, by requests",
        curves: replay.capacities.iter().map(curve).collect(),
        x_min: 0.0,
        x_label: |requests| grouped(*requests as u64),
        y_label: percent,
        marked: false,
        names: SeriesLabelPosition::UpperLeft,
        // The curves are high where their names stand.
        head_room: 1.35,
    }
}

/// The curves by capacity, in a scale of powers of two.
fn by_capacity(replay: &Replay, of_curve: &[AtCapacity]) -> Panel {
    let mut bounded: Vec<(f64, &AtCapacity)> = replay
        .capacities
        .iter()
        .chain(of_curve)
        .filter_map(|one| Some(((one.capacity_tokens? as f64).log2(), one)))
        .collect();
    bounded.sort_by(|one, other| one.0.total_cmp(&other.0));
    let x_min = bounded.first().map_or(0.0, |first| first.0.floor());
    let points =
        |rate: fn(&AtCapacity) -> f64| bounded.iter().map(|&(x, one)| (x, rate(one))).collect();
    let mut curves = vec![
        Curve { name: "whole trace".to_owned(), points: points(|one| one.hit_rate) },
        Curve { name: "last half".to_owned(), points: points(|one| one.last_half_hit_rate) },
    ];
    let unbounded = replay.capacities.iter().find(|one| one.capacity_tokens.is_none());
    if let (Some(unbounded), Some(last)) = (unbounded, bounded.last()) {
        let level = |rate| vec![(x_min, rate), (last.0, rate)];
        curves
            .push(Curve { name: "whole, unbounded".to_owned(), points: level(unbounded.hit_rate) });
        curves.push(Curve {
            name: "last half, unbounded".to_owned(),
            points: level(unbounded.last_half_hit_rate),
        });
    }
    Panel {
        title: "Hit rate by capacity, in tokens",
        curves,
        x_min,
        x_label: |power| match power.fract() == 0.0 {
            true => Capacity(Some(2_f64.powf(*power) as u64)).to_string(),
            false => String::new(),
        },
        y_label: percent,
        marked: true,
        names: SeriesLabelPosition::LowerRight,
        head_room: 1.05,
    }
}

fn write(replay: &Replay, file: &str, as_json: bool) -> Result<(), Failure> {
    let mut out = anstream::stdout();
    if as_json {
        let mut document = json!({"schema": "refrain.replay/1", "file": file});
        let found = serde_json::to_value(replay).map_err(Failure::new)?;
        if let (Some(document), Some(found)) = (document.as_object_mut(), found.as_object()) {
            document.extend(found.clone());
        }
        writeln!(out, "{document}")?;
        return Ok(());
    }
    let (dim, bold) = (Style::new().dimmed(), Style::new().bold());
    let requests = grouped(replay.requests as u64);
    let within = replay.duration_ms.map_or(String::new(), |ms| format!(" in {}", duration(ms)));
    let block = counted(replay.block_tokens as usize, "token");
    let tokens = grouped(replay.prompt_tokens);
    writeln!(out, "{dim}{:<LABEL$}{dim:#}{requests}{within}", "requests")?;
    writeln!(out, "{dim}{:<LABEL$}{dim:#}{tokens}, held in blocks of {block}", "prompt tokens")?;
    if replay.embeddings > 0 {
        let left_out = counted(replay.embeddings, "request");
        writeln!(out, "{dim}{:<LABEL$}{dim:#}{left_out} for embeddings", "left out")?;
    }
    writeln!(out)?;
    let head = ["hit rate", "last half", "reused", "computed"];
    writeln!(out, "{dim}{:<LABEL$}{}{dim:#}", "capacity", columns(head))?;
    for one in &replay.capacities {
        let capacity = Capacity(one.capacity_tokens).to_string();
        let rates =
            [one.hit_rate, one.last_half_hit_rate].map(|rate| format!("{:.2} %", 100.0 * rate));
        let [rate, last_half] = &rates;
        let (reused, computed) = (grouped(one.reused_tokens), grouped(one.computed_tokens));
        writeln!(
            out,
            "{bold}{capacity:<LABEL$}{bold:#}{}",
            columns([rate, last_half, &reused, &computed])
        )?;
    }
    for one in &replay.capacities {
        let capacity = format!("stops at {}", Capacity(one.capacity_tokens));
        writeln!(out)?;
        let head = ["requests", "", "reused", "computed"];
        writeln!(out, "{dim}{capacity:<LABEL$}{}{dim:#}", columns(head))?;
        for stop in &one.stops {
            let numbers = [stop.requests, stop.reused_tokens, stop.computed_tokens].map(grouped);
            let [requests, reused, computed] = &numbers;
            writeln!(
                out,
                "{:<LABEL$}{}",
                stop.reason.code(),
                columns([requests, "", reused, computed])
            )?;
        }
    }
    Ok(())
}

/// Numbers, each at the right of its column.
fn columns(texts: [&str; 4]) -> String {
    texts.map(|text| format!("{text:>NUMBER$}")).concat()
}

/// How long a trace is, in the unit that fits.
fn duration(ms: u64) -> String {
    let minutes = ms as f64 / 60e3;
    match ms {
        0..60_000 => format!("{:.1} s", minutes * 60.0),
        60_000..7_200_000 => format!("{minutes:.1} min"),
        _ => format!("{:.1} h", minutes / 60.0),
    }
}
