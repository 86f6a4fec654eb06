//! What the page and the terminal say alike: times, money, limits, what repeated.

use super::story::{Boundary, Repeat};
use crate::card::{count, seconds, visible};
use endstop::CheckState;
use serde_json::Value;
use std::time::Duration;

pub(super) use crate::card::shorten;

/// A JSON value as a person reads it.
pub(super) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), visible)
}

/// Milliseconds as a person reads them; a file may say anything.
pub(super) fn ms(ms: f64) -> String {
    let secs = if ms.is_finite() { ms.max(0.0) / 1e3 } else { 0.0 };
    seconds(Duration::try_from_secs_f64(secs).unwrap_or(Duration::MAX))
}

/// Unix milliseconds as a date in UTC.
pub(super) fn date(unix_ms: u64) -> String {
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

/// What watched the run and fired.
pub(super) fn fired(outcome: &Value) -> Vec<String> {
    let fired = outcome["fired"].as_array().into_iter().flatten();
    fired
        .map(|one| {
            format!(
                "watched: {} in turn {} ({})",
                text(&one["evidence"]),
                one["turn"],
                text(&one["mode"])
            )
        })
        .collect()
}

/// What a run spent.
pub(super) fn spent(outcome: &Value) -> String {
    let counted = |key: &str, what: &str| count(outcome[key].as_u64().unwrap_or(0), what);
    // What nobody has a price for did not cost nothing.
    let cost = match (&outcome["cost_usd"], outcome["cost_unknown"] == true) {
        (cost, true) if cost.as_f64() == Some(0.0) => "cost unknown (no price)".to_owned(),
        (cost, true) => format!("at least ${cost}"),
        (cost, false) if outcome["usage"]["estimated"] == true => format!("~${cost}"),
        (cost, false) => format!("${cost}"),
    };
    format!(
        "{}, {}, {}, {cost}, {}",
        counted("turns", "turn"),
        counted("model_calls", "model call"),
        counted("tool_calls", "tool call"),
        ms(outcome["duration_ms"].as_f64().unwrap_or(0.0)),
    )
}

/// Why there is no outcome.
pub(super) fn no_outcome(state: &str) -> &'static str {
    match state {
        "running" => "no outcome: the run is under way",
        "interrupted" => {
            "no outcome: its process died before the run ended; `endstop run --resume` goes on with it"
        }
        _ => "no outcome: the file ends before the run did (it was killed, or still runs)",
    }
}

/// `3 of 25 turns`.
pub(super) fn of(check: &CheckState) -> String {
    let show = |value: f64| match check.unit {
        "usd" => format!("${value:.4}"),
        "seconds" => ms(value * 1e3),
        _ => format!("{value:.0}"),
    };
    let unit = match check.unit {
        "turns" => " turns",
        "tokens" => " tokens",
        _ => "",
    };
    match check.max {
        Some(max) => format!("{} of {}{unit}", show(check.value), show(max)),
        None => format!("{}{unit}", show(check.value)),
    }
}

/// The limits that are on and of which something is used, in a line.
pub(super) fn limits(boundary: &Boundary) -> String {
    let used: Vec<String> = boundary
        .checks
        .iter()
        .filter(|check| check.max.is_some() && (check.value > 0.0 || check.met))
        .map(|check| format!("{} {}", check.limit, of(check)))
        .collect();
    used.join(" · ")
}

/// What repeated: how often, from which turn on, at what cost.
pub(super) fn repeated(repeat: &Repeat) -> String {
    let first = repeat.turns.first().copied().unwrap_or(0);
    let last = repeat.turns.last().copied().unwrap_or(0);
    let cost = repeat.cost_usd.map_or_else(String::new, |usd| format!(", which cost ${usd:.4}"));
    let turns: Vec<String> = repeat.turns.iter().map(u64::to_string).collect();
    let which = if last - first + 1 == repeat.turns.len() as u64 {
        format!("turns {first} to {last}")
    } else {
        format!("turns {}", turns.join(", "))
    };
    let again = repeat.turns.len() as u64 - 1;
    format!(
        "{which}: the same calls with the same results, {again} times again from turn {} on{cost}",
        repeat.turns.get(1).copied().unwrap_or(first)
    )
}

/// `A` for the first.
pub(super) fn letter(nth: usize) -> String {
    let letter = char::from(b'A' + (nth % 26) as u8);
    if nth < 26 { letter.to_string() } else { format!("{letter}{}", nth / 26) }
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
