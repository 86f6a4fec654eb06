//! Converts the messages of a sample into steps, and resolves references to texts stored elsewhere.
//!
//! ```text
//! resolve(&mut messages, &attachments);
//! messages::into(&mut run, messages, &mut calls_of_the_model);
//! ```

use crate::model::{Call, CallResult, Role, Step, Usage};
use crate::read::build::conversation::{Conversation, Tally};
use crate::read::build::fields::{
    self, Fields, add_extra, append, arguments, content, merge_extra, peek, text,
};
use serde_json::Value;
use std::collections::HashMap;

/// Replaces each reference with its text; returns `false` if a text is missing.
pub(super) fn resolve(value: &mut Value, texts: &Fields) -> bool {
    match value {
        Value::String(text) => {
            let elsewhere =
                text.strip_prefix("attachment://").or_else(|| text.strip_prefix("tc://"));
            let Some(hash) = elsewhere else { return true };
            match texts.get(hash) {
                Some(Value::String(found)) => text.clone_from(found),
                _ => return false,
            }
            true
        }
        Value::Array(list) => {
            let missing =
                // `filter_map` with `count`, not `all`, because `all` would stop at the first
                // missing text.
                list.iter_mut().filter_map(|value| (!resolve(value, texts)).then_some(()));
            missing.count() == 0
        }
        Value::Object(map) => {
            let values = map.values_mut();
            let missing = values.filter_map(|value| (!resolve(value, texts)).then_some(()));
            missing.count() == 0
        }
        _ => true,
    }
}

/// The facts that the event of a model call records about its message.
#[derive(Default)]
pub(super) struct ModelCall {
    pub(super) text: String,
    pub(super) usage: Option<Usage>,
    pub(super) cost_usd: Option<f64>,
    pub(super) stop_reason: Option<String>,
    pub(super) at: Option<String>,
    pub(super) working_time: Option<f64>,
}

/// Maximum number of unrelated calls between two calls of the run.
const BETWEEN: usize = 100;

/// The model calls, each of which belongs to one message.
#[derive(Default)]
pub(super) struct ModelCalls {
    by_id: HashMap<String, ModelCall>,
    /// Calls without a message id, in order.
    others: std::collections::VecDeque<ModelCall>,
}

impl ModelCalls {
    /// Collects the calls from the events of a sample.
    pub(super) fn of(events: Vec<Value>, texts: &Fields) -> ModelCalls {
        let mut calls = ModelCalls::default();
        for event in events {
            let Value::Object(mut event) = event else { continue };
            if peek(&event, "event") != Some("model") {
                continue;
            }
            let Some(mut output) = fields::object(&mut event, "output") else { continue };
            let usage = fields::object(&mut output, "usage");
            let cost_usd =
                usage.as_ref().and_then(|usage| usage.get("total_cost")).and_then(Value::as_f64);
            let Some(Value::Object(mut choice)) =
                fields::list(&mut output, "choices").and_then(|list| list.into_iter().next())
            else {
                continue;
            };
            let mut message = fields::object(&mut choice, "message").unwrap_or_default();
            let id = text(&mut message, "id");
            let mut said = message.shift_remove("content").unwrap_or_default();
            resolve(&mut said, texts);
            let call = ModelCall {
                text: content(Some(said), &mut Vec::new()),
                usage: usage.map(self::usage),
                cost_usd,
                stop_reason: text(&mut choice, "stop_reason"),
                at: text(&mut event, "timestamp"),
                working_time: event.get("working_time").and_then(Value::as_f64),
            };
            match id {
                Some(id) => drop(calls.by_id.entry(id).or_insert(call)),
                None => calls.others.push_back(call),
            }
        }
        calls
    }

    /// Returns the call that produced a message.
    fn take(&mut self, id: Option<&str>, text: &str) -> Option<ModelCall> {
        if let Some(call) = id.and_then(|id| self.by_id.remove(id)) {
            return Some(call);
        }
        // Calls of scorers and other models come in between. Those before the message are skipped.
        let index = self.others.iter().take(BETWEEN).position(|call| call.text == text)?;
        self.others.drain(..=index).next_back()
    }
}

/// Converts messages into steps.
pub(super) fn into(
    run: &mut Conversation,
    messages: Vec<Value>,
    calls: &mut ModelCalls,
) -> Result<(), String> {
    let mut unknown = Tally::default();
    for (i, message) in messages.into_iter().enumerate() {
        let Value::Object(mut message) = message else {
            return Err(format!(
                "invalid `messages[{i}]`: expected an object, found {}",
                fields::kind_of(&message)
            ));
        };
        let role = text(&mut message, "role").unwrap_or_default();
        match role.as_str() {
            "assistant" => assistant(run, message, calls),
            "tool" => tool(run, message),
            "system" | "user" => {
                let mut others = Vec::new();
                let said = content(message.shift_remove("content"), &mut others);
                let role = if role == "system" { Role::System } else { Role::User };
                let mut step = Step { text: said.into(), ..Step::new(role) };
                merge_extra(&mut step.extra, message);
                if !others.is_empty() {
                    add_extra(&mut step.extra, "content", Value::Array(others));
                }
                run.push(step);
            }
            other => unknown.add(if other.is_empty() { "without a role" } else { other }),
        }
    }
    run.notes.extend(unknown.line("messages with an unknown role"));
    Ok(())
}

fn assistant(run: &mut Conversation, mut message: Fields, calls: &mut ModelCalls) {
    let mut step = Step::new(Role::Agent);
    let mut others = Vec::new();
    let mut provider = Vec::new();
    let mut said = String::new();
    match message.shift_remove("content") {
        Some(Value::Array(parts)) => {
            for part in parts {
                match part["type"].as_str() {
                    Some("reasoning") => {
                        let thought = part["reasoning"].as_str().filter(|text| !text.is_empty());
                        let thought = thought.or_else(|| part["summary"].as_str());
                        let reasoning = step.reasoning.get_or_insert_default().to_mut();
                        append(reasoning, thought.unwrap_or_default());
                    }
                    // Tools that the provider ran within the response.
                    Some("tool_use") => provider.push(part),
                    _ => append(&mut said, &content(Some(Value::Array(vec![part])), &mut others)),
                }
            }
        }
        other => said = content(other, &mut others),
    }
    step.model = text(&mut message, "model").map(Into::into);
    step.copied = peek(&message, "source") == Some("input");
    if !step.copied
        && let Some(call) = calls.take(peek(&message, "id"), &said)
    {
        step.usage = call.usage.map(Box::new);
        step.cost_usd = call.cost_usd;
        step.finish_reason = call.stop_reason.map(Into::into);
        step.at = call.at.map(Into::into);
        if let Some(seconds) = call.working_time {
            add_extra(&mut step.extra, "working_time", seconds.into());
        }
    }
    step.text = said.into();
    let asked = fields::list(&mut message, "tool_calls").unwrap_or_default();
    merge_extra(&mut step.extra, message);
    if !others.is_empty() {
        add_extra(&mut step.extra, "content", Value::Array(others));
    }
    let index = run.push(step);
    for call in asked {
        let Value::Object(mut call) = call else {
            run.odd.add("calls that are not objects");
            continue;
        };
        let call = Call {
            id: text(&mut call, "id").map(Into::into),
            name: text(&mut call, "function").unwrap_or_default().into(),
            arguments: arguments(call.shift_remove("arguments")),
            extra: fields::extra(call),
        };
        run.call(index, call);
    }
    for part in provider {
        if let Value::Object(part) = part {
            by_the_provider(run, index, part);
        }
    }
}

fn by_the_provider(run: &mut Conversation, index: usize, mut part: Fields) {
    let id = text(&mut part, "id");
    let result = part.shift_remove("result");
    let error = text(&mut part, "error");
    let call = Call {
        id: id.clone().map(Into::into),
        name: text(&mut part, "name").unwrap_or_default().into(),
        arguments: arguments(part.shift_remove("arguments")),
        extra: fields::extra(part),
    };
    run.call_elsewhere(index, call);
    let is_error = error.is_some();
    let told = error.or_else(|| result.map(|result| content(Some(result), &mut Vec::new())));
    run.result(CallResult {
        call_id: id.map(Into::into),
        content: told.unwrap_or_default().into(),
        is_error,
        ..CallResult::default()
    });
}

fn tool(run: &mut Conversation, mut message: Fields) {
    let mut others = Vec::new();
    let mut told = content(message.shift_remove("content"), &mut others);
    // The error is a string in the first versions.
    let error = message.get("error").or_else(|| message.get("tool_error"));
    let error = error.filter(|error| !error.is_null());
    if told.is_empty()
        && let Some(error) = error
    {
        // If a call fails, the model receives the error message.
        let said = error.get("message").unwrap_or(error).as_str();
        said.unwrap_or_default().clone_into(&mut told);
    }
    let mut result = CallResult {
        is_error: error.is_some(),
        call_id: text(&mut message, "tool_call_id").map(Into::into),
        content: told.into(),
        exit_code: None,
        extra: fields::extra(message),
    };
    if !others.is_empty() {
        add_extra(&mut result.extra, "content", Value::Array(others));
    }
    run.result(result);
}

/// Converts the usage of a model call.
pub(super) fn usage(mut map: Fields) -> Usage {
    let input = fields::count(&mut map, "input_tokens");
    let output = fields::count(&mut map, "output_tokens");
    let total = fields::count(&mut map, "total_tokens");
    let read = fields::count(&mut map, "input_tokens_cache_read");
    let written = fields::count(&mut map, "input_tokens_cache_write");
    let cached = read.unwrap_or(0).saturating_add(written.unwrap_or(0));
    let prompt = input.map(|input| {
        // If the total is just the sum of input and output, the input already includes the cached
        // tokens.
        let all = input.checked_add(output.unwrap_or(0));
        if cached <= input && total.is_some() && total == all {
            input
        } else {
            input.saturating_add(cached)
        }
    });
    map.shift_remove("total_cost");
    Usage {
        prompt_tokens: prompt,
        completion_tokens: output,
        cached_tokens: read,
        cache_write_tokens: written,
        reasoning_tokens: fields::count(&mut map, "reasoning_tokens"),
        extra: fields::without_nulls(map),
    }
}
