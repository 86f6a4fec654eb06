//! What the kernel is told: one [`Event`] at a time, each with the time it happened.
//!
//! An event that answers an effect carries the effect's id; one that answers an effect which is
//! no longer waited for is dropped.

use super::effect::EffectId;
use super::spec::ToolSpec;
use crate::error_class::ModelError;
use crate::limits::Limits;
use crate::message::{Message, ModelTurn, ToolStatus};
use crate::usage::{NanoUsd, Price, Unreported, Usage};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::time::Duration;

/// Something that happened, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Time since the run began, monotonic; an event older than the last is read as now.
    pub at: Duration,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

impl Event {
    /// An event at a time.
    pub fn new(at: Duration, kind: EventKind) -> Event {
        Event { at, kind }
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// The run begins.
    Start {
        /// Seeds the jitter of backoffs.
        seed: u64,
        /// What the model costs, where it is known.
        price: Option<Price>,
        /// Wall clock in Unix milliseconds, for display.
        wall_ms: Option<u64>,
    },
    /// More of a turn came.
    Delta {
        /// The call it belongs to.
        call: EffectId,
        /// What came.
        delta: TurnDelta,
    },
    /// A model call ended with a response.
    TurnEnded {
        /// The call.
        call: EffectId,
        /// The response.
        turn: Box<ModelTurn>,
    },
    /// A model call ended without a (whole) response.
    TurnFailed {
        /// The call.
        call: EffectId,
        /// Why.
        error: ModelError,
        /// What arrived before it failed, with what it used.
        partial: Option<Box<ModelTurn>>,
    },
    /// A tool call ended.
    ToolEnded {
        /// The id it was started under.
        tool: EffectId,
        /// How.
        report: ToolReport,
    },
    /// Something that the run started spent this on models of its own: an agent that a tool runs.
    Spent {
        /// What it used, beyond what was told before.
        usage: Usage,
        /// What that cost.
        cost: NanoUsd,
        /// Some of it has a cost that is not known.
        cost_unknown: bool,
        /// What it may have used beyond that; `None`: nothing, or, if the cost is not known, an amount
        /// without a bound.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unreported: Option<Unreported>,
    },
    /// A hook, or a person asked for approval, answered.
    Answered {
        /// The question.
        id: EffectId,
        /// The answer.
        answer: Answer,
    },
    /// A compaction ended.
    Compacted {
        /// The compaction.
        id: EffectId,
        /// How.
        result: Compaction,
    },
    /// A structured answer was validated.
    Validated {
        /// The validation.
        id: EffectId,
        /// The value, or what is wrong with the answer.
        result: Result<Value, String>,
    },
    /// A shared budget answered.
    Reserved {
        /// The reservation.
        id: EffectId,
        /// What was granted; less than the least asked for is a refusal, and then it is what is left.
        granted: NanoUsd,
        /// The same in tokens; `None`: the budget has no ceiling on tokens.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        granted_tokens: Option<u64>,
    },
    /// The caller set values that policies read.
    Observe {
        /// Named values; they stay.
        variables: Map<String, Value>,
        /// Measurements of this turn; they are gone with it.
        metrics: Map<String, Value>,
    },
    /// What drove the run is gone, and another goes on with it.
    Resumed(Box<Resumption>),
    /// Time passed.
    Tick,
    /// The caller cancels the run.
    Cancel,
    /// The caller terminates the loop.
    Terminate,
    /// User code of a driver failed: the run cannot go on.
    Fault {
        /// What failed: a tool, a hook's point, `provider`, `observer` … or `driver`, where it is
        /// the driver itself.
        name: String,
        /// How.
        message: String,
    },
}

impl EventKind {
    /// Its name, as its JSON has it: `turn_ended`.
    pub const fn name(&self) -> &'static str {
        match self {
            EventKind::Start { .. } => "start",
            EventKind::Delta { .. } => "delta",
            EventKind::TurnEnded { .. } => "turn_ended",
            EventKind::TurnFailed { .. } => "turn_failed",
            EventKind::ToolEnded { .. } => "tool_ended",
            EventKind::Spent { .. } => "spent",
            EventKind::Answered { .. } => "answered",
            EventKind::Compacted { .. } => "compacted",
            EventKind::Validated { .. } => "validated",
            EventKind::Reserved { .. } => "reserved",
            EventKind::Observe { .. } => "observe",
            EventKind::Resumed(_) => "resumed",
            EventKind::Tick => "tick",
            EventKind::Cancel => "cancel",
            EventKind::Terminate => "terminate",
            EventKind::Fault { .. } => "fault",
        }
    }
}

/// What is new where a run goes on after what drove it is gone. `None`: as it was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Resumption {
    /// Model calls and tool calls that were in flight, of which nobody knows what became.
    pub lost: Vec<EffectId>,
    /// A failure of the model call that comes next was judged before, and ended the run: the call is
    /// made again, beyond `max_retries`.
    pub call_again: bool,
    /// The limits from here on.
    pub limits: Option<Limits>,
    /// The tools from here on, `finish` left out.
    pub tools: Option<Vec<ToolSpec>>,
    /// The model from here on.
    pub model: Option<String>,
    /// The provider from here on.
    pub provider: Option<String>,
    /// What the model costs from here on.
    pub price: Option<Price>,
    /// Wall clock in Unix milliseconds, for display.
    pub wall_ms: Option<u64>,
}

/// A piece of a turn. Only content counts: a ping is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnDelta {
    /// Visible text.
    Text(String),
    /// Reasoning, in characters.
    Reasoning(u64),
    /// Arguments of a tool call, in characters.
    ToolArguments(u64),
}

impl TurnDelta {
    /// Whether it brings no content.
    pub fn is_empty(&self) -> bool {
        match self {
            TurnDelta::Text(text) => text.is_empty(),
            TurnDelta::Reasoning(chars) | TurnDelta::ToolArguments(chars) => *chars == 0,
        }
    }
}

/// How a tool call ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolReport {
    /// `ok`, `error` or `aborted`; the kernel knows the others itself.
    pub status: ToolStatus,
    /// What the model is told.
    pub content: String,
    /// The tool says that the run must halt, and why.
    #[serde(default)]
    pub halt: Option<String>,
    /// Whether it had started; `false` only for one stopped before it began.
    pub started: bool,
    /// Whether a compaction must keep what it says.
    #[serde(default)]
    pub pinned: bool,
    /// Values it set for policies.
    #[serde(default)]
    pub variables: Map<String, Value>,
    /// Measurements it made.
    #[serde(default)]
    pub metrics: Map<String, Value>,
}

impl ToolReport {
    /// A report of this status and content.
    pub fn new(status: ToolStatus, content: impl Into<String>) -> ToolReport {
        ToolReport {
            status,
            content: content.into(),
            halt: None,
            started: true,
            pinned: false,
            variables: Map::new(),
            metrics: Map::new(),
        }
    }
}

/// The answer of a hook or a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Go on.
    Proceed,
    /// Go on, and tell the model this: at once, after the results of a turn whose tools are under
    /// way, or, from a stop hook, when the conversation continues after the run.
    ProceedWith(String),
    /// Go on with this output cap (chat parameters).
    OutputCap(u64),
    /// This tool call is refused (pre-tool, approval), or this success is vetoed (stop hook), which is
    /// the only way to withdraw a declared answer; why.
    Deny(String),
    /// End the run; why. A declared answer stands, and the halt is noted beside it.
    Halt(String),
}

/// How a compaction ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compaction {
    /// Nothing needed to be done (proactive only).
    NotNeeded,
    /// The new conversation, and what the summariser's calls cost. The run takes it where it is
    /// shorter by [`CompactionSpec::least_gain`](super::CompactionSpec::least_gain), is a
    /// conversation that providers accept ([`history`](crate::history)), and has all that must stay.
    Done {
        /// The messages that replace the history.
        messages: Vec<Message>,
        /// What it cost.
        cost: NanoUsd,
        /// What shortened it, for observers and the outcome; may be empty.
        #[serde(default)]
        strategy: String,
    },
    /// It failed; why.
    Failed(String),
}

impl Compaction {
    /// A new conversation that cost nothing.
    pub fn done(strategy: impl Into<String>, messages: Vec<Message>) -> Compaction {
        Compaction::Done { messages, cost: NanoUsd::ZERO, strategy: strategy.into() }
    }
}
