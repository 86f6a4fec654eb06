//! Parts of messages in Google's form, which Gemini CLI and Qwen Code record.
//!
//! ```text
//! {"parts":[{"text":"…"},{"functionCall":{"id":…,"name":…,"args":{…}}}]}
//! ```

use super::fields::{self, Fields, append, arguments, object, peek, text};
use crate::model::{Call, CallResult};
use serde_json::Value;

/// The contents of a message's parts.
#[derive(Default)]
pub(crate) struct Parts {
    /// The text, joined with line breaks.
    pub(crate) text: String,
    /// The reasoning, joined with line breaks.
    pub(crate) thought: String,
    /// The calls that the model requested.
    pub(crate) calls: Vec<Call<'static>>,
    /// The results that the model received.
    pub(crate) results: Vec<CallResult<'static>>,
    /// Parts of other kinds, unchanged.
    pub(crate) rest: Vec<Value>,
}

impl Parts {
    /// Decodes a content: a string, a part, or a list of parts.
    pub(crate) fn of(value: Option<Value>) -> Parts {
        let mut parts = Parts::default();
        match value {
            None | Some(Value::Null) => {}
            Some(Value::String(text)) => parts.text = text,
            Some(Value::Array(list)) => list.into_iter().for_each(|part| parts.add(part)),
            Some(part) => parts.add(part),
        }
        parts
    }

    fn add(&mut self, part: Value) {
        let mut part = match part {
            Value::Object(part) => part,
            Value::String(text) => return append(&mut self.text, &text),
            other => return self.rest.push(other),
        };
        if let Some(said) = peek(&part, "text") {
            let to =
                if fields::is_true(&part, "thought") { &mut self.thought } else { &mut self.text };
            return append(to, said);
        }
        if let Some(call) = object(&mut part, "functionCall") {
            return self.calls.push(call_of(call));
        }
        match object(&mut part, "functionResponse") {
            Some(response) => self.results.push(result_of(response)),
            None => self.rest.push(Value::Object(part)),
        }
    }
}

fn call_of(mut call: Fields) -> Call<'static> {
    Call {
        id: text(&mut call, "id").map(Into::into),
        name: text(&mut call, "name").unwrap_or_default().into(),
        arguments: arguments(call.shift_remove("args")),
        extra: fields::extra(call),
    }
}

/// Decodes a result. The programs put the text under `output`, and that of a failure under `error`.
fn result_of(mut response: Fields) -> CallResult<'static> {
    let mut told = object(&mut response, "response").unwrap_or_default();
    let failure = told.shift_remove("error").filter(|error| !error.is_null());
    let is_error = failure.is_some();
    let content = match failure.or_else(|| told.shift_remove("output")) {
        Some(Value::String(text)) => text,
        Some(other) => other.to_string(),
        // Tools of servers answer with members of their own.
        None if told.is_empty() => String::new(),
        None => Value::Object(std::mem::take(&mut told)).to_string(),
    };
    response.shift_remove("name");
    CallResult {
        call_id: text(&mut response, "id").map(Into::into),
        content: content.into(),
        is_error,
        exit_code: None,
        extra: fields::extra(response),
    }
}
