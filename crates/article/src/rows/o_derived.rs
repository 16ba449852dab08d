//! What follows from it.

use std::sync::Arc;

use package::Package;

use crate::live::{pair, prefix};
use crate::row::Check::{Live, Package as InPackage};
use crate::row::letters::{C, S, T};
use crate::row::{Row, row};
use crate::tally::{Seen, Tally};

pub(super) const ROWS: &[Row] = &[
    row(181, &[C], "81912576 parameters, 7087872 in each layer", InPackage(parameters)),
    row(182, &[S], "of a prompt held whole, the last token is computed", Live(prefix::whole)),
    row(183, &[S], "a token put in front leaves nothing to reuse", Live(prefix::shifted)),
    row(184, &[S, T], "reuse is by ids: equal text can miss", Live(pair::retokenized)),
    row(185, &[S], "the template's own text is part of the prefix", Live(prefix::template)),
];

fn parameters(package: &Arc<Package>, tally: &mut Tally) -> Seen {
    let (mut total, mut layers) = (0, [0; 6]);
    for tensor in package.weights.tensors() {
        // A tied head may be in the file too; older files have a constant mask beside each layer.
        let is_mask = tensor.name.ends_with(".attn.bias") || tensor.name.ends_with("masked_bias");
        if tensor.name.contains("lm_head") || is_mask {
            continue;
        }
        let numbers: usize = tensor.shape.iter().product();
        total += numbers;
        let layer = tensor.name.split('.').find_map(|part| part.parse::<usize>().ok());
        if let Some(layer) = layer.and_then(|layer| layers.get_mut(layer)) {
            *layer += numbers;
        }
    }
    tally.equal("in each layer", &[7_087_872; 6], &layers)?;
    tally.equal("in all", &81_912_576, &total)?;
    Ok(format!("{total}, {} in each layer", layers[0]))
}
