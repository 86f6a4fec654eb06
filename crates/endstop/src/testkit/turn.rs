//! One turn of a script: what the model says, why it stops, what it used.

use endstop_core::Usage;
use serde_json::Value;
use std::time::Duration;

/// One turn of a script.
#[derive(Clone, Debug, Default)]
pub struct Turn {
    pub(crate) text: String,
    pub(crate) pieces: Vec<String>,
    pub(crate) reasoning: String,
    pub(crate) calls: Vec<(String, String, String)>,
    pub(crate) finish: Option<String>,
    pub(crate) usage: Option<(u64, u64)>,
    pub(crate) error: Option<(u16, String)>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) delay: Duration,
    pub(crate) pace: Duration,
}

impl Turn {
    /// The model says this.
    pub fn text(text: impl Into<String>) -> Turn {
        Turn { text: text.into(), ..Turn::default() }
    }

    /// The model says this; a stream brings it in these pieces, not word by word.
    pub fn pieces(pieces: &[&str]) -> Turn {
        Turn {
            text: pieces.concat(),
            pieces: pieces.iter().map(|piece| (*piece).to_owned()).collect(),
            ..Turn::default()
        }
    }

    /// The model calls a tool.
    pub fn call(name: impl Into<String>, arguments: &Value) -> Turn {
        Turn::default().and_call(name, arguments)
    }

    /// The server answers with an error.
    pub fn error(status: u16, body: impl Into<String>) -> Turn {
        Turn { error: Some((status, body.into())), ..Turn::default() }
    }

    /// It also calls a tool.
    #[must_use]
    pub fn and_call(mut self, name: impl Into<String>, arguments: &Value) -> Turn {
        let id = format!("call_{}", self.calls.len() + 1);
        self.calls.push((id, name.into(), arguments.to_string()));
        self
    }

    /// It also calls a tool, with arguments that need not be JSON: cut off, say.
    #[must_use]
    pub fn and_raw_call(mut self, name: impl Into<String>, arguments: impl Into<String>) -> Turn {
        let id = format!("call_{}", self.calls.len() + 1);
        self.calls.push((id, name.into(), arguments.into()));
        self
    }

    /// The response has this header too.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Turn {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// It also says this.
    #[must_use]
    pub fn and_text(mut self, text: impl Into<String>) -> Turn {
        self.text = text.into();
        self
    }

    /// It reasons first.
    #[must_use]
    pub fn reasoning(mut self, text: impl Into<String>) -> Turn {
        self.reasoning = text.into();
        self
    }

    /// It stops with this finish value instead of the one that fits.
    #[must_use]
    pub fn finish(mut self, value: impl Into<String>) -> Turn {
        self.finish = Some(value.into());
        self
    }

    /// It used these tokens: prompt, generated.
    #[must_use]
    pub fn usage(mut self, input: u64, output: u64) -> Turn {
        self.usage = Some((input, output));
        self
    }

    /// It begins after this long.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Turn {
        self.delay = delay;
        self
    }

    /// There is this long between two words.
    #[must_use]
    pub fn pace(mut self, between: Duration) -> Turn {
        self.pace = between;
        self
    }

    /// What it used; about a token for four characters where the script does not say.
    pub(crate) fn used(&self) -> Usage {
        let said = self.text.len()
            + self.reasoning.len()
            + self
                .calls
                .iter()
                .map(|(_, name, arguments)| name.len() + arguments.len())
                .sum::<usize>();
        let (input, output) = self.usage.unwrap_or((50, said.div_ceil(4) as u64));
        Usage { input_tokens: Some(input), output_tokens: Some(output), ..Usage::default() }
    }

    /// The text in pieces, as a stream brings it.
    pub(crate) fn words(&self) -> Vec<&str> {
        if self.pieces.concat() == self.text {
            return self.pieces.iter().map(String::as_str).collect();
        }
        self.text.split_inclusive(' ').collect()
    }
}
