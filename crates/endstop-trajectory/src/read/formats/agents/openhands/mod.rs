//! Reader for OpenHands: the log of one model call, which contains the conversation up to that
//! call.
//!
//! ```json
//! {"messages": […], "tools": […], "kwargs": {…}, "response": {"model": "…", "choices": [{"message": {…}}],
//!  "usage": {…}}, "cost": 0.016, "timestamp": 1757015025.97, "latency_sec": 4.7}
//! ```
//!
//! Quirks: a folder has one file per call of a run, and each repeats the conversation before it; a
//! file is read as the run up to its response, and has the tag `call_log`. Usage and cost are those
//! of that last turn; those of earlier turns are in no file. A model without tool calling receives
//! its tools as text; in that case `raw_messages` contains the conversation with its calls, and the
//! response has the finish reason `stop` although it calls a tool. The run is complete if the tool
//! `finish` was called; otherwise more turns may follow. Success is not recorded. A log is not
//! recognised if its messages are longer than the part of the file that is inspected.

use crate::model::{Ending, Role, Step, Trajectory};
use crate::read::build::message::{Message, usage_of};
use crate::read::build::record::{self, List, Of, Record, count, lift, object};
use crate::read::build::talk::Talk;
use crate::read::format::{Format, Head, Place, Shape, Sink};
use crate::read::problem::Problem;
use endstop_core::bounded_json;
use serde::de::MapAccess;
use serde_json::{Map, Value};
use std::borrow::Cow;

pub(crate) const FORMATS: &[Format] = &[Format {
    name: "openhands-log",
    about: "logs of model calls by OpenHands",
    recognises,
    of_a_person: false,
    shape: Some(Shape::Whole(read)),
}];

fn recognises(head: &Head<'_>) -> bool {
    head.member("messages").is_some_and(Value::is_array)
        && head.member("response").is_some_and(|response| response.get("choices").is_some())
        && ["kwargs", "latency_sec", "context_window"].iter().any(|n| head.member(n).is_some())
}

#[derive(Default)]
struct Log<'a> {
    messages: Vec<Message<'a>>,
    raw: Vec<Message<'a>>,
    tools: Vec<Value>,
    response: Option<Response<'a>>,
    cost: Option<f64>,
    other: Map<String, Value>,
}

impl<'a> Record<'a> for Log<'a> {
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        match name {
            "messages" => self.messages = map.next_value::<List<Message<'a>>>()?.0,
            "raw_messages" => self.raw = map.next_value::<List<Message<'a>>>()?.0,
            "tools" => self.tools = map.next_value::<Option<Vec<Value>>>()?.unwrap_or_default(),
            "response" => self.response = map.next_value::<Option<Of<_>>>()?.map(|of| of.0),
            "cost" => self.cost = map.next_value()?,
            // The response before its text was converted to calls.
            "raw_response" => {
                map.next_value::<serde::de::IgnoredAny>()?;
            }
            _ => record::keep_other(&mut self.other, name, map)?,
        }
        Ok(())
    }
}

#[derive(Default)]
struct Response<'a> {
    id: Option<Cow<'a, str>>,
    model: Option<Cow<'a, str>>,
    choices: Vec<Choice<'a>>,
    usage: Option<Map<String, Value>>,
}

impl<'a> Record<'a> for Response<'a> {
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        match name {
            "id" => self.id = record::name(map)?,
            "model" => self.model = record::name(map)?,
            "choices" => self.choices = map.next_value::<List<Choice<'a>>>()?.0,
            "usage" => self.usage = object(map)?,
            _ => {
                map.next_value::<serde::de::IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct Choice<'a> {
    message: Option<Message<'a>>,
    finish_reason: Option<Cow<'a, str>>,
}

impl<'a> Record<'a> for Choice<'a> {
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        match name {
            "message" => self.message = map.next_value::<Option<Of<_>>>()?.map(|of| of.0),
            "finish_reason" => self.finish_reason = record::name(map)?,
            _ => {
                map.next_value::<serde::de::IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

fn read(bytes: &[u8], _: &Place<'_>, sink: &mut Sink<'_>) {
    sink(record::read(bytes).and_then(run));
}

fn run(log: Log<'_>) -> Result<Trajectory<'_>, Problem> {
    let Some(response) = log.response else {
        return Err(Problem::malformed("missing `response`: expected an object"));
    };
    let several = response.choices.len();
    let choice = response.choices.into_iter().next().unwrap_or_default();
    let Some(mut said) = choice.message else {
        return Err(Problem::malformed(
            "missing `response.choices[0].message`: expected a message",
        ));
    };
    let mut talk = Talk::default();
    let sent = if log.raw.is_empty() { log.messages } else { log.raw };
    for (message, i) in sent.into_iter().zip(1..) {
        if message.role.is_empty() {
            return Err(Problem::malformed(format!("message {i}: missing `role`")));
        }
        message.join(&mut talk);
    }
    // The response is the model's, whatever role the log gives it.
    said.role = "assistant".into();
    said.join(&mut talk);
    let mut ending = None;
    let mut other = log.other;
    if let Some(step) = talk.last() {
        step.at = lift(&mut other, "timestamp", when);
        step.usage = response.usage.map(|usage| {
            let mut usage = usage_of(usage);
            // LiteLLM adds Anthropic's name for it to a usage in OpenAI's form.
            let written = lift(&mut usage.extra, "cache_creation_input_tokens", count);
            usage.cache_write_tokens = usage.cache_write_tokens.or(written);
            Box::new(usage)
        });
        step.cost_usd = log.cost;
        step.finish_reason = choice.finish_reason;
        ending = ending_of(step);
        if let Some(id) = response.id {
            record::keep_value(&mut step.extra, "response_id", id.into_owned().into());
        }
    }
    let (steps, notes) = talk.end();
    let mut run = Trajectory {
        agent: Some("openhands".into()),
        model: response.model,
        tools: log.tools,
        tags: vec!["call_log".into()],
        ending,
        steps,
        notes,
        ..Trajectory::default()
    };
    let earlier = run.turns().count().saturating_sub(1);
    if earlier > 0 {
        run.notes.push(format!("turns whose usage and cost are not in the file: {earlier}"));
    }
    if several > 1 {
        run.notes.push(format!("choices of the response that are ignored: {}", several - 1));
    }
    run.extra = other;
    if let Some(Value::Object(kwargs)) = run.extra.get_mut("kwargs") {
        // The tools are already stored from the member next to the messages.
        kwargs.shift_remove("tools");
    }
    Ok(run)
}

/// Converts seconds since 1970 to ISO 8601.
fn when(value: &Value) -> Option<Cow<'static, str>> {
    // Out-of-range values are rejected, so that the multiplication below cannot overflow.
    let seconds = value.as_f64().filter(|seconds| (0.0..1e10).contains(seconds))?;
    let micros = (seconds * 1e6).round() as u64;
    Some(crate::time::iso_8601(micros * 1000).into())
}

/// Derives the ending, assuming that this was the last call.
fn ending_of(step: &Step<'_>) -> Option<Ending<'static>> {
    if step.role != Role::Agent {
        return None;
    }
    if let Some(call) = step.calls.iter().find(|call| call.name == "finish") {
        let arguments: Option<Map<String, Value>> = bounded_json::from_str(&call.arguments).ok();
        let answer = arguments.and_then(|mut map| lift(&mut map, "message", record::owned_text));
        let native = Some("finish".into());
        return Some(Ending { reason: "final".into(), native, answer, ..Ending::default() });
    }
    let cut = step.finish_reason.as_deref() == Some("length");
    let native = Some("length".into());
    cut.then(|| Ending { reason: "output_length".into(), native, ..Ending::default() })
}
