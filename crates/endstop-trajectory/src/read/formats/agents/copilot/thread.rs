//! Collects the events of one agent: messages, calls, results and usage.
//!
//! ```text
//! thread.take("assistant.message", data, at);
//! thread.finish(&mut run, &origin);
//! ```

use crate::model::{Call, CallResult, Ending, Origin, Role, Step, Trajectory, Usage};
use crate::read::build::conversation::Conversation;
use crate::read::build::fields::{
    self, Fields, add_extra, append, arguments, content, count, peek, text,
};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// The time of an event.
pub(super) type At = Option<Cow<'static, str>>;

/// The conversation of one agent.
#[derive(Default)]
pub(super) struct Thread {
    run: Conversation,
    agent: Option<String>,
    pub(super) model: Option<String>,
    /// Maps the id of a model call to its turn.
    turns: HashMap<String, usize>,
    /// Turns that have a usage.
    told: HashSet<usize>,
    /// `true` if the last message names its model call.
    is_named: bool,
    /// Reasoning that came before its message.
    reasoning: String,
    /// Deltas of a message that is not complete yet.
    streamed: Streamed,
    /// Usage whose message has not come yet, by the id of the model call.
    used: HashMap<String, Fields>,
    used_last: Option<Fields>,
    /// Usage outside the turns.
    beside: Beside,
    pub(super) ending: Option<Ending<'static>>,
    cut: u64,
    /// The last turn for which only deltas came.
    last_cut: Option<usize>,
}

#[derive(Default)]
struct Streamed {
    text: String,
    reasoning: String,
    at: At,
}

/// Model calls that are not turns.
#[derive(Default)]
struct Beside {
    calls: u64,
    input: u64,
    output: u64,
}

impl Thread {
    /// Handles an event of a conversation.
    pub(super) fn take(&mut self, kind: &str, mut data: Fields, at: At) {
        match kind {
            "user.message" | "system.message" => self.said(kind, data, at),
            "assistant.message" => self.message(data, at),
            "assistant.reasoning" => {
                self.streamed.reasoning.clear();
                let thought = text(&mut data, "content").unwrap_or_default();
                let last = self.run.last_turn().and_then(|turn| turn.reasoning.as_deref());
                // Some versions repeat the reasoning after its message.
                if last != Some(&*thought) {
                    append(&mut self.reasoning, &thought);
                }
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
            "tool.execution_start" | "tool.user_requested" => self.started(kind, data, at),
            "tool.execution_complete" => self.completed(data),
            _ => {}
        }
    }

    /// Handles an event about this subagent.
    pub(super) fn told_of(&mut self, kind: &str, mut data: Fields) {
        if let Some(name) = text(&mut data, "agentName").filter(|name| !name.is_empty()) {
            self.agent = Some(name);
        }
        self.model = text(&mut data, "model").or(self.model.take());
        match kind {
            "subagent.completed" if fields::is_true(&data, "cancelled") => {
                self.ending.get_or_insert_with(|| ending("cancelled", kind.to_owned()));
            }
            "subagent.completed" => self.ended(kind),
            "subagent.failed" => {
                let failure = text(&mut data, "error").map(Into::into);
                let failed =
                    Ending { failure_mode: failure, ..ending("agent_error", kind.to_owned()) };
                self.ending.get_or_insert(failed);
            }
            _ => {}
        }
    }

    /// Handles an event that stops the agent, reports a failure, or reports that it is idle.
    pub(super) fn stopped(&mut self, kind: String, mut data: Fields) {
        match kind.as_str() {
            "session.error" => self.ending = Some(of_error(data)),
            "abort" => {
                let native = text(&mut data, "reason").unwrap_or(kind);
                let limit = native == "autopilot_credit_limit";
                let reason = if limit { "cost_limit" } else { "cancelled" };
                self.ending = Some(ending(reason, native));
            }
            _ if fields::is_true(&data, "aborted") => {
                self.ending.get_or_insert_with(|| ending("cancelled", kind));
            }
            _ => self.ended(&kind),
        }
    }

    fn said(&mut self, kind: &str, mut data: Fields, at: At) {
        self.close_stream();
        self.ending = None;
        let role = if kind == "user.message" { Role::User } else { Role::System };
        let said = text(&mut data, "content").unwrap_or_default();
        // `transformedContent` is only stored if the model received a different text.
        if peek(&data, "transformedContent") == Some(&said) {
            data.shift_remove("transformedContent");
        }
        data.retain(|_, value| value.as_array().is_none_or(|list| !list.is_empty()));
        self.run.push(Step {
            text: said.into(),
            at,
            extra: fields::extra(data),
            ..Step::new(role)
        });
    }

    fn message(&mut self, mut data: Fields, at: At) {
        self.ending = None;
        self.streamed = Streamed::default();
        let api_call = text(&mut data, "apiCallId");
        self.is_named = api_call.is_some();
        let same = api_call.as_ref().and_then(|id| self.turns.get(id)).copied();
        // The messages of a split response follow one another. An `apiCallId` that occurs again
        // later is a new response.
        let turn = match same.filter(|same| Some(*same) == self.run.last_turn_index()) {
            Some(turn) => turn,
            None => self.run.push(Step { at, ..Step::new(Role::Agent) }),
        };
        let used = match &api_call {
            Some(id) => {
                self.turns.insert(id.clone(), turn);
                self.used.remove(id)
            }
            None => self.used_last.take(),
        };
        if let Some(used) = used {
            self.use_of(turn, used);
        }
        let step = &mut self.run.steps[turn];
        append(step.text.to_mut(), &text(&mut data, "content").unwrap_or_default());
        let before = std::mem::take(&mut self.reasoning);
        let thought = text(&mut data, "reasoningText").unwrap_or(before);
        if !thought.is_empty() {
            append(step.reasoning.get_or_insert_default().to_mut(), &thought);
        }
        // The count covers the whole response, regardless of the message that carries it.
        if let Some(tokens) = count(&mut data, "outputTokens")
            && !self.told.contains(&turn)
        {
            let usage = step.usage.get_or_insert_default();
            usage.completion_tokens = usage.completion_tokens.max(Some(tokens));
        }
        if let Some(model) = text(&mut data, "model").or_else(|| self.model.clone()) {
            step.model.get_or_insert(model.into());
        }
        let calls = fields::list(&mut data, "toolRequests").unwrap_or_default();
        if let Some(api_call) = api_call {
            data.insert("apiCallId".to_owned(), api_call.into());
        }
        fields::merge_extra(&mut step.extra, data);
        for call in calls {
            match call {
                Value::Object(mut call) => {
                    let call = Call {
                        id: text(&mut call, "toolCallId").map(Into::into),
                        name: text(&mut call, "name").unwrap_or_default().into(),
                        arguments: arguments(call.shift_remove("arguments")),
                        extra: fields::extra(call),
                    };
                    self.run.call(turn, call);
                }
                other => {
                    let what = format!("a tool request that is {}", fields::kind_of(&other));
                    self.run.odd.add(&what);
                }
            }
        }
    }

    /// Assigns a usage to the turn with its id or, if either has no id, to the last turn without a
    /// usage. Some versions write the usage before the message.
    fn usage(&mut self, data: Fields) {
        // A compaction, or an MCP server that calls the model, is not a turn.
        let kind = peek(&data, "interactionType");
        if kind
            .is_some_and(|kind| matches!(kind, "conversation-compaction" | "conversation-sampling"))
        {
            return self.beside.add(&data);
        }
        let id = peek(&data, "apiCallId").map(str::to_owned);
        let named = id.as_ref().and_then(|id| self.turns.get(id)).copied();
        let last = self.run.last_turn_index().filter(|turn| !self.told.contains(turn));
        match (named.or(last.filter(|_| id.is_none() || !self.is_named)), id) {
            (Some(turn), _) => self.use_of(turn, data),
            (None, Some(id)) => {
                if let Some(before) = self.used.insert(id, data) {
                    self.beside.add(&before);
                }
            }
            (None, None) => {
                if let Some(before) = self.used_last.replace(data) {
                    self.beside.add(&before);
                }
            }
        }
    }

    fn use_of(&mut self, turn: usize, mut data: Fields) {
        // A second usage for the same turn is a repeated model call.
        if !self.told.insert(turn) {
            return self.beside.add(&data);
        }
        let step = &mut self.run.steps[turn];
        step.finish_reason = text(&mut data, "finishReason").map(Into::into);
        if let Some(model) = text(&mut data, "model") {
            step.model = Some(model.into());
        }
        // The message's own count is used if the usage has none.
        let said = step.usage.take().and_then(|usage| usage.completion_tokens);
        let mut usage = Usage {
            prompt_tokens: count(&mut data, "inputTokens"),
            completion_tokens: count(&mut data, "outputTokens").or(said),
            cached_tokens: count(&mut data, "cacheReadTokens"),
            cache_write_tokens: count(&mut data, "cacheWriteTokens"),
            reasoning_tokens: count(&mut data, "reasoningTokens"),
            ..Usage::default()
        };
        usage.extra = fields::without_nulls(data);
        step.usage = Some(Box::new(usage));
    }

    /// Handles a call that no message requested: a call of the user, or one whose message is
    /// missing.
    fn started(&mut self, kind: &str, mut data: Fields, at: At) {
        let Some(id) = text(&mut data, "toolCallId") else { return };
        if self.run.has_call(&id) {
            return;
        }
        let users = kind == "tool.user_requested";
        let turn = if users {
            self.run.push(Step { at, ..Step::new(Role::User) })
        } else {
            self.run.odd.add("calls that no message requested");
            match self.run.last_turn_index() {
                Some(turn) => turn,
                None => self.run.push(Step { at, ..Step::new(Role::Agent) }),
            }
        };
        let call = Call {
            id: Some(id.into()),
            name: text(&mut data, "toolName").unwrap_or_default().into(),
            arguments: arguments(data.shift_remove("arguments")),
            extra: fields::extra(data),
        };
        self.run.call(turn, call);
    }

    fn completed(&mut self, mut data: Fields) {
        let failed = data.get("success") == Some(&Value::Bool(false));
        data.shift_remove("success");
        let mut rest = Vec::new();
        let mut told = String::new();
        if let Some(mut result) = fields::object(&mut data, "result") {
            told = content(result.shift_remove("content"), &mut rest);
            if peek(&result, "detailedContent") == Some(&told) {
                result.shift_remove("detailedContent");
            }
            let result = fields::without_nulls(result);
            if !result.is_empty() {
                data.insert("result".to_owned(), Value::Object(result));
            }
        }
        // The model receives the error message if the tool gave no content.
        if let Some(error) = data.get("error").and_then(Value::as_object)
            && told.is_empty()
        {
            peek(error, "message").unwrap_or_default().clone_into(&mut told);
        }
        let call_id = text(&mut data, "toolCallId").map(Into::into);
        let exit_code = exit_code(&told);
        let mut extra = fields::extra(data);
        if !rest.is_empty() {
            add_extra(&mut extra, "content", Value::Array(rest));
        }
        let is_error = failed || exit_code.is_some_and(|code| code != 0);
        self.run.result(CallResult { call_id, content: told.into(), is_error, exit_code, extra });
    }

    /// Closes a stream. Deltas of a message that never completed become a separate turn; reasoning
    /// that came after its message is added to that message.
    fn close_stream(&mut self) {
        let Streamed { text, reasoning: pieces, at } = std::mem::take(&mut self.streamed);
        let mut reasoning = std::mem::take(&mut self.reasoning);
        append(&mut reasoning, &pieces);
        let is_last = self.run.last_turn_index().is_some_and(|at| at + 1 == self.run.steps.len());
        if text.is_empty()
            && is_last
            && let Some(turn) = self.run.last_turn().filter(|turn| turn.reasoning.is_none())
        {
            turn.reasoning = (!reasoning.is_empty()).then(|| reasoning.into());
            return;
        }
        if text.is_empty() && reasoning.is_empty() {
            return;
        }
        self.cut += 1;
        self.ending = None;
        self.is_named = false;
        let reasoning = (!reasoning.is_empty()).then(|| reasoning.into());
        let model = self.model.clone().map(Into::into);
        let cut = Step { text: text.into(), reasoning, at, model, ..Step::new(Role::Agent) };
        self.last_cut = Some(self.run.push(cut));
    }

    /// Ends the agent normally, with an answer if its last turn requests no tool.
    pub(super) fn ended(&mut self, native: &str) {
        let last = self.run.last_turn_index();
        let is_last = last.is_some_and(|at| at + 1 == self.run.steps.len());
        let done = self.run.last_turn().filter(|turn| turn.calls.is_empty() && is_last);
        let Some(answer) = done.map(|turn| turn.text.to_string()) else { return };
        // A cut-off stream is not an answer.
        if self.last_cut != last {
            self.end("final", native, Some(answer).filter(|answer| !answer.is_empty()));
        }
    }

    pub(super) fn end(&mut self, reason: &'static str, native: &str, answer: Option<String>) {
        let answer = answer.map(Into::into);
        // The first ending recorded is the closest to the cause.
        self.ending.get_or_insert(Ending { answer, ..ending(reason, native.to_owned()) });
    }

    pub(super) fn finish(mut self, run: &mut Trajectory<'static>, origin: &Origin) {
        self.close_stream();
        // Usage that found no message is not lost: it was paid for.
        let left = self.used.values().chain(&self.used_last);
        for usage in left {
            self.beside.add(usage);
        }
        run.origin = origin.clone();
        run.agent = Some(self.agent.unwrap_or_else(|| "copilot".to_owned()).into());
        run.model = self.model.map(Into::into);
        run.ending = self.ending;
        if self.cut > 0 {
            self.run.notes.push(format!("messages with only deltas: {}", self.cut));
        }
        let Beside { calls, input, output } = self.beside;
        if calls > 0 {
            self.run.notes.push(format!("model calls outside the turns: {calls}"));
            let used = json!({"calls": calls, "input_tokens": input, "output_tokens": output});
            run.totals.extra.insert("beside_turns".to_owned(), used);
        }
        (run.steps, run.notes) = self.run.finish();
        if run.model.is_none() {
            let said = run.turns().find_map(|step| step.model.clone());
            run.model = said;
        }
    }
}

impl Beside {
    fn add(&mut self, usage: &Fields) {
        let tokens = |key: &str| usage.get(key).and_then(Value::as_u64).unwrap_or_default();
        self.calls += 1;
        self.input = self.input.saturating_add(tokens("inputTokens"));
        self.output = self.output.saturating_add(tokens("outputTokens"));
    }
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

/// Extracts the exit code from the last line of the text that the model received.
fn exit_code(told: &str) -> Option<i64> {
    let line = told.trim_end().lines().next_back()?;
    line.strip_prefix("<exited with exit code ")?.strip_suffix('>')?.parse().ok()
}

pub(super) fn ending(reason: &'static str, native: String) -> Ending<'static> {
    Ending { reason: reason.into(), native: Some(native.into()), ..Ending::default() }
}
