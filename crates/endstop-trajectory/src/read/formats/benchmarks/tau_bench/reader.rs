//! Decodes a result.

use crate::model::{Ending, Recorded, Role, Step, Trajectory};
use crate::read::build::message::Message;
use crate::read::build::record::{self, List, Record, object, owned_name};
use crate::read::build::talk::Talk;
use crate::read::format::{Part, Sink};
use crate::read::outcomes::is_success;
use crate::read::problem::Problem;
use serde::de::MapAccess;
use serde_json::{Map, Value};
use std::borrow::Cow;

#[derive(Default)]
struct Fields<'a> {
    task_id: Option<Cow<'a, str>>,
    trial: Option<Cow<'a, str>>,
    reward: Option<f64>,
    info: Map<String, Value>,
    traj: Option<Vec<Message<'a>>>,
    other: Map<String, Value>,
}

impl<'a> Record<'a> for Fields<'a> {
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        match name {
            "task_id" => self.task_id = record::name(map)?,
            "trial" => self.trial = record::name(map)?,
            "reward" => self.reward = map.next_value()?,
            "info" => self.info = object(map)?.unwrap_or_default(),
            "traj" => self.traj = Some(map.next_value::<List<Message<'a>>>()?.0),
            _ => {
                let value = map.next_value()?;
                self.other.insert(name.to_owned(), value);
            }
        }
        Ok(())
    }
}

pub(super) fn read_part(bytes: &[u8], part: &Part<'_>, sink: &mut Sink<'_>) {
    sink(run(bytes, part.stem));
}

/// Decodes one result. `stem` is its file's name, which makes run ids unique across files.
pub(super) fn run<'a>(bytes: &'a [u8], stem: &str) -> Result<Trajectory<'a>, Problem> {
    let Fields { task_id, trial, reward, mut info, traj, other } = record::read(bytes)?;
    let task = task_id.ok_or_else(|| Problem::malformed("missing `task_id`"))?;
    let messages = traj.ok_or_else(|| Problem::malformed("missing `traj`: expected a list"))?;
    let mut talk = Talk::default();
    for message in messages {
        message.join(&mut talk);
    }
    let (steps, notes) = talk.end();
    let mut run = Trajectory {
        recorded: Recorded { reward, success: reward.map(is_success) },
        steps,
        notes,
        extra: other,
        ..Trajectory::default()
    };
    // Files without trials contain a single one, which is number 0.
    let trial_name = trial.as_deref().unwrap_or("0");
    run.run_id = if stem.is_empty() {
        format!("{task}/{trial_name}").into()
    } else {
        format!("{stem}/{task}/{trial_name}").into()
    };
    // Task numbers repeat in each domain, so the domain is a part of the task id.
    run.task_id = Some(match domain(&run.steps) {
        Some(domain) => format!("{domain}/{task}").into(),
        None => task,
    });
    run.trial = trial;
    run.ending = ending(&run.steps, &info);
    if let Some(cost) = info.get("user_cost").filter(|cost| !cost.is_null()) {
        run.totals.extra.insert("user_cost".to_owned(), cost.clone());
        info.shift_remove("user_cost");
    }
    if run.steps.is_empty() {
        run.tags.push("summary_only".into());
    }
    if !info.is_empty() {
        run.extra.insert("info".to_owned(), Value::Object(info));
    }
    Ok(run)
}

/// Reads the domain from the policy's title: `# Airline Agent Policy` → `airline`.
fn domain(steps: &[Step<'_>]) -> Option<&'static str> {
    let policy = &steps.iter().find(|step| step.role == Role::System)?.text;
    let title = policy.lines().next()?.to_ascii_lowercase();
    ["airline", "retail", "telecom"].into_iter().find(|domain| {
        let words = title.trim_start_matches(['#', ' ']);
        words.strip_prefix(*domain).is_some_and(|rest| rest.starts_with(" agent policy"))
    })
}

fn ending(steps: &[Step<'_>], info: &Map<String, Value>) -> Option<Ending<'static>> {
    const STOP: &str = "###STOP###";
    let ending = |reason: &'static str, native: Option<Cow<'static, str>>| {
        Some(Ending { reason: reason.into(), native, ..Ending::default() })
    };
    if let Some(error) = info.get("error").filter(|error| !error.is_null()) {
        let text = owned_name(error).unwrap_or_else(|| error.to_string().into());
        return ending("harness_error", Some(text));
    }
    let said = steps.last().filter(|last| last.role == Role::User);
    if said.is_some_and(|last| last.text.contains(STOP)) {
        return ending("user_stop", Some(STOP.into()));
    }
    let judged = match info.get("reward_info") {
        None => return None,
        Some(value) => !value.is_null(),
    };
    match info.get("source").and_then(Value::as_str) {
        // There is no reward, because the steps ran out before the environment was done.
        _ if !judged => ending("max_steps", None),
        Some(tool) if tool.starts_with("transfer_to_human") => {
            ending("handoff", Some(tool.to_owned().into()))
        }
        _ => None,
    }
}
