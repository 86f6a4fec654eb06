//! Errors of watches in configuration.
//!
//! ```
//! use endstop_core::{Watch, kernel::WatchError};
//! let error = Watch::parse("stop").unwrap_err();
//! assert_eq!(error, WatchError::NoMode);
//! ```

use super::watch_mode::WatchMode;
use crate::policy::PolicyError;
use std::error::Error;
use std::fmt;

/// The reason why a watch is invalid.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum WatchError {
    /// The rule, or one of its numbers, is invalid.
    Rule(PolicyError),
    /// The mode does not exist.
    UnknownMode {
        /// The value in its place, as JSON.
        given: String,
    },
    /// A watch of the form `MODE:RULE` has no mode.
    NoMode,
    /// A table of a rule has no `mode`.
    TableWithoutMode {
        /// Name of the rule.
        rule: String,
    },
    /// The value of a rule is neither a mode nor a table.
    NotAMode {
        /// Name of the rule.
        rule: String,
        /// The value, as JSON.
        given: String,
    },
    /// An entry of a table names the mode first.
    ModeAsKey {
        /// The key.
        key: String,
        /// The rule that was probably meant.
        rule: String,
        /// The mode that was probably meant.
        mode: String,
    },
    /// A watch of the form `MODE:RULE` names the rule first.
    RuleFirst {
        /// The rule.
        rule: String,
        /// The mode.
        mode: String,
    },
    /// An entry of a list is not a table.
    NotATable,
    /// A table has another key than `mode` and `rule`.
    UnknownKey {
        /// The key.
        key: String,
    },
    /// A table has no `rule`.
    NoRule,
    /// The value is not one that watches can be read from.
    NotWatches {
        /// The value, as JSON.
        given: String,
    },
}

impl fmt::Display for WatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let modes = WatchMode::ALL.map(WatchMode::as_str).join(", ");
        match self {
            WatchError::Rule(error) => error.fmt(f),
            WatchError::UnknownMode { given } => {
                write!(f, "invalid mode {given}: expected one of {modes}")
            }
            WatchError::NoMode => write!(f, "expected MODE:RULE, with a mode of {modes}"),
            WatchError::TableWithoutMode { rule } => {
                write!(f, "`{rule}` has no `mode`: set one of {modes}")
            }
            WatchError::NotAMode { rule, given } => write!(
                f,
                "invalid watch `{rule}`: expected one of {modes}, or a table with `mode`, found {given}"
            ),
            WatchError::ModeAsKey { key, rule, mode } => {
                write!(f, "invalid watch `{key}`: write the rule first: {rule} = \"{mode}\"")
            }
            WatchError::RuleFirst { rule, mode } => {
                write!(f, "the mode comes first: {mode}:{rule}")
            }
            WatchError::NotATable => f.write_str(
                "expected a table with `mode` and `rule`, for example { mode = \"stop\", rule = \"cycle\" }",
            ),
            WatchError::UnknownKey { key } => {
                write!(f, "unknown key `{key}`: expected `mode` or `rule`")
            }
            WatchError::NoRule => f.write_str("missing `rule`: name the rule to watch for"),
            WatchError::NotWatches { given } => write!(
                f,
                "expected a table such as {{ cycle = \"stop\" }}, a list or \"off\", found {given}"
            ),
        }
    }
}

impl Error for WatchError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // The message is that of the rule's error, so this error stands for it.
            WatchError::Rule(error) => error.source(),
            _ => None,
        }
    }
}

impl From<PolicyError> for WatchError {
    fn from(error: PolicyError) -> WatchError {
        WatchError::Rule(error)
    }
}
