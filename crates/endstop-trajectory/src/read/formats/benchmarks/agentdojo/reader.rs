//! Decodes a task.

use crate::model::{Call, CallResult, Ending, Role, Step, Trajectory};
use crate::read::build::message::of_value;
use crate::read::build::record::{self, List, Record, lift, owned_name, owned_text};
use crate::read::build::talk::Talk;
use crate::read::format::{Place, Sink};
use crate::read::problem::Problem;
use serde::de::MapAccess;
use serde_json::{Map, Value};
use std::borrow::Cow;

#[derive(Default)]
struct File {
    messages: Option<Vec<Said>>,
    other: Map<String, Value>,
}

impl<'a> Record<'a> for File {
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        if name == "messages" {
            self.messages = Some(map.next_value::<List<Said>>()?.0);
        } else {
            self.other.insert(name.to_owned(), map.next_value()?);
        }
        Ok(())
    }
}

/// One message.
#[derive(Default)]
struct Said(Map<String, Value>);

impl<'a> Record<'a> for Said {
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        record::keep_other(&mut self.0, name, map)
    }
}

pub(super) fn read(bytes: &[u8], _: &Place<'_>, sink: &mut Sink<'_>) {
    sink(record::read(bytes).and_then(run));
}

fn run(file: File) -> Result<Trajectory<'static>, Problem> {
    let Some(messages) = file.messages else {
        return Err(Problem::malformed("missing `messages`: expected a list"));
    };
    let mut talk = Talk::default();
    for (Said(mut message), i) in messages.into_iter().zip(1..) {
        let role = lift(&mut message, "role", owned_text)
            .ok_or_else(|| Problem::malformed(format!("message {i}: missing `role`")))?;
        let role = match &*role {
            "tool" => {
                talk.result(result(message), Some(Role::Agent));
                continue;
            }
            "assistant" => Role::Agent,
            "system" => Role::System,
            "user" => Role::User,
            other => {
                let other = other.to_owned();
                talk.note("unknown role", || other);
                Role::User
            }
        };
        talk.step(step(role, message));
    }
    let (steps, notes) = talk.end();
    let mut run = Trajectory { steps, notes, ..Trajectory::default() };

    let mut other = file.other;
    run.recorded.success = lift(&mut other, "utility", Value::as_bool);
    run.totals.wall_s = lift(&mut other, "duration", Value::as_f64);
    run.model = lift(&mut other, "pipeline_name", owned_text);
    let part = |name: &str| other.get(name).and_then(Value::as_str);
    // The task id consists of the suite, the user task and the attack.
    let parts: Vec<&str> = ["suite_name", "user_task_id", "injection_task_id"]
        .iter()
        .filter_map(|name| part(name))
        .collect();
    run.task_id = Some(parts.join("/").into());
    run.ending = match lift(&mut other, "error", owned_text) {
        Some(error) => Some(Ending {
            reason: "unknown".into(),
            failure_mode: Some(error),
            ..Ending::default()
        }),
        // The pipeline runs until a response has no calls.
        None => {
            run.steps.last().filter(|step| step.is_turn() && step.calls.is_empty()).map(|step| {
                let answer = (!step.text.is_empty()).then(|| step.text.clone());
                Ending { reason: "final".into(), answer, ..Ending::default() }
            })
        }
    };
    other.retain(|_, value| !value.is_null());
    let labels =
        ["suite_name", "user_task_id", "injection_task_id", "attack_type", "security", "utility"];
    for name in labels {
        if let Some(value) = other.shift_remove(name) {
            run.labels.insert(name.to_owned(), value);
        }
    }
    run.extra = other;
    Ok(run)
}

fn step(role: Role, mut message: Map<String, Value>) -> Step<'static> {
    let mut step = Step::new(role);
    let (text, reasoning) = texts(&mut message);
    step.text = text;
    step.reasoning = reasoning;
    if let Some(Value::Array(calls)) = message.get_mut("tool_calls") {
        let calls = std::mem::take(calls);
        message.shift_remove("tool_calls");
        step.calls = calls.into_iter().map(call).collect();
    }
    step.extra = (!message.is_empty()).then(|| Box::new(message));
    step
}

fn call(value: Value) -> Call<'static> {
    let Value::Object(mut map) = value else {
        return Call { arguments: of_value(Some(&value)).into(), ..Call::default() };
    };
    let arguments = map.shift_remove("args");
    let mut call = Call {
        id: lift(&mut map, "id", owned_name).filter(|id| !id.is_empty()),
        name: lift(&mut map, "function", owned_text).unwrap_or_default(),
        arguments: of_value(arguments.as_ref()).into(),
        extra: None,
    };
    map.retain(|_, value| !value.is_null());
    call.extra = (!map.is_empty()).then(|| Box::new(map));
    call
}

fn result(mut message: Map<String, Value>) -> CallResult<'static> {
    let (content, _) = texts(&mut message);
    // The call repeats that of the model's message.
    message.shift_remove("tool_call");
    let call_id = lift(&mut message, "tool_call_id", owned_name).filter(|id| !id.is_empty());
    let error = lift(&mut message, "error", owned_text);
    // After `lift`, `error` is only left if it is neither a string nor `null`.
    let is_error = error.is_some() || message.contains_key("error");
    let content = match error {
        Some(error) if content.is_empty() => error,
        Some(error) => {
            message.insert("error".to_owned(), error.into_owned().into());
            content
        }
        None => content,
    };
    let extra = (!message.is_empty()).then(|| Box::new(message));
    CallResult { call_id, content, is_error, exit_code: None, extra }
}

/// Returns the text and the reasoning of a message. Parts of other types stay in the message.
fn texts(message: &mut Map<String, Value>) -> (Cow<'static, str>, Option<Cow<'static, str>>) {
    let (mut text, mut reasoning) = (Vec::new(), Vec::new());
    match message.shift_remove("content") {
        None => {}
        // In earlier versions the content is a string.
        Some(Value::String(content)) => text.push(content),
        Some(Value::Array(parts)) => {
            let mut rest = Vec::new();
            for part in parts {
                let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
                match (kind, part.get("content").and_then(Value::as_str)) {
                    ("text", Some(content)) => text.push(content.to_owned()),
                    ("thinking", Some(content)) => reasoning.push(content.to_owned()),
                    _ => rest.push(part),
                }
            }
            if !rest.is_empty() {
                message.insert("content".to_owned(), Value::Array(rest));
            }
        }
        Some(other) => {
            message.insert("content".to_owned(), other);
        }
    }
    let reasoning = (!reasoning.is_empty()).then(|| reasoning.join("\n").into());
    (text.join("\n").into(), reasoning)
}
