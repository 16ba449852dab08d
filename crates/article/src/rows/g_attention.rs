//! Attention.

use crate::row::Check::{Package, Read};
use crate::row::letters::{D, R, W};
use crate::row::{Row, row};
use crate::subject::unwritten;

pub(super) const ROWS: &[Row] = &[
    row(67, &[R], "scores are q k / sqrt(head width)", Package(unwritten)),
    row(68, &[R], "softmax makes weights of them: none negative, sum 1", Package(unwritten)),
    row(69, &[R], "the head's output is the weighted sum of the values", Package(unwritten)),
    row(70, &[R], "values take no part in matching", Package(unwritten)),
    row(71, &[W], "' on' reads 0.4397, 0.2247, 0.2872, 0.0484", Package(unwritten)),
    row(72, &[W], "it reads mostly the first three, hardly itself", Package(unwritten)),
    row(73, &[R, W], "other heads and layers weigh otherwise", Package(unwritten)),
    row(74, &[D], "a weight is no probability of a next token", Read),
    row(75, &[R], "recomputed from the weights alone, it is the same", Package(unwritten)),
];
