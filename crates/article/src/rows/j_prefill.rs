//! Prefill and the KV cache.

use crate::live::later;
use crate::row::Check::{Live, Package, Read};
use crate::row::letters::{C, D, R, S};
use crate::row::{Row, row};
use crate::subject::unwritten;

pub(super) const ROWS: &[Row] = &[
    row(106, &[S], "prefill is the first pass, over the whole prompt", Live(later)),
    row(107, &[C], "it leaves K and V of 6 layers", Package(unwritten)),
    row(108, &[C], "each K and each V is (1, 12, 4, 64)", Package(unwritten)),
    row(109, &[D], "the axes: batch, heads, tokens, width", Read),
    row(110, &[C], "6 x 12 = 72 K and 72 V, each with its own numbers", Package(unwritten)),
    row(111, &[R], "K and V are kept, queries are not", Package(unwritten)),
    row(112, &[C], "9216 numbers and 36864 bytes for each token", Package(unwritten)),
];
