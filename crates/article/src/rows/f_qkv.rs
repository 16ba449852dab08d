//! Queries, keys and values.

use crate::row::Check::{Package, Read};
use crate::row::letters::{C, D, R, W};
use crate::row::{Row, row};
use crate::subject::unwritten;

pub(super) const ROWS: &[Row] = &[
    row(54, &[D], "Q asks, K answers what it has, V is what is read", Read),
    row(55, &[C], "W_QKV is (768, 2304): three matrices side by side", Package(unwritten)),
    row(56, &[C], "b_QKV is (2304,)", Package(unwritten)),
    row(57, &[C], "X W_QKV + b is (1, 4, 2304)", Package(unwritten)),
    row(58, &[R], "one multiplication gives Q, K and V of all tokens", Package(unwritten)),
    row(59, &[D], "a projection is a linear map", Read),
    row(60, &[R, W], "its columns are Q, then K, then V", Package(unwritten)),
    row(61, &[C], "q, k and v are (1, 4, 768) each", Package(unwritten)),
    row(62, &[R], "all keys come from one pass, before any query asks", Package(unwritten)),
    row(63, &[C], "heads: (1, 4, 768), (1, 4, 12, 64), (1, 12, 4, 64)", Package(unwritten)),
    row(64, &[R], "splitting into heads only names columns", Package(unwritten)),
    row(65, &[C], "a head's query, key and value are (64,)", Package(unwritten)),
    row(66, &[D], "parameters start random and are trained", Read),
];
