//! Links subagents to the calls that started them.
//!
//! ```text
//! agents::adopt(&mut run, children);        // each is a child of the run that called it
//! ```

use super::record::Side;
use crate::model::Trajectory;
use crate::read::build::fields::{Fields, peek};
use endstop_core::bounded_json;
use serde_json::Value;
use std::collections::HashMap;

/// The run of a subagent, and the call that started it, if the recording names it.
pub(super) struct Child {
    side: Side,
    pub(super) run: Trajectory<'static>,
}

impl Child {
    pub(super) fn new(side: Side, mut run: Trajectory<'static>) -> Child {
        run.run_id = match &side {
            Side::Agent(id) | Side::Call(id) => id.clone().into(),
            Side::Unnamed => "".into(),
        };
        run.tags.push("subagent".into());
        Child { side, run }
    }
}

/// Maximum nesting depth of subagents, because the tree is traversed recursively; deeper ones
/// become children of the session.
const DEEPEST: usize = 16;

/// Moves each subagent's run to the run whose call started it.
pub(super) fn adopt(run: &mut Trajectory<'static>, mut children: Vec<Child>) {
    let mut calls = Started::default();
    calls.add(None, run);
    for (i, child) in children.iter().enumerate() {
        calls.add(Some(i), &child.run);
    }
    let mut parents: Vec<Option<usize>> = Vec::with_capacity(children.len());
    let mut depths: Vec<usize> = Vec::with_capacity(children.len());
    for (i, child) in children.iter_mut().enumerate() {
        // Only an earlier agent can be the parent, so that the links cannot form a cycle.
        let by = calls.of(child).filter(|(parent, _)| parent.is_none_or(|parent| parent < i));
        if let Some((_, call)) = by {
            child.run.extra.insert("started_by_call".to_owned(), Value::String(call.clone()));
        }
        let parent = by.and_then(|(parent, _)| *parent).filter(|parent| depths[*parent] < DEEPEST);
        depths.push(parent.map_or(0, |parent| depths[parent] + 1));
        parents.push(parent);
    }
    // From the last to the first, so that a child is complete before it is moved into its parent.
    while let (Some(child), Some(parent)) = (children.pop(), parents.pop()) {
        match parent {
            Some(parent) => children[parent].run.children.push(child.run),
            None => run.children.push(child.run),
        }
    }
    // The children were popped in reverse order.
    run.children.reverse();
    for child in &mut run.children {
        in_order(child);
    }
}

fn in_order(run: &mut Trajectory<'static>) {
    run.children.reverse();
    run.children.iter_mut().for_each(in_order);
}

/// The owner of a call that started a subagent, and the call id. The owner is the session (`None`)
/// or another subagent.
type By = (Option<usize>, String);

/// The calls that may have started a subagent, indexed by the evidence for it.
#[derive(Default)]
struct Started {
    calls: HashMap<String, By>,
    agents: HashMap<String, By>,
    prompts: HashMap<String, By>,
}

impl Started {
    fn add(&mut self, whose: Option<usize>, run: &Trajectory<'static>) {
        for call in run.steps.iter().flat_map(|step| &step.calls) {
            let Some(id) = call.id.as_deref() else { continue };
            let by = (whose, id.to_owned());
            if matches!(&*call.name, "Task" | "Agent") {
                let arguments: Fields = bounded_json::from_str(&call.arguments).unwrap_or_default();
                if let Some(prompt) = peek(&arguments, "prompt") {
                    self.prompts.entry(prompt.to_owned()).or_insert_with(|| by.clone());
                }
            }
            self.calls.entry(id.to_owned()).or_insert(by);
        }
        for result in run.steps.iter().flat_map(|step| &step.results) {
            let (Some(id), Some(extra)) = (result.call_id.as_deref(), &result.extra) else {
                continue;
            };
            let details =
                extra.get("toolUseResult").and_then(|details| details["agentId"].as_str());
            if let Some(agent) = details.or_else(|| peek(extra, "agentId")) {
                self.agents.entry(agent.to_owned()).or_insert_with(|| (whose, id.to_owned()));
            }
        }
    }

    fn of(&self, child: &Child) -> Option<&By> {
        match &child.side {
            Side::Call(call) => self.calls.get(call),
            Side::Agent(id) => self.agents.get(id).or_else(|| {
                // Older versions do not record the agent's id. Its first message equals the prompt
                // of the call.
                self.prompts.get(&*child.run.steps.first()?.text)
            }),
            Side::Unnamed => None,
        }
    }
}
