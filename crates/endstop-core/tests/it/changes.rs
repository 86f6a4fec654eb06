//! The laws of changed calls and changed results.
//!
//! ```text
//! law.heard(&effects)?;        // each started call is the one that the hooks and the person left
//! law.answered(&event);
//! only_reviewed(hooks, &outcome)?;
//! ```

use endstop_core::*;
use std::collections::BTreeMap;

/// A result that no hook lets through.
pub const SECRET: &str = "sk-secret";

/// A call that starts is the one that was last left by the hook or the person who was asked, and its
/// permission allows it.
#[derive(Default)]
pub struct ChangeLaw {
    permissions: BTreeMap<String, Permission>,
    /// The open questions about calls.
    asked: BTreeMap<EffectId, (ToolCall, bool)>,
    /// The last change of each call of the current turn, by its id.
    left: BTreeMap<String, ToolCall>,
    /// The calls of the current turn that a person has approved.
    approved: Vec<String>,
}

impl ChangeLaw {
    /// Returns the law after these events of a run.
    pub fn of(spec: impl Fn() -> RunSpec, events: &[Event]) -> ChangeLaw {
        let tools = spec().tools;
        let permissions = tools.iter().map(|tool| (tool.name.clone(), tool.permission)).collect();
        let mut law = ChangeLaw { permissions, ..ChangeLaw::default() };
        let mut replay = Replay::new(spec());
        for event in events {
            law.answered(&event.kind);
            // The events kept the law when they happened.
            let _ = law.heard(replay.feed(event.clone()));
        }
        law
    }

    pub fn answered(&mut self, event: &EventKind) {
        let EventKind::Answered { id, answer } = event else { return };
        let Some((call, approval)) = self.asked.remove(id) else { return };
        let answer = match answer {
            HookDecision::WithNote { answer, .. } => answer,
            answer => answer,
        };
        let left = match answer {
            HookDecision::ChangeCall(changed) => changed.clone(),
            HookDecision::Deny(_) | HookDecision::Halt(_) => return,
            _ => call,
        };
        if approval {
            self.approved.push(left.id.clone());
        }
        self.left.insert(left.id.clone(), left);
    }

    pub fn heard(&mut self, effects: &[Effect]) -> Result<(), String> {
        for effect in effects {
            match effect {
                Effect::CallModel { .. } => {
                    self.left.clear();
                    self.approved.clear();
                }
                Effect::Consult { id, point } => self.asks(*id, point)?,
                Effect::StartTools { calls } => {
                    calls.iter().try_for_each(|start| self.starts(start))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn asks(&mut self, id: EffectId, point: &ConsultPoint) -> Result<(), String> {
        let (call, approval) = match point {
            ConsultPoint::PreTool { call } => (call, false),
            ConsultPoint::Approval { call } => (call, true),
            _ => return Ok(()),
        };
        if approval && self.left.get(&call.id).is_some_and(|left| left != call) {
            return Err(format!("a person is asked about {call:?}, which a hook has changed"));
        }
        self.asked.insert(id, (call.clone(), approval));
        Ok(())
    }

    fn starts(&self, start: &ToolStart) -> Result<(), String> {
        let ToolStart { call, arguments, .. } = start;
        if self.left.get(&call.id).is_some_and(|left| *left != **call) {
            return Err(format!("{call:?} starts instead of {:?}", self.left.get(&call.id)));
        }
        if call.parsed_arguments().ok().as_ref() != Some(arguments) {
            return Err(format!("{call:?} starts with {arguments:?}"));
        }
        match self.permissions.get(&call.name) {
            Some(Permission::Allow) => Ok(()),
            Some(Permission::Ask) if self.approved.contains(&call.id) => Ok(()),
            permission => Err(format!("{call:?} starts with the permission {permission:?}")),
        }
    }
}

/// With a `post_tool` hook, no result that the hook has not passed is in the conversation, also if
/// the run was stopped.
pub fn only_reviewed(hooks: Hooks, outcome: &Outcome) -> Result<(), String> {
    let leaks = |result: &ToolResult| result.content.contains(SECRET);
    let mut results = outcome.messages.iter().flat_map(Message::tool_results);
    match results.find(|result| hooks.post_tool && leaks(result)) {
        Some(result) => Err(format!("the model reads a result that no hook passed: {result:?}")),
        None => Ok(()),
    }
}
