//! Backoff with full jitter, deterministic from the run's seed.

use std::time::Duration;

/// The longest wait that a provider may ask for and get.
pub(crate) const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);
const BASE: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(crate) struct Jitter(pub(crate) u64);

impl Jitter {
    /// A wait between zero and `500 ms × 2^(attempt - 1)`, at most 30 s, in whole milliseconds, as
    /// events report it.
    pub(crate) fn backoff(&mut self, attempt: u32) -> Duration {
        let ceiling = BASE.saturating_mul(1 << attempt.saturating_sub(1).min(16)).min(LONGEST);
        let fraction = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        Duration::from_millis((ceiling.as_millis() as f64 * fraction) as u64)
    }

    /// SplitMix64 (Steele, Lea and Flood, 2014).
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}
