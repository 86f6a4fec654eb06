//! Streams of OpenAI Chat Completions.

use super::watch::{Ending, Own, Progress, Watch};
use crate::exchange::answer::turns::chat::end;
use serde_json::Value;

pub(super) struct State {
    own: Own,
    usage: bool,
    progress: Progress,
}

impl State {
    pub(super) fn new(own: Own, usage: bool) -> State {
        State { own, usage, progress: Progress::Before }
    }
}

/// The longest id or name that is taken from a stream, in bytes.
const LONGEST: usize = 256;

impl Watch for State {
    fn event(&mut self, _name: &str, data: &Value) {
        if self.progress == Progress::Before {
            let text = |name: &str| data[name].as_str().filter(|text| text.len() <= LONGEST);
            // The closing chunks repeat the id of the stream.
            if let Some(id) = text("id").filter(|id| id.starts_with("chatcmpl-")) {
                id.clone_into(&mut self.own.id);
            }
            if let Some(model) = text("model") {
                model.clone_into(&mut self.own.model);
            }
            self.own.at = data["created"].as_u64().unwrap_or(self.own.at);
        }
        self.progress.go(Progress::Text);
        if !data["error"].is_null() {
            self.progress = Progress::Closed;
        }
        for choice in data["choices"].as_array().into_iter().flatten() {
            let delta = &choice["delta"];
            let calls = delta["tool_calls"].as_array().is_some_and(|calls| !calls.is_empty());
            // Only the first of several answers could be ended.
            let another = choice["index"].as_u64().is_some_and(|index| index > 0);
            // The provider has ended the answer itself.
            let over = !choice["finish_reason"].is_null();
            if calls || !delta["function_call"].is_null() || another || over {
                self.progress = Progress::Closed;
            }
        }
    }

    fn other(&mut self, data: &str) {
        if data.trim() == "[DONE]" {
            self.progress = Progress::Closed;
        }
    }

    fn end(&self, note: &str) -> Ending {
        self.progress.end(|| end(self.own.turn(note, self.usage)))
    }
}
