//! Streams of Ollama's format.

use super::watch::{Ending, Own, Progress, Watch};
use crate::exchange::answer::turns::ollama::lines;
use serde_json::Value;

pub(super) struct State {
    own: Own,
    progress: Progress,
}

impl State {
    pub(super) fn new(own: Own) -> State {
        State { own, progress: Progress::Before }
    }
}

impl Watch for State {
    fn event(&mut self, _name: &str, data: &Value) {
        self.progress.go(Progress::Text);
        let calls = data["message"]["tool_calls"].as_array().is_some_and(|calls| !calls.is_empty());
        if calls || data["done"] == true || !data["error"].is_null() {
            self.progress = Progress::Closed;
        }
    }

    fn end(&self, note: &str) -> Ending {
        self.progress.end(|| lines(self.own.turn(note, true)))
    }
}
