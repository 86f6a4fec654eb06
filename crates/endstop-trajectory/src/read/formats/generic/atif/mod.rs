//! Reader for ATIF, the Agent Trajectory Interchange Format, versions 1.0 to 1.8, which Harbor's
//! agents write.
//!
//! ```json
//! {"schema_version": "ATIF-v1.8", "session_id": "s", "agent": {"name": "a", "version": "1"},
//!  "steps": [{"step_id": 1, "source": "agent", "message": "Paris."}]}
//! ```
//!
//! Quirks: a document is a file, a line or an element of a list. No version has a field for the
//! ending of a run; the ending is in `result.json` next to the document, or in `extra`.
//! `session_id` may repeat, so the run's id is `trajectory_id` if there is one. Arguments that are
//! not an object violate the format, but occur. A result may refer to a call that no step has.
//! Steps copied from an earlier recording are not turns of this run.

mod document;
pub(crate) mod ours;
mod result;

use crate::model::{
    Call, CallResult, Ending, ModelCall, Recorded, Role, Step, Totals, Trajectory, Usage,
};
use crate::read::build::OUT_OF_ORDER;
use crate::read::build::record::{self, count, lift, owned_name, owned_text};
use crate::read::format::{Format, Head, Place, Shape, Sink};
use crate::read::problem::{Problem, ProblemKind};
use document::{Document, Fields};
use serde_json::{Map, Value};
use std::borrow::Cow;

const ABOUT: &str = "Agent Trajectory Interchange Format 1.0 to 1.8 (Harbor)";

pub(crate) const FORMATS: &[Format] = &[
    Format {
        name: "atif",
        about: ABOUT,
        recognises: |head| head.first.is_some_and(is_atif) && !head.is_lines(),
        of_a_person: false,
        shape: Some(Shape::Whole(read_file)),
    },
    Format {
        name: "atif",
        about: ABOUT,
        recognises: |head: &Head<'_>| head.first.is_some_and(is_atif),
        of_a_person: false,
        shape: Some(Shape::Lines(read_one)),
    },
    Format {
        name: "atif",
        about: ABOUT,
        recognises: |head: &Head<'_>| head.element().is_some_and(is_atif),
        of_a_person: false,
        shape: Some(Shape::Elements(None, read_one)),
    },
];

fn is_atif(value: &Value) -> bool {
    let Some(object) = value.as_object() else { return false };
    match object.get("schema_version").and_then(Value::as_str) {
        Some(version) => version.starts_with("ATIF-v"),
        // The version may be at the end of the file, after the part that is inspected.
        None => object.get("steps").and_then(Value::as_array).is_some_and(|steps| {
            steps
                .first()
                .is_some_and(|step| step.get("step_id").is_some() && step.get("source").is_some())
        }),
    }
}

fn read_file(bytes: &[u8], place: &Place<'_>, sink: &mut Sink<'_>) {
    match run_of(bytes) {
        Err(problem) => sink(Err(problem)),
        Ok(mut run) => {
            // Harbor stores the trajectory in the subfolder `agent/` of the trial's folder.
            for name in ["result.json", "../result.json"] {
                if (place.beside)(name).is_some_and(|bytes| result::apply(&mut run, &bytes)) {
                    break;
                }
            }
            sink(Ok(run));
        }
    }
}

fn read_one(bytes: &[u8], sink: &mut Sink<'_>) {
    sink(run_of(bytes));
}

fn run_of(bytes: &[u8]) -> Result<Trajectory<'_>, Problem> {
    let document: Document<'_> = record::read(bytes)?;
    match document.version.as_deref() {
        None => {
            return Err(Problem::malformed(
                "missing `schema_version`: expected `ATIF-v1.0` to `ATIF-v1.8`",
            ));
        }
        Some(version) if !is_known(version) => {
            let what = format!(
                "unsupported `schema_version` `{version}`: expected `ATIF-v1.0` to `ATIF-v1.8`"
            );
            return Err(Problem::new(ProblemKind::UnknownVersion, what));
        }
        Some(_) => {}
    }
    run(document)
}

fn is_known(version: &str) -> bool {
    let minor = version.strip_prefix("ATIF-v1.").and_then(|minor| minor.parse::<u8>().ok());
    minor.is_some_and(|minor| minor <= 8)
}

fn run(document: Document<'_>) -> Result<Trajectory<'_>, Problem> {
    let Document { trajectory_id, session_id, agent, steps, children, .. } = document;
    let steps = steps.ok_or_else(|| Problem::malformed("missing `steps`: expected a list"))?;
    let mut run = Trajectory::default();
    let mut extra = document.extra;
    let mut ours = ours::take(&mut extra);

    let session = session_id.filter(|id| !id.is_empty());
    let id = trajectory_id.filter(|id| !id.is_empty()).or_else(|| session.clone());
    run.run_id = id.clone().unwrap_or_default();
    if let Some(id) = lift(&mut ours, "run_id", owned_text) {
        run.run_id = id;
    }
    let mut own = document.other;
    if let Some(session) = session.filter(|session| Some(session) != id.as_ref()) {
        own.insert("session_id".to_owned(), session.into_owned().into());
    }

    let agent = agent.unwrap_or_default();
    let filler = |ours: &mut Map<String, Value>, name: &str, text: Option<Cow<'static, str>>| {
        // ATIF requires both fields, so writers use `unknown` for missing values. A flag marks an
        // agent that is really called that.
        let said = lift(ours, name, Value::as_bool).unwrap_or_default();
        text.filter(|text| said || text != "unknown")
    };
    run.agent = filler(&mut ours, "agent_is_unknown", agent.name);
    run.agent_version = filler(&mut ours, "version_is_unknown", agent.version);
    run.model = agent.model;
    run.tools = agent.tools;
    if let Some(Value::Array(tools)) = ours.shift_remove("tools") {
        run.tools = tools;
    }
    if !agent.other.is_empty() {
        own.insert("agent".to_owned(), Value::Object(agent.other));
    }

    // The fields of `extra` are moved into the model; unknown ones stay there.
    outcome(&mut run, &mut extra);
    run.task_id = lift(&mut extra, "task_id", owned_name);
    run.trial = lift(&mut extra, "trial", owned_name);
    run.tags = lift(&mut extra, "tags", texts).unwrap_or_default();
    run.labels = lift(&mut extra, "labels", |value| value.as_object().cloned()).unwrap_or_default();
    run.notes = lift(&mut ours, "notes", texts)
        .unwrap_or_default()
        .into_iter()
        .map(Cow::into_owned)
        .collect();

    // ATIF requires at least one step, so a run without steps is written with a placeholder.
    let no_steps = lift(&mut ours, "no_steps", Value::as_bool).unwrap_or_default();
    let number = if no_steps { 0 } else { steps.len() };
    run.totals = totals(document.final_metrics, number);
    if !no_steps {
        run.steps.reserve(number);
        for (fields, i) in steps.into_iter().zip(1u64..) {
            if fields.step_id != Some(i) {
                let found = fields.step_id.map_or("none".to_owned(), |id| id.to_string());
                run.notes.push(format!("{OUT_OF_ORDER}: step {i} has the step_id {found}"));
            }
            let step = step(fields, i, &mut run.notes)?;
            run.steps.push(step);
        }
    }
    for child in children {
        run.children.push(self::run(child)?);
    }
    ours::give_back(&mut extra, ours);
    ours::beside(&mut own, extra);
    run.extra = own;
    agentpile(&mut run);
    Ok(run)
}

/// Reads a list that contains only strings.
fn texts(value: &Value) -> Option<Vec<Cow<'static, str>>> {
    value.as_array()?.iter().map(owned_text).collect()
}

/// Reads the outcome and the ending from `extra`; unknown members stay there.
fn outcome(run: &mut Trajectory<'_>, extra: &mut Map<String, Value>) {
    if let Some(Value::Object(outcome)) = extra.get_mut("outcome") {
        run.recorded = Recorded {
            reward: lift(outcome, "reward", Value::as_f64),
            success: lift(outcome, "success", Value::as_bool),
        };
        let found = run.recorded != Recorded::default();
        if found && outcome.is_empty() {
            extra.shift_remove("outcome");
        }
    }
    if let Some(Value::Object(termination)) = extra.get_mut("termination") {
        let limits = lift(termination, "limits", |value| value.as_object().cloned());
        let mut found = limits.is_some();
        run.limits = limits.unwrap_or_default();
        if let Some(reason) = lift(termination, "reason", owned_text) {
            found = true;
            run.ending = Some(Ending {
                reason,
                native: lift(termination, "native", owned_text),
                failure_mode: lift(termination, "harness_failure_mode", owned_text),
                http_status: lift(termination, "http_status", |status| {
                    u16::try_from(status.as_u64()?).ok()
                }),
                answer: lift(termination, "final_answer", owned_text),
            });
        }
        if found && termination.is_empty() {
            extra.shift_remove("termination");
        }
    }
}

/// Reads the `extra` member of agentpile, and leaves it in place.
fn agentpile(run: &mut Trajectory<'_>) {
    let Some(theirs) = run.extra.get("agentpile").and_then(Value::as_object) else { return };
    if run.recorded == Recorded::default() {
        let outcome = theirs.get("outcome");
        run.recorded = Recorded {
            reward: outcome.and_then(|outcome| outcome.get("score")?.as_f64()),
            success: outcome.and_then(|outcome| outcome.get("success")?.as_bool()),
        };
    }
    if run.task_id.is_none() {
        run.task_id = theirs.get("task").and_then(|task| owned_name(task.get("id")?));
    }
    for step in &mut run.steps {
        let theirs = step.extra.as_ref().and_then(|extra| extra.get("agentpile"));
        let Some(theirs) = theirs else { continue };
        if step.agent.is_none() {
            step.agent = theirs.get("actor").and_then(owned_text);
        }
        let failed = |id: &str| {
            theirs
                .get("calls")
                .and_then(|calls| calls.get(id)?.get("error"))
                .is_some_and(|e| !e.is_null())
        };
        for result in &mut step.results {
            result.is_error |= result.call_id.as_deref().is_some_and(failed);
        }
    }
}

fn totals(metrics: Option<Map<String, Value>>, steps: usize) -> Totals {
    let Some(mut metrics) = metrics else { return Totals::default() };
    let mut extra = match metrics.shift_remove("extra") {
        Some(Value::Object(extra)) => extra,
        _ => Map::new(),
    };
    let mut ours = ours::take(&mut extra);
    let outside_turns = lift(&mut ours, "outside_turns", |calls| {
        calls.as_array()?.iter().map(model_call).collect::<Option<Vec<_>>>()
    });
    let mut totals = Totals {
        prompt_tokens: lift(&mut metrics, "total_prompt_tokens", count),
        completion_tokens: lift(&mut metrics, "total_completion_tokens", count),
        cached_tokens: lift(&mut metrics, "total_cached_tokens", count),
        cost_usd: lift(&mut metrics, "total_cost_usd", Value::as_f64),
        wall_s: lift(&mut extra, "wall_s", Value::as_f64),
        turns: lift(&mut extra, "turns", count),
        outside_turns: outside_turns.unwrap_or_default(),
        extra: Map::new(),
    };
    ours::give_back(&mut extra, ours);
    // `total_steps` is only stored if it differs from the number of steps.
    metrics.retain(|name, value| {
        let counted = name == "total_steps" && value.as_u64() == Some(steps as u64);
        !(counted || value.is_null())
    });
    ours::beside(&mut metrics, extra);
    totals.extra = metrics;
    totals
}

/// Reads a model call that is not a turn, from Endstop's extension.
fn model_call(value: &Value) -> Option<ModelCall> {
    let call = value.as_object()?;
    let (usage, cost_usd) = match call.get("metrics").and_then(Value::as_object) {
        Some(metrics) => usage(metrics.clone()),
        None => (None, None),
    };
    let usage = usage.map(|usage| *usage).unwrap_or_default();
    let model = call.get("model_name").and_then(Value::as_str).map(str::to_owned);
    Some(ModelCall { model, usage, cost_usd })
}

fn step<'a>(fields: Fields<'a>, number: u64, notes: &mut Vec<String>) -> Result<Step<'a>, Problem> {
    let role = match fields.source.as_deref() {
        Some("agent") => Role::Agent,
        Some("user") => Role::User,
        Some("system") => Role::System,
        _ => {
            let what = format!("step {number}: `source`: expected `system`, `user` or `agent`");
            return Err(Problem::malformed(what));
        }
    };
    let mut extra = fields.extra;
    let mut ours = ours::take(&mut extra);
    let mut own = fields.other;
    let (text, parts) = fields.message.split();
    if let Some(parts) = parts {
        own.insert("message".to_owned(), parts);
    }
    let mut step = Step {
        role,
        text,
        reasoning: fields.reasoning,
        calls: fields.calls,
        at: fields.timestamp,
        model: fields.model,
        copied: fields.copied,
        reward: lift(&mut extra, "reward", Value::as_f64),
        finish_reason: lift(&mut extra, "finish_reason", owned_text)
            .or_else(|| lift(&mut extra, "stop_reason", owned_text)),
        ..Step::default()
    };
    if let Some(metrics) = fields.metrics {
        (step.usage, step.cost_usd) = usage(metrics);
    }
    more_of_step(&mut step, &mut ours);
    for mut result in fields.results {
        result.is_error = more_of_result(&mut result);
        let known = |id: &str| step.calls.iter().any(|call| call.id.as_deref() == Some(id));
        if result.call_id.as_deref().is_some_and(|id| !known(id)) {
            let id = result.call_id.as_deref().unwrap_or_default();
            notes.push(format!("result without a call: {id}, in step {number}"));
        }
        if let Some(extra) = &mut result.extra {
            // Endstop's writer stores the id of a call that the step does not have in `extra`,
            // because ATIF forbids it in the result.
            let mut ours = ours::take(extra);
            if let Some(id) = lift(&mut ours, "call_id", owned_text) {
                result.call_id = Some(id);
            }
            ours::give_back(extra, ours);
        }
        result.extra = result.extra.filter(|extra| !extra.is_empty());
        step.results.push(result);
    }
    ours::give_back(&mut extra, ours);
    ours::beside(&mut own, extra);
    step.extra = (!own.is_empty()).then(|| Box::new(own));
    Ok(step)
}

/// Reads a step's members in Endstop's extension: those that ATIF does not allow in a step, or not
/// in this one.
fn more_of_step(step: &mut Step<'_>, ours: &mut Map<String, Value>) {
    if let Some(agent) = lift(ours, "agent", owned_text) {
        step.agent = Some(agent);
    }
    if let Some(at) = lift(ours, "timestamp", owned_text) {
        step.at = Some(at);
    }
    if let Some(model) = lift(ours, "model_name", owned_text) {
        step.model = Some(model);
    }
    if let Some(reasoning) = lift(ours, "reasoning_content", owned_text) {
        step.reasoning = Some(reasoning);
    }
    if let Some(metrics) = lift(ours, "metrics", |value| value.as_object().cloned()) {
        (step.usage, step.cost_usd) = usage(metrics);
    }
    if lift(ours, "empty_usage", Value::as_bool) == Some(true) {
        step.usage.get_or_insert_default();
    }
    let calls = lift(ours, "tool_calls", |value| {
        value.as_array()?.iter().map(call_of).collect::<Option<Vec<_>>>()
    });
    if let Some(calls) = calls {
        step.calls = calls;
    }
}

/// Reads a call in Endstop's extension, whose arguments are text.
fn call_of(value: &Value) -> Option<Call<'static>> {
    let call = value.as_object()?;
    Some(Call {
        id: call.get("id").and_then(owned_text),
        name: owned_text(call.get("name")?)?,
        arguments: owned_text(call.get("arguments")?)?,
        extra: call.get("extra").and_then(Value::as_object).cloned().map(Box::new),
    })
}

/// Moves the members of a result's `extra` into its fields. Returns `true` if the result is a
/// failure.
fn more_of_result(result: &mut CallResult<'_>) -> bool {
    let Some(extra) = &mut result.extra else { return false };
    let failed = lift(extra, "tool_result_is_error", Value::as_bool);
    let error = lift(extra, "is_error", Value::as_bool);
    result.exit_code = lift(extra, "exit_code", Value::as_i64);
    // `is_error` is Endstop's own flag; the other is that of Harbor's agents.
    error.or(failed).unwrap_or_default()
}

fn usage(mut metrics: Map<String, Value>) -> (Option<Box<Usage>>, Option<f64>) {
    let mut extra = match metrics.shift_remove("extra") {
        Some(Value::Object(extra)) => extra,
        // `extra` must be an object in ATIF; another value is stored as it is.
        Some(Value::Null) | None => Map::new(),
        Some(other) => [("extra".to_owned(), other)].into_iter().collect(),
    };
    let ours = ours::take(&mut extra);
    let cost = lift(&mut metrics, "cost_usd", Value::as_f64);
    let mut usage = Usage {
        prompt_tokens: lift(&mut metrics, "prompt_tokens", count),
        completion_tokens: lift(&mut metrics, "completion_tokens", count),
        cached_tokens: lift(&mut metrics, "cached_tokens", count),
        cache_write_tokens: lift(&mut extra, "cache_write_tokens", count)
            .or_else(|| lift(&mut extra, "cache_creation_input_tokens", count)),
        reasoning_tokens: lift(&mut extra, "reasoning_tokens", count),
        extra: Map::new(),
    };
    metrics.retain(|_, value| !value.is_null());
    ours::give_back(&mut extra, ours);
    ours::beside(&mut metrics, extra);
    usage.extra = metrics;
    ((usage != Usage::default()).then(|| Box::new(usage)), cost)
}
