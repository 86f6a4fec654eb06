//! Events become turns, of the session and of the agents within it.
//!
//! ```ignore
//! for map in lines { session.take(map)?; }
//! let run = session.finish(&origin);          // None: nothing of a session was there
//! ```

use super::super::conversation::{Conversation, Tally};
use super::super::pieces::{
    self, Fields, add_extra, append, arguments, content, count, peek, text,
};
use crate::model::{Call, CallResult, Ending, Origin, Role, Step, Trajectory, Usage};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashMap;

type At = Option<Cow<'static, str>>;

#[derive(Default)]
pub(super) struct Session {
    main: Thread,
    /// Agents within, in the order of their first events, by the call or the id that they have.
    within: Vec<(String, Thread)>,
    /// Their names, by the call that began them.
    names: HashMap<String, String>,
    head: Trajectory<'static>,
    others: Tally,
    /// Whether an event was one of a session.
    begun: bool,
}

/// What one agent says and does.
#[derive(Default)]
struct Thread {
    run: Conversation,
    model: Option<String>,
    /// The model call that the last message belongs to.
    api_call: Option<String>,
    /// Reasoning that came before its message.
    reasoning: String,
    /// Pieces of a message that has not come yet.
    streamed: Streamed,
    /// What a model call used whose message has not come yet.
    used: Option<Fields>,
    ending: Option<Ending<'static>>,
    cut: u64,
    /// The last turn of which only pieces came.
    last_cut: Option<usize>,
}

#[derive(Default)]
struct Streamed {
    text: String,
    reasoning: String,
    at: At,
}

impl Session {
    pub(super) fn take(&mut self, mut map: Fields) -> Result<(), String> {
        let Some(kind) = text(&mut map, "type") else {
            return Err("an event without its `type`".to_owned());
        };
        let Some(mut data) = pieces::object(&mut map, "data") else {
            let found = map.get("data").map_or("nothing", pieces::kind_of);
            return Err(format!("`data` is an object, and this is {found}"));
        };
        self.begun = true;
        let at: At = text(&mut map, "timestamp").map(Into::into);
        let agent = text(&mut map, "agentId").or_else(|| text(&mut data, "parentToolCallId"));
        match kind.as_str() {
            "session.start" => self.start(data),
            "session.resume" | "session.tools_updated" | "session.model_change" => {
                let model = ["newModel", "selectedModel", "model"];
                if let Some(model) = model.iter().find_map(|key| text(&mut data, key)) {
                    self.main.model = Some(model);
                }
                if let Some(tools) = data.shift_remove("tools") {
                    self.head.extra.insert("tools".to_owned(), tools);
                }
                self.others.add(&kind);
            }
            "session.error" => self.main.ending = Some(of_error(data)),
            "session.shutdown" => self.shut_down(data),
            "session.task_complete" => {
                let answer = text(&mut data, "summary").filter(|summary| !summary.is_empty());
                self.main.end("final", &kind, answer);
            }
            "abort" => {
                let native = text(&mut data, "reason").unwrap_or(kind);
                let limit = native == "autopilot_credit_limit";
                let reason = if limit { "cost_limit" } else { "cancelled" };
                self.main.ending = Some(ending(reason, native));
            }
            "session.idle" | "assistant.idle" if pieces::is_true(&data, "aborted") => {
                self.main.ending.get_or_insert_with(|| ending("cancelled", kind));
            }
            "session.idle" | "assistant.idle" => self.main.ended(&kind),
            "subagent.started" => {
                let name = text(&mut data, "agentName").unwrap_or_default();
                for key in [text(&mut data, "toolCallId"), agent].into_iter().flatten() {
                    self.names.insert(key, name.clone());
                }
            }
            _ => {
                let thread = match agent {
                    None => &mut self.main,
                    Some(id) => thread(&mut self.within, id),
                };
                if !thread.take(&kind, data, at) {
                    self.others.add(&kind);
                }
            }
        }
        Ok(())
    }

    fn start(&mut self, mut data: Fields) {
        if let Some(id) = text(&mut data, "sessionId") {
            self.head.run_id = id.into();
        }
        self.head.agent_version = text(&mut data, "copilotVersion").map(Into::into);
        self.main.model = text(&mut data, "selectedModel").or(self.main.model.take());
        if let Some(limits) = pieces::object(&mut data, "sessionLimits") {
            self.head.limits = limits;
        }
        self.head.extra.extend(pieces::without_nulls(data));
    }

    /// The session is closed: what it used, and whether it came to that by an error.
    fn shut_down(&mut self, mut data: Fields) {
        // Of several models nobody could price the sum: each stays as it is told.
        let metrics = data.get("modelMetrics").and_then(Value::as_object);
        if let Some(metrics) = metrics.filter(|metrics| metrics.len() == 1) {
            let used = |key: &str| metrics.values().next()?.get("usage")?.get(key)?.as_u64();
            self.head.totals.prompt_tokens = used("inputTokens");
            self.head.totals.completion_tokens = used("outputTokens");
            self.head.totals.cached_tokens = used("cacheReadTokens");
        }
        let reason = text(&mut data, "errorReason");
        if text(&mut data, "shutdownType").as_deref() == Some("error") {
            let failed = Ending {
                failure_mode: reason.map(Into::into),
                ..ending("harness_error", "session.shutdown".to_owned())
            };
            self.main.ending.get_or_insert(failed);
        } else {
            self.main.ended("session.shutdown");
        }
        self.head.totals.extra.extend(pieces::without_nulls(data));
    }

    pub(super) fn finish(self, origin: &Origin) -> Option<Trajectory<'static>> {
        if !self.begun {
            return None;
        }
        let mut run = self.head;
        self.main.finish(&mut run, origin);
        run.notes.extend(self.others.line("records that are no steps"));
        for (id, thread) in self.within {
            let name = self.names.get(&id).cloned();
            let mut child = Trajectory::new(id);
            thread.finish(&mut child, origin);
            if let Some(name) = name.filter(|name| !name.is_empty()) {
                child.agent = Some(name.into());
            }
            run.children.push(child);
        }
        Some(run)
    }
}

fn thread(within: &mut Vec<(String, Thread)>, id: String) -> &mut Thread {
    let at = within.iter().position(|(known, _)| *known == id).unwrap_or_else(|| {
        within.push((id, Thread::default()));
        within.len() - 1
    });
    &mut within[at].1
}

impl Thread {
    /// Takes an event; `false`: it is none of a conversation.
    fn take(&mut self, kind: &str, mut data: Fields, at: At) -> bool {
        match kind {
            "user.message" | "system.message" => self.said(kind, data, at),
            "assistant.message" => self.message(data, at),
            "assistant.reasoning" => {
                self.streamed.reasoning.clear();
                let thought = text(&mut data, "content").unwrap_or_default();
                append(&mut self.reasoning, &thought);
            }
            "assistant.reasoning_delta" => {
                let piece = text(&mut data, "deltaContent").unwrap_or_default();
                self.streamed.reasoning.push_str(&piece);
                self.streamed.at = at;
            }
            "assistant.message_delta" => {
                let piece = text(&mut data, "deltaContent").unwrap_or_default();
                self.streamed.text.push_str(&piece);
                self.streamed.at = at;
            }
            "assistant.turn_end" => {
                self.close_stream();
                self.ended(kind);
            }
            "assistant.usage" => self.usage(data),
            "assistant.turn_start" | "assistant.message_start" => {}
            "tool.execution_start" | "tool.user_requested" => self.started(kind, data, at),
            "tool.execution_complete" => self.completed(data),
            _ => return false,
        }
        true
    }

    fn said(&mut self, kind: &str, mut data: Fields, at: At) {
        self.close_stream();
        self.ending = None;
        let role = if kind == "user.message" { Role::User } else { Role::System };
        let said = text(&mut data, "content").unwrap_or_default();
        // What the model was sent is said where it is something else.
        if peek(&data, "transformedContent") == Some(&said) {
            data.shift_remove("transformedContent");
        }
        data.retain(|_, value| value.as_array().is_none_or(|list| !list.is_empty()));
        self.run.push(Step {
            text: said.into(),
            at,
            extra: pieces::extra(data),
            ..Step::new(role)
        });
    }

    fn message(&mut self, mut data: Fields, at: At) {
        self.ending = None;
        self.streamed = Streamed::default();
        let api_call = text(&mut data, "apiCallId");
        let same = api_call.is_some() && api_call == self.api_call;
        self.api_call.clone_from(&api_call);
        let turn = match self.run.last_turn_index().filter(|_| same) {
            Some(turn) => turn,
            None => self.run.push(Step { at, ..Step::new(Role::Agent) }),
        };
        if let Some(used) = self.used.take() {
            use_of(&mut self.run.steps[turn], used);
        }
        let step = &mut self.run.steps[turn];
        append(step.text.to_mut(), &text(&mut data, "content").unwrap_or_default());
        let before = std::mem::take(&mut self.reasoning);
        let thought = text(&mut data, "reasoningText").unwrap_or(before);
        if !thought.is_empty() {
            append(step.reasoning.get_or_insert_default().to_mut(), &thought);
        }
        if let Some(tokens) = count(&mut data, "outputTokens") {
            let usage = step.usage.get_or_insert_default();
            // Of a whole call it is known already.
            if usage.prompt_tokens.is_none() {
                let sum = usage.completion_tokens.unwrap_or_default().saturating_add(tokens);
                usage.completion_tokens = Some(sum);
            }
        }
        if let Some(model) = text(&mut data, "model") {
            step.model = Some(model.into());
        }
        let calls = pieces::list(&mut data, "toolRequests").unwrap_or_default();
        if let Some(api_call) = api_call {
            data.insert("apiCallId".to_owned(), api_call.into());
        }
        pieces::merge_extra(&mut step.extra, data);
        for call in calls {
            match call {
                Value::Object(mut call) => {
                    let call = Call {
                        id: text(&mut call, "toolCallId").map(Into::into),
                        name: text(&mut call, "name").unwrap_or_default().into(),
                        arguments: arguments(call.shift_remove("arguments")),
                        extra: pieces::extra(call),
                    };
                    self.run.call(turn, call);
                }
                other => {
                    let what = format!("a request for a tool that is {}", pieces::kind_of(&other));
                    self.run.odd.add(&what);
                }
            }
        }
    }

    /// What a model call used: of the turn with its id, or of the last one that has none yet. Some
    /// versions tell it before the message.
    fn usage(&mut self, data: Fields) {
        let id = peek(&data, "apiCallId").map(str::to_owned);
        let of_call = |step: &Step<'_>| {
            step.extra.as_deref().and_then(|extra| extra.get("apiCallId")?.as_str())
                == id.as_deref()
        };
        let named = if id.is_some() { self.run.steps.iter().rposition(of_call) } else { None };
        let has_none = |turn: &usize| {
            self.run.steps[*turn].usage.as_deref().is_none_or(|usage| usage.prompt_tokens.is_none())
        };
        match named.or_else(|| self.run.last_turn_index().filter(has_none)) {
            Some(turn) => use_of(&mut self.run.steps[turn], data),
            None => self.used = Some(data),
        }
    }

    /// A call that no message asked for: the user's own, or one whose message is lost.
    fn started(&mut self, kind: &str, mut data: Fields, at: At) {
        let Some(id) = text(&mut data, "toolCallId") else { return };
        if self.run.has_call(&id) {
            return;
        }
        let users = kind == "tool.user_requested";
        let turn = if users {
            self.run.push(Step { at, ..Step::new(Role::User) })
        } else {
            self.run.odd.add("calls that no message asks for");
            match self.run.last_turn_index() {
                Some(turn) => turn,
                None => self.run.push(Step { at, ..Step::new(Role::Agent) }),
            }
        };
        let call = Call {
            id: Some(id.into()),
            name: text(&mut data, "toolName").unwrap_or_default().into(),
            arguments: arguments(data.shift_remove("arguments")),
            extra: pieces::extra(data),
        };
        self.run.call(turn, call);
    }

    fn completed(&mut self, mut data: Fields) {
        let failed = data.get("success") == Some(&Value::Bool(false));
        data.shift_remove("success");
        let mut rest = Vec::new();
        let mut told = String::new();
        if let Some(mut result) = pieces::object(&mut data, "result") {
            told = content(result.shift_remove("content"), &mut rest);
            if peek(&result, "detailedContent") == Some(&told) {
                result.shift_remove("detailedContent");
            }
            let result = pieces::without_nulls(result);
            if !result.is_empty() {
                data.insert("result".to_owned(), Value::Object(result));
            }
        }
        if let Some(error) = data.get("error").and_then(Value::as_object)
            && told.is_empty()
        {
            peek(error, "message").unwrap_or_default().clone_into(&mut told);
        }
        let call_id = text(&mut data, "toolCallId").map(Into::into);
        let exit_code = exit_code(&told);
        let mut extra = pieces::extra(data);
        if !rest.is_empty() {
            add_extra(&mut extra, "content", Value::Array(rest));
        }
        let is_error = failed || exit_code.is_some_and(|code| code != 0);
        self.run.result(CallResult { call_id, content: told.into(), is_error, exit_code, extra });
    }

    /// Pieces of a message that never came whole are a turn of their own.
    fn close_stream(&mut self) {
        let Streamed { text, reasoning, at } = std::mem::take(&mut self.streamed);
        if text.is_empty() && reasoning.is_empty() {
            return;
        }
        self.cut += 1;
        self.ending = None;
        let reasoning = (!reasoning.is_empty()).then(|| reasoning.into());
        let cut = Step { text: text.into(), reasoning, at, ..Step::new(Role::Agent) };
        self.last_cut = Some(self.run.push(cut));
    }

    /// The agent has come to an end by itself: with an answer, where its last turn asks for no tool.
    fn ended(&mut self, native: &str) {
        let last = self.run.last_turn_index();
        let is_last = last.is_some_and(|at| at + 1 == self.run.steps.len());
        let done = self.run.last_turn().filter(|turn| turn.calls.is_empty() && is_last);
        let Some(answer) = done.map(|turn| turn.text.to_string()) else { return };
        if self.last_cut != last {
            self.end("final", native, Some(answer).filter(|answer| !answer.is_empty()));
        }
    }

    fn end(&mut self, reason: &'static str, native: &str, answer: Option<String>) {
        let answer = answer.map(Into::into);
        // What was said first is nearer to it.
        self.ending.get_or_insert(Ending { answer, ..ending(reason, native.to_owned()) });
    }

    fn finish(mut self, run: &mut Trajectory<'static>, origin: &Origin) {
        self.close_stream();
        run.origin = origin.clone();
        run.agent = Some("copilot".into());
        run.model = self.model.map(Into::into);
        run.ending = self.ending;
        if self.cut > 0 {
            self.run.notes.push(format!("messages of which only pieces came: {}", self.cut));
        }
        (run.steps, run.notes) = self.run.finish();
        if run.model.is_none() {
            let said = run.turns().find_map(|step| step.model.clone());
            run.model = said;
        }
    }
}

fn use_of(step: &mut Step<'static>, mut data: Fields) {
    step.finish_reason = text(&mut data, "finishReason").map(Into::into);
    if let Some(model) = text(&mut data, "model") {
        step.model = Some(model.into());
    }
    let said = step.usage.take().and_then(|usage| usage.completion_tokens);
    let mut usage = Usage {
        prompt_tokens: count(&mut data, "inputTokens"),
        completion_tokens: count(&mut data, "outputTokens").or(said),
        cached_tokens: count(&mut data, "cacheReadTokens"),
        cache_write_tokens: count(&mut data, "cacheWriteTokens"),
        reasoning_tokens: count(&mut data, "reasoningTokens"),
        ..Usage::default()
    };
    usage.extra = pieces::without_nulls(data);
    step.usage = Some(Box::new(usage));
}

fn of_error(mut data: Fields) -> Ending<'static> {
    let kind = text(&mut data, "errorType").unwrap_or_else(|| "error".to_owned());
    let reason = match kind.as_str() {
        "context_limit" => "context_overflow",
        "quota" => "cost_limit",
        "authentication" | "authorization" | "rate_limit" | "query" => "provider_error",
        _ => "unknown",
    };
    let message = text(&mut data, "message");
    Ending { failure_mode: message.map(Into::into), ..ending(reason, kind) }
}

fn ending(reason: &'static str, native: String) -> Ending<'static> {
    Ending { reason: reason.into(), native: Some(native.into()), ..Ending::default() }
}

/// The exit code in the last line of what the model was told of a command.
fn exit_code(told: &str) -> Option<i64> {
    let line = told.trim_end().lines().next_back()?;
    line.strip_prefix("<exited with exit code ")?.strip_suffix('>')?.parse().ok()
}
