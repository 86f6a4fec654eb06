//! Converts a sample into a run.
//!
//! ```text
//! let run = sample::run(map, &of)?;          // Err: the reason, for the user
//! ```

use super::log::{Of, task_name};
use super::messages::{self, ModelCalls, resolve};
use super::{ending, score};
use crate::model::{Origin, Totals, Trajectory};
use crate::read::build::conversation::{Conversation, Tally};
use crate::read::build::fields::{self, Fields, id_text, list, object, peek};
use crate::read::format::{Place, Sink};
use crate::read::problem::{Problem, ProblemKind};
use endstop_core::bounded_json;
use serde_json::Value;

/// Decodes a sample and passes its run to the sink.
pub(super) fn give(
    bytes: &[u8],
    of: &Of<'_>,
    at: Option<u64>,
    place: &Place<'_>,
    sink: &mut Sink<'_>,
) {
    let run = match bounded_json::from_slice::<Value>(bytes) {
        Ok(Value::Object(map)) => run(map, of),
        Ok(other) => {
            Err(format!("invalid sample: expected an object, found {}", fields::kind_of(&other)))
        }
        Err(e) => Err(format!("invalid JSON in a sample: {e}")),
    };
    match run {
        Ok(mut run) => {
            run.origin = Origin { at, ..Origin::default() };
            sink(Ok(run));
        }
        Err(what) => sink(Err(Problem {
            file: place.file.to_owned(),
            at,
            kind: ProblemKind::Malformed,
            what,
        })),
    }
}

fn run(mut map: Fields, of: &Of<'_>) -> Result<Trajectory<'static>, String> {
    let mut run = Trajectory::default();
    identity(&mut run, &mut map, of)?;
    limits(of.eval, &mut map, &mut run);
    let Recorded { texts, events, messages } = Recorded::take(&mut map, &mut run);
    tools(&events, &mut run);
    let mut others = Tally::default();
    for kind in events.iter().map(|event| event["event"].as_str().unwrap_or("without a name")) {
        if kind != "model" {
            others.add(kind);
        }
    }
    let mut calls = ModelCalls::of(events, &texts);
    let mut conversation = Conversation::default();
    if let Value::Array(messages) = messages {
        messages::into(&mut conversation, messages, &mut calls)?;
    }
    let (steps, notes) = conversation.finish();
    run.steps = steps;
    run.notes.extend(notes);
    run.notes.extend(others.line("events that are not steps"));
    if run.model.is_none() {
        let model = run.turns().find_map(|step| step.model.clone());
        run.model = model;
    }

    let mut output = object(&mut map, "output").unwrap_or_default();
    of_output(&mut run, &mut output);
    totals(&mut run, &mut map);
    verdicts(&mut run, &mut map, &texts);
    let not_null = |key: &str| map.get(key).filter(|value| !value.is_null());
    run.ending = ending::of(not_null("limit"), not_null("error"), &run.steps, &output);
    if run.steps.is_empty() {
        run.tags.push("summary_only".into());
    }
    if let Some(status) = of.status.filter(|status| *status != "success") {
        run.extra.insert("eval_status".to_owned(), status.into());
    }
    if let Some(beside) = of.beside {
        run.extra.insert("beside".to_owned(), beside.clone());
    }
    rest(&mut run, map, &texts);
    Ok(run)
}

/// Names the run by its log, its sample and its epoch, and takes what the log records about the
/// model and the agent.
fn identity(run: &mut Trajectory<'static>, map: &mut Fields, of: &Of<'_>) -> Result<(), String> {
    let id = map.shift_remove("id");
    let Some(id) = id.as_ref().and_then(id_text) else {
        return Err("a sample without its `id`".to_owned());
    };
    let epoch = map.shift_remove("epoch").as_ref().and_then(id_text).unwrap_or_else(|| "1".into());
    let log = ["eval_id", "task_id", "run_id"].iter().find_map(|key| peek(of.eval, key));
    run.run_id = match log {
        Some(log) => format!("{log}/{id}_epoch_{epoch}").into(),
        None => format!("{id}_epoch_{epoch}").into(),
    };
    run.task_id = Some(match task_name(of) {
        Some(task) => format!("{task}/{id}").into(),
        None => id.into(),
    });
    run.trial = Some(epoch.into());
    run.model = peek(of.eval, "model").map(|model| model.to_owned().into());
    run.agent = Some(peek(of.eval, "solver").unwrap_or("inspect").to_owned().into());
    let version = of.eval.get("packages").and_then(|packages| packages.get("inspect_ai"));
    run.agent_version = version.and_then(Value::as_str).map(|version| version.to_owned().into());
    Ok(())
}

/// The conversation of a sample, as it is recorded.
struct Recorded {
    /// Long texts, to which the other parts refer.
    texts: Fields,
    events: Vec<Value>,
    /// The list of messages, with their texts.
    messages: Value,
}

impl Recorded {
    fn take(map: &mut Fields, run: &mut Trajectory<'static>) -> Recorded {
        let mut texts = object(map, "attachments").unwrap_or_default();
        let mut events = list(map, "events").unwrap_or_default();
        // The first log format stores texts and events in `transcript`.
        if let Some(mut transcript) = object(map, "transcript") {
            texts.extend(object(&mut transcript, "content").unwrap_or_default());
            events.extend(list(&mut transcript, "events").unwrap_or_default());
        }
        let mut messages = Value::Array(list(map, "messages").unwrap_or_default());
        if !resolve(&mut messages, &texts) {
            run.notes.push("references to texts that are not in the sample".to_owned());
        }
        Recorded { texts, events, messages }
    }
}

/// Takes the scores and the target.
fn verdicts(run: &mut Trajectory<'static>, map: &mut Fields, texts: &Fields) {
    let scores = map.shift_remove("scores").or_else(|| {
        // Early versions have a single score without a name.
        let score = map.shift_remove("score")?;
        Some(Value::Object(Fields::from_iter([("score".to_owned(), score)])))
    });
    if let Some(mut scores) = scores.filter(|scores| !scores.is_null()) {
        resolve(&mut scores, texts);
        run.recorded = score::recorded(&scores);
        run.labels.insert("scores".to_owned(), scores);
    }
    if let Some(mut target) = map.shift_remove("target") {
        resolve(&mut target, texts);
        run.labels.insert("target".to_owned(), target);
    }
}

/// Stores the members that no field of the run holds.
fn rest(run: &mut Trajectory<'static>, mut map: Fields, texts: &Fields) {
    // These members repeat the messages.
    for key in ["message_pool", "call_pool", "events_data", "timelines"] {
        map.shift_remove(key);
    }
    // The input is usually the first message, so it is only stored if no step has that text.
    let said = |text: &str| run.steps.iter().any(|step| step.text == text);
    if map.get("input").and_then(Value::as_str).is_some_and(said) {
        map.shift_remove("input");
    }
    let mut rest = Value::Object(fields::without_nulls(map));
    resolve(&mut rest, texts);
    if let Value::Object(rest) = rest {
        run.extra.extend(rest);
    }
}

/// Collects the limits of the evaluation and of the sample.
fn limits(eval: &Fields, map: &mut Fields, run: &mut Trajectory<'static>) {
    if let Some(Value::Object(config)) = eval.get("config") {
        let limits =
            config.iter().filter(|(key, value)| key.ends_with("_limit") && !value.is_null());
        run.limits.extend(limits.map(|(key, value)| (key.clone(), value.clone())));
    }
    if let Some(limit) = fields::count(map, "token_limit") {
        run.limits.insert("token_limit".to_owned(), limit.into());
    }
}

/// Takes the tools from the first model call that offers any.
fn tools(events: &[Value], run: &mut Trajectory<'static>) {
    let mut offered = events.iter().filter(|event| event["event"] == "model");
    if let Some(tools) =
        offered.find_map(|event| event["tools"].as_array().filter(|t| !t.is_empty()))
    {
        run.tools.clone_from(tools);
    }
}

/// Applies the sample's `output` to the last turn, if no event describes its call.
fn of_output(run: &mut Trajectory<'static>, output: &mut Fields) {
    let usage = object(output, "usage");
    let Some(Value::Object(choice)) = output.get("choices").and_then(|choices| choices.get(0))
    else {
        return;
    };
    let said = choice.get("message").and_then(|message| message.get("content"));
    let Some(last) = run.steps.iter_mut().rev().find(|step| step.is_turn()) else { return };
    // The output must be that of the last turn; a scorer may have replaced it.
    if said.and_then(Value::as_str) != Some(&*last.text) {
        return;
    }
    if last.finish_reason.is_none() {
        last.finish_reason = peek(choice, "stop_reason").map(|reason| reason.to_owned().into());
    }
    if last.usage.is_none() {
        last.usage = usage.map(|usage| Box::new(messages::usage(usage)));
    }
}

/// Sums the usage over all models of the sample, including those of scorers.
fn totals(run: &mut Trajectory<'static>, map: &mut Fields) {
    let mut totals = Totals {
        wall_s: map.shift_remove("total_time").and_then(|time| time.as_f64()),
        turns: fields::count(map, "turn_count"),
        ..Totals::default()
    };
    if let Some(Value::Object(models)) = map.get("model_usage") {
        let sum = |to: &mut Option<u64>, more: Option<u64>| {
            if let Some(more) = more {
                *to = Some(to.unwrap_or(0).saturating_add(more));
            }
        };
        for model in models.values().filter_map(Value::as_object) {
            if let Some(cost) = model.get("total_cost").and_then(Value::as_f64) {
                totals.cost_usd = Some(totals.cost_usd.unwrap_or(0.0) + cost);
            }
            let usage = messages::usage(model.clone());
            sum(&mut totals.prompt_tokens, usage.prompt_tokens);
            sum(&mut totals.completion_tokens, usage.completion_tokens);
            sum(&mut totals.cached_tokens, usage.cached_tokens);
        }
    }
    run.totals = totals;
}
