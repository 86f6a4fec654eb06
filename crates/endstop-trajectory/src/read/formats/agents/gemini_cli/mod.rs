//! Reader for Gemini CLI: the chats of `~/.gemini/tmp/*/chats`, in JSON lines and, before 2026, as
//! one document.
//!
//! ```text
//! {"sessionId":…,"projectHash":…,"startTime":…,"kind":"main"}
//! {"id":…,"timestamp":…,"type":"gemini","content":"…","tokens":{…},"toolCalls":[…]}
//! {"$set":{"lastUpdated":…}}
//! ```
//!
//! Quirks:
//!
//! - A message is written again when it grows: the record with the same `id` replaces it. `$set`
//!   may also contain messages, and a compaction repeats those that it retains. Each id is one
//!   message, at the place of its first record.
//! - `$rewindTo` takes back a message and all after it. They are not part of the run, and a note
//!   counts them.
//! - Calls are written only when they are complete, together with their results. A program that is
//!   killed during a call leaves a turn without it, which looks like an answer.
//! - The results are repeated in a message of the user. The reader uses the first of the two.
//! - `tokens.output` excludes `thoughts`, and `tokens.input` includes `cached`.
//! - A response without content, calls and `tokens` (`null`) is a call that failed. It is not a turn.
//! - Messages of the types `info`, `warning` and `error` are those of the program. An `error` after
//!   the last turn is the ending.

use crate::model::{Call, CallResult, Ending, Origin, Role, Step, Trajectory, Usage};
use crate::read::build::conversation::{Conversation, Tally};
use crate::read::build::fields::{self, Fields, add_extra, arguments, merge_extra, peek, text};
use crate::read::build::google::Parts;
use crate::read::format::{Format, Head, Place, Shape, Sink};
use crate::read::io::json_lines;
use endstop_core::bounded_json;
use serde_json::Value;
use std::collections::HashMap;

pub(crate) const FORMATS: &[Format] = &[Format {
    name: "gemini-cli",
    about: "Gemini CLI: chats of its sessions",
    recognises,
    of_a_person: true,
    shape: Some(Shape::Session(read)),
}];

fn recognises(head: &Head<'_>) -> bool {
    json_lines::first_objects(head).iter().any(is_head)
}

fn is_head(map: &Fields) -> bool {
    ["sessionId", "projectHash", "startTime"].iter().all(|key| peek(map, key).is_some())
}

fn is_record(map: &Fields) -> bool {
    let is_message = ["id", "timestamp", "type"].iter().all(|key| peek(map, key).is_some());
    is_message || is_head(map) || map.contains_key("$set") || map.contains_key("$rewindTo")
}

fn read(bytes: &[u8], place: &Place<'_>, sink: &mut Sink<'_>) {
    let mut chat = Chat::default();
    match as_document(bytes) {
        Some(mut document) => {
            let messages = fields::list(&mut document, "messages").unwrap_or_default();
            chat.begin(document);
            chat.all(messages);
        }
        None => json_lines::each_object(bytes, place, sink, is_record, |map| {
            chat.take(map);
            Ok(())
        }),
    }
    if chat.messages.is_empty() {
        return sink(Err(json_lines::nothing(place, "no message of a chat")));
    }
    let mut run = chat.finish();
    run.origin = Origin::default();
    sink(Ok(run));
}

/// Parses a file that is one document.
fn as_document(bytes: &[u8]) -> Option<Fields> {
    let map: Fields = bounded_json::from_slice(bytes).ok()?;
    map.get("messages").is_some_and(Value::is_array).then_some(map)
}

/// The records of a chat.
#[derive(Default)]
struct Chat {
    head: Fields,
    messages: Vec<Fields>,
    by_id: HashMap<String, usize>,
    others: Tally,
    taken_back: u64,
}

impl Chat {
    fn begin(&mut self, map: Fields) {
        // Later lines repeat the head with other times.
        for (key, value) in map {
            self.head.entry(key).or_insert(value);
        }
    }

    fn take(&mut self, mut map: Fields) {
        if let Some(mut set) = fields::object(&mut map, "$set") {
            self.all(fields::list(&mut set, "messages").unwrap_or_default());
            self.begin(set);
        } else if let Some(id) = text(&mut map, "$rewindTo") {
            self.rewind(&id);
        } else if map.contains_key("type") && map.contains_key("id") {
            self.message(map);
        } else if is_head(&map) {
            self.begin(map);
        } else {
            self.others.add(map.keys().next().map_or("empty", String::as_str));
        }
    }

    fn all(&mut self, messages: Vec<Value>) {
        for message in messages {
            match message {
                Value::Object(message) => self.message(message),
                other => self.others.add(fields::kind_of(&other)),
            }
        }
    }

    fn message(&mut self, map: Fields) {
        let id = peek(&map, "id").map(str::to_owned);
        if let Some(&at) = id.as_ref().and_then(|id| self.by_id.get(id)) {
            self.messages[at] = map;
            return;
        }
        if let Some(id) = id {
            self.by_id.insert(id, self.messages.len());
        }
        self.messages.push(map);
    }

    fn rewind(&mut self, id: &str) {
        let Some(&from) = self.by_id.get(id) else { return self.others.add("$rewindTo") };
        for message in self.messages.drain(from..) {
            self.taken_back += 1;
            if let Some(id) = peek(&message, "id") {
                self.by_id.remove(id);
            }
        }
    }

    fn finish(mut self) -> Trajectory<'static> {
        let mut thread = Thread::default();
        for message in std::mem::take(&mut self.messages) {
            thread.take(message, &mut self.others);
        }
        let mut run = Trajectory {
            run_id: text(&mut self.head, "sessionId").unwrap_or_default().into(),
            agent: Some("gemini-cli".into()),
            model: thread.model.clone().map(Into::into),
            ending: thread.ending(),
            ..Trajectory::default()
        };
        (run.steps, run.notes) = thread.run.finish();
        if peek(&self.head, "kind") == Some("subagent") {
            run.tags.push("subagent".into());
        }
        if self.taken_back > 0 {
            run.notes.push(format!("messages that were taken back: {}", self.taken_back));
        }
        run.notes.extend(self.others.line("records that are not messages"));
        run.extra = fields::without_nulls(self.head);
        run
    }
}

/// The messages of a chat as steps.
#[derive(Default)]
struct Thread {
    run: Conversation,
    model: Option<String>,
    /// The error of the program after the last turn.
    failed: Option<String>,
    /// `true` if the last turn has a call that the user cancelled.
    cancelled: bool,
}

impl Thread {
    fn take(&mut self, mut map: Fields, others: &mut Tally) {
        let kind = text(&mut map, "type").unwrap_or_default();
        match kind.as_str() {
            "user" => self.user(map),
            "gemini" => self.turn(map),
            "error" => {
                self.failed = Some(Parts::of(map.shift_remove("content")).text);
                others.add(&kind);
            }
            "" => others.add("messages without a type"),
            other => others.add(other),
        }
    }

    fn user(&mut self, mut map: Fields) {
        let parts = Parts::of(map.shift_remove("content"));
        let only_results = parts.text.is_empty() && parts.rest.is_empty();
        for result in parts.results {
            // The turn has it already, unless the program was killed between the two records.
            if result.call_id.as_deref().is_none_or(|id| !self.run.is_answered(id)) {
                self.run.result(result);
            }
        }
        if only_results {
            return;
        }
        (self.failed, self.cancelled) = (None, false);
        let at = text(&mut map, "timestamp").map(Into::into);
        let mut step = Step { text: parts.text.into(), at, ..Step::new(Role::User) };
        map.shift_remove("id");
        // The text that the person saw, if the model received another one.
        merge_extra(&mut step.extra, map);
        if !parts.rest.is_empty() {
            add_extra(&mut step.extra, "content", Value::Array(parts.rest));
        }
        self.run.push(step);
    }

    fn turn(&mut self, mut map: Fields) {
        let parts = Parts::of(map.shift_remove("content"));
        let model = text(&mut map, "model");
        self.model = self.model.take().or_else(|| model.clone());
        let usage = fields::object(&mut map, "tokens").map(usage).map(Box::new);
        let thoughts = fields::list(&mut map, "thoughts").unwrap_or_default();
        let calls = fields::list(&mut map, "toolCalls").unwrap_or_default();
        let is_empty = parts.text.is_empty() && parts.calls.is_empty() && parts.rest.is_empty();
        if is_empty && thoughts.is_empty() && calls.is_empty() && usage.is_none() {
            // The stream ended before anything came, so the last response is still the one before.
            return self.run.odd.add("model calls without a response");
        }
        let mut step = Step {
            text: parts.text.into(),
            at: text(&mut map, "timestamp").map(Into::into),
            usage,
            model: model.map(Into::into),
            ..Step::new(Role::Agent)
        };
        let thoughts = thoughts.iter().filter_map(|one| one["description"].as_str());
        let thoughts = thoughts.collect::<Vec<_>>().join("\n");
        step.reasoning = (!thoughts.is_empty()).then(|| thoughts.into());
        map.shift_remove("id");
        merge_extra(&mut step.extra, map);
        let turn = self.run.push(step);
        (self.failed, self.cancelled) = (None, false);
        for call in calls {
            if let Value::Object(call) = call {
                self.call(turn, call);
            }
        }
    }

    fn call(&mut self, turn: usize, mut map: Fields) {
        let id = text(&mut map, "id");
        let status = text(&mut map, "status");
        let results = Parts::of(map.shift_remove("result"));
        let call = Call {
            name: text(&mut map, "name").unwrap_or_default().into(),
            arguments: arguments(map.shift_remove("args")),
            id: id.clone().map(Into::into),
            extra: None,
        };
        self.run.call(turn, call);
        let failed = matches!(status.as_deref(), Some("error" | "cancelled"));
        self.cancelled |= status.as_deref() == Some("cancelled");
        let mut results = results.results;
        if results.is_empty() && status.is_some() {
            // A tool without content is still answered.
            results.push(CallResult::default());
        }
        for mut result in results {
            result.call_id = id.clone().map(Into::into);
            result.is_error |= failed;
            self.run.result(result);
        }
    }

    fn ending(&self) -> Option<Ending<'static>> {
        let (reason, native) = match &self.failed {
            Some(_) => ("provider_error", "error"),
            None if self.cancelled => ("cancelled", "cancelled"),
            None => return None,
        };
        Some(Ending {
            reason: reason.into(),
            native: Some(native.into()),
            failure_mode: self.failed.clone().map(Into::into),
            ..Ending::default()
        })
    }
}

fn usage(mut map: Fields) -> Usage {
    let count = |map: &mut Fields, key| fields::count(map, key);
    let input = count(&mut map, "input");
    let output = count(&mut map, "output");
    let thoughts = count(&mut map, "thoughts");
    // Tokens of a tool that the provider ran are part of the prompt.
    let tool = count(&mut map, "tool").unwrap_or(0);
    map.shift_remove("total");
    Usage {
        prompt_tokens: input.map(|input| input.saturating_add(tool)),
        completion_tokens: output.map(|output| output.saturating_add(thoughts.unwrap_or(0))),
        cached_tokens: count(&mut map, "cached"),
        reasoning_tokens: thoughts,
        extra: fields::without_nulls(map),
        ..Usage::default()
    }
}
