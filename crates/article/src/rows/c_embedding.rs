//! Embedding and position.

use engine::Site;

use crate::live::later;
use crate::row::Check::{Live, Package, Read, Real};
use crate::row::letters::{C, D, R, S, W};
use crate::row::{Row, row};
use crate::sequence::shown;
use crate::subject::{Subject, unwritten};
use crate::tally::{Seen, Tally};

pub(super) const ROWS: &[Row] = &[
    row(29, &[C], "the embedding of 464 is 768 numbers", Package(unwritten)),
    row(30, &[W], "its first 8 numbers are -0.0626, -0.0449, 0.0559, …", Real(first_numbers)),
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

/// What the article prints of the embedding of 464.
const FIRST: [f64; 8] = [
    -0.06264858692884445,
    -0.04490645229816437,
    0.0558876097202301,
    -0.05465700104832649,
    -0.1171262264251709,
    -0.07286953926086426,
    -0.22325637936592102,
    -0.0032198030967265368,
];

fn first_numbers(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let pass = subject.prefill()?;
    let embed = shown(pass.model(Site::Embed), "embeddings")?;
    let found = embed.row(0).get(..8).unwrap_or_default();
    tally.same_bits("embedding of 464", &FIRST.map(|number| number as f32), found)?;
    Ok(format!("{found:?}"))
}
