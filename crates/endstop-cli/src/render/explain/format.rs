//! Text shared by the page and the terminal: times, money, limits, repeats.

use super::timeline::{Boundary, Repeat, Timeline};
use crate::render::amounts::{count, seconds};
use crate::visible::visible;
use endstop::CheckState;
use serde_json::Value;
use std::time::Duration;

pub(crate) use crate::render::date::date;
pub(crate) use crate::visible::shorten;

/// Formats a JSON value for display; a string loses its quotes.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), visible)
}

/// Formats milliseconds. Values come from files, so any number must be accepted.
pub(crate) fn ms(ms: f64) -> String {
    let secs = if ms.is_finite() { ms.max(0.0) / 1e3 } else { 0.0 };
    seconds(Duration::try_from_secs_f64(secs).unwrap_or(Duration::MAX))
}

/// Lists the watch rules that fired.
pub(crate) fn fired(outcome: &Value) -> Vec<String> {
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

/// Formats the resources that a run spent.
pub(crate) fn spent(outcome: &Value) -> String {
    let counted = |key: &str, what: &str| count(outcome[key].as_u64().unwrap_or(0), what);
    // A run without a known price must not be shown as free.
    let cost = match (&outcome["cost_usd"], outcome["cost_unknown"] == true) {
        (cost, true) => match (cost.as_f64(), &outcome["cost_upper_usd"]) {
            (Some(0.0), Value::Number(upper)) => format!("cost unknown, at most ${upper}"),
            (Some(0.0), _) => "cost unknown (no price)".to_owned(),
            (_, Value::Number(upper)) => format!("at least ${cost}, at most ${upper}"),
            _ => format!("at least ${cost}"),
        },
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

/// Formats the verifier's result with its command.
pub(crate) fn verified(timeline: &Timeline) -> Option<String> {
    let outcome = timeline.outcome.as_ref()?;
    let command = timeline.run.as_ref().and_then(|run| run.verify.as_deref());
    // A successful run with a verifier but without a result: the verifier was stopped, or its
    // process died.
    let stopped =
        outcome["verified"].is_null() && command.is_some() && outcome["category"] == "success";
    let found = crate::render::card::verified(outcome["verified"].as_bool(), stopped)?;
    Some(match command {
        Some(command) => format!("{found} (`{}`)", shorten(command, 200).replace('\n', " ")),
        None => found.to_owned(),
    })
}

/// Describes the first difference of a replay from the recorded run.
pub(crate) fn diverged(outcome: &Value) -> Option<String> {
    let message = outcome["diverged"]["message"].as_str()?;
    Some(format!("DIVERGED: {}", shorten(message, 400)))
}

/// Explains why there is no outcome.
pub(crate) fn no_outcome(state: &str) -> &'static str {
    match state {
        "running" => "no outcome: the run is in progress",
        "interrupted" => "no outcome: its process died before the run ended",
        _ => "no outcome: the file ends before the run did (it was killed, or is still running)",
    }
}

/// Formats a limit's use: `3 of 25 turns`.
pub(crate) fn of(check: &CheckState) -> String {
    let show = |value: f64| match check.unit {
        "usd" => format!("${value:.4}"),
        "seconds" => ms(value * 1e3),
        _ => format!("{value:.0}"),
    };
    let unit = match check.unit {
        "usd" | "seconds" => String::new(),
        unit => format!(" {unit}"),
    };
    match check.max {
        Some(max) => format!("{} of {}{unit}", show(check.value), show(max)),
        None => format!("{}{unit}", show(check.value)),
    }
}

/// Lists in one line the limits that are set and partly used.
pub(crate) fn limits(boundary: &Boundary) -> String {
    let used: Vec<String> = boundary
        .checks
        .iter()
        .filter(|check| check.max.is_some() && (check.value > 0.0 || check.met))
        .map(|check| format!("{} {}", check.limit, of(check)))
        .collect();
    used.join(" · ")
}

/// Describes a repeat: how often, from which turn, at what cost.
pub(crate) fn repeated(repeat: &Repeat) -> String {
    let first = repeat.turns.first().copied().unwrap_or(0);
    let last = repeat.turns.last().copied().unwrap_or(0);
    let cost = repeat.cost_usd.map_or_else(String::new, |usd| format!(", which cost ${usd:.4}"));
    let turns: Vec<String> = repeat.turns.iter().map(u64::to_string).collect();
    let which = if last - first + 1 == repeat.turns.len() as u64 {
        format!("turns {first} to {last}")
    } else {
        format!("turns {}", turns.join(", "))
    };
    let again = count(repeat.turns.len() as u64 - 1, "time");
    format!(
        "{which}: the same calls with the same results, repeated {again} from turn {} on{cost}",
        repeat.turns.get(1).copied().unwrap_or(first)
    )
}

/// Returns the letter of the nth repeat: `A` for 0, `A1` after `Z`.
pub(crate) fn letter(nth: usize) -> String {
    let letter = char::from(b'A' + (nth % 26) as u8);
    if nth < 26 { letter.to_string() } else { format!("{letter}{}", nth / 26) }
}
