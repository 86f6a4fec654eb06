//! The multi-turn state of a run: messages, iterations, time, tool calls and streaming state.
//!
//! The kernel owns it; observers read it through [`Run::state`](crate::Run::state).
//!
//! Source: Burnside's `MultiTurnState` and `IterationManager` (1-based iterations, limits reached
//! at equality, remaining time never negative).

use crate::message::{Message, MessageId, Part, Role, ToolResult, ToolStatus};
use crate::signal::TerminationSignal;
use crate::streaming::StreamingState;
use crate::termination::Termination;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A tool call that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletedCall {
    /// The provider's id of the call.
    pub call_id: String,
    /// Name of the tool.
    pub name: String,
    /// Status of the call.
    pub status: ToolStatus,
    /// The iteration that requested the call, from 1.
    pub iteration: u32,
}

/// The multi-turn state of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MultiTurnState {
    /// The conversation, append-only within an epoch.
    pub messages: Vec<Message>,
    /// Number of compactions so far. After a change, a cached encoding of the messages is void.
    pub epoch: u64,
    /// The current or last iteration, from 1; 0 before the first.
    pub iteration: u32,
    /// Maximum number of iterations, if limited.
    pub iteration_limit: Option<u32>,
    /// Start of the run on its own monotonic clock (zero by definition).
    pub started_at: Duration,
    /// Start of the last iteration, on the same clock.
    pub last_iteration_at: Option<Duration>,
    /// Wall-clock start in Unix milliseconds, for display only.
    pub started_wall_ms: Option<u64>,
    /// The streaming state.
    pub streaming: StreamingState,
    /// Ids of the current turn's calls that are not answered yet.
    pub pending_calls: Vec<String>,
    /// All calls that have ended; each call is added once.
    pub completed_calls: Vec<CompletedCall>,
    /// `true` while the run continues.
    pub should_continue: bool,
    /// The reason why the last response stopped, also of one that failed.
    pub last_signal: Option<TerminationSignal>,
    /// The termination; set once.
    ending: Option<Termination>,
    next_message: u64,
}

impl MultiTurnState {
    /// Creates a state that starts with this conversation.
    pub fn new(messages: Vec<Message>, epoch: u64) -> MultiTurnState {
        // The caller's ids may have gaps; a new id only has to be larger than all of them.
        let next_message = messages.iter().map(|m| m.id.0.saturating_add(1)).max().unwrap_or(1);
        MultiTurnState {
            messages,
            epoch,
            should_continue: true,
            next_message,
            ..MultiTurnState::default()
        }
    }

    /// Returns the termination; `None` while the run continues.
    pub fn ending(&self) -> Option<Termination> {
        self.ending
    }

    /// Sets the termination. Returns `false`, and changes nothing, if it is already set.
    pub fn end(&mut self, termination: Termination) -> bool {
        if self.ending.is_some() {
            return false;
        }
        self.ending = Some(termination);
        self.should_continue = false;
        self.streaming.abort();
        true
    }

    /// Returns the rest of `limit` at `now`; never negative.
    pub fn remaining(&self, limit: Duration, now: Duration) -> Duration {
        limit.saturating_sub(now.saturating_sub(self.started_at))
    }

    /// Appends a message with the next id.
    pub fn push(&mut self, role: Role, parts: Vec<Part>) -> MessageId {
        let id = MessageId(self.next_message);
        // A third-party history may contain the largest id.
        self.next_message = self.next_message.saturating_add(1);
        self.messages.push(Message::new(id, role, parts));
        id
    }

    /// Leaves out the ids of messages that are not kept.
    pub(crate) fn skip(&mut self, number: usize) {
        self.next_message = self.next_message.saturating_add(number as u64);
    }

    /// Removes the first messages, for a run whose conversation is needed no more. Ids are not reused.
    pub(crate) fn forget(&mut self, number: usize) {
        self.messages.drain(..number);
    }

    /// Replaces the conversation and starts a new epoch.
    pub fn replace(&mut self, messages: Vec<Message>) {
        // Ids of dropped messages are not reused, because observers may still refer to them.
        self.next_message = messages
            .iter()
            .map(|m| m.id.0.saturating_add(1))
            .max()
            .unwrap_or(1)
            .max(self.next_message);
        self.messages = messages;
        self.epoch += 1;
    }

    /// Moves a pending call to the completed ones. Returns `false` if the call was not pending.
    pub fn complete(&mut self, result: &ToolResult) -> bool {
        let Some(at) = self.pending_calls.iter().position(|id| *id == result.call_id) else {
            return false;
        };
        self.pending_calls.swap_remove(at);
        self.completed(result);
        true
    }

    /// Completes several calls, as [`complete`](MultiTurnState::complete) does for one. Takes one
    /// pass if the results are in the order of the pending calls, which is the normal case.
    pub fn complete_all<'a>(&mut self, results: impl IntoIterator<Item = &'a ToolResult>) {
        let mut pending = std::mem::take(&mut self.pending_calls).into_iter().peekable();
        for result in results {
            if pending.next_if(|id| *id == result.call_id).is_some() {
                self.completed(result);
                continue;
            }
            // Out of order: search the remaining pending calls.
            self.pending_calls.extend(pending);
            self.complete(result);
            pending = std::mem::take(&mut self.pending_calls).into_iter().peekable();
        }
        self.pending_calls.extend(pending);
    }

    fn completed(&mut self, result: &ToolResult) {
        self.completed_calls.push(CompletedCall {
            call_id: result.call_id.clone(),
            name: result.name.clone(),
            status: result.status,
            iteration: self.iteration,
        });
    }
}
