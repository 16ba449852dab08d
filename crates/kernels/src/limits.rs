//! What this machine can do at most: the rates that kernels are measured against.

use crate::isa::Isa;
use crate::memory::ZeroedMemory;
use crate::simd::{Kernel, LANES, Simd, dispatch, dispatch_bf16};
use crate::team::{Team, range_of};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Steps of one sample of arithmetic.
const STEPS: usize = 20_000;
/// Sums side by side where there are 32 registers, and where there are 16 half as wide: enough to
/// hide the latency of one, and few enough for the registers.
const SUMS: [usize; 2] = [20, 6];
/// Bytes read between two looks at the clock.
const SAMPLE_BYTES: usize = 64 << 20;

/// An operation whose rate bounds a matmul.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Dot products of bytes, for quantized weights (`vpdpbusd`, or what the set has instead).
    DotI8,
    /// Dot products of pairs of 16-bit integers, for f16 weights (`vpdpwssd`, or what the set has).
    DotI16,
    /// Dot products of bf16 pairs.
    DotBf16,
    /// Multiply-adds of f32.
    MulAdd,
}

/// Operations a second that all threads of `team` together do in registers, the best of samples
/// taken for `seconds`. A multiplication and its addition are two operations.
pub fn operations_per_s(team: &Team, operation: Operation, seconds: f64) -> f64 {
    let products = match operation {
        Operation::DotI8 => 4,
        Operation::DotI16 | Operation::DotBf16 => 2,
        Operation::MulAdd => 1,
    };
    let sums = SUMS[usize::from(team.isa() != Isa::Avx512)];
    let per_step = 2 * products * LANES * sums * team.threads();
    let sample = || {
        team.run(|_| {
            let spin = Spin { operation, input: black_box([0x3F80_3F80; LANES]) };
            black_box(match operation {
                Operation::DotBf16 => dispatch_bf16(team.isa(), spin),
                _ => dispatch(team.isa(), spin),
            });
        });
    };
    (STEPS * per_step) as f64 / best(seconds, sample)
}

/// Bytes a second at which all threads of `team` together read a buffer of `bytes` bytes, each
/// its own part of it again and again, the best of samples taken for `seconds`.
///
/// # Errors
/// If the system gives no memory.
///
/// # Panics
/// If `bytes` is less than 64 for each thread.
pub fn bytes_per_s(team: &Team, bytes: usize, seconds: f64) -> Result<f64, std::io::Error> {
    assert!(bytes >= 4 * LANES * team.threads(), "something to read for each thread");
    let mut memory = ZeroedMemory::reserve(bytes)?;
    memory.bytes_mut().fill(1);
    let (memory, times) = (memory.bytes(), SAMPLE_BYTES.div_ceil(bytes));
    let sample = || {
        team.run(|worker| {
            let own = &memory[range_of(worker, team.threads(), bytes)];
            for _ in 0..times {
                black_box(dispatch(team.isa(), Read(black_box(own))));
            }
        });
    };
    Ok((bytes * times) as f64 / best(seconds, sample))
}

/// The shortest time that `sample` took, in seconds, of as many runs as `seconds` hold.
fn best(seconds: f64, sample: impl Fn()) -> f64 {
    let (begin, mut best) = (Instant::now(), Duration::MAX);
    while best == Duration::MAX || begin.elapsed().as_secs_f64() < seconds {
        let start = Instant::now();
        sample();
        best = best.min(start.elapsed());
    }
    best.as_secs_f64()
}

/// Adds products to sums, over and over.
struct Spin {
    operation: Operation,
    input: [u32; LANES],
}

impl Kernel for Spin {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let count = const { SUMS[(S::REGISTERS < 32) as usize] };
        let mut sums = [s.splat(0.0); SUMS[0]];
        let mut dots = [s.splat_i32(0); SUMS[0]];
        // SAFETY: the input is 64 bytes.
        let weights = unsafe { s.load_bytes(self.input.as_ptr().cast()) };
        let x = s.splat(f32::from_bits(self.input[1]));
        for step in 0..STEPS {
            let pair = &self.input[step % LANES];
            // SAFETY: four bytes of the input; 0x3F and 0x80 are below 128 or at least -127 as
            // the operations want, but for -128, which only an exact sum would need.
            unsafe {
                match self.operation {
                    Operation::DotI8 => {
                        for dot in &mut dots[..count] {
                            *dot = s.dot_u7_i8(*dot, weights, (&raw const *pair).cast());
                        }
                    }
                    Operation::DotI16 => {
                        for dot in &mut dots[..count] {
                            *dot = s.dot_i16(*dot, weights, (&raw const *pair).cast());
                        }
                    }
                    Operation::DotBf16 => {
                        for sum in &mut sums[..count] {
                            *sum = s.dot_bf16(*sum, weights, pair);
                        }
                    }
                    Operation::MulAdd => {
                        for sum in &mut sums[..count] {
                            *sum = s.mul_add(x, x, *sum);
                        }
                    }
                }
            }
        }
        let mut total = s.splat(0.0);
        for (sum, dot) in sums.into_iter().zip(dots) {
            total = s.add(total, s.add(sum, s.to_f32(dot)));
        }
        s.reduce_add(total)
    }
}

/// Reads bytes, 64 at a time.
struct Read<'a>(&'a [u8]);

impl Kernel for Read<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        // SAFETY: an array of 64 bytes.
        let zero = unsafe { s.load_bytes([0; 4 * LANES].as_ptr()) };
        let mut all = [zero; 4];
        for chunk in self.0.as_chunks::<{ 16 * LANES }>().0 {
            for (i, all) in all.iter_mut().enumerate() {
                // SAFETY: four times 64 bytes.
                let bytes = unsafe { s.load_bytes(chunk.as_ptr().add(i * 4 * LANES)) };
                *all = s.or_masked(*all, bytes, 0xFF);
            }
        }
        let mut total = s.splat_i32(0);
        for all in all {
            // SAFETY: the pointer is to four bytes.
            total = unsafe { s.dot_u7_i8(total, s.low_nibbles(all), [1i8; 4].as_ptr()) };
        }
        s.reduce_add_i32(total) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_positive_on_every_set() {
        use Operation::{DotBf16, DotI8, DotI16, MulAdd};
        for isa in Isa::available() {
            for threads in [1, 2] {
                let team = Team::with_isa(threads, isa).unwrap();
                for operation in [DotI8, DotI16, DotBf16, MulAdd] {
                    let rate = operations_per_s(&team, operation, 0.0);
                    assert!(rate.is_finite() && rate > 0.0, "{isa} {operation:?}");
                }
                assert!(bytes_per_s(&team, 1 << 16, 0.0).unwrap() > 0.0, "{isa}");
            }
        }
    }
}
