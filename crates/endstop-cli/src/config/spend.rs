//! Ceilings per hour, day, week and month: the table `[spend]` of a settings file, and the project of a run.
//!
//! ```toml
//! project = "web"
//!
//! [spend]
//! max_usd_per_day = 20.0
//! max_tokens_per_month = 500_000_000
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
use endstop::journal::{Period, SpendBudget, SpendCeilings, SqliteJournal};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The key of the ceilings of projects.
const PROJECTS: &str = "projects";

/// The table `[spend]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SpendSettings {
    /// The ceilings of all runs.
    #[serde(flatten)]
    pub(crate) all: SpendCeilings,
    /// The ceilings of the runs of each project.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) projects: BTreeMap<String, SpendCeilings>,
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

impl SpendSettings {
    /// Merges a member of the table over the known ones.
    ///
    /// # Errors
    /// Describes the invalid value.
    pub(crate) fn take(&mut self, member: &str, value: &Value) -> Result<(), String> {
        if member != PROJECTS {
            let names = SpendCeilings::names();
            let is_ceiling = names.iter().any(|name| name == member);
            if !is_ceiling {
                let known: Vec<&str> = names.iter().map(String::as_str).chain([PROJECTS]).collect();
                return Err(format!("`{member}`: {}", unknown_key(member, &known)));
            }
            return self.all.set(member, value).map_err(|problem| format!("`{member}`: {problem}"));
        }
        let projects = value.as_object().ok_or("`projects`: expected a table")?;
        for (name, value) in projects {
            let wrong = |problem: String| format!("project `{name}`: {problem}");
            project(name).map_err(wrong)?;
            let table = value.as_object().ok_or_else(|| wrong("expected a table".to_owned()))?;
            let ceilings = self.projects.entry(name.clone()).or_default();
            for (key, value) in table {
                let set = ceilings.set(key, value);
                set.map_err(|problem| wrong(format!("`{key}`: {problem}")))?;
            }
        }
        Ok(())
    }

    /// Puts the ceilings of the user's own file over these, which a journal stored.
    pub(crate) fn below(mut self, own: &SpendSettings) -> SpendSettings {
        self.all.extend(&own.all);
        for (name, ceilings) in &own.projects {
            self.projects.entry(name.clone()).or_default().extend(ceilings);
        }
        self
    }

    /// Returns the ceilings for display.
    pub(crate) fn shown(&self) -> Members {
        let value = |name: &String| self.all.get(name).cloned().unwrap_or_default();
        let names = SpendCeilings::names();
        let mut shown: Members =
            names.iter().map(|name| (format!(".{name}"), value(name))).collect();
        if !self.projects.is_empty() {
            shown.push((".projects".to_owned(), json!(self.projects)));
        }
        shown
    }

    /// `true` if there is no ceiling.
    fn is_empty(&self) -> bool {
        self.all.is_empty() && self.projects.values().all(SpendCeilings::is_empty)
    }

    /// Returns the ceilings of a project's runs; without a name, those of runs without a project.
    fn of_project(&self, name: Option<&str>) -> SpendCeilings {
        name.and_then(|name| self.projects.get(name)).cloned().unwrap_or_default()
    }

    /// Returns the budget of all periods for a run of a project; `None` if nothing bounds it.
    fn spend_budget(&self, project: Option<&str>) -> Option<SpendBudget> {
        let mut budget = SpendBudget::new();
        if let Some(project) = project {
            budget = budget.project(project);
        }
        budget = budget.ceilings(&self.all).project_ceilings(&self.of_project(project));
        Some(budget).filter(SpendBudget::has_ceilings)
    }

    /// Opens the budget for a run of a project; `None` if nothing bounds it. A replay gets
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
        let Some(budget) = self.spend_budget(project) else { return Ok(None) };
        let journal = journal.ok_or_else(|| {
            Failure::usage(
                "[spend]: the ceilings are kept in the journal, and this run has none; set a file that can be written with --journal FILE, or remove the ceilings",
            )
        })?;
        let opened = budget.open(journal);
        let opened = opened.map_err(|error| Failure::usage(format!("[spend]: {error}")))?;
        Ok(Some(opened))
    }

    /// The same ceilings in memory.
    fn in_memory(&self, project: Option<&str>) -> Option<SharedBudget> {
        let ceilings = [self.all.clone(), self.of_project(project)];
        let each = ceilings.iter().flat_map(|ceilings| {
            Period::ALL.map(|period| (ceilings.usd(period), ceilings.tokens(period)))
        });
        each.fold(None, |above: Option<SharedBudget>, (usd, tokens)| {
            SharedBudget::within(above.as_ref(), usd.map(NanoUsd::from_usd), tokens)
        })
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
        assert_eq!(below.all.usd(Period::Day), Some(2.0));
        assert_eq!(below.projects["web"].usd(Period::Day), Some(1.5));
    }

    #[test]
    fn later_file_removes_a_ceiling() {
        let mut settings = settings();
        settings.take("max_usd_per_day", &json!("off")).unwrap();
        settings.take("projects", &json!({"web": {"max_tokens_per_day": "off"}})).unwrap();
        assert!(settings.spend_budget(None).is_none());
        assert!(settings.spend_budget(Some("web")).is_some());
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
