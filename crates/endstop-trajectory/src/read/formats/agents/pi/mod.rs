//! Reader for pi: the sessions of `~/.pi/agent/sessions`.
//!
//! ```text
//! {"type":"session","version":3,"id":…,"timestamp":…,"cwd":…}
//! {"type":"message","id":…,"parentId":…,"message":{"role":"assistant","content":[…],"usage":{…},"stopReason":"toolUse"}}
//! ```
//!
//! Quirks:
//!
//! - The entries form a tree by `parentId`. The run is the branch of the last entry.
//! - A model call that failed is a message with the stop reason `error`. It is not a turn, unless the
//!   provider completed the response with a finish reason that pi does not accept
//!   (`Provider finish_reason: content_filter`). Its tokens are in the totals.
//! - `usage.input` excludes cached tokens. A cost of 0 means that pi has no price for the model.
//! - Compactions and summaries of branches are entries of their own. They are counted in a note.

use crate::model::{Call, CallResult, Ending, ModelCall, Origin, Role, Step, Trajectory, Usage};
use crate::read::build::conversation::{Conversation, Tally};
use crate::read::build::fields::{
    self, Fields, add_extra, append, arguments, content, is_true, merge_extra, peek, text,
};
use crate::read::build::tree::on_last_path;
use crate::read::format::{Format, Head, Place, Shape, Sink};
use crate::read::io::json_lines;
use serde_json::Value;

pub(crate) const FORMATS: &[Format] = &[Format {
    name: "pi",
    about: "pi: sessions of the coding agent",
    recognises,
    of_a_person: true,
    shape: Some(Shape::Session(read)),
}];

/// The beginning of the error of a response that the provider completed.
const FINISHED: &str = "Provider finish_reason: ";

fn recognises(head: &Head<'_>) -> bool {
    json_lines::first_objects(head).iter().any(|map| match peek(map, "type") {
        Some("session") => {
            ["id", "timestamp", "cwd"].iter().all(|key| peek(map, key).is_some())
                && map.get("version").is_none_or(Value::is_number)
        }
        Some("message") => {
            map.contains_key("parentId")
                && map.get("message").is_some_and(|m| m["role"].is_string())
        }
        _ => false,
    })
}

fn is_record(map: &Fields) -> bool {
    ["id", "timestamp", "type"].iter().all(|key| peek(map, key).is_some())
}

fn read(bytes: &[u8], place: &Place<'_>, sink: &mut Sink<'_>) {
    let mut session = Session::default();
    let mut entries = Vec::new();
    json_lines::each_object(bytes, place, sink, is_record, |map| {
        match peek(&map, "type") {
            Some("session") => session.begin(map),
            Some(_) => entries.push(map),
            None => return Err("an entry without its `type`".to_owned()),
        }
        Ok(())
    });
    let links: Vec<_> =
        entries.iter().map(|map| (peek(map, "id"), peek(map, "parentId"))).collect();
    let kept = on_last_path(&links);
    for (map, kept) in entries.into_iter().zip(kept) {
        if kept {
            session.take(map);
        } else {
            session.left.add(peek(&map, "type").unwrap_or_default());
        }
    }
    if session.run.steps.is_empty() && session.ending.is_none() {
        return sink(Err(json_lines::nothing(place, "no message of a session")));
    }
    let mut run = session.finish();
    run.origin = Origin::default();
    sink(Ok(run));
}

#[derive(Default)]
struct Session {
    head: Fields,
    run: Conversation,
    model: Option<String>,
    provider: Option<String>,
    ending: Option<Ending<'static>>,
    /// Failed model calls with a usage.
    failed: Vec<ModelCall>,
    others: Tally,
    /// Entries of abandoned branches.
    left: Tally,
}

impl Session {
    fn begin(&mut self, map: Fields) {
        // A forked session begins with its own head, followed by that of its parent.
        for (key, value) in map {
            self.head.entry(key).or_insert(value);
        }
    }

    fn take(&mut self, mut map: Fields) {
        let kind = text(&mut map, "type").unwrap_or_default();
        let at = text(&mut map, "timestamp");
        match kind.as_str() {
            "message" => match fields::object(&mut map, "message") {
                Some(message) => self.message(message, at),
                None => self.others.add("messages without a message"),
            },
            // A message of an extension, which the model receives in the user's role.
            "custom_message" => {
                map.insert("isMeta".to_owned(), Value::Bool(true));
                map.insert("role".to_owned(), Value::String("user".to_owned()));
                self.message(map, at);
            }
            "model_change" => {
                self.provider = text(&mut map, "provider").or(self.provider.take());
                self.others.add(&kind);
            }
            other => self.others.add(other),
        }
    }

    fn message(&mut self, mut map: Fields, at: Option<String>) {
        // The entry has the same time in words.
        map.shift_remove("timestamp");
        let role = text(&mut map, "role").unwrap_or_default();
        match role.as_str() {
            "assistant" => self.said(map, at),
            "toolResult" => self.result(map),
            "user" => {
                self.ending = None;
                let mut rest = Vec::new();
                let said = content(map.shift_remove("content"), &mut rest);
                let at = at.map(Into::into);
                let mut step = Step { text: said.into(), at, ..Step::new(Role::User) };
                for key in ["id", "parentId"] {
                    map.shift_remove(key);
                }
                merge_extra(&mut step.extra, map);
                if !rest.is_empty() {
                    add_extra(&mut step.extra, "content", Value::Array(rest));
                }
                self.run.push(step);
            }
            // Commands of the person (`bashExecution`) and summaries, in the place of a message.
            other => self.others.add(&format!("message {other}")),
        }
    }

    fn said(&mut self, mut map: Fields, at: Option<String>) {
        let reason = text(&mut map, "stopReason").unwrap_or_default();
        let error = text(&mut map, "errorMessage");
        let parts = fields::list(&mut map, "content").unwrap_or_default();
        let (usage, cost) = usage(fields::object(&mut map, "usage").unwrap_or_default());
        let model = text(&mut map, "model");
        self.provider = text(&mut map, "provider").or(self.provider.take());
        let completed = error.as_deref().is_some_and(|error| error.starts_with(FINISHED));
        let failed = reason == "error" && !completed || reason == "aborted" && parts.is_empty();
        self.ending = ending(&reason, error);
        if failed {
            self.run.odd.add("model calls that failed");
            let call = ModelCall { model, usage, cost_usd: cost };
            self.failed.extend(Some(call).filter(ModelCall::is_paid));
            return;
        }
        self.model = self.model.take().or_else(|| model.clone());
        let mut step = Step {
            at: at.map(Into::into),
            model: model.map(Into::into),
            usage: Some(Box::new(usage)),
            cost_usd: cost,
            finish_reason: Some(reason.into()),
            ..Step::new(Role::Agent)
        };
        merge_extra(&mut step.extra, map);
        let turn = self.run.push(step);
        for part in parts {
            self.part(turn, part);
        }
        if let Some(ending) = self.ending.as_mut().filter(|ending| ending.reason == "final") {
            ending.answer = Some(self.run.steps[turn].text.clone());
        }
    }

    fn part(&mut self, turn: usize, part: Value) {
        let step = &mut self.run.steps[turn];
        let Value::Object(mut part) = part else {
            return self.others.add("parts that are not objects");
        };
        match peek(&part, "type") {
            Some("text") => {
                append(step.text.to_mut(), peek(&part, "text").unwrap_or_default());
            }
            Some("thinking") => {
                let thought = peek(&part, "thinking").unwrap_or_default();
                append(step.reasoning.get_or_insert_default().to_mut(), thought);
            }
            Some("toolCall") => {
                part.shift_remove("type");
                let call = Call {
                    id: text(&mut part, "id").map(Into::into),
                    name: text(&mut part, "name").unwrap_or_default().into(),
                    arguments: arguments(part.shift_remove("arguments")),
                    extra: fields::extra(part),
                };
                self.run.call(turn, call);
            }
            other => self.others.add(&format!("part {}", other.unwrap_or("without a type"))),
        }
    }

    fn result(&mut self, mut map: Fields) {
        let mut rest = Vec::new();
        let told = content(map.shift_remove("content"), &mut rest);
        let is_error = is_true(&map, "isError");
        map.shift_remove("isError");
        map.shift_remove("toolName");
        let mut result = CallResult {
            call_id: text(&mut map, "toolCallId").map(Into::into),
            exit_code: exit_code(&told),
            content: told.into(),
            is_error,
            extra: fields::extra(map),
        };
        if !rest.is_empty() {
            add_extra(&mut result.extra, "content", Value::Array(rest));
        }
        self.run.result(result);
    }

    fn finish(mut self) -> Trajectory<'static> {
        let mut run = Trajectory {
            run_id: text(&mut self.head, "id").unwrap_or_default().into(),
            agent: Some("pi".into()),
            model: self.model.map(Into::into),
            ending: self.ending,
            ..Trajectory::default()
        };
        (run.steps, run.notes) = self.run.finish();
        run.notes.extend(self.left.line("entries on abandoned branches"));
        run.notes.extend(self.others.line("entries that are not messages"));
        for key in ["type", "version"] {
            self.head.shift_remove(key);
        }
        if let Some(provider) = self.provider {
            self.head.insert("provider".to_owned(), Value::String(provider));
        }
        if !self.failed.is_empty() {
            // The totals include failed calls, because they were paid for too.
            let mut all = Usage::default();
            let turns = run.turns().filter_map(|step| step.usage.as_deref());
            for usage in turns.chain(self.failed.iter().map(|call| &call.usage)) {
                add(&mut all.prompt_tokens, usage.prompt_tokens);
                add(&mut all.completion_tokens, usage.completion_tokens);
                add(&mut all.cached_tokens, usage.cached_tokens);
            }
            run.totals.prompt_tokens = all.prompt_tokens;
            run.totals.completion_tokens = all.completion_tokens;
            run.totals.cached_tokens = all.cached_tokens;
            run.totals.outside_turns = self.failed;
        }
        run.extra = fields::without_nulls(self.head);
        run
    }
}

fn ending(reason: &str, error: Option<String>) -> Option<Ending<'static>> {
    let (said, native) = match reason {
        "stop" => ("final", "stop"),
        "length" => ("output_length", "length"),
        "aborted" => ("cancelled", "aborted"),
        "error" => ("provider_error", "error"),
        // The model requested tools, so the session continues or was cut off.
        _ => return None,
    };
    Some(Ending {
        reason: said.into(),
        native: Some(native.into()),
        failure_mode: error.map(Into::into),
        ..Ending::default()
    })
}

/// Converts a usage. The input count excludes cached tokens, so they are added.
fn usage(mut map: Fields) -> (Usage, Option<f64>) {
    let input = fields::count(&mut map, "input");
    let read = fields::count(&mut map, "cacheRead");
    let written = fields::count(&mut map, "cacheWrite");
    map.shift_remove("totalTokens");
    let cost = fields::object(&mut map, "cost").and_then(|cost| cost.get("total")?.as_f64());
    let cached = read.unwrap_or(0).saturating_add(written.unwrap_or(0));
    let usage = Usage {
        prompt_tokens: input.map(|input| input.saturating_add(cached)),
        completion_tokens: fields::count(&mut map, "output"),
        cached_tokens: read,
        cache_write_tokens: written,
        reasoning_tokens: None,
        extra: fields::without_nulls(map),
    };
    (usage, cost.filter(|cost| *cost > 0.0))
}

fn add(to: &mut Option<u64>, more: Option<u64>) {
    if let Some(more) = more {
        *to = Some(to.unwrap_or(0).saturating_add(more));
    }
}

/// Reads the exit code of a failed command from the last line of its output.
fn exit_code(told: &str) -> Option<i64> {
    let last = told.trim_end().lines().next_back()?;
    last.strip_prefix("Command exited with code ")?.trim().parse().ok()
}
