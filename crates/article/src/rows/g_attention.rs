//! Attention.

use engine::Site;

use crate::row::Check::{Package, Read, Real};
use crate::row::letters::{D, R, W};
use crate::row::{Row, row};
use crate::sequence::shown;
use crate::subject::{Subject, unwritten};
use crate::tally::{Seen, Stop, Tally};

pub(super) const ROWS: &[Row] = &[
    row(67, &[R], "scores are q k / sqrt(head width)", Package(unwritten)),
    row(68, &[R], "softmax makes weights of them: none negative, sum 1", Package(unwritten)),
    row(69, &[R], "the head's output is the weighted sum of the values", Package(unwritten)),
    row(70, &[R], "values take no part in matching", Package(unwritten)),
    row(71, &[W], "' on' reads 0.4397, 0.2247, 0.2872, 0.0484", Real(the_weights)),
    row(72, &[W], "it reads mostly the first three, hardly itself", Real(hardly_itself)),
    row(73, &[R, W], "other heads and layers weigh otherwise", Package(unwritten)),
    row(74, &[D], "a weight is no probability of a next token", Read),
    row(75, &[R], "recomputed from the weights alone, it is the same", Package(unwritten)),
];

/// What ' on' reads in layer 0, head 0, by the article.
const WEIGHTS: [f32; 4] = [0.4397, 0.2247, 0.2872, 0.0484];

/// What the last token reads in layer 0, head 0.
fn last_reads(subject: &mut Subject) -> Result<Vec<f32>, Stop> {
    let pass = subject.prefill()?;
    let pattern = shown(pass.layer(0, Site::Pattern), "attention weights")?;
    Ok(pattern.at(0, subject.prompt.len() - 1).to_vec())
}

fn the_weights(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let found = last_reads(subject)?;
    tally.equal("weights", &WEIGHTS.len(), &found.len())?;
    for (expected, found) in WEIGHTS.iter().zip(&found) {
        tally.holds("weight", expected, (expected - found).abs() <= 5e-5, found)?;
    }
    let sum: f32 = found.iter().sum();
    tally.holds("their sum", "1.0000", (sum - 1.0).abs() <= 5e-5, sum)?;
    Ok(format!("{found:.4?}"))
}

fn hardly_itself(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let found = last_reads(subject)?;
    let (own, others) = found.split_last().ok_or_else(|| Stop::failed("weights", "none"))?;
    let first = others.iter().sum::<f32>();
    tally.holds("weight of the first three", "over 0.9", first > 0.9, first)?;
    tally.holds("weight of itself", "less than each", others.iter().all(|x| x > own), own)?;
    Ok(format!("{first:.4} of the first three, {own:.4} of itself"))
}
