//! The interface of the formats: they take events, and write the closing ones.

use crate::exchange::answer::turns::final_text::FinalText;
use serde_json::Value;

/// The end of a stream at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// These bytes end the stream.
    Now(Vec<u8>),
    /// The stream is inside an event, in reasoning, or has not begun. Try again after more bytes, or
    /// abort the connection.
    Later,
    /// The turn has a tool call or is over, or the format has no clean end: abort the connection.
    Never,
}

/// Follows the events of one format.
pub(super) trait Watch: Send {
    /// Takes an event.
    fn event(&mut self, name: &str, data: &Value);
    /// Takes data that is not JSON.
    fn other(&mut self, _data: &str) {}
    /// Ends the stream between two events.
    fn end(&self, note: &str) -> Ending;
}

/// Values of the closing events, if the stream itself has not sent them.
pub(super) struct Own {
    pub(super) id: String,
    pub(super) at: u64,
    pub(super) model: String,
}

impl Own {
    /// Returns the closing turn with this note as its text. `usage` adds token counts.
    pub(super) fn turn<'a>(&'a self, note: &'a str, usage: bool) -> FinalText<'a> {
        FinalText { model: &self.model, text: note, id: &self.id, at: self.at, usage }
    }
}

/// Position in a turn.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing arrived.
    #[default]
    Before,
    /// The model writes text, or is about to.
    Text,
    /// A tool call arrived, or the turn is over.
    Closed,
}

impl Progress {
    /// Moves on, unless the turn is closed.
    pub(super) fn go(&mut self, next: Progress) {
        if *self != Progress::Closed {
            *self = next;
        }
    }

    /// Ends a turn whose text can be cut at any event. `closing` writes the last events.
    pub(super) fn end(self, closing: impl FnOnce() -> String) -> Ending {
        match self {
            Progress::Closed => Ending::Never,
            Progress::Before => Ending::Later,
            Progress::Text => Ending::Now(closing().into_bytes()),
        }
    }
}
