//! Queries, keys and values.

use std::sync::Arc;

use engine::Site;
use package::{Architecture, LayerPart, Package, Part, Suffix};

use crate::oracle::Oracle;
use crate::row::Check::{Model, Package as InPackage, Read};
use crate::row::letters::{C, D, R, W};
use crate::row::{Row, row};
use crate::sequence::Pass;
use crate::subject::Subject;
use crate::tally::{Seen, Stop, Tally};

pub(super) const ROWS: &[Row] = &[
    row(54, &[D], "Q asks, K answers what it has, V is what is read", Read),
    row(55, &[C], "W_QKV is (768, 2304): three matrices side by side", InPackage(matrix)),
    row(56, &[C], "b_QKV is (2304,)", InPackage(bias)),
    row(57, &[C], "X W_QKV + b is (1, 4, 2304)", Model(product)),
    row(58, &[R], "one multiplication gives Q, K and V of all tokens", Model(at_once)),
    row(59, &[D], "a projection is a linear map", Read),
    row(60, &[R, W], "its columns are Q, then K, then V", Model(columns)),
    row(61, &[C], "q, k and v are (1, 4, 768) each", Model(three)),
    row(62, &[R], "all keys come from one pass, before any query asks", Model(keys_first)),
    row(63, &[C], "heads: (1, 4, 768), (1, 4, 12, 64), (1, 12, 4, 64)", Model(heads)),
    row(64, &[R], "splitting into heads only names columns", Model(only_names)),
    row(65, &[C], "a head's query, key and value are (64,)", Model(one_head)),
    row(66, &[D], "parameters start random and are trained", Read),
];

const SITES: [Site; 3] = [Site::Query, Site::Key, Site::Value];

fn matrix(package: &Arc<Package>, tally: &mut Tally) -> Seen {
    for layer in 0..package.config.layers {
        let matrix = Oracle::new(package).matrix(Part::Layer(layer, LayerPart::Qkv))?;
        let found = (matrix.inputs, matrix.outputs);
        tally.equal(format!("inputs and outputs in layer {layer}"), &(768, 3 * 768), &found)?;
    }
    Ok("[768, 2304], 2304 = 3 x 768".to_owned())
}

fn bias(package: &Arc<Package>, tally: &mut Tally) -> Seen {
    for layer in 0..package.config.layers {
        let bias = Oracle::new(package).vector(Part::Layer(layer, LayerPart::Qkv), Suffix::Bias)?;
        let found = bias.map(|bias| bias.len());
        tally.equal(format!("layer {layer}"), &Some(2304), &found)?;
    }
    Ok("[2304]".to_owned())
}

/// Rows of q, k and v side by side.
fn fused(pass: &Pass, layer: usize) -> Result<Vec<f32>, Stop> {
    let parts = [pass.at(layer, SITES[0])?, pass.at(layer, SITES[1])?, pass.at(layer, SITES[2])?];
    let rows = 0..parts[0].shape[0];
    Ok(rows.flat_map(|row| parts.iter().flat_map(move |part| part.row(row)).copied()).collect())
}

fn product(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let pass = subject.prefill()?;
    let found = fused(&pass, 0)?.len();
    tally.equal("numbers", &(4 * 2304), &found)?;
    Ok(format!("[1, 4, {}]", found / 4))
}

fn at_once(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let pass = subject.prefill()?;
    for layer in 0..subject.package.config.layers {
        let sites = pass.sites(layer);
        let shown = |site: &&Site| SITES.contains(site);
        let found: Vec<Site> = sites.iter().filter(shown).copied().collect();
        tally.equal(format!("q, k and v of layer {layer}"), &SITES[..], &found[..])?;
        for site in SITES {
            let rows = pass.at(layer, site)?.shape[0];
            tally.equal(format!("rows of {site:?}"), &subject.prompt.len(), &rows)?;
        }
    }
    let tokens = subject.prompt.len();
    if subject.package.config.architecture != Architecture::Gpt2 {
        let found = format!("three multiplications, once in each layer, each of {tokens} tokens");
        return tally.otherwise(found);
    }
    Ok(format!("q, k, v of {tokens} tokens, once in each layer"))
}

fn columns(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (pass, package) = (subject.prefill()?, subject.package.clone());
    let oracle = Oracle::new(&package);
    for layer in 0..package.config.layers {
        let x = pass.at(layer, Site::AttentionNorm)?.rows();
        let bound = oracle.bound(&oracle.qkv_parts(layer))?;
        for (site, expected) in SITES.into_iter().zip(oracle.qkv(layer, &x)?) {
            let found = &pass.at(layer, site)?.values;
            tally.close(format!("{site:?} of layer {layer}"), &expected.concat(), found, bound)?;
        }
    }
    if package.config.architecture != Architecture::Gpt2 {
        return tally.otherwise("q, k and v have a matrix each, and are what it gives");
    }
    Ok("q, k, v as the weights' own columns give them".to_owned())
}

fn three(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let pass = subject.prefill()?;
    for site in SITES {
        let tensor = pass.at(0, site)?;
        let found = (tensor.shape[0], tensor.width());
        tally.equal(format!("shape of {site:?}"), &(4, 768), &found)?;
    }
    Ok("[1, 4, 768] three times".to_owned())
}

fn keys_first(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let story = subject.story()?;
    for layer in 0..subject.package.config.layers {
        let sites = story.prefill.sites(layer);
        let at = |site: Site| sites.iter().position(|&one| one == site);
        let (key, asks) = (at(Site::Key), at(Site::Pattern));
        tally.holds("keys, then weights", "in this order", key.is_some() && key < asks, "not")?;
        let (keys, rows) = (story.prefill.met_keys(layer)?, 0..subject.prompt.len());
        for (head, row) in
            (0..story.kv[0].heads).flat_map(|head| rows.clone().map(move |r| (head, r)))
        {
            let kept = story.kv[0].keys(layer, head, row..row + 1);
            let what = format!("key of token {row}, head {head}, layer {layer}");
            subject.kept(tally, what, keys.at(row, head), kept)?;
        }
    }
    Ok(format!("keys of tokens 0 to {} are there first", subject.prompt.len() - 1))
}

fn heads(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let story = subject.story()?;
    let tensor = story.prefill.at(0, Site::Key)?;
    tally.equal("in a row", &(4, 768), &(tensor.shape[0], tensor.width()))?;
    tally.equal("by heads", &[1, 4, 12, 64][..], &tensor.batched()[..])?;
    let kv = &story.kv[0];
    let found = [1, kv.heads, kv.length(0), kv.width];
    tally.equal("heads first, as attention reads them", &[1, 12, 4, 64], &found)?;
    Ok("[1, 4, 768], [1, 4, 12, 64], [1, 12, 4, 64]".to_owned())
}

fn only_names(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let story = subject.story()?;
    let (kv, rows) = (&story.kv[0], subject.prompt.len());
    let mut numbers = 0;
    for layer in 0..kv.layers {
        let (keys, values) =
            (story.prefill.met_keys(layer)?, story.prefill.at(layer, Site::Value)?);
        for (head, row) in (0..kv.heads).flat_map(|head| (0..rows).map(move |row| (head, row))) {
            let columns = head * kv.width..(head + 1) * kv.width;
            let at = row..row + 1;
            let what = |of| format!("{of} {row}, head {head}, layer {layer}");
            let kept = kv.keys(layer, head, at.clone());
            subject.kept(tally, what("key"), &keys.row(row)[columns.clone()], kept)?;
            let kept = kv.values(layer, head, at);
            subject.kept(tally, what("value"), &values.row(row)[columns], kept)?;
            numbers += 2 * kv.width;
        }
    }
    Ok(format!("{numbers} numbers of K and V stand in their columns"))
}

fn one_head(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let pass = subject.prefill()?;
    for (site, row) in [(Site::Query, 3), (Site::Key, 0), (Site::Key, 3), (Site::Value, 0)] {
        let found = pass.at(0, site)?.at(row, 0).len();
        tally.equal(format!("{site:?} of token {row}, head 0"), &64, &found)?;
    }
    Ok("[64] each".to_owned())
}
