//! The limits of a run: turns, cost, tokens and time, and their configuration by name and value.
//!
//! ```
//! use endstop_core::Limits;
//! use serde_json::json;
//! let mut limits = Limits::default();
//! limits.set("max_turns", &json!(40)).unwrap();
//! limits.set("timeout", &json!("10m")).unwrap();
//! assert_eq!(limits.max_turns, Some(40));
//! let error = limits.set("max_turn", &json!(3)).unwrap_err().to_string();
//! assert!(error.contains("max_turn") && error.contains("max_turns"));
//! ```

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::time::Duration;

/// The limits of a run, each with its default in parentheses. `None` disables a limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Maximum number of turns (25), that is, of responses appended to the conversation. 0 allows
    /// no call.
    pub max_turns: Option<u32>,
    /// Cost ceiling in US dollars (none). 0 allows no call.
    pub max_budget_usd: Option<f64>,
    /// Ceiling on prompt and generated tokens of all attempts together (none).
    pub max_tokens: Option<u64>,
    /// Wall-clock ceiling of the run (none).
    pub timeout: Option<Duration>,
    /// Maximum duration of one model call (10 min).
    pub turn_timeout: Option<Duration>,
    /// Maximum time until the first content of a response (10 min). Long, because a model may
    /// reason without streaming its reasoning; pings are not content.
    pub first_content_timeout: Option<Duration>,
    /// Maximum time between two pieces of content (60 s); pings are not content.
    pub stall_timeout: Option<Duration>,
    /// Maximum duration of one tool call (60 s), unless the tool sets its own.
    pub tool_timeout: Option<Duration>,
    /// Maximum time limit that the model may request in a call of a tool that supports it (10 min).
    /// If `tool_timeout` is longer, that applies instead.
    pub max_tool_timeout: Option<Duration>,
    /// Grace period in which stopped tools may end before they are killed (2 s).
    pub cancel_grace: Duration,
    /// Maximum number of consecutive turns all of whose calls failed (3).
    pub max_consecutive_mistakes: Option<u32>,
    /// Maximum number of consecutive turns that repeat themselves (3).
    pub max_unproductive_turns: Option<u32>,
    /// Maximum number of repairs of a structured answer (2); 0: none.
    pub max_structured_output_retries: Option<u32>,
    /// Time window for retries of one turn after transient provider errors (60 s), counted from the
    /// first failure. The waits together never exceed it. Two retries are made even if the failed
    /// attempts themselves took longer than this.
    ///
    /// A journal written before this limit existed reads as off, because only `max_retries` applied
    /// then.
    #[serde(default)]
    pub retry_for: Option<Duration>,
    /// Maximum number of retries of one turn after transient provider errors (no limit but
    /// `retry_for`). If both are off, nothing is retried.
    pub max_retries: Option<u32>,
    /// Maximum number of consecutive blank answers that are answered with a nudge (1); `None`: a
    /// blank answer is accepted as the answer.
    pub max_empty_turns: Option<u32>,
    /// Maximum number of times that an answer truncated by the token limit is continued (0).
    pub max_continuations: u32,
    /// Maximum number of tool calls that run at the same time (4).
    pub tool_concurrency: u32,
    /// `true` if a complete answer with an unknown finish value may end the run as `stop` (false).
    pub accept_unknown_finish: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_turns: Some(25),
            max_budget_usd: None,
            max_tokens: None,
            timeout: None,
            turn_timeout: Some(Duration::from_secs(600)),
            first_content_timeout: Some(Duration::from_secs(600)),
            stall_timeout: Some(Duration::from_secs(60)),
            tool_timeout: Some(Duration::from_secs(60)),
            max_tool_timeout: Some(Duration::from_secs(600)),
            cancel_grace: Duration::from_secs(2),
            max_consecutive_mistakes: Some(3),
            max_unproductive_turns: Some(3),
            max_structured_output_retries: Some(2),
            retry_for: Some(Duration::from_secs(60)),
            max_retries: None,
            max_empty_turns: Some(1),
            max_continuations: 0,
            tool_concurrency: 4,
            accept_unknown_finish: false,
        }
    }
}

/// The error for an invalid limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitError {
    /// The key as it was written.
    pub key: String,
    /// Description of the problem, with the expected value.
    pub problem: String,
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "limit `{}`: {}", self.key, self.problem)
    }
}

impl std::error::Error for LimitError {}

impl Limits {
    /// The names of all limits as configuration spells them. A duration also accepts its name with
    /// the suffix `_ms` (`timeout_ms`), which takes milliseconds.
    pub const NAMES: [&'static str; 19] = [
        "max_turns",
        "max_budget_usd",
        "max_tokens",
        "timeout",
        "turn_timeout",
        "first_content_timeout",
        "stall_timeout",
        "tool_timeout",
        "max_tool_timeout",
        "cancel_grace",
        "max_consecutive_mistakes",
        "max_unproductive_turns",
        "max_structured_output_retries",
        "retry_for",
        "max_retries",
        "max_empty_turns",
        "max_continuations",
        "tool_concurrency",
        "accept_unknown_finish",
    ];

    /// Sets one limit by name. `null` and `"off"` disable it.
    ///
    /// # Errors
    /// The name is unknown, the value has the wrong type or is out of range, or the limit cannot be
    /// disabled. The message names the key and the valid values.
    pub fn set(&mut self, key: &str, value: &Value) -> Result<(), LimitError> {
        self.set_inner(key, value).map_err(|problem| LimitError { key: key.to_owned(), problem })
    }

    fn set_inner(&mut self, key: &str, value: &Value) -> Result<(), String> {
        let off = value.is_null() || value.as_str() == Some("off");
        let count = || whole(value, u64::from(u32::MAX)).map(|n| n as u32);
        let optional = || if off { Ok(None) } else { count().map(Some) };
        match key {
            "max_turns" => self.max_turns = optional()?,
            "max_budget_usd" => self.max_budget_usd = if off { None } else { Some(usd(value)?) },
            "max_tokens" => {
                self.max_tokens = if off { None } else { Some(whole(value, u64::MAX)?) }
            }
            "max_consecutive_mistakes" => {
                self.max_consecutive_mistakes = optional()?.map(at_least_one).transpose()?;
            }
            "max_unproductive_turns" => {
                self.max_unproductive_turns = optional()?.map(at_least_one).transpose()?;
            }
            "max_structured_output_retries" => self.max_structured_output_retries = optional()?,
            "max_empty_turns" => self.max_empty_turns = optional()?,
            "max_retries" => self.max_retries = optional()?,
            // Continuations are a count, not a limit, so "off" means zero.
            "max_continuations" => self.max_continuations = if off { 0 } else { count()? },
            "tool_concurrency" => self.tool_concurrency = at_least_one(count()?)?,
            "accept_unknown_finish" => {
                self.accept_unknown_finish =
                    !off && value.as_bool().ok_or_else(|| wants("true or false", value))?;
            }
            _ => return self.set_duration(key, value, off),
        }
        Ok(())
    }

    fn set_duration(&mut self, key: &str, value: &Value, off: bool) -> Result<(), String> {
        let (name, in_ms) = key.strip_suffix("_ms").map_or((key, false), |name| (name, true));
        let field = match name {
            "timeout" => &mut self.timeout,
            "turn_timeout" => &mut self.turn_timeout,
            "first_content_timeout" => &mut self.first_content_timeout,
            "stall_timeout" => &mut self.stall_timeout,
            "retry_for" => &mut self.retry_for,
            "tool_timeout" => &mut self.tool_timeout,
            "max_tool_timeout" => &mut self.max_tool_timeout,
            "cancel_grace" => {
                if off {
                    return Err("cannot be off; set 0 to kill at once".to_owned());
                }
                self.cancel_grace = duration(value, in_ms)?;
                return Ok(());
            }
            _ => return Err(unknown_key(key, &Self::NAMES)),
        };
        *field = if off { None } else { Some(duration(value, in_ms)?) };
        Ok(())
    }
}

/// Builds the message for an unknown name: the nearest valid name first, then all of them.
pub fn unknown_key(key: &str, choices: &[&str]) -> String {
    let near = choices
        .iter()
        .map(|choice| (edit_distance(key, choice), *choice))
        // Allow one typo, and one more for every four characters of the name.
        .filter(|(distance, choice)| *distance <= 1 + choice.len() / 4)
        .min();
    let hint = near.map_or(String::new(), |(_, choice)| format!(" (did you mean `{choice}`?)"));
    format!("unknown name{hint}; expected one of {}", choices.join(", "))
}

fn edit_distance(a: &str, b: &str) -> usize {
    // 64 characters bound the work for a hostile key; no real name is that long.
    let b: Vec<char> = b.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        // Levenshtein distance in one row: `diagonal` is the previous row's cell to the upper left.
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

fn wants(what: &str, got: &Value) -> String {
    let mut shown = got.to_string();
    // Configuration may contain whole tables here; an error message needs only the beginning.
    if shown.chars().count() > 60 {
        shown = shown.chars().take(60).chain("…".chars()).collect();
    }
    format!("expected {what}, found {shown}")
}

fn whole(value: &Value, max: u64) -> Result<u64, String> {
    value
        .as_u64()
        .filter(|n| *n <= max)
        .ok_or_else(|| wants(&format!("a whole number from 0 to {max}"), value))
}

fn at_least_one(n: u32) -> Result<u32, String> {
    if n == 0 { Err("expected at least 1; null or \"off\" disables it".to_owned()) } else { Ok(n) }
}

fn usd(value: &Value) -> Result<f64, String> {
    value
        .as_f64()
        .filter(|usd| usd.is_finite() && *usd >= 0.0)
        .ok_or_else(|| wants("a number of US dollars, 0 or more", value))
}

fn duration(value: &Value, in_ms: bool) -> Result<Duration, String> {
    if in_ms {
        // A year, so that later additions to a `Duration` cannot overflow.
        return whole(value, 86_400_000 * 365).map(Duration::from_millis);
    }
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(n) => format!("{n}s"),
        other => return Err(wants("a duration such as \"90s\" or \"10m\"", other)),
    };
    parse_duration(&text)
        .ok_or_else(|| wants("a duration such as \"500ms\", \"90s\", \"10m\" or \"2h\"", value))
}

/// Parses `500ms`, `90s`, `1.5m`, `2h`, `1d` or a bare number of seconds.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..digits].parse().ok()?;
    let seconds = match text[digits..].trim() {
        "ms" => number / 1e3,
        "" | "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        "d" => number * 86400.0,
        _ => return None,
    };
    // At most a year, as for milliseconds above. This also rejects infinity.
    (seconds <= 86400.0 * 365.0).then(|| Duration::try_from_secs_f64(seconds).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_name_can_be_set() {
        for name in Limits::NAMES {
            let value = match name {
                "accept_unknown_finish" => json!(true),
                "timeout"
                | "turn_timeout"
                | "first_content_timeout"
                | "stall_timeout"
                | "retry_for"
                | "tool_timeout"
                | "max_tool_timeout"
                | "cancel_grace" => json!("90s"),
                _ => json!(7),
            };
            let mut limits = Limits::default();
            limits.set(name, &value).unwrap();
            assert_ne!(limits, Limits::default(), "{name}");
        }
    }

    #[test]
    fn wrong_value_error_names_expected_value() {
        let mut limits = Limits::default();
        for (key, value, says) in [
            ("max_turns", json!(-1), "whole number"),
            ("max_turns", json!("many"), "whole number"),
            ("max_budget_usd", json!("2"), "US dollars"),
            ("timeout", json!("10 parsecs"), "duration"),
            ("cancel_grace", json!(null), "cannot be off"),
            ("tool_concurrency", json!(0), "at least 1"),
            ("max_turnz", json!(1), "did you mean `max_turns`"),
        ] {
            let error = limits.set(key, &value).unwrap_err().to_string();
            assert!(error.contains(key) && error.contains(says), "{key}: {error}");
        }
        assert_eq!(limits, Limits::default());
        limits.accept_unknown_finish = true;
        limits.set("accept_unknown_finish", &json!(null)).unwrap();
        assert!(!limits.accept_unknown_finish);
    }

    #[test]
    fn durations_parse_common_units() {
        for (text, ms) in [("500ms", 500), ("90s", 90_000), ("1.5m", 90_000), ("2h", 7_200_000)] {
            assert_eq!(parse_duration(text), Some(Duration::from_millis(ms)));
        }
        for text in ["", "ten", "1e400s", "5 weeks", "-3s", "999999d"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }
}
