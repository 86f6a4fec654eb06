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
