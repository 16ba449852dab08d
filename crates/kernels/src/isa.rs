//! Which instruction set the kernels use.

use std::fmt;

/// An instruction set that the kernels are compiled for, worst first.
///
/// Results of two sets may differ in the last bits; results of one set never
/// do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// Portable code, without fused multiply-add.
    Scalar,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX2 with the 256-bit byte dot product of AVX-VNNI.
    AvxVnni,
    /// AVX-512 F, BW, DQ, VL and VNNI.
    Avx512,
}

/// Why the instruction set asked for in `REFRAIN_ISA` cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IsaError {
    /// The name is none of those known.
    #[error("REFRAIN_ISA={0} is not known: use scalar, avx2, avxvnni or avx512")]
    Unknown(String),
    /// This processor does not have it.
    #[error("this processor does not have the instruction set {0}; it has {available}",
            available = names(&Isa::available()))]
    Unavailable(Isa),
}

fn names(isas: &[Isa]) -> String {
    isas.iter().map(|isa| isa.name()).collect::<Vec<_>>().join(", ")
}

impl Isa {
    const ALL: [Isa; 4] = [Isa::Scalar, Isa::Avx2, Isa::AvxVnni, Isa::Avx512];

    /// The best set that this processor has, or the one named by the
    /// environment variable `REFRAIN_ISA`.
    ///
    /// # Errors
    /// If `REFRAIN_ISA` names a set that is unknown or not available here.
    pub fn detect() -> Result<Isa, IsaError> {
        match std::env::var_os("REFRAIN_ISA") {
            Some(name) if !name.is_empty() => Isa::named(&name.to_string_lossy()),
            _ => Ok(Isa::best()),
        }
    }

    /// The available set with this [`name`](Isa::name).
    ///
    /// # Errors
    /// If the name is unknown, or the set is not available here.
    pub fn named(name: &str) -> Result<Isa, IsaError> {
        let isa = Isa::ALL.into_iter().find(|isa| isa.name() == name);
        let isa = isa.ok_or_else(|| IsaError::Unknown(name.to_owned()))?;
        if isa.is_available() { Ok(isa) } else { Err(IsaError::Unavailable(isa)) }
    }

    /// The best set that this processor has.
    pub fn best() -> Isa {
        Isa::ALL.into_iter().rev().find(|isa| isa.is_available()).unwrap_or(Isa::Scalar)
    }

    /// All sets that this processor has, worst first.
    pub fn available() -> Vec<Isa> {
        Isa::ALL.into_iter().filter(|isa| isa.is_available()).collect()
    }

    /// Whether this processor has every feature that the set's kernels use.
    pub fn is_available(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            let avx2 = || has!("avx2") && has!("fma") && has!("f16c");
            match self {
                Isa::Scalar => true,
                Isa::Avx2 => avx2(),
                Isa::AvxVnni => avx2() && has!("avxvnni"),
                Isa::Avx512 => {
                    avx2()
                        && has!("avx512f")
                        && has!("avx512bw")
                        && has!("avx512dq")
                        && has!("avx512vl")
                        && has!("avx512vnni")
                }
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            self == Isa::Scalar
        }
    }

    /// Whether bf16 weights are multiplied by an instruction of their own, which takes numbers
    /// below 2^-126 for zero: with AVX-512 on processors that have AVX-512 BF16.
    pub fn has_bf16(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            self == Isa::Avx512 && std::arch::is_x86_feature_detected!("avx512bf16")
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            false
        }
    }

    /// The name used in `REFRAIN_ISA` and in output: `scalar`, `avx2`,
    /// `avxvnni` or `avx512`.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "avx2",
            Isa::AvxVnni => "avxvnni",
            Isa::Avx512 => "avx512",
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_is_the_last_available() {
        assert_eq!(Isa::available().last(), Some(&Isa::best()));
        assert_eq!(Isa::available()[0], Isa::Scalar);
    }

    #[test]
    fn names_are_found_again_and_others_are_refused() {
        for isa in Isa::available() {
            assert_eq!(Isa::named(isa.name()), Ok(isa));
        }
        assert_eq!(Isa::named("sse9"), Err(IsaError::Unknown("sse9".into())));
    }
}
