//! The self-test: the rows about the model once more, on deliberately broken engines. Rows that
//! watch what is broken must turn to `not ok`, or they watch nothing.

use engine::Fault;
use package::Config;

use crate::report::{Outcome, RowReport, SelfTest};

/// A broken engine, and the rows that must notice: these and no others.
pub(crate) struct Broken {
    pub(crate) fault: Fault,
    /// What is broken, in a few words.
    pub(crate) name: &'static str,
    /// Rows that must turn, where they are checked at all.
    turns: &'static [u16],
    /// Rows that must turn too, where the model has a table of positions. (Rotated q and k only
    /// know how far apart they are.)
    turns_with_table: &'static [u16],
}

/// The broken engines.
pub(crate) const BROKEN: [Broken; 5] = [
    Broken {
        fault: Fault::OpenMask,
        name: "the mask lets later tokens through",
        turns: &[43, 68, 69, 75, 77, 78, 79, 80, 96, 126],
        turns_with_table: &[],
    },
    Broken {
        fault: Fault::SplitOrder,
        name: "q, k and v are taken as k, q and v",
        turns: &[60, 75, 76],
        turns_with_table: &[],
    },
    Broken {
        fault: Fault::NoResidual,
        name: "nothing is added to the residual stream",
        turns: &[86, 90],
        turns_with_table: &[],
    },
    Broken {
        fault: Fault::PositionOff,
        name: "positions are off by one",
        turns: &[11, 33, 124],
        turns_with_table: &[75],
    },
    Broken {
        fault: Fault::CacheShort,
        name: "the cache is one short",
        turns: &[81, 116, 117, 120, 121, 126, 132],
        turns_with_table: &[],
    },
];

/// Compares the rows on the engine as it is with the same on the broken one.
pub(crate) fn judge(
    broken: &Broken,
    config: &Config,
    sound: &[RowReport],
    rows: &[RowReport],
) -> SelfTest {
    let is_ok = |number: u16, rows: &[RowReport]| {
        let row = rows.iter().find(|row| row.row == number);
        row.is_some_and(|row| matches!(row.outcome, Outcome::Ok { .. }))
    };
    let was_ok = rows.iter().map(|row| row.row).filter(|row| is_ok(*row, sound));
    let (stayed, turned): (Vec<u16>, Vec<u16>) = was_ok.partition(|row| is_ok(*row, rows));
    let has_table = config.rope.is_none();
    let must = |row: &u16| {
        broken.turns.contains(row) || has_table && broken.turns_with_table.contains(row)
    };
    let missed: Vec<u16> = stayed.into_iter().filter(must).collect();
    let unexpected: Vec<u16> = turned.iter().copied().filter(|row| !must(row)).collect();
    let caught = missed.is_empty() && unexpected.is_empty() && !turned.is_empty();
    SelfTest { fault: broken.name, turned, missed, unexpected, caught }
}
