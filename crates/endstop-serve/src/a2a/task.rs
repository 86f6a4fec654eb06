//! A run as a task of the protocol.

use super::caller::Caller;
use crate::api::Failure;
use crate::backend::{RunInfo, RunState};
use endstop::Termination;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// The fields of an outcome that a task has elsewhere, or that are too large for it.
const LEFT_OUT: [&str; 6] =
    ["messages", "last_text", "deliverable", "structured", "summary", "type"];

/// A run, and what is known of its work or of its end.
pub(super) struct Known {
    pub(super) run: RunInfo,
    /// The requests for approval that it waits for.
    pub(super) open: Vec<Value>,
    /// The outcome, if the run has ended.
    outcome: Option<Value>,
}

impl Caller {
    /// Returns a run of this agent that the client may see.
    pub(super) async fn find(&self, id: &str) -> Result<Option<Known>, Failure> {
        let runs = &self.app.runs;
        let found = runs.find(&self.client, id).await?;
        let Some(run) = found.filter(|run| run.request.agent == self.agent) else {
            return Ok(None);
        };
        let ended = run.state == RunState::Ended;
        let outcome = if ended { runs.outcome(&run).await? } else { None };
        let waits = matches!(run.state, RunState::Running | RunState::Parked);
        let open = if waits { runs.open_requests(&run).await? } else { Vec::new() };
        Ok(Some(Known { run, open, outcome }))
    }
}

impl Known {
    pub(super) fn has_ended(&self) -> bool {
        self.run.state == RunState::Ended
    }

    /// Returns the task.
    pub(super) fn task(&self) -> Value {
        let id = &self.run.id;
        let mut task = json!({"id": id, "contextId": id, "status": self.status()});
        let request = &self.run.request;
        task["history"] = json!([{
            "messageId": format!("{id}-task"), "taskId": id, "contextId": id, "role": "ROLE_USER",
            "parts": [{"text": request.task}],
        }]);
        if let Some(artifact) = self.artifact() {
            task["artifacts"] = json!([artifact]);
        }
        if self.has_ended() {
            task["metadata"] = json!({"endstop": self.facts()});
        }
        task
    }

    /// Returns the state with its message and its time.
    pub(super) fn status(&self) -> Value {
        let (state, said) = match self.run.state {
            RunState::Queued => ("TASK_STATE_SUBMITTED", None),
            RunState::Running | RunState::Parked if self.open.is_empty() => {
                ("TASK_STATE_WORKING", None)
            }
            RunState::Running | RunState::Parked => (
                "TASK_STATE_INPUT_REQUIRED",
                Some(self.open.iter().map(|request| json!({"data": request})).collect()),
            ),
            RunState::Ended => (self.ended_as(), self.evidence()),
        };
        // The latest change of the state.
        let at = self.run.ended_ms.or(self.run.started_ms).unwrap_or(self.run.created_ms);
        status(&self.run.id, state, said, at)
    }

    fn termination(&self) -> Option<Termination> {
        self.run.termination.as_deref()?.parse().ok()
    }

    fn ended_as(&self) -> &'static str {
        // An ending of a later version is a failure, as everywhere.
        self.termination().map_or("TASK_STATE_FAILED", |ending| ending.as_a2a().status)
    }

    /// Returns how the run ended, in words; nothing for a success, which has an artifact.
    fn evidence(&self) -> Option<Vec<Value>> {
        if self.termination().is_some_and(Termination::is_success) {
            return None;
        }
        let name = self.run.termination.as_deref().unwrap_or("unknown");
        let text = match self.run.evidence.as_deref().filter(|evidence| !evidence.is_empty()) {
            Some(evidence) => format!("{name}: {evidence}"),
            None => name.to_owned(),
        };
        Some(vec![json!({"text": text})])
    }

    /// Returns the answer of a success. Other endings have none: their last text is not a result.
    pub(super) fn artifact(&self) -> Option<Value> {
        if !self.termination().is_some_and(Termination::is_success) {
            return None;
        }
        // A success without an outcome cannot be shown: its journal was removed.
        let outcome = self.outcome.as_ref()?;
        let part = match (&outcome["structured"], &outcome["deliverable"], &outcome["last_text"]) {
            (Value::Null, Value::Null, Value::String(text))
            | (Value::Null, Value::String(text), _) => json!({"text": text}),
            (Value::Null, Value::Null, _) => return None,
            (Value::Null, data, _) | (data, _, _) => {
                json!({"data": data, "mediaType": "application/json"})
            }
        };
        Some(json!({"artifactId": "answer", "name": "answer", "parts": [part]}))
    }

    /// Returns the outcome without the conversation and the answer.
    pub(super) fn facts(&self) -> Value {
        let mut facts = match &self.outcome {
            Some(Value::Object(outcome)) => outcome.clone(),
            // The run was ended without a journal; the store has its termination.
            _ => Map::from_iter([
                ("termination".to_owned(), self.run.termination.clone().into()),
                ("category".to_owned(), self.run.category.clone().into()),
            ]),
        };
        for name in LEFT_OUT {
            facts.remove(name);
        }
        // Absent facts are left out, because clients show every member.
        facts.retain(|_, value| !value.is_null());
        Value::Object(facts)
    }
}

/// Returns a status of the protocol. `at` is a Unix time in milliseconds.
pub(super) fn status(id: &str, state: &str, parts: Option<Vec<Value>>, at: u64) -> Value {
    let mut status = json!({"state": state});
    let at = i64::try_from(at).ok().and_then(|at| Timestamp::from_millisecond(at).ok());
    if let Some(at) = at {
        status["timestamp"] = at.to_string().into();
    }
    if let Some(parts) = parts {
        status["message"] = json!({
            "messageId": format!("{id}-status"), "taskId": id, "contextId": id,
            "role": "ROLE_AGENT", "parts": parts,
        });
    }
    status
}
