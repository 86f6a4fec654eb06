//! Choices that a seed decides.
//!
//! ```text
//! let mut dice = Dice::new(seed, &[round, run]);
//! if dice.percent(3) { … }
//! ```

use std::time::Duration;

/// A sequence of choices.
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// The choices of this place under this seed.
    pub(crate) fn new(seed: u64, place: &[u64]) -> Dice {
        let mut dice = Dice(seed);
        for step in place {
            dice.0 ^= step.wrapping_mul(0xA24B_AED4_963E_E407);
            dice.0 = dice.next();
        }
        dice
    }

    /// SplitMix64 (Steele, Lea and Flood, 2014).
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// From zero up to, and without, `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// From `least` to `most`, both included.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// So many milliseconds.
    pub(crate) fn millis(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.between(least, most))
    }

    /// True so many times in a hundred.
    pub(crate) fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }

    /// One of them.
    pub(crate) fn pick<T: Copy>(&mut self, first: T, others: &[T]) -> T {
        let at = self.below(others.len() as u64 + 1) as usize;
        at.checked_sub(1).and_then(|at| others.get(at)).copied().unwrap_or(first)
    }

    /// One of them, each as often as its weight says.
    pub(crate) fn weighed<T: Copy>(&mut self, last: T, choices: &[(u64, T)]) -> T {
        let mut at = self.below(100);
        for (weight, choice) in choices {
            match at.checked_sub(*weight) {
                Some(rest) => at = rest,
                None => return *choice,
            }
        }
        last
    }
}
