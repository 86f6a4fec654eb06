//! Decodes the runs of a file.

use crate::model::{Call, CallResult, Ending, Role, Step, Trajectory};
use crate::read::build::message::says_error;
use crate::read::build::record::{self, Of, Record, lift, object, owned_name};
use crate::read::format::{Place, Sink};
use crate::read::io::source;
use crate::read::outcomes::is_success;
use crate::read::problem::Problem;
use serde::de::MapAccess;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;

/// The runs of a file, by number, not parsed yet.
#[derive(Default)]
struct File<'a> {
    runs: Vec<(String, &'a RawValue)>,
    meta: Map<String, Value>,
}

impl<'a> Record<'a> for File<'a> {
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        match name {
            "meta" => self.meta = object(map)?.unwrap_or_default(),
            // `logs` has the same shape as the file itself.
            "logs" => self.runs.extend(map.next_value::<Of<File<'a>>>()?.0.runs),
            _ => self.runs.push((name.to_owned(), record::raw(map)?)),
        }
        Ok(())
    }
}

pub(super) fn read(bytes: &[u8], place: &Place<'_>, sink: &mut Sink<'_>) {
    let File { runs, meta } = match record::read(bytes) {
        Ok(file) => file,
        Err(problem) => return sink(Err(problem)),
    };
    // Run numbers repeat in each file, so the file's name is a part of the run id.
    let stem = source::stem(source::bare_name(place.file));
    for ((name, raw), at) in runs.into_iter().zip(1..) {
        let run = run(raw.get().as_bytes(), &meta).map(|mut run| {
            run.run_id = format!("{stem}/{name}").into();
            run.origin.at = Some(at);
            run
        });
        // Only the invalid run is lost, because the runs are independent.
        sink(run.map_err(|problem| Problem {
            at: Some(at),
            what: format!("run `{name}`: {}", problem.what),
            ..problem
        }));
    }
}

#[derive(Default)]
struct Entry<'a> {
    environment: Cow<'a, str>,
    dataset: Option<Cow<'a, str>>,
    task_id: Option<Cow<'a, str>>,
    query: Cow<'a, str>,
    history: Option<Map<String, Value>>,
    taken: Option<Vec<Map<String, Value>>>,
    reward: Option<f64>,
    summary: Map<String, Value>,
    other: Map<String, Value>,
}

impl<'a> Record<'a> for Entry<'a> {
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        match name {
            "environment" => self.environment = record::text(map)?.unwrap_or_default(),
            "dataset" => self.dataset = record::text(map)?,
            "task_id" | "query_idx" => self.task_id = record::name(map)?,
            "query" => self.query = record::text(map)?.unwrap_or_default(),
            "turn_history" => self.history = object(map)?,
            "trajectory" => self.taken = map.next_value()?,
            "reward" => self.reward = map.next_value()?,
            "summary" => self.summary = object(map)?.unwrap_or_default(),
            _ => {
                let value = map.next_value()?;
                self.other.insert(name.to_owned(), value);
            }
        }
        Ok(())
    }
}

fn run<'a>(bytes: &'a [u8], meta: &Map<String, Value>) -> Result<Trajectory<'a>, Problem> {
    let entry: Entry<'a> = record::read(bytes)?;
    let environment = entry.environment.strip_prefix("ic_").unwrap_or(&entry.environment);
    let mut turns = match (entry.history, entry.taken) {
        (Some(history), _) => Turns::of_lists(history),
        (None, Some(taken)) => Turns::of_pairs(taken),
        (None, None) => {
            return Err(Problem::malformed("missing `turn_history`: expected an object"));
        }
    };
    let mut run = Trajectory { agent: Some("intercode".into()), ..Trajectory::default() };
    run.steps.push(Step { text: entry.query, ..Step::new(Role::User) });
    for i in 0..turns.actions.len() {
        run.steps.push(turns.step(i, environment));
    }
    run.notes = turns.notes;

    // Only the file name of the dataset, because the path differs between machines.
    let dataset = entry.dataset.as_deref().map(source::bare_name);
    run.task_id = entry.task_id.map(|task| match dataset {
        Some(dataset) => format!("{environment}/{dataset}/{task}").into(),
        None => format!("{environment}/{task}").into(),
    });
    let mut summary = entry.summary;
    run.recorded.reward = lift(&mut summary, "max_reward", Value::as_f64).or(entry.reward);
    run.recorded.success = run.recorded.reward.map(is_success);
    let turn_limit = summary.get("turns_max").and_then(Value::as_u64);
    let taken = summary.get("turns_taken").and_then(Value::as_u64);
    if let Some(limit) = lift(&mut summary, "turns_max", |value| Some(value.clone())) {
        run.limits.insert("turns_max".to_owned(), limit);
    }
    let refined = meta.get("refine").and_then(Value::as_bool).unwrap_or_default();
    if refined && let Some(limit) = meta.get("refine_turns") {
        run.limits.insert("refine_turns".to_owned(), limit.clone());
    }

    // The order matters: a submitted answer also has a reward, and may be given in the last turn.
    let last = run.steps.last().filter(|step| step.role == Role::Agent);
    let submitted = last.is_some_and(|step| step.calls.iter().any(|call| call.name == "submit"));
    let rewarded = last.is_some_and(|step| step.reward.is_some_and(is_success));
    let planned = !turns.plan.is_empty();
    let out_of_turns = turn_limit.zip(taken).is_some_and(|(limit, taken)| taken >= limit);
    let reason = if submitted {
        Some("agent_submit")
    } else if rewarded {
        Some("reward_threshold")
    } else if out_of_turns || (planned && refined) {
        Some("max_turns")
    } else if planned {
        Some("plan_end")
    } else {
        None
    };
    run.ending = reason.map(|reason| Ending { reason: reason.into(), ..Ending::default() });

    run.extra = entry.other;
    let more = [("summary", summary), ("meta", meta.clone()), ("turn_history", turns.other)];
    for (name, map) in more {
        if !map.is_empty() {
            run.extra.insert(name.to_owned(), Value::Object(map));
        }
    }
    if planned {
        run.extra.insert("plan".to_owned(), Value::Array(turns.plan));
    }
    if let Some(dataset) = entry.dataset {
        run.extra.insert("dataset".to_owned(), dataset.into_owned().into());
    }
    Ok(run)
}

/// The parallel lists of a history.
#[derive(Default)]
struct Turns {
    actions: Vec<Value>,
    observations: Vec<Value>,
    rewards: Vec<Value>,
    thoughts: Vec<Value>,
    valid: Vec<Value>,
    plan: Vec<Value>,
    other: Map<String, Value>,
    notes: Vec<String>,
}

impl Turns {
    fn of_lists(mut history: Map<String, Value>) -> Turns {
        let mut list = |name: &str| match history.get_mut(name) {
            Some(Value::Array(list)) => {
                let list = std::mem::take(list);
                history.shift_remove(name);
                list
            }
            _ => Vec::new(),
        };
        let mut turns = Turns {
            actions: list("actions"),
            observations: list("observations"),
            rewards: list("rewards"),
            thoughts: list("thoughts"),
            valid: list("valid_action"),
            plan: list("steps"),
            ..Turns::default()
        };
        turns.other = history;
        let (asked, given) = (turns.actions.len(), turns.observations.len());
        if given > asked {
            turns.notes.push(format!("observations without an action: {}", given - asked));
        }
        turns
    }

    fn of_pairs(taken: Vec<Map<String, Value>>) -> Turns {
        let mut turns = Turns::default();
        for mut pair in taken {
            turns.actions.push(pair.shift_remove("action").unwrap_or_default());
            turns.observations.push(pair.shift_remove("observation").unwrap_or_default());
        }
        turns
    }

    fn step(&mut self, i: usize, environment: &str) -> Step<'static> {
        let mut step = Step::new(Role::Agent);
        // The values are moved out of the lists, because a history can be large.
        let mut take = |list: fn(&mut Turns) -> &mut Vec<Value>| {
            list(self).get_mut(i).map(std::mem::take).filter(|value| !value.is_null())
        };
        if let Some(thought) = take(|turns| &mut turns.thoughts) {
            step.text = said(&thought);
        }
        step.reward = take(|turns| &mut turns.rewards).and_then(|reward| reward.as_f64());
        let action = said(&take(|turns| &mut turns.actions).unwrap_or_default());
        let id: Cow<'static, str> = format!("call-{}", i + 1).into();
        // `submit` ends the episode, so it is a separate tool.
        let submits = action == "submit" || action.starts_with("submit ");
        let mut command = Map::new();
        command.insert("command".to_owned(), action.into_owned().into());
        step.calls.push(Call {
            id: Some(id.clone()),
            name: if submits { "submit".into() } else { format!("{environment}_exec").into() },
            arguments: Value::Object(command).to_string().into(),
            extra: None,
        });
        if let Some(observation) = take(|turns| &mut turns.observations) {
            let content = said(&observation);
            let valid = take(|turns| &mut turns.valid).and_then(|valid| valid.as_bool());
            let is_error = valid == Some(false) || is_failure(&content);
            let call_id = Some(id);
            step.results.push(CallResult { call_id, content, is_error, ..CallResult::default() });
        }
        step
    }
}

fn said(value: &Value) -> Cow<'static, str> {
    match value {
        Value::Null => Cow::Borrowed(""),
        value => owned_name(value).unwrap_or_else(|| value.to_string().into()),
    }
}

/// Returns `true` if an observation is one of the environments' error messages.
fn is_failure(content: &str) -> bool {
    // Only with the shell's prefix, because the output of a command may contain the same words.
    let shell = ["/bin/bash: ", "awk: "].iter().any(|shell| content.starts_with(shell));
    let complaint = ["command not found", "syntax error", "unexpected EOF"];
    says_error(content)
        || content.starts_with("No SQL code was found")
        || content.starts_with("{'error'")
        || shell && complaint.iter().any(|words| content.contains(words))
}
