//! Families of rules that can be calibrated: one rule with increasing thresholds.
//!
//! ```
//! use endstop_trajectory::backtest::Family;
//! let names: Vec<String> = Family::all().iter().map(|family| family.name().to_owned()).collect();
//! assert!(names.contains(&"no_new".to_owned()));
//! ```

use endstop_core::detector::{Rule, Stuck};

/// A rule with increasing thresholds: a run that a high threshold stops is also stopped by every
/// lower one.
#[derive(Clone, Debug)]
pub struct Family {
    name: &'static str,
    make: fn(u32) -> Rule,
    first: u32,
    last: u32,
}

impl Family {
    /// Returns all families that can be calibrated.
    pub fn all() -> Vec<Family> {
        let family = |name, make: fn(u32) -> Rule, first, last| Family { name, make, first, last };
        vec![
            family("repeat_call", |times| Rule::RepeatCall { times }, 2, 20),
            family("repeat_call_res", |times| Rule::RepeatCallRes { times }, 2, 20),
            family("total_repeat", |times| Rule::TotalRepeat { times }, 2, 20),
            family("same_error", |times| Rule::SameError { times }, 2, 20),
            family("any_error", |times| Rule::AnyError { times }, 2, 20),
            family("no_new", |times| Rule::NoNew { times }, 1, 20),
            family("same_text", |times| Rule::SameText { times }, 2, 20),
            family("stuck", stuck, 1, 12),
            family("max_steps", |steps| Rule::MaxSteps { steps }, 1, 150),
        ]
    }

    /// Returns the rule's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the rule with a threshold.
    pub fn rule(&self, level: u32) -> Rule {
        (self.make)(level)
    }

    pub(in crate::backtest) fn rules(&self) -> Vec<Rule> {
        (self.first..=self.last).map(self.make).collect()
    }

    /// Returns `true` if the rules read tool results.
    pub(in crate::backtest) fn needs_results(&self) -> bool {
        (self.make)(self.first).needs_results()
    }

    pub(in crate::backtest) fn levels(&self) -> usize {
        (self.last - self.first) as usize + 1
    }

    pub(in crate::backtest) fn level(&self, at: usize) -> u32 {
        self.first + at as u32
    }
}

/// Creates `stuck` at a level; level 2 is the default.
fn stuck(level: u32) -> Rule {
    Rule::Stuck(Stuck {
        repeats: Some(level),
        same_errors: Some(level + 2),
        stale: Some(level + 1),
        failures: Some(level + 5),
        similar: Some(level + 3),
    })
}
