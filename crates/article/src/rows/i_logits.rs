//! From heads to logits.

use std::sync::Arc;

use engine::Site;
use package::{Activation, LayerPart, Package, Part};

use crate::oracle::{Oracle, gelu, matrix_row, silu, softmax, wide};
use crate::row::Check::{Drawn, Model, Package as InPackage, Real};
use crate::row::letters::{C, D, R, W};
use crate::row::{Row, row};
use crate::sampling::{by_the_same_row, greedy};
use crate::subject::{PROMPT, Subject, likeliest};
use crate::tally::{Seen, Stop, Tally};

pub(super) const ROWS: &[Row] = &[
    row(82, &[C], "the heads' outputs are (1, 12, 4, 64)", Model(head_outputs)),
    row(83, &[C], "side by side they are (1, 4, 768)", Model(side_by_side)),
    row(84, &[C], "W_O is (768, 768) and mixes the heads", InPackage(output_matrix)),
    row(85, &[C], "what it gives is (1, 4, 768)", Model(output_shape)),
    row(86, &[R], "attention's output is added to what came in", Model(first_residual)),
    row(87, &[R], "then the second norm, then the MLP", Model(second_norm)),
    row(88, &[C], "the MLP goes 768, 3072, GELU, 768", Model(mlp)),
    row(89, &[R], "its width is the package's data", Model(mlp_width)),
    row(90, &[R], "the MLP's output is added to what went in", Model(second_residual)),
    row(91, &[R], "the MLP reads no other token", Model(own_token)),
    row(92, &[C], "6 layers do this, one after the other", Model(six)),
    row(93, &[R], "one more norm after the last layer", Model(last_norm)),
    row(94, &[C], "(1, 4, 768) becomes (1, 4, 50257)", Model(projection)),
    row(95, &[R], "logits are made once, after the last layer", Model(once)),
    row(96, &[C, D], "4 rows of logits; row i predicts token i + 1", Model(each_row)),
    row(97, &[R], "generating needs the last row only", Model(last_only)),
    row(98, &[R], "softmax over the vocabulary sums to 1", Model(probabilities)),
    row(99, &[C], "the last row is (50257,)", Model(last_row)),
    row(100, &[R], "the 5 likeliest are listed, likeliest first", Model(top_five)),
    row(101, &[W], "the likeliest is 262, ' the'", Real(the_likeliest)),
    row(102, &[R], "greedy takes the likeliest: one id, (1, 1)", Drawn(greedy)),
    row(103, &[W], "the text becomes 'The cat sat on the'", Real(the_text)),
    row(104, &[R], "sampling draws from the same row, by its seed", Drawn(by_the_same_row)),
    row(105, &[R], "every token of the vocabulary is a candidate", Model(everybody)),
];

fn head_outputs(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let shape = subject.prefill()?.at(0, Site::Mixed)?.batched();
    // Tokens first, as they lie in memory; the article puts heads first.
    tally.equal("tokens, heads, width", &[1, 4, 12, 64][..], &shape[..])?;
    Ok("12 heads of 64, for 4 tokens".to_owned())
}

fn side_by_side(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let pass = subject.prefill()?;
    let mixed = pass.at(0, Site::Mixed)?;
    tally.equal("tokens and numbers", &(4, 768), &(mixed.shape[0], mixed.width()))?;
    Ok("[1, 4, 768], 12 x 64 = 768".to_owned())
}

fn output_matrix(package: &Arc<Package>, tally: &mut Tally) -> Seen {
    let oracle = Oracle::new(package);
    for layer in 0..package.config.layers {
        let matrix = oracle.matrix(Part::Layer(layer, LayerPart::AttentionOutput))?;
        tally.equal("inputs and outputs", &(768, 768), &(matrix.inputs, matrix.outputs))?;
        // The first output takes something of each head.
        let weights = matrix_row(&matrix, 0);
        let heads = weights.chunks_exact(64).filter(|head| head.iter().any(|w| *w != 0.0)).count();
        tally.equal(format!("heads that number 0 of layer {layer} takes of"), &12, &heads)?;
    }
    Ok("[768, 768]; each output takes of all 12 heads".to_owned())
}

fn output_shape(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let shape = subject.prefill()?.at(0, Site::AttentionOut)?.batched();
    tally.equal("shape", &[1, 4, 768][..], &shape[..])?;
    Ok(format!("{shape:?}"))
}

/// Whether one tensor of each layer is the sum of two others, in its bits.
fn sums(subject: &mut Subject, tally: &mut Tally, sites: [Site; 3]) -> Seen {
    let pass = subject.prefill()?;
    let mut count = 0;
    for layer in 0..subject.package.config.layers {
        let [came, adds, sum] = sites.map(|site| pass.at(layer, site));
        let (came, adds, sum) = (came?, adds?, sum?);
        let expected: Vec<f32> = came.values.iter().zip(&adds.values).map(|(x, y)| x + y).collect();
        tally.same_bits(format!("{:?} of layer {layer}", sites[2]), &expected, &sum.values)?;
        count += expected.len();
    }
    Ok(format!("{count} sums in {} layers", subject.package.config.layers))
}

fn first_residual(subject: &mut Subject, tally: &mut Tally) -> Seen {
    sums(subject, tally, [Site::ResidualPre, Site::AttentionOut, Site::ResidualMid])
}

fn second_residual(subject: &mut Subject, tally: &mut Tally) -> Seen {
    sums(subject, tally, [Site::ResidualMid, Site::MlpOut, Site::ResidualPost])
}

fn second_norm(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (pass, package) = (subject.prefill()?, subject.package.clone());
    let order = [Site::ResidualMid, Site::MlpNorm, Site::MlpPre, Site::MlpPost, Site::MlpOut];
    for layer in 0..package.config.layers {
        let sites = pass.sites(layer);
        let found: Vec<Site> = sites.into_iter().filter(|site| order.contains(site)).collect();
        tally.equal(format!("order in layer {layer}"), &order[..], &found[..])?;
        let part = Part::Layer(layer, LayerPart::MlpNorm);
        let came = pass.at(layer, Site::ResidualMid)?.rows();
        let expected = Oracle::new(&package).norm(part, &came)?.concat();
        let found = &pass.at(layer, Site::MlpNorm)?.values;
        tally.close(format!("norm of layer {layer}"), &expected, found, 1e-5)?;
    }
    Ok("sum, norm, up, non-linearity, down, in every layer".to_owned())
}

/// What the non-linearity gives for what goes into it.
fn bent(subject: &Subject, pass: &crate::sequence::Pass, layer: usize) -> Result<Vec<f64>, Stop> {
    let pre = wide(&pass.at(layer, Site::MlpPre)?.values);
    Ok(match subject.package.config.activation {
        Activation::Silu => {
            let up = wide(&pass.at(layer, Site::MlpPreLinear)?.values);
            pre.iter().zip(up).map(|(gate, up)| silu(*gate) * up).collect()
        }
        activation => {
            let tanh = activation == Activation::GeluTanh;
            pre.iter().map(|x| gelu(*x, tanh)).collect()
        }
    })
}

fn mlp(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (pass, package) = (subject.prefill()?, subject.package.clone());
    let oracle = Oracle::new(&package);
    for layer in 0..package.config.layers {
        let part = |part| Part::Layer(layer, part);
        let widths = [Site::MlpNorm, Site::MlpPre, Site::MlpPost, Site::MlpOut]
            .map(|site| pass.at(layer, site).map(|tensor| tensor.width()).unwrap_or(0));
        tally.equal(format!("widths in layer {layer}"), &[768, 3072, 3072, 768], &widths)?;
        let up = oracle.linear(part(LayerPart::Up), &pass.at(layer, Site::MlpNorm)?.rows())?;
        let found = &pass.at(layer, Site::MlpPre)?.values;
        tally.close(format!("up, layer {layer}"), &up.concat(), found, 2e-5)?;
        let expected = bent(subject, &pass, layer)?;
        let found = &pass.at(layer, Site::MlpPost)?.values;
        tally.close(format!("GELU, layer {layer}"), &expected, found, 1e-5)?;
    }
    Ok("768, 3072, GELU by tanh, 768".to_owned())
}

fn mlp_width(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (pass, package) = (subject.prefill()?, subject.package.clone());
    let matrix = Oracle::new(&package).matrix(Part::Layer(0, LayerPart::Up))?;
    let (width, hidden) = (package.config.intermediate, package.config.hidden);
    tally.equal("configuration and weights", &width, &matrix.outputs)?;
    for layer in 0..package.config.layers {
        let found = pass.at(layer, Site::MlpPost)?.width();
        tally.equal(format!("layer {layer}"), &width, &found)?;
    }
    Ok(format!("{width} = {:.2} x {hidden}", width as f64 / hidden as f64))
}

fn own_token(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (pass, package) = (subject.prefill()?, subject.package.clone());
    let oracle = Oracle::new(&package);
    for layer in 0..package.config.layers {
        let part = Part::Layer(layer, LayerPart::Down);
        let (bent, post) = (bent(subject, &pass, layer)?, pass.at(layer, Site::MlpPost)?);
        tally.close(format!("inside, layer {layer}"), &bent, &post.values, 1e-5)?;
        // The formula takes each token's row by itself, and gives what the step gave for all.
        let expected = oracle.linear(part, &post.rows())?.concat();
        let found = &pass.at(layer, Site::MlpOut)?.values;
        tally.close(format!("layer {layer}"), &expected, found, oracle.bound(&[part])?)?;
    }
    Ok(format!("{} tokens, each by itself", subject.prompt.len()))
}

fn six(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let pass = subject.prefill()?;
    let ends = pass.order.iter().filter(|point| point.site == Site::ResidualPost);
    let found: Vec<Option<usize>> = ends.map(|point| point.layer).collect();
    tally.equal("layers", &(0..6).map(Some).collect::<Vec<_>>(), &found)?;
    Ok("0, 1, 2, 3, 4, 5".to_owned())
}

fn last_norm(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (pass, package) = (subject.prefill()?, subject.package.clone());
    let came = pass.at(package.config.layers - 1, Site::ResidualPost)?.rows();
    let expected = Oracle::new(&package).norm(Part::FinalNorm, &came)?.concat();
    tally.close("norm", &expected, &pass.of(Site::FinalNorm)?.values, 1e-5)?;
    Ok(format!("over {} rows", came.len()))
}

fn projection(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (pass, package) = (subject.prefill()?, subject.package.clone());
    let (norm, logits) = (pass.of(Site::FinalNorm)?, pass.of(Site::Logits)?);
    tally.equal("before", &[1, 4, 768][..], &norm.batched()[..])?;
    tally.equal("after", &[1, 4, 50257][..], &logits.batched()[..])?;
    let oracle = Oracle::new(&package);
    let expected = oracle.linear(Part::Head, &norm.rows())?.concat();
    tally.close("logits", &expected, &logits.values, oracle.bound(&[Part::Head])?)?;
    Ok("[1, 4, 768] to [1, 4, 50257]".to_owned())
}

fn once(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let pass = subject.prefill()?;
    let logits = pass.order.iter().filter(|point| point.site == Site::Logits).count();
    tally.equal("times", &1, &logits)?;
    let end: Vec<Site> = pass.order.iter().rev().take(3).map(|point| point.site).collect();
    let expected = [Site::Logits, Site::FinalNorm, Site::ResidualPost];
    tally.equal("the last three tensors, backwards", &expected[..], &end[..])?;
    Ok("once, at the end".to_owned())
}

fn each_row(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (pass, prompt) = (subject.prefill()?, subject.prompt.clone());
    let rows: Vec<&[f32]> = pass.logits.chunks_exact(50257).collect();
    tally.equal("rows", &4, &rows.len())?;
    for (row, found) in rows.into_iter().enumerate() {
        let alone = subject.pass(&prompt[..=row])?;
        let last = &alone.logits[row * 50257..];
        tally.same_bits(format!("row {row}, as the last of {} tokens", row + 1), last, found)?;
    }
    Ok("4 rows; each is what its tokens alone predict next".to_owned())
}

fn last_only(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (pass, vocab) = (subject.prefill()?, subject.package.config.vocab);
    let alone = subject.last_row_alone()?;
    tally.equal("logits", &vocab, &alone.len())?;
    tally.same_bits("the last row", &pass.logits[pass.logits.len() - vocab..], &alone)?;
    Ok(format!("{vocab} logits alone, the bits of the last of all rows"))
}

/// The last row's probabilities, by the formula.
fn expected_probabilities(subject: &mut Subject) -> Result<Vec<f64>, Stop> {
    let (pass, vocab) = (subject.prefill()?, subject.package.config.vocab);
    Ok(softmax(&wide(&pass.logits[pass.logits.len() - vocab..])))
}

fn probabilities(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (expected, next) = (expected_probabilities(subject)?, subject.all_candidates()?);
    tally.equal("candidates", &expected.len(), &next.len())?;
    let mut found = vec![0.0; expected.len()];
    next.iter().for_each(|candidate| found[candidate.id as usize] = candidate.probability);
    tally.close("probabilities", &expected, &found, 1e-5)?;
    let sum: f64 = found.iter().copied().map(f64::from).sum();
    tally.holds("their sum", "1", (sum - 1.0).abs() < 1e-5, sum)?;
    Ok(format!("{} probabilities, sum {sum:.6}", found.len()))
}

fn last_row(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let pass = subject.prefill()?;
    let logits = pass.of(Site::Logits)?;
    let found = logits.row(logits.shape[0] - 1).len();
    tally.equal("numbers", &50257, &found)?;
    Ok(format!("[{found}]"))
}

fn top_five(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (expected, trace) = (expected_probabilities(subject)?, subject.trace()?);
    let mut ids: Vec<usize> = (0..expected.len()).collect();
    ids.sort_by(|a, b| expected[*b].total_cmp(&expected[*a]).then(a.cmp(b)));
    let mut lines = Vec::new();
    tally.equal("candidates", &5, &trace.next.len())?;
    for (id, found) in ids.into_iter().zip(&trace.next) {
        tally.equal("id", &(id as u32), &found.id)?;
        let text = subject.package.tokenizer.decode(&[found.id], true);
        tally.equal("text", &text, &found.text)?;
        tally.close("probability", &[expected[id]], &[found.probability], 1e-4)?;
        lines.push(format!("{} {text:?} {:.4}", found.id, found.probability));
    }
    Ok(lines.join(", "))
}

fn the_likeliest(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let pass = subject.prefill()?;
    let found = likeliest(&pass.logits, subject.package.config.vocab);
    tally.equal("the likeliest", &262, &found)?;
    tally.equal("its text", " the", &subject.package.tokenizer.decode(&[found], true)[..])?;
    Ok(format!("{found}, ' the'"))
}

fn the_text(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let pass = subject.prefill()?;
    let next = likeliest(&pass.logits, subject.package.config.vocab);
    let ids = [&subject.prompt[..], &[next]].concat();
    let text = subject.package.tokenizer.decode(&ids, true);
    tally.equal("text", &format!("{PROMPT} the")[..], &text[..])?;
    Ok(format!("'{text}'"))
}

fn everybody(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let vocab = subject.package.config.vocab;
    let mut ids: Vec<u32> = subject.all_candidates()?.iter().map(|one| one.id).collect();
    ids.sort_unstable();
    tally.holds(
        "ids",
        format!("0 to {}", vocab - 1),
        ids.iter().copied().eq(0..vocab as u32),
        "others",
    )?;
    Ok(format!("{} candidates, each id once", ids.len()))
}
