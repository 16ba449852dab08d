//! The causal mask.

use crate::row::Check::Package;
use crate::row::letters::R;
use crate::row::{Row, row};
use crate::subject::unwritten;

pub(super) const ROWS: &[Row] = &[
    row(76, &[R], "the prompt's q, k and v are computed at once", Package(unwritten)),
    row(77, &[R], "what is masked weighs exactly 0", Package(unwritten)),
    row(78, &[R], "token i sees i + 1 keys, the lower triangle", Package(unwritten)),
    row(79, &[R], "the first token reads itself alone: 1, 0, 0, 0", Package(unwritten)),
    row(80, &[R], "a later token changes nothing before it", Package(unwritten)),
    row(81, &[R], "a new token changes no old K or V", Package(unwritten)),
];
