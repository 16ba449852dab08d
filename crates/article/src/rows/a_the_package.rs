//! The model package.

use std::sync::Arc;

use engine::Site;
use package::{Config, LayerPart, Package, Part};

use crate::live::files;
use crate::oracle::{Oracle, matrix_row, wide};
use crate::row::Check::{Live, Model, Package as InPackage, Read};
use crate::row::letters::{C, D, R, S, T};
use crate::row::{Row, row};
use crate::subject::Subject;
use crate::tally::{Seen, Stop, Tally};
use crate::weights_file::first_bytes;

pub(super) const ROWS: &[Row] = &[
    row(1, &[D], "the article's model is DistilGPT-2, a distilled GPT-2", Read),
    row(2, &[C], "6 layers", InPackage(layers)),
    row(3, &[C], "12 attention heads in each layer", InPackage(heads)),
    row(4, &[C], "768 hidden numbers", InPackage(hidden)),
    row(5, &[C], "a head is 768 / 12 = 64 wide", InPackage(head_width)),
    row(6, &[T, C], "50257 tokens in the vocabulary", InPackage(vocabulary)),
    row(7, &[C], "the token table is (50257, 768), a row for each id", InPackage(token_table)),
    row(8, &[C], "valid ids are 0 to 50256", Model(valid_ids)),
    row(9, &[C], "the position table is (1024, 768)", InPackage(position_table)),
    row(10, &[C, S], "the context is 1024 positions, 0 to 1023", Live(files::context)),
    row(11, &[R], "only the rows of the prompt's own positions are read", Model(own_positions)),
    row(12, &[R], "no dropout: the same prompt gives the same bits", Model(no_dropout)),
    row(13, &[D], "the tokenizer is rules, the model trained matrices", Read),
    row(14, &[R], "the weights lie in a file, safetensors or GGUF", InPackage(in_a_file)),
    row(15, &[R], "weights are read, not computed: same file, same bits", InPackage(read_again)),
    row(16, &[S], "weights, config, tokenizer: none may be missing", Live(files::incomplete)),
    row(17, &[R], "layers, heads and widths are the package's own data", Model(own_shape)),
];

/// Layers as the weights have them: as many as have a norm.
fn layers_of_weights(package: &Package) -> usize {
    let norm = |layer| Part::Layer(layer, LayerPart::AttentionNorm);
    let has = |layer: &usize| {
        matches!(package.weights.vector(norm(*layer), package::Suffix::Weight), Ok(Some(_)))
    };
    (0..).take_while(has).count()
}

fn layers(package: &Arc<Package>, tally: &mut Tally) -> Seen {
    tally.equal("layers of the configuration", &6, &package.config.layers)?;
    tally.equal("layers of the weights", &6, &layers_of_weights(package))?;
    Ok("6 in the configuration, 6 in the weights".to_owned())
}

fn heads(package: &Arc<Package>, tally: &mut Tally) -> Seen {
    let Config { heads, kv_heads, .. } = package.config;
    tally.equal("heads", &(12, 12), &(heads, kv_heads))?;
    Ok("12 for queries, 12 for keys and values".to_owned())
}

fn hidden(package: &Arc<Package>, tally: &mut Tally) -> Seen {
    tally.equal("hidden", &768, &package.config.hidden)?;
    let gain = package.weights.vector(Part::FinalNorm, package::Suffix::Weight);
    let gain = gain.map_err(|error| Stop::failed("weights", error))?;
    tally.equal("gains of the last norm", &Some(768), &gain.map(|gain| gain.len()))?;
    Ok("768".to_owned())
}

fn head_width(package: &Arc<Package>, tally: &mut Tally) -> Seen {
    let Config { hidden, heads, head_dim, .. } = package.config;
    tally.equal("width", &64, &head_dim)?;
    tally.equal("heads x width", &hidden, &(heads * head_dim))?;
    Ok(format!("{hidden} / {heads} = {head_dim}"))
}

fn vocabulary(package: &Arc<Package>, tally: &mut Tally) -> Seen {
    let tokenizer = &package.tokenizer;
    tally.equal("tokens of the model", &50257, &package.config.vocab)?;
    tally.equal("tokens of the tokenizer", &50257, &tokenizer.vocab_size())?;
    let known = (0..50257).filter(|&id| tokenizer.bytes(id).is_some()).count();
    tally.equal("ids that have bytes", &50257, &known)?;
    Ok(format!("{known} in the tokenizer, as many in the model"))
}

fn token_table(package: &Arc<Package>, tally: &mut Tally) -> Seen {
    let shape = Oracle::new(package).matrix(Part::TokenEmbedding)?.tensor.shape;
    tally.equal("shape", &[50257, 768][..], &shape[..])?;
    Ok(format!("{shape:?}"))
}

fn valid_ids(subject: &mut Subject, tally: &mut Tally) -> Seen {
    for id in [0, 50256] {
        let pass = subject.pass(&[id])?;
        tally.equal(format!("logits after id {id}"), &50257, &pass.logits.len())?;
    }
    let refused = subject.fresh(&[50257]).err();
    tally.holds("id 50257", "refused", refused.is_some(), "accepted")?;
    tally.holds(
        "bytes of id 50257",
        "none",
        subject.package.tokenizer.bytes(50257).is_none(),
        "some",
    )?;
    Ok("0 and 50256 run, 50257 is refused".to_owned())
}

fn position_table(package: &Arc<Package>, tally: &mut Tally) -> Seen {
    let shape = Oracle::new(package).matrix(Part::PositionEmbedding)?.tensor.shape;
    tally.equal("shape", &[1024, 768][..], &shape[..])?;
    Ok(format!("{shape:?}"))
}

fn own_positions(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (pass, package) = (subject.prefill()?, subject.package.clone());
    let (oracle, tokens) = (Oracle::new(&package), subject.prompt.len());
    let context = package.config.context;
    if package.config.rope.is_some() {
        let keys = pass.at(0, Site::Key)?.rows();
        tally.equal("rows that are turned", &tokens, &keys.len())?;
        let expected = oracle.placed(&keys, 0).concat();
        tally.close("turned keys", &expected, &pass.met_keys(0)?.values, 1e-5)?;
        let found = format!("no table; {tokens} rows of q and k are turned, of {context} possible");
        return tally.otherwise(found);
    }
    let table = oracle.matrix(Part::PositionEmbedding)?;
    let found = pass.of(Site::PositionEmbed)?;
    tally.equal("rows that are read", &tokens, &found.shape[0])?;
    for position in 0..tokens {
        let expected = matrix_row(&table, position);
        tally.equal(format!("row {position}"), &expected, &wide(found.row(position)))?;
    }
    Ok(format!("rows 0 to {} of {context}", tokens - 1))
}

fn no_dropout(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let prompt = subject.prompt.clone();
    let (one, other) = (subject.pass(&prompt)?, subject.fresh(&prompt)?);
    tally.same_bits("logits", &one.logits, &other.logits)?;
    Ok(format!("{} logits, twice the same bits", one.logits.len()))
}

fn in_a_file(package: &Arc<Package>, tally: &mut Tally) -> Seen {
    let tensor = Oracle::new(package).matrix(Part::TokenEmbedding)?.tensor;
    let file = first_bytes(&package.path, tensor.name, 64)
        .map_err(|error| Stop::failed("the file", error))?;
    tally.equal("first bytes of the token table", &file.bytes[..], &tensor.bytes[..64])?;
    Ok(format!("{} in {}", tensor.name, file.name))
}

fn read_again(package: &Arc<Package>, tally: &mut Tally) -> Seen {
    let again = Package::open(&package.path).map_err(|error| Stop::failed("opening", error))?;
    let mut bytes = 0;
    for (one, other) in package.weights.tensors().zip(again.weights.tensors()) {
        tally.equal("names", one.name, other.name)?;
        let same = one.bytes == other.bytes && one.shape == other.shape;
        tally.holds(one.name, "the same bytes", same, "other bytes")?;
        bytes += one.bytes.len();
    }
    package.weights.release_pages();
    Ok(format!("{bytes} bytes, opened twice"))
}

fn own_shape(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (pass, config) = (subject.prefill()?, subject.package.config.clone());
    let Config { layers, hidden, heads, head_dim, vocab, .. } = config;
    let weights = layers_of_weights(&subject.package);
    tally.equal("layers of the weights", &layers, &weights)?;
    let ran = pass.order.iter().filter(|point| point.site == Site::ResidualPost).count();
    tally.equal("layers that ran", &layers, &ran)?;
    let table = Oracle::new(&subject.package).matrix(Part::TokenEmbedding)?.tensor.shape;
    tally.equal("token table", &[vocab, hidden][..], &table[..])?;
    let query = &pass.at(layers - 1, Site::Query)?.shape[1..];
    tally.equal("heads of the last layer", &[heads, head_dim][..], query)?;
    Ok(format!("{layers} layers, {heads} heads of {head_dim}, {hidden} hidden"))
}
