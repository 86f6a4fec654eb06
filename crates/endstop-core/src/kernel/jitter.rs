//! Exponential backoff with full jitter, deterministic from the run's seed.

use std::time::Duration;

/// Maximum wait that a provider may request. A longer request ends the run instead, with
/// `retry_after` in its outcome.
pub(crate) const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);
const BASE: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(crate) struct Jitter(pub(crate) u64);

impl Jitter {
    /// Returns a wait between zero and `500 ms × 2^(attempt - 1)`, at most 30 s. Whole
    /// milliseconds, because events report milliseconds and a replay must wait equally long. Full
    /// jitter, because clients that failed together must not return together.
    pub(crate) fn backoff(&mut self, attempt: u32) -> Duration {
        // The shift is bounded because it would overflow; the cap is reached at the seventh attempt
        // anyway.
        let ceiling = BASE.saturating_mul(1 << attempt.saturating_sub(1).min(16)).min(LONGEST);
        // The 53 high bits fill an `f64` mantissa exactly, so the fraction is uniform in [0, 1).
        let fraction = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        Duration::from_millis((ceiling.as_millis() as f64 * fraction) as u64)
    }

    /// The SplitMix64 generator (Steele, Lea and Flood, 2014). Chosen because one `u64` is its
    /// whole state, which a journal stores as the seed.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}
