//! The state of a run over its turns: messages, iterations, time, tool calls, the stream.
//!
//! The kernel owns one; an observer reads it through [`Run::state`](crate::Run::state).
//!
//! Source: Burnside's `MultiTurnState` and `IterationManager` (1-based iterations, limits met at
//! equality, remaining time never negative).

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
    /// The tool's name.
    pub name: String,
    /// How it ended.
    pub status: ToolStatus,
    /// The iteration that asked for it, from 1.
    pub iteration: u32,
}

/// The state of a run over its turns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MultiTurnState {
    /// The conversation, append-only within an epoch.
    pub messages: Vec<Message>,
    /// Counts compactions: messages of an older epoch must be encoded anew.
    pub epoch: u64,
    /// The iteration that is under way or was last, from 1; 0 before the first.
    pub iteration: u32,
    /// The most iterations there may be, or none.
    pub iteration_limit: Option<u32>,
    /// When the run started, on its own monotonic clock (zero by definition).
    pub started_at: Duration,
    /// When the last iteration began, on the same clock.
    pub last_iteration_at: Option<Duration>,
    /// Wall-clock start in Unix milliseconds, for display only.
    pub started_wall_ms: Option<u64>,
    /// Where the stream is.
    pub streaming: StreamingState,
    /// Ids of this cycle's calls that are not answered yet.
    pub pending_calls: Vec<String>,
    /// All calls that have ended; each moves here once.
    pub completed_calls: Vec<CompletedCall>,
    /// Whether the run goes on.
    pub should_continue: bool,
    /// Why the last response stopped.
    pub last_signal: Option<TerminationSignal>,
    /// How the run ended; set once.
    ending: Option<Termination>,
    next_message: u64,
}

impl MultiTurnState {
    /// A state that begins with this conversation.
    pub fn new(messages: Vec<Message>, epoch: u64) -> MultiTurnState {
        let next_message = messages.iter().map(|m| m.id.0 + 1).max().unwrap_or(1);
        MultiTurnState {
            messages,
            epoch,
            should_continue: true,
            next_message,
            ..MultiTurnState::default()
        }
    }

    /// How the run ended; `None` while it goes on.
    pub fn ending(&self) -> Option<Termination> {
        self.ending
    }

    /// Sets the ending; `false` (and nothing changes) where there is one already.
    pub fn end(&mut self, termination: Termination) -> bool {
        if self.ending.is_some() {
            return false;
        }
        self.ending = Some(termination);
        self.should_continue = false;
        self.streaming.abort();
        true
    }

    /// What is left of `limit` at `now`; never negative.
    pub fn remaining(&self, limit: Duration, now: Duration) -> Duration {
        limit.saturating_sub(now.saturating_sub(self.started_at))
    }

    /// Appends a message and gives it the next id.
    pub fn push(&mut self, role: Role, parts: Vec<Part>) -> MessageId {
        let id = MessageId(self.next_message);
        self.next_message += 1;
        self.messages.push(Message::new(id, role, parts));
        id
    }

    /// Replaces the conversation: a new epoch.
    pub fn replace(&mut self, messages: Vec<Message>) {
        self.next_message =
            messages.iter().map(|m| m.id.0 + 1).max().unwrap_or(1).max(self.next_message);
        self.messages = messages;
        self.epoch += 1;
    }

    /// Moves a pending call to the completed ones; `false` where it was not pending.
    pub fn complete(&mut self, result: &ToolResult) -> bool {
        let Some(at) = self.pending_calls.iter().position(|id| *id == result.call_id) else {
            return false;
        };
        self.pending_calls.swap_remove(at);
        self.completed(result);
        true
    }

    /// As [`complete`](MultiTurnState::complete) for each of the results: in one pass where they
    /// come in the order in which their calls are pending.
    pub fn complete_all<'a>(&mut self, results: impl IntoIterator<Item = &'a ToolResult>) {
        let mut pending = std::mem::take(&mut self.pending_calls).into_iter().peekable();
        for result in results {
            if pending.next_if(|id| *id == result.call_id).is_some() {
                self.completed(result);
                continue;
            }
            // Out of order: what is left is searched.
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
