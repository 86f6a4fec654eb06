//! Formats wall-clock times for the user, in UTC.

use jiff::Timestamp;

/// Formats Unix milliseconds as `2026-11-21 19:44:14 UTC`.
pub fn date(unix_ms: u64) -> String {
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
