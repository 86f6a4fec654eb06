//! Decodes the `history` of a `.traj` file: system message, demonstrations, task, and each turn
//! with its observation.
//!
//! ```json
//! {"role": "assistant", "content": "…", "thought": "…", "action": "ls", "agent": "main",
//!  "tool_calls": [{"id": "c1", "function": {"name": "bash", "arguments": "{\"command\": \"ls\"}"}}]}
//! ```

use crate::model::{Call, CallResult, Role, Step, Trajectory};
use crate::read::build::arguments;
use crate::read::build::parts::Content;
use crate::read::build::record::{self, List, Of, Record, keep_value};
use crate::read::build::talk::Talk;
use serde::de::MapAccess;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;

#[derive(Default)]
pub(super) struct History<'a> {
    role: Cow<'a, str>,
    content: Content<'a>,
    thought: Option<Cow<'a, str>>,
    pub(super) action: Option<Cow<'a, str>>,
    pub(super) calls: Vec<Call<'a>>,
    answers: Vec<Cow<'a, str>>,
    demo: bool,
    kind: Option<Cow<'a, str>>,
    other: Map<String, Value>,
}

impl<'a> Record<'a> for History<'a> {
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        match name {
            "role" => self.role = record::text(map)?.unwrap_or_default(),
            "content" => self.content = map.next_value()?,
            "thought" => self.thought = record::text(map)?,
            "action" => self.action = record::text(map)?,
            "message_type" => self.kind = record::text(map)?,
            "tool_calls" => {
                let calls = map.next_value::<List<Asked<'a>>>()?.0;
                self.calls = calls.into_iter().map(|asked| asked.0).collect();
            }
            "tool_call_ids" => {
                let ids = map.next_value::<Option<Vec<Value>>>()?.unwrap_or_default();
                // Ids may be numbers, as those of the calls may be.
                self.answers = ids.iter().filter_map(record::owned_name).collect();
            }
            "is_demo" => self.demo = map.next_value::<Option<bool>>()?.unwrap_or_default(),
            _ => record::keep_other(&mut self.other, name, map)?,
        }
        Ok(())
    }
}

#[derive(Default)]
struct Asked<'a>(Call<'a>);

impl<'a> Record<'a> for Asked<'a> {
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        match name {
            "id" => self.0.id = record::name(map)?,
            "function" => {
                if let Some(Of(function)) = map.next_value::<Option<Of<Function<'a>>>>()? {
                    self.0.name = function.name;
                    self.0.arguments = arguments_of(function.arguments);
                }
            }
            "type" => {
                map.next_value::<serde::de::IgnoredAny>()?;
            }
            _ => record::keep(&mut self.0.extra, name, map)?,
        }
        Ok(())
    }
}

#[derive(Default)]
struct Function<'a> {
    name: Cow<'a, str>,
    arguments: Option<&'a RawValue>,
}

impl<'a> Record<'a> for Function<'a> {
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        match name {
            "name" => self.name = record::text(map)?.unwrap_or_default(),
            "arguments" => self.arguments = Some(record::raw(map)?),
            _ => {
                map.next_value::<serde::de::IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

impl<'a> History<'a> {
    /// Returns `true` if the model wrote the message in this run.
    pub(super) fn is_turn(&self) -> bool {
        self.role == "assistant" && !self.demo
    }

    /// Returns `true` if the content equals this text.
    pub(super) fn is_said(&self, text: &str) -> bool {
        matches!(&self.content, Content::Text(content) if content == text)
    }

    /// Converts a message that is neither a turn nor a result.
    pub(super) fn step(self) -> Step<'a> {
        let role = if self.role == "system" { Role::System } else { Role::User };
        // Only messages of a demonstration have the role `assistant` here: real turns are handled
        // by the caller.
        let mut step = Step::new(if self.role == "assistant" { Role::Agent } else { role });
        step.copied = self.demo;
        let (text, parts) = self.content.split();
        step.text = text;
        self::more(&mut step, self.other, parts);
        if self.demo {
            keep_value(&mut step.extra, "is_demo", true.into());
        }
        step
    }
}

fn more(step: &mut Step<'_>, mut other: Map<String, Value>, parts: Option<Value>) {
    step.agent = record::lift(&mut other, "agent", record::owned_text);
    for (name, value) in other {
        keep_value(&mut step.extra, &name, value);
    }
    if let Some(parts) = parts {
        keep_value(&mut step.extra, "content", parts);
    }
}

/// Builds the run of a file that has only `history`.
pub(super) fn turns_of<'a>(history: Vec<History<'a>>, run: &mut Trajectory<'a>) {
    let mut talk = Talk::default();
    let mut turns = 0;
    for message in history {
        if message.is_turn() {
            turns += 1;
            let mut step = Step::new(Role::Agent);
            let (text, parts) = message.content.split();
            match message.thought {
                // The content repeats the thought and adds the action, so it is only stored if it
                // differs.
                Some(thought) if thought != text => {
                    keep_value(&mut step.extra, "response", text.into_owned().into());
                    step.text = thought;
                }
                _ => step.text = text,
            }
            step.calls = message.calls;
            match message.action {
                Some(action) if step.calls.is_empty() => {
                    step.calls.extend(call_of(&action, turns));
                }
                Some(action) => keep_value(&mut step.extra, "action", action.into_owned().into()),
                None => {}
            }
            more(&mut step, message.other, parts);
            talk.step(step);
        } else if message.role == "tool" || is_observation(&message, turns) {
            // Without function calling, observations are recorded as user messages.
            let (content, parts) = message.content.split();
            let mut result = CallResult {
                // Only the first id, because the message has a single content for all of them.
                call_id: message.answers.into_iter().next(),
                content,
                ..CallResult::default()
            };
            if let Some(parts) = parts {
                keep_value(&mut result.extra, "content", parts);
            }
            talk.result(result, Some(Role::Agent));
        } else {
            talk.step(message.step());
        }
    }
    let (steps, notes) = talk.end();
    run.steps = steps;
    run.notes.extend(notes);
}

/// Returns `true` if a user message is an observation: after the first turn, all of them are.
fn is_observation(message: &History<'_>, turns: usize) -> bool {
    // `message_type` exists only in newer versions.
    let said = message.kind.as_deref().map(|kind| kind == "observation");
    message.role == "user" && !message.demo && turns > 0 && said.unwrap_or(true)
}

/// Converts a command to a call: `edit 1:1\n…` is a call of `edit`.
pub(super) fn call_of(action: &str, number: usize) -> Option<Call<'static>> {
    let name = action.split_whitespace().next()?.to_owned();
    let mut command = Map::new();
    command.insert("command".to_owned(), action.trim_end_matches('\n').into());
    Some(Call {
        id: Some(format!("call-{number}").into()),
        name: name.into(),
        arguments: Value::Object(command).to_string().into(),
        extra: None,
    })
}

/// Decodes the arguments of a call in the history.
pub(super) fn arguments_of(raw: Option<&serde_json::value::RawValue>) -> Cow<'_, str> {
    raw.map_or(Cow::Borrowed("{}"), arguments::of_raw)
}
