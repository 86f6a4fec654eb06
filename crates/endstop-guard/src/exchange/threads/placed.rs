//! The result of placing a request.

use super::seat::{Seat, ThreadId};
use endstop_core::Message;

/// The kind of a model call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A turn of the main agent.
    Main,
    /// A turn of a sub-agent.
    Sub,
    /// A call without tools: a title, a router, a lookup. It costs, and is not a turn.
    Auxiliary,
    /// The summary of a history that became too long. It is not a part of the conversation.
    Compaction {
        /// `true` if it offers tools. Nothing then distinguishes it from a turn but what its client says, so
        /// it counts as one.
        offers_tools: bool,
    },
}

impl Kind {
    /// `true` if the call is a turn of a conversation.
    pub fn is_turn(self) -> bool {
        matches!(self, Kind::Main | Kind::Sub)
    }
}

/// The relation of a request to the previous one of its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Attempt {
    /// A new request.
    First,
    /// The same bytes again before an answer: an attempt of the same turn.
    Repeat,
    /// The same history after a failure, with other parameters: an attempt of the same turn. Claude
    /// Code leaves out features after a status of 400.
    Changed,
}

/// The change of a thread's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum History {
    /// The thread is new to the table. It may be older, for example if guard started later.
    New,
    /// Messages were added, or nothing changed.
    Grown,
    /// The history became shorter or begins differently, as after a compaction.
    Rewritten,
}

/// A tool result that answers a call which the table knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolAnswer {
    /// The id of the call, as the provider's response had it.
    pub call_id: String,
    /// The result, as the model reads it.
    pub text: String,
    /// `true` if the client marked the result as an error.
    pub is_error: bool,
}

/// A request with its place.
#[derive(Clone, Debug)]
pub struct Placed {
    /// The run and the thread.
    pub seat: Seat,
    /// The thread that started this one, if it is known.
    pub parent: Option<ThreadId>,
    /// The kind of the call.
    pub kind: Kind,
    /// Number of the turn in its thread, from 1; 0 for a call that is not a turn.
    pub turn: u64,
    /// New request or attempt.
    pub attempt: Attempt,
    /// Change of the history.
    pub history: History,
    /// Messages that the thread has not sent before. In a grown history these are the messages of
    /// the user and the system; the model's own turns and tool results are left out. In a new or
    /// rewritten history these are all messages.
    pub input: Vec<Message>,
    /// Results of calls that are open in the thread, each reported once.
    pub results: Vec<ToolAnswer>,
    /// Number of new results that answer no open call: forged, repeated, or of a call that was
    /// made before guard started.
    pub unmatched: usize,
    /// Upper bound of the prompt's tokens: the bytes of the body, and of the earlier requests and
    /// responses that it continues by id.
    pub prompt_bytes: u64,
    /// `false` if the request continues a response that the table does not know, so that
    /// `prompt_bytes` is not a bound.
    pub prompt_known: bool,
    /// The thread that had to leave the table, because the table is full.
    pub dropped: Option<Seat>,
}
