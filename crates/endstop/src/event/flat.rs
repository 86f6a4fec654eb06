//! The events of a run, as one enum.
//!
//! ```text
//! AgentEvent::TextDelta { origin, text } → {"type":"text_delta","run_id":"k3v9","turn":1,"text":"It"}
//! ```

use super::origin::{CallId, Origin};
use super::request_id::RequestId;
use endstop_core::{
    EffectId, InjectionReason, LimitChanges, ModelError, ModelSwitch, NanoUsd, Outcome,
    ParkDecision, ParkRequest, RuleHit, TerminationSignal, ToolStatus, Usage,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// An event of a run.
///
/// The order within a turn is `TurnStarted`, deltas, `Usage`, `TurnFinished`, and then
/// `ToolStarted` and `ToolFinished` of its calls. [`Finished`](AgentEvent::Finished) is always the last
/// event, unless the run is [parked](AgentEvent::Parked). A reader that lags may miss the rest of a turn's deltas, but no other event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum AgentEvent {
    /// An attempt at a turn began. A second attempt starts the turn over: text shown from the
    /// previous one is void.
    TurnStarted {
        /// The run and the turn.
        #[serde(flatten)]
        origin: Origin,
        /// The attempt, from 1.
        attempt: u32,
    },
    /// Visible text.
    TextDelta {
        /// The run and the turn.
        #[serde(flatten)]
        origin: Origin,
        /// The next piece of the text.
        text: String,
    },
    /// Reasoning, if the provider sends its text.
    ReasoningDelta {
        /// The run and the turn.
        #[serde(flatten)]
        origin: Origin,
        /// The next piece of the reasoning.
        text: String,
    },
    /// Text of a refusal, if the provider reports refusals separately from text.
    RefusalDelta {
        /// The run and the turn.
        #[serde(flatten)]
        origin: Origin,
        /// The next piece of the text.
        text: String,
    },
    /// The provider streams reasoning or arguments but not their text.
    HiddenDelta {
        /// The run and the turn.
        #[serde(flatten)]
        origin: Origin,
        /// Number of characters of reasoning.
        #[serde(default)]
        reasoning: u64,
        /// Number of characters of tool-call arguments.
        #[serde(default)]
        arguments: u64,
    },
    /// The model began to write a tool call. The call runs later, if at all: see
    /// [`ToolStarted`](AgentEvent::ToolStarted).
    ToolCallStarted {
        /// The run and the turn.
        #[serde(flatten)]
        origin: Origin,
        /// Position of the call among the calls of the response, from 0.
        index: u32,
        /// The provider's id of the call; `None` if the provider sends it only with the complete
        /// response.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call_id: Option<CallId>,
        /// Name of the tool.
        name: String,
    },
    /// A fragment of a tool call's arguments.
    ToolArgumentsDelta {
        /// The run and the turn.
        #[serde(flatten)]
        origin: Origin,
        /// Position of the call among the calls of the response, from 0.
        index: u32,
        /// The provider's id of the call, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call_id: Option<CallId>,
        /// The next piece of the JSON text.
        arguments: String,
    },
    /// The tokens of the response that [`TurnFinished`](AgentEvent::TurnFinished) announces next.
    Usage {
        /// The run and the turn.
        #[serde(flatten)]
        origin: Origin,
        /// Tokens of this response.
        usage: Box<Usage>,
        /// Cost of the run so far, in nano-dollars; `None` if no price is known.
        cost: Option<NanoUsd>,
    },
    /// A response was accepted and appended to the conversation.
    TurnFinished {
        /// The run and the turn.
        #[serde(flatten)]
        origin: Origin,
        /// Visible text of the response.
        text: String,
        /// The reason why the model stopped.
        signal: Box<TerminationSignal>,
        /// Number of tool calls in the response.
        tool_calls: u32,
    },
    /// A hook or an approver changed the arguments of a call before it could start.
    ToolCallChanged {
        /// The run and the turn.
        #[serde(flatten)]
        origin: Origin,
        /// The provider's id of the call.
        call_id: CallId,
        /// Name of the tool.
        name: String,
        /// The arguments before the change: those of the model, or of an earlier change.
        before: Box<str>,
        /// The arguments with which the call may run.
        after: Box<str>,
        /// The point at which it was changed: `pre_tool` or `approval`.
        by: Box<str>,
    },
    /// A tool call waits for approval; see [`RunHandle::answer`](crate::RunHandle::answer).
    ApprovalRequested {
        /// The run and the turn.
        #[serde(flatten)]
        origin: Origin,
        /// The id to answer with.
        request_id: RequestId,
        /// The provider's id of the call.
        call_id: CallId,
        /// Name of the tool.
        name: String,
        /// The arguments with which the call would run, as JSON text: those of the model, or of a
        /// hook that changed them.
        arguments: Box<str>,
        /// The same arguments in canonical form: parsed, and printed again with sorted keys. Shows
        /// what will be used, for example of an argument that is given twice.
        canonical: Box<str>,
    },
    /// A hook changed the result of a call; the [`ToolFinished`](AgentEvent::ToolFinished) that
    /// follows has the new one. The original is in the journal only, because a hook may have removed
    /// a secret from it.
    ToolResultChanged {
        /// The run and the turn.
        #[serde(flatten)]
        origin: Origin,
        /// The provider's id of the call.
        call_id: CallId,
        /// Name of the tool.
        name: String,
        /// Status of the call before the change.
        status: ToolStatus,
    },
    /// An attempt failed.
    AttemptFailed {
        /// The run and the turn.
        #[serde(flatten)]
        origin: Origin,
        /// The attempt, from 1.
        attempt: u32,
        /// The error.
        error: Box<ModelError>,
        /// Milliseconds until the next attempt; `None` if there is none.
        retry_in_ms: Option<u64>,
    },
    /// A tool call started.
    ToolStarted {
        /// The run and the turn.
        #[serde(flatten)]
        origin: Origin,
        /// The provider's id of the call.
        call_id: CallId,
        /// Name of the tool.
        name: String,
        /// The arguments as the model wrote them.
        arguments: String,
    },
    /// A tool call was answered.
    ToolFinished {
        /// The run and the turn.
        #[serde(flatten)]
        origin: Origin,
        /// The provider's id of the call.
        call_id: CallId,
        /// Name of the tool.
        name: String,
        /// Status of the call.
        status: ToolStatus,
        /// Duration of the call in milliseconds.
        duration_ms: u64,
        /// The result that the model reads.
        content: String,
    },
    /// The loop sent a message of its own to the model.
    MessageInjected {
        /// The run and the turn.
        #[serde(flatten)]
        origin: Origin,
        /// The cause of the message.
        why: InjectionReason,
        /// Text of the message.
        text: String,
    },
    /// A watch rule fired for the first time.
    RuleHit {
        /// The run and the turn.
        #[serde(flatten)]
        origin: Origin,
        /// The rule and the reason.
        hit: Box<RuleHit>,
    },
    /// The conversation was shortened.
    Compacted {
        /// The run and the turn.
        #[serde(flatten)]
        origin: Origin,
        /// Number of messages before.
        before: u32,
        /// Number of messages after.
        after: u32,
        /// Bytes of the messages before.
        bytes_before: u64,
        /// Bytes after.
        bytes_after: u64,
        /// Estimated tokens of the prompt before.
        tokens_before: u64,
        /// Estimated tokens after.
        tokens_after: u64,
        /// Name of the compaction strategy; may be empty.
        strategy: String,
        /// `true` if the provider had refused the prompt.
        forced: bool,
    },
    /// The conversation could not be shortened and is unchanged.
    CompactionFailed {
        /// The run and the turn.
        #[serde(flatten)]
        origin: Origin,
        /// The reason.
        why: String,
        /// `true` if the provider had refused the prompt.
        forced: bool,
        /// Number of consecutive failures, including this one.
        in_a_row: u32,
    },
    /// The verifier judged an answer.
    Verified {
        /// The run and the turn.
        #[serde(flatten)]
        origin: Origin,
        /// The round, from 1.
        round: u32,
        /// Maximum number of rounds; `None`: the verdict does not change the ending.
        rounds: Option<u32>,
        /// `true` if the answer is accepted.
        passed: bool,
        /// The output of the verifier, shortened.
        output: String,
    },
    /// The run uses another model from now on, because the one before has failed, or because the run
    /// was resumed with its own model.
    ModelSwitched {
        /// The run and the turn.
        #[serde(flatten)]
        origin: Origin,
        /// The models before and after, and the reason.
        #[serde(flatten)]
        switch: Box<ModelSwitch>,
    },
    /// The model gave a hand-over, or a part of one.
    HandOver {
        /// The run and the turn.
        #[serde(flatten)]
        origin: Origin,
        /// Text of the hand-over.
        text: String,
    },
    /// Limits of the run were changed.
    LimitsChanged {
        /// The run and the turn.
        #[serde(flatten)]
        origin: Origin,
        /// The new values of the limits that differ.
        limits: LimitChanges,
    },
    /// The process was suspended during a model call, whose timeouts do not include that time.
    Suspended {
        /// The run and the turn.
        #[serde(flatten)]
        origin: Origin,
        /// The time in milliseconds.
        duration_ms: u64,
    },
    /// The run is parked until its request is decided ([`park`](crate::park)). The last event that
    /// this process sends of the run.
    Parked {
        /// The run and the turn.
        #[serde(flatten)]
        origin: Origin,
        /// The request.
        request: Box<ParkRequest>,
    },
    /// The request of the run was decided, while it was parked.
    Decided {
        /// The run and the turn.
        #[serde(flatten)]
        origin: Origin,
        /// Id of the request.
        id: EffectId,
        /// The decision.
        decision: ParkDecision,
        /// Time of the decision in Unix milliseconds.
        wall_ms: u64,
    },
    /// The run is being stopped; running tools must still end.
    Stopping {
        /// The run and the turn.
        #[serde(flatten)]
        origin: Origin,
        /// The termination that the run will have.
        reason: String,
        /// Number of tool calls still running.
        running: u32,
    },
    /// A problem that does not affect the run, for example a journal that cannot be written.
    Warning {
        /// The run and the turn.
        #[serde(flatten)]
        origin: Origin,
        /// A description for people.
        message: String,
    },
    /// A nested run has ended: its [`Finished`](AgentEvent::Finished), as the outer run's handle gets it.
    NestedFinished {
        /// The nested run.
        #[serde(flatten)]
        origin: Origin,
        /// The outcome of the run.
        outcome: Arc<Outcome>,
    },
    /// The run has ended. Always the last event.
    Finished {
        /// The run.
        #[serde(flatten)]
        origin: Origin,
        /// The outcome of the run.
        outcome: Arc<Outcome>,
    },
}

/// Applies `$get` to the field `origin` of any variant.
macro_rules! in_any_variant {
    ($event:expr, $origin:ident => $get:expr) => {
        match $event {
            AgentEvent::TurnStarted { origin: $origin, .. }
            | AgentEvent::TextDelta { origin: $origin, .. }
            | AgentEvent::ReasoningDelta { origin: $origin, .. }
            | AgentEvent::RefusalDelta { origin: $origin, .. }
            | AgentEvent::HiddenDelta { origin: $origin, .. }
            | AgentEvent::ToolCallStarted { origin: $origin, .. }
            | AgentEvent::ToolArgumentsDelta { origin: $origin, .. }
            | AgentEvent::Usage { origin: $origin, .. }
            | AgentEvent::TurnFinished { origin: $origin, .. }
            | AgentEvent::AttemptFailed { origin: $origin, .. }
            | AgentEvent::ToolCallChanged { origin: $origin, .. }
            | AgentEvent::ApprovalRequested { origin: $origin, .. }
            | AgentEvent::ToolResultChanged { origin: $origin, .. }
            | AgentEvent::ToolStarted { origin: $origin, .. }
            | AgentEvent::ToolFinished { origin: $origin, .. }
            | AgentEvent::MessageInjected { origin: $origin, .. }
            | AgentEvent::RuleHit { origin: $origin, .. }
            | AgentEvent::Compacted { origin: $origin, .. }
            | AgentEvent::CompactionFailed { origin: $origin, .. }
            | AgentEvent::Verified { origin: $origin, .. }
            | AgentEvent::ModelSwitched { origin: $origin, .. }
            | AgentEvent::HandOver { origin: $origin, .. }
            | AgentEvent::LimitsChanged { origin: $origin, .. }
            | AgentEvent::Suspended { origin: $origin, .. }
            | AgentEvent::Parked { origin: $origin, .. }
            | AgentEvent::Decided { origin: $origin, .. }
            | AgentEvent::Stopping { origin: $origin, .. }
            | AgentEvent::Warning { origin: $origin, .. }
            | AgentEvent::NestedFinished { origin: $origin, .. }
            | AgentEvent::Finished { origin: $origin, .. } => $get,
        }
    };
}

impl AgentEvent {
    /// Returns the run and the turn that the event belongs to.
    pub fn origin(&self) -> &Origin {
        in_any_variant!(self, origin => origin)
    }

    /// Returns the id of the run, which [`Outcome::run_id`] and the journal have, too.
    pub fn run_id(&self) -> &str {
        self.origin().run_id()
    }

    /// Returns the tool calls in which the run is nested: see [`Origin::path`].
    pub fn path(&self) -> &[CallId] {
        self.origin().path()
    }

    /// Returns the turn, from 1; `None` before the first one.
    pub fn turn(&self) -> Option<u32> {
        self.origin().turn()
    }

    /// Returns the provider's id of the tool call that the event is about.
    pub fn call_id(&self) -> Option<&CallId> {
        match self {
            AgentEvent::ToolCallChanged { call_id, .. }
            | AgentEvent::ApprovalRequested { call_id, .. }
            | AgentEvent::ToolStarted { call_id, .. }
            | AgentEvent::ToolResultChanged { call_id, .. }
            | AgentEvent::ToolFinished { call_id, .. } => Some(call_id),
            AgentEvent::ToolCallStarted { call_id, .. }
            | AgentEvent::ToolArgumentsDelta { call_id, .. } => call_id.as_ref(),
            _ => None,
        }
    }

    /// `true` for streamed content of a turn, which the turn's end contains as a whole.
    pub fn is_delta(&self) -> bool {
        matches!(
            self,
            AgentEvent::TextDelta { .. }
                | AgentEvent::ReasoningDelta { .. }
                | AgentEvent::RefusalDelta { .. }
                | AgentEvent::HiddenDelta { .. }
                | AgentEvent::ToolCallStarted { .. }
                | AgentEvent::ToolArgumentsDelta { .. }
        )
    }

    /// Returns the value of the key `type` in JSON, for example `text_delta`.
    pub fn kind(&self) -> &'static str {
        match self {
            AgentEvent::TurnStarted { .. } => "turn_started",
            AgentEvent::TextDelta { .. } => "text_delta",
            AgentEvent::ReasoningDelta { .. } => "reasoning_delta",
            AgentEvent::RefusalDelta { .. } => "refusal_delta",
            AgentEvent::HiddenDelta { .. } => "hidden_delta",
            AgentEvent::ToolCallStarted { .. } => "tool_call_started",
            AgentEvent::ToolArgumentsDelta { .. } => "tool_arguments_delta",
            AgentEvent::Usage { .. } => "usage",
            AgentEvent::TurnFinished { .. } => "turn_finished",
            AgentEvent::AttemptFailed { .. } => "attempt_failed",
            AgentEvent::ToolCallChanged { .. } => "tool_call_changed",
            AgentEvent::ApprovalRequested { .. } => "approval_requested",
            AgentEvent::ToolResultChanged { .. } => "tool_result_changed",
            AgentEvent::ToolStarted { .. } => "tool_started",
            AgentEvent::ToolFinished { .. } => "tool_finished",
            AgentEvent::MessageInjected { .. } => "message_injected",
            AgentEvent::RuleHit { .. } => "rule_hit",
            AgentEvent::Compacted { .. } => "compacted",
            AgentEvent::CompactionFailed { .. } => "compaction_failed",
            AgentEvent::Verified { .. } => "verified",
            AgentEvent::ModelSwitched { .. } => "model_switched",
            AgentEvent::HandOver { .. } => "hand_over",
            AgentEvent::LimitsChanged { .. } => "limits_changed",
            AgentEvent::Suspended { .. } => "suspended",
            AgentEvent::Parked { .. } => "parked",
            AgentEvent::Decided { .. } => "decided",
            AgentEvent::Stopping { .. } => "stopping",
            AgentEvent::Warning { .. } => "warning",
            AgentEvent::NestedFinished { .. } => "nested_finished",
            AgentEvent::Finished { .. } => "finished",
        }
    }

    /// Returns the event as the handle of an outer run receives it.
    pub(crate) fn nested(self) -> AgentEvent {
        match self {
            AgentEvent::Finished { origin, outcome } => {
                AgentEvent::NestedFinished { origin, outcome }
            }
            event => event,
        }
    }
}
