//! Durations as configuration spells them.

use std::time::Duration;

/// Maximum duration of a limit, so that later additions to a `Duration` cannot overflow.
pub(super) const YEAR: Duration = Duration::from_secs(86_400 * 365);

/// Parses `500ms`, `90s`, `1.5m`, `2h`, `1d`, a bare number of seconds, or parts such as `1h30m`, the largest
/// unit first.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let (mut sum, mut largest) = (Duration::ZERO, None);
    loop {
        let unit = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let next =
            rest[unit..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |at| unit + at);
        let (part, more) = rest.split_at(next);
        let size = part_of_duration(&format!("1{}", &part[unit..]))?;
        // A part with a fraction, or one that is not smaller than the part before, is a slip.
        let is_slip = largest.is_some_and(|before| size >= before || part.contains('.'));
        if is_slip || (part[unit..].is_empty() && largest.is_some()) {
            return None;
        }
        sum = sum.checked_add(part_of_duration(part)?).filter(|time| *time <= YEAR)?;
        if more.is_empty() {
            return Some(sum);
        }
        (rest, largest) = (more, Some(size));
    }
}

/// Parses a number with one unit.
fn part_of_duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits);
    let number: f64 = digits.parse().ok()?;
    let seconds = match unit.trim() {
        "ms" => return milliseconds(digits),
        "" | "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        "d" => number * 86400.0,
        _ => return None,
    };
    // Compared before the conversion, which would reject infinity but accept centuries.
    (seconds <= YEAR.as_secs_f64()).then(|| Duration::try_from_secs_f64(seconds).ok()).flatten()
}

/// Parses a decimal number of milliseconds. Exact, because limits are spelled in milliseconds and
/// `f64` cannot hold both a year and a nanosecond.
fn milliseconds(digits: &str) -> Option<Duration> {
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let fraction: f64 = format!("0.{fraction}").parse().ok()?;
    let rest = Duration::try_from_secs_f64(fraction / 1e3).ok()?;
    Duration::from_millis(whole).checked_add(rest).filter(|time| *time <= YEAR)
}
