//! Reader for neutral-traj/1: one run per line, able to represent the runs of any system.
//!
//! ```json
//! {"schema": "neutral-traj/1", "run_id": "r1", "source": "…", "task_id": "t1",
//!  "outcome": {"reward": 1.0, "success": true}, "termination": {"reason": "final"},
//!  "steps": [{"index": 0, "role": "agent", "text": "Paris.", "tool_calls": [], "tool_results": []}]}
//! ```
//!
//! This is Endstop's own format and has no quirks. The line is parsed in place; strings without
//! escapes are not copied. Unknown members are stored under their own names.

use crate::model::{Call, CallResult, Ending, Recorded, Role, Step, Totals, Trajectory, Usage};
use crate::read::build::record::{self, List, Of, Record, Text, count, keep, lift, object};
use crate::read::build::{OUT_OF_ORDER, arguments};
use crate::read::format::{Format, Head, Shape, Sink};
use crate::read::problem::{Problem, ProblemKind};
use serde::de::{Error as _, MapAccess};
use serde_json::{Map, Value};

const NAME: &str = "neutral-traj/1";

pub(crate) const FORMATS: &[Format] = &[Format {
    name: NAME,
    about: "one run per line, converted from any system",
    recognises,
    of_a_person: false,
    shape: Some(Shape::Lines(read)),
}];

fn recognises(head: &Head<'_>) -> bool {
    let schema = head.member("schema").and_then(Value::as_str);
    schema.is_some_and(|schema| schema.starts_with("neutral-traj/"))
}

fn read(line: &[u8], sink: &mut Sink<'_>) {
    let Line { schema, run, strange } = match record::read(line) {
        Ok(line) => line,
        Err(problem) => return sink(Err(problem)),
    };
    // Members come in any order, so the schema is only known after the whole line was parsed.
    match schema.as_deref() {
        Some(NAME) if strange.is_none() => sink(Ok(run)),
        Some(NAME) => sink(Err(Problem::malformed(strange.unwrap_or_default()))),
        Some(other) if other.starts_with("neutral-traj/") => {
            let what = format!("unsupported `schema` `{other}`: expected `{NAME}`");
            sink(Err(Problem::new(ProblemKind::UnknownVersion, what)));
        }
        _ => {
            let what = format!("missing `schema`: expected `{NAME}`");
            sink(Err(Problem::malformed(what)));
        }
    }
}

#[derive(Default)]
struct Line<'a> {
    schema: Option<std::borrow::Cow<'a, str>>,
    run: Trajectory<'a>,
    /// The reason why the line is not a valid run.
    strange: Option<String>,
}

impl<'a> Record<'a> for Line<'a> {
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        let run = &mut self.run;
        match name {
            "schema" => self.schema = record::text(map)?,
            "run_id" => run.run_id = record::name(map)?.unwrap_or_default(),
            "task_id" => run.task_id = record::name(map)?,
            "trial" => run.trial = record::name(map)?,
            "model" => run.model = record::text(map)?,
            "agent" => run.agent = record::text(map)?,
            "outcome" => {
                if let Some(Of(outcome)) = map.next_value::<Option<Of<Outcome>>>()? {
                    run.recorded = outcome.recorded;
                    keep_rest(&mut run.extra, name, outcome.rest);
                }
            }
            "termination" => {
                if let Some(termination) = map.next_value::<Option<Of<Termination<'a>>>>()? {
                    let Termination { ending, rest } = termination.0;
                    run.ending = Some(ending);
                    keep_rest(&mut run.extra, name, rest);
                }
            }
            "limits" => run.limits = object(map)?.unwrap_or_default(),
            "totals" => run.totals = totals(object(map)?.unwrap_or_default()),
            "labels" => run.labels = object(map)?.unwrap_or_default(),
            "tags" => {
                let tags = map.next_value::<Option<Vec<Text<'a>>>>()?.unwrap_or_default();
                run.tags = tags.into_iter().map(|tag| tag.0).collect();
            }
            "steps" => {
                // JSON allows duplicate members, and most parsers use the last one.
                if !run.steps.is_empty() {
                    run.notes
                        .push("duplicate member: steps, of which the last are used".to_owned());
                    run.steps.clear();
                }
                let strange = &mut self.strange;
                let mut i = 0;
                record::each(map, |Numbered { index, role, step }| {
                    if role.is_none() {
                        *strange = Some(format!("step {i}: missing `role`"));
                    }
                    if let Some(index) = index.filter(|index| *index != i) {
                        run.notes.push(format!("{OUT_OF_ORDER}: step {i} has the index {index}"));
                    }
                    run.steps.push(step);
                    i += 1;
                })?;
            }
            _ => {
                let value = map.next_value()?;
                run.extra.insert(name.to_owned(), value);
            }
        }
        Ok(())
    }
}

/// Stores the remaining members of an object whose known members were taken.
fn keep_rest(extra: &mut Map<String, Value>, name: &str, rest: Map<String, Value>) {
    if !rest.is_empty() {
        extra.insert(name.to_owned(), Value::Object(rest));
    }
}

#[derive(Default)]
struct Outcome {
    recorded: Recorded,
    rest: Map<String, Value>,
}

impl<'a> Record<'a> for Outcome {
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        match name {
            "reward" => self.recorded.reward = map.next_value()?,
            "success" => self.recorded.success = map.next_value()?,
            _ => {
                let value = map.next_value()?;
                self.rest.insert(name.to_owned(), value);
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct Termination<'a> {
    ending: Ending<'a>,
    rest: Map<String, Value>,
}

impl<'a> Record<'a> for Termination<'a> {
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        let ending = &mut self.ending;
        match name {
            // A termination without a reason is still a recorded ending.
            "reason" => ending.reason = record::text(map)?.unwrap_or_else(|| "unknown".into()),
            "native" => ending.native = record::text(map)?,
            "harness_failure_mode" => ending.failure_mode = record::text(map)?,
            "final_answer" => ending.answer = record::text(map)?,
            _ => {
                let value = map.next_value()?;
                self.rest.insert(name.to_owned(), value);
            }
        }
        Ok(())
    }
}

fn totals(mut map: Map<String, Value>) -> Totals {
    Totals {
        prompt_tokens: lift(&mut map, "prompt_tokens", count),
        completion_tokens: lift(&mut map, "completion_tokens", count),
        cached_tokens: lift(&mut map, "cached_tokens", count),
        cost_usd: lift(&mut map, "cost_usd", Value::as_f64),
        wall_s: lift(&mut map, "wall_s", Value::as_f64),
        turns: lift(&mut map, "turns", count),
        outside_turns: Vec::new(),
        extra: map,
    }
}

/// Converts the usage, under the names of the OpenAI chat completions API.
pub(crate) fn usage(mut map: Map<String, Value>) -> Usage {
    Usage {
        prompt_tokens: lift(&mut map, "prompt_tokens", count),
        completion_tokens: lift(&mut map, "completion_tokens", count),
        cached_tokens: lift(&mut map, "cached_tokens", count),
        cache_write_tokens: lift(&mut map, "cache_write_tokens", count),
        reasoning_tokens: lift(&mut map, "reasoning_tokens", count),
        extra: map,
    }
}

#[derive(Default)]
struct Numbered<'a> {
    index: Option<i64>,
    role: Option<Role>,
    step: Step<'a>,
}

impl<'a> Record<'a> for Numbered<'a> {
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        let step = &mut self.step;
        match name {
            "index" => self.index = map.next_value()?,
            "role" => {
                let role = match record::text(map)?.as_deref() {
                    Some("agent") => Role::Agent,
                    Some("user") => Role::User,
                    Some("system") => Role::System,
                    _ => return Err(M::Error::custom("expected `system`, `user` or `agent`")),
                };
                self.role = Some(role);
                step.role = role;
            }
            "text" => step.text = record::text(map)?.unwrap_or_default(),
            "tool_calls" => {
                step.calls = map.next_value::<List<Call<'a>>>()?.0;
                // The model requires JSON arguments, and an empty string is not valid JSON.
                for call in step.calls.iter_mut().filter(|call| call.arguments.is_empty()) {
                    call.arguments = "{}".into();
                }
            }
            "tool_results" => {
                step.results = map.next_value::<List<CallResult<'a>>>()?.0;
            }
            "usage" => step.usage = object(map)?.map(|map| Box::new(usage(map))),
            "cost" => step.cost_usd = map.next_value()?,
            "reward" => step.reward = map.next_value()?,
            "timestamp" => step.at = record::text(map)?,
            "finish_reason" => step.finish_reason = record::text(map)?,
            "agent" => step.agent = record::text(map)?,
            "reasoning" => step.reasoning = record::text(map)?,
            "model" => step.model = record::text(map)?,
            "extra" => {
                // Merged with the unknown members, because both are stored in the same map.
                for (name, value) in object(map)?.unwrap_or_default() {
                    step.extra.get_or_insert_default().insert(name, value);
                }
            }
            _ => keep(&mut step.extra, name, map)?,
        }
        Ok(())
    }
}

impl<'a> Record<'a> for Call<'a> {
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        match name {
            "id" => self.id = record::name(map)?,
            "name" => self.name = record::text(map)?.unwrap_or_default(),
            "arguments" => self.arguments = arguments::of_raw(record::raw(map)?),
            _ => keep(&mut self.extra, name, map)?,
        }
        Ok(())
    }
}

impl<'a> Record<'a> for CallResult<'a> {
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        match name {
            "call_id" => self.call_id = record::name(map)?,
            "content" => self.content = record::text(map)?.unwrap_or_default(),
            "is_error" => self.is_error = map.next_value::<Option<bool>>()?.unwrap_or_default(),
            "exit_code" => self.exit_code = map.next_value()?,
            _ => keep(&mut self.extra, name, map)?,
        }
        Ok(())
    }
}
