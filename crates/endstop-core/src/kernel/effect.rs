//! What the kernel asks for: effects, each with an id that its answer carries.

use super::watch::Fired;
use crate::error_class::ModelError;
use crate::message::{MessageId, ToolCall, ToolStatus};
use crate::signal::TerminationSignal;
use crate::usage::{NanoUsd, Usage};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::time::Duration;

/// Names an effect within its run; never reused.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct EffectId(pub u64);

/// What the driver is to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "effect", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Effect {
    /// Call the model with the run's messages; answered by `TurnEnded` or `TurnFailed`.
    CallModel {
        /// Its id.
        id: EffectId,
        /// The turn it is for, from 1.
        turn: u32,
        /// The attempt at that turn, from 1.
        attempt: u32,
        /// The output cap to send; `None`: the provider's own.
        output_cap: Option<u64>,
    },
    /// Stop a model call. Nothing more of it is read; no answer is waited for.
    AbortModel {
        /// The call.
        id: EffectId,
    },
    /// Start tool calls; each is answered by `ToolEnded`.
    StartTools {
        /// The calls, in order.
        calls: Vec<ToolStart>,
    },
    /// Stop tool calls: signal, and kill after the grace. Each is still answered by `ToolEnded`.
    AbortTools {
        /// The calls.
        ids: Vec<EffectId>,
        /// How long they have to end; zero: kill at once.
        grace: Duration,
    },
    /// Send a `Tick` at this time (replaces an earlier wish).
    WakeAt {
        /// When, on the run's clock.
        at: Duration,
    },
    /// Ask a shared budget; answered by `Reserved`.
    Reserve {
        /// Its id.
        id: EffectId,
        /// The worst cost of the call; zero if no price is known.
        want: NanoUsd,
        /// The least with which the call makes sense.
        least: NanoUsd,
        /// The most tokens that the call can use, prompt and output together.
        #[serde(default)]
        want_tokens: u64,
        /// The least tokens with which the call makes sense.
        #[serde(default)]
        least_tokens: u64,
    },
    /// Tell a shared budget what a reserved call cost, and give the rest back; or what a compaction
    /// cost, for which nothing was reserved.
    Settle {
        /// The reservation, or the compaction.
        id: EffectId,
        /// What it cost. For a call that the provider did not count, the most that it can have cost.
        spent: NanoUsd,
        /// The tokens that it used, or the most that it can have used.
        #[serde(default)]
        tokens: u64,
    },
    /// Validate an answer against the output schema; answered by `Validated`.
    Validate {
        /// Its id.
        id: EffectId,
        /// The answer: text, or the value that was delivered.
        candidate: Value,
    },
    /// Ask a hook or a person; answered by `Answered`.
    Consult {
        /// Its id.
        id: EffectId,
        /// What is asked.
        point: ConsultPoint,
    },
    /// Shorten the conversation; answered by `Compacted`.
    Compact {
        /// Its id.
        id: EffectId,
        /// The provider refused the prompt: everything possible must be done.
        forced: bool,
        /// The user's message that the run began with; it must stay.
        task: Option<MessageId>,
        /// How long the conversation is.
        before: ConversationSize,
        /// How many bytes it should have at most; more is taken as well, where it is enough less
        /// than before.
        target: u64,
    },
    /// An effect is no longer waited for: a prompt can be taken down, a compaction stopped, and what
    /// a shared budget granted, or grants yet, goes back.
    Abandon {
        /// The effect.
        id: EffectId,
    },
    /// Tell the observers.
    Emit(RunEvent),
}

/// How long a conversation is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversationSize {
    /// Messages.
    pub messages: u32,
    /// Their bytes, as [`Message::byte_len`](crate::Message::byte_len) counts them.
    pub bytes: u64,
    /// About how many tokens the prompt has, instructions and tools included: what the provider
    /// counted, and a token for each four bytes that it has not.
    pub tokens: u64,
}

/// A tool call to start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolStart {
    /// Its id; the provider's own id of the call is not unique over a run.
    pub id: EffectId,
    /// The call.
    pub call: ToolCall,
    /// Its arguments, parsed.
    pub arguments: Map<String, Value>,
}

/// What a hook or a person is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "point", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ConsultPoint {
    /// The user's input came.
    Prompt,
    /// A turn is about to begin.
    PreIteration {
        /// Turns with tools that were completed.
        tool_turns: u32,
        /// Unproductive turns in a row.
        unproductive: u32,
    },
    /// A model call is about to be made; the parameters may be changed.
    ChatParams {
        /// Turns with tools that were completed.
        tool_turns: u32,
        /// The output cap it will have.
        output_cap: Option<u64>,
    },
    /// A tool is about to be run.
    PreTool {
        /// The call.
        call: ToolCall,
    },
    /// A person is asked whether a tool may be run.
    Approval {
        /// The call.
        call: ToolCall,
    },
    /// The run is about to end as a success.
    Stop {
        /// The answer.
        answer: Option<String>,
    },
    /// The model has answered in text, and somebody may reply.
    Reply,
}

/// What observers hear of a run, in order, each once. Text as it is generated is the driver's to
/// pass on: it may be dropped for a reader that lags, these never.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum RunEvent {
    /// An attempt at a turn began. An attempt after the first starts the turn anew: what was
    /// shown of the one before is void.
    TurnStarted {
        /// The turn, from 1.
        turn: u32,
        /// The attempt, from 1.
        attempt: u32,
    },
    /// A response was kept.
    TurnEnded {
        /// The turn, from 1.
        turn: u32,
        /// Its visible text.
        text: String,
        /// Why the model stopped.
        signal: TerminationSignal,
        /// What it used.
        usage: Usage,
        /// The run's cost so far, as far as it is known; `None` if no price is.
        cost: Option<NanoUsd>,
        /// How many tools it asks for.
        tool_calls: u32,
    },
    /// An attempt failed.
    AttemptFailed {
        /// The turn, from 1.
        turn: u32,
        /// The attempt, from 1.
        attempt: u32,
        /// Why.
        error: ModelError,
        /// When the next attempt is made, in milliseconds; `None`: never.
        retry_in_ms: Option<u64>,
    },
    /// A tool was started.
    ToolStarted {
        /// The provider's id of the call.
        call_id: String,
        /// The tool.
        name: String,
        /// The arguments, as the model wrote them.
        arguments: String,
    },
    /// A tool call was answered.
    ToolEnded {
        /// The provider's id of the call.
        call_id: String,
        /// The tool.
        name: String,
        /// How it ended.
        status: ToolStatus,
        /// How long it ran, in milliseconds.
        duration_ms: u64,
        /// What the model is told.
        content: String,
    },
    /// The loop told the model something on its own behalf.
    Told {
        /// Why: `no_progress`, `empty`, `repair`, `continue`, `policy`, `veto`, `hook`, `watch`.
        why: String,
        /// What was said.
        text: String,
    },
    /// A rule that watches the run fired for the first time.
    Fired(Fired),
    /// The conversation was shortened.
    Compacted {
        /// Messages before.
        before: u32,
        /// Messages after.
        after: u32,
        /// Bytes of the messages before.
        bytes_before: u64,
        /// Bytes after.
        bytes_after: u64,
        /// About how many tokens the prompt had.
        tokens_before: u64,
        /// About how many it has now.
        tokens_after: u64,
        /// What shortened it, where that has a name.
        strategy: String,
        /// The provider had refused the prompt.
        forced: bool,
    },
    /// The conversation could not be shortened, and is as it was.
    CompactionFailed {
        /// Why.
        why: String,
        /// The provider had refused the prompt.
        forced: bool,
        /// How many have failed in a row, with this one.
        in_a_row: u32,
    },
    /// The run is being stopped; tools still have to end.
    Stopping {
        /// Why: the termination it will have.
        reason: String,
        /// Tool calls still to end.
        running: u32,
    },
}
