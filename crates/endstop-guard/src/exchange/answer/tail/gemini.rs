//! Streams of Google's `generateContent`.

use super::watch::{Ending, Own, Progress, Watch};
use crate::exchange::answer::turns::gemini::body;
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
        if !data["error"].is_null() {
            self.progress = Progress::Closed;
        }
        for candidate in data["candidates"].as_array().into_iter().flatten() {
            let parts = candidate["content"]["parts"].as_array();
            let calls = parts.into_iter().flatten().any(|part| !part["functionCall"].is_null());
            if calls || !candidate["finishReason"].is_null() {
                self.progress = Progress::Closed;
            }
        }
    }

    fn end(&self, note: &str) -> Ending {
        self.progress.end(|| {
            format!(
                "data: {}

",
                body(self.own.turn(note, true))
            )
        })
    }
}
