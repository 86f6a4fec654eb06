//! A request for a run, as clients send it to the engine.

use endstop::{Branch, Limits};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A request for a run.
///
/// ```
/// use endstop::Limits;
/// use endstop_restate::RunRequest;
/// let request: RunRequest =
///     serde_json::from_str(r#"{"agent": "reviewer", "task": "Review it.", "limits": {"max_turns": 5}}"#)?;
/// let own = Limits { max_turns: Some(10), ..Limits::default() };
/// assert_eq!(request.limits_over(&own)?.max_turns, Some(5));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRequest {
    /// Name of the agent.
    pub agent: String,
    /// The task.
    pub task: String,
    /// Limits by name, as under `[limits]` in endstop.toml. Each may only lower that of the agent.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub limits: Map<String, Value>,
    /// The place in another run of the agent that the run branches from. The task is only shown then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The place of the request in a trace, as W3C Trace Context's header `traceparent` has it. Every attempt at the run
    /// belongs below it. A value that is not valid is ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// The place in another run that a run branches from, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// Id of the other run.
    pub run: String,
    /// The last turn of it that this run keeps, from 1; 0 keeps the task only.
    pub turn: u32,
    /// The message that the model reads after that turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// `true` to take a conversation from which secrets were removed.
    #[serde(default)]
    pub accept_redacted: bool,
}

impl Origin {
    /// Returns the branch that the agent starts, with this id.
    pub(crate) fn branch(&self, id: &str) -> Branch {
        let mut branch = Branch::new(&self.run, self.turn).id(id);
        if let Some(message) = &self.message {
            branch = branch.message(message);
        }
        if self.accept_redacted { branch.accept_redacted() } else { branch }
    }
}

impl RunRequest {
    /// `true` if the other request is for the same run. A client that repeats one does so at another place of its trace.
    #[cfg(feature = "engine")]
    pub(crate) fn is_for_the_same(&self, other: &RunRequest) -> bool {
        let anywhere = |one: &RunRequest| RunRequest { traceparent: None, ..one.clone() };
        anywhere(self) == anywhere(other)
    }

    /// Returns the agent's limits with those of the request.
    ///
    /// # Errors
    /// Names the limit that is unknown, invalid, or looser than the agent's.
    pub fn limits_over(&self, own: &Limits) -> Result<Limits, String> {
        own.lowered(&self.limits).map_err(|error| error.to_string())
    }
}

/// A stop of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// Stops the run with the grace period of its tools; it ends as `cancelled`.
    Cancel,
    /// Stops the run without a grace period; it ends as `terminated`.
    Terminate,
}

/// The longest id of a run, in bytes.
const LONGEST_ID: usize = 64;

/// Checks the id of a run, which is the key of its workflow and part of the names of its files.
///
/// # Errors
/// Describes the ids that are accepted.
pub fn check_run_id(id: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if id.is_empty() || id.len() > LONGEST_ID || !id.bytes().all(plain) {
        return Err("invalid run id: expected 1 to 64 ASCII letters, digits, `-` or `_`".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn requests_only_lower_limits() {
        let own = Limits { max_turns: Some(10), ..Limits::default() };
        let over = |limits: Value| {
            let Value::Object(limits) = limits else { panic!("not an object") };
            RunRequest { limits, ..RunRequest::default() }.limits_over(&own)
        };
        assert_eq!(over(json!({"max_turns": 3})).unwrap().max_turns, Some(3));
        for wrong in [json!({"max_turns": 11}), json!({"max_turns": "off"}), json!({"unknown": 1})]
        {
            assert!(over(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[cfg(feature = "engine")]
    #[test]
    fn request_may_be_repeated_at_another_place_of_a_trace() {
        let at = |traceparent: Option<&str>| RunRequest {
            traceparent: traceparent.map(str::to_owned),
            ..RunRequest::default()
        };
        assert!(at(Some("one")).is_for_the_same(&at(Some("other"))));
        let other = RunRequest { task: "other".to_owned(), ..at(Some("one")) };
        assert!(!at(Some("one")).is_for_the_same(&other));
    }

    #[test]
    fn unknown_fields_are_refused() {
        let read = serde_json::from_str::<RunRequest>(r#"{"agent":"a","task":"t","model":"m"}"#);
        assert!(read.unwrap_err().to_string().contains("model"));
    }

    #[test]
    fn ids_are_safe_file_names() {
        assert!(check_run_id("a-B_9").is_ok());
        let long = "x".repeat(65);
        for wrong in ["", "..", "a/b", "a b", "é", "a\0", long.as_str()] {
            assert!(check_run_id(wrong).is_err(), "{wrong:?}");
        }
    }
}
