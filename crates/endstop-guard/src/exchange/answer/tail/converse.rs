//! Streams of Bedrock's Converse.

use super::blocks::{Blocks, Place};
use super::watch::{Ending, Watch};
use crate::exchange::answer::deliver::converse_frame;
use crate::exchange::answer::turns::converse::end;
use serde_json::Value;

#[derive(Default)]
pub(super) struct State {
    blocks: Blocks,
}

impl Watch for State {
    fn event(&mut self, name: &str, data: &Value) {
        let index = data["contentBlockIndex"].as_u64();
        match name {
            "messageStart" => self.blocks.begin(),
            "contentBlockStart" => {
                self.blocks.open(index, false);
                if !data["start"]["toolUse"].is_null() {
                    self.blocks.close();
                }
            }
            // A text has no event for its beginning, so its deltas open it.
            "contentBlockDelta" => {
                self.blocks.open(index, !data["delta"]["text"].is_null());
                if !data["delta"]["toolUse"].is_null() {
                    self.blocks.close();
                }
            }
            "contentBlockStop" => self.blocks.end(index),
            // The end, or an exception.
            _ => self.blocks.close(),
        }
    }

    fn end(&self, note: &str) -> Ending {
        let events = match self.blocks.place() {
            Err(ending) => return ending,
            Ok(Place::Inside(index)) => end(index, true, note),
            Ok(Place::After(next)) => end(next, false, note),
        };
        Ending::Now(events.iter().flat_map(converse_frame).collect())
    }
}
