//! What happened in a run: the kinds of events, in one list.
//!
//! ```text
//! AgentEventKind::TextDelta { text } → {"type":"text_delta", …, "text":"It"}
//! RunEvent::ToolFinished { call_id, … } → AgentEventKind::ToolFinished { call_id, … }
//! ```

use super::agent_event::{CallId, RequestId};
use endstop_core::{
    EffectId, InjectionReason, LimitChanges, ModelError, ModelSwitch, NanoUsd, Outcome,
    ParkDecision, ParkRequest, RuleHit, RunEvent, TerminationSignal, ToolStatus, Usage,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Defines the kinds of events: those that an event of the kernel has with the same fields, and the
/// others. Each has the value of the key `type` in JSON.
macro_rules! kinds {
    (
        $(#[$enum:meta])*
        {
            $($(#[$k_doc:meta])* $Kind:ident = $k_name:literal from $Run:ident $(of $turn:ident)? {
                $($(#[$k_meta:meta])* $k_field:ident: $k_type:ty,)*
            },)*
        }
        {
            $($(#[$o_doc:meta])* $Own:ident = $o_name:literal {
                $($(#[$o_meta:meta])* $o_field:ident: $o_type:ty,)*
            },)*
        }
    ) => {
        $(#[$enum])*
        // The key `type` precedes those of the origin, so the event writes both itself.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[serde(untagged)]
        #[non_exhaustive]
        pub enum AgentEventKind {
            $($(#[$k_doc])* $Kind { $($(#[$k_meta])* $k_field: $k_type,)* },)*
            $($(#[$o_doc])* $Own { $($(#[$o_meta])* $o_field: $o_type,)* },)*
        }

        /// The same kinds as they are read.
        #[derive(Deserialize)]
        #[serde(tag = "type", remote = "AgentEventKind")]
        pub(super) enum Tagged {
            $(#[serde(rename = $k_name)] $Kind { $($(#[$k_meta])* $k_field: $k_type,)* },)*
            $(#[serde(rename = $o_name)] $Own { $($(#[$o_meta])* $o_field: $o_type,)* },)*
        }

        /// The events of the kernel that become kinds.
        #[cfg(test)]
        const OF_KERNEL: &[&str] =
            &[$(stringify!($Run),)* "TurnEnded", "RuleHit", "Parked"];

        impl AgentEventKind {
            /// Returns the value of the key `type` in JSON, for example `text_delta`.
            pub fn name(&self) -> &'static str {
                match self {
                    $(AgentEventKind::$Kind { .. } => $k_name,)*
                    $(AgentEventKind::$Own { .. } => $o_name,)*
                }
            }

            /// Converts an event of the kernel: to one, in order to two, or to none if this version
            /// does not know it.
            pub(crate) fn of_kernel(event: RunEvent) -> [Option<AgentEventKind>; 2] {
                let kind = match event {
                    $(RunEvent::$Run { $($k_field,)* .. } => {
                        AgentEventKind::$Kind { $($k_field: $k_field.into(),)* }
                    })*
                    RunEvent::TurnFinished { text, signal, usage, cost, tool_calls, .. } => {
                        let usage = AgentEventKind::Usage { usage: Box::new(usage), cost };
                        let signal = Box::new(signal);
                        let finished = AgentEventKind::TurnFinished { text, signal, tool_calls };
                        return [Some(usage), Some(finished)];
                    }
                    RunEvent::RuleHit(hit) => AgentEventKind::RuleHit { hit: Box::new(hit) },
                    RunEvent::Parked(request) => AgentEventKind::Parked { request },
                    _ => return [None, None],
                };
                [None, Some(kind)]
            }

            /// Converts the event back into the kernel's. The error is an event that the kernel does
            /// not have, or of which it has more: the usage and the end of a turn are one event there.
            pub fn into_run_event(self, turn: u32) -> Result<RunEvent, AgentEventKind> {
                Ok(match self {
                    $(AgentEventKind::$Kind { $($k_field,)* } => RunEvent::$Run {
                        $($turn: turn,)?
                        $($k_field: Unshare::unshare($k_field),)*
                    },)*
                    AgentEventKind::RuleHit { hit } => RunEvent::RuleHit(*hit),
                    AgentEventKind::Parked { request } => RunEvent::Parked(request),
                    other => return Err(other),
                })
            }
        }
    };
}

/// Converts a field of an event into that of the kernel's event.
trait Unshare<T> {
    fn unshare(self) -> T;
}

impl<T> Unshare<T> for T {
    fn unshare(self) -> T {
        self
    }
}

impl<T> Unshare<T> for Box<T> {
    fn unshare(self) -> T {
        *self
    }
}

impl Unshare<String> for Box<str> {
    fn unshare(self) -> String {
        self.into()
    }
}

impl Unshare<String> for CallId {
    fn unshare(self) -> String {
        self.as_ref().to_owned()
    }
}

kinds! {
    /// What happened in a run.
    ///
    /// The order within a turn is `TurnStarted`, deltas, `Usage`, `TurnFinished`, and then `ToolStarted`
    /// and `ToolFinished` of its calls. [`Finished`](AgentEventKind::Finished) is always the last event,
    /// unless the run is [parked](AgentEventKind::Parked). A reader that lags may miss the rest of a
    /// turn's deltas, but no other event.
    {
        /// An attempt at a turn began. A second attempt starts the turn over: text shown from the
        /// previous one is void.
        TurnStarted = "turn_started" from TurnStarted of turn {
            /// The attempt, from 1.
            attempt: u32,
        },
        /// A hook or an approver changed the arguments of a call before it could start.
        ToolCallChanged = "tool_call_changed" from ToolCallChanged {
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
        /// A hook changed the result of a call; the [`ToolFinished`](AgentEventKind::ToolFinished) that
        /// follows has the new one. The original is in the journal only, because a hook may have removed
        /// a secret from it.
        ToolResultChanged = "tool_result_changed" from ToolResultChanged {
            /// The provider's id of the call.
            call_id: CallId,
            /// Name of the tool.
            name: String,
            /// Status of the call before the change.
            status: ToolStatus,
        },
        /// An attempt failed.
        AttemptFailed = "attempt_failed" from AttemptFailed of turn {
            /// The attempt, from 1.
            attempt: u32,
            /// The error.
            error: Box<ModelError>,
            /// Milliseconds until the next attempt; `None` if there is none.
            retry_in_ms: Option<u64>,
        },
        /// A tool call started.
        ToolStarted = "tool_started" from ToolStarted {
            /// The provider's id of the call.
            call_id: CallId,
            /// Name of the tool.
            name: String,
            /// The arguments as the model wrote them.
            arguments: String,
        },
        /// A tool call was answered.
        ToolFinished = "tool_finished" from ToolFinished {
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
        MessageInjected = "message_injected" from MessageInjected {
            /// The cause of the message.
            why: InjectionReason,
            /// Text of the message.
            text: String,
        },
        /// The conversation was shortened.
        Compacted = "compacted" from Compacted {
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
        CompactionFailed = "compaction_failed" from CompactionFailed {
            /// The reason.
            why: String,
            /// `true` if the provider had refused the prompt.
            forced: bool,
            /// Number of consecutive failures, including this one.
            in_a_row: u32,
        },
        /// The verifier judged an answer.
        Verified = "verified" from Verified {
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
        ModelSwitched = "model_switched" from ModelSwitched of turn {
            /// The models before and after, and the reason.
            #[serde(flatten)]
            switch: Box<ModelSwitch>,
        },
        /// The model gave a hand-over, or a part of one.
        HandOver = "hand_over" from HandOver {
            /// Text of the hand-over.
            text: String,
        },
        /// Limits of the run were changed.
        LimitsChanged = "limits_changed" from LimitsChanged {
            /// The new values of the limits that differ.
            limits: LimitChanges,
        },
        /// The run waits until a window of the subscription begins anew.
        Paused = "paused" from Paused {
            /// The wait in milliseconds.
            wait_ms: u64,
            /// Description of the window.
            evidence: String,
        },
        /// The process was suspended during a model call, whose timeouts do not include that time.
        Suspended = "suspended" from Suspended {
            /// The time in milliseconds.
            duration_ms: u64,
        },
        /// The request of the run was decided, while it was parked.
        Decided = "decided" from Decided {
            /// Id of the request.
            id: EffectId,
            /// The decision.
            decision: ParkDecision,
            /// Time of the decision in Unix milliseconds.
            wall_ms: u64,
        },
        /// The run is being stopped; running tools must still end.
        Stopping = "stopping" from Stopping {
            /// The termination that the run will have.
            reason: String,
            /// Number of tool calls still running.
            running: u32,
        },
    }
    {
        /// Visible text.
        TextDelta = "text_delta" {
            /// The next piece of the text.
            text: String,
        },
        /// Reasoning, if the provider sends its text.
        ReasoningDelta = "reasoning_delta" {
            /// The next piece of the reasoning.
            text: String,
        },
        /// Text of a refusal, if the provider reports refusals separately from text.
        RefusalDelta = "refusal_delta" {
            /// The next piece of the text.
            text: String,
        },
        /// Output that is not part of the turn, such as the input of a tool that the provider runs; or the provider
        /// streams reasoning or arguments but not their text.
        HiddenDelta = "hidden_delta" {
            /// Number of characters of reasoning.
            #[serde(default)]
            reasoning: u64,
            /// Number of characters of tool-call arguments and of other output.
            #[serde(default)]
            arguments: u64,
        },
        /// The model began to write a tool call. The call runs later, if at all: see
        /// [`ToolStarted`](AgentEventKind::ToolStarted).
        ToolCallStarted = "tool_call_started" {
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
        ToolArgumentsDelta = "tool_arguments_delta" {
            /// Position of the call among the calls of the response, from 0.
            index: u32,
            /// The provider's id of the call, if known.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            call_id: Option<CallId>,
            /// The next piece of the JSON text.
            arguments: String,
        },
        /// The tokens of the response that [`TurnFinished`](AgentEventKind::TurnFinished) announces next.
        Usage = "usage" {
            /// Tokens of this response.
            usage: Box<Usage>,
            /// Cost of the run so far; `None` if no price is known. `cost_usd` in JSON, a number of dollars.
            #[serde(rename = "cost_usd", with = "endstop_core::usage::optional_usd", default)]
            cost: Option<NanoUsd>,
        },
        /// A response was accepted and appended to the conversation.
        TurnFinished = "turn_finished" {
            /// Visible text of the response.
            text: String,
            /// The reason why the model stopped.
            signal: Box<TerminationSignal>,
            /// Number of tool calls in the response.
            tool_calls: u32,
        },
        /// A tool call waits for approval; see [`RunHandle::answer`](crate::RunHandle::answer).
        ApprovalRequested = "approval_requested" {
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
        /// A watch rule fired for the first time.
        RuleHit = "rule_hit" {
            /// The rule and the reason.
            hit: Box<RuleHit>,
        },
        /// The run is parked until its request is decided ([`park`](crate::park)). The last event that
        /// this process sends of the run.
        Parked = "parked" {
            /// The request.
            request: Box<ParkRequest>,
        },
        /// A problem that does not affect the run, for example a journal that cannot be written.
        Warning = "warning" {
            /// A description for people.
            message: String,
        },
        /// A nested run has ended: its [`Finished`](AgentEventKind::Finished), as the outer run's handle gets it.
        NestedFinished = "nested_finished" {
            /// The outcome of the run.
            outcome: Arc<Outcome>,
        },
        /// The run has ended. Always the last event.
        Finished = "finished" {
            /// The outcome of the run.
            outcome: Arc<Outcome>,
        },
    }
}

impl AgentEventKind {
    /// Returns the provider's id of the tool call that the event is about.
    pub fn call_id(&self) -> Option<&CallId> {
        match self {
            AgentEventKind::ToolCallChanged { call_id, .. }
            | AgentEventKind::ApprovalRequested { call_id, .. }
            | AgentEventKind::ToolStarted { call_id, .. }
            | AgentEventKind::ToolResultChanged { call_id, .. }
            | AgentEventKind::ToolFinished { call_id, .. } => Some(call_id),
            AgentEventKind::ToolCallStarted { call_id, .. }
            | AgentEventKind::ToolArgumentsDelta { call_id, .. } => call_id.as_ref(),
            _ => None,
        }
    }

    /// `true` for streamed content of a turn, which the turn's end contains as a whole.
    pub fn is_delta(&self) -> bool {
        matches!(
            self,
            AgentEventKind::TextDelta { .. }
                | AgentEventKind::ReasoningDelta { .. }
                | AgentEventKind::RefusalDelta { .. }
                | AgentEventKind::HiddenDelta { .. }
                | AgentEventKind::ToolCallStarted { .. }
                | AgentEventKind::ToolArgumentsDelta { .. }
        )
    }
}

/// Returns the turn of an event of the kernel, if it names one. A resumed run evaluates a response
/// again without starting its turn again.
pub(crate) fn turn_of(event: &RunEvent) -> Option<u32> {
    match event {
        RunEvent::TurnStarted { turn, .. }
        | RunEvent::TurnFinished { turn, .. }
        | RunEvent::AttemptFailed { turn, .. }
        | RunEvent::ModelSwitched { turn, .. } => Some(*turn),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::OF_KERNEL;
    use endstop_core::RunEvent;

    /// A variant that the list of kinds lacks would be dropped: the kernel's list may grow, so a match of it has an arm
    /// for the rest. The error of an unknown name lists the names of all variants.
    #[test]
    fn every_event_of_the_kernel_is_a_kind() {
        let error = serde_json::from_str::<RunEvent>(r#"{"type":"?"}"#).unwrap_err().to_string();
        let (_, names) = error.split_once("expected one of ").expect(&error);
        let names = names.split(" at line").next().unwrap().split(", ").count();
        assert_eq!(OF_KERNEL.len(), names, "{error}\n{OF_KERNEL:?}");
    }
}
