//! Drops old turns and inserts a note with their number.
//!
//! ```
//! use endstop::compaction::{CompactionRequest, DropOldTurns};
//! use endstop::hook::Compactor;
//! # use endstop::{Message, MessageId, Role, compaction::Compaction};
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let request = CompactionRequest::new(vec![Message::text(MessageId(1), Role::User, "hi")]);
//! let done = DropOldTurns::keep(3).compact(request).await;
//! assert_eq!(done, Compaction::Failed("there are no old turns to drop".into()));
//! # }
//! ```

use super::compactor::{CompactionFuture, Compactor};
use super::messages::{bytes, fresh_id};
use super::request::CompactionRequest;
use super::turns::{Piece, old, pieces};
use endstop_core::{Compaction, Message, Role};

/// Drops old turns, the oldest first, until the conversation meets its target size. The task,
/// pinned messages, the newest turns and everything that the model has not answered yet stay.
///
/// If the provider has refused the prompt and that is not enough, only the last turn counts as new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropOldTurns {
    keep: usize,
}

impl DropOldTurns {
    /// Creates the strategy; the newest `turns` turns stay.
    pub fn keep(turns: usize) -> DropOldTurns {
        DropOldTurns { keep: turns }
    }

    fn drop_old(self, request: &CompactionRequest) -> Option<Vec<Message>> {
        let messages = &request.messages;
        let pieces = pieces(messages, request.task);
        let mut left = bytes(messages);
        let mut gone: Vec<&Piece> = Vec::new();
        // The second pass runs only if the provider refused the prompt: losing newer turns is
        // better than ending the run.
        let keeps = if request.forced { vec![self.keep, 1] } else { vec![self.keep] };
        for keep in keeps {
            for piece in old(&pieces, keep) {
                if left <= request.target {
                    break;
                }
                if !gone.contains(&piece) {
                    left -= bytes(&messages[piece.range.clone()]);
                    gone.push(piece);
                }
            }
        }
        let first = gone.iter().map(|piece| piece.range.start).min()?;
        // A dropped note of an earlier compaction stands for turns as well, so the new note adds
        // its number.
        let before = |piece: &&Piece| told(&messages[piece.range.start]);
        let turns = gone.iter().filter(|piece| piece.turn).count() as u64
            + gone.iter().filter_map(before).sum::<u64>();
        let mut short = Vec::with_capacity(messages.len());
        for (at, message) in messages.iter().enumerate() {
            if at == first {
                short.push(Message::text(fresh_id(messages), Role::User, note(turns)));
            }
            if !gone.iter().any(|piece| piece.range.contains(&at)) {
                short.push(message.clone());
            }
        }
        // A note can be longer than the turns that it replaces.
        (bytes(&short) < bytes(messages)).then_some(short)
    }
}

impl Default for DropOldTurns {
    /// Creates the strategy with the newest three turns kept.
    fn default() -> DropOldTurns {
        DropOldTurns::keep(3)
    }
}

impl Compactor for DropOldTurns {
    fn compact(&self, request: CompactionRequest) -> CompactionFuture<'_> {
        let short = self.drop_old(&request);
        Box::pin(std::future::ready(match short {
            Some(messages) => Compaction::done("drop", messages),
            None => Compaction::Failed("there are no old turns to drop".to_owned()),
        }))
    }
}

const NOTE: &str = " earlier turns were left out to keep this conversation short]";

fn note(turns: u64) -> String {
    format!("[{turns}{NOTE}")
}

/// Returns the number of dropped turns that an earlier note states.
fn told(message: &Message) -> Option<u64> {
    let text = Some(message).filter(|message| message.role == Role::User)?.plain_text();
    text.strip_prefix('[')?.strip_suffix(NOTE)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compaction::test_support::{conversation, says, turn, valid};

    #[test]
    fn oldest_turns_are_dropped_until_target() {
        let mut request = CompactionRequest::new(conversation(8, 1_000));
        request.target = 5_000;
        let short = DropOldTurns::keep(2).drop_old(&request).unwrap();
        valid(&request, &short);
        assert_eq!(short[0], request.messages[0], "the task");
        assert_eq!(says(&short[1]), note(4));
        assert_eq!(short[2..], request.messages[9..]);
        // Compact again: the new note adds the number of the first one.
        let mut request = CompactionRequest { messages: short, ..request };
        request.target = 3_000;
        let short = DropOldTurns::keep(2).drop_old(&request).unwrap();
        valid(&request, &short);
        assert_eq!(says(&short[1]), note(6));
        assert_eq!(short.len(), 6);
        let request = CompactionRequest { messages: short, ..request };
        assert_eq!(DropOldTurns::keep(2).drop_old(&request), None, "two turns stay");
        let request = CompactionRequest { forced: true, target: 100, ..request };
        let short = DropOldTurns::keep(2).drop_old(&request).unwrap();
        assert_eq!((says(&short[1]), short.len()), (note(7), 4));
    }

    #[test]
    fn pinned_result_stays_with_its_call() {
        let mut messages = conversation(6, 1_000);
        messages[4] = turn(2, 1_000, true).1;
        let mut request = CompactionRequest::new(messages);
        request.target = 0;
        let short = DropOldTurns::keep(1).drop_old(&request).unwrap();
        valid(&request, &short);
        assert_eq!(says(&short[1]), note(4));
        assert_eq!(short[2..4], request.messages[3..5]);
        assert_eq!(short[4..], request.messages[11..]);
    }
}
