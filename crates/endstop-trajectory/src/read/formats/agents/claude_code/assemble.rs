//! Assembles the records of a session into a run, including the runs of its subagents.
//!
//! ```text
//! let run = assemble::run(session);
//! ```

use super::agents::{Child, adopt};
use super::record::{ApiError, Record, Said, Side, What};
use super::session::Session;
use super::{branch, ending, responses};
use crate::model::{Call, CallResult, Role, Step, Totals, Trajectory, Usage};
use crate::read::build::conversation::{Conversation, Tally};
use crate::read::build::fields::{self, Fields, append, content, merge_extra, peek, text};
use serde_json::Value;
use std::collections::HashMap;

/// Record fields that describe the session. A step only keeps such a field if its value differs.
const OF_THE_SESSION: &[&str] = &["cwd", "gitBranch", "userType", "entrypoint", "version"];

pub(super) fn run(session: Session) -> Trajectory<'static> {
    let Session { ids, records, odd } = session;
    let kept = branch::kept(&records);
    let sides = branch::sides(&records);
    let begins = responses::begins(&records, &sides, &kept);
    let mut main = Thread::default();
    let mut agents: Vec<(Side, Thread)> = Vec::new();
    // Children keep the order in which their agents first appear.
    let mut by_side: HashMap<Side, usize> = HashMap::new();
    let mut left = Tally::default();
    let mut others = Tally::default();
    let mut whole = Whole::default();
    for (((record, kept), side), begins) in records.into_iter().zip(kept).zip(sides).zip(begins) {
        if !kept {
            left.add(record.kind());
            continue;
        }
        let thread = match side {
            None => &mut main,
            Some(side) => {
                let index = *by_side.entry(side.clone()).or_insert_with(|| {
                    agents.push((side, Thread::default()));
                    agents.len() - 1
                });
                &mut agents[index].1
            }
        };
        match record.what {
            What::Assistant(_) | What::User(_) => {
                // A response came after the error, so a retry succeeded.
                whole.failed = None;
                thread.take(record, begins, &mut whole.fields);
            }
            What::ApiError(what) => {
                others.add("system/api_error");
                whole.failed = Some(what);
            }
            What::Request(model) => {
                others.add("api-request");
                whole.requested = whole.requested.take().or(model);
            }
            What::Init => whole.init(record.rest),
            What::Result => whole.result(record),
            What::MaxTurns(fields) => whole.max_turns = Some(fields),
            What::Title(key, title) => {
                whole.fields.insert(key.to_owned(), Value::String(title));
            }
            What::Other(kind) => others.add(&kind),
        }
    }
    let has_main = !main.run.steps.is_empty() || !whole.results.is_empty();
    agents.retain(|(_, thread)| !thread.run.steps.is_empty());
    let mut children: Vec<Child> =
        agents.into_iter().map(|(side, thread)| Child::new(side, thread.finish())).collect();
    let mut run = if has_main || children.len() != 1 {
        let mut run = main.finish();
        run.run_id = ids.first().cloned().unwrap_or_default().into();
        adopt(&mut run, children);
        run
    } else {
        // A separate file of a subagent that another session started.
        let mut run = children.remove(0).run;
        if let Some(id) = ids.first() {
            run.extra.insert("sessionId".to_owned(), Value::String(id.clone()));
        }
        run
    };
    whole.put(&mut run);
    run.notes.extend(odd.lines());
    run.notes.extend(left.line("records on abandoned branches"));
    run.notes.extend(others.line("records that are not messages"));
    if ids.len() > 1 {
        run.notes.push(format!("sessions resumed in the same file: {}", ids.len()));
    }
    run.agent.get_or_insert_with(|| "claude-code".into());
    run
}

/// Information about the session as a whole.
#[derive(Default)]
struct Whole {
    /// Members that no other field holds.
    fields: Fields,
    tools: Vec<Value>,
    model: Option<String>,
    /// The model of the first request, the only record of it if no call succeeded.
    requested: Option<String>,
    version: Option<String>,
    max_turns: Option<Fields>,
    /// The error of the last model call, if no message follows it.
    failed: Option<ApiError>,
    results: Vec<(Option<String>, Fields)>,
}

impl Whole {
    fn init(&mut self, mut map: Fields) {
        map.shift_remove("subtype");
        self.model = text(&mut map, "model").or(self.model.take());
        self.version = text(&mut map, "claude_code_version").or(self.version.take());
        if let Some(tools) = fields::list(&mut map, "tools") {
            self.tools = tools;
        }
        for (key, value) in fields::without_nulls(map) {
            self.fields.insert(key, value);
        }
    }

    fn result(&mut self, record: Record) {
        self.results.push((record.at, record.rest));
    }

    fn put(mut self, run: &mut Trajectory<'static>) {
        if let Some(version) = text(&mut self.fields, "version").or(self.version) {
            run.agent_version = Some(version.into());
        }
        if let Some(model) = self.model {
            run.model = Some(model.into());
        }
        run.model = run.model.take().or(self.requested.map(Into::into));
        run.tools = self.tools;
        if let Some(error) = self.failed {
            run.ending.get_or_insert_with(|| ending::api_error(&error.message, error.http_status));
        }
        if let Some(mut limit) = self.max_turns {
            if let Some(turns) = limit.shift_remove("maxTurns") {
                run.limits.insert("max_turns".to_owned(), turns);
            }
            run.ending = Some(ending::max_turns());
        }
        if self.results.len() > 1 {
            run.notes
                .push(format!("result records, of which the last is used: {}", self.results.len()));
        }
        // A resumed stream has several result records, and the last one covers all of them.
        if let Some((_, map)) = self.results.pop() {
            result(map, run);
        }
        for (key, value) in self.fields {
            run.extra.entry(key).or_insert(value);
        }
    }
}

/// Applies the last record of a stream.
fn result(mut map: Fields, run: &mut Trajectory<'static>) {
    run.ending = Some(ending::of_result(&mut map, run));
    let mut totals = Totals {
        cost_usd: map.get("total_cost_usd").and_then(Value::as_f64),
        turns: fields::count(&mut map, "num_turns"),
        wall_s: map.get("duration_ms").and_then(Value::as_f64).map(|ms| ms / 1000.0),
        ..Totals::default()
    };
    map.shift_remove("total_cost_usd");
    map.shift_remove("duration_ms");
    let usage = match fields::object(&mut map, "usage") {
        Some(usage) => Some(self::usage(usage)),
        None => map.get("modelUsage").and_then(of_models),
    };
    if let Some(usage) = usage {
        totals.prompt_tokens = usage.prompt_tokens;
        totals.completion_tokens = usage.completion_tokens;
        totals.cached_tokens = usage.cached_tokens;
        totals.extra = usage.extra;
        // The totals have no field for this count.
        if let Some(written) = usage.cache_write_tokens {
            totals.extra.insert("cache_creation_input_tokens".to_owned(), written.into());
        }
    }
    run.totals = totals;
    for (key, value) in fields::without_nulls(map) {
        run.extra.entry(key).or_insert(value);
    }
    if run.steps.is_empty() {
        run.tags.push("summary_only".into());
    }
}

/// Sums the usage over the models in `modelUsage`.
fn of_models(value: &Value) -> Option<Usage> {
    let models = value.as_object()?;
    let sum = |keys: &[&str]| {
        let counts = models.values().flat_map(|m| keys.iter().filter_map(|key| m[*key].as_u64()));
        counts.fold(None, |sum: Option<u64>, count| Some(sum.unwrap_or(0).saturating_add(count)))
    };
    Some(Usage {
        prompt_tokens: sum(&["inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens"]),
        completion_tokens: sum(&["outputTokens"]),
        cached_tokens: sum(&["cacheReadInputTokens"]),
        ..Usage::default()
    })
}

/// The messages of one agent: of the session itself, or of a subagent.
#[derive(Default)]
struct Thread {
    run: Conversation,
    /// Maps a response id to its step.
    responses: HashMap<String, usize>,
    unknown: Tally,
}

impl Thread {
    fn take(&mut self, record: Record, begins: bool, session: &mut Fields) {
        let response = record.response().map(str::to_owned);
        let synthetic = record.is_synthetic();
        let Record { uuid, at, what, mut rest, .. } = record;
        for key in OF_THE_SESSION {
            if let Some(value) = rest.get(*key)
                && session.get(*key).is_none_or(|known| known == value)
            {
                session.insert((*key).to_owned(), value.clone());
                rest.shift_remove(*key);
            }
        }
        if let Some(uuid) = uuid {
            rest.insert("uuid".to_owned(), Value::String(uuid));
        }
        let at = at.map(Into::into);
        match what {
            // A user step, because the harness wrote the message and no model call was made.
            What::Assistant(said) if synthetic => {
                let mut rest_of_it = Vec::new();
                let text = content(Some(Value::Array(said.content)), &mut rest_of_it);
                let step = Step { text: text.into(), at, ..Step::new(Role::User) };
                let index = self.run.push(step);
                merge_extra(&mut self.run.steps[index].extra, rest);
                self.run.odd.add("messages of the harness in the model's role");
            }
            What::Assistant(said) => {
                let known = response.as_ref().and_then(|id| self.responses.get(id));
                // Further blocks of a known response are added to its turn.
                let known = known.filter(|_| !begins);
                let index = known
                    .copied()
                    .unwrap_or_else(|| self.run.push(Step { at, ..Step::new(Role::Agent) }));
                if let Some(id) = response {
                    self.responses.insert(id, index);
                }
                self.said(index, said);
                merge_extra(&mut self.run.steps[index].extra, rest);
            }
            What::User(said) => self.heard(said, at, rest),
            _ => {}
        }
    }

    /// Adds a block of a response.
    fn said(&mut self, index: usize, said: Said) {
        let Said { content: parts, mut rest } = said;
        let step = &mut self.run.steps[index];
        if let Some(model) = text(&mut rest, "model") {
            step.model = Some(model.into());
        }
        if let Some(reason) = text(&mut rest, "stop_reason") {
            step.finish_reason = Some(reason.into());
        }
        if let Some(usage) = fields::object(&mut rest, "usage") {
            let usage = self::usage(usage);
            // Each block repeats the usage up to that point, so keep the largest.
            let before = step.usage.as_ref().and_then(|usage| usage.completion_tokens);
            if usage.completion_tokens >= before {
                step.usage = Some(Box::new(usage));
            }
        }
        let fields = rest.into_iter().map(|(key, value)| (format!("message.{key}"), value));
        merge_extra(&mut step.extra, fields.collect());
        for part in parts {
            if let Value::Object(part) = part {
                self.part(index, part);
            }
        }
    }

    fn part(&mut self, index: usize, mut part: Fields) {
        let step = &mut self.run.steps[index];
        let kind = text(&mut part, "type").unwrap_or_default();
        match kind.as_str() {
            "text" => {
                let said = text(&mut part, "text").unwrap_or_default();
                append(step.text.to_mut(), &said);
                // Citations repeat parts of documents that are elsewhere in the run.
                part.shift_remove("citations");
            }
            "thinking" => {
                let thought = text(&mut part, "thinking").unwrap_or_default();
                append(step.reasoning.get_or_insert_default().to_mut(), &thought);
            }
            "tool_use" | "server_tool_use" | "mcp_tool_use" => {
                let id = text(&mut part, "id");
                if id.as_deref().is_some_and(|id| self.run.has_call_at(index, id)) {
                    return self.run.odd.add("duplicate calls");
                }
                let call = Call {
                    name: text(&mut part, "name").unwrap_or_default().into(),
                    arguments: fields::arguments(part.shift_remove("input")),
                    id: id.map(Into::into),
                    extra: None,
                };
                if kind == "tool_use" {
                    let call = Call { extra: fields::extra(part), ..call };
                    self.run.call(index, call);
                } else {
                    // The type distinguishes the provider's tools from those of the harness.
                    part.insert("type".to_owned(), Value::String(kind));
                    let call = Call { extra: fields::extra(part), ..call };
                    self.run.call_elsewhere(index, call);
                }
            }
            // The provider's own tools return their results within the same response.
            other if other.ends_with("_tool_result") && part.contains_key("tool_use_id") => {
                let failed = part.get("content").is_some_and(|content| {
                    content["type"].as_str().is_some_and(|kind| kind.ends_with("_error"))
                });
                part.insert("type".to_owned(), Value::String(kind));
                self.answer(part, failed, None);
            }
            other => {
                self.unknown.add(if other.is_empty() { "without a type" } else { other });
                part.insert("type".to_owned(), Value::String(kind));
                keep_part(step, Value::Object(part));
            }
        }
    }

    /// Adds a user record: the results of calls, and messages to the model.
    fn heard(&mut self, said: Said, at: Option<std::borrow::Cow<'static, str>>, mut rest: Fields) {
        let (results, parts): (Vec<_>, Vec<_>) =
            said.content.into_iter().partition(|part| part["type"] == "tool_result");
        let details = ["toolUseResult", "tool_use_result"]
            .into_iter()
            .find_map(|key| Some((key, rest.shift_remove(key)?)));
        // The record's other fields belong to the first result, because a record almost always has
        // only one.
        let mut details: Fields =
            details.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        if parts.is_empty() {
            rest.shift_remove("uuid");
            details.extend(std::mem::take(&mut rest));
        }
        let mut details = Some(details);
        for result in results {
            if let Value::Object(result) = result {
                self.answer(result, false, details.take());
            }
        }
        if parts.is_empty() {
            return;
        }
        let mut others = Vec::new();
        let text = content(Some(Value::Array(parts)), &mut others);
        let mut step = Step { text: text.into(), at, ..Step::new(Role::User) };
        merge_extra(&mut step.extra, rest);
        for part in others {
            self.unknown_of_user(&part);
            keep_part(&mut step, part);
        }
        self.run.push(step);
    }

    fn unknown_of_user(&mut self, part: &Value) {
        match part["type"].as_str() {
            Some("image" | "document") => {}
            other => self.unknown.add(other.unwrap_or("without a type")),
        }
    }

    fn answer(&mut self, mut part: Fields, failed: bool, more: Option<Fields>) {
        if peek(&part, "type") == Some("tool_result") {
            part.shift_remove("type");
        }
        let call_id = text(&mut part, "tool_use_id");
        let flagged = fields::is_true(&part, "is_error");
        part.shift_remove("is_error");
        let mut others = Vec::new();
        let content = content(part.shift_remove("content"), &mut others);
        let is_error = flagged || failed;
        let mut result = CallResult {
            call_id: call_id.map(Into::into),
            exit_code: if is_error { exit_code(&content) } else { None },
            content: content.into(),
            is_error,
            extra: fields::extra(part),
        };
        if !others.is_empty() {
            fields::add_extra(&mut result.extra, "content", Value::Array(others));
        }
        if let Some(more) = more {
            merge_extra(&mut result.extra, more);
        }
        self.run.result(result);
    }

    // The notes of `Conversation` come first, because they describe the order of the steps.
    fn finish(mut self) -> Trajectory<'static> {
        self.run.notes.extend(self.unknown.line("unknown parts of messages"));
        let mut run = Trajectory::default();
        (run.steps, run.notes) = self.run.finish();
        let model = run.turns().find_map(|step| step.model.clone());
        run.model = model;
        run.ending = ending::of_transcript(&run.steps);
        run
    }
}

/// Stores a content part that is not text.
fn keep_part(step: &mut Step<'static>, part: Value) {
    let extra = step.extra.get_or_insert_with(Box::default);
    match extra.get_mut("content") {
        Some(Value::Array(parts)) => parts.push(part),
        _ => {
            extra.insert("content".to_owned(), Value::Array(vec![part]));
        }
    }
}

/// Reads the exit code of a failed command from the first line of its output.
fn exit_code(content: &str) -> Option<i64> {
    content.strip_prefix("Exit code ")?.lines().next()?.trim().parse().ok()
}

/// Converts the usage of a response. Anthropic's input count excludes cached tokens, so they are
/// added.
pub(super) fn usage(mut map: Fields) -> Usage {
    let input = fields::count(&mut map, "input_tokens");
    let read = fields::count(&mut map, "cache_read_input_tokens");
    let written = fields::count(&mut map, "cache_creation_input_tokens");
    Usage {
        prompt_tokens: input.map(|input| {
            input.saturating_add(read.unwrap_or(0)).saturating_add(written.unwrap_or(0))
        }),
        completion_tokens: fields::count(&mut map, "output_tokens"),
        cached_tokens: read,
        cache_write_tokens: written,
        reasoning_tokens: None,
        extra: fields::without_nulls(map),
    }
}
