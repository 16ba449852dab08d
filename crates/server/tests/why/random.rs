//! Random numbers, the same ones each time.

/// What texts are made of.
pub(crate) const WORDS: [&str; 16] = [
    "river",
    "is",
    "a",
    "time",
    "10:01",
    "2026-11-29",
    "你好",
    "😀",
    "  ",
    "\n",
    "\t",
    "Be",
    "brief",
    "tool",
    "é",
    "<user>",
];

pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % limit as u64) as usize
    }
}
