//! Elides old tool results: what a tool gave becomes a short note of how much it was.
//!
//! ```
//! use endstop::compaction::{CompactionRequest, ElideToolResults};
//! use endstop::hook::Compactor;
//! # use endstop::{Compaction, Message, MessageId, Role};
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let request = CompactionRequest::new(vec![Message::text(MessageId(1), Role::User, "hi")]);
//! let done = ElideToolResults::keep(3).compact(request).await;
//! assert_eq!(done, Compaction::Failed("no old tool result is long enough".into()));
//! # }
//! ```

use super::turns::{Piece, older_than, pieces};
use super::{CompactionRequest, bytes};
use crate::hook::{CompactionFuture, Compactor};
use endstop_core::{Compaction, Message, Part, ToolResult, history};

/// What a result in the open turn keeps of its beginning and of its end, in bytes.
const HEAD: usize = 2048;
const TAIL: usize = 1024;

/// Replaces old tool results by notes; the newest turns are untouched, and so is what is pinned.
///
/// Where the provider has refused the prompt and that is not enough, it goes on with newer turns, and
/// at last cuts the middle out of the long results that the model has not read yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElideToolResults {
    keep: usize,
}

impl ElideToolResults {
    /// Leaves the newest `turns` turns alone.
    pub fn keep(turns: usize) -> ElideToolResults {
        ElideToolResults { keep: turns }
    }

    fn elide(self, request: &CompactionRequest) -> Option<Vec<Message>> {
        let mut messages = request.messages.clone();
        let pieces = pieces(&messages, request.task);
        let old = older_than(&pieces, self.keep);
        let mut changed = false;
        for piece in &pieces[..old] {
            changed |= each_result(&mut messages, piece, note);
        }
        if request.forced {
            for piece in &pieces[old..] {
                if bytes(&messages) <= request.target {
                    break;
                }
                changed |= each_result(&mut messages, piece, note);
            }
            if bytes(&messages) > request.target {
                let open = history::open_from(&messages)..messages.len();
                let open = Piece { range: open, turn: true, stays: false };
                changed |= each_result(&mut messages, &open, cut);
            }
        }
        changed.then_some(messages)
    }
}

impl Default for ElideToolResults {
    /// Three turns are left alone.
    fn default() -> ElideToolResults {
        ElideToolResults::keep(3)
    }
}

impl Compactor for ElideToolResults {
    fn compact(&self, request: CompactionRequest) -> CompactionFuture<'_> {
        let elided = self.elide(&request);
        Box::pin(std::future::ready(match elided {
            Some(messages) => Compaction::done("elide", messages),
            None => Compaction::Failed("no old tool result is long enough".to_owned()),
        }))
    }
}

/// Replaces what results say where that is shorter; whether any was.
fn each_result(
    messages: &mut [Message],
    piece: &Piece,
    shorter: fn(&ToolResult) -> String,
) -> bool {
    let mut changed = false;
    for message in messages[piece.range.clone()].iter_mut().filter(|message| !message.pinned) {
        for part in &mut message.parts {
            let Part::ToolResult(result) = part else { continue };
            // What is not twice as long is not worth it; nor is a note, ever.
            let short = shorter(result);
            if short.len() * 2 < result.content.len() && !result.pinned {
                result.content = short;
                changed = true;
            }
        }
    }
    changed
}

fn note(result: &ToolResult) -> String {
    let (size, name, status) = (result.content.len(), &result.name, result.status.as_str());
    format!("[left out: {size} bytes that `{name}` gave, {status}]")
}

/// All of it, where it is not long.
fn cut(result: &ToolResult) -> String {
    let text = &result.content;
    let head = (0..=HEAD).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let tail = text.len().saturating_sub(TAIL);
    let tail = (tail..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    let Some(left_out) = tail.checked_sub(head) else { return text.clone() };
    let note = format!("\n[left out here: {left_out} bytes that `{}` gave]\n", result.name);
    format!("{}{note}{}", &text[..head], &text[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compaction::tests::{conversation, says, turn, valid};

    #[test]
    fn old_results_become_notes_and_the_newest_turns_are_untouched() {
        let request = CompactionRequest::new(conversation(5, 4_000));
        let short = ElideToolResults::keep(2).elide(&request).unwrap();
        valid(&request, &short);
        assert_eq!(says(&short[2]), "[left out: 4000 bytes that `look` gave, ok]");
        assert_eq!(says(&short[6]), "[left out: 4000 bytes that `look` gave, ok]");
        assert_eq!(short[7..], request.messages[7..], "two turns are as they were");
        let again = CompactionRequest::new(short);
        assert!(ElideToolResults::keep(2).elide(&again).is_none(), "a note is no result to elide");
    }

    #[test]
    fn what_is_pinned_or_short_stays() {
        let mut messages = conversation(5, 4_000);
        messages[2] = turn(1, 4_000, true).1;
        messages[4] = turn(2, 30, false).1;
        let request = CompactionRequest::new(messages);
        let short = ElideToolResults::keep(2).elide(&request).unwrap();
        valid(&request, &short);
        assert_eq!(short[..5], request.messages[..5]);
        assert_ne!(short[6], request.messages[6]);
    }

    #[test]
    fn a_refusal_reaches_the_newest_results_too() {
        let mut request = CompactionRequest::new(conversation(2, 40_000));
        assert!(ElideToolResults::keep(3).elide(&request).is_none());
        (request.forced, request.target) = (true, 50_000);
        let short = ElideToolResults::keep(3).elide(&request).unwrap();
        assert_eq!(short[3..], request.messages[3..], "one was enough");
        request.target = 10_000;
        let short = ElideToolResults::keep(3).elide(&request).unwrap();
        valid(&request, &short);
        let cut = says(&short[4]);
        assert!(cut.contains("[left out here: 36928 bytes that `look` gave]"), "{cut}");
        assert!(bytes(&short) < 10_000, "{}", bytes(&short));
    }
}
