//! The causal mask.

use engine::Site;

use crate::oracle::Oracle;
use crate::row::Check::Model;
use crate::row::letters::R;
use crate::row::{Row, row};
use crate::subject::Subject;
use crate::tally::{Seen, Stop, Tally};

pub(super) const ROWS: &[Row] = &[
    row(76, &[R], "the prompt's q, k and v are computed at once", Model(at_once)),
    row(77, &[R], "what is masked weighs exactly 0", Model(exactly_zero)),
    row(78, &[R], "token i sees i + 1 keys, the lower triangle", Model(triangle)),
    row(79, &[R], "the first token reads itself alone: 1, 0, 0, 0", Model(first_row)),
    row(80, &[R], "a later token changes nothing before it", Model(nothing_before)),
    row(81, &[R], "a new token changes no old K or V", Model(no_old_kv)),
];

fn at_once(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (pass, package) = (subject.prefill()?, subject.package.clone());
    let oracle = Oracle::new(&package);
    let x = pass.at(0, Site::AttentionNorm)?.rows();
    tally.equal("rows of one product", &subject.prompt.len(), &x.len())?;
    let bound = oracle.bound(&oracle.qkv_parts(0))?;
    // Each row by itself gives what the step gave for all of them.
    for (row, x) in x.into_iter().enumerate() {
        let key = oracle.qkv(0, &vec![x])?[1].concat();
        tally.close(format!("key of token {row}"), &key, pass.at(0, Site::Key)?.row(row), bound)?;
    }
    Ok(format!("{} rows in one step", subject.prompt.len()))
}

/// Each head's square of weights in each layer.
fn squares(subject: &mut Subject) -> Result<Vec<Vec<f32>>, Stop> {
    let pass = subject.prefill()?;
    let mut squares = Vec::new();
    for layer in 0..subject.package.config.layers {
        let pattern = pass.at(layer, Site::Pattern)?;
        squares.extend((0..pattern.shape[0]).map(|head| pattern.row(head).to_vec()));
    }
    Ok(squares)
}

fn exactly_zero(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (squares, tokens) = (squares(subject)?, subject.prompt.len());
    let mut masked = 0;
    for square in &squares {
        for (row, weights) in square.chunks_exact(tokens).enumerate() {
            tally.same_bits(
                format!("behind token {row}"),
                &vec![0.0; tokens - row - 1],
                &weights[row + 1..],
            )?;
            masked += tokens - row - 1;
        }
    }
    Ok(format!("{masked} weights in {} heads, all 0", squares.len()))
}

fn triangle(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (squares, tokens) = (squares(subject)?, subject.prompt.len());
    let expected: Vec<usize> = (1..=tokens).collect();
    for square in &squares {
        let seen = |weights: &[f32]| weights.iter().filter(|weight| **weight > 0.0).count();
        let found: Vec<usize> = square.chunks_exact(tokens).map(seen).collect();
        tally.equal("keys seen", &expected, &found)?;
    }
    Ok(format!("{expected:?} keys, in {} heads", squares.len()))
}

fn first_row(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (squares, tokens) = (squares(subject)?, subject.prompt.len());
    let mut expected = vec![0.0; tokens];
    expected[0] = 1.0;
    for square in &squares {
        tally.same_bits("weights of token 0", &expected, &square[..tokens])?;
    }
    Ok(format!("{expected:?}"))
}

fn nothing_before(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (prompt, mut changed) = (subject.prompt.clone(), subject.prompt.clone());
    let last = prompt.len() - 1;
    changed[last] = subject.other_than(prompt[last]);
    let (one, other) = (subject.pass(&prompt)?, subject.pass(&changed)?);
    let sites = [Site::Key, Site::Value, Site::Mixed, Site::MlpOut, Site::ResidualPost];
    for layer in 0..subject.package.config.layers {
        for site in sites {
            let (one, other) = (one.at(layer, site)?, other.at(layer, site)?);
            let before = last * one.width();
            let what = format!("{site:?} of layer {layer}");
            tally.same_bits(&what, &one.values[..before], &other.values[..before])?;
            tally.differ(what, one.row(last), other.row(last))?;
        }
    }
    let before = last * subject.package.config.vocab;
    tally.same_bits("logits", &one.logits[..before], &other.logits[..before])?;
    Ok(format!("another token {last}: what tokens 0 to {} gave keeps its bits", last - 1))
}

fn no_old_kv(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (story, tokens) = (subject.story()?, subject.prompt.len());
    let (before, after) = (&story.kv[0], &story.kv[1]);
    for layer in 0..before.layers {
        for head in 0..before.heads {
            let of = |kv: &crate::sequence::Kv| {
                [kv.keys(layer, head, 0..tokens), kv.values(layer, head, 0..tokens)].concat()
            };
            let what = format!("K and V of head {head}, layer {layer}");
            tally.same_bits(what, &of(before), &of(after))?;
        }
    }
    Ok(format!("positions 0 to {} keep their bits in {} layers", tokens - 1, before.layers))
}
