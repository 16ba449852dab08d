//! Tensors and comparisons for people.

use std::io::{Result, Write};

use anstyle::Style;
use engine::trace::Tensor;

use super::compare::Comparison;
use super::paper::{number_text, shape_text};
use crate::screen::Screen;
use crate::words::counted;

/// Numbers shown of one tensor.
const NUMBERS_MAX: usize = 1024;
/// Columns of one number.
const NUMBER_COLUMNS: usize = 9;

/// Writes tensors, the last dimension in lines; without `numbers`, only their names and shapes.
pub(super) fn tensors(screen: Screen, tensors: &[Tensor], numbers: bool) -> Result<()> {
    let mut out = anstream::stdout().lock();
    let bold = Style::new().bold();
    for tensor in tensors {
        writeln!(out, "{bold}{}{bold:#}  {}", tensor.name, shape_text(&tensor.shape))?;
        if !numbers {
            continue;
        }
        let width = tensor.shape.last().copied().unwrap_or(1).max(1);
        let shown = &tensor.values[..tensor.values.len().min(NUMBERS_MAX)];
        for row in shown.chunks(width) {
            for line in row.chunks((screen.width / NUMBER_COLUMNS).max(1)) {
                let numbers = line.iter().map(|&x| format!("{:>NUMBER_COLUMNS$}", number_text(x)));
                writeln!(out, "{}", numbers.collect::<String>())?;
            }
        }
        if shown.len() < tensor.values.len() {
            let more = tensor.values.len() - shown.len();
            let text = format!("… {more} more: choose a part, as {}[0,:2], or --save", tensor.name);
            writeln!(out, "{}", screen.fit(&text, screen.width))?;
        }
    }
    Ok(())
}

/// Writes a comparison, a line for each tensor.
pub(super) fn comparison(screen: Screen, comparison: &Comparison) -> Result<()> {
    let mut out = anstream::stdout().lock();
    for tensor in &comparison.tensors {
        let verdict = if tensor.passed { "ok" } else { "DIFFERS" };
        let found = match (tensor.max_difference, &tensor.problem) {
            (Some(most), _) => {
                let relative = tensor.relative.map(|share| format!(", {share:.1e} of the largest"));
                format!("max|Δ| {most:.1e}{}", relative.unwrap_or_default())
            }
            (None, problem) => problem.clone().unwrap_or_default(),
        };
        let line = format!("{verdict:<8} {:<32} {found}", tensor.name);
        writeln!(out, "{}", screen.fit(&line, screen.width))?;
    }
    for (what, list) in [("MISSING", &comparison.missing), ("skipped", &comparison.skipped)] {
        for tensor in list {
            let line = format!("{what:<8} {:<32} {}", tensor.name, tensor.reason);
            writeln!(out, "{}", screen.fit(&line, screen.width))?;
        }
    }
    let near = comparison.tensors.iter().filter(|tensor| tensor.passed).count();
    let missing = match comparison.missing.len() {
        0 => String::new(),
        count => format!("{count} missing, "),
    };
    let line = match comparison.problem {
        Some(problem) => format!("nothing was compared: {problem}"),
        None => format!(
            "{near} of {} within {}, {missing}{} skipped",
            counted(comparison.tensors.len(), "tensor"),
            comparison.tolerance,
            comparison.skipped.len()
        ),
    };
    writeln!(out, "{}", screen.fit(&line, screen.width))
}
