//! Reads the wall clock, in this one place. Durations are measured with the monotonic clock.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the Unix time in milliseconds, for display.
pub(crate) fn wall_ms() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    let now = SystemTime::now();
    // A clock set before 1970 yields 0 instead of an error.
    now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
