//! Reader for SWE-agent: `.traj` files with one run each.
//!
//! ```json
//! {"trajectory": [{"thought": "…", "action": "ls\n", "observation": "a.py\n", "response": "…"}],
//!  "history": [{"role": "system", "content": "…"}, …], "info": {"exit_status": "submitted"}}
//! ```
//!
//! Quirks: `trajectory` contains the turns. `history` contains the messages before them and, if the
//! model called tools, the call ids and arguments; otherwise the action is the call, named after
//! its first word. A file may have only `history`. Demonstrations in it are user messages copied
//! from another run. A response without an action has no call. Results are not marked as failures,
//! and success is not recorded; `exit_status` is the ending.

mod history;

use crate::model::{CallResult, Ending, Role, Step, Trajectory};
use crate::read::build::record::{self, List, Record, count, lift, object, owned_name, owned_text};
use crate::read::format::{Format, Head, Place, Shape, Sink};
use crate::read::io::source;
use crate::read::problem::Problem;
use endstop_core::bounded_json;
use history::{History, call_of, turns_of};
use serde::de::MapAccess;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::VecDeque;

pub(crate) const FORMATS: &[Format] = &[Format {
    name: "swe-agent",
    about: "`.traj` files of SWE-agent",
    recognises,
    of_a_person: false,
    shape: Some(Shape::Whole(read)),
}];

fn recognises(head: &Head<'_>) -> bool {
    let steps = head.member("trajectory").and_then(Value::as_array);
    let is_step = |step: &Value| {
        ["action", "observation", "response", "thought"]
            .iter()
            .any(|name| step.get(*name).is_some())
            && step.get("role").is_none()
    };
    let history = head.member("history").and_then(Value::as_array);
    let said = |message: &Value| message.get("role").is_some() && message.get("agent").is_some();
    match (steps, history) {
        (Some(steps), Some(_)) => steps.first().is_none_or(is_step),
        (Some(steps), None) => steps.first().is_some_and(is_step),
        (None, Some(history)) => history.first().is_some_and(said),
        (None, None) => false,
    }
}

/// Maximum number of turns in the history without a matching step between two that match.
const AHEAD: usize = 8;

#[derive(Default)]
struct File<'a> {
    steps: Vec<Taken<'a>>,
    history: Vec<History<'a>>,
    info: Map<String, Value>,
    other: Map<String, Value>,
}

impl<'a> Record<'a> for File<'a> {
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        match name {
            "trajectory" => self.steps = map.next_value::<List<Taken<'a>>>()?.0,
            "history" => self.history = map.next_value::<List<History<'a>>>()?.0,
            "info" => self.info = object(map)?.unwrap_or_default(),
            _ => record::keep_other(&mut self.other, name, map)?,
        }
        Ok(())
    }
}

/// One step of `trajectory`.
#[derive(Default)]
struct Taken<'a> {
    action: Cow<'a, str>,
    observation: Option<Cow<'a, str>>,
    response: Option<Cow<'a, str>>,
    thought: Option<Cow<'a, str>>,
    other: Map<String, Value>,
}

impl<'a> Record<'a> for Taken<'a> {
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        match name {
            "action" => self.action = record::text(map)?.unwrap_or_default(),
            "observation" => self.observation = record::text(map)?,
            "response" => self.response = record::text(map)?,
            "thought" => self.thought = record::text(map)?,
            // The model's input, which repeats the history in every step.
            "query" | "messages" => {
                map.next_value::<serde::de::IgnoredAny>()?;
            }
            _ => record::keep_other(&mut self.other, name, map)?,
        }
        Ok(())
    }
}

fn read(bytes: &[u8], place: &Place<'_>, sink: &mut Sink<'_>) {
    sink(run(bytes, place));
}

fn run<'a>(bytes: &'a [u8], place: &Place<'_>) -> Result<Trajectory<'a>, Problem> {
    let File { steps, history, mut info, mut other } = record::read(bytes)?;
    let mut run = Trajectory { agent: Some("swe-agent".into()), ..Trajectory::default() };
    if steps.is_empty() {
        turns_of(history, &mut run);
    } else {
        // The model's messages in the history, in order.
        let mut called = VecDeque::new();
        for message in history {
            if message.is_turn() {
                called.push_back(message);
            } else if called.is_empty() {
                // The user messages after the first turn are the observations, as shown to the
                // model. The steps already have them.
                run.steps.push(message.step());
            }
        }
        let mut passed = 0;
        for (step, i) in steps.into_iter().zip(1..) {
            // Matched by content, because `history` may contain turns that failed and were
            // repeated.
            let same = called.iter().take(AHEAD).position(|message| {
                message.action.as_deref() == Some(&*step.action)
                    || step.response.as_deref().is_some_and(|said| message.is_said(said))
            });
            let same = same.and_then(|before| {
                passed += before;
                called.drain(..before);
                called.pop_front()
            });
            run.steps.push(turn(step, same, i));
        }
        passed += called.len();
        if passed > 0 {
            run.notes.push(format!("turns of the history that are not steps: {passed}"));
        }
    }

    // The path is `INSTANCE/INSTANCE.traj`, so the stem is the task, unless the file names it.
    let stem = source::stem(source::bare_name(place.file));
    let mut config = other.shift_remove("replay_config");
    if let Some(Value::String(text)) = &config {
        // Some versions encode the configuration as a string.
        config = Some(bounded_json::from_str(text).unwrap_or(Value::String(text.clone())));
    }
    let configured = |path: &str| config.as_ref().and_then(|config| config.pointer(path));
    run.task_id = configured("/problem_statement/id")
        .and_then(owned_name)
        .or_else(|| (!place.file.is_empty() && place.file != "-").then(|| stem.to_owned().into()));
    run.model = configured("/agent/model/name").and_then(owned_text);
    for name in ["per_instance_cost_limit", "total_cost_limit", "per_instance_call_limit"] {
        if let Some(limit) = configured(&format!("/agent/model/{name}")).filter(|v| v.is_number()) {
            run.limits.insert(name.to_owned(), limit.clone());
        }
    }
    if let Some(config) = config {
        run.extra.insert("replay_config".to_owned(), config);
    }

    if let Some(Value::Object(mut stats)) = info.shift_remove("model_stats") {
        run.totals.prompt_tokens = lift(&mut stats, "tokens_sent", count);
        run.totals.completion_tokens = lift(&mut stats, "tokens_received", count);
        run.totals.cost_usd = lift(&mut stats, "instance_cost", Value::as_f64);
        run.totals.extra = stats;
    }
    if let Some(native) = lift(&mut info, "exit_status", owned_text) {
        run.ending = Some(Ending {
            reason: reason(&native).into(),
            native: Some(native),
            answer: lift(&mut info, "submission", owned_text),
            ..Ending::default()
        });
    }
    info.retain(|_, value| !value.is_null());
    if !info.is_empty() {
        run.extra.insert("info".to_owned(), Value::Object(info));
    }
    run.extra.extend(other);
    Ok(run)
}

fn turn<'a>(taken: Taken<'a>, message: Option<History<'a>>, number: usize) -> Step<'a> {
    let Taken { action, observation, response, thought, other } = taken;
    let mut step = Step::new(Role::Agent);
    step.extra = (!other.is_empty()).then(|| Box::new(other));
    // The response is usually the thought followed by the action, so it is only stored if it
    // differs from the thought.
    match (thought, response) {
        (Some(thought), Some(response)) => {
            if thought != response {
                record::keep_value(&mut step.extra, "response", response.into_owned().into());
            }
            step.text = thought;
        }
        (thought, response) => step.text = thought.or(response).unwrap_or_default(),
    }
    if let Some(message) = message {
        step.calls = message.calls;
    }
    if step.calls.is_empty() {
        step.calls.extend(call_of(&action, number));
    } else {
        record::keep_value(&mut step.extra, "action", action.into_owned().into());
    }
    if let Some(content) = observation {
        // Parallel calls share one observation, which is attached to the last of them.
        let call_id = step.calls.last().and_then(|call| call.id.clone());
        step.results.push(CallResult { call_id, content, ..CallResult::default() });
    }
    step
}

/// Maps SWE-agent's exit status to the common reasons. After a limit SWE-agent submits the work so
/// far, and reports it as `submitted (exit_cost)`.
fn reason(native: &str) -> &'static str {
    let inner = native.strip_prefix("submitted (").and_then(|rest| rest.strip_suffix(')'));
    match inner.unwrap_or(native) {
        "submitted" => "final",
        "exit_cost" | "exit_total_cost" => "cost_limit",
        "exit_context" => "context_overflow",
        "exit_format" | "exit_forfeit" => "agent_error",
        "exit_api" => "provider_error",
        "exit_command_timeout" | "exit_total_execution_time" => "timeout",
        "exit_environment_error" | "exit_error" => "harness_error",
        _ => "unknown",
    }
}
