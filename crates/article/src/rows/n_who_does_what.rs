//! Who does what.

use std::sync::Arc;

use package::{LayerPart, Package, Part, Suffix};

use crate::live::{request, runtime, small, steps};
use crate::oracle::Oracle;
use crate::row::Check::{Live, Package as InPackage, Read};
use crate::row::letters::{C, D, S};
use crate::row::{Row, row};
use crate::tally::{Seen, Tally};

pub(super) const ROWS: &[Row] = &[
    row(163, &[D], "the publisher: weights, configuration, tokenizer", Read),
    row(164, &[S], "the runtime: load, attend, cache, batch, stream", Live(runtime::five)),
    row(165, &[D], "the application: messages, answers, tools, data", Read),
    row(166, &[C], "every trained matrix is there, the head is tied", InPackage(trained)),
    row(167, &[D], "configuration and tokenizer are not trained", Read),
    row(168, &[D], "open weights are not open code, data or training", Read),
    row(169, &[S], "deploying is one command; memory is told before", Live(runtime::memory)),
    row(170, &[S], "the runtime does the matrices", Live(steps::matrices)),
    row(171, &[S], "requests that run together share steps", Live(runtime::batching)),
    row(172, &[S], "the queue and its limits can be seen", Live(small::queue)),
    row(173, &[S], "memory for K and V has a budget", Live(small::budget)),
    row(174, &[S], "beyond the context there is a clear error", Live(small::context)),
    row(175, &[S], "temperature, top-p and top-k", Live(runtime::sampling)),
    row(176, &[S], "server-sent events", Live(request::events)),
    row(177, &[S], "prompt cache and eviction are the server's", Live(small::configurable)),
    row(178, &[D], "a caller writes no KV cache code", Read),
    row(179, &[D], "what is left to the application's developer", Read),
    row(180, &[D, S], "what is left to who hosts it", Live(runtime::hosting)),
];

/// Trained matrices of a layer with their inputs and outputs.
const MATRICES: [(LayerPart, usize, usize); 4] = [
    (LayerPart::Qkv, 768, 2304),
    (LayerPart::AttentionOutput, 768, 768),
    (LayerPart::Up, 768, 3072),
    (LayerPart::Down, 3072, 768),
];

fn trained(package: &Arc<Package>, tally: &mut Tally) -> Seen {
    let oracle = Oracle::new(package);
    let mut count = 0;
    for layer in 0..package.config.layers {
        for (part, inputs, outputs) in MATRICES {
            let matrix = oracle.matrix(Part::Layer(layer, part))?;
            let found = (matrix.inputs, matrix.outputs);
            tally.equal(format!("{part:?} of layer {layer}"), &(inputs, outputs), &found)?;
            count += 1;
        }
        for part in [LayerPart::AttentionNorm, LayerPart::MlpNorm] {
            for suffix in [Suffix::Weight, Suffix::Bias] {
                let found = oracle.vector(Part::Layer(layer, part), suffix)?.map(|x| x.len());
                tally.equal(format!("{part:?} of layer {layer}"), &Some(768), &found)?;
            }
        }
    }
    let table = oracle.matrix(Part::TokenEmbedding)?;
    tally.equal("token table", &[50257, 768][..], &table.tensor.shape[..])?;
    let places = oracle.matrix(Part::PositionEmbedding)?;
    tally.equal("position table", &[1024, 768][..], &places.tensor.shape[..])?;
    let head = oracle.matrix(Part::Head)?;
    let tied = head.tensor.bytes.as_ptr() == table.tensor.bytes.as_ptr();
    tally.holds("the head", "the token table itself", tied, "weights of its own")?;
    Ok(format!("{} matrices; the head is the token table", count + 2))
}
