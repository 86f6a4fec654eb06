//! Splits a conversation into pieces that are removed as a whole, so that calls and results stay
//! paired.
//!
//! ```text
//! let pieces = pieces(&messages, task);           // everything before the unanswered turn
//! for piece in old(&pieces, keep) { … }           // the oldest first, without the newest turns
//! ```

use endstop_core::{Message, MessageId, Role, history};
use std::ops::Range;

/// Messages that stay or go together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) range: Range<usize>,
    /// `true` for a turn of the model with the results of its calls; `false` for a message to the
    /// model.
    pub(super) turn: bool,
    /// `true` for the task, instructions and pinned messages, which must stay.
    pub(super) stays: bool,
}

/// Returns the pieces before the part that the model has not answered yet.
pub(super) fn pieces(messages: &[Message], task: Option<MessageId>) -> Vec<Piece> {
    let open = history::open_from(messages);
    let mut pieces: Vec<Piece> = Vec::new();
    for (at, message) in messages.iter().enumerate().take(open) {
        let pinned = message.pinned || message.tool_results().any(|result| result.pinned);
        match pieces.last_mut() {
            // Results belong to the turn of their calls, because providers refuse a result without
            // its call.
            Some(last) if last.turn && message.role == Role::Tool => {
                last.range.end = at + 1;
                last.stays |= pinned;
            }
            _ => {
                let turn = message.role == Role::Assistant;
                let said = message.role == Role::User && task != Some(message.id);
                // Everything else stays, because a run cannot do without its task and its
                // instructions.
                let stays = pinned || !(turn || said);
                pieces.push(Piece { range: at..at + 1, turn, stays });
            }
        }
    }
    pieces
}

/// Returns the number of pieces older than the newest `keep` turns. The unanswered turn is one of
/// them.
pub(super) fn older_than(pieces: &[Piece], keep: usize) -> usize {
    // The unanswered turn is not among the pieces, so it takes one of the `keep` turns.
    let Some(more) = keep.checked_sub(1).filter(|more| *more > 0) else { return pieces.len() };
    let turns = pieces.iter().enumerate().filter(|(_, piece)| piece.turn);
    turns.rev().nth(more - 1).map_or(0, |(at, _)| at)
}

/// Returns the old pieces that may be removed, the oldest first.
pub(super) fn old(pieces: &[Piece], keep: usize) -> impl Iterator<Item = &Piece> {
    pieces[..older_than(pieces, keep)].iter().filter(|piece| !piece.stays)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compaction::test_support::{conversation, turn};

    #[test]
    fn unanswered_turn_counts_as_newest() {
        // The task, then turns of two messages each; the last is unanswered.
        let messages = conversation(4, 10);
        let pieces = pieces(&messages, Some(messages[0].id));
        assert_eq!(pieces.len(), 4, "{pieces:?}");
        assert_eq!((pieces[0].stays, pieces[0].turn), (true, false));
        assert_eq!(pieces[1].range, 1..3);
        let old = |keep| old(&pieces, keep).map(|piece| piece.range.start).collect::<Vec<_>>();
        assert_eq!(old(1), [1, 3, 5]);
        assert_eq!(old(2), [1, 3]);
        assert!(old(4).is_empty());
        assert_eq!(old(0), [1, 3, 5], "the open one is never old");
    }

    #[test]
    fn pin_keeps_its_whole_turn() {
        let mut messages = conversation(3, 10);
        messages[2] = turn(1, 10, true).1;
        let pieces = pieces(&messages, Some(messages[0].id));
        assert_eq!(pieces.iter().map(|piece| piece.stays).collect::<Vec<_>>(), [true, true, false]);
    }
}
