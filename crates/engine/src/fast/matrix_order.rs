//! The order in which a step meets the model's matrices, learned from the step before: it is the
//! same in each.

use kernels::{PackedMatrix, WeightPlace};

#[derive(Default)]
pub(crate) struct MatrixOrder {
    places: Vec<WeightPlace>,
    passed: usize,
}

impl MatrixOrder {
    /// A step begins.
    pub(crate) fn begin(&mut self) {
        self.passed = 0;
    }

    /// The step is at `matrix`. Gives the place of the one that comes after it; after the last, and
    /// while it is not known, that of the first.
    pub(crate) fn pass(&mut self, matrix: &PackedMatrix) -> WeightPlace {
        let place = WeightPlace::of(matrix);
        match self.places.get_mut(self.passed) {
            Some(known) => *known = place,
            None => self.places.push(place),
        }
        self.passed += 1;
        self.places[self.passed % self.places.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernels::{Isa, MatrixSource, RowOrder, WeightMemory, WeightType};

    fn matrix() -> PackedMatrix {
        let source = MatrixSource {
            weight_type: WeightType::F32,
            bytes: &[0; 4 * 32],
            outputs: 1,
            inputs: 32,
            input_major: false,
            row_order: RowOrder::Natural,
        };
        PackedMatrix::pack(Isa::Scalar, &WeightMemory::default(), &[source], None).unwrap()
    }

    #[test]
    fn the_next_is_known_from_the_step_before() {
        let matrices = [matrix(), matrix(), matrix()];
        let places = matrices.each_ref().map(WeightPlace::of);
        let mut order = MatrixOrder::default();
        for step in 0..3 {
            order.begin();
            for (at, matrix) in matrices.iter().enumerate() {
                let next = order.pass(matrix);
                assert_eq!(next, places[if step == 0 { 0 } else { (at + 1) % 3 }]);
            }
        }
        order.begin();
        assert_eq!(order.pass(&matrices[2]), places[1], "another order is learned");
        order.begin();
        assert_eq!(order.pass(&matrices[0]), places[1]);
        assert_eq!(order.pass(&matrices[1]), places[2]);
    }
}
