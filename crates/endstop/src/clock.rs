//! The one place that reads the wall clock; durations come from the monotonic one.

use std::time::{SystemTime, UNIX_EPOCH};

/// Unix time in milliseconds, for display.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub(crate) fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// The wall clock, for signatures.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub(crate) fn now() -> SystemTime {
    SystemTime::now()
}

/// A seed for the jitter of one run: different in each run and process.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub(crate) fn seed(run: u64) -> u64 {
    let nanos =
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    nanos ^ (u64::from(std::process::id()) << 40) ^ run.rotate_left(32)
}

/// A name for a run, as no other run has it: ten letters and digits, none of which is taken for
/// another.
pub(crate) fn run_id() -> String {
    const LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    static RUNS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let nth = RUNS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    // What is near in time is to be far in name.
    let mut bits = seed(nth).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    bits ^= bits >> 32;
    let letters = (0..10).map(|at| char::from(LETTERS[(bits >> (5 * at)) as usize % 32]));
    letters.collect()
}
