//! The wall clock, and its times for the user.

pub(crate) use endstop_report::date::date;
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the current time in Unix milliseconds.
#[expect(clippy::disallowed_methods, reason = "how long ago, for a person")]
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
