//! Parses sizes and ages as flags spell them.

use endstop::core::limits::parse_duration;
use std::time::Duration;

const UNITS: [(&str, u64); 8] = [
    ("", 1),
    ("b", 1),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
];

/// A bound; `off` is `None`, which means no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bound(pub(crate) Option<u64>);

/// Parses a size in bytes: `500MB`, `1.5GiB`, or a number without a unit.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let wrong = || "expected a size, for example 500MB, 1GB or 2GiB".to_owned();
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_lowercase();
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
    let bytes = number.parse::<f64>().map_err(|_| wrong())? * *factor as f64;
    // Above 2^53 a float cannot represent every integer, and no disk is that large.
    if bytes < (1u64 << 53) as f64 { Ok(bytes as u64) } else { Err(wrong()) }
}

/// Parses a number of tokens; 0 is refused because a model cannot work with it.
pub(crate) fn tokens(text: &str) -> Result<u64, &'static str> {
    text.parse()
        .ok()
        .filter(|tokens| *tokens > 0)
        .ok_or("expected a whole number of tokens, 1 or more")
}

/// Parses an age: `12h`, `30d`. A unit is required, because a bare number would be seconds, and a
/// forgotten `d` would remove almost all runs.
pub(crate) fn age(text: &str) -> Result<Duration, String> {
    let has_unit = text.ends_with(|c: char| c.is_ascii_alphabetic());
    let age = parse_duration(text).filter(|_| has_unit);
    age.ok_or_else(|| "expected an age of up to 365 days, for example 12h or 30d".to_owned())
}

/// Parses the time after which a wait is given up: 30s, 10m.
pub(crate) fn patience(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).filter(|time| !time.is_zero());
    time.ok_or_else(|| "expected a time, for example 60s or 10m".to_owned())
}

/// The first moment of a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    /// This long ago.
    Ago(Duration),
    /// A Unix time in milliseconds.
    At(u64),
}

impl Since {
    /// Returns the moment as a Unix time in milliseconds.
    pub(crate) fn unix_ms(self, now: u64) -> u64 {
        match self {
            Since::Ago(age) => now.saturating_sub(age.as_millis() as u64),
            Since::At(at) => at,
        }
    }
}

/// Parses the beginning of a period: an age (`7d`), or a day of UTC (`2026-11-01`).
pub(crate) fn since(text: &str) -> Result<Since, String> {
    if let Ok(day) = text.parse::<jiff::civil::Date>() {
        let midnight = day.to_zoned(jiff::tz::TimeZone::UTC).map_err(|error| error.to_string())?;
        let ms = midnight.timestamp().as_millisecond();
        return Ok(Since::At(u64::try_from(ms).unwrap_or(0)));
    }
    age(text).map(Since::Ago).map_err(|_| {
        "expected an age of up to 365 days, for example 7d, or a day such as 2026-11-01".to_owned()
    })
}

/// Parses a time with a unit: `90s`, `24h`.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let has_unit = text.ends_with(|c: char| c.is_ascii_alphabetic());
    let time = parse_duration(text).filter(|_| has_unit);
    time.ok_or_else(|| "expected a time of up to 365 days, for example 30m or 24h".to_owned())
}

pub(crate) fn size_or_off(text: &str) -> Result<Bound, String> {
    or_off(text, size)
}

pub(crate) fn runs_or_off(text: &str) -> Result<Bound, String> {
    let runs =
        |text: &str| text.parse().map_err(|_| "expected a number of runs, or `off`".to_owned());
    or_off(text, runs)
}

fn or_off(text: &str, parse: impl Fn(&str) -> Result<u64, String>) -> Result<Bound, String> {
    if text == "off" { Ok(Bound(None)) } else { parse(text).map(|bound| Bound(Some(bound))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_decimal_and_binary_units() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("10 b", 10),
            ("500MB", 500_000_000),
            ("1.5gb", 1_500_000_000),
            ("1GiB", 1 << 30),
            ("2KiB", 2048),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "GB", "-1MB", "1TB", "1.2.3MB", "many", "99999999999GB"] {
            assert!(size(text).unwrap_err().contains("for example"), "{text}");
        }
    }

    #[test]
    fn periods_begin_at_ages_or_days() {
        assert_eq!(since("7d"), Ok(Since::Ago(Duration::from_secs(7 * 86_400))));
        assert_eq!(since("1970-01-02"), Ok(Since::At(86_400_000)));
        assert_eq!(since("1969-01-02"), Ok(Since::At(0)));
        for text in ["", "7", "yesterday", "2026-13-01"] {
            assert!(since(text).unwrap_err().contains("2026-11-01"), "{text}");
        }
    }

    #[test]
    fn ages_need_a_unit() {
        assert_eq!(age("30d"), Ok(Duration::from_secs(30 * 86_400)));
        assert_eq!(age("90min"), Ok(Duration::from_secs(5_400)));
        for text in ["", "30", "d", "-1d", "400d", "1w"] {
            assert!(age(text).is_err(), "{text}");
        }
    }
}
