//! Effects: the output of the kernel. Each has an id that the answering event carries.

pub use super::effect_id::EffectId;
use super::park::{ParkDecision, ParkRequest};
use super::setup::limit_changes::LimitChanges;
use super::setup::models::ModelSwitch;
use super::setup::watch::RuleHit;
use crate::error_class::ModelError;
use crate::message::{MessageId, ToolCall, ToolResult, ToolStatus};
use crate::signal::TerminationSignal;
use crate::usage::{NanoUsd, Usage, optional_usd};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A request to the driver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "effect", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Effect {
    /// Calls the model with the run's messages; answered by `TurnEnded` or `TurnFailed`.
    CallModel {
        /// Id that the answer carries.
        id: EffectId,
        /// The turn that the call is for, from 1.
        turn: u32,
        /// The attempt at that turn, from 1.
        attempt: u32,
        /// The output cap to send; `None`: the provider's default.
        output_cap: Option<u64>,
    },
    /// Calls the model for the hand-over: with the run's messages, and without tools. Answered like
    /// `CallModel`. Tool calls in the response are ignored.
    CallHandOver {
        /// Id that the answer carries.
        id: EffectId,
        /// The output cap to send.
        output_cap: Option<u64>,
    },
    /// Sends all later calls to another model: 0 is the run's own, and n the n-th of
    /// [`RunSpec::fallbacks`](super::RunSpec::fallbacks). No answer is expected.
    SwitchModel {
        /// The number of the model.
        fallback: u32,
    },
    /// Aborts a model call. No answer is expected, and later events of the call are ignored.
    AbortModel {
        /// Id of the call.
        id: EffectId,
    },
    /// Starts tool calls; each is answered by `ToolEnded`. In the run of a guest, whose client runs
    /// its tools itself: releases all calls of the turn.
    StartTools {
        /// The calls, in order.
        calls: Vec<ToolStart>,
    },
    /// Stops tool calls: send a signal, and kill after the grace period. Each call must still be
    /// answered by `ToolEnded`.
    AbortTools {
        /// Ids of the calls.
        ids: Vec<EffectId>,
        /// Time until the calls are killed; zero: kill at once.
        grace: Duration,
    },
    /// Requests a `Tick` at this time. Replaces an earlier request.
    WakeAt {
        /// Time on the run's clock.
        at: Duration,
    },
    /// Requests a reservation from a shared budget; answered by `Reserved`.
    Reserve {
        /// Id that the answer carries.
        id: EffectId,
        /// Worst-case cost of the call; zero if no price is known.
        want: NanoUsd,
        /// Minimum cost budget for a useful call.
        least: NanoUsd,
        /// Worst-case number of tokens, prompt and output together.
        #[serde(default)]
        want_tokens: u64,
        /// Minimum number of tokens for a useful call.
        #[serde(default)]
        least_tokens: u64,
    },
    /// Reports the real cost of a reserved call to the shared budget, which releases the rest of
    /// the reservation. Also reports the cost of a compaction, for which nothing was reserved.
    Settle {
        /// Id of the reservation or the compaction.
        id: EffectId,
        /// The cost. For a call that the provider did not count: the most that it can have cost.
        spent: NanoUsd,
        /// The number of tokens used, or the most that can have been used.
        #[serde(default)]
        tokens: u64,
    },
    /// Validates an answer against the output schema; answered by `Validated`.
    Validate {
        /// Id that the answer carries.
        id: EffectId,
        /// The answer: text, or the delivered value.
        candidate: Value,
    },
    /// Verifies an answer before the run ends as a success; answered by `Verified`.
    Verify {
        /// Id that the answer carries.
        id: EffectId,
        /// The round, from 1.
        round: u32,
        /// The answer; `None` if the run has no text.
        answer: Option<String>,
    },
    /// Asks a hook or a person; answered by `Answered`.
    Consult {
        /// Id that the answer carries.
        id: EffectId,
        /// The question.
        point: ConsultPoint,
    },
    /// Shortens the conversation; answered by `Compacted`.
    Compact {
        /// Id that the answer carries.
        id: EffectId,
        /// `true` if the provider has refused the prompt, so that every means should be tried.
        forced: bool,
        /// The user message that started the run; must be kept.
        task: Option<MessageId>,
        /// Current size of the conversation.
        before: ConversationSize,
        /// Target size in bytes. A larger result is still accepted if it shrinks the conversation
        /// by at least [`least_gain`](super::CompactionSpec::least_gain).
        target: u64,
    },
    /// Cancels an outstanding effect: dismiss the prompt, stop the compaction, and return any
    /// budget reservation, including one granted later.
    Abandon {
        /// Id of the effect.
        id: EffectId,
    },
    /// Sends an event to the observers.
    Emit(RunEvent),
}

/// The size of a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversationSize {
    /// Number of messages.
    pub messages: u32,
    /// Bytes of the messages, as [`Message::byte_len`](crate::Message::byte_len) counts them.
    pub bytes: u64,
    /// Estimated tokens of the prompt, including instructions and tools: the provider's last count,
    /// plus one token for every four bytes added since.
    pub tokens: u64,
}

/// A tool call to start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolStart {
    /// Id of this call. The provider's own call id is not unique within a run.
    pub id: EffectId,
    /// The call as the model wrote it, with the arguments of a hook or an approver that changed it.
    pub call: Arc<ToolCall>,
    /// The parsed arguments. Empty in the run of a guest, whose client reads them itself, unless the
    /// run has a policy for the tool.
    pub arguments: Map<String, Value>,
}

/// A question to a hook or a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "point", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ConsultPoint {
    /// The user's input has arrived.
    Prompt,
    /// A turn is about to begin.
    PreIteration {
        /// Number of completed turns with tool calls.
        tool_turns: u32,
        /// Number of consecutive unproductive turns.
        unproductive: u32,
    },
    /// A model call is about to be made; its parameters may be changed.
    ChatParams {
        /// Number of completed turns with tool calls.
        tool_turns: u32,
        /// The output cap that the call would have.
        output_cap: Option<u64>,
    },
    /// The request is about to be sent; a retry of the same request does not ask again. The driver
    /// shows the hook the whole request.
    PreCall {
        /// The turn, from 1.
        turn: u32,
        /// The output cap that the call would have.
        output_cap: Option<u64>,
    },
    /// A tool call is about to start; its arguments may be changed.
    PreTool {
        /// The call.
        call: ToolCall,
    },
    /// A tool call has run; its result may be changed before the model, the policies and the
    /// detectors see it.
    PostTool {
        /// The call that ran.
        call: ToolCall,
        /// The result.
        result: ToolResult,
    },
    /// A person must approve a tool call.
    Approval {
        /// The call.
        call: ToolCall,
    },
    /// The run is about to end as a success.
    Stop {
        /// The answer.
        answer: Option<String>,
    },
    /// The model has answered in text, and a user may reply.
    Reply,
}

/// The cause of a message that the loop itself sends to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum InjectionReason {
    /// The model repeats itself, and the run ends if it continues to.
    NoProgress,
    /// A response was blank.
    Empty,
    /// The answer does not satisfy the schema.
    Repair,
    /// A response was cut by the output limit.
    Continue,
    /// A tool call was announced and did not arrive.
    LostCall,
    /// The termination policy has something to say.
    Policy,
    /// A stop hook vetoed the answer.
    Veto,
    /// The verifier rejected the answer.
    Verification,
    /// A hook added a note.
    Hook,
    /// A watch rule with the mode `nudge` fired.
    Watch,
    /// A ceiling ends the run, and the model is asked for a hand-over.
    WrapUp,
    /// The rest of the limits, before each turn.
    Remaining,
    /// A limit is nearly used up.
    Warning,
    /// The user has sent a message while the run works.
    Said,
    /// A background call has ended.
    Background,
}

impl InjectionReason {
    /// The reason's name in events.
    pub const fn as_str(self) -> &'static str {
        match self {
            InjectionReason::NoProgress => "no_progress",
            InjectionReason::Empty => "empty",
            InjectionReason::Repair => "repair",
            InjectionReason::Continue => "continue",
            InjectionReason::LostCall => "lost_call",
            InjectionReason::Policy => "policy",
            InjectionReason::Veto => "veto",
            InjectionReason::Verification => "verification",
            InjectionReason::Hook => "hook",
            InjectionReason::Watch => "watch",
            InjectionReason::WrapUp => "wrap_up",
            InjectionReason::Remaining => "remaining",
            InjectionReason::Warning => "warning",
            InjectionReason::Said => "said",
            InjectionReason::Background => "background",
        }
    }
}

impl fmt::Display for InjectionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Events for observers, in order, each sent exactly once. Streamed text is not among them: the
/// driver forwards it and may drop it for a slow reader, but these events are never dropped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunEvent {
    /// An attempt at a turn began. A second attempt starts the turn over: text shown from the
    /// previous one is void.
    TurnStarted {
        /// The turn, from 1.
        turn: u32,
        /// The attempt, from 1.
        attempt: u32,
    },
    /// A response was accepted and appended to the conversation.
    TurnFinished {
        /// The turn, from 1.
        turn: u32,
        /// Visible text of the response.
        text: String,
        /// The reason why the model stopped.
        signal: TerminationSignal,
        /// Usage of the response.
        usage: Usage,
        /// The run's known cost so far; `None` if no price is known. `cost_usd` in JSON.
        #[serde(rename = "cost_usd", with = "optional_usd", default)]
        cost: Option<NanoUsd>,
        /// Number of tool calls in the response.
        tool_calls: u32,
    },
    /// An attempt failed.
    AttemptFailed {
        /// The turn, from 1.
        turn: u32,
        /// The attempt, from 1.
        attempt: u32,
        /// The error.
        error: ModelError,
        /// Milliseconds until the next attempt; `None` if there is none.
        retry_in_ms: Option<u64>,
    },
    /// The run uses another model from now on, because the one before has failed, or because the run
    /// was resumed with its own model.
    ModelSwitched {
        /// The turn, from 1.
        turn: u32,
        /// The models before and after, and the reason.
        #[serde(flatten)]
        switch: Box<ModelSwitch>,
    },
    /// A hook or an approver changed the arguments of a call before it could start.
    ToolCallChanged {
        /// The provider's id of the call.
        call_id: String,
        /// Name of the tool.
        name: String,
        /// The arguments before the change: those of the model, or of an earlier change.
        before: String,
        /// The arguments with which the call may run.
        after: String,
        /// The point at which it was changed: `pre_tool` or `approval`.
        by: String,
    },
    /// A tool call started.
    ToolStarted {
        /// The provider's id of the call.
        call_id: String,
        /// Name of the tool.
        name: String,
        /// The arguments with which it runs: as the model wrote them, unless a `ToolCallChanged` came
        /// before.
        arguments: String,
    },
    /// A hook changed the result of a call; the `ToolFinished` that follows has the new one. The
    /// original is in the journal only, because a hook may have removed a secret from it.
    ToolResultChanged {
        /// The provider's id of the call.
        call_id: String,
        /// Name of the tool.
        name: String,
        /// Status of the call before the change.
        status: ToolStatus,
    },
    /// A tool call was answered.
    ToolFinished {
        /// The provider's id of the call.
        call_id: String,
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
        /// The cause of the message.
        why: InjectionReason,
        /// Text of the message.
        text: String,
    },
    /// A watch rule fired for the first time.
    RuleHit(RuleHit),
    /// The conversation was shortened.
    Compacted {
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
        /// The reason.
        why: String,
        /// `true` if the provider had refused the prompt.
        forced: bool,
        /// Number of consecutive failures, including this one.
        in_a_row: u32,
    },
    /// The verifier judged an answer.
    Verified {
        /// The round, from 1.
        round: u32,
        /// Maximum number of rounds; `None`: the verdict does not change the ending.
        rounds: Option<u32>,
        /// `true` if the answer is accepted.
        passed: bool,
        /// The output of the verifier, shortened.
        output: String,
    },
    /// The model gave a hand-over, or a part of one.
    HandOver {
        /// Text of the hand-over.
        text: String,
    },
    /// Limits of the run were changed.
    LimitsChanged {
        /// The new values of the limits that differ.
        limits: LimitChanges,
    },
    /// The run waits until a window of the subscription begins anew, or its spending is below a rate.
    Paused {
        /// The wait in milliseconds.
        wait_ms: u64,
        /// Description of the window or the rate.
        evidence: String,
    },
    /// The process was suspended during a model call, whose timeouts do not include that time.
    Suspended {
        /// The time in milliseconds.
        duration_ms: u64,
    },
    /// The run is parked until its request is decided.
    Parked(Box<ParkRequest>),
    /// The request of the parked run was decided.
    Decided {
        /// Id of the request.
        id: EffectId,
        /// The decision.
        decision: ParkDecision,
        /// Time of the decision in Unix milliseconds.
        wall_ms: u64,
    },
    /// The run is being stopped; running tools must still end.
    Stopping {
        /// The termination that the run will have.
        reason: String,
        /// Number of tool calls still running.
        running: u32,
    },
}
