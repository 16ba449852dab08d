//! Embedding and position.

use crate::live::later;
use crate::row::Check::{Live, Package, Read};
use crate::row::letters::{C, D, R, S, W};
use crate::row::{Row, row};
use crate::subject::unwritten;

pub(super) const ROWS: &[Row] = &[
    row(29, &[C], "the embedding of 464 is 768 numbers", Package(unwritten)),
    row(30, &[W], "its first 8 numbers are -0.0626, -0.0449, 0.0559, …", Package(unwritten)),
    row(31, &[R], "an embedding is its id's row of the token table", Package(unwritten)),
    row(32, &[R], "an embedding carries no position", Package(unwritten)),
    row(33, &[R], "positions count from 0", Package(unwritten)),
    row(34, &[C], "token embeddings are (1, 4, 768)", Package(unwritten)),
    row(35, &[C], "position embeddings are (1, 4, 768)", Package(unwritten)),
    row(36, &[R], "token and position are added, not joined", Package(unwritten)),
    row(37, &[R], "one token at two positions enters as two vectors", Package(unwritten)),
    row(38, &[S], "text, tokens, ids, token table, position table, sum", Live(later)),
    row(39, &[D], "from here on there are vectors, no characters", Read),
];
