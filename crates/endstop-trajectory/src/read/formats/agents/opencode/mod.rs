//! Reader for opencode: a session as `opencode export` writes it. The program stores the same
//! objects in an SQLite database, whose rows [`session`] accepts.
//!
//! ```text
//! {"info":{"id":"ses_…","version":…},"messages":[{"info":{"role":"assistant","tokens":{…},"finish":"stop"},"parts":[…]}]}
//! ```
//!
//! Quirks:
//!
//! - A message of the model is one response. In old versions it may contain several, each from a
//!   `step-start` to a `step-finish`. A message without content is a call that failed or was cut
//!   off, and is not a turn.
//! - The result of a call is in the same part as the call.
//! - `tokens.input` excludes cached tokens. A cost of 0 means that opencode has no price for the
//!   model.
//! - The answer of a compaction has the flag `summary` and is not a turn. Its usage is outside the
//!   turns, like that of a failed call.
//! - A subagent is a session with a `parentID`. Read from the database, it is a child of the run.

use crate::model::{Call, CallResult, Ending, ModelCall, Role, Step, Totals, Trajectory, Usage};
use crate::read::build::conversation::{Conversation, Tally};
use crate::read::build::fields::{
    self, Fields, add_extra, append, arguments, is_true, merge_extra, peek, text,
};
use crate::read::format::{Format, Head, Place, Shape, Sink};
use crate::read::io::json_lines;
use crate::time::iso_8601;
use serde_json::Value;

pub(crate) const FORMATS: &[Format] = &[Format {
    name: "opencode",
    about: "opencode: exported sessions, and the sessions of its database",
    recognises,
    of_a_person: true,
    shape: Some(Shape::Whole(read)),
}];

fn recognises(head: &Head<'_>) -> bool {
    let messages = head.member("messages").is_some_and(Value::is_array);
    let info = head.member("info");
    let is_session = |info: &Value| info["id"].as_str().is_some_and(|id| id.starts_with("ses"));
    messages && info.is_some_and(is_session) && !head.is_lines()
}

fn read(bytes: &[u8], place: &Place<'_>, sink: &mut Sink<'_>) {
    match json_lines::record(bytes).map(session) {
        Ok(Some(run)) => sink(Ok(run)),
        Ok(None) => sink(Err(json_lines::nothing(place, "no message of a session"))),
        Err(problem) => sink(Err(problem)),
    }
}

/// Maximum nesting depth of subagents; deeper ones are dropped and noted.
const DEEPEST: usize = 16;

/// Converts a session of opencode to a run: an object with the members `info`, `messages` (each with
/// `info` and `parts`) and optionally `children`, a list of the same objects. Returns `None` if it
/// has no message.
///
/// ```
/// let session = serde_json::json!({"info": {"id": "ses_1"}, "messages": [
///     {"info": {"role": "user"}, "parts": [{"type": "text", "text": "Hello?"}]},
///     {"info": {"role": "assistant", "finish": "stop"}, "parts": [{"type": "text", "text": "Hi."}]},
/// ]});
/// let serde_json::Value::Object(session) = session else { unreachable!() };
/// let run = endstop_trajectory::read::opencode_session(session).unwrap();
/// assert_eq!((run.turns().count(), run.ending.unwrap().reason), (1, "final".into()));
/// ```
pub fn session(document: Fields) -> Option<Trajectory<'static>> {
    let run = session_at(document, 0);
    (!run.steps.is_empty()).then_some(run)
}

fn session_at(mut document: Fields, depth: usize) -> Trajectory<'static> {
    let mut session = Session::default();
    for message in fields::list(&mut document, "messages").unwrap_or_default() {
        match message {
            Value::Object(message) => session.message(message),
            other => session.others.add(fields::kind_of(&other)),
        }
    }
    let info = fields::object(&mut document, "info").unwrap_or_default();
    let children = fields::list(&mut document, "children").unwrap_or_default();
    let mut run = session.finish(info);
    if depth >= DEEPEST && !children.is_empty() {
        run.notes.push(format!("subagents below the {DEEPEST}th level: {}", children.len()));
        return run;
    }
    for child in children {
        if let Value::Object(child) = child {
            let mut child = session_at(child, depth + 1);
            child.tags.push("subagent".into());
            run.children.push(child);
        }
    }
    run
}

#[derive(Default)]
struct Session {
    run: Conversation,
    model: Option<String>,
    /// The model that the first message of the user was sent to.
    asked_model: Option<String>,
    provider: Option<String>,
    ending: Option<Ending<'static>>,
    /// Compactions, and calls without a response.
    outside: Vec<ModelCall>,
    others: Tally,
}

impl Session {
    fn message(&mut self, mut map: Fields) {
        let info = fields::object(&mut map, "info").unwrap_or_default();
        let parts = fields::list(&mut map, "parts").unwrap_or_default();
        match peek(&info, "role") {
            Some("user") => self.asked(info, parts),
            Some("assistant") if is_true(&info, "summary") => {
                self.others.add("compactions");
                let model = peek(&info, "modelID").map(str::to_owned);
                self.outside(model.as_deref(), info, parts);
            }
            Some("assistant") => self.said(info, parts),
            other => {
                let other = other.unwrap_or("without a role").to_owned();
                self.others.add(&format!("message {other}"));
            }
        }
    }

    /// Adds the usage of a message that is not a turn.
    fn outside(&mut self, model: Option<&str>, info: Fields, parts: Vec<Value>) {
        let is_finish = |part: &Value| part["type"] == "step-finish";
        // The message has only the last response's tokens, and each part those of its own.
        let mut paid: Vec<Value> = parts.into_iter().filter(is_finish).collect();
        if paid.is_empty() {
            paid.push(Value::Object(info));
        }
        for mut one in paid {
            let Some(one) = one.as_object_mut() else { continue };
            let cost_usd = cost(one);
            let usage = fields::object(one, "tokens").map(usage).unwrap_or_default();
            let call = ModelCall { model: model.map(str::to_owned), usage, cost_usd };
            self.outside.extend(Some(call).filter(ModelCall::is_paid));
        }
    }

    fn asked(&mut self, mut info: Fields, parts: Vec<Value>) {
        let mut said = String::new();
        let mut rest = Vec::new();
        // A message of the program alone, for example the request for a compaction.
        let is_own = |part: &Value| part["synthetic"] == true || part["type"] == "compaction";
        let synthetic = !parts.is_empty() && parts.iter().all(is_own);
        for part in parts {
            match (part["type"].as_str(), part["text"].as_str()) {
                (Some("text"), Some(text)) => append(&mut said, text),
                _ => rest.push(part),
            }
        }
        let at = created(&info);
        // The only record of the model, if no call succeeded.
        let asked = info.get("model").and_then(|model| model["modelID"].as_str());
        self.asked_model = self.asked_model.take().or_else(|| asked.map(str::to_owned));
        info.shift_remove("role");
        info.shift_remove("id");
        if synthetic {
            info.insert("isMeta".to_owned(), Value::Bool(true));
        } else {
            self.ending = None;
        }
        let mut step = Step { text: said.into(), at, ..Step::new(Role::User) };
        merge_extra(&mut step.extra, info);
        if !rest.is_empty() {
            add_extra(&mut step.extra, "content", Value::Array(rest));
        }
        self.run.push(step);
    }

    fn said(&mut self, mut info: Fields, parts: Vec<Value>) {
        self.ending = ending(&info);
        self.provider = text(&mut info, "providerID").or(self.provider.take());
        let model = text(&mut info, "modelID");
        let shown = |part: &Value| {
            matches!(part["type"].as_str(), Some("text" | "reasoning" | "tool" | "step-finish"))
        };
        if !parts.iter().any(shown) {
            // Nothing came back: the call failed, or the program was killed while it waited.
            self.run.odd.add("model calls without a response");
            return self.outside(model.as_deref(), info, parts);
        }
        self.model = self.model.take().or_else(|| model.clone());
        let step = Step {
            at: created(&info),
            model: model.map(Into::into),
            usage: fields::object(&mut info, "tokens").map(usage).map(Box::new),
            cost_usd: cost(&info),
            finish_reason: text(&mut info, "finish").map(Into::into),
            ..Step::new(Role::Agent)
        };
        for key in ["role", "id", "parentID", "path", "cost", "mode"] {
            info.shift_remove(key);
        }
        let finishes = parts.iter().filter(|part| part["type"] == "step-finish").count();
        if finishes > 1 {
            self.several(&step, parts);
        } else {
            self.one(step, info, parts);
        }
        if let Some(turn) = self.run.last_turn_index()
            && let Some(ending) = self.ending.as_mut().filter(|ending| ending.reason == "final")
        {
            ending.answer = Some(self.run.steps[turn].text.clone());
        }
    }

    fn one(&mut self, mut step: Step<'static>, info: Fields, parts: Vec<Value>) {
        merge_extra(&mut step.extra, info);
        let turn = self.run.push(step);
        for part in parts {
            self.part(turn, part);
        }
    }

    /// Adds a message with several responses, each of which has its own usage.
    fn several(&mut self, like: &Step<'static>, parts: Vec<Value>) {
        let mut turn = None;
        for mut part in parts {
            if part["type"] == "step-start" {
                turn = None;
                continue;
            }
            let to = *turn.get_or_insert_with(|| {
                let empty =
                    Step { usage: None, cost_usd: None, finish_reason: None, ..like.clone() };
                self.run.push(empty)
            });
            match part.as_object_mut().filter(|part| peek(part, "type") == Some("step-finish")) {
                Some(finish) => {
                    let step = &mut self.run.steps[to];
                    step.cost_usd = cost(finish);
                    step.usage = fields::object(finish, "tokens").map(usage).map(Box::new);
                    step.finish_reason = text(finish, "reason").map(Into::into);
                    turn = None;
                }
                None => self.part(to, part),
            }
        }
    }

    fn part(&mut self, turn: usize, part: Value) {
        let Value::Object(mut part) = part else { return self.others.add("parts without a type") };
        let kind = text(&mut part, "type").unwrap_or_default();
        let step = &mut self.run.steps[turn];
        match kind.as_str() {
            "text" => append(step.text.to_mut(), peek(&part, "text").unwrap_or_default()),
            "reasoning" => {
                let thought = peek(&part, "text").unwrap_or_default();
                append(step.reasoning.get_or_insert_default().to_mut(), thought);
            }
            "tool" => self.tool(turn, part),
            "step-start" | "step-finish" | "snapshot" | "patch" => {}
            other => self.others.add(&format!("part {other}")),
        }
    }

    fn tool(&mut self, turn: usize, mut part: Fields) {
        let id = text(&mut part, "callID");
        let mut state = fields::object(&mut part, "state").unwrap_or_default();
        let call = Call {
            id: id.clone().map(Into::into),
            name: text(&mut part, "tool").unwrap_or_default().into(),
            arguments: arguments(state.shift_remove("input")),
            extra: None,
        };
        let is_invalid = call.name == "invalid";
        self.run.call(turn, call);
        let status = text(&mut state, "status").unwrap_or_default();
        let is_error = status == "error";
        // `pending` and `running`: the program ended during the call.
        if !is_error && status != "completed" {
            return;
        }
        let code = state.get("metadata").and_then(|metadata| metadata["exit"].as_i64());
        let told = text(&mut state, if is_error { "error" } else { "output" }).unwrap_or_default();
        self.run.result(CallResult {
            call_id: id.map(Into::into),
            content: told.into(),
            // The tool `invalid` answers calls whose arguments are not valid.
            is_error: is_error || is_invalid || code.is_some_and(|code| code != 0),
            exit_code: code,
            extra: None,
        });
    }

    fn finish(self, mut info: Fields) -> Trajectory<'static> {
        let mut run = Trajectory {
            run_id: text(&mut info, "id").unwrap_or_default().into(),
            agent: Some("opencode".into()),
            agent_version: text(&mut info, "version").map(Into::into),
            model: self.model.or(self.asked_model).map(Into::into),
            ending: self.ending,
            ..Trajectory::default()
        };
        (run.steps, run.notes) = self.run.finish();
        run.notes.extend(self.others.line("records that are not steps"));
        if peek(&info, "parentID").is_some() {
            run.tags.push("subagent".into());
        }
        if let Some(tokens) = fields::object(&mut info, "tokens") {
            let usage = usage(tokens);
            run.totals = Totals {
                prompt_tokens: usage.prompt_tokens,
                completion_tokens: usage.completion_tokens,
                cached_tokens: usage.cached_tokens,
                ..Totals::default()
            };
        }
        run.totals.outside_turns = self.outside;
        if let Some(provider) = self.provider {
            info.insert("provider".to_owned(), Value::String(provider));
        }
        run.extra = fields::without_nulls(info);
        run
    }
}

fn created(info: &Fields) -> Option<std::borrow::Cow<'static, str>> {
    let ms = info.get("time")?.get("created")?.as_u64()?;
    Some(iso_8601(ms.checked_mul(1_000_000)?).into())
}

/// Returns the cost of a response. A cost of 0 means that the price is unknown.
fn cost(map: &Fields) -> Option<f64> {
    map.get("cost")?.as_f64().filter(|cost| *cost > 0.0)
}

fn ending(info: &Fields) -> Option<Ending<'static>> {
    let error = info.get("error").and_then(Value::as_object);
    let name = error.and_then(|error| peek(error, "name"));
    let finish = peek(info, "finish");
    let (reason, native) = match (name, finish) {
        (Some("MessageAbortedError"), _) => ("cancelled", "MessageAbortedError"),
        (Some("MessageOutputLengthError"), _) => ("output_length", "MessageOutputLengthError"),
        (Some("ContextOverflowError"), _) => ("context_overflow", "ContextOverflowError"),
        (_, Some("content-filter")) => ("provider_error", "content_filter"),
        (Some(other), _) => ("provider_error", other),
        (None, Some("stop")) => ("final", "stop"),
        (None, Some("length")) => ("output_length", "length"),
        // Tools were requested, or the response is not complete.
        _ => return None,
    };
    let data = error.and_then(|error| error.get("data"));
    let message = data.and_then(|data| data.get("message")?.as_str());
    // The message of a content filter names no kind, and the kind decides the advice.
    let message = message.filter(|_| native != "content_filter");
    Some(Ending {
        reason: reason.into(),
        native: Some(native.to_owned().into()),
        failure_mode: message.map(|message| message.to_owned().into()),
        http_status: fields::http_status(data.and_then(|data| data.get("statusCode"))),
        ..Ending::default()
    })
}

/// Converts a usage. The input count excludes cached tokens, so they are added.
fn usage(mut map: Fields) -> Usage {
    let input = fields::count(&mut map, "input");
    let output = fields::count(&mut map, "output");
    let total = fields::count(&mut map, "total");
    let reasoning = fields::count(&mut map, "reasoning");
    let mut cache = fields::object(&mut map, "cache").unwrap_or_default();
    let read = fields::count(&mut cache, "read");
    let written = fields::count(&mut cache, "write");
    let cached = read.unwrap_or(0).saturating_add(written.unwrap_or(0));
    let prompt = input.map(|input| input.saturating_add(cached));
    // Versions differ in whether `output` includes reasoning; the total always does.
    let rest = prompt.zip(total).and_then(|(prompt, total)| total.checked_sub(prompt));
    Usage {
        prompt_tokens: prompt,
        completion_tokens: rest.max(output),
        cached_tokens: read,
        cache_write_tokens: written,
        reasoning_tokens: reasoning,
        extra: fields::without_nulls(map),
    }
}
