//! Parses and formats times as they occur in recordings.
//!
//! ```text
//! assert_eq!(unix_ms("2026-06-30T11:40:29.5Z"), Some(1_782_819_629_500));
//! assert_eq!(iso_8601(0), "1970-01-01T00:00:00.000000000Z");
//! ```

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Parses an ISO 8601 time; a time without an offset is UTC.
fn timestamp(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    text.parse().ok().or_else(|| {
        let civil = text.parse::<DateTime>().ok()?;
        civil.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
    })
}

/// Parses an ISO 8601 time to Unix milliseconds.
pub(crate) fn unix_ms(text: &str) -> Option<i64> {
    timestamp(text).map(Timestamp::as_millisecond)
}

/// Parses an ISO 8601 time to nanoseconds since 1970.
pub(crate) fn unix_nanos(text: &str) -> Option<u64> {
    u64::try_from(timestamp(text)?.as_nanosecond()).ok()
}

/// Formats nanoseconds since 1970 as ISO 8601.
pub(crate) fn iso_8601(nanos: u64) -> String {
    // A `u64` of nanoseconds ends in the year 2554, which is in range, so the default is never
    // used.
    let time = Timestamp::from_nanosecond(i128::from(nanos)).unwrap_or_default();
    format!("{time:.9}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_match_the_calendar() {
        for (nanos, text) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_400_000_000_000, "2000-02-29T00:00:00.000000000Z"),
            (1_792_489_224_994_417_000, "2026-10-20T09:40:24.994417000Z"),
            (4_107_542_399_999_999_999, "2100-02-28T23:59:59.999999999Z"),
            (u64::MAX, "2554-07-21T23:34:33.709551615Z"),
        ] {
            assert_eq!(iso_8601(nanos), text);
            assert_eq!(unix_nanos(text), Some(nanos));
        }
        assert_eq!(unix_ms("2026-06-30 11:40:29.5"), unix_ms("2026-06-30T13:40:29.500+02:00"));
        assert_eq!((unix_ms("yesterday"), unix_nanos("1969-12-31T23:59:59Z")), (None, None));
    }
}
