//! Layers and heads.

use engine::Site;
use package::{LayerPart, Part};

use crate::oracle::{Oracle, attention};
use crate::row::Check::{Model, Read};
use crate::row::letters::{D, R};
use crate::row::{Row, row};
use crate::subject::Subject;
use crate::tally::{Seen, Tally};

pub(super) const ROWS: &[Row] = &[
    row(40, &[R], "each layer begins with what the last one gave", Model(chained)),
    row(41, &[R], "attention reads earlier tokens, the MLP only its own", Model(who_reads)),
    row(42, &[R], "a layer makes no words: no logits inside", Model(no_words)),
    row(43, &[R], "each head has its own slice of the queries", Model(own_slice)),
    row(44, &[R], "the heads' outputs are merged", Model(merged)),
    row(45, &[D], "heads are given no invented meanings", Read),
    row(46, &[D], "hidden means passed on between layers", Read),
];

fn chained(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let pass = subject.prefill()?;
    let layers = subject.package.config.layers;
    for layer in 1..layers {
        let (gave, got) =
            (pass.at(layer - 1, Site::ResidualPost)?, pass.at(layer, Site::ResidualPre)?);
        tally.same_bits(format!("what enters layer {layer}"), &gave.values, &got.values)?;
    }
    let ran: Vec<Option<usize>> = (0..layers).map(Some).collect();
    let ends = pass.order.iter().filter(|point| point.site == Site::ResidualPost);
    let found: Vec<Option<usize>> = ends.map(|point| point.layer).collect();
    tally.equal("layers in order", &ran, &found)?;
    Ok(format!("layers 0 to {}, the same bits from one to the next", layers - 1))
}

fn who_reads(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (mut changed, prompt) = (subject.prompt.clone(), subject.prompt.clone());
    changed[0] = subject.other_than(prompt[0]);
    let (pass, other) = (subject.pass(&prompt)?, subject.pass(&changed)?);
    let last = prompt.len() - 1;
    let of = |site| Ok((pass.at(0, site)?.row(last), other.at(0, site)?.row(last)));
    let (one, two) = of(Site::Query)?;
    tally.same_bits("the last query of layer 0", one, two)?;
    let (one, two) = of(Site::AttentionOut)?;
    tally.differ("what attention gives it", one, two)?;
    // The MLP, on its own row alone: the exact formula has no other input.
    let package = subject.package.clone();
    let part = Part::Layer(0, LayerPart::Down);
    let rows = vec![pass.at(0, Site::MlpPost)?.rows()[last].clone()];
    let expected = Oracle::new(&package).linear(part, &rows)?.concat();
    let bound = Oracle::new(&package).bound(&[part])?;
    tally.close("the MLP's output", &expected, pass.at(0, Site::MlpOut)?.row(last), bound)?;
    Ok("another first token: the last query stays, what it reads does not".to_owned())
}

fn no_words(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let pass = subject.prefill()?;
    let inside = pass.order.iter().filter(|p| p.site == Site::Logits && p.layer.is_some()).count();
    tally.equal("logits inside layers", &0, &inside)?;
    let vocab = subject.package.config.vocab;
    for layer in 0..subject.package.config.layers {
        for site in pass.sites(layer) {
            let width = pass.at(layer, site)?.values.len() / subject.prompt.len();
            let what = format!("numbers for each token at {site:?} of layer {layer}");
            tally.holds(what, format!("not {vocab}"), width != vocab, width)?;
        }
    }
    Ok(format!("{} tensors inside, none of {vocab} numbers a token", pass.order.len()))
}

fn own_slice(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (pass, config) = (subject.prefill()?, subject.package.config.clone());
    let tokens = subject.prompt.len();
    let (queries, keys) = (pass.met_queries(0)?.rows(), pass.met_keys(0)?.rows());
    let expected = attention(&queries, &keys, &config)?;
    let found = pass.at(0, Site::Pattern)?;
    let (size, bound) = (tokens * tokens, 1e-5f64.max(subject.kv_bound()));
    for head in 0..config.heads {
        let own = &expected[head * size..(head + 1) * size];
        tally.close(format!("head {head}, by its slice"), own, found.row(head), bound)?;
        let next = (head + 1) % config.heads;
        if next != head {
            tally.differ(format!("heads {head} and {next}"), found.row(head), found.row(next))?;
        }
    }
    let width = config.head_dim;
    Ok(format!(
        "{} heads, each by its own {width} of {} columns",
        config.heads,
        config.heads * width
    ))
}

fn merged(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (pass, package) = (subject.prefill()?, subject.package.clone());
    let oracle = Oracle::new(&package);
    for layer in 0..package.config.layers {
        let part = Part::Layer(layer, LayerPart::AttentionOutput);
        let expected = oracle.linear(part, &pass.at(layer, Site::Mixed)?.rows())?.concat();
        let found = &pass.at(layer, Site::AttentionOut)?.values;
        tally.close(format!("layer {layer}"), &expected, found, oracle.bound(&[part])?)?;
    }
    Ok(format!("side by side, then W_O, in {} layers", package.config.layers))
}
