//! Reads the configuration of a policy key by key; each mistake is an error that names the policy,
//! the key and the accepted values.
//!
//! ```
//! use endstop_core::Registry;
//! let error = Registry::new()
//!     .build(&serde_json::json!({"confidence": {"treshold": 0.9}}))
//!     .unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "policy `confidence`: unknown key `treshold`; known are confidence_threshold, \
//!      min_steps_before_termination, confidence_key, fallback_to_final_pattern"
//! );
//! ```

use crate::nearest::did_you_mean;
use serde_json::{Map, Value};
use std::fmt;

/// The error of a policy that cannot be built.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PolicyError {
    /// No policy of this name is registered.
    UnknownPolicy {
        /// The requested name.
        name: String,
        /// The registered names, in order.
        known: Vec<String>,
        /// Names of the detectors.
        detectors: Vec<String>,
    },
    /// A policy of this name is already registered.
    Duplicate {
        /// The name.
        name: String,
    },
    /// The configuration has a key that the policy does not know.
    UnknownKey {
        /// The policy.
        policy: String,
        /// The key.
        key: String,
        /// The keys that the policy accepts.
        known: Vec<String>,
    },
    /// A key's value is of the wrong type or out of range.
    BadValue {
        /// The policy.
        policy: String,
        /// The key.
        key: String,
        /// The accepted values.
        expected: String,
        /// The given value, as JSON.
        given: String,
    },
    /// A pattern cannot be used.
    BadPattern {
        /// The policy.
        policy: String,
        /// The pattern.
        pattern: String,
        /// The reason.
        problem: String,
    },
    /// The specification is not valid.
    BadSpec {
        /// The reason.
        problem: String,
    },
}

impl PolicyError {
    pub(crate) fn spec(problem: impl Into<String>) -> PolicyError {
        PolicyError::BadSpec { problem: problem.into() }
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyError::UnknownPolicy { name, known, detectors } => {
                write!(
                    f,
                    "unknown termination policy `{name}`{}; known are {}, and the detectors {}",
                    did_you_mean(
                        name,
                        known
                            .iter()
                            .map(String::as_str)
                            .chain(detectors.iter().map(String::as_str))
                    ),
                    known.join(", "),
                    detectors.join(", ")
                )
            }
            PolicyError::Duplicate { name } => write!(
                f,
                "a termination policy `{name}` is registered already; `replace` replaces it"
            ),
            PolicyError::UnknownKey { policy, key, known } => {
                write!(f, "policy `{policy}`: unknown key `{key}`; known are {}", known.join(", "))
            }
            PolicyError::BadValue { policy, key, expected, given } => {
                write!(f, "policy `{policy}`: `{key}` must be {expected}, not {given}")
            }
            PolicyError::BadPattern { policy, pattern, problem } => {
                write!(f, "policy `{policy}`: pattern `{pattern}`: {problem}")
            }
            PolicyError::BadSpec { problem } => write!(f, "policy specification: {problem}"),
        }
    }
}

impl std::error::Error for PolicyError {}

/// A configuration that is read key by key.
#[derive(Debug)]
pub(crate) struct Config<'a> {
    policy: &'a str,
    map: Option<&'a Map<String, Value>>,
}

impl<'a> Config<'a> {
    /// Opens a configuration: an object, or null for the defaults. [`only`](Self::only) checks the
    /// keys.
    pub(crate) fn new(policy: &'a str, config: &'a Value) -> Result<Config<'a>, PolicyError> {
        match config {
            Value::Null => Ok(Config { policy, map: None }),
            Value::Object(map) => Ok(Config { policy, map: Some(map) }),
            other => Err(PolicyError::BadValue {
                policy: policy.to_owned(),
                key: "config".to_owned(),
                expected: "an object".to_owned(),
                given: other.to_string(),
            }),
        }
    }

    /// Rejects any key that is not in the list.
    pub(crate) fn only(&self, known: &[&str]) -> Result<(), PolicyError> {
        let unknown = self.map.and_then(|m| m.keys().find(|k| !known.contains(&k.as_str())));
        match unknown {
            None => Ok(()),
            Some(key) => Err(PolicyError::UnknownKey {
                policy: self.policy.to_owned(),
                key: key.clone(),
                known: known.iter().map(|&k| k.to_owned()).collect(),
            }),
        }
    }

    /// Returns the raw value of a key.
    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.and_then(|m| m.get(key))
    }

    /// Returns the error for a key with a value that is not accepted.
    pub(crate) fn bad(&self, key: &str, expected: &str) -> PolicyError {
        PolicyError::BadValue {
            policy: self.policy.to_owned(),
            key: key.to_owned(),
            expected: expected.to_owned(),
            given: self.get(key).map_or("absent".to_owned(), Value::to_string),
        }
    }

    /// Reads a boolean.
    pub(crate) fn flag(&self, key: &str, default: bool) -> Result<bool, PolicyError> {
        match self.get(key) {
            None => Ok(default),
            Some(Value::Bool(b)) => Ok(*b),
            Some(_) => Err(self.bad(key, "true or false")),
        }
    }

    /// Reads a finite number.
    pub(crate) fn number(&self, key: &str, default: f64) -> Result<f64, PolicyError> {
        match self.get(key) {
            None => Ok(default),
            Some(v) => {
                // A NaN threshold would compare as false and switch its policy off without an
                // error, so this does not rely on serde_json to exclude it.
                v.as_f64().filter(|n| n.is_finite()).ok_or_else(|| self.bad(key, "a number"))
            }
        }
    }

    /// Reads a count of at least 1. Null gives `None` and switches the feature off.
    pub(crate) fn count(&self, key: &str, default: u64) -> Result<Option<u64>, PolicyError> {
        match self.get(key) {
            None => Ok(Some(default)),
            Some(Value::Null) => Ok(None),
            // Zero is an error and not "off", because a count of 0 would fire at the first step.
            Some(v) => whole(v)
                .filter(|&n| n >= 1)
                .map(Some)
                .ok_or_else(|| self.bad(key, "a whole number of at least 1, or null for off")),
        }
    }

    /// Reads a string that is not empty.
    pub(crate) fn text(&self, key: &str, default: &str) -> Result<String, PolicyError> {
        match self.get(key) {
            None => Ok(default.to_owned()),
            Some(Value::String(s)) if !s.is_empty() => Ok(s.clone()),
            Some(_) => Err(self.bad(key, "a string that is not empty")),
        }
    }

    /// Reads one of a list of words; `None` if the key is absent.
    pub(crate) fn choice(
        &self,
        key: &str,
        choices: &[&'static str],
    ) -> Result<Option<&'static str>, PolicyError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let found = choices.iter().find(|&&c| value.as_str() == Some(c));
        found.copied().map(Some).ok_or_else(|| {
            let quoted: Vec<String> = choices.iter().map(|c| format!("\"{c}\"")).collect();
            self.bad(key, &quoted.join(" or "))
        })
    }
}

/// Reads a whole number, also one that is written as `3.0`.
fn whole(value: &Value) -> Option<u64> {
    // Some writers print a whole number as `3.0`. Above 9e15 an `f64` no longer holds every
    // integer, so that the number used could differ from the number written.
    value.as_u64().or_else(|| {
        value.as_f64().filter(|n| n.fract() == 0.0 && (0.0..9e15).contains(n)).map(|n| n as u64)
    })
}
