//! A run as an ATIF 1.8 document, on one line.
//!
//! ```no_run
//! # let run = endstop_trajectory::Trajectory::new("r");
//! endstop_trajectory::write::atif(&run, std::io::stdout().lock())?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! The document is valid for readers that allow nothing beside the format. What the format has no
//! place for goes into `extra` objects, so that the run is the same when it is read again; only where
//! it was read first ([`Origin`](crate::Origin)) is not written.

use crate::model::{Call, CallResult, Role, Step, Totals, Trajectory, Usage};
use crate::read::ours;
use crate::read::{arguments, parts, split_time};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::io::{self, Write};

/// Writes a run as one ATIF 1.8 document, without a line end behind it.
///
/// # Errors
///
/// `out` refuses it.
pub fn atif(run: &Trajectory<'_>, out: impl Write) -> io::Result<()> {
    serde_json::to_writer(out, &document(run, &run.run_id)).map_err(io::Error::from)
}

type Object = Map<String, Value>;

#[derive(Serialize)]
struct Document<'t> {
    schema_version: &'static str,
    session_id: String,
    trajectory_id: String,
    agent: Agent<'t>,
    steps: Vec<Line<'t>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    notes: Option<String>,
    #[serde(skip_serializing_if = "Object::is_empty")]
    final_metrics: Object,
    #[serde(skip_serializing_if = "Option::is_none")]
    continued_trajectory_ref: Option<String>,
    #[serde(skip_serializing_if = "Object::is_empty")]
    extra: Object,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    subagent_trajectories: Vec<Document<'t>>,
}

#[derive(Serialize)]
struct Agent<'t> {
    name: &'t str,
    version: &'t str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_name: Option<&'t str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_definitions: Option<&'t [Value]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra: Option<Object>,
}

#[derive(Serialize)]
struct Line<'t> {
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

fn document<'t>(run: &'t Trajectory<'_>, id: &str) -> Document<'t> {
    let mut own = run.extra.clone();
    let mut ours = Object::new();
    // A session may be another name than the run's; the run's own says nothing.
    let session = own.get("session_id").and_then(Value::as_str);
    let session_id = match session.filter(|session| !session.is_empty() && *session != run.run_id) {
        Some(session) => {
            let session = session.to_owned();
            own.shift_remove("session_id");
            session
        }
        None => id.to_owned(),
    };
    let mut moved = Object::new();
    if let Some(value) = own.shift_remove("session_id") {
        moved.insert("session_id".to_owned(), value);
    }
    if run.run_id != id {
        ours.insert("run_id".to_owned(), run.run_id.as_ref().into());
    }
    let agent = agent(run, &mut own, &mut ours);
    if !run.notes.is_empty() {
        ours.insert("notes".to_owned(), json!(run.notes));
    }

    let mut extra = Object::new();
    outcome(run, &mut extra, &mut own);
    let names = [("task_id", &run.task_id), ("trial", &run.trial)];
    for (name, value) in names {
        if let Some(value) = value {
            extra.insert(name.to_owned(), value.as_ref().into());
        }
    }
    if !run.tags.is_empty() {
        extra.insert("tags".to_owned(), json!(run.tags));
    }
    if !run.labels.is_empty() {
        extra.insert("labels".to_owned(), Value::Object(run.labels.clone()));
    }
    let notes = take_text(&mut own, "notes");
    let continued_trajectory_ref = take_text(&mut own, "continued_trajectory_ref");

    let mut steps: Vec<Line<'t>> = run.steps.iter().zip(1..).map(|(s, id)| line(s, id)).collect();
    if steps.is_empty() {
        // Readers want one.
        ours.insert("no_steps".to_owned(), true.into());
        steps.push(nothing());
    }
    let mut taken = HashSet::new();
    let mut subagent_trajectories = Vec::with_capacity(run.children.len());
    for child in &run.children {
        subagent_trajectories.push(document(child, &unique(&mut taken, &child.run_id)));
    }
    let final_metrics = final_metrics(&run.totals, run.steps.len());
    ours::pack_moved(&mut extra, ours, moved, own, ours::ROOT);
    Document {
        schema_version: "ATIF-v1.8",
        session_id,
        trajectory_id: id.to_owned(),
        agent,
        steps,
        notes,
        final_metrics,
        continued_trajectory_ref,
        extra,
        subagent_trajectories,
    }
}

/// An id that no other child has.
fn unique(taken: &mut HashSet<String>, id: &str) -> String {
    let mut name = if id.is_empty() { "run".to_owned() } else { id.to_owned() };
    let mut number = 1;
    while !taken.insert(name.clone()) {
        number += 1;
        name = format!("{id}#{number}");
    }
    name
}

fn agent<'t>(run: &'t Trajectory<'_>, own: &mut Object, ours: &mut Object) -> Agent<'t> {
    const UNKNOWN: &str = "unknown";
    for (text, said) in
        [(&run.agent, "agent_is_unknown"), (&run.agent_version, "version_is_unknown")]
    {
        if text.as_deref() == Some(UNKNOWN) {
            ours.insert(said.to_owned(), true.into());
        }
    }
    let fit = run.tools.iter().all(Value::is_object);
    if !fit {
        ours.insert("tools".to_owned(), Value::Array(run.tools.clone()));
    }
    let extra = match own.get("agent") {
        Some(Value::Object(agent)) if agent.len() == 1 => {
            agent.get("extra").and_then(Value::as_object).cloned()
        }
        _ => None,
    };
    if extra.is_some() {
        own.shift_remove("agent");
    }
    Agent {
        name: run.agent.as_deref().unwrap_or(UNKNOWN),
        version: run.agent_version.as_deref().unwrap_or(UNKNOWN),
        model_name: run.model.as_deref(),
        tool_definitions: (fit && !run.tools.is_empty()).then_some(&run.tools[..]),
        extra,
    }
}

/// How the run ended, with what its `extra` has more of it.
fn outcome(run: &Trajectory<'_>, extra: &mut Object, own: &mut Object) {
    let mut outcome = Object::new();
    if let Some(reward) = run.recorded.reward {
        outcome.insert("reward".to_owned(), reward.into());
    }
    if let Some(success) = run.recorded.success {
        outcome.insert("success".to_owned(), success.into());
    }
    join(extra, own, "outcome", outcome, &["reward", "success"]);

    let mut termination = Object::new();
    if let Some(ending) = &run.ending {
        termination.insert("reason".to_owned(), ending.reason.as_ref().into());
        let more = [
            ("native", &ending.native),
            ("harness_failure_mode", &ending.failure_mode),
            ("final_answer", &ending.answer),
        ];
        for (name, text) in more {
            if let Some(text) = text {
                termination.insert(name.to_owned(), text.as_ref().into());
            }
        }
    }
    if !run.limits.is_empty() {
        termination.insert("limits".to_owned(), Value::Object(run.limits.clone()));
    }
    let names = ["reason", "native", "harness_failure_mode", "final_answer", "limits"];
    join(extra, own, "termination", termination, &names);
}

/// Writes an object under a name, together with what the run's own `extra` has under it, where that
/// is no other thing with the same names.
fn join(extra: &mut Object, own: &mut Object, name: &str, mut known: Object, names: &[&str]) {
    if known.is_empty() {
        return;
    }
    if let Some(Value::Object(more)) = own.get(name)
        && !more.is_empty()
        && !names.iter().any(|name| more.contains_key(*name))
    {
        known.extend(more.clone());
        own.shift_remove(name);
    }
    extra.insert(name.to_owned(), Value::Object(known));
}

fn final_metrics(totals: &Totals, steps: usize) -> Object {
    let mut metrics = Object::new();
    let counts = [
        ("total_prompt_tokens", totals.prompt_tokens),
        ("total_completion_tokens", totals.completion_tokens),
        ("total_cached_tokens", totals.cached_tokens),
    ];
    for (name, number) in counts {
        if let Some(number) = number {
            metrics.insert(name.to_owned(), number.into());
        }
    }
    if let Some(cost) = totals.cost_usd {
        metrics.insert("total_cost_usd".to_owned(), cost.into());
    }
    let mut own = totals.extra.clone();
    let other = own.get("total_steps").and_then(Value::as_u64).filter(|n| *n != steps as u64);
    if other.is_some() {
        own.shift_remove("total_steps");
    }
    metrics.insert("total_steps".to_owned(), other.unwrap_or(steps as u64).into());
    let mut extra = Object::new();
    if let Some(seconds) = totals.wall_s {
        extra.insert("wall_s".to_owned(), seconds.into());
    }
    if let Some(turns) = totals.turns {
        extra.insert("turns".to_owned(), turns.into());
    }
    ours::pack(&mut extra, Object::new(), own, ours::TOTALS);
    if !extra.is_empty() {
        metrics.insert("extra".to_owned(), Value::Object(extra));
    }
    metrics
}

/// A step where there is none.
fn nothing() -> Line<'static> {
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

fn line<'t>(step: &'t Step<'_>, step_id: usize) -> Line<'t> {
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
        // Only an agent may have these.
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
    if own.get("llm_call_count").and_then(Value::as_u64).is_some_and(|n| n > 0 || without_model) {
        line.llm_call_count = own.shift_remove("llm_call_count");
    }
    if !step.results.is_empty() {
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

/// The parts that are kept beside a text, where ATIF can hold them and they say the same; else the text.
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

fn metrics(usage: Option<&Usage>, cost: Option<f64>) -> Object {
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

/// Arguments as an object: those that are none are in one.
fn of_call<'t>(text: &'t str, ours: &mut Object) -> Arguments<'t> {
    let raw = serde_json::from_str::<&RawValue>(text).ok();
    if let Some(raw) = raw.filter(|raw| raw.get().starts_with('{')) {
        return match arguments::on_one_line(raw.get()) {
            std::borrow::Cow::Borrowed(_) => Arguments::Object(raw),
            std::borrow::Cow::Owned(line) => {
                RawValue::from_string(line).map_or(Arguments::Object(raw), Arguments::Compact)
            }
        };
    }
    ours.insert("raw_arguments".to_owned(), true.into());
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
    extra.insert("is_error".to_owned(), result.is_error.into());
    if let Some(code) = result.exit_code {
        extra.insert("exit_code".to_owned(), code.into());
    }
    ours::pack(&mut extra, ours, own, ours::RESULT);
    ObservationResult { source_call_id, content, subagent_trajectory_ref, extra }
}

/// Whether these are references to subagents, and nothing else.
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

fn take_text(own: &mut Object, name: &str) -> Option<String> {
    match own.get(name) {
        Some(Value::String(_)) => match own.shift_remove(name) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        },
        _ => None,
    }
}
