//! A request for a run or for a branch of one, and the limits that it may set.

use super::error::{BackendError, ErrorKind};
use endstop::journal::RecordedRun;
use endstop::telemetry::TraceParent;
use endstop::wire::redact::KnownKeys;
use endstop::{Branch, Limits};
use http::HeaderMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// A request for a run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "RunRequest")]
pub(crate) struct RunBody {
    /// Name of the agent.
    agent: String,
    /// The task.
    task: String,
    /// Limits by name, as under `[limits]` in endstop.toml. Each may only lower that of the agent.
    #[serde(default)]
    limits: Map<String, Value>,
}

impl From<RunBody> for RunRequest {
    fn from(RunBody { agent, task, limits }: RunBody) -> RunRequest {
        RunRequest { agent, task, limits, origin: None, trace_parent: None }
    }
}

/// A request for a branch of a run.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BranchRequest {
    /// The last turn of the run that the branch keeps, from 1; 0 keeps the task only.
    pub turn: u32,
    /// A message that the model reads after that turn. Required if the run had its answer there.
    #[serde(default)]
    pub message: Option<String>,
    /// Limits by name. Each may only lower that of the agent.
    #[serde(default)]
    pub limits: Map<String, Value>,
    /// Branch although secrets were removed from the conversation when it was journalled.
    #[serde(default)]
    pub accept_redacted: bool,
    /// The place of the request in a trace.
    #[serde(skip)]
    pub trace_parent: Option<TraceParent>,
}

/// Returns the place of a request in the trace of its client.
pub(crate) fn trace_parent(headers: &HeaderMap) -> Option<TraceParent> {
    TraceParent::read(headers.get("traceparent")?.to_str().ok()?)
}

/// An accepted request, as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRequest {
    /// Name of the agent.
    pub agent: String,
    /// The task; for a branch that of the other run, for display.
    pub task: String,
    /// The limits that the request lowers.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub limits: Map<String, Value>,
    /// The place that the run branches from. Never part of a request of a client, which could name
    /// the run of another one here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The place of the request in a trace: its header `traceparent`. Not stored, and not a part of what makes two
    /// requests equal, because a client that repeats one does so at another place.
    #[serde(skip)]
    pub trace_parent: Option<TraceParent>,
}

/// The place in another run that a run branches from, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    pub fn branch(&self, id: &str) -> Branch {
        let mut branch = Branch::new(&self.run, self.turn).id(id);
        if let Some(message) = &self.message {
            branch = branch.message(message);
        }
        if self.accept_redacted { branch.accept_redacted() } else { branch }
    }

    /// Checks that the recorded run can be branched there, so that the client learns of an error at
    /// once and not by an ending. Pure.
    ///
    /// # Errors
    /// Describes the problem and the fix for the client.
    pub fn check(&self, recorded: &RecordedRun) -> Result<(), String> {
        if self.message.as_ref().is_some_and(|message| message.trim().is_empty()) {
            return Err("`message` is blank: expected text for the model".to_owned());
        }
        if recorded.redacted > 0 && !self.accept_redacted {
            return Err(format!(
                "secrets were removed from the conversation in {} places, and the model would read \
                 `[redacted]` instead; set `accept_redacted`, or start a new run",
                recorded.redacted
            ));
        }
        if recorded.spec(None).is_err() {
            // Only the agent has the policy that replays the run.
            return Ok(());
        }
        let prefix = recorded.prefix(self.turn, None).map_err(|error| error.to_string())?;
        if prefix.answered && self.message.is_none() {
            return Err(format!(
                "turn {} ends with an answer of the model, which cannot continue without a message; \
                 set `message`, or a lower `turn`",
                self.turn
            ));
        }
        Ok(())
    }
}

impl RunRequest {
    /// Returns a hash that is equal for equal requests. The order of members does not count.
    pub fn digest(&self) -> [u8; 32] {
        let mut value = serde_json::to_value(self).unwrap_or_default();
        // Clients may print the members of a repeated request in another order.
        value.sort_all_objects();
        Sha256::digest(value.to_string()).into()
    }

    /// Returns the agent's limits with those of the request.
    ///
    /// # Errors
    /// Names the limit that is unknown, invalid, or looser than the agent's.
    pub fn limits_over(&self, own: &Limits) -> Result<Limits, String> {
        own.lowered(&self.limits).map_err(|error| error.to_string())
    }

    /// Checks the task and the limits of the request, and returns the limits over those of the agent.
    ///
    /// # Errors
    /// The task is blank, or a limit is unknown, invalid, or looser than the agent's.
    pub fn check(&self, own: &Limits) -> Result<Limits, BackendError> {
        let invalid = |problem: String| BackendError::new(ErrorKind::InvalidRun, problem);
        // The task of a branch is only shown.
        if self.origin.is_none() && self.task.trim().is_empty() {
            return Err(invalid("`task` is blank: expected text for the agent".to_owned()));
        }
        self.limits_over(own).map_err(invalid)
    }

    /// Returns the request without these secrets, and `true` if it contained any.
    pub fn without(&self, secrets: &KnownKeys) -> (RunRequest, bool) {
        let clean = |text: &String| secrets.out_of_text(text).into_owned();
        let mut stored = RunRequest { task: clean(&self.task), ..self.clone() };
        if let Some(message) = stored.origin.as_mut().and_then(|origin| origin.message.as_mut()) {
            *message = clean(message);
        }
        let redacted = stored != *self;
        (stored, redacted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request(limits: Value) -> RunRequest {
        let Value::Object(limits) = limits else { panic!("not an object") };
        RunRequest {
            agent: "a".to_owned(),
            task: "t".to_owned(),
            limits,
            origin: None,
            trace_parent: None,
        }
    }

    #[test]
    fn requests_only_lower_limits() {
        let own = Limits { max_turns: Some(10), ..Limits::default() };
        for (limits, accepted) in [
            (json!({}), true),
            (json!({"max_turns": 10}), true),
            (json!({"max_turns": 1}), true),
            (json!({"max_turns": 11}), false),
            (json!({"max_turns": "off"}), false),
            (json!({"max_budget_usd": 0.5}), true),
            (json!({"max_turns": 1, "tool_concurrency": 100}), false),
            (json!({"accept_unknown_finish": true}), false),
            (json!({"unknown": 1}), false),
            (json!({"max_turns": -1}), false),
        ] {
            let read = request(limits.clone()).limits_over(&own);
            assert_eq!(read.is_ok(), accepted, "{limits}: {read:?}");
        }
    }

    #[test]
    fn member_order_keeps_digest() {
        let one = request(json!({"max_turns": 1, "timeout": "1m"}));
        let same = request(json!({"timeout": "1m", "max_turns": 1}));
        let other = request(json!({"timeout": "1m", "max_turns": 2}));
        assert_eq!(one.digest(), same.digest());
        assert_ne!(one.digest(), other.digest());
    }
}
