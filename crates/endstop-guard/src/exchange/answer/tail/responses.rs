//! Streams of OpenAI Responses. The closing event repeats the whole output, so the texts are kept.

use super::watch::{Ending, Own, Progress, Watch};
use crate::exchange::answer::deliver::sse;
use crate::exchange::answer::turns::responses::{Numbered, item, usage};
use serde_json::{Value, json};

/// The most bytes of output that are kept. A longer answer cannot be ended cleanly.
const MOST: usize = 16 << 20;

pub(super) struct State {
    own: Own,
    progress: Progress,
    /// The response as its first event had it.
    response: Value,
    done: Vec<Value>,
    open: Open,
    /// Bytes of the finished items and of the open text.
    bytes: usize,
    number: u64,
}

/// The item that is being written.
enum Open {
    Nothing,
    /// A message, with its text and `true` if a part for the text has started.
    Message {
        index: u64,
        id: String,
        text: String,
        part: bool,
    },
    /// Reasoning, or a second part of a message.
    Other,
}

impl State {
    pub(super) fn new(own: Own) -> State {
        State {
            own,
            progress: Progress::Before,
            response: Value::Null,
            done: Vec::new(),
            open: Open::Nothing,
            bytes: 0,
            number: 0,
        }
    }

    fn item_added(&mut self, data: &Value) {
        let item = &data["item"];
        let id = item["id"].as_str().unwrap_or_default().to_owned();
        let index = data["output_index"].as_u64().unwrap_or(self.done.len() as u64);
        self.open = match item["type"].as_str() {
            Some("message") => Open::Message { index, id, text: String::new(), part: false },
            Some("reasoning") => Open::Other,
            _ => {
                self.progress = Progress::Closed;
                Open::Other
            }
        };
    }

    fn part_added(&mut self, data: &Value) {
        // A second part would have to be repeated at the end of its item.
        let first = data["content_index"].as_u64() == Some(0);
        match &mut self.open {
            Open::Message { part, .. } if first && data["part"]["type"] == "output_text" => {
                *part = true;
            }
            Open::Message { .. } => self.open = Open::Other,
            _ => {}
        }
    }

    fn keep(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MOST {
            self.progress = Progress::Closed;
        }
    }
}

impl Watch for State {
    fn event(&mut self, _name: &str, data: &Value) {
        self.number = self.number.max(data["sequence_number"].as_u64().unwrap_or(0));
        match data["type"].as_str().unwrap_or_default() {
            "response.created" => {
                self.response = data["response"].clone();
                self.keep(self.response.to_string().len());
                self.progress.go(Progress::Text);
            }
            "response.output_item.added" => self.item_added(data),
            "response.content_part.added" => self.part_added(data),
            "response.output_text.delta" => {
                let delta = data["delta"].as_str().unwrap_or_default();
                if let Open::Message { text, .. } = &mut self.open {
                    text.push_str(delta);
                }
                self.keep(delta.len());
            }
            // The text is complete, so nothing can be added before its item is.
            "response.output_text.done" => self.open = Open::Other,
            "response.output_item.done" => {
                self.keep(data["item"].to_string().len());
                if self.progress != Progress::Closed {
                    self.done.push(data["item"].clone());
                }
                self.open = Open::Nothing;
            }
            "response.completed" | "response.incomplete" | "response.failed" | "error" => {
                self.progress = Progress::Closed;
            }
            _ => {}
        }
    }

    fn end(&self, note: &str) -> Ending {
        match self.progress {
            Progress::Closed => return Ending::Never,
            Progress::Before => return Ending::Later,
            Progress::Text => {}
        }
        let mut events = Numbered::after(self.number);
        let mut output = self.done.clone();
        match &self.open {
            Open::Other => return Ending::Later,
            // The finished items are a whole answer.
            Open::Nothing if note.is_empty() => {}
            Open::Nothing => {
                let index = output.len() as u64;
                // SDKs reject a stream with two items of one id.
                let id = format!("msg_{}_end", self.own.id);
                events.begin_item(index, &id);
                events.text(index, 0, &id, note);
                events.end_item(index, 0, &id, note);
                output.push(item(&id, note));
            }
            Open::Message { index, id, text, part } => {
                if !part {
                    events.begin_part(*index, 0, id);
                }
                events.text(*index, 0, id, note);
                let text = format!("{text}{note}");
                events.end_item(*index, 0, id, &text);
                output.push(item(id, &text));
            }
        }
        let mut response = self.response.clone();
        if let Some(members) = response.as_object_mut() {
            members.insert("status".into(), json!("completed"));
            members.insert("output".into(), Value::Array(output));
            members.insert("usage".into(), usage());
        }
        events.add("response.completed", json!({"response": response}));
        Ending::Now(events.events.iter().map(sse).collect::<String>().into_bytes())
    }
}
