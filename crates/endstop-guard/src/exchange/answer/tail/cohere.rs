//! Streams of Cohere's `/v2/chat`.

use super::blocks::{Blocks, Place};
use super::watch::{Ending, Watch};
use crate::exchange::answer::turns::cohere::{block, end, rest_of_block};
use serde_json::Value;

#[derive(Default)]
pub(super) struct State {
    blocks: Blocks,
}

impl Watch for State {
    fn event(&mut self, _name: &str, data: &Value) {
        let index = data["index"].as_u64();
        match data["type"].as_str().unwrap_or_default() {
            "message-start" => self.blocks.begin(),
            "content-start" => {
                let kind = &data["delta"]["message"]["content"]["type"];
                self.blocks.open(index, kind == "text");
            }
            "content-end" => self.blocks.end(index),
            "content-delta" | "citation-start" | "citation-end" => {}
            // A plan for calls, a call, the end of the turn, or an error.
            _ => self.blocks.close(),
        }
    }

    fn end(&self, note: &str) -> Ending {
        let last = match self.blocks.place() {
            Err(ending) => return ending,
            Ok(Place::Inside(index)) => rest_of_block(index, note),
            // Between two blocks, the finished ones are a whole answer.
            Ok(Place::After(_)) if note.is_empty() => String::new(),
            Ok(Place::After(next)) => block(next, note),
        };
        Ending::Now((last + &end()).into_bytes())
    }
}
