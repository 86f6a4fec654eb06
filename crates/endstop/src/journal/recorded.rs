//! A run as a journal has it: what it was made of, and its events.
//!
//! ```
//! use endstop::journal::{RecordedRun, RunHeader};
//! use endstop::{Event, EventKind, RunSpec};
//! use std::time::Duration;
//!
//! let header = RunHeader { id: "one".into(), ..RunHeader::default() };
//! let start = EventKind::Start { seed: 1, price: None, wall_ms: None };
//! let run = RecordedRun { header, events: vec![Event::new(Duration::ZERO, start)], ..RecordedRun::default() };
//! let replay = run.replay(None)?;
//! assert!(replay.outcome().is_none(), "it was killed before it ended");
//! # Ok::<(), endstop::journal::JournalError>(())
//! ```

use super::{JournalError, JournalErrorKind};
use crate::provider::ToolDefinition;
use crate::provider::replay::stands_for;
use endstop_core::{
    Event, EventKind, Limits, Registry, Replay, RunSpec, TerminationPolicy, ToolSpec,
};
use endstop_wire::redact::KnownKeys;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// What a run was made of.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunHeader {
    /// Its id.
    pub id: String,
    /// The run that it goes on with, which had ended.
    pub continues: Option<String>,
    /// The version of Endstop that made it.
    pub version: String,
    /// When it began, in Unix milliseconds.
    pub started_ms: u64,
    /// The kernel's part of it.
    pub spec: RunSpec,
    /// Its policy as configuration spells it, where it came from there; else its name.
    pub policy: Option<Value>,
    /// Instructions.
    pub system: Option<String>,
    /// The tools as the model knew them.
    pub tools: Vec<ToolDefinition>,
    /// The JSON Schema of its answer.
    pub output_schema: Option<Value>,
    /// What whoever started it wants to know again; never a key.
    pub settings: Value,
    /// How many secrets were cut out of this, and of what was before in a run that this one resumes.
    #[serde(skip_serializing_if = "is_zero")]
    pub redacted: u64,
    /// What must not be written.
    #[serde(skip)]
    pub keys: KnownKeys,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A run as a journal has it.
#[derive(Debug, Default)]
pub struct RecordedRun {
    /// What it was made of.
    pub header: RunHeader,
    /// Its events.
    pub events: Vec<Event>,
    /// When each event was, in Unix milliseconds.
    pub wall_ms: Vec<u64>,
    /// What the kernel asked for behind each event, as JSON.
    pub effects: Vec<Vec<Value>>,
    /// Its outcome as it was written, once it ended.
    pub outcome: Option<Value>,
    /// Whether a verifier found the work right.
    pub verified: Option<bool>,
    /// How many secrets were cut out of the conversation when it was written: it says `[redacted]`
    /// there. A user's own `[redacted]` does not count.
    pub redacted: u64,
    /// What could not be read: everything before it was.
    pub damage: Option<String>,
}

/// Something that is not as it was when the run began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What: `model`, `tool shell`, `policy` …
    pub what: String,
    /// How it was.
    pub was: String,
    /// How it is.
    pub is: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: was {}, is {}", self.what, self.was, self.is)
    }
}

impl RecordedRun {
    /// The run again, up to its last event. Without a policy of the caller's, the one that
    /// configuration can name is built again.
    ///
    /// # Errors
    /// Its policy was code, and is wanted.
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

    /// The run before its first event.
    ///
    /// # Errors
    /// As [`replay`](Self::replay).
    pub fn spec(
        &self,
        policy: Option<Box<dyn TerminationPolicy>>,
    ) -> Result<RunSpec, JournalError> {
        let policy = match (policy, &self.header.policy) {
            (Some(policy), _) => Some(policy),
            (None, Some(spec)) => Some(self.named_policy(spec)?),
            (None, None) => None,
        };
        Ok(self.header.spec.again(policy))
    }

    fn named_policy(&self, spec: &Value) -> Result<Box<dyn TerminationPolicy>, JournalError> {
        let registry = Registry::new();
        registry.build(spec).map(endstop_core::Policy::into_inner).map_err(|problem| JournalError {
            journal: format!("run {}", self.header.id),
            problem: format!("its policy cannot be made again without the code of it: {problem}"),
            kind: JournalErrorKind::NotFound,
        })
    }

    /// The limits that held at last.
    pub fn limits(&self) -> &Limits {
        let raised = self.events.iter().rev().find_map(|event| match &event.kind {
            EventKind::Resumed(with) => with.limits.as_ref(),
            _ => None,
        });
        raised.unwrap_or(&self.header.spec.limits)
    }

    /// The task.
    pub fn task(&self) -> &str {
        &self.header.spec.task
    }

    /// What differs between the run as it began and one of this header.
    pub fn changes(&self, now: &RunHeader) -> Vec<Change> {
        let then = &self.header;
        let mut changes = Vec::new();
        let mut differs = |what: &str, was: String, is: String| {
            // What was cut out of the header is not known any more: it may be what it is.
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
        differs("instructions", named(&then.system), named(&now.system));
        differs("policy", value(&then.policy), value(&now.policy));
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

/// All that makes a tool what it is.
fn shown(tool: &ToolDefinition, header: &RunHeader) -> String {
    let spec: Option<&ToolSpec> = header.spec.tools.iter().find(|spec| spec.name == tool.name);
    let spec = spec.and_then(|spec| serde_json::to_string(spec).ok()).unwrap_or_default();
    format!("{} {} {spec}", tool.description, tool.schema)
}
