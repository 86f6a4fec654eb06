//! Streams of Anthropic Messages.

use super::blocks::{Blocks, Place};
use super::watch::{Ending, Watch};
use crate::exchange::answer::deliver::{Event, sse};
use crate::exchange::answer::turns::anthropic::{block, delta, end, stop};
use serde_json::Value;

#[derive(Default)]
pub(super) struct State {
    blocks: Blocks,
}

impl Watch for State {
    fn event(&mut self, _name: &str, data: &Value) {
        let index = data["index"].as_u64();
        match data["type"].as_str().unwrap_or_default() {
            "message_start" => self.blocks.begin(),
            "content_block_start" => {
                let kind = data["content_block"]["type"].as_str().unwrap_or_default();
                // The client would run the call, whole or not.
                if kind == "tool_use" {
                    self.blocks.close();
                }
                self.blocks.open(index, kind == "text");
            }
            "content_block_stop" => self.blocks.end(index),
            "message_delta" | "message_stop" | "error" => self.blocks.close(),
            _ => {}
        }
    }

    fn end(&self, note: &str) -> Ending {
        let mut events: Vec<Event> = match self.blocks.place() {
            Err(ending) => return ending,
            Ok(Place::Inside(index)) => {
                delta(index, note).into_iter().chain([end(index)]).collect()
            }
            // Between two blocks, the finished ones are a whole answer.
            Ok(Place::After(_)) if note.is_empty() => Vec::new(),
            Ok(Place::After(next)) => block(next, note).into_iter().collect(),
        };
        events.extend(stop());
        Ending::Now(events.iter().map(sse).collect::<String>().into_bytes())
    }
}
