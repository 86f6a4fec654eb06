//! The types of limits: reads their values from configuration, and spells them again.

use super::tokens_counted::TokensCounted;
use serde_json::{Value, json};
use std::time::Duration;

/// Maximum duration of a limit, so that later additions to a `Duration` cannot overflow.
const YEAR: Duration = Duration::from_secs(86_400 * 365);

/// The value of a limit, independent of the type of its field. A value that permits more is greater,
/// and `Off` is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub enum LimitValue {
    /// `true` or `false`.
    Switch(bool),
    /// A whole number of turns, tokens, calls or times.
    Count(u64),
    /// US dollars.
    Usd(f64),
    /// The tokens that count.
    Tokens(TokensCounted),
    /// A duration.
    Time(Duration),
    /// The limit does not apply.
    Off,
}

impl LimitValue {
    /// Spells the value as configuration does, so that [`Limits::set`](super::Limits::set) reads it
    /// back unchanged.
    pub fn spelled(self) -> Value {
        match self {
            LimitValue::Switch(on) => json!(on),
            LimitValue::Count(count) => json!(count),
            LimitValue::Usd(usd) => json!(usd),
            LimitValue::Tokens(counts) => json!(counts.as_str()),
            LimitValue::Time(time) => {
                let nanos = time.subsec_nanos() % 1_000_000;
                let fraction = if nanos == 0 { String::new() } else { format!(".{nanos:06}") };
                json!(format!("{}{fraction}ms", time.as_millis()))
            }
            LimitValue::Off => json!("off"),
        }
    }
}

/// The type of a field of [`Limits`](super::Limits).
pub(super) trait Field: Sized {
    /// The value for `null` and `"off"`.
    const OFF: Self;

    /// Reads a value that is not off.
    fn read(value: &Value, in_ms: bool) -> Result<Self, String>;

    /// Returns the value of the field.
    fn value(&self) -> LimitValue;
}

impl<T: Field> Field for Option<T> {
    const OFF: Self = None;

    fn read(value: &Value, in_ms: bool) -> Result<Self, String> {
        T::read(value, in_ms).map(Some)
    }

    fn value(&self) -> LimitValue {
        self.as_ref().map_or(LimitValue::Off, T::value)
    }
}

impl Field for bool {
    const OFF: Self = false;

    fn read(value: &Value, _: bool) -> Result<Self, String> {
        value.as_bool().ok_or_else(|| wants("true or false", value))
    }

    fn value(&self) -> LimitValue {
        LimitValue::Switch(*self)
    }
}

impl Field for u32 {
    const OFF: Self = 0;

    fn read(value: &Value, _: bool) -> Result<Self, String> {
        whole(value, u64::from(u32::MAX)).map(|count| count as u32)
    }

    fn value(&self) -> LimitValue {
        LimitValue::Count(u64::from(*self))
    }
}

impl Field for u64 {
    const OFF: Self = 0;

    fn read(value: &Value, _: bool) -> Result<Self, String> {
        whole(value, u64::MAX)
    }

    fn value(&self) -> LimitValue {
        LimitValue::Count(*self)
    }
}

impl Field for f64 {
    const OFF: Self = 0.0;

    fn read(value: &Value, _: bool) -> Result<Self, String> {
        value
            .as_f64()
            .filter(|usd| usd.is_finite() && *usd >= 0.0)
            .ok_or_else(|| wants("a number of US dollars, 0 or more, such as 0.50", value))
    }

    fn value(&self) -> LimitValue {
        LimitValue::Usd(*self)
    }
}

impl Field for Duration {
    const OFF: Self = Duration::ZERO;

    fn read(value: &Value, in_ms: bool) -> Result<Self, String> {
        if in_ms {
            return whole(value, YEAR.as_secs() * 1000).map(Duration::from_millis);
        }
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(n) => format!("{n}s"),
            other => return Err(wants("a duration such as \"90s\" or \"10m\"", other)),
        };
        parse_duration(&text).ok_or_else(|| {
            wants("a duration such as \"500ms\", \"90s\", \"10m\" or \"1h30m\"", value)
        })
    }

    fn value(&self) -> LimitValue {
        LimitValue::Time(*self)
    }
}

impl Field for TokensCounted {
    const OFF: Self = TokensCounted::All;

    fn read(value: &Value, _: bool) -> Result<Self, String> {
        let named = |counts: &TokensCounted| value.as_str() == Some(counts.as_str());
        let found = TokensCounted::ALL.into_iter().find(named);
        found.ok_or_else(|| wants("\"all\", \"uncached\" or \"output\"", value))
    }

    fn value(&self) -> LimitValue {
        LimitValue::Tokens(*self)
    }
}

fn wants(what: &str, got: &Value) -> String {
    let mut shown = got.to_string();
    // Configuration may contain whole tables here; an error message needs only the beginning.
    if shown.chars().count() > 60 {
        shown = shown.chars().take(60).chain("…".chars()).collect();
    }
    format!("expected {what}, found {shown}")
}

fn whole(value: &Value, max: u64) -> Result<u64, String> {
    value
        .as_u64()
        .filter(|n| *n <= max)
        .ok_or_else(|| wants(&format!("a whole number from 0 to {max}"), value))
}

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
