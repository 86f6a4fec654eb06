//! `stuck`: the recommended detector. It compares the answers of calls and the calls in between, so
//! that running a test again after an edit is progress, and reading a file again is not.
//!
//! ```
//! use endstop_core::detector::{RuleSet, Rule, Stuck};
//! let mut rule_set = RuleSet::new([Rule::Stuck(Stuck::default())]);
//! let mut step = |call: &str, answer: &str| {
//!     rule_set.call(call, "{}");
//!     rule_set.result(call, answer, false);
//!     rule_set.end();
//!     rule_set.fired()[0]
//! };
//! for nth in 0..4 {
//!     step(&format!("edit_{nth}"), "saved");
//!     assert_eq!(step("test", &format!("{nth} failed")), None, "the answer has changed");
//! }
//! for _ in 0..2 {
//!     step("read", "12 lines");
//! }
//! assert_eq!(step("read", "12 lines"), Some(11), "twice again, and nothing else was done");
//! ```
//!
//! The rule fires at the first of five signs:
//!
//! - `repeats`: one call was repeated this many times with the same answer. A repetition counts
//!   half if a call that is new to the run has succeeded since the call was made last, because
//!   something may have changed. A changed answer resets the count of its call;
//! - `same_errors`: the same failure this many times in a row;
//! - `failures`: any failure this many times in a row;
//! - `stale`: nothing new for this many steps in a row ([`Facts::stale`](super::Facts::stale));
//! - `similar`: this many steps in a row are like one of the eight steps before them but for numbers, times,
//!   ids, order or one word ([`Facts::alike`](super::Facts::alike)). A step whose calls themselves differ
//!   counts half.
//!
//! The book's chapter on detectors describes how these numbers were chosen, and their results on
//! runs that were not used to choose them.

use crate::policy::PolicyError;
use crate::policy::config::Config;
use serde_json::{Value, json};
use std::fmt;

/// The thresholds at which a run counts as stuck; `None` switches a sign off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// Repetitions of a call with the same answer (default 2).
    pub repeats: Option<u32>,
    /// Steps in a row with the same failure (default 4).
    pub same_errors: Option<u32>,
    /// Steps in a row that brought nothing new (default 3).
    pub stale: Option<u32>,
    /// Steps in a row that had a failure (default 7).
    pub failures: Option<u32>,
    /// Steps in a row that are like an earlier one but for numbers, times, ids, order or one word (default 5).
    pub similar: Option<u32>,
}

/// Default of `similar`.
const SIMILAR: Option<u32> = Some(5);

impl Default for Stuck {
    fn default() -> Stuck {
        Stuck {
            repeats: Some(2),
            same_errors: Some(4),
            stale: Some(3),
            failures: Some(7),
            similar: SIMILAR,
        }
    }
}

impl Stuck {
    /// One-line description.
    pub const DESCRIPTION: &'static str = "One call repeated with the same or nearly the same answer, one failure repeated, nothing new, or only failures";

    /// Keys of the configuration, in the order of the short form.
    pub(super) const KEYS: [&'static str; 5] =
        ["repeats", "same_errors", "stale", "failures", "similar"];

    pub(super) fn from_config(config: &Config<'_>) -> Result<Stuck, PolicyError> {
        let count = |key, default: u64| -> Result<Option<u32>, PolicyError> {
            let number = config.count(key, default)?;
            number
                .map(|number| {
                    u32::try_from(number).map_err(|_| config.bad(key, "at most 4294967295"))
                })
                .transpose()
        };
        Ok(Stuck {
            repeats: count("repeats", 2)?,
            same_errors: count("same_errors", 4)?,
            stale: count("stale", 3)?,
            failures: count("failures", 7)?,
            similar: count("similar", 5)?,
        })
    }

    pub(super) fn config(&self) -> Value {
        json!({
            "repeats": self.repeats,
            "same_errors": self.same_errors,
            "stale": self.stale,
            "failures": self.failures,
            "similar": self.similar,
        })
    }
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |n: Option<u32>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let [repeats, same_errors, stale, failures] =
            [self.repeats, self.same_errors, self.stale, self.failures].map(shown);
        write!(f, "{repeats},{same_errors},{stale},{failures}")?;
        match self.similar {
            // The default, as the short form without this value has it.
            SIMILAR => Ok(()),
            similar => write!(f, ",{}", shown(similar)),
        }
    }
}
