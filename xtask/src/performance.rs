//! `cargo xtask performance`: the table of `crates/kernels/PERFORMANCE.md`, made of the raw runs
//! that `refrain bench --runs` kept.

use std::fmt::Write;
use std::fs;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::workspace::Workspace;

const DOCUMENT: &str = "crates/kernels/PERFORMANCE.md";
const RUNS: &str = "crates/kernels/performance.jsonl";
const BEGIN: &str = "<!-- the table: cargo xtask performance -->\n";
const END: &str = "<!-- the table ends -->\n";

/// What `refrain bench` calls itself, and the bound that the machine sets.
const OURS: &str = "refrain";
const LIMIT: &str = "limit";

/// One line of the runs.
struct Run {
    model: String,
    test: String,
    program: String,
    setting: String,
    unit: String,
    value: f64,
}

/// Writes the table anew, or with `--check` fails if it is not what the runs say.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    let check = match arguments {
        [] => false,
        [flag] if flag == "--check" => true,
        _ => bail!("performance takes nothing but --check"),
    };
    let root = workspace.root();
    let runs = fs::read_to_string(root.join(RUNS)).context(RUNS)?;
    let document = fs::read_to_string(root.join(DOCUMENT)).context(DOCUMENT)?;
    let runs = runs.lines().map(read).collect::<Result<Vec<_>>>().context(RUNS)?;
    let (before, rest) = document.split_once(BEGIN).context("the table's beginning")?;
    let (_, after) = rest.split_once(END).context("the table's end")?;
    let written = format!("{before}{BEGIN}{}{END}{after}", table(&runs)?);
    match (written == document, check) {
        (true, _) => Ok(()),
        (false, true) => bail!("{DOCUMENT} is not what {RUNS} says: cargo xtask performance"),
        (false, false) => Ok(fs::write(root.join(DOCUMENT), written)?),
    }
}

fn read(line: &str) -> Result<Run> {
    let run: Value = serde_json::from_str(line)?;
    let text = |field: &str| {
        run[field].as_str().map(str::to_owned).with_context(|| format!("{field} in {line}"))
    };
    Ok(Run {
        model: text("model")?,
        test: text("test")?,
        program: text("program")?,
        setting: text("setting")?,
        unit: text("unit")?,
        value: run["value"].as_f64().with_context(|| format!("value in {line}"))?,
    })
}

fn table(runs: &[Run]) -> Result<String> {
    let mut peers: Vec<&str> = Vec::new();
    let mut tests: Vec<(&str, &str)> = Vec::new();
    for run in runs {
        if ![OURS, LIMIT].contains(&run.program.as_str()) && !peers.contains(&&*run.program) {
            peers.push(&run.program);
        }
        if !tests.contains(&(&run.model, &run.test)) {
            tests.push((&run.model, &run.test));
        }
    }
    let mut table = String::new();
    write!(table, "| model | test | | Refrain | of the limit |")?;
    peers.iter().try_for_each(|peer| write!(table, " {peer} |"))?;
    writeln!(table, " times the better | runs |")?;
    writeln!(table, "| --- | --- | --- |{}", " ---: |".repeat(peers.len() + 4))?;
    for (model, test) in tests {
        let of: Vec<&Run> =
            runs.iter().filter(|run| (&*run.model, &*run.test) == (model, test)).collect();
        let Some(ours) = best(&of, OURS) else { continue };
        let rate = of[0].unit == "tok/s";
        let limit = best(&of, LIMIT).map(|limit| format!("{:.0} %", 100.0 * ours / limit));
        let theirs: Vec<Option<f64>> = peers.iter().map(|peer| best(&of, peer)).collect();
        let better =
            theirs.iter().flatten().copied().reduce(if rate { f64::max } else { f64::min });
        let ratio = better.map(|better| if rate { ours / better } else { better / ours });
        let count = of.iter().filter(|run| run.program == OURS).count();
        let (model, unit) = (model.trim_end_matches(".gguf"), &of[0].unit);
        write!(
            table,
            "| {model} | {test} | {unit} | {} | {} |",
            number(ours),
            limit.unwrap_or_default()
        )?;
        for theirs in theirs {
            write!(table, " {} |", theirs.map(number).unwrap_or_default())?;
        }
        let ratio = ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
        writeln!(table, " {ratio} | {count} |")?;
    }
    Ok(table)
}

/// The median of a program at its best setting.
fn best(runs: &[&Run], program: &str) -> Option<f64> {
    let of = || runs.iter().filter(|run| run.program == program);
    let medians = of().map(|run| {
        let alike = of().filter(|other| other.setting == run.setting);
        median(alike.map(|run| run.value).collect())
    });
    let rate = runs.first().is_some_and(|run| run.unit == "tok/s");
    medians.reduce(if rate { f64::max } else { f64::min })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

/// Three digits or so.
fn number(value: f64) -> String {
    if value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_better_setting_and_the_better_peer_count() {
        let line = |program: &str, setting: &str, unit: &str, value: f64| Run {
            model: "m.gguf".to_owned(),
            test: "t".to_owned(),
            program: program.to_owned(),
            setting: setting.to_owned(),
            unit: unit.to_owned(),
            value,
        };
        let rates = [
            line("limit", "", "tok/s", 400.0),
            line("refrain", "", "tok/s", 300.0),
            line("a", "fa", "tok/s", 90.0),
            line("a", "no fa", "tok/s", 100.0),
            line("b", "fa", "tok/s", 150.0),
            line("refrain", "", "tok/s", 320.0),
            line("refrain", "", "tok/s", 100.0),
        ];
        let last = table(&rates).unwrap().lines().last().unwrap().to_owned();
        assert_eq!(last, "| m | t | tok/s | 300 | 75 % | 100 | 150 | 2.00 | 3 |");
        let times = [line("refrain", "", "ms", 5.0), line("a", "", "ms", 10.0)];
        let last = table(&times).unwrap().lines().last().unwrap().to_owned();
        assert_eq!(last, "| m | t | ms | 5.0 |  | 10 | 2.00 | 1 |");
    }
}
