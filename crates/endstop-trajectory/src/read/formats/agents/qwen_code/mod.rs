//! Reader for Qwen Code: the chats of `~/.qwen/projects/*/chats`, and those of its subagents.
//!
//! ```text
//! {"uuid":…,"parentUuid":…,"sessionId":…,"type":"assistant","message":{"role":"model","parts":[…]},"usageMetadata":{…}}
//! {"uuid":…,"type":"system","subtype":"ui_telemetry","systemPayload":{"uiEvent":{"event.name":"qwen-code.api_error"}}}
//! ```
//!
//! Quirks:
//!
//! - The records resemble those of Claude Code, but messages have Google's parts.
//! - The records form a tree by `parentUuid`. The run is the branch of the last record.
//! - A subagent writes the text and the calls of a response as two records, of which only the first
//!   has a usage. They are one turn.
//! - A file of a subagent is a separate run with the tag `subagent`.
//! - The ending is not recorded. An `api_error` after the last message is taken as the ending, and
//!   so is a call that the user cancelled.
//! - `totalTokenCount` is the sum of input and output, whether the server counts reasoning as output
//!   or next to it.

use crate::model::{CallResult, Ending, Origin, Role, Step, Trajectory, Usage};
use crate::read::build::conversation::{Conversation, Tally};
use crate::read::build::fields::{
    self, Fields, add_extra, append, is_true, merge_extra, peek, text,
};
use crate::read::build::google::Parts;
use crate::read::build::tree::on_last_path;
use crate::read::format::{Format, Head, Place, Shape, Sink};
use crate::read::io::json_lines;
use serde_json::Value;

pub(crate) const FORMATS: &[Format] = &[Format {
    name: "qwen-code",
    about: "Qwen Code: chats of its sessions",
    recognises,
    of_a_person: true,
    shape: Some(Shape::Session(read)),
}];

/// Record fields that describe the session. A step does not repeat them.
const OF_THE_SESSION: &[&str] =
    &["cwd", "gitBranch", "version", "sessionId", "agentId", "agentName"];

fn recognises(head: &Head<'_>) -> bool {
    json_lines::first_objects(head).iter().any(|map| {
        let parts = || map.get("message").is_some_and(|message| message["parts"].is_array());
        let said = matches!(peek(map, "type"), Some("user" | "assistant" | "tool_result"));
        let ids = peek(map, "sessionId").is_some() && peek(map, "uuid").is_some();
        ids && (said && parts() || map.contains_key("systemPayload"))
    })
}

fn is_record(map: &Fields) -> bool {
    ["uuid", "sessionId", "type"].iter().all(|key| peek(map, key).is_some())
}

fn read(bytes: &[u8], place: &Place<'_>, sink: &mut Sink<'_>) {
    let mut records = Vec::new();
    json_lines::each_object(bytes, place, sink, is_record, |map| match peek(&map, "type") {
        Some(_) => {
            records.push(map);
            Ok(())
        }
        None => Err("a record without its `type`".to_owned()),
    });
    let links: Vec<_> =
        records.iter().map(|map| (peek(map, "uuid"), peek(map, "parentUuid"))).collect();
    let kept = on_last_path(&links);
    let mut chat = Chat::default();
    for (map, kept) in records.into_iter().zip(kept) {
        if kept {
            chat.take(map);
        } else {
            chat.left.add(peek(&map, "type").unwrap_or_default());
        }
    }
    if chat.run.steps.is_empty() {
        return sink(Err(json_lines::nothing(place, "no message of a chat")));
    }
    let mut run = chat.finish();
    run.origin = Origin::default();
    sink(Ok(run));
}

#[derive(Default)]
struct Chat {
    run: Conversation,
    session: Fields,
    subagent: bool,
    model: Option<String>,
    /// The turn that a following record without a usage belongs to.
    open: Option<usize>,
    /// The error of the last model call, if no message follows it.
    failed: Option<Failure>,
    cancelled: bool,
    others: Tally,
    /// Records of abandoned branches.
    left: Tally,
}

/// A failed model call.
struct Failure {
    message: String,
    http_status: Option<u16>,
}

impl Chat {
    fn take(&mut self, mut map: Fields) {
        for key in OF_THE_SESSION {
            if let Some(value) = map.shift_remove(*key) {
                self.session.entry((*key).to_owned()).or_insert(value);
            }
        }
        self.subagent |= is_true(&map, "isSidechain");
        for link in ["uuid", "parentUuid", "isSidechain"] {
            map.shift_remove(link);
        }
        let kind = text(&mut map, "type").unwrap_or_default();
        match kind.as_str() {
            "user" => self.user(map),
            "assistant" => self.turn(map),
            "tool_result" => self.results(map),
            "system" => self.system(&map),
            other => self.others.add(other),
        }
    }

    fn system(&mut self, map: &Fields) {
        let subtype = peek(map, "subtype").unwrap_or("without a subtype");
        let event = map.get("systemPayload").map(|payload| &payload["uiEvent"]);
        let name = event.and_then(|event| event["event.name"].as_str()).unwrap_or_default();
        if let (Some(event), true) = (event, name.ends_with(".api_error")) {
            let said = event["error_message"].as_str().unwrap_or("the provider failed");
            let http_status = fields::http_status(event.get("status_code"));
            self.failed = Some(Failure { message: said.to_owned(), http_status });
            // The only record of the model, if no call succeeded.
            let model = event["model"].as_str().map(str::to_owned);
            self.model = self.model.take().or(model);
        }
        self.others.add(if name.is_empty() { subtype } else { name });
    }

    fn user(&mut self, mut map: Fields) {
        self.open = None;
        (self.failed, self.cancelled) = (None, false);
        let parts = message_parts(&mut map);
        for result in parts.results {
            self.run.result(result);
        }
        if parts.text.is_empty() && parts.rest.is_empty() {
            return;
        }
        let mut step = Step {
            text: parts.text.into(),
            at: text(&mut map, "timestamp").map(Into::into),
            ..Step::new(Role::User)
        };
        // Messages of the program, such as notices of background tasks, are not requests.
        if peek(&map, "provenance").is_some_and(|by| by != "real_user") {
            map.insert("isMeta".to_owned(), Value::Bool(true));
        }
        merge_extra(&mut step.extra, map);
        if !parts.rest.is_empty() {
            add_extra(&mut step.extra, "content", Value::Array(parts.rest));
        }
        self.run.push(step);
    }

    fn turn(&mut self, mut map: Fields) {
        let parts = message_parts(&mut map);
        let usage = fields::object(&mut map, "usageMetadata").map(usage);
        let model = text(&mut map, "model");
        self.model = self.model.take().or_else(|| model.clone());
        let at = text(&mut map, "timestamp").map(Into::into);
        let turn = match self.open.filter(|_| usage.is_none()) {
            Some(open) => open,
            None => self.run.push(Step { at, ..Step::new(Role::Agent) }),
        };
        (self.failed, self.cancelled, self.open) = (None, false, Some(turn));
        let step = &mut self.run.steps[turn];
        append(step.text.to_mut(), &parts.text);
        if !parts.thought.is_empty() {
            append(step.reasoning.get_or_insert_default().to_mut(), &parts.thought);
        }
        step.usage = step.usage.take().or_else(|| usage.map(Box::new));
        step.model = step.model.take().or_else(|| model.map(Into::into));
        merge_extra(&mut step.extra, map);
        if !parts.rest.is_empty() {
            add_extra(&mut step.extra, "content", Value::Array(parts.rest));
        }
        for call in parts.calls {
            self.run.call(turn, call);
        }
    }

    fn results(&mut self, mut map: Fields) {
        self.open = None;
        self.failed = None;
        let parts = message_parts(&mut map);
        let mut outcome = fields::object(&mut map, "toolCallResult").unwrap_or_default();
        let status = text(&mut outcome, "status");
        let code = outcome.get("resultDisplay").and_then(|shown| shown["exitCode"].as_i64());
        self.cancelled |= status.as_deref() == Some("cancelled");
        let failed = matches!(status.as_deref(), Some("error" | "cancelled"));
        let mut results = parts.results;
        if results.is_empty() {
            // An old version records the outcome alone.
            let call_id = text(&mut outcome, "callId").map(Into::into);
            results.push(CallResult {
                call_id,
                content: parts.text.into(),
                ..CallResult::default()
            });
        }
        for mut result in results {
            result.exit_code = code;
            result.is_error |= failed || code.is_some_and(|code| code != 0);
            self.run.result(result);
        }
    }

    fn finish(mut self) -> Trajectory<'static> {
        let session = text(&mut self.session, "sessionId");
        let agent = text(&mut self.session, "agentId");
        let ending = self.ending();
        let mut run = Trajectory {
            agent: Some("qwen-code".into()),
            agent_version: text(&mut self.session, "version").map(Into::into),
            model: self.model.map(Into::into),
            ending,
            ..Trajectory::default()
        };
        (run.steps, run.notes) = self.run.finish();
        match agent.filter(|_| self.subagent) {
            Some(agent) => {
                run.run_id = agent.into();
                run.tags.push("subagent".into());
                if let Some(session) = session {
                    run.extra.insert("sessionId".to_owned(), Value::String(session));
                }
            }
            None => run.run_id = session.unwrap_or_default().into(),
        }
        run.notes.extend(self.left.line("records on abandoned branches"));
        run.notes.extend(self.others.line("records that are not messages"));
        run.extra.extend(fields::without_nulls(self.session));
        run
    }

    fn ending(&self) -> Option<Ending<'static>> {
        let (reason, native) = match &self.failed {
            Some(_) => ("provider_error", "api_error"),
            None if self.cancelled => ("cancelled", "cancelled"),
            None => return None,
        };
        Some(Ending {
            reason: reason.into(),
            native: Some(native.into()),
            failure_mode: self.failed.as_ref().map(|failed| failed.message.clone().into()),
            http_status: self.failed.as_ref().and_then(|failed| failed.http_status),
            ..Ending::default()
        })
    }
}

fn message_parts(map: &mut Fields) -> Parts {
    let mut message = fields::object(map, "message").unwrap_or_default();
    Parts::of(message.shift_remove("parts"))
}

fn usage(mut map: Fields) -> Usage {
    let prompt = fields::count(&mut map, "promptTokenCount");
    let output = fields::count(&mut map, "candidatesTokenCount");
    let total = fields::count(&mut map, "totalTokenCount");
    let by_total = prompt.zip(total).and_then(|(prompt, total)| total.checked_sub(prompt));
    Usage {
        prompt_tokens: prompt,
        // Never less than the output that is recorded by itself.
        completion_tokens: by_total.max(output),
        cached_tokens: fields::count(&mut map, "cachedContentTokenCount"),
        reasoning_tokens: fields::count(&mut map, "thoughtsTokenCount"),
        extra: fields::without_nulls(map),
        ..Usage::default()
    }
}
