//! Decodes a run.

use crate::model::{Call, CallResult, Ending, Recorded, Role, Step, Trajectory};
use crate::read::build::conversation::Conversation;
use crate::read::build::fields::{self, Fields, count, list, object, text, without_nulls};
use crate::read::format::{Place, Sink};
use crate::read::io::json_lines;
use crate::read::outcomes::is_success;
use crate::read::problem::Problem;
use serde_json::{Map, Value, json};

pub(super) fn read(bytes: &[u8], _: &Place<'_>, sink: &mut Sink<'_>) {
    run_of(bytes, sink);
}

pub(super) fn run_of(bytes: &[u8], sink: &mut Sink<'_>) {
    sink(json_lines::record(bytes).and_then(run));
}

fn run(mut record: Fields) -> Result<Trajectory<'static>, Problem> {
    let trace = list(&mut record, "trace")
        .ok_or_else(|| Problem::malformed("missing `trace`: expected a list"))?;
    let mut run = Trajectory::new(text(&mut record, "run_id").unwrap_or_default());
    run.agent = text(&mut record, "condition_id").map(Into::into);
    run.agent_version = text(&mut record, "agent_framework").map(Into::into);
    run.model = text(&mut record, "model_name").map(Into::into);
    let task = text(&mut record, "task_id").unwrap_or_default();
    run.task_id = Some(match text(&mut record, "item_id") {
        Some(item) => format!("{task}/{item}").into(),
        None => task.clone().into(),
    });

    run.limits = object(&mut record, "budget").unwrap_or_default();
    if let Some(steps) = record.shift_remove("max_steps").filter(|steps| !steps.is_null()) {
        run.limits.insert("max_steps".to_owned(), steps);
    }
    let mut metrics = object(&mut record, "metrics").unwrap_or_default();
    // Recordings contain a boolean or a number.
    let reward = match metrics.get("success") {
        Some(Value::Bool(success)) => Some(f64::from(u8::from(*success))),
        reward => reward.and_then(Value::as_f64),
    };
    if reward.is_some() {
        metrics.shift_remove("success");
    }
    run.recorded = Recorded { reward, success: reward.map(is_success) };
    run.totals.prompt_tokens = count(&mut metrics, "tokens_in");
    run.totals.completion_tokens = count(&mut metrics, "tokens_out");
    run.totals.cost_usd = metrics.get("cost_usd").and_then(Value::as_f64);
    metrics.shift_remove("cost_usd");
    run.totals.extra = without_nulls(metrics);

    let (outcome, error) = (text(&mut record, "outcome"), text(&mut record, "error_type"));
    // `error_type` comes first, because it is more specific than `outcome`.
    let reason = match (error.as_deref(), outcome.as_deref()) {
        (Some("max_steps_exceeded"), _) => "max_steps",
        (None, Some("success" | "failure")) => "final",
        (None, Some("timeout")) => "timeout",
        _ => "unknown",
    };
    run.ending = (error.is_some() || outcome.is_some()).then(|| Ending {
        reason: reason.into(),
        answer: text(&mut record, "final_answer").map(Into::into),
        native: error.or(outcome).map(Into::into),
        ..Ending::default()
    });

    let mut steps = Conversation::default();
    let input = record.shift_remove("input_data").unwrap_or_default();
    let asked = json!({"task": task, "input": input}).to_string();
    steps.push(Step { text: asked.into(), ..Step::new(Role::User) });
    let mut others = Vec::new();
    for entry in trace {
        match entry.as_str().and_then(entry_of) {
            Some(Entry::Said(said)) => model(said, &mut steps),
            Some(Entry::Observed(told)) if steps.last_turn_index().is_some() => {
                observed(told, &mut steps);
            }
            _ => others.push(entry),
        }
    }
    if !others.is_empty() {
        run.notes.push(format!("entries of the trace that are not steps: {}", others.len()));
        record.insert("trace".to_owned(), Value::Array(others));
    }
    let (steps, notes) = steps.finish();
    (run.steps, run.extra) = (steps, without_nulls(record));
    run.notes.extend(notes);
    Ok(run)
}

enum Entry<'e> {
    Said(&'e str),
    Observed(&'e str),
}

/// Parses an entry such as `STEP 2 MODEL: …` or `STEP 2 OBSERVATION: …`.
fn entry_of(entry: &str) -> Option<Entry<'_>> {
    let (number, rest) = entry.strip_prefix("STEP ")?.split_once(' ')?;
    number.parse::<u64>().ok()?;
    let (kind, said) = rest.split_once(':')?;
    match kind {
        "MODEL" => Some(Entry::Said(said.trim_start())),
        "OBSERVATION" => Some(Entry::Observed(said.trim_start())),
        _ => None,
    }
}

fn model(said: &str, steps: &mut Conversation) {
    let turn = steps.push(Step { text: said.to_owned().into(), ..Step::new(Role::Agent) });
    // Only the first action, because that is the one that the harness runs.
    let Some(action) = said.lines().find_map(|line| line.trim_start().strip_prefix("ACTION:"))
    else {
        return;
    };
    let action = action.trim();
    let (name, raw) = action.split_once(char::is_whitespace).unwrap_or((action, ""));
    let mut arguments = Map::new();
    arguments.insert("raw".to_owned(), raw.trim().into());
    let call = Call {
        id: Some(call_id(turn).into()),
        name: name.to_owned().into(),
        arguments: Value::Object(arguments).to_string().into(),
        extra: None,
    };
    steps.call(turn, call);
}

fn observed(told: &str, steps: &mut Conversation) {
    let Some(turn) = steps.last_turn_index() else { return };
    if told == "no-action" {
        let step = &mut steps.steps[turn];
        return fields::add_extra(&mut step.extra, "no_action", true.into());
    }
    let id = call_id(turn);
    steps.result(CallResult {
        // A call id without a call would count as an unanswered call of another turn.
        call_id: steps.has_call(&id).then(|| id.into()),
        is_error: ["error", "invalid"].iter().any(|start| told.starts_with(start)),
        content: told.to_owned().into(),
        ..CallResult::default()
    });
}

fn call_id(turn: usize) -> String {
    format!("call-{turn}")
}
