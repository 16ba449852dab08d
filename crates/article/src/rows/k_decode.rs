//! Decode.

use crate::live::later;
use crate::row::Check::{Live, Package, Read};
use crate::row::letters::{C, D, R, S};
use crate::row::{Row, row};
use crate::subject::unwritten;

pub(super) const ROWS: &[Row] = &[
    row(113, &[R], "a chosen token is not in the cache yet", Package(unwritten)),
    row(114, &[R], "the next step computes it, and predicts the one after", Package(unwritten)),
    row(115, &[C], "that step's input is (1, 1)", Package(unwritten)),
    row(116, &[R], "after it the cache is one longer", Package(unwritten)),
    row(117, &[C], "attention weights are (1, 12, 1, 5)", Package(unwritten)),
    row(118, &[C], "logits are (1, 1, 50257): one row", Package(unwritten)),
    row(119, &[C], "the new q, k and v are (1, 12, 1, 64)", Package(unwritten)),
    row(120, &[C], "K and V are (1, 12, 5, 64) then", Package(unwritten)),
    row(121, &[R], "the new query meets the old keys and its own", Package(unwritten)),
    row(122, &[R], "the new token goes through all layers", Package(unwritten)),
    row(123, &[D], "(1, 1) does not mean that one token is known", Read),
    row(124, &[R], "its position is the cache's length before it", Package(unwritten)),
    row(125, &[S], "attention weights are shown only if asked for", Live(later)),
    row(126, &[R], "with the cache or without: the same logits", Package(unwritten)),
    row(127, &[R], "evaluations: 1 x layers with it, 5 x layers without", Package(unwritten)),
    row(128, &[D, R], "the cache saves the history, not the new token", Package(unwritten)),
    row(129, &[S], "a longer prompt is a longer prefill", Live(later)),
    row(130, &[S], "each new token reads the whole history", Live(later)),
    row(131, &[D], "which is why long contexts stay slow", Read),
    row(132, &[R], "the cache grows by one position for each token", Package(unwritten)),
];
