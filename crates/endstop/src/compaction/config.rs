//! The configuration of compaction: how a loop shortens its conversation.
//!
//! ```
//! use endstop::compaction::{CompactionConfig, Strategy};
//! use serde_json::json;
//! let config = CompactionConfig::read(&json!({"strategies": ["elide", "drop"], "at": 0.7}))?;
//! assert_eq!(config.strategies, [Strategy::Elide, Strategy::Drop]);
//! assert_eq!(CompactionConfig::read(&json!("off"))?.strategies, []);
//! let problem = CompactionConfig::read(&json!("shrink")).unwrap_err();
//! assert!(problem.to_string().ends_with("on, off, elide, drop, summarise"), "{problem}");
//! # Ok::<(), endstop::compaction::CompactionConfigError>(())
//! ```

use super::{DropOldTurns, ElideToolResults, InOrder, Summarise};
use endstop_core::CompactionSpec;
use endstop_core::limits::unknown_key;
use serde::Serialize;
use serde_json::Value;

/// The fraction of the context window at which a loop with a compactor shortens its conversation.
pub const COMPACTION_SHARE: f64 = 0.6;

/// A built-in strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Strategy {
    /// [`ElideToolResults`].
    Elide,
    /// [`DropOldTurns`].
    Drop,
    /// [`Summarise`], with the loop's own model.
    Summarise,
}

impl Strategy {
    /// All strategies, in the default order.
    pub const ALL: [Strategy; 3] = [Strategy::Elide, Strategy::Drop, Strategy::Summarise];

    /// Returns the name used in configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Strategy::Elide => "elide",
            Strategy::Drop => "drop",
            Strategy::Summarise => "summarise",
        }
    }
}

/// The settings of compaction. Serializes to the JSON that [`read`](Self::read) accepts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CompactionConfig {
    /// The strategies to try, in order. If empty, compaction is off.
    pub strategies: Vec<Strategy>,
    /// The share (0 to 1) of the context window at which the conversation is shortened before a
    /// call.
    pub at: f64,
    /// Number of newest turns that stay unchanged.
    pub keep_turns: usize,
    /// The least share (0 to 1) of its bytes that the conversation must lose.
    pub least_gain: f64,
    /// Number of consecutive failures after which no compaction is tried before a call.
    pub max_failures: u32,
}

impl Default for CompactionConfig {
    fn default() -> CompactionConfig {
        let CompactionSpec { least_gain, max_failures, .. } = CompactionSpec::default();
        CompactionConfig {
            strategies: Strategy::ALL.to_vec(),
            at: COMPACTION_SHARE,
            keep_turns: 3,
            least_gain,
            max_failures,
        }
    }
}

/// Error of [`CompactionConfig::read`]. Its text names the key and the choices.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CompactionConfigError {
    /// A value is not a share.
    #[error("invalid `{key}` `{value}`: expected a share between 0 and 1, for example 0.6")]
    Share {
        /// The key.
        key: String,
        /// The value.
        value: Value,
    },
    /// A value is not a whole number above zero.
    #[error("invalid `{key}` `{value}`: expected a whole number, 1 or more")]
    Count {
        /// The key.
        key: String,
        /// The value.
        value: Value,
    },
    /// A key or a strategy is unknown.
    #[error("`{name}` is an {problem}")]
    Unknown {
        /// The key or the strategy.
        name: String,
        /// A description with the choices.
        problem: String,
    },
    /// The value is neither a strategy nor a list of strategies.
    #[error("expected `on`, `off`, a strategy or a list of strategies")]
    NoStrategies,
    /// The value of `strategies` is invalid.
    #[error("`strategies`: {0}")]
    Strategies(Box<CompactionConfigError>),
}

impl CompactionConfigError {
    fn unknown(name: &str, choices: &[&str]) -> CompactionConfigError {
        let problem = unknown_key(name, choices);
        CompactionConfigError::Unknown { name: name.to_owned(), problem }
    }
}

const KEYS: [&str; 5] = ["strategies", "at", "keep_turns", "least_gain", "max_failures"];
const CHOICES: [&str; 5] = ["on", "off", "elide", "drop", "summarise"];

impl CompactionConfig {
    /// A configuration without strategies, which turns compaction off.
    pub fn off() -> CompactionConfig {
        CompactionConfig { strategies: Vec::new(), ..CompactionConfig::default() }
    }

    /// Reads a configuration: `on`, `off`, a strategy, several strategies (`"elide,drop"`, or a
    /// list), or a table of the fields.
    ///
    /// # Errors
    /// The value is invalid. The message names the key and the choices.
    pub fn read(value: &Value) -> Result<CompactionConfig, CompactionConfigError> {
        let Value::Object(table) = value else {
            let strategies = strategies(value)?;
            return Ok(CompactionConfig { strategies, ..CompactionConfig::default() });
        };
        let mut config = CompactionConfig::default();
        for (key, value) in table {
            let share = |most: f64| {
                // A whole window is a valid point to compact at, but no gain.
                let share = value.as_f64().filter(|share| *share > 0.0 && *share <= most);
                share.ok_or_else(|| CompactionConfigError::Share {
                    key: key.clone(),
                    value: value.clone(),
                })
            };
            let count = || {
                let count = value.as_u64().and_then(|count| u32::try_from(count).ok());
                count
                    // With zero allowed failures no compaction would be tried before a call; `off`
                    // is the setting for that.
                    .filter(|count| *count > 0)
                    .ok_or_else(|| CompactionConfigError::Count {
                        key: key.clone(),
                        value: value.clone(),
                    })
            };
            match key.as_str() {
                "strategies" => {
                    config.strategies = strategies(value)
                        .map_err(|problem| CompactionConfigError::Strategies(Box::new(problem)))?;
                }
                "at" => config.at = share(1.0)?,
                "least_gain" => config.least_gain = share(1.0 - f64::EPSILON)?,
                "keep_turns" => config.keep_turns = count()? as usize,
                "max_failures" => config.max_failures = count()?,
                _ => return Err(CompactionConfigError::unknown(key, &KEYS)),
            }
        }
        Ok(config)
    }

    /// Returns the strategies as one compactor, or `None` if there are none.
    pub fn compactor(&self) -> Option<InOrder> {
        if self.strategies.is_empty() {
            return None;
        }
        let keep = self.keep_turns;
        Some(self.strategies.iter().fold(InOrder::new(), |order, strategy| match strategy {
            Strategy::Elide => order.then(ElideToolResults::keep(keep)),
            Strategy::Drop => order.then(DropOldTurns::keep(keep)),
            Strategy::Summarise => order.then(Summarise::default().keep(keep)),
        }))
    }
}

fn strategies(value: &Value) -> Result<Vec<Strategy>, CompactionConfigError> {
    let wrong = || CompactionConfigError::NoStrategies;
    let named = |name: &str| {
        let known = Strategy::ALL.into_iter().find(|strategy| strategy.as_str() == name.trim());
        known.ok_or_else(|| CompactionConfigError::unknown(name.trim(), &CHOICES))
    };
    match value {
        Value::Bool(true) => Ok(Strategy::ALL.to_vec()),
        Value::Bool(false) => Ok(Vec::new()),
        Value::String(text) => match text.as_str() {
            "on" => Ok(Strategy::ALL.to_vec()),
            "off" => Ok(Vec::new()),
            names => names.split(',').map(named).collect(),
        },
        Value::Array(names) => {
            names.iter().map(|name| named(name.as_str().ok_or_else(wrong)?)).collect()
        }
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn invalid_setting_is_named() {
        for (value, problem) in [
            (
                json!({"at": 1.5}),
                "invalid `at` `1.5`: expected a share between 0 and 1, for example 0.6",
            ),
            (
                json!({"least_gain": 1.0}),
                "invalid `least_gain` `1.0`: expected a share between 0 and 1, for example 0.6",
            ),
            (
                json!({"least_gain": 0}),
                "invalid `least_gain` `0`: expected a share between 0 and 1, for example 0.6",
            ),
            (
                json!({"max_failures": 0}),
                "invalid `max_failures` `0`: expected a whole number, 1 or more",
            ),
            (
                json!({"strategies": 3}),
                "`strategies`: expected `on`, `off`, a strategy or a list of strategies",
            ),
            (
                json!({"strategies": ["elide", "shrink"]}),
                "`strategies`: `shrink` is an unknown name; expected one of on, off, elide, drop, summarise",
            ),
        ] {
            assert_eq!(CompactionConfig::read(&value).unwrap_err().to_string(), problem);
        }
        let unknown = CompactionConfig::read(&json!({"att": 0.5})).unwrap_err().to_string();
        assert!(unknown.starts_with("`att` is an unknown"), "{unknown}");
        for (value, strategies) in [
            (json!("on"), Strategy::ALL.to_vec()),
            (json!(true), Strategy::ALL.to_vec()),
            (json!(false), vec![]),
            (json!("drop, elide"), vec![Strategy::Drop, Strategy::Elide]),
            (json!({"keep_turns": 5}), Strategy::ALL.to_vec()),
            (json!({"at": 1.0}), Strategy::ALL.to_vec()),
        ] {
            let config = CompactionConfig::read(&value).unwrap();
            assert_eq!(config.strategies, strategies, "{value}");
            let written = serde_json::to_value(&config).unwrap();
            assert_eq!(CompactionConfig::read(&written), Ok(config), "{written}");
        }
    }
}
