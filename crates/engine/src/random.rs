//! The counter-based generator behind every draw.
//!
//! Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"): a
//! draw is a function of (seed, choice, position) and of nothing drawn before it. So an
//! answer does not depend on its neighbours, can be resumed anywhere, and tokens that were
//! guessed ahead and rejected leave no trace.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Ten rounds of Philox on a 128-bit counter under a 64-bit key.
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for round in 0..10 {
        if round > 0 {
            key = [key[0].wrapping_add(KEY_STEPS[0]), key[1].wrapping_add(KEY_STEPS[1])];
        }
        let first = u64::from(counter[0]) * u64::from(MULTIPLIERS[0]);
        let second = u64::from(counter[2]) * u64::from(MULTIPLIERS[1]);
        counter = [
            (second >> 32) as u32 ^ counter[1] ^ key[0],
            second as u32,
            (first >> 32) as u32 ^ counter[3] ^ key[1],
            first as u32,
        ];
    }
    counter
}

/// A uniform number in [0, 1) with 53 random bits.
pub(crate) fn uniform(seed: u64, choice: usize, position: usize) -> f64 {
    let position = position as u64;
    let counter = [position as u32, (position >> 32) as u32, choice as u32, 0];
    let bits = philox(counter, [seed as u32, (seed >> 32) as u32]);
    let bits = (u64::from(bits[1]) << 32 | u64::from(bits[0])) >> 11;
    bits as f64 * (1.0 / (1u64 << 53) as f64)
}

/// A seed nobody asked for: the standard library's hasher keys come from the system's
/// randomness and differ on each call.
pub(crate) fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of the authors' Random123 distribution (`kat_vectors`).
    #[test]
    fn philox_matches_the_authors_vectors() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox(
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn draws_are_uniform_and_keyed() {
        let mean = (0..10_000).map(|position| uniform(7, 0, position)).sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.01, "{mean}");
        assert_eq!(uniform(7, 1, 2), uniform(7, 1, 2));
        assert_ne!(uniform(7, 1, 2), uniform(7, 2, 2));
        assert_ne!(uniform(7, 1, 2), uniform(8, 1, 2));
        assert_ne!(uniform(7, 1, 2), uniform(7, 1, 3));
    }
}
