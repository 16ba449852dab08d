//! Runs stages one after the other, times each, and sums up at the end.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::workspace::Workspace;

/// One part of the whole test run.
pub(crate) struct Stage {
    /// The name by which the stage can be asked for.
    pub(crate) name: &'static str,
    /// What it does; an error ends the run.
    pub(crate) run: fn(&Workspace) -> Result<()>,
}

/// Runs `stages` in order, stops at the first that fails, and prints the time of each.
pub(crate) fn run(workspace: &Workspace, stages: &[&Stage]) -> Result<()> {
    let started = Instant::now();
    let mut times = Vec::with_capacity(stages.len());
    for stage in stages {
        eprintln!("\n== {}", stage.name);
        let stage_started = Instant::now();
        let outcome = (stage.run)(workspace);
        let took = stage_started.elapsed();
        times.push((stage.name, took));
        match outcome {
            Ok(()) => eprintln!("== {} passed in {}", stage.name, seconds(took)),
            Err(error) => {
                summarise(&times, started.elapsed());
                return Err(error).with_context(|| format!("stage {:?} failed", stage.name));
            }
        }
    }
    summarise(&times, started.elapsed());
    eprintln!("all {} stages passed", stages.len());
    Ok(())
}

fn summarise(times: &[(&str, Duration)], total: Duration) {
    eprintln!();
    for (name, took) in times {
        eprintln!("{name:>14} {:>9}", seconds(*took));
    }
    eprintln!("{:>14} {:>9}", "total", seconds(total));
}

fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}
