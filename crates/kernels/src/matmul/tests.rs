//! Products against a reference that reads the sources itself and sums in f64,
//! and rows against themselves, on every instruction set.

use super::*;
use crate::{Isa, MatrixSource, PackError, RowOrder, WeightMemory};
use half::{bf16, f16};
use proptest::prelude::*;

const TYPES: [WeightType; 11] = [
    WeightType::F32,
    WeightType::F16,
    WeightType::BF16,
    WeightType::Q8_0,
    WeightType::Q4_0,
    WeightType::Q4_1,
    WeightType::Q5_0,
    WeightType::Q5_1,
    WeightType::Q4_K,
    WeightType::Q5_K,
    WeightType::Q6_K,
];

/// A small generator (xorshift64*), so that a seed gives a whole case.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) as u32
    }

    /// In -1 .. 1.
    fn number(&mut self) -> f32 {
        (self.bits() >> 8) as f32 / (1 << 23) as f32 - 1.0
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.bits() as u8).collect()
    }

    fn numbers(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.number()).collect()
    }
}

fn packed(isa: Isa, sources: &[MatrixSource<'_>], bias: Option<&[f32]>) -> PackedMatrix {
    PackedMatrix::pack(isa, &WeightMemory::default(), sources, bias).unwrap()
}

/// A stored matrix with the f32 weights that it stands for, output by output.
struct Stored {
    weight_type: WeightType,
    bytes: Vec<u8>,
    outputs: usize,
    inputs: usize,
    weights: Vec<f32>,
    input_major: bool,
    row_order: RowOrder,
}

impl Stored {
    fn source(&self) -> MatrixSource<'_> {
        MatrixSource {
            weight_type: self.weight_type,
            bytes: &self.bytes,
            outputs: self.outputs,
            inputs: self.inputs,
            input_major: self.input_major,
            row_order: self.row_order,
        }
    }
}

/// Appends one random block as a file stores it, and what it stands for.
fn random_block(random: &mut Random, kind: WeightType, bytes: &mut Vec<u8>, to: &mut Vec<f32>) {
    if kind.block_inputs() == 256 {
        return random_k_block(random, kind, bytes, to);
    }
    let scale = f16::from_f32(random.number() * 0.1);
    let minimum = f16::from_f32(random.number());
    match kind {
        WeightType::F32 => {
            to.push(random.number());
            bytes.extend(to[to.len() - 1].to_le_bytes());
        }
        WeightType::F16 => {
            let weight = f16::from_f32(random.number());
            to.push(weight.to_f32());
            bytes.extend(weight.to_le_bytes());
        }
        WeightType::BF16 => {
            let weight = bf16::from_f32(random.number());
            to.push(weight.to_f32());
            bytes.extend(weight.to_le_bytes());
        }
        WeightType::Q8_0 => {
            bytes.extend(scale.to_le_bytes());
            for _ in 0..32 {
                // The least byte is common, because it is what saturates.
                let byte = if random.bits().is_multiple_of(4) { -128 } else { random.bits() as i8 };
                bytes.push(byte as u8);
                to.push(scale.to_f32() * f32::from(byte));
            }
        }
        _ => {
            bytes.extend(scale.to_le_bytes());
            let with_minimum = matches!(kind, WeightType::Q4_1 | WeightType::Q5_1);
            if with_minimum {
                bytes.extend(minimum.to_le_bytes());
            }
            let fifth = if matches!(kind, WeightType::Q5_0 | WeightType::Q5_1) {
                let fifth = random.bits();
                bytes.extend(fifth.to_le_bytes());
                Some(fifth)
            } else {
                None
            };
            let packed = random.bytes(16);
            let low = packed.iter().map(|byte| byte & 15);
            let high = packed.iter().map(|byte| byte >> 4);
            to.extend(low.chain(high).enumerate().map(|(i, q)| {
                let q = q + fifth.map_or(0, |fifth| (fifth >> i & 1) as u8 * 16);
                if with_minimum {
                    scale.to_f32() * f32::from(q) + minimum.to_f32()
                } else {
                    scale.to_f32() * (f32::from(q) - if fifth.is_some() { 16.0 } else { 8.0 })
                }
            }));
            bytes.extend(packed);
        }
    }
}

/// As `random_block`, of 256 inputs.
fn random_k_block(random: &mut Random, kind: WeightType, bytes: &mut Vec<u8>, to: &mut Vec<f32>) {
    let scale = f16::from_f32(random.number() * 0.005);
    if kind == WeightType::Q6_K {
        let (low, high, scales) = (random.bytes(128), random.bytes(64), random.bytes(16));
        for i in 0..256 {
            // Of each 128 numbers, the first 64 have the low halves, and 32 share two bits' places.
            let (half, within) = (i / 128, i % 128);
            let four = low[half * 64 + within % 64] >> (within / 64 * 4) & 15;
            let two = high[half * 32 + within % 32] >> (within / 32 * 2) & 3;
            let step = scale.to_f32() * f32::from(scales[i / 16] as i8);
            to.push(step * (f32::from(four | two << 4) - 32.0));
        }
        [low, high, scales].iter().for_each(|part| bytes.extend(part));
        return bytes.extend(scale.to_le_bytes());
    }
    let minimum = f16::from_f32(random.number() * 0.05);
    bytes.extend(scale.to_le_bytes());
    bytes.extend(minimum.to_le_bytes());
    let sixes = random.bytes(12);
    let fifths = if kind == WeightType::Q5_K { random.bytes(32) } else { vec![0; 32] };
    let fours = random.bytes(128);
    for i in 0..256 {
        let part = i / 32;
        let (s, m) = if part < 4 {
            (sixes[part] % 64, sixes[part + 4] % 64)
        } else {
            let (s, m) = (sixes[part - 4] / 64, sixes[part] / 64);
            (sixes[part + 4] % 16 + 16 * s, sixes[part + 4] / 16 + 16 * m)
        };
        let four = fours[part / 2 * 32 + i % 32] >> (part % 2 * 4) & 15;
        let q = four + 16 * (fifths[i % 32] >> part & 1);
        let step = scale.to_f32() * f32::from(s);
        to.push(step * f32::from(q) - minimum.to_f32() * f32::from(m));
    }
    bytes.extend(sixes);
    if kind == WeightType::Q5_K {
        bytes.extend(fifths);
    }
    bytes.extend(fours);
}

fn stored(random: &mut Random, weight_type: WeightType, outputs: usize, inputs: usize) -> Stored {
    let (mut bytes, mut weights) = (Vec::new(), Vec::new());
    for _ in 0..outputs * inputs / weight_type.block_inputs() {
        random_block(random, weight_type, &mut bytes, &mut weights);
    }
    let (input_major, row_order) = (false, RowOrder::Natural);
    Stored { weight_type, bytes, outputs, inputs, weights, input_major, row_order }
}

/// The rows as the kernel's documentation says that they are rounded.
fn rounded(x: &[f32], weight_type: WeightType) -> Vec<f64> {
    match weight_type {
        WeightType::F32 | WeightType::F16 => return x.iter().map(|x| f64::from(*x)).collect(),
        WeightType::BF16 => return x.iter().map(|x| bf16::from_f32(*x).to_f64()).collect(),
        _ => {}
    }
    let round = |block: &[f32]| {
        let greatest = block.iter().fold(0f32, |m, x| m.max(x.abs()));
        let scale = greatest / 127.0;
        let inverse = if greatest > 0.0 { 127.0 / greatest } else { 0.0 };
        let bytes = block.iter().map(|x| f64::from((x * inverse).round_ties_even() * 1.0));
        bytes.map(|byte| byte * f64::from(scale)).collect::<Vec<_>>()
    };
    x.chunks(32).flat_map(round).collect()
}

/// What blocks of words may lose of a sum: of each block's weights 2^-12 of the greatest, of its
/// activations, whose scale is at most the greatest's 5,791st part, half of that.
fn lost(weights: &[f32], x: &[f64], weight_type: WeightType) -> f64 {
    if weight_type != WeightType::F16 {
        return 0.0;
    }
    let mut lost = 0.0;
    for (weights, x) in weights.chunks(64).zip(x.chunks(64)) {
        let (mut greatest, mut sum) = ([0f64; 2], [0f64; 2]);
        for (w, x) in weights.iter().zip(x) {
            let sizes = [f64::from(w.abs()), x.abs()];
            greatest = [greatest[0].max(sizes[0]), greatest[1].max(sizes[1])];
            sum = [sum[0] + sizes[0], sum[1] + sizes[1]];
        }
        lost += greatest[0] / 4096.0 * sum[1] + greatest[1] / 11500.0 * sum[0];
    }
    lost
}

/// Bits of all results of one call.
fn product(team: &Team, weights: &PackedMatrix, x: &[f32]) -> Vec<f32> {
    let rows = x.len() / weights.inputs();
    let mut input = ActivationRows::new();
    input.set(team, x, rows, weights.inputs(), weights.weight_type());
    let mut out = vec![f32::NAN; rows * weights.outputs()];
    matmul(team, weights, &input, &mut out);
    out
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

/// Compares `out` with sums in f64.
fn assert_close(out: &[f32], x: &[f32], matrix: &Stored, bias: &[f32], context: &str) {
    let (inputs, outputs) = (matrix.inputs, matrix.outputs);
    let x = rounded(x, matrix.weight_type);
    for (row, out) in out.chunks(outputs).enumerate() {
        for (output, got) in out.iter().enumerate() {
            let weights = &matrix.weights[output * inputs..][..inputs];
            let x = &x[row * inputs..][..inputs];
            let (mut sum, mut size) = (f64::from(bias[output]), 1e-3);
            for (w, x) in weights.iter().zip(x) {
                sum += f64::from(*w) * x;
                // A minimum and its scale may cancel, so count them apart.
                size += (f64::from(w.abs()) + 1.0) * x.abs();
            }
            let error = (f64::from(*got) - sum).abs();
            let allowed = 3e-6 * size + lost(weights, x, matrix.weight_type);
            assert!(error <= allowed, "{context} row {row} output {output}: {got} not {sum}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn products_are_right_and_rows_do_not_depend_on_their_number(
        seed in 1u64..u64::MAX,
        kind in prop::sample::select(TYPES.to_vec()),
        outputs in 1usize..150,
        blocks in 1usize..9,
        odd in 0usize..32,
        rows in 1usize..=40,
        threads in 1usize..=3,
        with_bias in any::<bool>(),
        long in any::<bool>(),
    ) {
        let mut random = Random(seed);
        let inputs = match kind.block_inputs() {
            1 => blocks * 32 - odd,
            256 => 256 * blocks.div_ceil(4),
            _ => blocks * 32,
        };
        // Some with more inputs than are summed at once.
        let (more, outputs) = if long { (1536, outputs / 8 + 1) } else { (0, outputs) };
        let inputs = inputs + more;
        let matrix = stored(&mut random, kind, outputs, inputs);
        let bias = random.numbers(outputs);
        let bias = if with_bias { bias } else { vec![0.0; outputs] };
        let x: Vec<f32> = random.numbers(rows * inputs).iter().map(|x| x * 3.0).collect();
        for isa in Isa::available() {
            let context = format!("{isa} {kind:?}");
            let team = Team::with_isa(threads, isa).unwrap();
            let given = with_bias.then_some(&bias[..]);
            let packed = packed(isa, &[matrix.source()], given);
            let out = product(&team, &packed, &x);
            assert_close(&out, &x, &matrix, &bias, &context);
            let alone = Team::with_isa(1, isa).unwrap();
            for (row, out) in out.chunks(outputs).enumerate() {
                let one = product(&alone, &packed, &x[row * inputs..][..inputs]);
                prop_assert_eq!(bits(&one), bits(out), "{} row {}", context, row);
            }
        }
    }

    #[test]
    fn packing_keeps_every_weight(
        seed in 1u64..u64::MAX,
        kind in prop::sample::select(TYPES.to_vec()),
        heads in prop::collection::vec(1usize..5, 1..4),
        half_head in 1usize..12,
        blocks in 1usize..4,
        input_major in any::<bool>(),
        interleaved in any::<bool>(),
    ) {
        let mut random = Random(seed);
        let (head_dim, inputs) = (2 * half_head, 32.max(kind.block_inputs()) * blocks);
        let mut expected: Vec<f32> = Vec::new();
        let parts: Vec<Stored> = heads.iter().map(|heads| {
            let mut part = stored(&mut random, kind, heads * head_dim, inputs);
            if interleaved {
                part.row_order = RowOrder::InterleavedRope { head_dim };
                // A head's outputs: first those stored at even places, then at odd ones.
                for head in part.weights.chunks(head_dim * inputs) {
                    let rows: Vec<&[f32]> = head.chunks(inputs).collect();
                    expected.extend(rows.iter().step_by(2).copied().flatten());
                    expected.extend(rows.iter().skip(1).step_by(2).copied().flatten());
                }
            } else {
                expected.extend(&part.weights);
            }
            if input_major && !kind.is_quantized() {
                part.input_major = true;
                let (element, outputs) = (kind.block_bytes(), part.outputs);
                part.bytes = (0..inputs * outputs).flat_map(|at| {
                    let from = (at % outputs * inputs + at / outputs) * element;
                    part.bytes[from..][..element].to_vec()
                }).collect();
            }
            part
        }).collect();
        let sources: Vec<_> = parts.iter().map(Stored::source).collect();
        for isa in Isa::available() {
            let packed = packed(isa, &sources, None);
            let mut row = vec![0.0; inputs];
            for (output, expected) in expected.chunks(inputs).enumerate() {
                packed.row(output, &mut row);
                if kind != WeightType::F16 {
                    prop_assert_eq!(bits(&row), bits(expected), "{} {:?} {}", isa, kind, output);
                }
                for (row, expected) in row.chunks(64).zip(expected.chunks(64)) {
                    let greatest = expected.iter().fold(0f32, |most, w| most.max(w.abs()));
                    for (got, w) in row.iter().zip(expected) {
                        let small = w.abs() < greatest / 2.0;
                        let most = if small { greatest / 4096.0 } else { 0.0 };
                        prop_assert!((got - w).abs() <= most, "{} {:?} {} {}", isa, kind, got, w);
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_not_finite_stays_in_its_row(
        seed in 1u64..u64::MAX,
        kind in prop::sample::select(TYPES.to_vec()),
        bad in prop::sample::select(vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY]),
        at in 0usize..64,
    ) {
        let mut random = Random(seed);
        let inputs = 64.max(kind.block_inputs());
        let matrix = stored(&mut random, kind, 20, inputs);
        let clean = random.numbers(9 * inputs);
        let mut dirty = clean.clone();
        dirty[4 * inputs + at] = bad;
        for isa in Isa::available() {
            let team = Team::with_isa(2, isa).unwrap();
            let packed = packed(isa, &[matrix.source()], None);
            let (clean, dirty) = (product(&team, &packed, &clean), product(&team, &packed, &dirty));
            for (row, (clean, dirty)) in clean.chunks(20).zip(dirty.chunks(20)).enumerate() {
                if row == 4 {
                    prop_assert!(dirty.iter().all(|x| !x.is_finite()), "{} {:?}", isa, kind);
                } else {
                    prop_assert_eq!(bits(clean), bits(dirty), "{} {:?} {}", isa, kind, row);
                }
            }
        }
    }
}

#[test]
fn extreme_rows_are_not_lost() {
    let mut random = Random(7);
    for kind in [WeightType::Q8_0, WeightType::F16] {
        let matrix = stored(&mut random, kind, 16, 32);
        for isa in Isa::available() {
            let team = Team::with_isa(1, isa).unwrap();
            let packed = packed(isa, &[matrix.source()], None);
            for size in [0.0, 1e-38, 1e-20, 1e30] {
                let x: Vec<f32> = random.numbers(32).iter().map(|x| x * size).collect();
                let out = product(&team, &packed, &x);
                assert!(out.iter().all(|x| x.is_finite()), "{isa} {kind:?} {size}");
                let zero = out.iter().all(|x| *x == 0.0);
                assert_eq!(zero, size < 1e-30, "{isa} {kind:?} {size}");
            }
        }
    }
}

#[test]
fn a_weight_that_is_not_finite_stays_in_its_output() {
    let mut random = Random(11);
    let mut matrix = stored(&mut random, WeightType::F16, 20, 70);
    for (output, bad) in [(3, f16::NAN), (7, f16::INFINITY), (18, f16::NEG_INFINITY)] {
        let at = 2 * (output * 70 + 23 * (output % 3));
        matrix.bytes[at..][..2].copy_from_slice(&bad.to_le_bytes());
    }
    let x = random.numbers(3 * 70);
    for isa in Isa::available() {
        let team = Team::with_isa(1, isa).unwrap();
        let packed = packed(isa, &[matrix.source()], None);
        for (at, got) in product(&team, &packed, &x).iter().enumerate() {
            assert_eq!(got.is_nan(), [3, 7, 18].contains(&(at % 20)), "{isa} {at}");
        }
    }
}

#[test]
fn extreme_rows_are_alone_what_they_are_together() {
    let mut random = Random(11);
    let matrix = stored(&mut random, WeightType::Q4_1, 16, 32);
    let sizes = [0.0, 1e-38, 1e-31, 1e-30, 1.0, 3e38, f32::INFINITY, f32::NAN];
    let x: Vec<f32> = sizes
        .iter()
        .cycle()
        .take(41)
        .flat_map(|size| random.numbers(32).into_iter().map(move |x| x * size))
        .collect();
    for isa in Isa::available() {
        let team = Team::with_isa(1, isa).unwrap();
        let packed = packed(isa, &[matrix.source()], None);
        let together = product(&team, &packed, &x);
        for (row, (x, together)) in x.chunks(32).zip(together.chunks(16)).enumerate() {
            assert_eq!(bits(&product(&team, &packed, x)), bits(together), "{isa} row {row}");
        }
    }
}

#[test]
fn no_rows_are_no_work() {
    let matrix = stored(&mut Random(5), WeightType::Q4_1, 16, 32);
    for isa in Isa::available() {
        let team = Team::with_isa(2, isa).unwrap();
        let packed = packed(isa, &[matrix.source()], None);
        assert!(product(&team, &packed, &[]).is_empty());
    }
}

#[test]
fn a_batch_dependent_kernel_shows() {
    let mut random = Random(3);
    let matrix = stored(&mut random, WeightType::Q4_1, 64, 64);
    let x = random.numbers(2 * 64);
    for isa in Isa::available() {
        let team = Team::with_isa(1, isa).unwrap();
        let packed = packed(isa, &[matrix.source()], None);
        let run = |rows: usize| {
            let mut input = ActivationRows::new();
            input.set(&team, &x[..rows * 64], rows, 64, WeightType::Q4_1);
            let mut out = vec![0.0; rows * 64];
            matmul_batch_dependent(&team, &packed, &input, &mut out);
            bits(&out[..64])
        };
        assert_ne!(run(1), run(2), "{isa}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut random = Random(1);
    let good = stored(&mut random, WeightType::Q4_0, 8, 64);
    let other = stored(&mut random, WeightType::Q4_1, 8, 64);
    let pack = |sources: &[MatrixSource<'_>], bias: Option<&[f32]>| {
        PackedMatrix::pack(Isa::Scalar, &WeightMemory::default(), sources, bias).unwrap_err()
    };
    let source = good.source();
    assert!(matches!(pack(&[], None), PackError::Empty("sources")));
    assert!(matches!(pack(&[source, other.source()], None), PackError::Mixed));
    let bad = MatrixSource { outputs: 0, bytes: &[], ..source };
    assert!(matches!(pack(&[bad], None), PackError::Empty("outputs")));
    let bad = MatrixSource { inputs: 48, ..source };
    assert!(matches!(pack(&[bad], None), PackError::Shape { inputs: 48, .. }));
    let bad = MatrixSource { outputs: usize::MAX, ..source };
    assert!(matches!(pack(&[bad], None), PackError::Shape { .. }));
    let bad = MatrixSource { input_major: true, ..source };
    assert!(matches!(pack(&[bad], None), PackError::InputMajor(WeightType::Q4_0)));
    for head_dim in [0, 1, 3, 6] {
        let row_order = RowOrder::InterleavedRope { head_dim };
        let bad = MatrixSource { row_order, ..source };
        assert!(matches!(pack(&[bad], None), PackError::Heads { .. }), "{head_dim}");
    }
    assert!(matches!(pack(&[source], Some(&[0.0; 7])), PackError::Bias { found: 7, outputs: 8 }));
}
