//! Writes a run as an ATIF 1.8 document on one line.
//!
//! ```no_run
//! # let run = endstop_trajectory::Trajectory::new("r");
//! endstop_trajectory::write::atif(&run, std::io::stdout().lock())?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! The document is valid for readers that reject unknown members. Data that the format has no field
//! for is stored in `extra` objects, so that the run is unchanged when it is read again. Only the
//! [`Origin`](crate::Origin) is not written.

mod step;

use self::step::{Line, Object, line, metrics, nothing};
use crate::model::{ModelCall, Totals, Trajectory};
use crate::read::ours;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{self, Write};

/// Writes a run as one ATIF 1.8 document, without a line break at the end.
///
/// # Errors
///
/// Writing to `out` fails.
pub fn atif(run: &Trajectory<'_>, out: impl Write) -> io::Result<()> {
    serde_json::to_writer(out, &document(run, &run.run_id)).map_err(io::Error::from)
}

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

fn document<'t>(run: &'t Trajectory<'_>, id: &str) -> Document<'t> {
    let mut own = run.extra.clone();
    let mut ours = Object::new();
    // A session id is only stored if it differs from the run's id.
    let session = own.get("session_id").and_then(Value::as_str);
    let session_id = match session.filter(|session| !session.is_empty() && *session != run.run_id) {
        Some(session) => {
            let session = session.to_owned();
            own.shift_remove("session_id");
            session
        }
        None => id.to_owned(),
    };
    // A `session_id` that was not used must not be read back as the document's own.
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
        // ATIF requires at least one step, so write a placeholder.
        ours.insert("no_steps".to_owned(), true.into());
        steps.push(nothing());
    }
    let mut taken = HashMap::new();
    let mut subagent_trajectories = Vec::with_capacity(run.children.len());
    for child in &run.children {
        // ATIF requires unique ids, and recorded ones may repeat.
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

/// Returns an id that no other child has. `taken` holds for each id the highest number that was added
/// to it, because a search from 2 would take quadratic time if all children have the same id.
fn unique(taken: &mut HashMap<String, u64>, id: &str) -> String {
    let base = if id.is_empty() { "run" } else { id };
    let Some(mut number) = taken.get(base).copied() else {
        taken.insert(base.to_owned(), 1);
        return base.to_owned();
    };
    loop {
        number += 1;
        let name = format!("{base}#{number}");
        if let Entry::Vacant(free) = taken.entry(name.clone()) {
            free.insert(1);
            taken.insert(base.to_owned(), number);
            return name;
        }
    }
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
    // ATIF's schema requires objects; other tool definitions go to the extension.
    let fit = run.tools.iter().all(Value::is_object);
    if !fit {
        ours.insert("tools".to_owned(), Value::Array(run.tools.clone()));
    }
    let extra = match own.get("agent") {
        // Only if `extra` is the only member, because ATIF's agent has no field for others.
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

/// Writes the outcome and the ending, merged with the run's own members of the same names.
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
        if let Some(status) = ending.http_status {
            termination.insert("http_status".to_owned(), status.into());
        }
    }
    if !run.limits.is_empty() {
        termination.insert("limits".to_owned(), Value::Object(run.limits.clone()));
    }
    let names =
        ["reason", "native", "harness_failure_mode", "http_status", "final_answer", "limits"];
    join(extra, own, "termination", termination, &names);
}

/// Writes an object under a name, merged with the run's own `extra` member of that name, unless the
/// two have members in common.
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
    // The recorded number is written instead of the actual one.
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
    let mut ours = Object::new();
    if !totals.outside_turns.is_empty() {
        let calls = totals.outside_turns.iter().map(model_call).collect();
        ours.insert("outside_turns".to_owned(), Value::Array(calls));
    }
    ours::pack(&mut extra, ours, own, ours::TOTALS);
    if !extra.is_empty() {
        metrics.insert("extra".to_owned(), Value::Object(extra));
    }
    metrics
}

fn model_call(call: &ModelCall) -> Value {
    let mut written = Object::new();
    if let Some(model) = &call.model {
        written.insert("model_name".to_owned(), model.as_str().into());
    }
    let metrics = metrics(Some(&call.usage), call.cost_usd);
    if !metrics.is_empty() {
        written.insert("metrics".to_owned(), Value::Object(metrics));
    }
    Value::Object(written)
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
