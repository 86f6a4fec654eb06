//! Reader for Cursor: the transcripts of its agent,
//! `~/.cursor/projects/*/agent-transcripts/ID/ID.jsonl`.
//!
//! ```text
//! {"role":"assistant","message":{"content":[{"type":"text",…},{"type":"tool_use","name":"Glob","input":{…}}]}}
//! {"type":"turn_ended","status":"success"}
//! ```
//!
//! Quirks:
//!
//! - Calls have no ids, and their results are not recorded: such a run has the tag `no_results`.
//! - There are no times, tokens, models or ids. A run is named after its file.
//! - `turn_ended` ends the work on one prompt, not the run: a message after it continues the run.
//!   The last `turn_ended` is the ending of the run. An error other than a stop by the user is
//!   recorded in free text, so its kind is unknown.
//! - An older version wrote free text, which is not supported.

use crate::model::{Call, CallResult, Ending, Origin, Role, Step, Trajectory};
use crate::read::build::conversation::{Conversation, Tally};
use crate::read::build::fields::{
    self, Fields, Texts, add_extra, append, arguments, content, peek, text,
};
use crate::read::format::{Format, Head, Place, Shape, Sink};
use crate::read::io::json_lines;
use serde_json::Value;

pub(crate) const FORMATS: &[Format] = &[Format {
    name: "cursor",
    about: "Cursor: transcripts of its agent",
    recognises,
    of_a_person: true,
    shape: Some(Shape::Session(read)),
}];

fn recognises(head: &Head<'_>) -> bool {
    let objects = json_lines::first_objects(head);
    let messages = objects.iter().filter(|map| is_message(map)).count();
    let ends = objects.iter().filter(|map| is_turn_ended(map)).count();
    // At least half of the lines must match, so that a log with a few similar lines is not taken
    // for a transcript.
    messages > 0 && 2 * (messages + ends) >= objects.len()
}

fn is_message(map: &Fields) -> bool {
    let of_content = |message: &Fields| {
        message.len() == 1 && message.get("content").is_some_and(Value::is_array)
    };
    map.len() == 2
        && matches!(peek(map, "role"), Some("user" | "assistant"))
        && map.get("message").and_then(Value::as_object).is_some_and(of_content)
}

fn is_turn_ended(map: &Fields) -> bool {
    peek(map, "type") == Some("turn_ended") && map.contains_key("status")
}

fn is_record(map: &Fields) -> bool {
    is_message(map) || is_turn_ended(map)
}

fn read(bytes: &[u8], place: &Place<'_>, sink: &mut Sink<'_>) {
    let mut transcript = Transcript::default();
    json_lines::each_object(bytes, place, sink, is_record, |map| transcript.take(map));
    let mut run = transcript.finish();
    if run.steps.is_empty() && run.ending.is_none() {
        return sink(Err(json_lines::nothing(place, "no message of a transcript")));
    }
    run.origin = Origin { at: None, ..Origin::default() };
    sink(Ok(run));
}

#[derive(Default)]
struct Transcript {
    run: Conversation,
    ending: Option<Ending<'static>>,
    results: u64,
    others: Tally,
}

impl Transcript {
    fn take(&mut self, mut map: Fields) -> Result<(), String> {
        if is_turn_ended(&map) {
            self.ended(map);
            return Ok(());
        }
        let Some(role) = text(&mut map, "role") else {
            self.others.add(peek(&map, "type").unwrap_or("without a role"));
            return Ok(());
        };
        let role = match role.as_str() {
            "user" => Role::User,
            "assistant" => Role::Agent,
            "system" => Role::System,
            other => {
                return Err(format!(
                    "unknown role `{other}`: expected `user`, `assistant` or `system`"
                ));
            }
        };
        let Some(mut message) = fields::object(&mut map, "message") else {
            let found = map.get("message").map_or("nothing", fields::kind_of);
            return Err(format!("invalid `message`: expected an object, found {found}"));
        };
        // A message after `turn_ended` continues the run.
        self.ending = None;
        let parts = message.shift_remove("content");
        let step = Step { extra: fields::extra(message), ..Step::new(role) };
        let parts = match parts {
            Some(Value::Array(parts)) => parts,
            other => vec![other.unwrap_or_default()],
        };
        self.message(step, parts);
        Ok(())
    }

    fn message(&mut self, mut step: Step<'static>, parts: Vec<Value>) {
        let (mut said, mut rest) = (Texts::default(), Vec::new());
        let (mut calls, mut results) = (Vec::new(), Vec::new());
        for part in parts {
            let kind = part.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
            match (kind.as_str(), part) {
                ("tool_use", Value::Object(call)) => calls.push(call_of(call)),
                ("tool_result", Value::Object(result)) => results.push(result_of(result)),
                ("thinking", Value::Object(mut thought)) => {
                    let thought = text(&mut thought, "thinking").unwrap_or_default();
                    append(step.reasoning.get_or_insert_default().to_mut(), &thought);
                }
                (_, part) => said.push(&content(Some(Value::Array(vec![part])), &mut rest)),
            }
        }
        step.text = said.0.into();
        if !rest.is_empty() {
            add_extra(&mut step.extra, "content", Value::Array(rest));
        }
        // A user message that consists only of tool results is not a message of the user.
        let only_results = !results.is_empty() && step.text.is_empty() && step.extra.is_none();
        if step.role == Role::Agent || !only_results {
            let at = self.run.push(step);
            for call in calls {
                self.run.call(at, call);
            }
        }
        self.results += results.len() as u64;
        for result in results {
            self.run.result(result);
        }
    }

    fn ended(&mut self, mut map: Fields) {
        let status = text(&mut map, "status").unwrap_or_default();
        let error = text(&mut map, "error");
        let stopped = error.as_deref().is_some_and(|error| error.starts_with("User aborted"));
        let reason = match status.as_str() {
            "success" => "final",
            "error" if stopped => "cancelled",
            "cancelled" | "canceled" | "aborted" => "cancelled",
            _ => "unknown",
        };
        let is_last = self.run.last_turn_index().is_some_and(|at| at + 1 == self.run.steps.len());
        // An answer requires that the last step is a turn: after a user's message there is none.
        let said = self.run.last_turn().map(|turn| turn.text.to_string());
        let answer = said.filter(|said| reason == "final" && is_last && !said.is_empty());
        self.ending = Some(Ending {
            reason: reason.into(),
            native: Some(status.into()),
            failure_mode: error.map(Into::into),
            answer: answer.map(Into::into),
            ..Ending::default()
        });
    }

    fn finish(self) -> Trajectory<'static> {
        let mut run = Trajectory { agent: Some("cursor".into()), ..Trajectory::default() };
        run.ending = self.ending;
        (run.steps, run.notes) = self.run.finish();
        if self.results == 0 && run.turns().any(|turn| !turn.calls.is_empty()) {
            run.tags.push("no_results".into());
        }
        run.notes.extend(self.others.line("records that are not steps"));
        run
    }
}

fn call_of(mut part: Fields) -> Call<'static> {
    part.shift_remove("type");
    Call {
        id: text(&mut part, "id").map(Into::into),
        name: text(&mut part, "name").unwrap_or_default().into(),
        arguments: arguments(part.shift_remove("input")),
        extra: fields::extra(part),
    }
}

fn result_of(mut part: Fields) -> CallResult<'static> {
    part.shift_remove("type");
    let is_error = fields::is_true(&part, "is_error");
    part.shift_remove("is_error");
    let mut rest = Vec::new();
    let told = content(part.shift_remove("content"), &mut rest);
    let call_id = text(&mut part, "tool_use_id").map(Into::into);
    let mut extra = fields::extra(part);
    if !rest.is_empty() {
        add_extra(&mut extra, "content", Value::Array(rest));
    }
    CallResult { call_id, content: told.into(), is_error, exit_code: None, extra }
}
