//! Decodes a simulation.

use super::reason::reason;
use super::ticks;
use crate::model::{Ending, Trajectory};
use crate::read::build::message::Message;
use crate::read::build::record::{self, List, Of, Record, lift, object, owned_name, owned_text};
use crate::read::build::talk::Talk;
use crate::read::format::{Part, Place, Sink};
use crate::read::outcomes::is_success;
use crate::read::problem::Problem;
use endstop_core::bounded_json;
use serde::de::MapAccess;
use serde_json::{Map, Value};
use std::borrow::Cow;

#[derive(Default)]
struct Simulation<'a> {
    id: Option<Cow<'a, str>>,
    task_id: Option<Cow<'a, str>>,
    trial: Option<Cow<'a, str>>,
    messages: Option<Vec<Message<'a>>>,
    ticks: Option<Vec<ticks::Tick<'a>>>,
    ended: Option<Cow<'a, str>>,
    reward_info: Option<Map<String, Value>>,
    other: Map<String, Value>,
}

impl<'a> Record<'a> for Simulation<'a> {
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        match name {
            "id" => self.id = record::name(map)?,
            "task_id" => self.task_id = record::name(map)?,
            "trial" => self.trial = record::name(map)?,
            "messages" => {
                let list = map.next_value::<Option<List<Message<'a>>>>()?;
                // An empty list counts as absent, because a spoken simulation has one in addition
                // to its ticks.
                self.messages = list.map(|list| list.0).filter(|list| !list.is_empty());
            }
            "ticks" => {
                let list = map.next_value::<Option<List<ticks::Tick<'a>>>>()?;
                self.ticks = list.map(|list| list.0);
            }
            "termination_reason" => self.ended = record::text(map)?,
            "reward_info" => self.reward_info = object(map)?,
            _ => record::keep_other(&mut self.other, name, map)?,
        }
        Ok(())
    }
}

pub(super) fn read_part(bytes: &[u8], part: &Part<'_>, sink: &mut Sink<'_>) {
    let nothing = Map::new();
    let info = part.context.get("info").and_then(Value::as_object).unwrap_or(&nothing);
    sink(run(bytes, info));
}

pub(super) fn read_file(bytes: &[u8], place: &Place<'_>, sink: &mut Sink<'_>) {
    let results = ["results.json", "../results.json"].iter().find_map(|name| {
        let bytes = (place.beside)(name)?;
        bounded_json::from_slice::<Of<Results>>(&bytes).ok()
    });
    sink(run(bytes, &results.map(|of| of.0.info).unwrap_or_default()));
}

/// The members of the results file that apply to all simulations.
#[derive(Default)]
struct Results {
    info: Map<String, Value>,
}

impl<'a> Record<'a> for Results {
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        if name == "info" {
            self.info = object(map)?.unwrap_or_default();
        } else {
            map.next_value::<serde::de::IgnoredAny>()?;
        }
        Ok(())
    }
}

pub(super) fn run<'a>(
    bytes: &'a [u8],
    info: &Map<String, Value>,
) -> Result<Trajectory<'a>, Problem> {
    let simulation: Simulation<'a> = record::read(bytes)?;
    let mut talk = Talk::default();
    match (simulation.messages, simulation.ticks) {
        (Some(messages), None) => {
            for message in messages {
                message.join(&mut talk);
            }
        }
        (messages, Some(ticks)) => {
            // In a spoken simulation the ticks contain the messages.
            if messages.is_some() {
                talk.note("messages in addition to ticks", || "the ticks are used".to_owned());
            }
            ticks::join(ticks, &mut talk);
        }
        (None, None) => {}
    }
    let (steps, notes) = talk.end();
    let mut extra = simulation.other;
    let mut run = Trajectory {
        run_id: simulation.id.unwrap_or_default(),
        trial: simulation.trial,
        steps,
        notes,
        ..Trajectory::default()
    };
    let part = |name: &str| info.get(name).and_then(Value::as_object);
    run.model = part("agent_info").and_then(|agent| owned_text(agent.get("llm")?));
    run.agent = part("agent_info").and_then(|agent| owned_text(agent.get("implementation")?));
    let domain = part("environment_info").and_then(|of| owned_name(of.get("domain_name")?));
    run.task_id = match (domain, simulation.task_id) {
        (Some(domain), Some(task)) => Some(format!("{domain}/{task}").into()),
        (_, task) => task,
    };
    // Only the limits that end a run; the other members of `info` configure the user simulator.
    for name in ["max_steps", "max_errors", "timeout"] {
        if let Some(limit) = info.get(name).filter(|limit| limit.is_number()) {
            run.limits.insert(name.to_owned(), limit.clone());
        }
    }
    if let Some(mut rewards) = simulation.reward_info {
        run.recorded.reward = lift(&mut rewards, "reward", Value::as_f64);
        run.recorded.success = run.recorded.reward.map(is_success);
        // The detailed rewards are labels, because they explain the reward and are not part of it.
        rewards.retain(|_, value| !value.is_null());
        if !rewards.is_empty() {
            run.labels.insert("reward_info".to_owned(), Value::Object(rewards));
        }
    }
    if let Some(native) = simulation.ended {
        run.ending = Some(Ending {
            reason: reason(&native).into(),
            native: Some(native),
            ..Ending::default()
        });
    }
    run.totals.cost_usd = lift(&mut extra, "agent_cost", Value::as_f64);
    run.totals.wall_s = lift(&mut extra, "duration", Value::as_f64);
    if let Some(cost) = lift(&mut extra, "user_cost", |cost| cost.as_f64().map(|_| cost.clone())) {
        run.totals.extra.insert("user_cost".to_owned(), cost);
    }
    if run.steps.is_empty() {
        run.tags.push("summary_only".into());
    }
    run.extra = extra;
    Ok(run)
}
