//! Times of the wall clock, as a person reads and writes them, in UTC.
//!
//! ```ignore
//! assert_eq!(date(1_795_290_254_190), "2026-11-21 19:44:14 UTC");
//! ```

use std::time::{SystemTime, UNIX_EPOCH};

/// Now, in Unix milliseconds.
#[expect(clippy::disallowed_methods, reason = "how long ago, for a person")]
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Unix milliseconds as a date in UTC.
pub(crate) fn date(unix_ms: u64) -> String {
    let secs = unix_ms / 1000;
    let (days, day) = (secs / 86_400, secs % 86_400);
    // Days since 1 March of the year 0, in eras of 400 years.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let (year, hour, minute, second) =
        (year + era * 400 + next, day / 3600, day / 60 % 60, day % 60);
    format!("{year}-{month:02}-{date:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    #[test]
    fn dates_are_those_of_the_calendar() {
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
