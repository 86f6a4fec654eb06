//! Formats wall-clock times for the user, in UTC.

use jiff::Timestamp;
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the current time in Unix milliseconds.
#[expect(clippy::disallowed_methods, reason = "how long ago, for a person")]
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Formats Unix milliseconds as a date in UTC.
pub(crate) fn date(unix_ms: u64) -> String {
    // Out of range times become the latest date, because the values come from files.
    let time = i64::try_from(unix_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    time.unwrap_or(Timestamp::MAX).strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

#[cfg(test)]
mod tests {
    #[test]
    fn date_formats_calendar_dates() {
        for (unix_ms, date) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400_000, "2000-02-29 00:00:00 UTC"),
            (1_795_290_254_190, "2026-11-21 19:44:14 UTC"),
            (4_107_542_399_000, "2100-02-28 23:59:59 UTC"),
            (4_107_542_400_000, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(super::date(unix_ms), date);
        }
    }
}
