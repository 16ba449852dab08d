//! The norm before attention.

use crate::row::Check::{Package, Read};
use crate::row::letters::{C, D, R};
use crate::row::{Row, row};
use crate::subject::unwritten;

pub(super) const ROWS: &[Row] = &[
    row(47, &[R], "each layer normalizes before it attends", Package(unwritten)),
    row(48, &[R], "(h - mean) / sqrt(variance + epsilon), gain, bias", Package(unwritten)),
    row(49, &[C], "gain and bias are 768 trained numbers each", Package(unwritten)),
    row(50, &[R], "a norm mixes no tokens", Package(unwritten)),
    row(51, &[C], "a norm keeps the shape (1, 4, 768)", Package(unwritten)),
    row(52, &[D], "x[0, 3] is ' on' before attention", Read),
    row(53, &[R], "all tokens of the prompt go through in one pass", Package(unwritten)),
];
