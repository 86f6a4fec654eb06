//! Ceilings per day: the table `[spend]` of a settings file, and the project of a run.
//!
//! ```toml
//! project = "web"
//!
//! [spend]
//! max_usd_per_day = 20.0
//! max_tokens_per_day = 50_000_000
//!
//! [spend.projects.web]
//! max_usd_per_day = 5.0
//! ```

use crate::config::kind::{Kind, Members, Problem, plain, restored};
use crate::failure::{Failure, Result};
use crate::spend_args::project;
use endstop::NanoUsd;
use endstop::budget::SharedBudget;
use endstop::core::limits::unknown_key;
use endstop::journal::{DayBudget, SqliteJournal};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The keys of the table; those of a project are the first two.
const KEYS: [&str; 3] = ["max_usd_per_day", "max_tokens_per_day", "projects"];

/// Ceilings per day. `None`: no ceiling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Ceilings {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_usd_per_day: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_tokens_per_day: Option<u64>,
}

/// The table `[spend]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SpendSettings {
    /// The ceilings of all runs.
    #[serde(flatten)]
    pub(crate) all: Ceilings,
    /// The ceilings of the runs of each project.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) projects: BTreeMap<String, Ceilings>,
}

/// The table as a setting.
pub(crate) struct SpendTable;

impl Kind for SpendTable {
    type Own = SpendSettings;
    type Flag = ();

    fn take(own: &mut SpendSettings, member: &str, value: &Value) -> Result<(), Problem> {
        own.take(member, value).map_err(Problem::Table)
    }

    fn json(own: &SpendSettings) -> Value {
        if own.is_empty() { Value::Null } else { plain(own) }
    }

    fn restore(own: &mut SpendSettings, stored: &Value) -> Result<(), String> {
        restored(own, stored)
    }
}

impl Ceilings {
    fn take(&mut self, key: &str, value: &Value) -> Result<(), String> {
        let off = value.as_str() == Some("off");
        if key == "max_usd_per_day" {
            let usd = value.as_f64().filter(|usd| usd.is_finite() && *usd >= 0.0);
            if usd.is_none() && !off {
                return Err(format!("`{key}`: expected a number of dollars, or \"off\""));
            }
            self.max_usd_per_day = usd;
        } else {
            if value.as_u64().is_none() && !off {
                return Err(format!("`{key}`: expected a whole number of tokens, or \"off\""));
            }
            self.max_tokens_per_day = value.as_u64();
        }
        Ok(())
    }

    fn is_none(self) -> bool {
        self == Ceilings::default()
    }
}

impl SpendSettings {
    /// Merges a member of the table over the known ones.
    ///
    /// # Errors
    /// Describes the invalid value.
    pub(crate) fn take(&mut self, member: &str, value: &Value) -> Result<(), String> {
        if !KEYS.contains(&member) {
            return Err(format!("`{member}`: {}", unknown_key(member, &KEYS)));
        }
        if member != "projects" {
            return self.all.take(member, value);
        }
        let projects = value.as_object().ok_or("`projects`: expected a table")?;
        for (name, value) in projects {
            let wrong = |problem: String| format!("project `{name}`: {problem}");
            project(name).map_err(wrong)?;
            let table = value.as_object().ok_or_else(|| wrong("expected a table".to_owned()))?;
            let ceilings = self.projects.entry(name.clone()).or_default();
            for (key, value) in table {
                if !KEYS[..2].contains(&key.as_str()) {
                    let unknown = unknown_key(key, &KEYS[..2]);
                    return Err(wrong(format!("`{key}`: {unknown}")));
                }
                ceilings.take(key, value).map_err(wrong)?;
            }
        }
        Ok(())
    }

    /// Puts the ceilings of the user's own file over these, which a journal stored.
    pub(crate) fn below(mut self, own: &SpendSettings) -> SpendSettings {
        let over = |stored: &mut Ceilings, own: Ceilings| {
            stored.max_usd_per_day = own.max_usd_per_day.or(stored.max_usd_per_day);
            stored.max_tokens_per_day = own.max_tokens_per_day.or(stored.max_tokens_per_day);
        };
        over(&mut self.all, own.all);
        for (name, ceilings) in &own.projects {
            over(self.projects.entry(name.clone()).or_default(), *ceilings);
        }
        self
    }

    /// Returns the ceilings for display.
    pub(crate) fn shown(&self) -> Members {
        let mut shown = vec![
            (".max_usd_per_day".to_owned(), json!(self.all.max_usd_per_day)),
            (".max_tokens_per_day".to_owned(), json!(self.all.max_tokens_per_day)),
        ];
        if !self.projects.is_empty() {
            shown.push((".projects".to_owned(), json!(self.projects)));
        }
        shown
    }

    /// `true` if there is no ceiling.
    fn is_empty(&self) -> bool {
        self.all.is_none() && self.projects.values().all(|ceilings| ceilings.is_none())
    }

    /// Returns the ceilings of a project's runs; without a name, those of runs without a project.
    fn of_project(&self, name: Option<&str>) -> Ceilings {
        name.and_then(|name| self.projects.get(name)).copied().unwrap_or_default()
    }

    /// Returns the budget of the day for a run of a project; `None` if nothing bounds it.
    fn day_budget(&self, project: Option<&str>) -> Option<DayBudget> {
        let mut budget = DayBudget::new();
        if let Some(project) = project {
            budget = budget.project(project);
        }
        if let Some(usd) = self.all.max_usd_per_day {
            budget = budget.max_usd(NanoUsd::from_usd(usd));
        }
        if let Some(tokens) = self.all.max_tokens_per_day {
            budget = budget.max_tokens(tokens);
        }
        let own = self.of_project(project);
        if let Some(usd) = own.max_usd_per_day {
            budget = budget.project_max_usd(NanoUsd::from_usd(usd));
        }
        if let Some(tokens) = own.max_tokens_per_day {
            budget = budget.project_max_tokens(tokens);
        }
        Some(budget).filter(DayBudget::has_ceilings)
    }

    /// Opens the budget of the day for a run of a project; `None` if nothing bounds it. A replay gets
    /// the same ceilings in memory.
    ///
    /// # Errors
    /// There is no journal, or its books cannot be opened: without them a run would be unlimited.
    pub(crate) fn budget(
        &self,
        project: Option<&str>,
        replay: bool,
        journal: Option<&SqliteJournal>,
    ) -> Result<Option<SharedBudget>> {
        if replay {
            // It spends nothing, but its requests must have the caps of the recorded run.
            return Ok(self.in_memory(project));
        }
        let Some(budget) = self.day_budget(project) else { return Ok(None) };
        let journal = journal.ok_or_else(|| {
            Failure::usage(
                "[spend]: the ceilings per day are kept in the journal, and this run has none; set a file that can be written with --journal FILE, or remove the ceilings",
            )
        })?;
        let opened = budget.open(journal);
        let opened = opened.map_err(|error| Failure::usage(format!("[spend]: {error}")))?;
        Ok(Some(opened))
    }

    /// The same ceilings in memory.
    fn in_memory(&self, project: Option<&str>) -> Option<SharedBudget> {
        let within = |above: Option<&SharedBudget>, ceilings: Ceilings| {
            let usd = ceilings.max_usd_per_day.map(NanoUsd::from_usd);
            SharedBudget::within(above, usd, ceilings.max_tokens_per_day)
        };
        let all = within(None, self.all);
        within(all.as_ref(), self.of_project(project))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> SpendSettings {
        let mut settings = SpendSettings::default();
        settings.take("max_usd_per_day", &json!(5)).unwrap();
        let projects = json!({"web": {"max_usd_per_day": 1.5, "max_tokens_per_day": 9}, "b": {}});
        settings.take("projects", &projects).unwrap();
        settings
    }

    #[test]
    fn ceilings_survive_the_journal() {
        let stored = serde_json::to_value(settings()).unwrap();
        let read: SpendSettings = serde_json::from_value(stored).unwrap();
        assert_eq!(read, settings());
        assert!(SpendSettings::default().is_empty() && !read.is_empty());
        let mut own = SpendSettings::default();
        own.take("max_usd_per_day", &json!(2)).unwrap();
        let below = read.below(&own);
        assert_eq!(below.all.max_usd_per_day, Some(2.0));
        assert_eq!(below.projects["web"].max_usd_per_day, Some(1.5));
    }

    #[test]
    fn later_file_removes_a_ceiling() {
        let mut settings = settings();
        settings.take("max_usd_per_day", &json!("off")).unwrap();
        settings.take("projects", &json!({"web": {"max_tokens_per_day": "off"}})).unwrap();
        assert!(settings.day_budget(None).is_none());
        assert!(settings.day_budget(Some("web")).is_some());
    }

    #[test]
    fn wrong_ceilings_name_the_fix() {
        for (member, value, says) in [
            ("max_usd_per_day", json!(-1), "dollars"),
            ("max_tokens_per_day", json!(1.5), "whole number"),
            ("max_usd_per_dya", json!(1), "max_usd_per_day"),
            ("projects", json!([]), "expected a table"),
            ("projects", json!({"a b": {}}), "expected a name"),
            ("projects", json!({"a": {"max_usd": 1}}), "max_usd_per_day"),
        ] {
            let error = SpendSettings::default().take(member, &value).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
