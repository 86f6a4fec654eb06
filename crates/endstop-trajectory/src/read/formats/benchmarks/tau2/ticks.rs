//! Decodes a spoken simulation, in which both sides may speak at once, in ticks of a fraction of a
//! second.
//!
//! ```json
//! {"tick_id": 26, "timestamp": "…", "agent_chunk": {"content": "Hel", "contains_speech": true},
//!  "user_chunk": {"contains_speech": false}, "agent_tool_calls": [], "agent_tool_results": []}
//! ```
//!
//! The speech of one side without a silent tick is one step, together with the calls made
//! meanwhile; a new step begins after their results. The step's `extra` contains its first tick and
//! the number of ticks. A recording may omit the speech itself and only record that there was some.

use crate::model::{Call, CallResult, Role, Step};
use crate::read::build::arguments;
use crate::read::build::parts::Content;
use crate::read::build::record::{self, List, Of, Record, keep, text};
use crate::read::build::talk::Talk;
use serde::de::MapAccess;
use serde_json::{Map, Value};
use std::borrow::Cow;

#[derive(Default)]
pub(super) struct Tick<'a> {
    id: Option<Value>,
    at: Option<Cow<'a, str>>,
    sides: [Side<'a>; 2],
    other: Map<String, Value>,
}

#[derive(Default)]
struct Side<'a> {
    chunk: Chunk<'a>,
    calls: Vec<Call<'a>>,
    results: Vec<CallResult<'a>>,
}

const AGENT: usize = 0;
const USER: usize = 1;

impl<'a> Record<'a> for Tick<'a> {
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        let side = usize::from(name.starts_with("user"));
        match name {
            "tick_id" => self.id = map.next_value()?,
            "timestamp" => self.at = text(map)?,
            "agent_chunk" | "user_chunk" => {
                if let Some(Of(chunk)) = map.next_value::<Option<Of<Chunk<'a>>>>()? {
                    self.sides[side].chunk = chunk;
                }
            }
            "agent_tool_calls" | "user_tool_calls" => {
                let calls = map.next_value::<List<Asked<'a>>>()?.0;
                self.sides[side].calls = calls.into_iter().map(|asked| asked.0).collect();
            }
            "agent_tool_results" | "user_tool_results" => {
                let results = map.next_value::<List<Given<'a>>>()?.0;
                self.sides[side].results = results.into_iter().map(|given| given.0).collect();
            }
            _ => record::keep_other(&mut self.other, name, map)?,
        }
        Ok(())
    }
}

#[derive(Default)]
struct Chunk<'a> {
    text: Cow<'a, str>,
    speech: bool,
}

impl<'a> Record<'a> for Chunk<'a> {
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        match name {
            "content" => self.text = map.next_value::<Content<'a>>()?.split().0,
            "contains_speech" => {
                self.speech = map.next_value::<Option<bool>>()?.unwrap_or_default();
            }
            // The audio properties are recorded for each tick and have no meaning for a step.
            _ => {
                map.next_value::<serde::de::IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct Asked<'a>(Call<'a>);

impl<'a> Record<'a> for Asked<'a> {
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        match name {
            "id" => self.0.id = record::name(map)?.filter(|id| !id.is_empty()),
            "name" => self.0.name = text(map)?.unwrap_or_default(),
            "arguments" => self.0.arguments = arguments::of_raw(record::raw(map)?),
            _ => keep(&mut self.0.extra, name, map)?,
        }
        Ok(())
    }
}

#[derive(Default)]
struct Given<'a>(CallResult<'a>);

impl<'a> Record<'a> for Given<'a> {
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
        match name {
            "id" => self.0.call_id = record::name(map)?.filter(|id| !id.is_empty()),
            "content" => self.0.content = text(map)?.unwrap_or_default(),
            "error" => self.0.is_error = map.next_value::<Option<bool>>()?.unwrap_or_default(),
            "role" => {
                map.next_value::<serde::de::IgnoredAny>()?;
            }
            _ => keep(&mut self.0.extra, name, map)?,
        }
        Ok(())
    }
}

/// A side that is speaking, with the index of its step.
struct Speaking {
    at: usize,
    ticks: u64,
}

/// Adds the steps of both sides, in the order in which they began.
pub(super) fn join<'a>(ticks: Vec<Tick<'a>>, talk: &mut Talk<'a>) {
    let mut steps: Vec<Step<'a>> = Vec::new();
    let mut results: Vec<Vec<CallResult<'a>>> = Vec::new();
    let mut open: [Option<Speaking>; 2] = [None, None];
    let mut other: u64 = 0;
    for tick in ticks {
        other += u64::from(!tick.other.is_empty());
        for (side, role) in tick.sides.into_iter().zip([AGENT, USER]) {
            let Side { chunk, mut calls, results: given } = side;
            let speaks = chunk.speech || !chunk.text.is_empty() || !calls.is_empty();
            if speaks {
                let speaking = open[role].get_or_insert_with(|| {
                    let mut step = Step::new(if role == AGENT { Role::Agent } else { Role::User });
                    step.at.clone_from(&tick.at);
                    if let Some(id) = &tick.id {
                        record::keep_value(&mut step.extra, "tick_id", id.clone());
                    }
                    steps.push(step);
                    results.push(Vec::new());
                    Speaking { at: steps.len() - 1, ticks: 0 }
                });
                speaking.ticks += 1;
                let step = &mut steps[speaking.at];
                if step.text.is_empty() {
                    step.text = chunk.text;
                } else {
                    step.text.to_mut().push_str(&chunk.text);
                }
                for call in calls.iter_mut().filter(|call| call.arguments.is_empty()) {
                    call.arguments = "{}".into();
                }
                step.calls.append(&mut calls);
                record::keep_value(&mut step.extra, "ticks", speaking.ticks.into());
            }
            if !given.is_empty() {
                // A result may come after its side stopped speaking; it then belongs to that side's
                // last step.
                let at = if let Some(speaking) = &open[role] {
                    Some(speaking.at)
                } else {
                    let wanted = if role == AGENT { Role::Agent } else { Role::User };
                    steps.iter().rposition(|step| step.role == wanted)
                };
                // A result before any step of its side: keep it in a separate step.
                if let Some(at) = at {
                    results[at].extend(given);
                } else {
                    steps.push(Step::new(Role::User));
                    results.push(given);
                }
            }
            let answered =
                open[role].as_ref().is_some_and(|speaking| !results[speaking.at].is_empty());
            // After a result, the side's next words are a new model response.
            if !speaks || answered {
                open[role] = None;
            }
        }
    }
    if other > 0 {
        talk.note("ticks with unknown members", || other.to_string());
    }
    // Added at the end, because both sides' steps grow at the same time.
    for (step, given) in steps.into_iter().zip(results) {
        let role = step.role;
        talk.step(step);
        for result in given {
            talk.result(result, Some(role));
        }
    }
}
