//! Writes a step with its calls, results and usage.
//!
//! ```text
//! let steps: Vec<Line> = run.steps.iter().zip(1..).map(|(step, id)| line(step, id)).collect();
//! ```
//!
//! ATIF allows calls only in agent steps, and results only for calls of the same step. Anything
//! else is written in Endstop's extension.

use crate::model::{Call, CallResult, Role, Step, Usage};
use crate::read::{arguments, ours, parts};
use crate::time::split_time;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::HashSet;

pub(super) type Object = Map<String, Value>;

#[derive(Serialize)]
pub(super) struct Line<'t> {
    step_id: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<&'t str>,
    source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_name: Option<&'t str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<Value>,
    message: Content<'t>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'t str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToolCall<'t>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    observation: Option<Observation<'t>>,
    #[serde(skip_serializing_if = "Object::is_empty")]
    metrics: Object,
    #[serde(skip_serializing_if = "Option::is_none")]
    llm_call_count: Option<Value>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_copied_context: bool,
    #[serde(skip_serializing_if = "Object::is_empty")]
    extra: Object,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'t> {
    Text(&'t str),
    Parts(Value),
}

#[derive(Serialize)]
struct ToolCall<'t> {
    #[serde(rename = "tool_call_id")]
    id: String,
    function_name: &'t str,
    arguments: Arguments<'t>,
    #[serde(skip_serializing_if = "Object::is_empty")]
    extra: Object,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Arguments<'t> {
    Object(&'t RawValue),
    Compact(Box<RawValue>),
    Raw { raw: &'t RawValue },
    Text { raw: &'t str },
}

#[derive(Serialize)]
struct Observation<'t> {
    results: Vec<ObservationResult<'t>>,
}

#[derive(Serialize)]
struct ObservationResult<'t> {
    #[serde(skip_serializing_if = "Option::is_none")]
    source_call_id: Option<&'t str>,
    content: Content<'t>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subagent_trajectory_ref: Option<Value>,
    #[serde(skip_serializing_if = "Object::is_empty")]
    extra: Object,
}

/// Creates an empty step.
pub(super) fn nothing() -> Line<'static> {
    Line {
        step_id: 1,
        timestamp: None,
        source: "system",
        model_name: None,
        reasoning_effort: None,
        message: Content::Text(""),
        reasoning_content: None,
        tool_calls: Vec::new(),
        observation: None,
        metrics: Object::new(),
        llm_call_count: None,
        is_copied_context: false,
        extra: Object::new(),
    }
}

pub(super) fn line<'t>(step: &'t Step<'_>, step_id: usize) -> Line<'t> {
    // A working copy: members that ATIF has a field for are removed from it, and the rest goes to
    // `extra`.
    let mut own = step.extra.as_deref().cloned().unwrap_or_default();
    let mut ours = Object::new();
    let agent = step.role == Role::Agent;
    let mut line = Line { step_id, ..nothing() };
    line.source = match step.role {
        Role::System => "system",
        Role::User => "user",
        Role::Agent => "agent",
    };
    line.message = content(&step.text, &mut own, "message");
    line.is_copied_context = step.copied;
    if let Some(at) = step.at.as_deref() {
        // ATIF requires ISO 8601; another time goes to the extension.
        if split_time(at).is_some() {
            line.timestamp = Some(at);
        } else {
            ours.insert("timestamp".to_owned(), at.into());
        }
    }
    if let Some(name) = step.agent.as_deref() {
        ours.insert("agent".to_owned(), name.into());
    }
    let metrics = metrics(step.usage.as_deref(), step.cost_usd);
    // A usage without counts would otherwise be read back as no usage at all.
    if step.usage.as_deref().is_some_and(|usage| *usage == Usage::default()) {
        ours.insert("empty_usage".to_owned(), true.into());
    }
    if agent {
        line.model_name = step.model.as_deref();
        line.reasoning_content = step.reasoning.as_deref();
        line.metrics = metrics;
        line.tool_calls = calls(&step.calls);
        if own.get("reasoning_effort").is_some_and(|v| v.is_string() || v.is_number()) {
            line.reasoning_effort = own.shift_remove("reasoning_effort");
        }
    } else {
        // ATIF allows these members only in agent steps.
        if let Some(model) = step.model.as_deref() {
            ours.insert("model_name".to_owned(), model.into());
        }
        if let Some(reasoning) = step.reasoning.as_deref() {
            ours.insert("reasoning_content".to_owned(), reasoning.into());
        }
        if !metrics.is_empty() {
            ours.insert("metrics".to_owned(), Value::Object(metrics));
        }
        if !step.calls.is_empty() {
            let calls = step.calls.iter().map(call_in_ours).collect();
            ours.insert("tool_calls".to_owned(), Value::Array(calls));
        }
    }
    let without_model = line.metrics.is_empty() && line.reasoning_content.is_none();
    // A count of 0 contradicts a step with metrics or reasoning, so it stays in `extra` there.
    if own.get("llm_call_count").and_then(Value::as_u64).is_some_and(|n| n > 0 || without_model) {
        line.llm_call_count = own.shift_remove("llm_call_count");
    }
    if !step.results.is_empty() {
        // Results of other steps match no call, because their calls are in the extension.
        let ids: HashSet<&str> = if agent {
            step.calls.iter().filter_map(|call| call.id.as_deref()).collect()
        } else {
            HashSet::new()
        };
        let results = step.results.iter().map(|found| result(found, &ids)).collect();
        line.observation = Some(Observation { results });
    }
    if let Some(reward) = step.reward {
        line.extra.insert("reward".to_owned(), reward.into());
    }
    if let Some(reason) = step.finish_reason.as_deref() {
        line.extra.insert("finish_reason".to_owned(), reason.into());
    }
    ours::pack(&mut line.extra, ours, own, ours::STEP);
    line
}

/// Returns the stored content parts if ATIF can represent them and they match the text, otherwise
/// the text.
fn content<'t>(text: &'t str, own: &mut Object, name: &str) -> Content<'t> {
    if let Some(Value::Array(list)) = own.get(name)
        && parts::are_atif(list)
        && !parts::are_plain(list)
        && parts::joined(list) == text
    {
        return Content::Parts(own.shift_remove(name).unwrap_or_default());
    }
    Content::Text(text)
}

pub(super) fn metrics(usage: Option<&Usage>, cost: Option<f64>) -> Object {
    let mut metrics = Object::new();
    let mut extra = Object::new();
    let mut own = Object::new();
    if let Some(usage) = usage {
        let counts = [
            ("prompt_tokens", usage.prompt_tokens, true),
            ("completion_tokens", usage.completion_tokens, true),
            ("cached_tokens", usage.cached_tokens, true),
            ("cache_write_tokens", usage.cache_write_tokens, false),
            ("reasoning_tokens", usage.reasoning_tokens, false),
        ];
        for (name, number, has_place) in counts {
            if let Some(number) = number {
                let to = if has_place { &mut metrics } else { &mut extra };
                to.insert(name.to_owned(), number.into());
            }
        }
        own.clone_from(&usage.extra);
        for name in ["prompt_token_ids", "completion_token_ids", "logprobs"] {
            let fits = if name == "logprobs" { Value::is_number } else { Value::is_u64 };
            // ATIF requires lists of numbers; other values go to `extra`.
            if own.get(name).and_then(Value::as_array).is_some_and(|list| list.iter().all(fits))
                && let Some(list) = own.shift_remove(name)
            {
                metrics.insert(name.to_owned(), list);
            }
        }
    }
    if let Some(cost) = cost {
        metrics.insert("cost_usd".to_owned(), cost.into());
    }
    ours::pack(&mut extra, Object::new(), own, ours::METRICS);
    if !extra.is_empty() {
        metrics.insert("extra".to_owned(), Value::Object(extra));
    }
    metrics
}

fn calls<'t>(calls: &'t [Call<'_>]) -> Vec<ToolCall<'t>> {
    // ATIF requires an id for each call; a generated one must not collide with a recorded one.
    let taken: HashSet<&str> = calls.iter().filter_map(|call| call.id.as_deref()).collect();
    let mut made = 0;
    let mut name = || loop {
        made += 1;
        let id = format!("call-{made}");
        if !taken.contains(id.as_str()) {
            return id;
        }
    };
    calls
        .iter()
        .map(|call| {
            let mut ours = Object::new();
            let id = call.id.as_deref().map_or_else(
                || {
                    ours.insert("no_id".to_owned(), true.into());
                    name()
                },
                str::to_owned,
            );
            let arguments = of_call(&call.arguments, &mut ours);
            let mut extra = Object::new();
            let own = call.extra.as_deref().cloned().unwrap_or_default();
            ours::pack(&mut extra, ours, own, &[]);
            ToolCall { id, function_name: &call.name, arguments, extra }
        })
        .collect()
}

/// Returns the arguments as an object; arguments that are not an object are wrapped in one.
fn of_call<'t>(text: &'t str, ours: &mut Object) -> Arguments<'t> {
    let raw = serde_json::from_str::<&RawValue>(text).ok();
    if let Some(raw) = raw.filter(|raw| raw.get().starts_with('{')) {
        // The document is on one line, so line breaks between tokens are removed.
        return match arguments::on_one_line(raw.get()) {
            std::borrow::Cow::Borrowed(_) => Arguments::Object(raw),
            std::borrow::Cow::Owned(line) => {
                RawValue::from_string(line).map_or(Arguments::Object(raw), Arguments::Compact)
            }
        };
    }
    ours.insert("raw_arguments".to_owned(), true.into());
    // Valid JSON of another type stays JSON; any other text becomes a JSON string.
    match raw {
        Some(raw) => Arguments::Raw { raw },
        None => Arguments::Text { raw: text },
    }
}

fn call_in_ours(call: &Call<'_>) -> Value {
    let mut object = Object::new();
    if let Some(id) = &call.id {
        object.insert("id".to_owned(), id.as_ref().into());
    }
    object.insert("name".to_owned(), call.name.as_ref().into());
    object.insert("arguments".to_owned(), call.arguments.as_ref().into());
    if let Some(extra) = &call.extra {
        object.insert("extra".to_owned(), Value::Object((**extra).clone()));
    }
    Value::Object(object)
}

fn result<'t>(result: &'t CallResult<'_>, ids: &HashSet<&str>) -> ObservationResult<'t> {
    let mut own = result.extra.as_deref().cloned().unwrap_or_default();
    let mut ours = Object::new();
    let source_call_id = result.call_id.as_deref().filter(|id| ids.contains(id));
    if let Some(id) = result.call_id.as_deref().filter(|id| !ids.contains(id)) {
        ours.insert("call_id".to_owned(), id.into());
    }
    let content = content(&result.content, &mut own, "content");
    let refs = own.get("subagent_trajectory_ref").is_some_and(are_refs);
    let subagent_trajectory_ref =
        if refs { own.shift_remove("subagent_trajectory_ref") } else { None };
    let mut extra = Object::new();
    // Always written, so that readers need not guess from the text.
    extra.insert("is_error".to_owned(), result.is_error.into());
    if let Some(code) = result.exit_code {
        extra.insert("exit_code".to_owned(), code.into());
    }
    ours::pack(&mut extra, ours, own, ours::RESULT);
    ObservationResult { source_call_id, content, subagent_trajectory_ref, extra }
}

/// Returns `true` if the value contains only references to subagents.
fn are_refs(value: &Value) -> bool {
    let known =
        |name: &str| matches!(name, "trajectory_id" | "trajectory_path" | "session_id" | "extra");
    value.as_array().is_some_and(|list| {
        list.iter().all(|reference| {
            reference.as_object().is_some_and(|reference| {
                let texts = reference.iter().all(|(name, value)| {
                    known(name)
                        && if name == "extra" { value.is_object() } else { value.is_string() }
                });
                let somewhere = reference.contains_key("trajectory_id")
                    || reference.contains_key("trajectory_path");
                texts && somewhere
            })
        })
    })
}
