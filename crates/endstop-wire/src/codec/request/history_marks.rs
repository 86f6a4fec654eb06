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

use serde_json::Value;
use std::borrow::Cow;
use std::ops::Range;

/// Returns an imported block without the marks in it; `None` if it is nothing but a mark. The marks
/// of another client would exceed the allowed number, stand in the wrong order, or cost more than
/// was reserved. Arguments of a tool call may have any name and are unchanged.
pub(crate) fn unmarked(json: &str) -> Option<Cow<'_, str>> {
    // An escape may hide a name.
    if !["cache_control", "cachePoint", "\\u"].iter().any(|name| json.contains(name)) {
        return Some(Cow::Borrowed(json));
    }
    let Ok(mut block) = serde_json::from_str::<Value>(json) else {
        return Some(Cow::Borrowed(json));
    };
    if block.get("cachePoint").is_some() {
        return None;
    }
    Some(if remove(&mut block) { Cow::Owned(block.to_string()) } else { Cow::Borrowed(json) })
}

/// Removes the mark of a block, and those of the blocks in it. `true` if there was one.
fn remove(block: &mut Value) -> bool {
    match block {
        Value::Array(blocks) => blocks.iter_mut().fold(false, |found, one| remove(one) | found),
        Value::Object(fields) => {
            let marked = fields.shift_remove("cache_control").is_some();
            let inside =
                fields.iter_mut().filter(|(name, _)| matches!(name.as_str(), "content" | "source"));
            inside.fold(marked, |found, (_, blocks)| remove(blocks) | found)
        }
        _ => false,
    }
}

/// The places for marks in an encoded conversation. They are in messages of the user only, where
/// every request ends unless the provider has paused the model.
#[derive(Clone, Debug, Default)]
pub(crate) struct HistoryMarks {
    /// End of the last block that can carry a mark.
    last: Option<usize>,
    /// The same when the request that the model answered last was made.
    before: Option<usize>,
    /// The marks in the bytes, in order.
    inserted: Vec<Range<usize>>,
}

impl HistoryMarks {
    /// Forgets all places, because another conversation is encoded.
    pub(crate) fn clear(&mut self) {
        *self = HistoryMarks::default();
    }

    /// Adds the end of a block that can carry a mark.
    pub(crate) fn block(&mut self, end: usize) {
        self.last = Some(end);
    }

    /// Notes that a message of the model begins: the request that it answers ended here.
    pub(crate) fn turn(&mut self) {
        self.before = self.last;
    }

    /// Inserts `mark` at each place, `back` bytes before the end of the block.
    pub(crate) fn insert(&mut self, out: &mut Vec<u8>, mark: &[u8], back: usize) {
        let before = self.before.filter(|before| Some(*before) != self.last);
        // The newest place comes first, because it is the more useful one.
        let places = self.last.into_iter().chain(before);
        let mut places: Vec<usize> = places.collect();
        places.reverse();
        for place in places {
            let at = place - back + self.inserted.len() * mark.len();
            out.splice(at..at, mark.iter().copied());
            self.inserted.push(at..at + mark.len());
        }
    }

    /// Removes the marks that were inserted.
    pub(crate) fn remove(&mut self, out: &mut Vec<u8>) {
        for range in self.inserted.drain(..).rev() {
            out.drain(range);
        }
    }
}
