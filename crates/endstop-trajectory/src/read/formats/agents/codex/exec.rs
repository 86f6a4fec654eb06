//! Decodes the events of `codex exec --json` and estimates the turns.
//!
//! ```text
//! for map in lines { exec.take(map)?; }
//! let run = exec.finish();                    // None: there was no event
//! ```

use super::{ending, rollout};
use crate::model::{Call, CallResult, Ending, Role, Step, Totals, Trajectory};
use crate::read::build::conversation::{Conversation, Tally};
use crate::read::build::fields::{self, Fields, add_extra, append, arguments, content, text};
use serde_json::Value;
use std::collections::HashSet;

#[derive(Default)]
pub(super) struct Exec {
    begun: bool,
    id: Option<String>,
    run: Conversation,
    open: Option<usize>,
    /// The last turn before the current prompt.
    prompt_turn: Option<usize>,
    /// Calls that have started and not yet completed.
    running: HashSet<String>,
    ending: Option<Ending<'static>>,
    totals: Totals,
    prompts: u64,
    others: Tally,
}

impl Exec {
    pub(super) const fn is_begun(&self) -> bool {
        self.begun
    }

    pub(super) fn take(&mut self, mut map: Fields) -> Result<(), String> {
        let Some(kind) = text(&mut map, "type") else {
            return Err("an event without its `type`".to_owned());
        };
        self.begun = true;
        match kind.as_str() {
            "thread.started" | "thread.resumed" => {
                self.id = text(&mut map, "thread_id").or(self.id.take());
            }
            "turn.started" => {
                (self.open, self.ending) = (None, None);
                self.prompt_turn = self.run.last_turn_index();
                self.prompts += 1;
            }
            "turn.completed" => {
                self.open = None;
                let answer = self.answer();
                self.ending = Some(ending::complete(&kind, answer));
                if let Some(usage) = fields::object(&mut map, "usage") {
                    let usage = rollout::usage(usage);
                    self.totals.prompt_tokens = usage.prompt_tokens;
                    self.totals.completion_tokens = usage.completion_tokens;
                    self.totals.cached_tokens = usage.cached_tokens;
                    self.totals.extra = usage.extra;
                    // The totals have no fields for these counts.
                    let more = [
                        ("cache_write_input_tokens", usage.cache_write_tokens),
                        ("reasoning_output_tokens", usage.reasoning_tokens),
                    ];
                    for (name, count) in more {
                        if let Some(count) = count {
                            self.totals.extra.insert(name.to_owned(), count.into());
                        }
                    }
                }
            }
            "turn.failed" => {
                self.open = None;
                let mut error = fields::object(&mut map, "error").unwrap_or_default();
                let message = text(&mut error, "message").unwrap_or_default();
                self.ending = Some(ending::of_error(&message, error.get("codex_error_info")));
            }
            // This event is also written while Codex reconnects, so later events override it.
            "error" => {
                let message = text(&mut map, "message").unwrap_or_default();
                self.ending = Some(ending::of_error(&message, None));
                self.others.add("error");
            }
            "item.started" | "item.updated" | "item.completed" => {
                let Some(item) = fields::object(&mut map, "item") else {
                    let found = map.get("item").map_or("nothing", fields::kind_of);
                    return Err(format!("invalid `item`: expected an object, found {found}"));
                };
                return self.item(&kind, item);
            }
            other => self.others.add(other),
        }
        Ok(())
    }

    /// Returns the text of the last turn since the prompt, if it is an answer.
    fn answer(&mut self) -> Option<String> {
        if self.prompt_turn == self.run.last_turn_index() {
            return None;
        }
        // A turn's text comes before its calls, except those that the provider runs.
        let is_answer = |turn: &&mut Step<'static>| {
            !turn.text.is_empty() && turn.calls.iter().all(|call| call.name == "web_search")
        };
        self.run.last_turn().filter(is_answer).map(|turn| turn.text.to_string())
    }

    fn item(&mut self, event: &str, mut item: Fields) -> Result<(), String> {
        // The first versions call the field `item_type`.
        let kind = text(&mut item, "type").or_else(|| text(&mut item, "item_type"));
        let Some(kind) = kind else { return Err("an item without its `type`".to_owned()) };
        let ended = event == "item.completed";
        match kind.as_str() {
            "agent_message" | "assistant_message" if ended => {
                let turn = self.turn();
                let said = text(&mut item, "text").unwrap_or_default();
                append(self.run.steps[turn].text.to_mut(), &said);
            }
            "reasoning" if ended => {
                let turn = self.turn();
                let thought = text(&mut item, "text").unwrap_or_default();
                let step = &mut self.run.steps[turn];
                append(step.reasoning.get_or_insert_default().to_mut(), &thought);
            }
            "command_execution" | "file_change" | "mcp_tool_call" | "collab_tool_call" => {
                self.tool(&kind, item, ended);
            }
            "web_search" if ended => {
                let turn = self.turn();
                let id = text(&mut item, "id").map(Into::into);
                let call = Call {
                    id,
                    name: kind.into(),
                    arguments: arguments(Some(Value::Object(fields::without_nulls(item)))),
                    extra: None,
                };
                self.run.call_elsewhere(turn, call);
            }
            "todo_list" => {
                self.others.add("states of the to-do list");
                // Only the final state is stored; the intermediate ones repeat it.
                if ended && let Some(turn) = self.run.last_turn() {
                    let list = item.shift_remove("items").unwrap_or_default();
                    add_extra(&mut turn.extra, "todo_list", list);
                }
            }
            // Started and updated items are repeated in full when they complete.
            "agent_message" | "assistant_message" | "reasoning" | "web_search" => {}
            other => self.others.add(&format!("item {other}")),
        }
        Ok(())
    }

    /// Returns the current turn, or begins the next one if the current turn has results.
    fn turn(&mut self) -> usize {
        if let Some(open) = self.open
            // While a call is running, further calls are parallel ones of the same response.
            && (self.run.steps[open].results.is_empty() || !self.running.is_empty())
        {
            return open;
        }
        self.ending = None;
        let turn = self.run.push(Step::new(Role::Agent));
        self.open = Some(turn);
        turn
    }

    fn tool(&mut self, kind: &str, mut item: Fields, ended: bool) {
        let id = text(&mut item, "id").unwrap_or_default();
        if !self.run.has_call(&id) {
            let turn = self.turn();
            let (name, asked) = match kind {
                "command_execution" => (kind.to_owned(), Some(only(&item, &["command"]))),
                "file_change" => (kind.to_owned(), Some(only(&item, &["changes"]))),
                "mcp_tool_call" => {
                    (text(&mut item, "tool").unwrap_or_default(), item.shift_remove("arguments"))
                }
                _ => (
                    text(&mut item, "tool").unwrap_or_default(),
                    Some(only(&item, &["prompt", "receiver_thread_ids"])),
                ),
            };
            let mut extra = None;
            add_extra(&mut extra, "type", Value::String(kind.to_owned()));
            add_extra(&mut extra, "server", item.get("server").cloned().unwrap_or_default());
            self.run.call(
                turn,
                Call {
                    id: Some(id.clone().into()),
                    name: name.into(),
                    arguments: arguments(asked),
                    extra,
                },
            );
            self.running.insert(id.clone());
        }
        // A second completion of the same call is ignored.
        if !ended || !self.running.remove(&id) {
            return;
        }
        let exit_code = item.get("exit_code").and_then(Value::as_i64);
        let status = text(&mut item, "status");
        let error = fields::object(&mut item, "error");
        // A declined call was not run; the model receives that as a failure.
        let is_error = matches!(status.as_deref(), Some("failed" | "declined"))
            || exit_code.is_some_and(|code| code != 0)
            || error.is_some();
        let mut others = Vec::new();
        let told = match (text(&mut item, "aggregated_output"), error) {
            (Some(output), _) => output,
            (None, Some(mut error)) => text(&mut error, "message").unwrap_or_default(),
            (None, None) => match fields::object(&mut item, "result") {
                Some(mut result) => content(result.shift_remove("content"), &mut others),
                None => String::new(),
            },
        };
        // These fields are part of the call, so the result does not repeat them.
        for asked in ["command", "changes", "tool", "server", "arguments", "exit_code", "prompt"] {
            item.shift_remove(asked);
        }
        let mut extra = fields::extra(item);
        if let Some(status) = status {
            add_extra(&mut extra, "status", Value::String(status));
        }
        if !others.is_empty() {
            add_extra(&mut extra, "content", Value::Array(others));
        }
        self.run.result(CallResult {
            call_id: Some(id.into()),
            content: told.into(),
            is_error,
            exit_code,
            extra,
        });
    }

    pub(super) fn finish(self) -> Option<Trajectory<'static>> {
        if !self.begun {
            return None;
        }
        let mut run = Trajectory::new(self.id.unwrap_or_default());
        (run.steps, run.notes) = self.run.finish();
        run.notes.extend(self.others.line("records that are not steps"));
        if self.prompts > 1 {
            run.notes.push(format!("prompts that are not in the file: {}", self.prompts));
        }
        run.tags.push("estimated_turns".into());
        run.ending = self.ending;
        run.totals = self.totals;
        Some(run)
    }
}

/// Collects the given fields into an object.
fn only(item: &Fields, keys: &[&str]) -> Value {
    let fields = keys.iter().filter_map(|key| {
        let value = item.get(*key).filter(|value| !value.is_null())?;
        Some(((*key).to_owned(), value.clone()))
    });
    Value::Object(fields.collect())
}
