//! Vectors of 16 lanes, one implementation per instruction set.
//!
//! A kernel is a struct of its arguments that implements [`Kernel`]; its `run`
//! is generic over [`Simd`] and `#[inline(always)]`, as is everything that it
//! calls on vectors. [`dispatch`] compiles it once per instruction set behind
//! a function that enables the set's features. Code that is *not* inlined into
//! that function is correct but slow: in kernels prefer `for` loops over
//! arrays to closures (`array::map`, `from_fn`).

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod scalar;
mod vector;

use crate::isa::Isa;
pub(crate) use vector::{LANES, Simd};

/// A computation to be compiled for every instruction set.
pub(crate) trait Kernel {
    /// What it computes.
    type Output;

    /// Runs with the vectors of one instruction set; implementations carry
    /// `#[inline(always)]`.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// Runs `kernel` with the vectors of `isa`.
///
/// # Panics
/// If this processor does not have `isa`.
pub(crate) fn dispatch<K: Kernel>(isa: Isa, kernel: K) -> K::Output {
    assert!(isa.is_available(), "instruction set {isa} is not available");
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the assertion above found every feature of the set.
        Isa::Avx512 => unsafe { run_avx512(kernel) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::AvxVnni => unsafe { run_avxvnni(kernel) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx2 => unsafe { run_avx2(kernel) },
        _ => kernel.run(scalar::Scalar),
    }
}

/// Whether `isa` wants 8-bit weights stored plus 128: [`Simd::OFFSET_W8`].
pub(crate) fn offset_w8(isa: Isa) -> bool {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512::Avx512::<false>::OFFSET_W8,
        #[cfg(target_arch = "x86_64")]
        Isa::AvxVnni => avx2::Avx2::<true>::OFFSET_W8,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::Avx2::<false>::OFFSET_W8,
        _ => scalar::Scalar::OFFSET_W8,
    }
}

/// As [`dispatch`], for a kernel without byte dot products: on it AVX-VNNI and AVX2 are one set,
/// so it is compiled once for both.
///
/// # Panics
/// If this processor does not have `isa`.
pub(crate) fn dispatch_float<K: Kernel>(isa: Isa, kernel: K) -> K::Output {
    assert!(isa.is_available(), "instruction set {isa} is not available");
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the assertion above found every feature of the set.
        Isa::Avx512 => unsafe { run_avx512(kernel) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above; AVX-VNNI's set includes AVX2's.
        Isa::AvxVnni | Isa::Avx2 => unsafe { run_avx2(kernel) },
        _ => kernel.run(scalar::Scalar),
    }
}

/// As [`dispatch`], for a kernel of bf16 dot products, which newer processors with AVX-512 have an
/// instruction for.
///
/// # Panics
/// If this processor does not have `isa`.
pub(crate) fn dispatch_bf16<K: Kernel>(isa: Isa, kernel: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    if isa.has_bf16() {
        assert!(isa.is_available(), "instruction set {isa} is not available");
        // SAFETY: every feature of the set was found, and BF16.
        return unsafe { run_avx512_bf16(kernel) };
    }
    dispatch(isa, kernel)
}

/// # Safety
/// The processor must have the features of [`Isa::Avx512`], and AVX-512 BF16.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16,avx2,fma,f16c")]
unsafe fn run_avx512_bf16<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: the caller vouches for the features.
    kernel.run(unsafe { avx512::Avx512::<true>::new() })
}

/// # Safety
/// The processor must have the features of [`Isa::Avx512`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn run_avx512<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: the caller vouches for the features.
    kernel.run(unsafe { avx512::Avx512::<false>::new() })
}

/// # Safety
/// The processor must have the features of [`Isa::AvxVnni`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avxvnni,avx2,fma,f16c")]
unsafe fn run_avxvnni<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: the caller vouches for the features.
    kernel.run(unsafe { avx2::Avx2::<true>::new() })
}

/// # Safety
/// The processor must have the features of [`Isa::Avx2`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn run_avx2<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: the caller vouches for the features.
    kernel.run(unsafe { avx2::Avx2::<false>::new() })
}

#[cfg(test)]
mod tests;
