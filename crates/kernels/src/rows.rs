//! A view of rows inside a larger matrix.

/// Rows inside a larger matrix, such as the queries in the output of a fused q|k|v projection: row
/// `r` starts at `data[r * stride + offset]`. How wide it is follows from the kernel's other
/// arguments.
#[derive(Clone, Copy, Debug)]
pub struct Strided<'a> {
    /// The matrix.
    pub data: &'a [f32],
    /// Numbers from one row to the next.
    pub stride: usize,
    /// Where in the matrix's row the view's row begins.
    pub offset: usize,
}

impl<'a> Strided<'a> {
    /// A matrix of rows of `width` numbers, seen whole.
    pub fn whole(data: &'a [f32], width: usize) -> Strided<'a> {
        Strided { data, stride: width, offset: 0 }
    }

    /// The first `width` numbers of a row.
    ///
    /// # Panics
    /// If the matrix ends before.
    #[inline(always)]
    pub fn row(&self, row: usize, width: usize) -> &'a [f32] {
        &self.data[row * self.stride + self.offset..][..width]
    }
}
