//! Every instruction set computes what the scalar one computes.

use super::*;
use proptest::prelude::*;

/// Runs every operation and gives the results as bits, so that sets compare.
#[derive(Clone, Copy)]
struct Everything {
    a: [f32; LANES],
    b: [f32; LANES],
    bytes: [u8; 64],
    x: [i8; 4],
    count: usize,
}

impl Kernel for Everything {
    type Output = Vec<u32>;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Vec<u32> {
        let (a, b) = (s.load_slice(&self.a), s.load_slice(&self.b));
        let mut vectors = vec![
            s.splat(self.a[3]),
            s.add(a, b),
            s.sub(a, b),
            s.mul(a, b),
            s.div(a, b),
            s.max(a, b),
            s.min(a, b),
            s.abs(a),
            s.sqrt(s.abs(a)),
            s.round(a),
            s.pow2(s.round(s.min(s.max(a, s.splat(-126.0)), s.splat(127.0)))),
            s.select(s.first_lanes(self.count), a, b),
            s.select(s.less(a, b), a, b),
            s.load_partial(&self.a[..self.count], 2.5),
        ];
        let numbers = s.to_i32(s.round(s.min(s.max(a, s.splat(-127.0)), s.splat(127.0))));
        vectors.push(s.to_f32(numbers));
        vectors.push(s.to_f32(s.add_i32(numbers, s.splat_i32(7))));
        let bits = s.max_i32(s.magnitude_bits(a), s.magnitude_bits(b));
        let mut out = vec![s.reduce_max_i32(bits) as u32, s.reduce_max_i32(numbers) as u32];
        let mut halves = [0u16; LANES];
        // SAFETY: every pointer is to an array of the length that the method wants.
        unsafe {
            let bytes = s.load_bytes(self.bytes.as_ptr());
            let (low, high) = (s.low_nibbles(bytes), s.high_nibbles(bytes));
            let start = s.splat_i32(-3);
            vectors.push(s.to_f32(s.dot_u7_i8(start, low, self.x.as_ptr())));
            vectors.push(s.to_f32(s.dot_u7_i8(start, high, self.x.as_ptr())));
            for by in 0..4 {
                let moved = s.words_up_4(s.words_down(bytes, by));
                let five = s.or_masked(low, moved, 16);
                vectors.push(s.to_f32(s.dot_u7_i8(start, five, self.x.as_ptr())));
            }
            vectors.push(s.to_f32(s.load_u8(self.bytes.as_ptr())));
            vectors.push(s.to_f32(s.load_i8(self.bytes.as_ptr().cast())));
            let mut stored = self.bytes;
            if S::OFFSET_W8 {
                stored.iter_mut().for_each(|byte| *byte ^= 128);
            }
            let sum: i32 = self.x.iter().map(|x| i32::from(*x)).sum();
            let start = s.splat_i32(if S::OFFSET_W8 { -128 * sum } else { 0 });
            let dot = s.dot_w8_i8(start, s.load_bytes(stored.as_ptr()), self.x.as_ptr());
            vectors.push(s.to_f32(dot));
            out.push(s.reduce_add_i32(dot) as u32);
            let words = s.dot_i16(s.splat_i32(5), bytes, self.x.as_ptr().cast());
            out.push(s.reduce_add_i32(words) as u32);
            vectors.push(s.to_f32(words));
            let mut stored = [0i16; LANES];
            s.store_i16(stored.as_mut_ptr(), s.to_i32(s.round(s.min(a, s.splat(32767.0)))));
            out.extend(stored.map(|x| x as u32));
            s.store_f16(halves.as_mut_ptr(), a);
            vectors.push(s.load_f16(halves.as_ptr()));
            let mut small = [0i8; LANES];
            s.store_i8(small.as_mut_ptr(), numbers);
            out.extend(small.map(|x| x as u32));
        }
        for vector in vectors {
            out.extend(s.to_array(vector).map(|x| x.to_bits()));
        }
        out.extend([s.reduce_add(a).to_bits(), s.reduce_max(a).to_bits()]);
        let mut partial = vec![0.0; self.count];
        s.store_partial(&mut partial, b);
        out.extend(partial.iter().map(|x| x.to_bits()));
        out
    }
}

/// What is done to several vectors of integers at once, the bits of the results.
#[derive(Clone, Copy)]
struct OfEach([[i8; LANES]; LANES]);

impl Kernel for OfEach {
    type Output = ([i32; LANES], [i32; LANES], [i8; 4 * LANES]);

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Self::Output {
        let mut vectors = [s.splat_i32(0); LANES];
        let mut bytes = [0; 4 * LANES];
        // SAFETY: there are 16 bytes to load, and four times 16 to store to.
        unsafe {
            for (vector, from) in vectors.iter_mut().zip(&self.0) {
                *vector = s.load_i8(from.as_ptr());
            }
            s.store_i8_of_each(
                bytes.as_mut_ptr(),
                [vectors[0], vectors[1], vectors[2], vectors[3]],
            );
        }
        (s.reduce_max_i32_of_each(&vectors), s.reduce_add_i32_of_each(&vectors), bytes)
    }
}

struct MulAdd([f32; 3]);

impl Kernel for MulAdd {
    type Output = [f32; LANES];

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> [f32; LANES] {
        s.to_array(s.mul_add(s.splat(self.0[0]), s.splat(self.0[1]), s.splat(self.0[2])))
    }
}

/// Adds the products of pairs of bf16 numbers to `acc`.
#[derive(Clone, Copy)]
struct DotBf16 {
    acc: f32,
    weights: [[f32; 2]; LANES],
    x: [f32; 2],
}

/// The first number in the low half.
fn pair([first, second]: [f32; 2]) -> u32 {
    first.to_bits() >> 16 | second.to_bits() & 0xFFFF_0000
}

impl Kernel for DotBf16 {
    type Output = [u32; LANES];

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> [u32; LANES] {
        let weights = self.weights.map(pair);
        // SAFETY: 64 bytes of weights, and one pair.
        let sums = unsafe {
            let weights = s.load_bytes(weights.as_ptr().cast());
            s.dot_bf16(s.splat(self.acc), weights, &pair(self.x))
        };
        s.to_array(sums).map(f32::to_bits)
    }
}

proptest! {
    #[test]
    fn pairs_of_bf16_are_added_second_then_first(
        acc in -9f32..9.0,
        weights in prop::array::uniform16(prop::array::uniform2(-9f32..9.0)),
        x in prop::array::uniform2(-9f32..9.0),
    ) {
        let cut = |x: f32| f32::from_bits(x.to_bits() & 0xFFFF_0000);
        let (weights, x) = (weights.map(|pair| pair.map(cut)), x.map(cut));
        // A product of two bf16 numbers is exact, so fused or not is the same.
        let expected = weights.map(|w| (acc + w[1] * x[1] + w[0] * x[0]).to_bits());
        for isa in Isa::available() {
            let dot = DotBf16 { acc, weights, x };
            prop_assert_eq!(dispatch(isa, dot), expected, "{}", isa);
            prop_assert_eq!(dispatch_bf16(isa, dot), expected, "{}", isa);
        }
    }

    #[test]
    fn every_set_agrees_with_scalar(
        a in prop::array::uniform16(-1e5f32..1e5),
        b in prop::array::uniform16(-300f32..300.0),
        bytes in prop::collection::vec(any::<u8>(), 64),
        x in prop::array::uniform4(-127i8..=127),
        count in 0usize..=16,
    ) {
        let bytes: [u8; 64] = bytes.try_into().unwrap();
        let everything = Everything { a, b, bytes, x, count };
        let expected = dispatch(Isa::Scalar, everything);
        for isa in Isa::available() {
            prop_assert_eq!(&dispatch(isa, everything), &expected, "{}", isa);
        }
    }

    #[test]
    fn several_vectors_at_once_are_each_as_alone(
        numbers in prop::array::uniform16(prop::array::uniform16(any::<i8>())),
    ) {
        let greatest = numbers.map(|of| of.into_iter().max().unwrap().into());
        let sums = numbers.map(|of| of.into_iter().map(i32::from).sum());
        let bytes: Vec<i8> = numbers[..4].concat();
        for isa in Isa::available() {
            let (max, sum, stored) = dispatch(isa, OfEach(numbers));
            prop_assert_eq!((max, sum, &stored[..]), (greatest, sums, &bytes[..]), "{}", isa);
        }
    }

    #[test]
    fn fused_where_promised(a in -9f32..9.0, b in -9f32..9.0, c in -9f32..9.0) {
        for isa in Isa::available() {
            let expected = if isa == Isa::Scalar { a * b + c } else { a.mul_add(b, c) };
            for lane in dispatch(isa, MulAdd([a, b, c])) {
                prop_assert_eq!(lane.to_bits(), expected.to_bits(), "{}", isa);
            }
        }
    }
}

#[test]
fn the_greatest_bytes_do_not_saturate() {
    let ones = [1.0; LANES];
    for (byte, x) in [(128u8, 127i8), (128, -127), (127, 127), (255, 127), (129, -127)] {
        let everything = Everything { a: ones, b: ones, bytes: [byte; 64], x: [x; 4], count: 16 };
        let expected = dispatch(Isa::Scalar, everything);
        for isa in Isa::available() {
            assert_eq!(dispatch(isa, everything), expected, "{isa}");
        }
        let product = i32::from(byte as i8) * i32::from(x);
        assert_eq!(expected[2] as i32, 16 * (4 * product));
    }
}
