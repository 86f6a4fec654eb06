//! The types of limits: reads their values from configuration, and spells them again.

use super::duration::{YEAR, parse_duration};
use super::rates::Rates;
use super::tokens_counted::TokensCounted;
use super::window_shares::WindowShares;
use serde_json::{Value, json};
use std::time::Duration;

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
    /// Windows of a subscription, each with its share.
    Windows(WindowShares),
    /// Dollars or tokens per minute or hour.
    Rates(Rates),
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
            LimitValue::Windows(shares) => json!(shares.to_string()),
            LimitValue::Rates(rates) => json!(rates.to_string()),
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

impl Field for WindowShares {
    // Not reached, because the field is an `Option`.
    const OFF: Self = WindowShares::NONE;

    fn read(value: &Value, _: bool) -> Result<Self, String> {
        let expected = "windows and their shares such as \"5h=80%,7d=90%\"";
        let text = value.as_str().ok_or_else(|| wants(expected, value))?;
        text.parse().map_err(|problem: String| format!("{}; {problem}", wants(expected, value)))
    }

    fn value(&self) -> LimitValue {
        LimitValue::Windows(*self)
    }
}

impl Field for Rates {
    // Not reached, because the field is an `Option`.
    const OFF: Self = Rates::NONE;

    fn read(value: &Value, _: bool) -> Result<Self, String> {
        let expected = "dollars or tokens per minute or hour such as \"$2/h\" or \"100k tokens/m\"";
        let text = value.as_str().ok_or_else(|| wants(expected, value))?;
        text.parse().map_err(|problem: String| format!("{}; {problem}", wants(expected, value)))
    }

    fn value(&self) -> LimitValue {
        LimitValue::Rates(*self)
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
