//! The result of a benchmark, as a table and as JSON.

use std::io::Write;

use engine::Limits;
use serde_json::{Value, json};

use super::run::{LIMIT, OURS, Run, Spread, Test};
use crate::failure::Failure;
use crate::quoted::visible;

/// All runs of one test of one model at one number of threads.
struct Line<'a> {
    model: &'a str,
    test: Test,
    threads: u16,
    ours: Option<Spread>,
    limit: Option<f64>,
    /// Each peer at its best setting.
    peers: Vec<Rival<'a>>,
}

struct Rival<'a> {
    program: &'a str,
    setting: &'a str,
    spread: Spread,
}

pub(super) fn write(runs: &[Run], limits: &[Limits], as_json: bool) -> Result<(), Failure> {
    let lines = lines(runs);
    let mut out = anstream::stdout();
    if as_json {
        let results: Vec<Value> = lines.iter().map(Line::to_json).collect();
        let document = json!({"schema": "refrain.bench/1", "limits": limits, "results": results});
        writeln!(out, "{document}")?;
        return Ok(());
    }
    for limits in limits {
        write_limits(&mut out, limits)?;
    }
    if lines.is_empty() {
        return Ok(());
    }
    write!(out, "{:<16}{:>8}{:>12}{:>12}{:>12}", "test", "threads", "median", "min", "max")?;
    let with_limits = lines.iter().any(|line| line.limit.is_some());
    write!(out, "      {}", if with_limits { " of limit" } else { "" })?;
    let with_peers = lines.iter().any(|line| !line.peers.is_empty());
    writeln!(out, "{}", if with_peers { "  beside" } else { "" })?;
    let mut model = "";
    let several = lines.iter().any(|line| line.model != lines[0].model);
    for line in &lines {
        if several && line.model != model {
            model = line.model;
            writeln!(out, "{}", visible(model))?;
        }
        line.write(&mut out)?;
    }
    Ok(())
}

fn write_limits(out: &mut impl Write, limits: &Limits) -> Result<(), Failure> {
    writeln!(out, "{} threads, {}: at most", limits.threads, limits.isa)?;
    let (tera, giga) = (1e-12, 1e-9);
    for (what, value, unit) in [
        ("byte dot products", limits.dot_i8_per_s * tera, "TOP/s"),
        ("i16 dot products", limits.dot_i16_per_s * tera, "TOP/s"),
        ("bf16 dot products", limits.dot_bf16_per_s * tera, "TFLOP/s"),
        ("f32 multiply-adds", limits.mul_add_per_s * tera, "TFLOP/s"),
        ("reading from memory", limits.memory_bytes_per_s * giga, "GB/s"),
        ("reading the weights", limits.weights_bytes_per_s * giga, "GB/s"),
        ("reading 8 MiB", limits.l3_bytes_per_s * giga, "GB/s"),
    ] {
        writeln!(out, "  {what:<22}{value:>10.3} {unit}")?;
    }
    Ok(())
}

/// The runs by test, in the order in which they were made.
fn lines(runs: &[Run]) -> Vec<Line<'_>> {
    let mut lines: Vec<Line> = Vec::new();
    for run in runs {
        let known = lines.iter().any(|line| line.holds(run));
        if known {
            continue;
        }
        let of_test = || {
            runs.iter().filter(|other| {
                (&other.model, other.test, other.threads) == (&run.model, run.test, run.threads)
            })
        };
        let of = |program: &'static str| of_test().filter(move |run| run.program == program);
        let ours = Spread::of(of(OURS).map(|run| run.value));
        let limit = of(LIMIT).next().map(|run| run.value);
        let mut line = Line {
            model: &run.model,
            test: run.test,
            threads: run.threads,
            ours,
            limit,
            peers: Vec::new(),
        };
        for run in of_test().filter(|run| run.program != OURS && run.program != LIMIT) {
            let alike = of_test()
                .filter(|other| (&other.program, &other.setting) == (&run.program, &run.setting));
            let Some(spread) = Spread::of(alike.map(|run| run.value)) else { continue };
            let rival = Rival { program: &run.program, setting: &run.setting, spread };
            line.consider(rival);
        }
        lines.push(line);
    }
    lines
}

impl<'a> Line<'a> {
    fn holds(&self, run: &Run) -> bool {
        (self.model, self.test, self.threads) == (run.model.as_str(), run.test, run.threads)
    }

    /// Takes a peer's setting if it is its first or its best.
    fn consider(&mut self, rival: Rival<'a>) {
        let unit = self.test.unit();
        match self.peers.iter_mut().find(|known| known.program == rival.program) {
            Some(known) if unit.ratio(rival.spread.median, known.spread.median) > 1.0 => {
                *known = rival;
            }
            Some(_) => {}
            None => self.peers.push(rival),
        }
    }

    fn write(&self, out: &mut impl Write) -> Result<(), Failure> {
        write!(out, "{:<16}{:>8}", self.test.to_string(), self.threads)?;
        let Some(ours) = self.ours else {
            let limit = self.limit.unwrap_or_default();
            writeln!(out, "{:>12} at most {limit:.1}", "")?;
            return Ok(());
        };
        write!(out, "{:>12.1}{:>12.1}{:>12.1}", ours.median, ours.min, ours.max)?;
        write!(out, " {:<5}", self.test.unit().name())?;
        if let Some(limit) = self.limit {
            write!(out, "{:>8.0}%", 100.0 * ours.median / limit)?;
        }
        for Rival { program, setting, spread } in &self.peers {
            let (program, setting) = (visible(program), visible(setting));
            let ratio = self.test.unit().ratio(ours.median, spread.median);
            let setting = if setting.is_empty() { String::new() } else { format!(" ({setting})") };
            write!(out, "  {program} {:.1}{setting}: {ratio:.2}x", spread.median)?;
        }
        writeln!(out)?;
        Ok(())
    }

    fn to_json(&self) -> Value {
        let unit = self.test.unit();
        let peers: Vec<Value> = self
            .peers
            .iter()
            .map(|Rival { program, setting, spread }| {
                let ratio = self.ours.map(|ours| unit.ratio(ours.median, spread.median));
                json!({"name": program, "setting": setting, "value": spread, "ratio": ratio})
            })
            .collect();
        json!({
            "model": self.model,
            "test": self.test.to_string(),
            "threads": self.threads,
            "unit": unit,
            "value": self.ours,
            "limit": self.limit,
            "peers": peers,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(program: &str, setting: &str, value: f64) -> Run {
        let test = Test::Prefill { tokens: 512, depth: 0 };
        let (program, setting) = (program.to_owned(), setting.to_owned());
        let model = "m.gguf".to_owned();
        Run { model, test, threads: 2, program, setting, unit: test.unit(), value }
    }

    #[test]
    fn a_peer_counts_at_its_best_setting() {
        let runs = [
            run(LIMIT, "", 400.0),
            run(OURS, "", 300.0),
            run("other", "fa", 90.0),
            run("other", "no fa", 150.0),
            run(OURS, "", 200.0),
            run("other", "fa", 110.0),
        ];
        let lines = lines(&runs);
        let document = lines[0].to_json();
        assert_eq!(lines.len(), 1);
        assert_eq!(document["value"]["median"], 250.0);
        assert_eq!(document["limit"], 400.0);
        assert_eq!(document["peers"][0]["setting"], "no fa");
        assert_eq!(document["peers"].as_array().map(Vec::len), Some(1));
        assert_eq!(document["peers"][0]["ratio"], 250.0 / 150.0);
    }
}
