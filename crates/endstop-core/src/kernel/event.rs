//! Events: the input of the kernel, one at a time, each with the time at which it happened.
//!
//! An event that answers an effect carries the effect's id. An event whose effect is no longer
//! outstanding is ignored, so a driver never has to check for late results.

use super::effect::EffectId;
use super::outcome::ending::NestedEnding;
use super::park::{Park, ParkDecision, ParkRequest};
use super::setup::guest_mode::GuestCall;
use super::setup::limit_changes::LimitChanges;
use super::setup::models::{FallbackModel, Spending};
use super::setup::spec::ToolPolicy;
use crate::error_class::ModelError;
use crate::limits::Limits;
use crate::limits::Window;
use crate::media::Attachment;
use crate::message::{Message, ModelTurn, ToolCall, ToolStatus};
use crate::price::Price;
use crate::usage::NanoUsd;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;

/// An input of the kernel and its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Time since the run began, monotonic. An event with an earlier time than the previous one is
    /// handled at the previous one's time.
    pub at: Duration,
    /// The kind of event, with its data.
    #[serde(flatten)]
    pub kind: EventKind,
}

impl Event {
    /// Creates an event that happened at `at`.
    pub fn new(at: Duration, kind: EventKind) -> Event {
        Event { at, kind }
    }
}

/// Everything that a driver can report. Journals store these names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// Starts the run; must be the first event.
    Start {
        /// Seed of the jitter of retry waits. A replay with the same seed waits equally long.
        seed: u64,
        /// Price of the model, if known.
        price: Option<Price>,
        /// Wall clock in Unix milliseconds, for display.
        wall_ms: Option<u64>,
    },
    /// More content of the current turn has been streamed.
    Delta {
        /// Id of the model call.
        call: EffectId,
        /// The content.
        delta: TurnDelta,
    },
    /// A model call ended with a response.
    TurnEnded {
        /// Id of the model call.
        call: EffectId,
        /// The response.
        turn: Box<ModelTurn>,
    },
    /// A model call ended without a complete response.
    TurnFailed {
        /// Id of the model call.
        call: EffectId,
        /// The classified error.
        error: ModelError,
        /// Content that arrived before the failure, with its usage.
        partial: Option<Box<ModelTurn>>,
    },
    /// A tool call ended.
    ToolEnded {
        /// Id from [`ToolStart`](super::ToolStart).
        tool: EffectId,
        /// The result.
        report: ToolReport,
    },
    /// A tool spent money on its own model calls, for example because it runs another agent.
    Spent(Spending),
    /// The client of a guest is about to call the model. Discards a provisional ending. Answered by
    /// [`Effect::CallModel`](super::Effect::CallModel), or by the end of the run. Ignored in a run
    /// without [`GuestMode`](super::GuestMode).
    Asked {
        /// The call.
        call: Box<GuestCall>,
    },
    /// The loop of a guest is gone: the framework returned, the process exited, or the thread is
    /// idle for good. Ends the run.
    Closed {
        /// `true` if the loop ended without an error. A provisional ending is then final.
        ok: bool,
        /// Description of the end, for the evidence; may be empty.
        detail: String,
        /// The ending of a nested run that decided how this run ends, if it was not this run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended_as: Option<Box<NestedEnding>>,
    },
    /// A hook or a person answered.
    Answered {
        /// Id of the question.
        id: EffectId,
        /// The answer.
        answer: HookDecision,
    },
    /// The run is parked: it waits for the answer to a question, and its process may exit.
    Parked {
        /// The request, which names the question.
        request: Box<ParkRequest>,
    },
    /// A decision about the request of a parked run was made, also by another process. It takes
    /// effect when the driver answers the question.
    Decided {
        /// Id of the question.
        id: EffectId,
        /// The decision.
        decision: ParkDecision,
        /// The digest of the request that the decision is for.
        digest: String,
        /// Time of the decision in Unix milliseconds.
        wall_ms: u64,
    },
    /// A compaction ended.
    Compacted {
        /// Id of the compaction.
        id: EffectId,
        /// The new conversation, or the failure.
        result: Compaction,
    },
    /// An answer was validated against the output schema.
    Validated {
        /// Id of the validation.
        id: EffectId,
        /// The valid value, or a description of the violation for the model.
        result: Result<Value, String>,
    },
    /// The verifier judged an answer.
    Verified {
        /// Id of the verification.
        id: EffectId,
        /// `true` if the answer is accepted.
        passed: bool,
        /// The output of the verifier, which the model reads if the answer is rejected.
        output: String,
    },
    /// A shared budget answered a reservation.
    Reserved {
        /// Id of the reservation.
        id: EffectId,
        /// The granted amount. Less than the requested minimum means a refusal; the amount is then
        /// what the budget has left.
        granted: NanoUsd,
        /// The granted number of tokens; `None`: the budget has no token ceiling.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        granted_tokens: Option<u64>,
        /// The account that refused, if the budget refused and the driver knows it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused_by: Option<BudgetAccount>,
    },
    /// The caller set values for policies.
    Observe {
        /// Named values; they persist for the rest of the run.
        variables: Map<String, Value>,
        /// Measurements of the current turn; they are cleared before the next.
        metrics: Map<String, Value>,
    },
    /// The previous driver is gone (its process died or was stopped), and another one resumes the
    /// run.
    Resumed(Box<Resumption>),
    /// The user has sent a message. It enters the conversation before the next model call or, if the
    /// run ends before that, at its end. An answer in text that comes first does not end the run, as
    /// long as the limits permit another turn. Ignored in the run of a guest.
    Said {
        /// The message.
        text: String,
    },
    /// The caller changes limits. What was used so far counts against the new limits: a limit that
    /// is now reached ends the run before its next turn, and `timeout` ends it at once.
    LimitsChanged {
        /// The new values.
        limits: LimitChanges,
    },
    /// The process did not run for this time before the event, because it or its machine was
    /// suspended. The timeouts of a model call in progress do not include the time, because the
    /// process could not receive content. The run's `timeout` includes it.
    Suspended {
        /// The time.
        time: Duration,
    },
    /// A provider reported the use of a subscription's windows, with a response.
    Windows {
        /// The windows.
        windows: Vec<Window>,
    },
    /// Time has passed; answers [`Effect::WakeAt`](super::Effect::WakeAt).
    Tick,
    /// The caller cancels the run: running tools get a grace period.
    Cancel,
    /// The caller terminates the loop: the run ends at once.
    Terminate,
    /// User code in the driver failed, and the run cannot continue.
    Fault {
        /// The failed component: the name of a tool, the point of a hook, `provider`, `observer` …
        /// or `driver` for the driver itself.
        name: String,
        /// Description of the failure.
        message: String,
    },
}

impl EventKind {
    /// The event's name as its JSON spells it, for example `turn_ended`.
    pub const fn name(&self) -> &'static str {
        match self {
            EventKind::Start { .. } => "start",
            EventKind::Delta { .. } => "delta",
            EventKind::TurnEnded { .. } => "turn_ended",
            EventKind::TurnFailed { .. } => "turn_failed",
            EventKind::ToolEnded { .. } => "tool_ended",
            EventKind::Spent { .. } => "spent",
            EventKind::Asked { .. } => "asked",
            EventKind::Closed { .. } => "closed",
            EventKind::Answered { .. } => "answered",
            EventKind::Parked { .. } => "parked",
            EventKind::Decided { .. } => "decided",
            EventKind::Compacted { .. } => "compacted",
            EventKind::Validated { .. } => "validated",
            EventKind::Verified { .. } => "verified",
            EventKind::Reserved { .. } => "reserved",
            EventKind::Observe { .. } => "observe",
            EventKind::Resumed(_) => "resumed",
            EventKind::Said { .. } => "said",
            EventKind::LimitsChanged { .. } => "limits_changed",
            EventKind::Suspended { .. } => "suspended",
            EventKind::Windows { .. } => "windows",
            EventKind::Tick => "tick",
            EventKind::Cancel => "cancel",
            EventKind::Terminate => "terminate",
            EventKind::Fault { .. } => "fault",
        }
    }
}

/// The state of an account of a shared budget at the moment at which it refused a reservation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BudgetAccount {
    /// Ceiling on money; `None`: the account has none.
    pub ceiling: Option<NanoUsd>,
    /// Ceiling on tokens; `None`: the account has none.
    pub ceiling_tokens: Option<u64>,
    /// Money that calls of other runs have reserved.
    pub reserved: NanoUsd,
    /// Tokens that calls of other runs have reserved.
    pub reserved_tokens: u64,
    /// Name of the ceiling, if it outlives the run, for example `the day's ceiling of the project web`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Time at which the ceiling begins anew, for example `2026-11-24T00:00:00Z`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resets: Option<String>,
}

/// Changes that apply when a run is resumed. `None` keeps the previous value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Resumption {
    /// Model calls and tool calls that were in flight and whose result is unknown.
    pub lost: Vec<EffectId>,
    /// The run had ended because its next model call failed. Repeat that call once, even if
    /// `max_retries` is used up.
    pub call_again: bool,
    /// New limits.
    pub limits: Option<Limits>,
    /// New tools, without `finish`.
    pub tools: Option<Arc<Vec<ToolPolicy>>>,
    /// New model.
    pub model: Option<String>,
    /// New provider.
    pub provider: Option<String>,
    /// New price of the model.
    pub price: Option<Price>,
    /// New fallback models. If others than before are named, the run uses its own model again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallbacks: Option<Vec<FallbackModel>>,
    /// `true` if answers are validated against a schema from here on.
    pub output_schema: Option<bool>,
    /// `true` if a verifier judges answers from here on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verifier: Option<bool>,
    /// Wall clock in Unix milliseconds, for display.
    pub wall_ms: Option<u64>,
}

/// Streamed content of a turn. Empty deltas are ignored: a ping is not content and resets no
/// timeout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TurnDelta {
    /// Visible text.
    Text(String),
    /// Number of characters of reasoning. The kernel needs only the length, to estimate the usage
    /// of an aborted call.
    Reasoning(u64),
    /// Number of characters of tool call arguments, or of other output that is neither shown nor reasoning: the input
    /// of a tool that the provider runs, or another choice of the response.
    ToolArguments(u64),
}

/// [`TurnDelta`] for Endstop's own crates, which are released together: they match all variants, so that
/// a new one does not compile until each of them handles it. Not part of the interface.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub enum ClosedDelta<'a> {
    Text(&'a str),
    Reasoning(u64),
    ToolArguments(u64),
}

impl TurnDelta {
    /// Returns the variant as a closed enum.
    #[doc(hidden)]
    pub fn closed(&self) -> ClosedDelta<'_> {
        match self {
            TurnDelta::Text(text) => ClosedDelta::Text(text),
            TurnDelta::Reasoning(chars) => ClosedDelta::Reasoning(*chars),
            TurnDelta::ToolArguments(chars) => ClosedDelta::ToolArguments(*chars),
        }
    }

    /// Number of characters of text, reasoning or arguments.
    pub fn chars(&self) -> u64 {
        match self {
            TurnDelta::Text(text) => text.chars().count() as u64,
            TurnDelta::Reasoning(chars) | TurnDelta::ToolArguments(chars) => *chars,
        }
    }

    /// `true` if the delta has no content.
    pub fn is_empty(&self) -> bool {
        match self {
            TurnDelta::Text(text) => text.is_empty(),
            TurnDelta::Reasoning(chars) | TurnDelta::ToolArguments(chars) => *chars == 0,
        }
    }

    /// Size of the content: bytes of text, or characters of the other kinds.
    pub(super) fn size(&self) -> u64 {
        match self {
            TurnDelta::Text(text) => text.len() as u64,
            TurnDelta::Reasoning(chars) | TurnDelta::ToolArguments(chars) => *chars,
        }
    }
}

/// The result of a tool call, as the driver reports it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolReport {
    /// `ok`, `error`, `denied`, `timeout` or `aborted`. The kernel itself assigns `skipped`.
    pub status: ToolStatus,
    /// The result that the model reads.
    pub content: String,
    /// Images and documents for the model, after the text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    /// A reason if the tool requests that the run halt.
    #[serde(default)]
    pub halt: Option<String>,
    /// `false` only if the call was stopped before the tool started.
    pub started: bool,
    /// `true` if a compaction must keep the result.
    #[serde(default)]
    pub pinned: bool,
    /// Values that the tool set for policies; they persist.
    #[serde(default)]
    pub variables: Map<String, Value>,
    /// Measurements of this turn that the tool took.
    #[serde(default)]
    pub metrics: Map<String, Value>,
}

impl ToolReport {
    /// Creates a report with this status and content.
    pub fn new(status: ToolStatus, content: impl Into<String>) -> ToolReport {
        ToolReport {
            status,
            content: content.into(),
            attachments: Vec::new(),
            halt: None,
            started: true,
            pinned: false,
            variables: Map::new(),
            metrics: Map::new(),
        }
    }
}

/// An answer of a hook or a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HookDecision {
    /// Continue.
    Proceed,
    /// Continue, and send this message to the model: at once; after the results, if the tools of
    /// the turn are running; or, from a stop hook, when the conversation continues after the run.
    ProceedWith(String),
    /// Continue with this output cap (`chat_params` hook only; for a model call).
    OutputCap(u64),
    /// Run the tool call with these arguments (`pre_tool`, approval). The id and the name must be
    /// those of the call; any other ends the run as `error_during_execution`.
    ChangeCall(ToolCall),
    /// Give the model this result instead of the tool's (`post_tool`).
    ChangeResult(ChangedResult),
    /// Do what `answer` says, and send this message to the model, as with
    /// [`ProceedWith`](HookDecision::ProceedWith).
    WithNote {
        /// The message.
        note: String,
        /// The rest of the answer.
        answer: Box<HookDecision>,
    },
    /// Refuse the tool call (`pre_tool`, approval), withhold its result (`post_tool`) or veto the
    /// success (`stop`), with the reason; before a model call, end the run. A veto is the only way
    /// to withdraw a declared answer.
    Deny(String),
    /// End the run, with the reason. A declared answer stands; the halt is then listed in `also`.
    Halt(String),
    /// Park the run until a decision is made, maybe in another process (approval, reply). The
    /// driver parks it, so the kernel refuses this answer as one that is not valid at its point.
    Park(Park),
}

impl HookDecision {
    /// The answer's name as its JSON spells it, for example `change_call`.
    pub const fn name(&self) -> &'static str {
        match self {
            HookDecision::Proceed => "proceed",
            HookDecision::ProceedWith(_) => "proceed_with",
            HookDecision::OutputCap(_) => "output_cap",
            HookDecision::ChangeCall(_) => "change_call",
            HookDecision::ChangeResult(_) => "change_result",
            HookDecision::WithNote { .. } => "with_note",
            HookDecision::Deny(_) => "deny",
            HookDecision::Halt(_) => "halt",
            HookDecision::Park(_) => "park",
        }
    }

    /// Splits the notes for the model, in order, from the rest of the answer.
    pub(super) fn split_notes(self) -> (Vec<String>, HookDecision) {
        let (mut notes, mut rest) = (Vec::new(), self);
        while let HookDecision::WithNote { note, answer } = rest {
            notes.push(note);
            rest = *answer;
        }
        (notes, rest)
    }
}

/// A result that replaces the one of a tool. Content beyond 64 KiB and beyond the length of the
/// tool's own result is cut.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChangedResult {
    /// The result that the model reads.
    pub content: String,
    /// `true` if the call counts as failed.
    #[serde(default)]
    pub is_error: bool,
    /// The images and documents that the model reads. Those of the tool's result are dropped, unless
    /// they are repeated here: they may show what the hook has removed from the text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
}

impl ChangedResult {
    /// Creates the result of a call that succeeded.
    pub fn ok(content: impl Into<String>) -> ChangedResult {
        ChangedResult { content: content.into(), ..ChangedResult::default() }
    }

    /// Creates the result of a call that failed.
    pub fn error(content: impl Into<String>) -> ChangedResult {
        ChangedResult { is_error: true, ..ChangedResult::ok(content) }
    }

    /// Sets the images and documents, for example to keep those of the tool's result.
    #[must_use]
    pub fn attachments(mut self, attachments: Vec<Attachment>) -> ChangedResult {
        self.attachments = attachments;
        self
    }
}

/// The result of a compaction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compaction {
    /// There was nothing to do (proactive only; a forced compaction that returns this has failed).
    NotNeeded,
    /// A new conversation, and the cost of the summariser's calls. The run accepts it if it is
    /// shorter by [`CompactionSpec::least_gain`](super::CompactionSpec::least_gain), is valid for
    /// providers ([`history`](crate::history)), and contains everything that must be kept.
    Done {
        /// The messages that replace the conversation.
        messages: Vec<Message>,
        /// Cost of the compaction.
        cost: NanoUsd,
        /// Name of the strategy, for observers and the outcome; may be empty.
        #[serde(default)]
        strategy: String,
    },
    /// The compaction failed, with the reason.
    Failed(String),
}

impl Compaction {
    /// Creates a result with a new conversation that cost nothing.
    pub fn done(strategy: impl Into<String>, messages: Vec<Message>) -> Compaction {
        Compaction::Done { messages, cost: NanoUsd::ZERO, strategy: strategy.into() }
    }
}
