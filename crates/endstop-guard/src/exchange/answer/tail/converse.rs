//! Streams of Bedrock's Converse.

use super::watch::{Ending, Progress, Watch};
use crate::exchange::answer::deliver::converse_frame;
use crate::exchange::answer::turns::converse::end;
use serde_json::Value;

#[derive(Default)]
pub(super) struct State {
    progress: Progress,
    /// The open block, and `true` if it is text. A text has no event for its beginning.
    open: Option<(u64, bool)>,
    next: u64,
}

impl Watch for State {
    fn event(&mut self, name: &str, data: &Value) {
        let index = data["contentBlockIndex"].as_u64().unwrap_or(self.next);
        match name {
            "messageStart" => self.progress.go(Progress::Text),
            "contentBlockStart" => {
                self.open = Some((index, false));
                if !data["start"]["toolUse"].is_null() {
                    self.progress = Progress::Closed;
                }
            }
            "contentBlockDelta" => {
                self.open = Some((index, !data["delta"]["text"].is_null()));
                if !data["delta"]["toolUse"].is_null() {
                    self.progress = Progress::Closed;
                }
            }
            "contentBlockStop" => {
                self.open = None;
                self.next = index.saturating_add(1);
            }
            // The end, or an exception.
            _ => self.progress = Progress::Closed,
        }
    }

    fn end(&self, note: &str) -> Ending {
        let events = match (self.progress, self.open) {
            (Progress::Closed, _) => return Ending::Never,
            (Progress::Before, _) | (_, Some((_, false))) => return Ending::Later,
            (_, Some((index, true))) => end(index, true, note),
            (_, None) => end(self.next, false, note),
        };
        Ending::Now(events.iter().flat_map(converse_frame).collect())
    }
}
