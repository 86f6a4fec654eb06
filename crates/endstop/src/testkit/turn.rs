//! A turn of a script: its text, reasoning, calls, finish value, token usage and timing.

use endstop_core::{ToolCall, Usage};
use endstop_wire::WireFormat;
use endstop_wire::codec::response::Response;
use endstop_wire::codec::write;
use endstop_wire::route::Delivery;
use serde_json::Value;
use std::time::Duration;

/// A turn of a script, for [`ScriptedModel`](super::ScriptedModel) or
/// [`Server::script`](super::Server::script).
#[derive(Clone, Debug, Default)]
pub struct Turn {
    pub(crate) text: String,
    pub(crate) pieces: Vec<String>,
    pub(crate) reasoning: String,
    pub(crate) calls: Vec<ToolCall>,
    pub(crate) finish: Option<String>,
    pub(crate) usage: Option<(u64, u64)>,
    pub(crate) cached: Option<(u64, u64)>,
    pub(crate) error: Option<(u16, String)>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) delay: Duration,
    pub(crate) pace: Duration,
}

impl Turn {
    /// Creates a turn with this text.
    pub fn text(text: impl Into<String>) -> Turn {
        Turn { text: text.into(), ..Turn::default() }
    }

    /// Creates a turn whose stream has these chunks of text instead of one chunk per word.
    pub fn pieces(pieces: &[&str]) -> Turn {
        Turn {
            text: pieces.concat(),
            pieces: pieces.iter().map(|piece| (*piece).to_owned()).collect(),
            ..Turn::default()
        }
    }

    /// Creates a turn that calls a tool.
    pub fn call(name: impl Into<String>, arguments: &Value) -> Turn {
        Turn::default().and_call(name, arguments)
    }

    /// Creates a turn to which the server answers with an error.
    pub fn error(status: u16, body: impl Into<String>) -> Turn {
        Turn { error: Some((status, body.into())), ..Turn::default() }
    }

    /// Adds a tool call.
    #[must_use]
    pub fn and_call(self, name: impl Into<String>, arguments: &Value) -> Turn {
        self.and_raw_call(name, arguments.to_string())
    }

    /// Adds a tool call with arguments that need not be valid JSON, for example truncated ones.
    #[must_use]
    pub fn and_raw_call(mut self, name: impl Into<String>, arguments: impl Into<String>) -> Turn {
        let id = format!("call_{}", self.calls.len() + 1);
        self.calls.push(ToolCall { id, name: name.into(), arguments: arguments.into() });
        self
    }

    /// Adds a header to the response.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Turn {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets the text of the turn.
    #[must_use]
    pub fn and_text(mut self, text: impl Into<String>) -> Turn {
        self.text = text.into();
        self
    }

    /// Sets the reasoning, which comes before the text.
    #[must_use]
    pub fn reasoning(mut self, text: impl Into<String>) -> Turn {
        self.reasoning = text.into();
        self
    }

    /// Sets the finish value, instead of the one that fits the content.
    #[must_use]
    pub fn finish(mut self, value: impl Into<String>) -> Turn {
        self.finish = Some(value.into());
        self
    }

    /// Sets the token usage: prompt and generated tokens.
    #[must_use]
    pub fn usage(mut self, input: u64, output: u64) -> Turn {
        self.usage = Some((input, output));
        self
    }

    /// Sets the parts of the prompt tokens that were read from a cache and written to one. A
    /// scripted model and the format `anthropic-messages` report them.
    #[must_use]
    pub fn cached(mut self, read: u64, written: u64) -> Turn {
        self.cached = Some((read, written));
        self
    }

    /// Delays the response by this long.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Turn {
        self.delay = delay;
        self
    }

    /// Sets the pause between two words of the stream.
    #[must_use]
    pub fn pace(mut self, between: Duration) -> Turn {
        self.pace = between;
        self
    }

    /// Returns the token usage; if the script sets none, an estimate of one token per four bytes.
    pub(crate) fn used(&self) -> Usage {
        let said = self.text.len()
            + self.reasoning.len()
            + self.calls.iter().map(|call| call.name.len() + call.arguments.len()).sum::<usize>();
        let (input, output) = self.usage.unwrap_or((50, said.div_ceil(4) as u64));
        Usage {
            input_tokens: Some(input),
            output_tokens: Some(output),
            cached_input_tokens: self.cached.map(|(read, _)| read),
            cache_write_tokens: self.cached.map(|(_, written)| written),
            ..Usage::default()
        }
    }

    /// Returns the chunks of a response body with this turn, or `None` if the format is only read.
    pub(crate) fn written(&self, format: WireFormat, delivery: Delivery) -> Option<Vec<Vec<u8>>> {
        let response = Response {
            id: "script",
            model: "script",
            reasoning: &self.reasoning,
            text: &self.words(),
            calls: &self.calls,
            finish: self.finish.as_deref(),
            usage: self.used(),
            ..Response::default()
        };
        write(format, delivery, &response)
    }

    /// Returns the text in the chunks that a stream has.
    pub(crate) fn words(&self) -> Vec<&str> {
        // `and_text` may have replaced the text after `pieces` was called.
        if self.pieces.concat() == self.text {
            return self.pieces.iter().map(String::as_str).collect();
        }
        self.text.split_inclusive(' ').collect()
    }
}
