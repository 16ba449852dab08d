//! Measures the matmul: `matmul_rate [THREADS] [TYPE...]`, best of short samples, so
//! that other work on the machine disturbs little.
//!
//! Few rows read copies of the matrix in turn, so that it comes from memory;
//! the rate of that is given in GB/s too for one.

use kernels::{
    ActivationRows, MatrixSource, PackedMatrix, RowOrder, Team, WeightMemory, WeightType, matmul,
};
use std::time::Instant;

const TYPES: [(&str, WeightType); 11] = [
    ("q4_1", WeightType::Q4_1),
    ("q4_0", WeightType::Q4_0),
    ("q8_0", WeightType::Q8_0),
    ("q5_0", WeightType::Q5_0),
    ("q5_1", WeightType::Q5_1),
    ("q4_k", WeightType::Q4_K),
    ("q5_k", WeightType::Q5_K),
    ("q6_k", WeightType::Q6_K),
    ("f16", WeightType::F16),
    ("bf16", WeightType::BF16),
    ("f32", WeightType::F32),
];
/// Copies of a matrix together are at least this large.
const FROM_MEMORY_BYTES: usize = 192 << 20;
/// Operations of one sample: a fraction of a millisecond.
const SAMPLE_OPERATIONS: f64 = 1e8;
/// How long each rate is measured.
const SECONDS: f64 = 0.15;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let threads = arguments.next().map_or(Ok(2), |threads| threads.parse())?;
    let wanted: Vec<String> = arguments.collect();
    let team = Team::new(threads)?;
    println!("{} threads, {}", threads, team.isa());
    for (name, weight_type) in TYPES {
        if !wanted.is_empty() && !wanted.iter().any(|wanted| wanted == name) {
            continue;
        }
        for (outputs, inputs) in [(32, 32), (1536, 576), (576, 1536), (960, 576), (2048, 8192)] {
            measure(&team, name, weight_type, outputs, inputs)?;
        }
    }
    Ok(())
}

fn measure(
    team: &Team,
    name: &str,
    weight_type: WeightType,
    outputs: usize,
    inputs: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    if !inputs.is_multiple_of(weight_type.block_inputs()) {
        return Ok(());
    }
    let bytes = outputs * inputs / weight_type.block_inputs() * weight_type.block_bytes();
    // Any bytes will do, but not the slow numbers: 0x2c2c is a small f16.
    let stored = vec![0x2c; bytes];
    let source = MatrixSource {
        weight_type,
        bytes: &stored,
        outputs,
        inputs,
        input_major: false,
        row_order: RowOrder::Natural,
    };
    let memory = WeightMemory::default();
    let start = Instant::now();
    let packed = (0..FROM_MEMORY_BYTES.div_ceil(bytes))
        .map(|_| PackedMatrix::pack(team.isa(), &memory, &[source], None))
        .collect::<Result<Vec<_>, _>>()?;
    let packing = (packed.len() * bytes) as f64 / start.elapsed().as_secs_f64() * 1e-9;
    print!("{name:>5} {outputs:>5} x {inputs:<5} pack {packing:>4.1} GB/s");
    for rows in [1, 2, 4, 8, 16, 64, 512] {
        let copies = if rows <= 16 { packed.len() } else { 1 };
        let x: Vec<f32> = (0..rows * inputs).map(|i| (i % 97) as f32 / 48.0 - 1.0).collect();
        let mut input = ActivationRows::new();
        let mut set_best = f64::INFINITY;
        for _ in 0..50 {
            let start = Instant::now();
            input.set(team, &x, rows, inputs, weight_type);
            set_best = set_best.min(start.elapsed().as_secs_f64());
        }
        let mut out = vec![0.0; rows * outputs];
        let operations = 2.0 * (rows * outputs * inputs) as f64;
        let calls = (SAMPLE_OPERATIONS / operations).ceil() as usize;
        let (mut best, mut next) = (f64::INFINITY, 0);
        let begin = Instant::now();
        while begin.elapsed().as_secs_f64() < SECONDS {
            let start = Instant::now();
            for _ in 0..calls {
                matmul(team, &packed[next % copies], &input, &mut out);
                next += 1;
            }
            best = best.min(start.elapsed().as_secs_f64() / calls as f64);
        }
        print!(" | {rows}: {:.0} GOP/s", operations / best * 1e-9);
        if rows == 1 {
            print!(" {:.2} us", best * 1e6);
            print!(" {:.1} GB/s", bytes as f64 / best * 1e-9);
        } else if rows == 512 {
            print!(", rows set in {:.1} us", set_best * 1e6);
        }
    }
    println!();
    Ok(())
}
