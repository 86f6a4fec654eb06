//! Decodes a rollout: groups consecutive items into turns.
//!
//! ```text
//! for map in lines { rollout.take(map)?; }
//! let run = rollout.finish();                 // None: no record of a session
//! ```

use super::copied::Own;
use super::ending;
use crate::model::{Call, CallResult, Ending, ModelCall, Role, Step, Totals, Trajectory, Usage};
use crate::read::build::conversation::{Conversation, Tally};
use crate::read::build::fields::{
    self, Fields, add_extra, append, arguments, content, merge_extra, peek, text,
};
use crate::time::unix_ms;
use endstop_core::bounded_json;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashMap;

type At = Option<Cow<'static, str>>;

/// Item types, which are the line types of an early rollout.
const ITEMS: &[&str] = &[
    "message",
    "reasoning",
    "function_call",
    "function_call_output",
    "local_shell_call",
    "local_shell_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "web_search_call",
];

/// Events that repeat an item, and events for display only.
const SAID_TWICE: &[&str] = &[
    "user_message",
    "agent_message",
    "agent_reasoning",
    "agent_reasoning_raw_content",
    "agent_reasoning_section_break",
    "agent_message_delta",
    "item_started",
    "raw_response_item",
];

pub(super) fn is_item(map: &Fields) -> bool {
    peek(map, "type").is_some_and(|kind| ITEMS.contains(&kind)) && !map.contains_key("payload")
}

#[derive(Default)]
pub(super) struct Rollout {
    run: Conversation,
    head: Trajectory<'static>,
    sessions: u64,
    /// The first session record, and the marks of lines that may be those of another session.
    own: Option<Own>,
    /// The step of the current response.
    open: Option<usize>,
    model: Option<String>,
    ending: Option<Ending<'static>>,
    /// Number of noted lines at the ending.
    ended_at: usize,
    /// An error since the task began.
    error: Option<Ending<'static>>,
    total: Option<Value>,
    /// Responses without an item, such as compactions.
    outside: Vec<ModelCall>,
    /// The outcomes of calls, from events.
    outcomes: HashMap<String, Outcome>,
    others: Tally,
    /// `true` if a line was a record of a rollout.
    begun: bool,
}

#[derive(Default)]
struct Outcome {
    exit_code: Option<i64>,
    failed: bool,
}

impl Rollout {
    pub(super) fn take(&mut self, mut map: Fields) -> Result<(), String> {
        let at: At = text(&mut map, "timestamp").map(Into::into);
        let time = at.as_deref().and_then(unix_ms);
        let ordinal = map.get("ordinal").and_then(Value::as_u64);
        let Some(kind) = text(&mut map, "type") else {
            return self.bare(map, at);
        };
        if !map.contains_key("payload") {
            map.insert("type".to_owned(), Value::String(kind));
            return if is_item(&map) {
                self.item(map, at);
                Ok(())
            } else {
                Err("a line without its `payload`".to_owned())
            };
        }
        let Some(payload) = fields::object(&mut map, "payload") else {
            let found = map.get("payload").map_or("nothing", fields::kind_of);
            return Err(format!("invalid `payload`: expected an object, found {found}"));
        };
        self.begun = true;
        if let Some(own) = &mut self.own {
            // A copy comes first: what stands before the record of another session is the own history.
            if kind == "session_meta" && self.run.steps.is_empty() {
                own.another(&payload);
            }
            let before = (self.run.steps.len(), self.outside.len());
            own.note((&kind, &payload), (time, ordinal), before);
        } else if kind == "session_meta" && self.sessions == 0 {
            self.own = Some(Own::new(&payload, time));
        }
        match kind.as_str() {
            "session_meta" => self.session(payload),
            "turn_context" => self.context(payload),
            "response_item" => self.item(payload, at),
            "event_msg" => self.event(payload),
            "compacted" => self.compacted(payload, at),
            "token_usage_record" => self.usage_record(payload),
            other => self.others.add(other),
        }
        Ok(())
    }

    /// Handles a line without a type: the session of an early rollout, or a state between its
    /// items.
    fn bare(&mut self, mut map: Fields, at: At) -> Result<(), String> {
        if let Some(kind) = peek(&map, "record_type") {
            self.others.add(kind);
            return Ok(());
        }
        if map.contains_key("id") && at.is_some() {
            if let Some(at) = at {
                map.insert("timestamp".to_owned(), Value::String(at.into_owned()));
            }
            self.session(map);
            return Ok(());
        }
        Err("a line without its `type`".to_owned())
    }

    pub(super) fn odd(&mut self, what: &str) {
        self.others.add(what);
    }

    pub(super) fn session(&mut self, mut map: Fields) {
        self.begun = true;
        self.sessions += 1;
        if self.sessions > 1 {
            // A forked rollout begins with its own session record, followed by that of the session
            // it was forked from.
            return;
        }
        let id = text(&mut map, "id");
        if let Some(id) = text(&mut map, "session_id").or(id) {
            self.head.run_id = id.into();
        }
        self.head.agent_version = text(&mut map, "cli_version").map(Into::into);
        let source = map.get("source");
        if source.is_some_and(|source| source.get("subagent").is_some() || *source == "subagent") {
            self.head.tags.push("subagent".into());
        }
        self.head.extra.extend(fields::without_nulls(map));
    }

    fn context(&mut self, mut map: Fields) {
        if let Some(model) = text(&mut map, "model") {
            self.head.model.get_or_insert_with(|| model.clone().into());
            self.model = Some(model);
        }
        // The first context wins: later ones repeat it with the changed settings.
        for (key, value) in fields::without_nulls(map) {
            self.head.extra.entry(key).or_insert(value);
        }
    }

    fn compacted(&mut self, mut map: Fields, at: At) {
        self.open = None;
        let said = text(&mut map, "message").unwrap_or_default();
        let mut step = Step { text: said.into(), at, ..Step::new(Role::User) };
        // Only counted: the repeated items were read when they first occurred.
        if let Some(history) = fields::list(&mut map, "replacement_history") {
            self.run.odd.add_many("items that a compaction repeats", history.len() as u64);
        }
        add_extra(&mut step.extra, "compacted", Value::Bool(true));
        merge_extra(&mut step.extra, map);
        self.run.push(step);
    }

    /// Returns the current turn, or begins the next one.
    fn turn(&mut self, at: At) -> usize {
        if let Some(open) = self.open {
            return open;
        }
        let model = self.model.clone().map(Into::into);
        let turn = self.run.push(Step { at, model, ..Step::new(Role::Agent) });
        self.open = Some(turn);
        // The run continues, so an ending recorded earlier was not the last one.
        self.ending = None;
        turn
    }

    pub(super) fn item(&mut self, mut map: Fields, at: At) {
        self.begun = true;
        let kind = text(&mut map, "type").unwrap_or_default();
        match kind.as_str() {
            "message" => self.message(map, at),
            "reasoning" => {
                let turn = self.turn(at);
                let mut others = Vec::new();
                let mut thought = content(map.shift_remove("summary"), &mut others);
                append(&mut thought, &content(map.shift_remove("content"), &mut others));
                let step = &mut self.run.steps[turn];
                if !thought.is_empty() {
                    append(step.reasoning.get_or_insert_default().to_mut(), &thought);
                }
            }
            "function_call" | "custom_tool_call" | "tool_search_call" | "local_shell_call" => {
                self.call(&kind, map, at);
            }
            "function_call_output"
            | "custom_tool_call_output"
            | "tool_search_output"
            | "local_shell_call_output" => self.output(map),
            "web_search_call" | "image_generation_call" => {
                // The provider runs these tools and returns the result only to the model.
                let turn = self.turn(at);
                let call = Call {
                    id: text(&mut map, "id").map(Into::into),
                    name: kind.trim_end_matches("_call").to_owned().into(),
                    arguments: arguments(map.shift_remove("action")),
                    extra: fields::extra(map),
                };
                self.run.call_elsewhere(turn, call);
            }
            "" => self.others.add("items without a type"),
            other => self.others.add(other),
        }
    }

    fn message(&mut self, mut map: Fields, at: At) {
        let role = text(&mut map, "role").unwrap_or_default();
        let mut others = Vec::new();
        let said = content(map.shift_remove("content"), &mut others);
        // Item ids are internal to the API and have no meaning for the run.
        map.shift_remove("id");
        let turn = if role == "assistant" {
            let turn = self.turn(at);
            append(self.run.steps[turn].text.to_mut(), &said);
            let phase = map.shift_remove("phase").unwrap_or_default();
            add_extra(&mut self.run.steps[turn].extra, "phase", phase);
            turn
        } else {
            self.open = None;
            self.ending = None;
            let role = match role.as_str() {
                "system" | "developer" => Role::System,
                _ => Role::User,
            };
            self.run.push(Step { text: said.into(), at, ..Step::new(role) })
        };
        let step = &mut self.run.steps[turn];
        merge_extra(&mut step.extra, map);
        if !others.is_empty() {
            add_extra(&mut step.extra, "content", Value::Array(others));
        }
    }

    fn call(&mut self, kind: &str, mut map: Fields, at: At) {
        let turn = self.turn(at);
        let (name, asked) = match kind {
            "local_shell_call" => ("local_shell".to_owned(), map.shift_remove("action")),
            "tool_search_call" => ("tool_search".to_owned(), map.shift_remove("arguments")),
            "custom_tool_call" => {
                (text(&mut map, "name").unwrap_or_default(), map.shift_remove("input"))
            }
            _ => (text(&mut map, "name").unwrap_or_default(), map.shift_remove("arguments")),
        };
        let item = text(&mut map, "id");
        let id = text(&mut map, "call_id").or(item);
        // Some versions repeat a call after reconnecting.
        if id.as_deref().is_some_and(|id| self.run.has_call_at(turn, id)) {
            return self.run.odd.add("duplicate calls");
        }
        let call = Call {
            id: id.map(Into::into),
            name: name.into(),
            arguments: arguments(asked),
            extra: fields::extra(map),
        };
        self.run.call(turn, call);
    }

    fn output(&mut self, mut map: Fields) {
        self.open = None;
        let mut others = Vec::new();
        let mut result = CallResult {
            call_id: text(&mut map, "call_id").map(Into::into),
            ..CallResult::default()
        };
        let mut failed = false;
        let told = match map.shift_remove("output") {
            // In some versions the output is an object with a success flag.
            Some(Value::Object(mut output)) if output.contains_key("content") => {
                failed = output.get("success") == Some(&Value::Bool(false));
                content(output.shift_remove("content"), &mut others)
            }
            output => content(output, &mut others),
        };
        result.exit_code = exit_code(&told);
        result.is_error = failed || result.exit_code.is_some_and(|code| code != 0);
        result.content = told.into();
        map.shift_remove("id");
        result.extra = fields::extra(map);
        if !others.is_empty() {
            add_extra(&mut result.extra, "output", Value::Array(others));
        }
        self.run.result(result);
    }

    fn event(&mut self, mut map: Fields) {
        let kind = text(&mut map, "type").unwrap_or_default();
        match kind.as_str() {
            "task_started" | "turn_started" => {
                (self.open, self.ending, self.error) = (None, None, None);
                if let Some(window) = map.shift_remove("model_context_window")
                    && !window.is_null()
                {
                    self.head.limits.insert("model_context_window".to_owned(), window);
                }
            }
            "task_complete" | "turn_complete" => {
                self.open = None;
                let answer = text(&mut map, "last_agent_message");
                // Since 2026 the error of a task that failed is part of this event.
                if let Some(error) = fields::object(&mut map, "error") {
                    let message = peek(&error, "message").unwrap_or_default();
                    self.error = Some(ending::of_error(message, error.get("codex_error_info")));
                }
                // A task that failed also completes, but without a message.
                let ending = match self.error.take() {
                    Some(error) if answer.is_none() => error,
                    _ => ending::complete(&kind, answer),
                };
                self.end(ending);
            }
            "turn_aborted" => {
                self.open = None;
                let reason = text(&mut map, "reason").unwrap_or_default();
                self.end(ending::aborted(&reason));
            }
            "error" => {
                let message = text(&mut map, "message").unwrap_or_default();
                let error = ending::of_error(&message, map.get("codex_error_info"));
                // Stored twice: `task_complete` overwrites the ending and needs the error to
                // restore it.
                self.error = Some(error.clone());
                self.end(error);
            }
            "token_count" => self.tokens(map),
            "exec_command_end" => {
                let exit_code = map.get("exit_code").and_then(Value::as_i64);
                let failed = matches!(peek(&map, "status"), Some("failed" | "declined"))
                    || exit_code.is_some_and(|code| code != 0);
                self.outcome(map, Outcome { exit_code, failed });
            }
            "patch_apply_end" => {
                let failed = map.get("success") == Some(&Value::Bool(false));
                self.outcome(map, Outcome { failed, ..Outcome::default() });
            }
            "mcp_tool_call_end" => {
                let failed = map.get("result").is_some_and(|result| {
                    let flag = |key| result["Ok"][key] == true;
                    result.get("Err").is_some() || flag("isError") || flag("is_error")
                });
                self.outcome(map, Outcome { failed, ..Outcome::default() });
            }
            "item_completed" => self.item_completed(map),
            other if SAID_TWICE.contains(&other) => {}
            "" => self.others.add("events without a type"),
            other => self.others.add(&format!("event {other}")),
        }
    }

    /// Handles an item that was completed. The item itself was read before; only the outcome of a
    /// command is new.
    fn item_completed(&mut self, mut map: Fields) {
        let Some(mut item) = fields::object(&mut map, "item") else { return };
        if peek(&item, "type") != Some("CommandExecution") {
            return;
        }
        let exit_code = item.get("exit_code").and_then(Value::as_i64);
        let failed = matches!(peek(&item, "status"), Some("failed" | "declined"))
            || exit_code.is_some_and(|code| code != 0);
        if let Some(id) = text(&mut item, "id") {
            self.outcomes.insert(id, Outcome { exit_code, failed });
        }
    }

    /// Handles the usage of a response, which is written before its token count. The count that
    /// follows has the same total and is skipped.
    fn usage_record(&mut self, mut map: Fields) {
        let mut info = Fields::new();
        for (from, to) in
            [("thread_token_usage", "total_token_usage"), ("usage", "last_token_usage")]
        {
            if let Some(usage) = fields::object(&mut map, from) {
                info.insert(to.to_owned(), Value::Object(usage));
            }
        }
        let info = ("info".to_owned(), Value::Object(info));
        self.tokens(std::iter::once(info).collect());
    }

    fn outcome(&mut self, mut map: Fields, outcome: Outcome) {
        if let Some(id) = text(&mut map, "call_id") {
            self.outcomes.insert(id, outcome);
        }
    }

    fn tokens(&mut self, mut map: Fields) {
        let Some(mut info) = fields::object(&mut map, "info") else { return };
        let total = info.shift_remove("total_token_usage");
        // The same total again: rate limits changed, and no response ended.
        if total.is_some() && total == self.total {
            return;
        }
        let before = std::mem::replace(&mut self.total, total);
        let Some(last) = fields::object(&mut info, "last_token_usage") else { return };
        self.open = None;
        // Only the first count after a turn belongs to it; another one has no turn, for example a
        // compaction.
        match self.run.last_turn() {
            Some(turn) if turn.usage.is_none() => turn.usage = Some(Box::new(usage(last))),
            _ => {
                self.run.odd.add("token counts without a turn");
                // A count that the total did not grow by is that of another session, which a fork
                // repeats.
                if grew_by(before.as_ref(), self.total.as_ref(), &last) {
                    let model = self.model.clone();
                    let call = ModelCall { model, usage: usage(last), cost_usd: None };
                    self.outside.extend(Some(call).filter(ModelCall::is_paid));
                }
            }
        }
    }

    /// Sets the ending, unless the run continues.
    fn end(&mut self, ending: Ending<'static>) {
        self.ended_at = self.own.as_ref().map_or(0, Own::lines);
        self.ending = Some(ending);
    }

    /// Returns the run. `file_of` reads the file of another session, if there is one.
    pub(super) fn finish(
        mut self,
        file_of: &dyn Fn(&str) -> Option<Vec<u8>>,
    ) -> Option<Trajectory<'static>> {
        if !self.begun {
            return None;
        }
        let own = self.own.take().filter(Own::is_fork);
        let begin = own.as_ref().and_then(|own| own.begin(file_of));
        if own.is_some() {
            let what = match &begin {
                Some(begin) if begin.steps > 0 => "its steps at the beginning are of that one",
                Some(_) => "it repeats nothing of that one",
                None => "nothing shows which steps are of that one, and all are counted",
            };
            self.head.notes.push(format!("forked from another session: {what}"));
        }
        // The repeated steps are context here, and their tokens were counted there.
        if let Some(begin) = &begin {
            self.run.steps.iter_mut().take(begin.steps).for_each(|step| step.copied = true);
            self.outside.drain(..begin.outside.min(self.outside.len()));
            self.ending = self.ending.filter(|_| self.ended_at > begin.lines);
        }
        let has_copy = begin.is_some_and(|begin| begin.lines > 0);
        let mut run = self.head;
        let (steps, notes) = self.run.finish();
        run.steps = steps;
        run.notes.extend(notes);
        run.notes.extend(self.others.line("records that are not steps"));
        if self.sessions > 1 {
            run.notes.push(format!("session records in the file: {}", self.sessions));
        }
        // Applied at the end, because an event may come before or after the result of its call.
        for result in run.steps.iter_mut().flat_map(|step| &mut step.results) {
            let id = result.call_id.as_deref();
            if let Some(outcome) = id.and_then(|id| self.outcomes.get(id)) {
                result.exit_code = result.exit_code.or(outcome.exit_code);
                result.is_error |= outcome.failed;
            }
        }
        // The counters of a fork go on from those of the other session.
        if let Some(Value::Object(total)) = self.total.filter(|_| !has_copy) {
            let usage = usage(total);
            run.totals = Totals {
                prompt_tokens: usage.prompt_tokens,
                completion_tokens: usage.completion_tokens,
                cached_tokens: usage.cached_tokens,
                extra: usage.extra,
                ..Totals::default()
            };
            // The totals have no fields for these counts.
            let more = [
                ("cache_write_input_tokens", usage.cache_write_tokens),
                ("reasoning_output_tokens", usage.reasoning_tokens),
            ];
            for (name, count) in more {
                if let Some(count) = count {
                    run.totals.extra.insert(name.to_owned(), count.into());
                }
            }
        }
        run.totals.outside_turns = self.outside;
        run.ending = self.ending.or_else(|| declared(&run.steps));
        Some(run)
    }
}

/// Returns `true` if the total of a session grew by exactly this usage.
fn grew_by(before: Option<&Value>, after: Option<&Value>, last: &Fields) -> bool {
    ["input_tokens", "output_tokens"].iter().all(|key| {
        let of = |total: Option<&Value>| total.and_then(|all| all[*key].as_u64()).unwrap_or(0);
        let more = last.get(*key).and_then(Value::as_u64).unwrap_or(0);
        of(before).checked_add(more) == Some(of(after))
    })
}

/// Returns the ending if the last message declares itself to be the final answer.
fn declared(steps: &[Step<'static>]) -> Option<Ending<'static>> {
    let last = steps.last().filter(|step| step.is_turn() && step.calls.is_empty())?;
    let phase = last.extra.as_ref().and_then(|extra| peek(extra, "phase"));
    (phase == Some("final_answer"))
        .then(|| ending::complete("final_answer", Some(last.text.to_string())))
}

/// Converts the usage of a response. OpenAI's input count includes cached tokens.
pub(super) fn usage(mut map: Fields) -> Usage {
    Usage {
        prompt_tokens: fields::count(&mut map, "input_tokens"),
        completion_tokens: fields::count(&mut map, "output_tokens"),
        cached_tokens: fields::count(&mut map, "cached_input_tokens"),
        cache_write_tokens: fields::count(&mut map, "cache_write_input_tokens"),
        reasoning_tokens: fields::count(&mut map, "reasoning_output_tokens"),
        extra: fields::without_nulls(map),
    }
}

/// The prefixes of an exit code, and of the other lines that precede a command's output.
const CODE: &[&str] = &["Exit code: ", "Process exited with code "];
const HEAD: &[&str] =
    &["Chunk ID: ", "Wall time: ", "Original token count: ", "Total output lines: ", "Command: "];

/// Extracts the exit code from the text that the model received: from the lines before the output,
/// or from a JSON document.
fn exit_code(told: &str) -> Option<i64> {
    if told.starts_with('{') {
        let told: Fields = bounded_json::from_str(told).ok()?;
        return told.get("metadata")?.get("exit_code")?.as_i64();
    }
    for line in told.lines().take(10) {
        for before in CODE {
            if let Some(code) = line.strip_prefix(before) {
                return code.trim().parse().ok();
            }
        }
        // The lines after the header are the command's own output, which may contain anything.
        if !HEAD.iter().any(|known| line.starts_with(known)) {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_code_is_read_from_header() {
        for (told, code) in [
            ("Exit code: 2\nWall time: 0.1 seconds\nOutput:\nno", Some(2)),
            ("Chunk ID: 1\nWall time: 1.2 seconds\nProcess exited with code 0\nOutput:\n", Some(0)),
            ("Wall time: 1 seconds\nProcess running with session ID 3\nExit code: 1", None),
            ("Wall time: 1 seconds\nOutput:\nExit code: 1", None),
            ("the command said\nExit code: 1", None),
            (r#"{"output":"x","metadata":{"exit_code":127,"duration_seconds":0.1}}"#, Some(127)),
            (r#"{"output":"x"}"#, None),
            ("{\n", None),
            ("", None),
        ] {
            assert_eq!(exit_code(told), code, "{told}");
        }
    }
}
