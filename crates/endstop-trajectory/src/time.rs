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

/// Splits `2026-06-30T11:40:29.249Z` into the time and its zone.
pub(crate) fn split_time(time: &str) -> Option<(&str, &str)> {
    let bytes = time.as_bytes();
    let shape = b"dddd-dd-ddTdd:dd:dd";
    let fits = bytes.len() >= shape.len()
        && shape.iter().zip(bytes).all(|(want, have)| match want {
            b'd' => have.is_ascii_digit(),
            b'T' => matches!(have, b'T' | b' '),
            other => have == other,
        });
    if !fits {
        return None;
    }
    let rest = &time[19..];
    let end = match rest.strip_prefix('.') {
        Some(digits) => 1 + digits.bytes().take_while(u8::is_ascii_digit).count(),
        None => 0,
    };
    let zone = &rest[end..];
    let offset = |zone: &str| {
        let bytes = zone.as_bytes();
        bytes.len() == 6 && matches!(bytes[0], b'+' | b'-') && bytes[3] == b':'
    };
    // `end == 1` means a dot without digits, which is not a valid time.
    (end != 1 && (zone.is_empty() || zone == "Z" || offset(zone)))
        .then(|| (&time[..19 + end], zone))
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
