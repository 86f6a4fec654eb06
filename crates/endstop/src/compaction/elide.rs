//! Replaces old tool results by short notes that state their size.
//!
//! ```
//! use endstop::compaction::{CompactionRequest, ElideToolResults};
//! use endstop::hook::Compactor;
//! # use endstop::{Message, MessageId, Role, compaction::Compaction};
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let request = CompactionRequest::new(vec![Message::text(MessageId(1), Role::User, "hi")]);
//! let done = ElideToolResults::keep(3).compact(request).await;
//! assert_eq!(done, Compaction::Failed("no old tool result is long enough".into()));
//! # }
//! ```

use super::compactor::{CompactionFuture, Compactor};
use super::messages::bytes;
use super::request::CompactionRequest;
use super::turns::{Piece, older_than, pieces};
use endstop_core::{Compaction, Message, Part, ToolResult, history};

/// Bytes that remain of the start and of the end of a result in the unanswered turn.
const HEAD: usize = 2048;
const TAIL: usize = 1024;

/// Replaces old tool results by notes. The newest turns and pinned results stay unchanged.
///
/// If the provider has refused the prompt and that is not enough, it continues with newer turns,
/// and finally removes the middle of long results that the model has not read yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElideToolResults {
    keep: usize,
}

impl ElideToolResults {
    /// Creates the strategy; the newest `turns` turns stay unchanged.
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
        // After a refusal, go from old to new and stop as soon as the target is met.
        if request.forced {
            for piece in &pieces[old..] {
                if bytes(&messages) <= request.target {
                    break;
                }
                changed |= each_result(&mut messages, piece, note);
            }
            // The model has not read these results yet, so they keep their start and end.
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
    /// Creates the strategy with the newest three turns unchanged.
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

/// Replaces the content of results if that makes them shorter. Returns `true` if any was replaced.
fn each_result(
    messages: &mut [Message],
    piece: &Piece,
    shorter: fn(&ToolResult) -> String,
) -> bool {
    let mut changed = false;
    for message in messages[piece.range.clone()].iter_mut().filter(|message| !message.pinned) {
        for part in &mut message.parts {
            let Part::ToolResult(result) = part else { continue };
            // Require half the size: a smaller gain is not worth the loss, and a note is never
            // replaced by another note.
            let short = shorter(result);
            if result.pinned {
                continue;
            }
            if short.len() * 2 < result.content.len() {
                result.content = short;
                changed = true;
            }
            // The text names them, so the model still reads that there was an image.
            changed |= !result.attachments.is_empty();
            result.attachments.clear();
        }
    }
    changed
}

fn note(result: &ToolResult) -> String {
    let (size, name, status) = (result.content.len(), &result.name, result.status.as_str());
    format!("[removed to save space: {size} bytes of output from `{name}` ({status})]")
}

/// Removes the middle of a long result; returns a short one unchanged.
fn cut(result: &ToolResult) -> String {
    let text = &result.content;
    // Cut at character boundaries: slicing inside a character would panic.
    let head = (0..=HEAD).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let tail = text.len().saturating_sub(TAIL);
    let tail = (tail..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    // If the head and the tail overlap, the result is short enough.
    let Some(left_out) = tail.checked_sub(head) else { return text.clone() };
    let note = format!(
        "\n[removed here to save space: {left_out} bytes of output from `{}`]\n",
        result.name
    );
    format!("{}{note}{}", &text[..head], &text[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compaction::test_support::{conversation, says, turn, valid};

    #[test]
    fn old_results_become_notes() {
        let request = CompactionRequest::new(conversation(5, 4_000));
        let short = ElideToolResults::keep(2).elide(&request).unwrap();
        valid(&request, &short);
        assert_eq!(
            says(&short[2]),
            "[removed to save space: 4000 bytes of output from `look` (ok)]"
        );
        assert_eq!(
            says(&short[6]),
            "[removed to save space: 4000 bytes of output from `look` (ok)]"
        );
        assert_eq!(short[7..], request.messages[7..], "two turns are as they were");
        let again = CompactionRequest::new(short);
        assert!(ElideToolResults::keep(2).elide(&again).is_none(), "a note is never replaced");
    }

    #[test]
    fn pinned_or_short_results_stay() {
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
    fn refused_prompt_shortens_newest_results() {
        let mut request = CompactionRequest::new(conversation(2, 40_000));
        assert!(ElideToolResults::keep(3).elide(&request).is_none());
        (request.forced, request.target) = (true, 50_000);
        let short = ElideToolResults::keep(3).elide(&request).unwrap();
        assert_eq!(short[3..], request.messages[3..], "one was enough");
        request.target = 10_000;
        let short = ElideToolResults::keep(3).elide(&request).unwrap();
        valid(&request, &short);
        let cut = says(&short[4]);
        assert!(
            cut.contains("[removed here to save space: 36928 bytes of output from `look`]"),
            "{cut}"
        );
        assert!(bytes(&short) < 10_000, "{}", bytes(&short));
    }
}
