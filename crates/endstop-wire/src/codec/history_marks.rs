//! The cache marks inside an encoded conversation.
//!
//! ```text
//! request 1: user*
//! request 2: user* assistant result*          (* marked)
//! request 3: user  assistant result* assistant result*
//! ```
//!
//! The marks move with the end of the conversation, so they are inserted into the encoded bytes for
//! one call, and removed before the next message is appended.

use std::ops::Range;

/// Number of marks that a conversation may have, next to those of the tools and the system prompt.
const MOST: usize = 2;

/// The places for marks in an encoded conversation. They are in messages of the user only, where
/// every request ends unless the provider has paused the model.
#[derive(Clone, Debug, Default)]
pub(super) struct HistoryMarks {
    /// End of the last block that can carry a mark.
    last: Option<usize>,
    /// The same when the request that the model answered last was made.
    before: Option<usize>,
    /// Number of marks that imported blocks already carry.
    own: usize,
    /// The marks in the bytes, in order.
    inserted: Vec<Range<usize>>,
}

impl HistoryMarks {
    /// Forgets all places, because another conversation is encoded.
    pub(super) fn clear(&mut self) {
        *self = HistoryMarks::default();
    }

    /// Adds the end of a block that can carry a mark.
    pub(super) fn block(&mut self, end: usize) {
        self.last = Some(end);
    }

    /// Notes that a message of the model begins: the request that it answers ended here.
    pub(super) fn turn(&mut self) {
        self.before = self.last;
    }

    /// Counts the marks of an imported block.
    pub(super) fn import(&mut self, json: &str) {
        self.own +=
            json.matches("\"cache_control\"").count() + json.matches("\"cachePoint\"").count();
    }

    /// Inserts `mark` at each place, `back` bytes before the end of the block.
    pub(super) fn insert(&mut self, out: &mut Vec<u8>, mark: &[u8], back: usize) {
        let before = self.before.filter(|before| Some(*before) != self.last);
        // The newest place comes first, because it is the more useful one.
        let places = self.last.into_iter().chain(before);
        let mut places: Vec<usize> = places.take(MOST.saturating_sub(self.own)).collect();
        places.reverse();
        for place in places {
            let at = place - back + self.inserted.len() * mark.len();
            out.splice(at..at, mark.iter().copied());
            self.inserted.push(at..at + mark.len());
        }
    }

    /// Removes the marks that were inserted.
    pub(super) fn remove(&mut self, out: &mut Vec<u8>) {
        for range in self.inserted.drain(..).rev() {
            out.drain(range);
        }
    }
}
