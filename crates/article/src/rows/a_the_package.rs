//! The model package.

use crate::live::later;
use crate::row::Check::{Live, Model, Package, Read};
use crate::row::letters::{C, D, R, S, T};
use crate::row::{Row, row};
use crate::subject::{Subject, unwritten};
use crate::tally::{Seen, Tally};

pub(super) const ROWS: &[Row] = &[
    row(1, &[D], "the article's model is DistilGPT-2, a distilled GPT-2", Read),
    row(2, &[C], "6 layers", Package(unwritten)),
    row(3, &[C], "12 attention heads in each layer", Package(unwritten)),
    row(4, &[C], "768 hidden numbers", Package(unwritten)),
    row(5, &[C], "a head is 768 / 12 = 64 wide", Package(unwritten)),
    row(6, &[T, C], "50257 tokens in the vocabulary", Package(unwritten)),
    row(7, &[C], "the token table is (50257, 768), a row for each id", Package(unwritten)),
    row(8, &[C], "valid ids are 0 to 50256", Package(unwritten)),
    row(9, &[C], "the position table is (1024, 768)", Package(unwritten)),
    row(10, &[C, S], "the context is 1024 positions, 0 to 1023", Live(later)),
    row(11, &[R], "only the rows of the prompt's own positions are read", Package(unwritten)),
    row(12, &[R], "no dropout: the same prompt gives the same bits", Model(no_dropout)),
    row(13, &[D], "the tokenizer is rules, the model trained matrices", Read),
    row(14, &[R], "the weights lie in a file, model.safetensors or a GGUF", Package(unwritten)),
    row(15, &[R], "weights are read, not computed: same file, same bits", Package(unwritten)),
    row(16, &[S], "weights, config, tokenizer: none may be missing", Live(later)),
    row(17, &[R], "layers, heads and widths are the package's own data", Package(unwritten)),
];

fn no_dropout(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let prompt = subject.prompt.clone();
    let (one, other) = (subject.pass(&prompt)?, subject.fresh(&prompt)?);
    tally.same_bits("logits", &one.logits, &other.logits)?;
    Ok(format!("{} logits, twice the same bits", one.logits.len()))
}
