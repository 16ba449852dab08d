//! Layers and heads.

use crate::row::Check::{Package, Read};
use crate::row::letters::{D, R};
use crate::row::{Row, row};
use crate::subject::unwritten;

pub(super) const ROWS: &[Row] = &[
    row(40, &[R], "each layer begins with what the last one gave", Package(unwritten)),
    row(41, &[R], "attention reads earlier tokens, the MLP only its own", Package(unwritten)),
    row(42, &[R], "a layer makes no words: no logits inside", Package(unwritten)),
    row(43, &[R], "each head has its own slice of Q, K and V", Package(unwritten)),
    row(44, &[R], "the heads' outputs are merged", Package(unwritten)),
    row(45, &[D], "heads are given no invented meanings", Read),
    row(46, &[D], "hidden means passed on between layers", Read),
];
