//! Reproducible randomness: a seeded generator that prints its seed.

/// A Splitmix64 generator: the same seed gives the same numbers on every machine and with every version of a dependency.
#[derive(Clone, Debug)]
pub(crate) struct SeededRng {
    state: u64,
}

impl SeededRng {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Takes the seed from `DISTLOCK_SEED`, or else the given one, and prints it. A failed test shows its output, so every
    /// failure shows how to repeat it.
    pub(crate) fn from_env_or(seed: u64) -> Self {
        let seed = match std::env::var(VARIABLE) {
            Ok(text) => {
                parse(&text).unwrap_or_else(|| panic!("`{VARIABLE}` is no number: `{text}`"))
            }
            Err(_) => seed,
        };
        eprintln!("{VARIABLE}={seed}");
        Self::new(seed)
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number in `0..bound`. The bias of the remainder is far below what a test can notice.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no number below 0");
        self.next_u64() % bound
    }

    /// Returns true in `percent` of a hundred cases.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let index = self.below(from.len() as u64);
        &from[usize::try_from(index).expect("an index into a slice fits")]
    }
}

fn parse(text: &str) -> Option<u64> {
    match text.trim().strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.trim().parse().ok(),
    }
}

const VARIABLE: &str = "DISTLOCK_SEED";
