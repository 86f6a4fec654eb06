//! Ceilings of periods by their names in configuration.
//!
//! ```
//! use endstop::journal::{Period, SpendCeilings};
//! use serde_json::json;
//! let mut ceilings = SpendCeilings::default();
//! ceilings.set("max_usd_per_day", &json!(5)).unwrap();
//! assert_eq!(ceilings.usd(Period::Day), Some(5.0));
//! let problem = ceilings.set("max_usd_per_dya", &json!(5)).unwrap_err();
//! assert!(problem.contains("max_usd_per_day"));
//! ```

use super::day::SpendBudget;
use super::period::Period;
use endstop_core::NanoUsd;
use endstop_core::limits::unknown_key;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Ceilings by their names, such as `max_usd_per_day`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SpendCeilings(BTreeMap<String, Value>);

impl SpendCeilings {
    /// Returns the names of all ceilings.
    pub fn names() -> Vec<String> {
        let of = |unit: &'static str| Period::ALL.map(|period| name(unit, period));
        [of("usd"), of("tokens")].concat()
    }

    /// Sets a ceiling by its name; `"off"` removes it.
    ///
    /// # Errors
    /// The name is unknown, or the value is not an amount.
    pub fn set(&mut self, name: &str, value: &Value) -> Result<(), String> {
        let names = Self::names();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        if !names.contains(&name) {
            return Err(unknown_key(name, &names));
        }
        if value.as_str() == Some("off") {
            self.0.remove(name);
            return Ok(());
        }
        let expected = if name.starts_with("max_usd") {
            let is_amount = value.as_f64().is_some_and(|usd| usd.is_finite() && usd >= 0.0);
            (!is_amount).then_some("a number of dollars")
        } else {
            value.as_u64().is_none().then_some("a whole number of tokens")
        };
        if let Some(expected) = expected {
            return Err(format!("expected {expected}, or \"off\""));
        }
        self.0.insert(name.to_owned(), value.clone());
        Ok(())
    }

    /// Sets all ceilings of `other` over these.
    pub fn extend(&mut self, other: &SpendCeilings) {
        self.0.extend(other.0.clone());
    }

    /// Returns the value of a ceiling by its name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Returns the ceiling on dollars of a period.
    pub fn usd(&self, period: Period) -> Option<f64> {
        self.get(&name("usd", period)).and_then(Value::as_f64)
    }

    /// Returns the ceiling on tokens of a period.
    pub fn tokens(&self, period: Period) -> Option<u64> {
        self.get(&name("tokens", period)).and_then(Value::as_u64)
    }

    /// `true` if there is no ceiling.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl SpendBudget {
    /// Sets the ceilings of all runs.
    #[must_use]
    pub fn ceilings(self, ceilings: &SpendCeilings) -> SpendBudget {
        self.each(ceilings, SpendBudget::max_usd, SpendBudget::max_tokens)
    }

    /// Sets the ceilings of the project's runs, within those of all runs.
    #[must_use]
    pub fn project_ceilings(self, ceilings: &SpendCeilings) -> SpendBudget {
        self.each(ceilings, SpendBudget::project_max_usd, SpendBudget::project_max_tokens)
    }

    fn each(
        mut self,
        ceilings: &SpendCeilings,
        set_usd: fn(SpendBudget, Period, NanoUsd) -> SpendBudget,
        set_tokens: fn(SpendBudget, Period, u64) -> SpendBudget,
    ) -> SpendBudget {
        for period in Period::ALL {
            if let Some(usd) = ceilings.usd(period) {
                self = set_usd(self, period, NanoUsd::from_usd(usd));
            }
            if let Some(tokens) = ceilings.tokens(period) {
                self = set_tokens(self, period, tokens);
            }
        }
        self
    }
}

fn name(unit: &str, period: Period) -> String {
    format!("max_{unit}_per_{}", period.name())
}
