//! The norm before attention.

use std::sync::Arc;

use engine::Site;
use package::{Architecture, LayerPart, Package, Part, Suffix};

use crate::oracle::Oracle;
use crate::row::Check::{Model, Package as InPackage, Read};
use crate::row::letters::{C, D, R};
use crate::row::{Row, row};
use crate::subject::Subject;
use crate::tally::{Seen, Tally};

pub(super) const ROWS: &[Row] = &[
    row(47, &[R], "each layer normalizes before it attends", Model(before)),
    row(48, &[R], "(h - mean) / sqrt(variance + epsilon), gain, bias", Model(formula)),
    row(49, &[C], "gain and bias are 768 trained numbers each", InPackage(parameters)),
    row(50, &[R], "a norm mixes no tokens", Model(no_mixing)),
    row(51, &[C], "a norm keeps the shape (1, 4, 768)", Model(shape)),
    row(52, &[D], "x[0, 3] is ' on' before attention", Read),
    row(53, &[R], "all tokens of the prompt go through in one pass", Model(one_pass)),
];

fn before(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let pass = subject.prefill()?;
    for layer in 0..subject.package.config.layers {
        let found = pass.sites(layer);
        let expected = [Site::ResidualPre, Site::AttentionNorm, Site::Query];
        let first = found.get(..3).unwrap_or_default();
        tally.equal(format!("order in layer {layer}"), &expected[..], first)?;
    }
    Ok("what enters, then the norm, then q, in every layer".to_owned())
}

fn formula(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (pass, package) = (subject.prefill()?, subject.package.clone());
    for layer in 0..package.config.layers {
        let part = Part::Layer(layer, LayerPart::AttentionNorm);
        let entered = pass.at(layer, Site::ResidualPre)?.rows();
        let expected = Oracle::new(&package).norm(part, &entered)?.concat();
        let found = &pass.at(layer, Site::AttentionNorm)?.values;
        tally.close(format!("layer {layer}"), &expected, found, 1e-5)?;
    }
    let epsilon = package.config.norm_epsilon;
    if package.config.architecture != Architecture::Gpt2 {
        let found = format!("RMS norm: h / sqrt(mean of h^2 + {epsilon}), gain; no mean, no bias");
        return tally.otherwise(found);
    }
    Ok(format!("in {} layers, epsilon {epsilon}", package.config.layers))
}

fn parameters(package: &Arc<Package>, tally: &mut Tally) -> Seen {
    let norms = [LayerPart::AttentionNorm, LayerPart::MlpNorm];
    let of_layer = |layer| norms.map(|part| Part::Layer(layer, part));
    let parts = (0..package.config.layers).flat_map(of_layer).chain([Part::FinalNorm]);
    let mut count = 0;
    for part in parts {
        for suffix in [Suffix::Weight, Suffix::Bias] {
            let vector = Oracle::new(package).vector(part, suffix)?;
            let found = vector.map(|vector| vector.len());
            tally.equal(format!("{suffix:?} of {part:?}"), &Some(768), &found)?;
        }
        count += 1;
    }
    Ok(format!("768 and 768 in each of {count} norms"))
}

fn no_mixing(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (prompt, mut changed) = (subject.prompt.clone(), subject.prompt.clone());
    changed[1] = subject.other_than(prompt[1]);
    let (pass, other) = (subject.pass(&prompt)?, subject.pass(&changed)?);
    let (one, two) = (pass.at(0, Site::AttentionNorm)?, other.at(0, Site::AttentionNorm)?);
    for row in (0..prompt.len()).filter(|row| *row != 1) {
        tally.same_bits(format!("row {row} of the norm"), one.row(row), two.row(row))?;
    }
    tally.differ("row 1 of the norm", one.row(1), two.row(1))?;
    Ok("another second token: the other rows keep their bits".to_owned())
}

fn shape(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let pass = subject.prefill()?;
    for site in [Site::ResidualPre, Site::AttentionNorm, Site::ResidualMid, Site::MlpNorm] {
        let shape = pass.at(0, site)?.batched();
        tally.equal(format!("shape at {site:?}"), &[1, 4, 768][..], &shape[..])?;
    }
    Ok("[1, 4, 768] before and after, both norms".to_owned())
}

fn one_pass(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let pass = subject.prefill()?;
    let expected = vec![1, subject.prompt.len(), subject.package.config.hidden];
    for layer in 0..subject.package.config.layers {
        let found = pass.at(layer, Site::ResidualPre)?.batched();
        tally.equal(format!("what enters layer {layer}"), &expected, &found)?;
    }
    let entries = pass.order.iter().filter(|point| point.site == Site::Embed).count();
    tally.equal("passes", &1, &entries)?;
    Ok(format!("one pass of {expected:?}"))
}
