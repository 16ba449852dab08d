//! Weights as numbers, and products with them.

use package::{Matrix, RowOrder, Tensor};
use rayon::prelude::*;

use super::Rows;

/// Outputs that are computed together.
const OUTPUTS: usize = 64;

/// The numbers in double precision.
pub(crate) fn wide(numbers: &[f32]) -> Vec<f64> {
    numbers.iter().copied().map(f64::from).collect()
}

/// `count` numbers of a tensor from the `start`-th on, which begin a block.
fn read(tensor: &Tensor, start: usize, count: usize) -> Vec<f64> {
    let (elements, size) = (tensor.dtype.block_elements(), tensor.dtype.block_bytes());
    let bytes = &tensor.bytes[start / elements * size..][..count.div_ceil(elements) * size];
    wide(&engine::dequantize(tensor.dtype, bytes))
}

/// Where the row of an output is stored.
fn stored(order: RowOrder, output: usize) -> usize {
    match order {
        RowOrder::Natural => output,
        RowOrder::InterleavedRope { head_dim } => {
            let (head, row) = (output / head_dim, output % head_dim);
            let (side, pair) = (row / (head_dim / 2), row % (head_dim / 2));
            head * head_dim + 2 * pair + side
        }
    }
}

/// The numbers that one output of a matrix is made with; of a table, a row.
pub(crate) fn matrix_row(matrix: &Matrix, output: usize) -> Vec<f64> {
    let Matrix { tensor, outputs, inputs, .. } = matrix;
    if matrix.input_major {
        return (0..*inputs).flat_map(|input| read(tensor, input * outputs + output, 1)).collect();
    }
    read(tensor, stored(matrix.row_order, output) * inputs, *inputs)
}

/// `x W` for rows of `x`.
pub(crate) fn multiply(matrix: &Matrix, x: &Rows) -> Rows {
    let starts: Vec<usize> = (0..matrix.outputs).step_by(OUTPUTS).collect();
    let parts: Vec<Rows> = starts.par_iter().map(|&start| some_outputs(matrix, x, start)).collect();
    let whole = |row: usize| parts.iter().flat_map(|part| part[row].iter().copied()).collect();
    (0..x.len()).map(whole).collect()
}

/// The outputs from `start` on.
fn some_outputs(matrix: &Matrix, x: &Rows, start: usize) -> Rows {
    let count = OUTPUTS.min(matrix.outputs - start);
    let mut y = vec![vec![0.0; count]; x.len()];
    if matrix.input_major {
        for input in 0..matrix.inputs {
            let weights = read(&matrix.tensor, input * matrix.outputs + start, count);
            for (x, y) in x.iter().zip(&mut y) {
                y.iter_mut().zip(&weights).for_each(|(y, weight)| *y += x[input] * weight);
            }
        }
    } else {
        for output in 0..count {
            let weights = matrix_row(matrix, start + output);
            for (x, y) in x.iter().zip(&mut y) {
                y[output] = x.iter().zip(&weights).map(|(x, weight)| x * weight).sum();
            }
        }
    }
    y
}
