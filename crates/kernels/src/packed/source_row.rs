//! One output's weights in the matrix that is packed.

use super::layout::PANEL_OUTPUTS;
use crate::weights::MatrixSource;

/// Where one output's weights lie in its source: element `k` starts at byte
/// `start + k * step`.
#[derive(Clone, Copy)]
pub(super) struct SourceRow<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) start: usize,
    /// Bytes from one block of inputs to the next.
    pub(super) step: usize,
    /// Inputs.
    pub(super) inputs: usize,
}

/// The rows of a panel; `None` beyond the last output.
pub(super) fn rows_of_panel<'a>(
    sources: &[MatrixSource<'a>],
    panel: usize,
) -> [Option<SourceRow<'a>>; PANEL_OUTPUTS] {
    let mut rows = [None; PANEL_OUTPUTS];
    for (lane, row) in rows.iter_mut().enumerate() {
        let mut output = panel * PANEL_OUTPUTS + lane;
        for source in sources {
            if output < source.outputs {
                let stored = source.row_order.stored(output);
                let block = source.weight_type.block_bytes();
                let (bytes, inputs) = (source.bytes, source.inputs);
                *row = Some(if source.input_major {
                    let step = source.outputs * block;
                    SourceRow { bytes, start: stored * block, step, inputs }
                } else {
                    let row_bytes = inputs / source.weight_type.block_inputs() * block;
                    SourceRow { bytes, start: stored * row_bytes, step: block, inputs }
                });
                break;
            }
            output -= source.outputs;
        }
    }
    rows
}
