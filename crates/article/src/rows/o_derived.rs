//! What follows from it.

use crate::live::later;
use crate::row::Check::{Live, Package};
use crate::row::letters::{C, S, T};
use crate::row::{Row, row};
use crate::subject::unwritten;

pub(super) const ROWS: &[Row] = &[
    row(181, &[C], "81912576 parameters, 7087872 in each layer", Package(unwritten)),
    row(182, &[S], "of a prompt held whole, the last token is computed", Live(later)),
    row(183, &[S], "a token put in front leaves nothing to reuse", Live(later)),
    row(184, &[S, T], "reuse is by ids: equal text can miss", Live(later)),
    row(185, &[S], "the template's own text is part of the prefix", Live(later)),
];
