//! Streams of Anthropic Messages.

use super::watch::{Ending, Progress, Watch};
use crate::exchange::answer::deliver::{Event, sse};
use crate::exchange::answer::turns::anthropic::{block, delta, end, stop};
use serde_json::Value;

#[derive(Default)]
pub(super) struct State {
    progress: Progress,
    /// The open block, and `true` if it is text.
    open: Option<(u64, bool)>,
    /// Index of the next block.
    next: u64,
}

impl Watch for State {
    fn event(&mut self, _name: &str, data: &Value) {
        let index = data["index"].as_u64().unwrap_or(self.next);
        match data["type"].as_str().unwrap_or_default() {
            "message_start" => self.progress.go(Progress::Text),
            "content_block_start" => {
                let kind = data["content_block"]["type"].as_str().unwrap_or_default();
                // The client would run the call, whole or not.
                if kind == "tool_use" {
                    self.progress = Progress::Closed;
                }
                self.open = Some((index, kind == "text"));
            }
            "content_block_stop" => {
                self.open = None;
                self.next = index.saturating_add(1);
            }
            "message_delta" | "message_stop" | "error" => self.progress = Progress::Closed,
            _ => {}
        }
    }

    fn end(&self, note: &str) -> Ending {
        let mut events: Vec<Event> = Vec::new();
        match (self.progress, self.open) {
            (Progress::Closed, _) => return Ending::Never,
            // Reasoning must be signed at its end, which only the provider can do.
            (Progress::Before, _) | (_, Some((_, false))) => return Ending::Later,
            (_, Some((index, true))) => {
                events.extend(delta(index, note));
                events.push(end(index));
            }
            // Between two blocks, the finished ones are a whole answer.
            (_, None) if note.is_empty() => {}
            (_, None) => events.extend(block(self.next, note)),
        }
        events.extend(stop());
        Ending::Now(events.iter().map(sse).collect::<String>().into_bytes())
    }
}
