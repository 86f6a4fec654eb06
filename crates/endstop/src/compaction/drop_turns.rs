//! Leaves out old turns, whole, and says how many.
//!
//! ```
//! use endstop::compaction::{CompactionRequest, DropOldTurns};
//! use endstop::hook::Compactor;
//! # use endstop::{Compaction, Message, MessageId, Role};
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let request = CompactionRequest::new(vec![Message::text(MessageId(1), Role::User, "hi")]);
//! let done = DropOldTurns::keep(3).compact(request).await;
//! assert_eq!(done, Compaction::Failed("there are no old turns to leave out".into()));
//! # }
//! ```

use super::turns::{Piece, old, pieces};
use super::{CompactionRequest, bytes, fresh_id};
use crate::hook::{CompactionFuture, Compactor};
use endstop_core::{Compaction, Message, Role};

/// Leaves out old turns, the oldest first, until the conversation is short enough. The task, what is
/// pinned, the newest turns and what the model has not answered yet stay.
///
/// Where the provider has refused the prompt and that is not enough, all turns but the last are old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropOldTurns {
    keep: usize,
}

impl DropOldTurns {
    /// Keeps the newest `turns` turns.
    pub fn keep(turns: usize) -> DropOldTurns {
        DropOldTurns { keep: turns }
    }

    fn drop_old(self, request: &CompactionRequest) -> Option<Vec<Message>> {
        let messages = &request.messages;
        let pieces = pieces(messages, request.task);
        let mut left = bytes(messages);
        let mut gone: Vec<&Piece> = Vec::new();
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
        (bytes(&short) < bytes(messages)).then_some(short)
    }
}

impl Default for DropOldTurns {
    /// Three turns are kept.
    fn default() -> DropOldTurns {
        DropOldTurns::keep(3)
    }
}

impl Compactor for DropOldTurns {
    fn compact(&self, request: CompactionRequest) -> CompactionFuture<'_> {
        let short = self.drop_old(&request);
        Box::pin(std::future::ready(match short {
            Some(messages) => Compaction::done("drop", messages),
            None => Compaction::Failed("there are no old turns to leave out".to_owned()),
        }))
    }
}

const NOTE: &str = " earlier turns were left out to keep this conversation short]";

fn note(turns: u64) -> String {
    format!("[{turns}{NOTE}")
}

/// How many turns an earlier note says are gone.
fn told(message: &Message) -> Option<u64> {
    let text = Some(message).filter(|message| message.role == Role::User)?.plain_text();
    text.strip_prefix('[')?.strip_suffix(NOTE)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compaction::tests::{conversation, says, turn, valid};

    #[test]
    fn whole_turns_go_the_oldest_first_until_it_is_short_enough() {
        let mut request = CompactionRequest::new(conversation(8, 1_000));
        request.target = 5_000;
        let short = DropOldTurns::keep(2).drop_old(&request).unwrap();
        valid(&request, &short);
        assert_eq!(short[0], request.messages[0], "the task");
        assert_eq!(says(&short[1]), note(4));
        assert_eq!(short[2..], request.messages[9..]);
        // Once more: the note counts what the first one said.
        let mut request = CompactionRequest { messages: short, ..request };
        request.target = 3_000;
        let short = DropOldTurns::keep(2).drop_old(&request).unwrap();
        valid(&request, &short);
        assert_eq!(says(&short[1]), note(6));
        assert_eq!(short.len(), 6);
        let request = CompactionRequest { messages: short, ..request };
        assert_eq!(DropOldTurns::keep(2).drop_old(&request), None, "two turns are kept");
        let request = CompactionRequest { forced: true, target: 100, ..request };
        let short = DropOldTurns::keep(2).drop_old(&request).unwrap();
        assert_eq!((says(&short[1]), short.len()), (note(7), 4));
    }

    #[test]
    fn what_is_pinned_stays_with_its_call() {
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
