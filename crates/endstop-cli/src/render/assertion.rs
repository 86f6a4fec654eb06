//! The report of `assert`: its content, which is also its JSON, and its text.

use super::amounts::{count, seconds};
use super::explain::timeline::Timeline;
use crate::recorded::expectation::Check;
use crate::visible::shorten;
use endstop::{NanoUsd, Outcome};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// The longest quoted value, in characters.
const LONGEST: usize = 300;

/// The checks of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Assertion {
    /// The id of the run, or the name of its file.
    #[serde(rename = "run_id")]
    pub(crate) run: String,
    pub(crate) passed: bool,
    /// `ended`, `running`, `interrupted` or `cut`.
    pub(crate) state: &'static str,
    /// The ending; `None` if the run has none.
    pub(crate) ending: Option<Ending>,
    pub(crate) checks: Vec<Check>,
    /// Problems of the record.
    pub(crate) problems: Vec<String>,
    /// Start of the run in milliseconds since 1970, if the record has it.
    pub(crate) started_ms: Option<u64>,
}

/// The figures of an ending, with the names that the outcome's JSON has.
#[derive(Debug, Serialize)]
pub(crate) struct Ending {
    pub(crate) termination: &'static str,
    pub(crate) category: &'static str,
    pub(crate) turns: u32,
    pub(crate) tokens: u64,
    pub(crate) cost_usd: Option<f64>,
    pub(crate) cost_unknown: bool,
    pub(crate) duration_ms: f64,
    pub(crate) verified: Option<bool>,
}

impl Ending {
    fn of(outcome: &Outcome) -> Ending {
        Ending {
            termination: outcome.termination.as_str(),
            category: outcome.category().as_str(),
            turns: outcome.turns,
            tokens: outcome.usage.total_tokens(),
            cost_usd: outcome.known_cost().map(NanoUsd::to_usd),
            cost_unknown: outcome.cost_unknown,
            duration_ms: outcome.duration.as_micros() as f64 / 1e3,
            verified: outcome.verified,
        }
    }
}

impl Assertion {
    /// Collects the report. `given` is the argument that named the run.
    pub(crate) fn new(given: &Path, timeline: &Timeline, checks: Vec<Check>) -> Assertion {
        let stored = timeline.run.as_ref().map(|run| run.id.clone());
        let named = || timeline.ending.as_ref().and_then(|outcome| outcome.run_id.clone());
        let run = stored.or_else(named).unwrap_or_else(|| given.display().to_string());
        Assertion {
            run,
            passed: checks.iter().all(|check| check.passed),
            state: timeline.state,
            ending: timeline.ending.as_ref().map(Ending::of),
            checks,
            problems: timeline.problems.clone(),
            started_ms: timeline.run.as_ref().map(|run| run.started_ms),
        }
    }

    /// Returns the lines for a reader: the run, each check, and the sum.
    pub(crate) fn lines(&self) -> Vec<String> {
        let run = one_line(&self.run, 120);
        let ending = match &self.ending {
            Some(ending) => format!(
                "{} ({}) · {} · {} · {}",
                ending.termination,
                ending.category,
                count(ending.turns.into(), "turn"),
                count(ending.tokens, "token"),
                seconds(Duration::from_micros((ending.duration_ms * 1e3) as u64)),
            ),
            None => self.state.to_owned(),
        };
        let mut lines = vec![format!("run {run} · {ending}")];
        lines.extend(self.checks.iter().map(line));
        let failed = self.checks.iter().filter(|check| !check.passed).count() as u64;
        lines.push(match failed {
            0 => format!("{} met", count(self.checks.len() as u64, "expectation")),
            _ => format!("{failed} of {} not met", count(self.checks.len() as u64, "expectation")),
        });
        lines
    }
}

/// Formats a check: `✓ max-turns: 3, expected at most 20`.
fn line(check: &Check) -> String {
    let mark = if check.passed { '✓' } else { '✗' };
    format!("{mark} {}: {}", one_line(&check.name, 120), difference(check))
}

/// Formats the value, the expectation and the reason.
pub(super) fn difference(check: &Check) -> String {
    let (actual, expected) = (one_line(&check.actual, LONGEST), one_line(&check.expected, LONGEST));
    let reason = check.reason.as_deref().map(|reason| one_line(reason, LONGEST));
    let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
    format!("{actual}, expected {expected}{reason}")
}

fn one_line(text: &str, most: usize) -> String {
    shorten(text, most).replace(['\n', '\t'], " ")
}
