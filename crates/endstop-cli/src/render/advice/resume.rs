//! The command that resumes a run. It is printed only after a resume under those limits was tried
//! on the run's recorded events, so that the hint works.

use super::facts::Facts;
use crate::config::settings::is_resumable;
use crate::config::trust::seal;
use endstop::core::limits::{LimitRow, Unit};
use endstop::core::replay::go_on;
use endstop::journal::RecordedRun;
use endstop::{
    Limits,
    core::{LimitValue, Resumption},
};
use endstop_report::advice::quoted;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Number of times a limit is doubled before the search for a value that lets the run continue
/// ends.
const DOUBLINGS: u32 = 24;

/// A command that resumes a run.
#[derive(Clone, Debug)]
pub(crate) struct Again {
    run: String,
    journal: Option<PathBuf>,
    /// `true` if the run has no seal that marks it as the user's own, because there is no state
    /// folder for the key.
    unmarked: bool,
    /// The flag that raises the limit.
    raised: Option<String>,
}

impl Again {
    /// Returns the command that resumes an ended run, or `None` if no command can.
    pub(crate) fn of(
        facts: Facts<'_>,
        recorded: &RecordedRun,
        run: &str,
        journal: Option<&Path>,
    ) -> Option<Again> {
        let possible =
            facts.asks_for_resume() && is_resumable(&recorded.header) && recorded.damage.is_none();
        if !possible || recorded.spec(None).is_err() {
            return None;
        }
        let limits = recorded.limits();
        // A run that hit a limit ends at once if it is resumed under the same limit, so the command
        // must raise it.
        let raised = if let Some(limit) = facts.limit() {
            Some(enough(recorded, limits, limit)?)
        } else if continues(recorded, limits) {
            None
        } else {
            return None;
        };
        let journal = journal.map(Path::to_owned);
        let unmarked = is_unmarked(recorded);
        Some(Again { run: run.to_owned(), journal, unmarked, raised })
    }

    /// Returns the command that resumes a run whose process died, or `None` if no command can.
    pub(crate) fn of_interrupted(
        recorded: &RecordedRun,
        run: &str,
        journal: Option<&Path>,
    ) -> Option<Again> {
        let possible = is_resumable(&recorded.header)
            && recorded.damage.is_none()
            && recorded.spec(None).is_ok()
            && continues(recorded, recorded.limits());
        let journal = journal.map(Path::to_owned);
        let unmarked = is_unmarked(recorded);
        possible.then(|| Again { run: run.to_owned(), journal, unmarked, raised: None })
    }

    pub(crate) fn command(&self) -> String {
        let mut command = format!("endstop run --resume {}", self.run);
        if let Some(flag) = &self.raised {
            command.push(' ');
            command.push_str(flag);
        }
        // Without this flag the command would stop and ask, because a journal outside the state
        // folder that carries no seal may come from another user.
        if self.journal.is_some() && self.unmarked {
            command.push_str(" --trust-journal");
        }
        in_journal(&command, self.journal.as_deref())
    }
}

fn is_unmarked(recorded: &RecordedRun) -> bool {
    recorded.header.settings.get(seal::MEMBER).is_none()
}

/// Appends `--journal` to a command if the journal is not found without it.
pub(crate) fn in_journal(command: &str, journal: Option<&Path>) -> String {
    match journal {
        Some(path) => format!("{command} --journal {}", quoted(&path.display().to_string())),
        None => command.to_owned(),
    }
}

/// Returns the flag with the first doubled value under which the run continues.
fn enough(recorded: &RecordedRun, mut limits: Limits, limit: &str) -> Option<String> {
    // One doubling is not always enough: the cost of the next call may exceed the raised ceiling
    // too.
    for _ in 0..DOUBLINGS {
        let value = doubled(&limits, limit)?;
        // As for flags: numbers parse as JSON, durations stay strings.
        let read = serde_json::from_str(&value).unwrap_or(Value::String(value.clone()));
        limits.set(limit, &read).ok()?;
        if continues(recorded, limits.clone()) {
            return Some(format!("--{} {value}", limit.replace('_', "-")));
        }
    }
    None
}

/// Returns twice the value of a limit, in the form that its flag accepts.
fn doubled(limits: &Limits, limit: &str) -> Option<String> {
    let row = LimitRow::of(limit)?;
    // The `max` calls keep a limit of 0 from staying 0, however often it is doubled.
    Some(match (row.value(limits), row.unit) {
        (LimitValue::Count(count), Unit::Tokens) => count.max(500).checked_mul(2)?.to_string(),
        (LimitValue::Count(count), _) => count.max(1).checked_mul(2)?.to_string(),
        (LimitValue::Usd(usd), _) => (usd.max(0.005) * 2.0).to_string(),
        (LimitValue::Time(time), _) => format!("{}s", (time.as_secs_f64() * 2.0).ceil().max(1.0)),
        (LimitValue::Off | LimitValue::Switch(_) | LimitValue::Tokens(_), _) => return None,
    })
}

/// `true` if the run continues under these limits.
fn continues(recorded: &RecordedRun, limits: Limits) -> bool {
    // The callers have refused a run whose spec cannot be rebuilt, so the fallback is not used.
    let spec = || recorded.spec(None).unwrap_or_else(|_| recorded.header.spec.again(None));
    let with = Resumption { limits: Some(limits), ..Resumption::default() };
    go_on(spec, recorded.events.clone(), with).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use endstop::core::limits::{LimitRow, TABLE};

    #[test]
    fn every_set_limit_can_be_doubled() {
        let mut limits = Limits::default();
        let numeric = |row: &&LimitRow| !matches!(row.unit, Unit::Switch | Unit::TokensCounted);
        for row in TABLE.iter().filter(numeric) {
            limits.set(row.name, &Value::from(row.least)).unwrap();
            let before = row.value(&limits);
            let value = doubled(&limits, row.name).unwrap();
            let read = serde_json::from_str(&value).unwrap_or(Value::String(value));
            limits.set(row.name, &read).unwrap();
            assert!(row.value(&limits) > before, "{}", row.name);
        }
        assert_eq!(doubled(&limits, "shared_budget"), None);
    }

    #[test]
    fn journal_path_is_quoted_for_shell() {
        let named = |path: &str| in_journal("endstop runs", Some(Path::new(path)));
        assert_eq!(named("a/b.db"), "endstop runs --journal a/b.db");
        assert_eq!(named("my runs.db"), "endstop runs --journal 'my runs.db'");
        assert_eq!(named("it's"), r"endstop runs --journal 'it'\''s'");
        assert_eq!(in_journal("endstop runs", None), "endstop runs");
    }
}
