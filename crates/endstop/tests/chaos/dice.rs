//! Pseudo-random choices that a seed determines.
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
    /// Creates the sequence of a place, for example of one run, under this seed.
    // Each place has its own sequence, so that one more choice in a run does not change all others.
    pub(crate) fn new(seed: u64, place: &[u64]) -> Dice {
        let mut dice = Dice(seed);
        for step in place {
            dice.0 ^= step.wrapping_mul(0xA24B_AED4_963E_E407);
            dice.0 = dice.next();
        }
        dice
    }

    /// Returns the next number: SplitMix64 (Steele, Lea and Flood, 2014).
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number from zero to `bound`, exclusive.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // The bias of the remainder is far below what a stress test could notice.
        self.next() % bound.max(1)
    }

    /// Returns a number from `least` to `most`, inclusive.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// Returns a duration from `least` to `most` milliseconds, inclusive.
    pub(crate) fn millis(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.between(least, most))
    }

    /// Returns `true` with a probability of `share` percent.
    pub(crate) fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }

    /// Returns one of the values; `first` makes the list nonempty.
    pub(crate) fn pick<T: Copy>(&mut self, first: T, others: &[T]) -> T {
        let at = self.below(others.len() as u64 + 1) as usize;
        at.checked_sub(1).and_then(|at| others.get(at)).copied().unwrap_or(first)
    }

    /// Returns one of the choices with the probability of its weight in percent, else `last`.
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
