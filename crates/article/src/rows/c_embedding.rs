//! Embedding and position.

use engine::Site;
use package::Part;

use crate::live::steps;
use crate::oracle::{Oracle, matrix_row, wide};
use crate::real::FIRST;
use crate::row::Check::{Live, Model, Read, Real};
use crate::row::letters::{C, D, R, S, W};
use crate::row::{Row, row};
use crate::subject::Subject;
use crate::tally::{Seen, Tally};

pub(super) const ROWS: &[Row] = &[
    row(29, &[C], "the embedding of 464 is 768 numbers", Model(one_embedding)),
    row(30, &[W], "its first 8 numbers are -0.0626, -0.0449, 0.0559, …", Real(first_numbers)),
    row(31, &[R], "an embedding is its id's row of the token table", Model(looked_up)),
    row(32, &[R], "an embedding carries no position", Model(no_position)),
    row(33, &[R], "positions count from 0", Model(from_zero)),
    row(34, &[C], "token embeddings are (1, 4, 768)", Model(token_shape)),
    row(35, &[C], "position embeddings are (1, 4, 768)", Model(position_shape)),
    row(36, &[R], "token and position are added, not joined", Model(added)),
    row(37, &[R], "one token at two positions enters as two vectors", Model(two_positions)),
    row(38, &[S], "text, tokens, ids, token table, position table, sum", Live(steps::chain)),
    row(39, &[D], "from here on there are vectors, no characters", Read),
];

fn one_embedding(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let pass = subject.prefill()?;
    let found = pass.of(Site::Embed)?.row(0).len();
    tally.equal("numbers", &768, &found)?;
    Ok(format!("({found},)"))
}

fn first_numbers(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let pass = subject.prefill()?;
    let found = pass.of(Site::Embed)?.row(0).get(..8).unwrap_or_default();
    tally.same_bits("embedding of 464", &FIRST.map(|number| number as f32), found)?;
    Ok(format!("{found:?}"))
}

fn looked_up(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (pass, package) = (subject.prefill()?, subject.package.clone());
    let table = Oracle::new(&package).matrix(Part::TokenEmbedding)?;
    let found = pass.of(Site::Embed)?;
    for (row, &id) in subject.prompt.iter().enumerate() {
        let expected = matrix_row(&table, id as usize);
        let what = format!("embedding of {id}");
        // A block's scale is applied in single precision; whole numbers are not touched at all.
        match table.tensor.dtype.block_elements() {
            1 => tally.equal(what, &expected, &wide(found.row(row)))?,
            _ => tally.close(what, &expected, found.row(row), 1e-6)?,
        }
    }
    Ok(format!("{} rows of the table, unchanged", subject.prompt.len()))
}

/// The first token, the second, and the first again.
fn twice(subject: &Subject) -> Vec<u32> {
    vec![subject.prompt[0], subject.prompt[1], subject.prompt[0]]
}

fn no_position(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let tokens = twice(subject);
    let pass = subject.pass(&tokens)?;
    let found = pass.of(Site::Embed)?;
    tally.same_bits("embeddings of one id", found.row(0), found.row(2))?;
    tally.differ("embeddings of two ids", found.row(0), found.row(1))?;
    Ok(format!("id {} at 0 and at 2: the same {} bits", tokens[0], 32 * found.width()))
}

fn from_zero(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let (pass, package) = (subject.prefill()?, subject.package.clone());
    let (oracle, last) = (Oracle::new(&package), subject.prompt.len() - 1);
    if package.config.rope.is_some() {
        let keys = pass.at(0, Site::Key)?.rows();
        let expected = oracle.placed(&keys, 0);
        let found = pass.met_keys(0)?;
        tally.close("key at 0, not turned", &keys[0], found.row(0), 1e-5)?;
        tally.close("key at the last position", &expected[last], found.row(last), 1e-5)?;
        return Ok(format!("turned by 0 to {last}"));
    }
    let table = oracle.matrix(Part::PositionEmbedding)?;
    let found = pass.of(Site::PositionEmbed)?;
    for position in [0, last] {
        let expected = matrix_row(&table, position);
        tally.equal(format!("position {position}"), &expected, &wide(found.row(position)))?;
    }
    Ok(format!("0 to {last}, (1, {})", last + 1))
}

fn token_shape(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let shape = subject.prefill()?.of(Site::Embed)?.batched();
    tally.equal("shape", &[1, 4, 768][..], &shape[..])?;
    Ok(format!("{shape:?}"))
}

fn position_shape(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let shape = subject.prefill()?.of(Site::PositionEmbed)?.batched();
    tally.equal("shape", &[1, 4, 768][..], &shape[..])?;
    Ok(format!("{shape:?}"))
}

fn added(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let pass = subject.prefill()?;
    let (embed, entered) = (pass.of(Site::Embed)?, pass.at(0, Site::ResidualPre)?);
    tally.equal("shape of what enters", &embed.shape, &entered.shape)?;
    if subject.package.config.rope.is_some() {
        tally.same_bits("what enters layer 0", &embed.values, &entered.values)?;
        return tally.otherwise("nothing is added or joined: positions turn q and k in each layer");
    }
    let positions = &pass.of(Site::PositionEmbed)?.values;
    let sum: Vec<f32> = embed.values.iter().zip(positions).map(|(x, y)| x + y).collect();
    tally.same_bits("what enters layer 0", &sum, &entered.values)?;
    Ok(format!("{} sums", sum.len()))
}

fn two_positions(subject: &mut Subject, tally: &mut Tally) -> Seen {
    let tokens = twice(subject);
    let pass = subject.pass(&tokens)?;
    if subject.package.config.rope.is_some() {
        let keys = pass.met_keys(0)?;
        tally.differ("keys of one id", keys.row(0), keys.row(2))?;
        return tally.otherwise("it enters as one vector; its keys are turned differently");
    }
    let entered = pass.at(0, Site::ResidualPre)?;
    tally.differ("what enters", entered.row(0), entered.row(2))?;
    let differences = entered.row(0).iter().zip(entered.row(2)).filter(|(x, y)| x != y).count();
    Ok(format!("{differences} of {} numbers differ", entered.width()))
}
