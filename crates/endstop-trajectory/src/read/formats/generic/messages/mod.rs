//! Reader for lists of messages as they are sent to a model: OpenAI's chat completions and
//! Anthropic's messages.
//!
//! ```json
//! [{"role": "user", "content": "Paris?"}, {"role": "assistant", "content": "Yes."}]
//! {"id": "r1", "system": "…", "tools": [], "messages": [{"role": "user", "content": [{"type": "text", "text": "Paris?"}]}]}
//! ```
//!
//! Quirks: a file is a list, an object with `messages`, lines of either, a list of either, or one
//! message per line. The ending of a run is not recorded, and with OpenAI neither are failed
//! results: a result that begins with the word `Error` is treated as a failure. A user message that
//! contains only results is not a step. Call ids may repeat. A file that could be of either kind is
//! read the same way for both; it is reported under the more likely name.

use crate::model::{Role, Step, Totals, Trajectory};
use crate::read::build::message::{Message, usage_of};
use crate::read::build::parts::Content;
use crate::read::build::record::{self, List, Record, object};
use crate::read::build::talk::Talk;
use crate::read::format::{Format, Head, Place, Shape, Sink};
use crate::read::outcomes::is_success;
use crate::read::problem::Problem;
use endstop_core::bounded_json;
use memchr::memchr;
use serde::de::MapAccess;
use serde_json::{Map, Value};
use std::borrow::Cow;

const OPENAI: (&str, &str) = ("openai-messages", "message lists of OpenAI's chat completions");
const ANTHROPIC: (&str, &str) = ("anthropic-messages", "message lists of Anthropic's API");

pub(crate) const FORMATS: &[Format] = &[
    // Anthropic first, because its files also match OpenAI's shapes.
    format(ANTHROPIC, |head| is_anthropic(head) && in_one(head), Shape::Whole(read_file)),
    format(ANTHROPIC, |head| is_anthropic(head) && in_lines(head), Shape::Lines(read_one)),
    format(ANTHROPIC, |head| is_anthropic(head) && in_list(head), Shape::Elements(None, read_one)),
    format(ANTHROPIC, |head| is_anthropic(head) && message_a_line(head), Shape::Whole(read_lines)),
    format(OPENAI, in_one, Shape::Whole(read_file)),
    format(OPENAI, in_lines, Shape::Lines(read_one)),
    format(OPENAI, in_list, Shape::Elements(None, read_one)),
    format(OPENAI, message_a_line, Shape::Whole(read_lines)),
];

const fn format(
    (name, about): (&'static str, &'static str),
    recognises: fn(&Head<'_>) -> bool,
    shape: Shape,
) -> Format {
    Format { name, about, recognises, of_a_person: false, shape: Some(shape) }
}

fn in_one(head: &Head<'_>) -> bool {
    !head.is_lines() && head.first.is_some_and(is_conversation)
}

fn in_lines(head: &Head<'_>) -> bool {
    head.is_lines() && head.first.is_some_and(is_conversation)
}

fn in_list(head: &Head<'_>) -> bool {
    head.element().is_some_and(is_conversation)
}

fn message_a_line(head: &Head<'_>) -> bool {
    head.is_lines() && head.first.is_some_and(is_message)
}

fn is_conversation(value: &Value) -> bool {
    match value {
        Value::Array(list) => list.first().is_some_and(is_message),
        // Messages with a response next to them are the input of a single call, not a run.
        Value::Object(object) if object.contains_key("response") => false,
        Value::Object(object) => match object.get("messages") {
            // An empty list is still a conversation.
            Some(Value::Array(list)) => list.first().is_none_or(is_message),
            _ => false,
        },
        _ => false,
    }
}

/// Returns `true` if a value is a message. If it is the last value inspected, all members after the
/// role may be cut off.
fn is_message(value: &Value) -> bool {
    // Includes the roles of other APIs and of datasets.
    const ROLES: &[&str] =
        &["system", "developer", "user", "assistant", "tool", "function", "model", "agent"];
    const SAID: &[&str] = &["content", "tool_calls", "function_call"];
    let Some(message) = value.as_object() else { return false };
    message.get("role").and_then(Value::as_str).is_some_and(|role| ROLES.contains(&role))
        && (message.len() == 1 || SAID.iter().any(|name| message.contains_key(*name)))
        && !message.get("content").is_some_and(|content| content.is_object() || content.is_number())
}

/// Returns `true` if the file contains a construct that only Anthropic's API has.
fn is_anthropic(head: &Head<'_>) -> bool {
    fn parts(message: &Value) -> bool {
        let list = message.get("content").and_then(Value::as_array);
        list.is_some_and(|parts| {
            parts.iter().any(|part| {
                let kind = part.get("type").and_then(Value::as_str);
                matches!(kind, Some("tool_use" | "tool_result" | "thinking" | "redacted_thinking"))
            })
        })
    }
    fn any(value: &Value) -> bool {
        match value {
            Value::Array(list) => list.iter().any(|value| parts(value) || any(value)),
            Value::Object(object) => {
                let list = object.get("messages");
                // OpenAI has no `system` member next to the messages; its instructions are a
                // message.
                list.is_some_and(|list| object.contains_key("system") || any(list)) || parts(value)
            }
            _ => false,
        }
    }
    head.first.is_some_and(any)
}

/// A conversation with the members next to its messages.
#[derive(Default)]
struct Conversation<'a> {
    id: Option<Cow<'a, str>>,
    messages: Option<Vec<Message<'a>>>,
    system: Content<'a>,
    tools: Vec<Value>,
    model: Option<Cow<'a, str>>,
    task_id: Option<Cow<'a, str>>,
    usage: Option<Map<String, Value>>,
    other: Map<String, Value>,
}

impl<'a> Record<'a> for Conversation<'a> {
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        match name {
            "id" | "run_id" if self.id.is_none() => self.id = record::name(map)?,
            "messages" => self.messages = Some(map.next_value::<List<Message<'a>>>()?.0),
            "system" => self.system = map.next_value()?,
            "tools" => match map.next_value::<Value>()? {
                Value::Array(tools) => self.tools = tools,
                Value::Null => {}
                other => {
                    self.other.insert(name.to_owned(), other);
                }
            },
            "model" => self.model = record::name(map)?,
            "task_id" => self.task_id = record::name(map)?,
            "usage" => self.usage = object(map)?,
            _ => record::keep_other(&mut self.other, name, map)?,
        }
        Ok(())
    }
}

fn read_file(bytes: &[u8], _: &Place<'_>, sink: &mut Sink<'_>) {
    read_one(bytes, sink);
}

fn read_one(bytes: &[u8], sink: &mut Sink<'_>) {
    let conversation = if bytes.trim_ascii_start().starts_with(b"[") {
        list(bytes).map(|list| Conversation { messages: Some(list), ..Conversation::default() })
    } else {
        record::read(bytes)
    };
    sink(conversation.and_then(run));
}

fn list(bytes: &[u8]) -> Result<Vec<Message<'_>>, Problem> {
    bounded_json::from_slice::<List<Message<'_>>>(bytes)
        .map(|list| list.0)
        .map_err(|error| Problem::json(&error))
}

/// Reads one message per line, so that the file is one run. Lines that cannot be read are reported,
/// and the others form the run.
fn read_lines(bytes: &[u8], _: &Place<'_>, sink: &mut Sink<'_>) {
    let mut talk = Talk::default();
    let (mut rest, mut at) = (bytes, 0);
    let mut lost = 0u64;
    while !rest.is_empty() {
        let end = memchr(b'\n', rest).unwrap_or(rest.len());
        let line = rest[..end].trim_ascii();
        rest = rest.get(end + 1..).unwrap_or_default();
        at += 1;
        if line.is_empty() {
            continue;
        }
        match record::read::<Message<'_>>(line) {
            Ok(message) if !message.role.is_empty() => message.join(&mut talk),
            Ok(_) => {
                lost += 1;
                let what = "missing `role`: expected a message";
                sink(Err(Problem { at: Some(at), ..Problem::malformed(what) }));
            }
            Err(problem) => {
                lost += 1;
                sink(Err(Problem { at: Some(at), ..problem }));
            }
        }
    }
    let (steps, notes) = talk.end();
    let mut run = Trajectory { steps, notes, ..Trajectory::default() };
    if lost > 0 {
        run.notes.push(format!("lines not read: {lost}"));
    }
    sink(Ok(run));
}

fn run(conversation: Conversation<'_>) -> Result<Trajectory<'_>, Problem> {
    let Some(messages) = conversation.messages else {
        return Err(Problem::malformed("missing `messages`: expected a list"));
    };
    let mut talk = Talk::default();
    let mut extra = conversation.other;
    match conversation.system {
        Content::Nothing => {}
        system => {
            let (text, parts) = system.split();
            let mut step = Step { text, ..Step::new(Role::System) };
            if let Some(parts) = parts {
                record::keep_value(&mut step.extra, "content", parts);
            }
            talk.step(step);
        }
    }
    for (message, i) in messages.into_iter().zip(1..) {
        if message.role.is_empty() {
            return Err(Problem::malformed(format!("message {i}: missing `role`")));
        }
        message.join(&mut talk);
    }
    let (steps, notes) = talk.end();
    let mut run = Trajectory {
        run_id: conversation.id.unwrap_or_default(),
        task_id: conversation.task_id,
        model: conversation.model,
        tools: conversation.tools,
        steps,
        notes,
        ..Trajectory::default()
    };
    run.recorded.reward = record::lift(&mut extra, "reward", Value::as_f64);
    run.recorded.success = record::lift(&mut extra, "success", Value::as_bool)
        // Datasets derived from SWE-bench use `resolved`.
        .or_else(|| record::lift(&mut extra, "resolved", Value::as_bool))
        .or(run.recorded.reward.map(is_success));
    if let Some(usage) = conversation.usage {
        let usage = usage_of(usage);
        let mut rest = usage.extra;
        for (name, number) in [
            ("cache_write_tokens", usage.cache_write_tokens),
            ("reasoning_tokens", usage.reasoning_tokens),
        ] {
            if let Some(number) = number {
                rest.insert(name.to_owned(), number.into());
            }
        }
        run.totals = Totals {
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.completion_tokens,
            cached_tokens: usage.cached_tokens,
            extra: rest,
            ..Totals::default()
        };
    }
    run.extra = extra;
    Ok(run)
}
