//! Rules that watch a run; the mode of a rule decides what happens if it fires, from a record to a
//! stop.
//!
//! ```
//! use endstop_core::detector::Rule;
//! use endstop_core::{Watch, WatchMode};
//! let watch = Watch { rule: Rule::RepeatCall { times: 3 }, mode: WatchMode::Nudge };
//! let text = serde_json::to_string(&watch)?;
//! assert_eq!(text, r#"{"mode":"nudge","rule":{"repeat_call":{"times":3}}}"#);
//! assert_eq!(serde_json::from_str::<Watch>(&text)?, watch);
//! # Ok::<(), serde_json::Error>(())
//! ```
//!
//! A rule fires at most once per run. Heuristics are sometimes wrong, so the outcome lists every
//! rule that fired in any mode: a user can observe first, and then choose a mode from what it would
//! have done.
//!
//! ```
//! use endstop_core::WatchMode;
//! assert_eq!(WatchMode::ALL.map(WatchMode::as_str), ["observe", "warn", "nudge", "stop"]);
//! ```
//!
//! ```
//! use endstop_core::{Watch, kernel::WatchError};
//! let error = Watch::parse("stop").unwrap_err();
//! assert_eq!(error, WatchError::NoMode);
//! ```

use crate::detector::{Rule, Stuck};
use crate::policy::PolicyError;
use crate::registry::Registry;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::error::Error;
use std::fmt;

/// A rule with its mode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Watch {
    /// The action if the rule fires.
    #[serde(default)]
    pub mode: WatchMode,
    /// The condition.
    pub rule: Rule,
}

impl Watch {
    /// The watches of a run without configuration: `stuck`, observing only.
    pub fn defaults() -> Vec<Watch> {
        vec![Watch { mode: WatchMode::Observe, rule: Rule::Stuck(Stuck::default()) }]
    }

    /// Reads watches as configuration spells them: `"off"` or `false` for none; a list of `{mode,
    /// rule}`; or a table of rule names, each with a mode, or with a mode and the rule's numbers. A
    /// list and a table add to the default watches, and change one of them only by naming it.
    ///
    /// ```
    /// use endstop_core::Watch;
    /// use serde_json::json;
    /// let watches = Watch::read(&json!({"stuck": "stop", "repeat_call": {"mode": "warn", "times": 4}}))?;
    /// let short: Vec<String> = watches.iter().map(Watch::to_string).collect();
    /// assert_eq!(short, ["stop:stuck(2,4,3,7)", "warn:repeat_call(4)"]);
    /// # Ok::<(), endstop_core::kernel::WatchError>(())
    /// ```
    ///
    /// # Errors
    /// The invalid part; the message has the expected form.
    pub fn read(spec: &Value) -> Result<Vec<Watch>, WatchError> {
        match spec {
            Value::Bool(false) => Ok(Vec::new()),
            Value::String(word) if word == "off" => Ok(Vec::new()),
            Value::Array(list) => {
                let watches = list.iter().map(Watch::one).collect::<Result<Vec<_>, _>>()?;
                Ok(with_defaults(watches))
            }
            Value::Object(table) => {
                let mut watches = Vec::new();
                for (name, said) in table {
                    if let Some(hint) = swapped(name, said) {
                        return Err(hint);
                    }
                    let (mode, config) = match said {
                        Value::String(_) => (said.clone(), Value::Null),
                        Value::Object(fields) => {
                            // All fields but `mode` are the configuration of the rule itself.
                            let mut config = fields.clone();
                            let mode = config.shift_remove("mode").ok_or_else(|| {
                                WatchError::TableWithoutMode { rule: name.clone() }
                            })?;
                            (mode, Value::Object(config))
                        }
                        other => {
                            let (rule, given) = (name.clone(), other.to_string());
                            return Err(WatchError::NotAMode { rule, given });
                        }
                    };
                    let rule = Rule::from_config(name, &config)?;
                    watches.push(Watch { mode: mode_of(&mode)?, rule });
                }
                Ok(with_defaults(watches))
            }
            other => Err(WatchError::NotWatches { given: other.to_string() }),
        }
    }

    /// Parses a watch as a command line spells it: `stop:stuck`, `warn:repeat_call={"times":4}`.
    ///
    /// # Errors
    /// The invalid part; the message has the expected form.
    pub fn parse(text: &str) -> Result<Watch, WatchError> {
        let (mode, rule) = text.split_once(':').ok_or(WatchError::NoMode)?;
        if mode_of(&Value::String(rule.trim().to_owned())).is_ok() && Rule::is_known(mode.trim()) {
            let (rule, mode) = (mode.trim().to_owned(), rule.trim().to_owned());
            return Err(WatchError::RuleFirst { rule, mode });
        }
        let spec = Registry::parse_text(rule)?;
        let rule = Rule::from_spec(&spec)?;
        Ok(Watch { mode: mode_of(&Value::String(mode.trim().to_owned()))?, rule })
    }

    fn one(spec: &Value) -> Result<Watch, WatchError> {
        let fields = spec.as_object().ok_or(WatchError::NotATable)?;
        if let Some(key) = fields.keys().find(|key| *key != "mode" && *key != "rule") {
            return Err(WatchError::UnknownKey { key: key.clone() });
        }
        let rule = fields.get("rule").ok_or(WatchError::NoRule)?;
        let rule = Rule::from_spec(rule)?;
        let mode = fields.get("mode").map_or(Ok(WatchMode::Observe), mode_of)?;
        Ok(Watch { mode, rule })
    }
}

/// The short form, for example `stop:stuck(2,4,3,7)`.
impl fmt::Display for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.mode, self.rule)
    }
}

/// Adds the default watches whose rules are not named. They come first, because the order of the
/// watches decides which evidence is reported first.
fn with_defaults(mut watches: Vec<Watch>) -> Vec<Watch> {
    for default in Watch::defaults() {
        if !watches.iter().any(|watch| watch.rule.name() == default.rule.name()) {
            watches.insert(0, default);
        }
    }
    watches
}

fn mode_of(word: &Value) -> Result<WatchMode, WatchError> {
    let known = WatchMode::ALL.into_iter().find(|mode| word.as_str() == Some(mode.as_str()));
    known.ok_or_else(|| WatchError::UnknownMode { given: word.to_string() })
}

/// Returns a hint if an entry of a table names the mode first, or anything else that is not a rule,
/// and then rules: `stop = ["cycle"]`.
fn swapped(name: &str, said: &Value) -> Option<WatchError> {
    let is_mode = WatchMode::ALL.iter().any(|mode| mode.as_str() == name);
    let rule = said.as_array().and_then(|rules| rules.first()).unwrap_or(said).as_str();
    let rule = rule.filter(|rule| Rule::is_known(rule));
    if Rule::is_known(name) || !(is_mode || rule.is_some()) {
        return None;
    }
    let mode = if is_mode { name } else { "stop" };
    let rule = rule.unwrap_or("cycle");
    let (key, rule, mode) = (name.to_owned(), rule.to_owned(), mode.to_owned());
    Some(WatchError::ModeAsKey { key, rule, mode })
}

/// A rule that fired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleHit {
    /// The rule in short form, for example `repeat_call(3)`.
    pub rule: String,
    /// The mode of the rule.
    pub mode: WatchMode,
    /// The turn in which it fired, from 1.
    pub turn: u32,
    /// The reason why it fired.
    pub evidence: String,
}

/// The action of a rule that fires.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum WatchMode {
    /// Only record it in the outcome.
    #[default]
    Observe,
    /// Warn the observers.
    Warn,
    /// Tell the model.
    Nudge,
    /// End the run.
    Stop,
}

impl WatchMode {
    /// All modes, from the mildest to the strictest.
    pub const ALL: [WatchMode; 4] =
        [WatchMode::Observe, WatchMode::Warn, WatchMode::Nudge, WatchMode::Stop];

    /// The mode's name as configuration spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            WatchMode::Observe => "observe",
            WatchMode::Warn => "warn",
            WatchMode::Nudge => "nudge",
            WatchMode::Stop => "stop",
        }
    }
}

impl fmt::Display for WatchMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

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
