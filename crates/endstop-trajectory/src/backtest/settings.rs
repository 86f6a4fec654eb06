//! The settings of a backtest: two counts can only be added if these are equal.
//!
//! ```text
//! let settings = Settings::of(&candidates);
//! assert_eq!(settings.digest().len(), 16);
//! ```

use super::calibrate::family::Family;
use super::candidate::{Candidate, Trial};
use super::count::hash::stable_hash;
use super::group::GroupBy;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The candidates, the calibration and the groups of a backtest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Settings {
    /// The names of the candidates, each with its rule or its limits and policy.
    pub(super) candidates: Vec<(String, Value)>,
    /// The names of the families that are calibrated.
    families: Vec<String>,
    /// The share of good tasks that a calibrated threshold may stop.
    pub(super) alpha: f64,
    /// The field that names the kind of a task.
    pub(super) group_by: GroupBy,
}

impl Settings {
    /// Describes candidates without a calibration.
    pub(super) fn of(candidates: &[Candidate]) -> Settings {
        let spec = |candidate: &Candidate| match &candidate.trial {
            Trial::Rule(rule) => rule.spec(),
            Trial::Kernel(setting) => json!({
                "limits": setting.limits,
                "policy": setting.policy,
                "watches": setting.watches,
            }),
        };
        Settings {
            candidates: candidates.iter().map(|one| (one.name.clone(), spec(one))).collect(),
            families: Vec::new(),
            alpha: 1.0,
            group_by: GroupBy::default(),
        }
    }

    /// Adds a calibration.
    pub(super) fn calibrate(&mut self, families: &[Family], alpha: f64) {
        self.families = families.iter().map(|family| family.name().to_owned()).collect();
        self.alpha = alpha;
    }

    /// Returns the names of the families that are calibrated.
    pub(super) fn family_names(&self) -> &[String] {
        &self.families
    }

    /// Returns the families that are calibrated; an error names one that does not exist.
    pub(super) fn families(&self) -> Result<Vec<Family>, String> {
        let named = |name: &String| {
            let family = Family::all().into_iter().find(|family| family.name() == name);
            family.ok_or_else(|| format!("unknown family of rules `{name}`"))
        };
        self.families.iter().map(named).collect()
    }

    /// Returns the hash of the settings as 16 hexadecimal digits.
    pub(super) fn digest(&self) -> String {
        // The JSON of this type has no map with a random order.
        format!("{:016x}", stable_hash([&*json!(self).to_string()]))
    }
}
