//! Text shared by the page and the terminal: times, money, limits, repeats.

use super::repeats::Repeat;
use super::timeline::{About, Boundary};
use crate::render::amounts::{count, seconds};
use crate::visible::visible;
use endstop::core::CheckState;
use endstop::journal::BranchSummary;
use serde_json::Value;
use std::time::Duration;

pub(crate) use crate::render::card::branch_point;
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

/// Explains why there is no card.
pub(crate) fn no_outcome(state: &str) -> &'static str {
    match state {
        "running" => "no outcome: the run is in progress",
        "ended" => "no outcome: it cannot be read",
        "parked" => "no outcome: the run is parked until its request is decided",
        "interrupted" => "no outcome: its process died before the run ended",
        _ => "no outcome: the file ends before the run did (it was killed, or is still running)",
    }
}

/// Describes the run that a run branched from, and lists its own branches.
pub(crate) fn branches(run: &About) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(from) = &run.branched_from {
        lines.push(format!("branches from {}", branch_point(from)));
    }
    if !run.branches.is_empty() {
        let of = |one: &BranchSummary| format!("{} at turn {}", one.id, one.turn);
        let listed: Vec<String> = run.branches.iter().take(20).map(of).collect();
        let more = run.branches.len() - listed.len();
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        lines.push(format!("branches of this run: {}{more}", listed.join(", ")));
    }
    lines.into_iter().map(|line| line.replace(['\n', '\t'], " ")).collect()
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
