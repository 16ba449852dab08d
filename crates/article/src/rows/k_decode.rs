//! Decode.

use engine::Site;
use package::Part;

use crate::live::steps;
use crate::oracle::{Oracle, attention, matrix_row, weigh, wide};
use crate::row::Check::{Live, Model, Read};
use crate::row::letters::{C, D, R, S};
use crate::row::{Row, row};
use crate::subject::{DECODE_STEPS, Subject};
use crate::tally::{Seen, Tally};

pub(super) const ROWS: &[Row] = &[
    row(113, &[R], "a chosen token is not in the cache yet", Model(not_yet)),
    row(114, &[R], "the next step computes it, and predicts the one after", Model(the_one_after)),
    row(115, &[C], "that step's input is (1, 1)", Model(input)),
    row(116, &[R], "after it the cache is one longer", Model(one_longer)),
    row(117, &[C], "attention weights are (1, 12, 1, 5)", Model(weights)),
    row(118, &[C], "logits are (1, 1, 50257): one row", Model(one_row)),
    row(119, &[C], "the new q, k and v are (1, 12, 1, 64)", Model(new_qkv)),
    row(120, &[C], "K and V are (1, 12, 5, 64) then", Model(joined)),
    row(121, &[R], "the new query meets the old keys and its own", Model(meets)),
    row(122, &[R], "the new token goes through all layers", Model(all_layers)),
    row(123, &[D], "(1, 1) does not mean that one token is known", Read),
    row(124, &[R], "its position is the cache's length before it", Model(position)),
    row(125, &[S], "attention weights are shown only if asked for", Live(steps::attention)),
    row(126, &[R], "with the cache or without: the same logits", Model(same_logits)),
    row(127, &[R], "evaluations: layers with it, tokens x layers without", Model(evaluations)),
    row(128, &[D, R], "the cache saves the history, not the new token", Model(what_it_saves)),
    row(129, &[S], "a longer prompt is a longer prefill", Live(steps::longer)),
    row(130, &[S], "each new token reads the whole history", Live(steps::history)),
    row(131, &[D], "which is why long contexts stay slow", Read),
    row(132, &[R], "the cache grows by one position for each token", Model(grows)),
];

/// The cache's length after the prefill and each step, in every layer.
fn lengths(subject: &mut Subject) -> Result<Vec<Vec<usize>>, crate::tally::Stop> {
    let story = subject.story()?;
    let of = |kv: &crate::sequence::Kv| (0..kv.layers).map(|layer| kv.length(layer)).collect();
    Ok(story.kv.iter().map(of).collect())
}

fn not_yet(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (lengths, story) = (lengths(subject)?, subject.story()?);
    let tokens = subject.prompt.len();
    let text = [&subject.prompt[..], &story.chosen[..1]].concat();
    for (layer, length) in lengths[0].iter().enumerate() {
        tally.equal(format!("positions in layer {layer}"), &tokens, length)?;
    }
    Ok(format!("{} tokens of text, {tokens} in the cache", text.len()))
}

fn the_one_after(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (story, package) = (subject.story()?, subject.package.clone());
    let table = Oracle::new(&package).matrix(Part::TokenEmbedding)?;
    let expected = matrix_row(&table, story.chosen[0] as usize);
    let found = story.decode[0].of(Site::Embed)?;
    tally.close("the token that enters", &expected, &found.values, 1e-6)?;
    let vocab = package.config.vocab;
    let last = &story.prefill.logits[story.prefill.logits.len() - vocab..];
    tally.differ("its row and the row before", last, &story.decode[0].logits)?;
    Ok(format!("{} goes in, {} comes next", story.chosen[0], story.chosen[1]))
}

fn input(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (story, trace) = (subject.story()?, subject.trace()?);
    let shape = story.decode[0].of(Site::Embed)?.batched();
    tally.equal("its embedding", &[1, 1, 768][..], &shape[..])?;
    let found = trace.decode.first().map(|step| step.input_shape);
    tally.equal("its ids, as traced", &Some([1, 1]), &found)?;
    Ok("[1, 1]".to_owned())
}

fn one_longer(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (lengths, tokens) = (lengths(subject)?, subject.prompt.len());
    for (layer, length) in lengths[1].iter().enumerate() {
        tally.equal(format!("positions in layer {layer}"), &(tokens + 1), length)?;
    }
    Ok(format!("{tokens}, then {}", tokens + 1))
}

fn weights(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (story, trace) = (subject.story()?, subject.trace()?);
    for layer in 0..6 {
        let shape = story.decode[0].at(layer, Site::Pattern)?.batched();
        tally.equal(format!("layer {layer}"), &[1, 12, 1, 5][..], &shape[..])?;
    }
    let found = trace.decode.first().map(|step| &step.attention_shape[..]);
    tally.equal("as traced", &Some(&[1, 12, 1, 5][..]), &found)?;
    Ok("[1, 12, 1, 5]".to_owned())
}

fn one_row(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (story, trace) = (subject.story()?, subject.trace()?);
    let shape = story.decode[0].of(Site::Logits)?.batched();
    tally.equal("shape", &[1, 1, 50257][..], &shape[..])?;
    let found = trace.decode.first().map(|step| step.logits_shape);
    tally.equal("as traced", &Some([1, 1, 50257]), &found)?;
    Ok(format!("{shape:?}"))
}

fn new_qkv(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let story = subject.story()?;
    for layer in 0..6 {
        for site in [Site::Query, Site::Key, Site::Value] {
            let shape = story.decode[0].at(layer, site)?.batched();
            tally.equal(format!("{site:?} of layer {layer}"), &[1, 1, 12, 64][..], &shape[..])?;
        }
    }
    Ok("12 heads of 64, for 1 token".to_owned())
}

fn joined(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let story = subject.story()?;
    let kv = &story.kv[1];
    for layer in 0..6 {
        let found = [1, kv.heads, kv.length(layer), kv.width];
        tally.equal(format!("layer {layer}"), &[1, 12, 5, 64], &found)?;
    }
    Ok("[1, 12, 5, 64] twice, in 6 layers".to_owned())
}

fn meets(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (story, config) = (subject.story()?, subject.package.config.clone());
    let (tokens, shared) = (subject.prompt.len(), config.heads / config.kv_heads);
    let (step, before) = (&story.decode[0], &story.kv[0]);
    for layer in 0..config.layers {
        // The old K and V as the cache held them before the step, then the step's own.
        let all = |of: &dyn Fn(usize, usize) -> Vec<f64>, own: &[f32]| -> Vec<Vec<f64>> {
            let row = |at| (0..config.kv_heads).flat_map(|head| of(head, at)).collect();
            (0..tokens).map(row).chain([wide(own)]).collect()
        };
        let old_key = |head, at| wide(before.keys(layer, head, at..at + 1));
        let keys = all(&old_key, &step.met_keys(layer)?.values);
        let old_value = |head, at| wide(before.values(layer, head, at..at + 1));
        let values = all(&old_value, &step.at(layer, Site::Value)?.values);
        let expected = attention(&step.met_queries(layer)?.rows(), &keys, &config)?;
        let (found, bound) = (step.at(layer, Site::Pattern)?, subject.kv_bound());
        tally.close(format!("weights of layer {layer}"), &expected, &found.values, bound)?;
        for (head, weights) in expected.chunks_exact(tokens + 1).enumerate() {
            let columns = head / shared * config.head_dim..(head / shared + 1) * config.head_dim;
            let values: Vec<&[f64]> = values.iter().map(|row| &row[columns.clone()]).collect();
            let found = step.at(layer, Site::Mixed)?.at(0, head);
            let what = format!("output of head {head}, layer {layer}");
            tally.close(what, &weigh(weights, &values), found, 4.0 * bound)?;
        }
    }
    Ok(format!("{} keys and values: {tokens} old, 1 new", tokens + 1))
}

fn all_layers(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (story, layers) = (subject.story()?, subject.package.config.layers);
    let expected: Vec<Option<usize>> = (0..layers).map(Some).collect();
    for (index, step) in story.decode.iter().enumerate() {
        let ends = step.order.iter().filter(|point| point.site == Site::ResidualPost);
        let found: Vec<Option<usize>> = ends.map(|point| point.layer).collect();
        tally.equal(format!("layers of step {index}"), &expected, &found)?;
    }
    Ok(format!("{layers} layers in each of {DECODE_STEPS} steps"))
}

fn position(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (story, package) = (subject.story()?, subject.package.clone());
    let (oracle, tokens) = (Oracle::new(&package), subject.prompt.len());
    let step = &story.decode[0];
    if package.config.rope.is_some() {
        let expected = oracle.placed(&step.at(0, Site::Key)?.rows(), tokens).concat();
        tally.close("its key, turned", &expected, &step.met_keys(0)?.values, 1e-5)?;
        return Ok(format!("turned by {tokens}"));
    }
    let expected = matrix_row(&oracle.matrix(Part::PositionEmbedding)?, tokens);
    let found = wide(&step.of(Site::PositionEmbed)?.values);
    tally.equal(format!("row {tokens} of the table"), &expected, &found)?;
    Ok(format!("row {tokens} of the table"))
}

fn same_logits(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (story, vocab) = (subject.story()?, subject.package.config.vocab);
    for (step, with) in story.decode.iter().enumerate() {
        let tokens = [&subject.prompt[..], &story.chosen[..=step]].concat();
        let without = subject.pass(&tokens)?;
        let last = &without.logits[without.logits.len() - vocab..];
        tally.same_bits(format!("logits of step {step}"), last, &with.logits)?;
    }
    Ok(format!("{DECODE_STEPS} steps: every bit of {vocab} logits"))
}

fn evaluations(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (story, trace) = (subject.story()?, subject.trace()?);
    let (layers, tokens) = (subject.package.config.layers, subject.prompt.len() + 1);
    let text = [&subject.prompt[..], &story.chosen[..1]].concat();
    let without = subject.pass(&text)?;
    let count = |pass: &crate::sequence::Pass| {
        (0..layers).map(|layer| Ok(pass.at(layer, Site::ResidualPost)?.shape[0])).sum()
    };
    let found: (Result<usize, _>, Result<usize, _>) = (count(&story.decode[0]), count(&without));
    let (with, without) = (found.0?, found.1?);
    tally.equal("evaluations", &(layers, tokens * layers), &(with, without))?;
    let step = trace.decode.first();
    let traced = step.map(|s| (s.layer_evaluations, s.layer_evaluations_without_cache));
    tally.equal("as traced", &Some((with, without)), &traced)?;
    Ok(format!("{with} with the cache, {without} without"))
}

fn what_it_saves(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let story = subject.story()?;
    let layers = subject.package.config.layers;
    for layer in 0..layers {
        for site in [Site::Query, Site::Key, Site::Value, Site::MlpOut] {
            let rows = story.decode[0].at(layer, site)?.shape[0];
            tally.equal(format!("rows of {site:?} in layer {layer}"), &1, &rows)?;
        }
    }
    Ok(format!("1 row in {layers} layers: no old one, but all of the new"))
}

fn grows(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (lengths, tokens) = (lengths(subject)?, subject.prompt.len());
    for (step, lengths) in lengths.iter().enumerate() {
        for (layer, length) in lengths.iter().enumerate() {
            tally.equal(format!("layer {layer} after step {step}"), &(tokens + step), length)?;
        }
    }
    let shown: Vec<String> = lengths.iter().map(|layers| layers[0].to_string()).collect();
    Ok(shown.join(", "))
}
