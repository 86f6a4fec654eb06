//! A run as stored in a journal: the header that it was started with, and its events.
//!
//! ```
//! use endstop::journal::{RecordedRun, RunHeader};
//! use endstop::core::{Event, EventKind, RunSpec};
//! use std::time::Duration;
//!
//! let header = RunHeader { id: "one".into(), ..RunHeader::default() };
//! let start = EventKind::Start { seed: 1, price: None, wall_ms: None };
//! let run = RecordedRun { header, events: vec![Event::new(Duration::ZERO, start)], ..RecordedRun::default() };
//! let replay = run.replay(None)?;
//! assert!(replay.outcome().is_none(), "it was killed before it ended");
//! # Ok::<(), endstop::journal::JournalError>(())
//! ```

use super::error::{JournalError, JournalErrorKind};
use crate::provider::ToolDefinition;
use crate::redacted::stands_for;
use endstop_core::{
    Event, EventKind, LimitChanges, Limits, Registry, Replay, RunSpec, TerminationPolicy,
    ToolPolicy,
};
use endstop_wire::redact::KnownKeys;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// The configuration that a run was started with.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunHeader {
    /// Id of the run.
    pub id: String,
    /// Id of the ended run that this run continues, or of the run that it branched from (then the
    /// [`spec`](Self::spec) has the place).
    pub continues: Option<String>,
    /// Version of Endstop that started the run.
    pub version: String,
    /// Start time in Unix milliseconds.
    pub started_ms: u64,
    /// The kernel's part of the configuration.
    pub spec: RunSpec,
    /// The policy as it is written in configuration, or its name if it was built in code.
    pub policy: Option<Value>,
    /// System instructions.
    pub system: Option<String>,
    /// The tools as the model saw them.
    pub tools: Vec<ToolDefinition>,
    /// JSON Schema of the answer.
    pub output_schema: Option<Value>,
    /// Parameters of the requests ([`ModelParams::shown`](crate::ModelParams::shown)), without the
    /// values of headers; `None` if none were set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub params: Option<Value>,
    /// Settings of the program that started the run, which it reads back on resume. Must not
    /// contain a key.
    pub settings: Value,
    /// Number of secrets that were cut out of this header, plus those cut out of the earlier events
    /// if the run resumes another one.
    #[serde(skip_serializing_if = "is_zero")]
    pub redacted: u64,
    /// Secrets that must not be written to the journal.
    #[serde(skip)]
    pub keys: KnownKeys,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// One run, read back from a journal.
#[derive(Debug, Default)]
pub struct RecordedRun {
    /// The configuration that it was started with.
    pub header: RunHeader,
    /// The events, in order.
    pub events: Vec<Event>,
    /// Time of each event in Unix milliseconds.
    pub wall_ms: Vec<u64>,
    /// The effects that the kernel requested in response to each event, as JSON.
    pub effects: Vec<Vec<Value>>,
    /// The outcome as it was written, if the run has ended.
    pub outcome: Option<Value>,
    /// `true` if a verifier accepted the work, `false` if it rejected it, `None` if there was none.
    pub verified: Option<bool>,
    /// Number of secrets that were cut out of the conversation when it was written; `[redacted]`
    /// stands in their place. A `[redacted]` that the user wrote is not counted.
    pub redacted: u64,
    /// Description of the part that could not be read. Everything before that part was read.
    pub damage: Option<String>,
}

/// A difference between the current configuration and the one that the run was started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Name of the setting: `model`, `tool shell`, `policy` …
    pub what: String,
    /// Value when the run was started.
    pub was: String,
    /// Value now.
    pub is: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: was {}, is {}", self.what, self.was, self.is)
    }
}

impl RecordedRun {
    /// Replays the run up to its last event. If the caller passes no policy, the policy is rebuilt
    /// from the configuration in the header.
    ///
    /// # Errors
    /// The policy was built in code and none was passed, so it cannot be rebuilt.
    pub fn replay(
        &self,
        policy: Option<Box<dyn TerminationPolicy>>,
    ) -> Result<Replay, JournalError> {
        let mut replay = Replay::new(self.spec(policy)?);
        for event in &self.events {
            replay.feed(event.clone());
        }
        Ok(replay)
    }

    /// Returns the specification of the run as it was before its first event.
    ///
    /// # Errors
    /// As for [`replay`](Self::replay).
    pub fn spec(
        &self,
        policy: Option<Box<dyn TerminationPolicy>>,
    ) -> Result<RunSpec, JournalError> {
        let policy = match (policy, &self.header.policy) {
            (Some(policy), _) => Some(policy),
            (None, Some(spec)) => Some(self.named_policy(spec)?),
            (None, None) => None,
        };
        Ok(self.header.spec.clone_with(policy))
    }

    fn named_policy(&self, spec: &Value) -> Result<Box<dyn TerminationPolicy>, JournalError> {
        let registry = Registry::new();
        registry.build(spec).map(endstop_core::BoxPolicy::into_inner).map_err(|problem| {
            JournalError {
                journal: format!("run {}", self.header.id),
                problem: format!(
                    "its policy cannot be rebuilt without the code that defined it: {problem}"
                ),
                kind: JournalErrorKind::NotFound,
            }
        })
    }

    /// Returns the limits that applied last: those of the header, with the changes of resumes and
    /// those that were made while the run worked.
    pub fn limits(&self) -> Limits {
        let mut limits = self.header.spec.limits.clone();
        for event in &self.events {
            match &event.kind {
                EventKind::Resumed(with) => limits = with.limits.clone().unwrap_or(limits),
                EventKind::LimitsChanged { limits: changes } => changes.apply(&mut limits),
                _ => {}
            }
        }
        limits
    }

    /// Returns these limits with the changes that were made while the run worked, as far as they permit
    /// less. A client of a server that has lowered a limit of a run relies on it after a restart, too.
    pub fn tightened(&self, limits: &Limits) -> Limits {
        let mut limits = limits.clone();
        for event in &self.events {
            let EventKind::LimitsChanged { limits: changes } = &event.kind else { continue };
            for (name, value) in changes.values() {
                // A value that this version does not know was dropped when the event was read.
                let Ok(change) = LimitChanges::new().set(name, value.clone()) else { continue };
                if change.looser_than(&limits).is_empty() {
                    change.apply(&mut limits);
                }
            }
        }
        limits
    }

    /// Returns the model: that of the header or, in the run of a guest, of its first call.
    pub fn model(&self) -> Option<&str> {
        let asked = || {
            self.events.iter().find_map(|event| match &event.kind {
                EventKind::Asked { call } => call.model.as_deref(),
                _ => None,
            })
        };
        self.header.spec.model.as_deref().or_else(asked)
    }

    /// Returns the task message.
    pub fn task(&self) -> &str {
        &self.header.spec.task
    }

    /// Returns the differences between the run's original configuration and this header.
    pub fn changes(&self, now: &RunHeader) -> Vec<Change> {
        let then = &self.header;
        let mut changes = Vec::new();
        let mut differs = |what: &str, was: String, is: String| {
            // A redacted value cannot be compared exactly, because its secret is not stored. It
            // counts as unchanged if the text around `[redacted]` matches.
            let same = if then.redacted > 0 { stands_for(&was, &is) } else { was == is };
            if !same {
                changes.push(Change { what: what.to_owned(), was, is });
            }
        };
        let named = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
        let value = |value: &Option<Value>| {
            value.as_ref().map_or_else(|| "none".to_owned(), Value::to_string)
        };
        differs("provider", named(&then.spec.provider), named(&now.spec.provider));
        differs("model", named(&then.spec.model), named(&now.spec.model));
        let fallbacks = |spec: &RunSpec| {
            let names = spec
                .fallbacks
                .iter()
                .map(|one| format!("{}/{}", named(&one.provider), named(&one.model)));
            let names: Vec<String> = names.collect();
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        };
        differs("fallback", fallbacks(&then.spec), fallbacks(&now.spec));
        differs("instructions", named(&then.system), named(&now.system));
        differs("policy", value(&then.policy), value(&now.policy));
        differs("parameters", value(&then.params), value(&now.params));
        differs("output schema", value(&then.output_schema), value(&now.output_schema));
        let hooks = |spec: &RunSpec| serde_json::to_string(&spec.hooks).unwrap_or_default();
        differs("hooks", hooks(&then.spec), hooks(&now.spec));
        for tool in &then.tools {
            let what = format!("tool {}", tool.name);
            match now.tools.iter().find(|other| other.name == tool.name) {
                Some(other) => differs(&what, shown(tool, then), shown(other, now)),
                None => differs(&what, "there".to_owned(), "gone".to_owned()),
            }
        }
        for tool in &now.tools {
            if !then.tools.iter().any(|other| other.name == tool.name) {
                differs(&format!("tool {}", tool.name), "not there".to_owned(), "new".to_owned());
            }
        }
        changes
    }
}

/// Returns everything that identifies a tool: its description, its schema and its policy.
fn shown(tool: &ToolDefinition, header: &RunHeader) -> String {
    let spec: Option<&ToolPolicy> = header.spec.tools.iter().find(|spec| spec.name == tool.name);
    let spec = spec.and_then(|spec| serde_json::to_string(spec).ok()).unwrap_or_default();
    format!("{} {} {spec}", tool.description, tool.schema)
}
