//! Builds a conversation from messages: attaches the results of calls to the step that made them.
//!
//! ```text
//! let mut talk = Talk::default();
//! talk.step(Step { calls, ..Step::new(Role::Agent) });
//! talk.result(CallResult { call_id: Some("c1".into()), ..CallResult::default() }, None);
//! let (steps, notes) = talk.end();
//! ```
//!
//! In some recordings call ids repeat in later turns: a result belongs to the latest call with its
//! id. A result without an id belongs to the first call that has no result yet.

use crate::model::{Call, CallResult, Role, Step};
use std::collections::HashMap;

/// Maximum number of notes of one kind that are listed individually; further ones are counted.
const TOLD: usize = 10;

#[derive(Default)]
pub(crate) struct Talk<'a> {
    steps: Vec<Step<'a>>,
    /// Maps a call id to the step of its latest call, and to the number of calls with that id in the
    /// step that have no result.
    open: HashMap<String, (usize, usize)>,
    notes: Vec<(&'static str, Vec<String>, u64)>,
}

impl<'a> Talk<'a> {
    /// Appends a step.
    pub(crate) fn step(&mut self, step: Step<'a>) {
        self.open_calls(self.steps.len(), &step.calls);
        self.steps.push(step);
    }

    fn open_calls(&mut self, at: usize, calls: &[Call<'a>]) {
        for id in calls.iter().filter_map(|call| call.id.as_deref()) {
            match self.open.get_mut(id) {
                // Some models give all calls of a turn the same id.
                Some((known, open)) if *known == at => *open += 1,
                _ => drop(self.open.insert(id.to_owned(), (at, 1))),
            }
        }
    }

    /// Returns the last step.
    pub(crate) fn last(&mut self) -> Option<&mut Step<'a>> {
        self.steps.last_mut()
    }

    /// Adds calls to the last step.
    pub(crate) fn more_calls(&mut self, calls: Vec<Call<'a>>) {
        let Some(at) = self.steps.len().checked_sub(1) else { return };
        self.open_calls(at, &calls);
        self.steps[at].calls.extend(calls);
    }

    /// Adds a result. `by` is the role that requested the call, if the recording names it.
    pub(crate) fn result(&mut self, mut result: CallResult<'a>, by: Option<Role>) {
        if let Some(id) = result.call_id.as_deref() {
            if let Some((at, open)) = self.open.get_mut(id) {
                let at = *at;
                if let Some(left) = open.checked_sub(1) {
                    *open = left;
                } else {
                    self.note("second result of a call", || format!("{id}, in step {}", at + 1));
                }
                self.steps[at].results.push(result);
                return;
            }
            let id = id.to_owned();
            self.note("result without a call", || id);
        } else if let Some((at, id)) = self.waiting(by) {
            if let Some(id) = id {
                if let Some((_, open)) = self.open.get_mut(&id) {
                    *open = open.saturating_sub(1);
                }
                result.call_id = Some(id.into());
            }
            self.steps[at].results.push(result);
            return;
        } else {
            self.note("result without a call", || "no id".to_owned());
        }
        // An orphan goes to the last step of the role that usually makes calls, so that no result
        // is lost.
        let role = by.unwrap_or(Role::Agent);
        match self.steps.iter_mut().rev().find(|step| step.role == role) {
            Some(step) => step.results.push(result),
            None => {
                self.steps.push(Step { results: vec![result], ..Step::new(Role::User) });
            }
        }
    }

    /// Returns the first call without a result in the latest step that has calls.
    fn waiting(&self, by: Option<Role>) -> Option<(usize, Option<String>)> {
        let fits = |step: &Step<'_>| !step.calls.is_empty() && by.is_none_or(|by| step.role == by);
        let at = self.steps.iter().rposition(fits)?;
        let step = &self.steps[at];
        // Results without an id answer the calls without an id in order.
        let mut unnamed = step.results.iter().filter(|result| result.call_id.is_none()).count();
        let call = step.calls.iter().find(|call| match call.id.as_deref() {
            Some(id) => self.open.get(id).is_some_and(|(_, open)| *open > 0),
            None if unnamed > 0 => {
                unnamed -= 1;
                false
            }
            None => true,
        })?;
        Some((at, call.id.as_deref().map(str::to_owned)))
    }

    /// Records an irregularity.
    pub(crate) fn note(&mut self, kind: &'static str, what: impl FnOnce() -> String) {
        let i = self.notes.iter().position(|(known, ..)| *known == kind).unwrap_or_else(|| {
            self.notes.push((kind, Vec::new(), 0));
            self.notes.len() - 1
        });
        let (_, told, count) = &mut self.notes[i];
        *count += 1;
        if told.len() < TOLD {
            told.push(what());
        }
    }

    /// Returns the steps and the notes, one line each.
    pub(crate) fn end(self) -> (Vec<Step<'a>>, Vec<String>) {
        let mut notes = Vec::new();
        for (kind, told, count) in self.notes {
            let rest = count - told.len() as u64;
            notes.extend(told.into_iter().map(|what| format!("{kind}: {what}")));
            if rest > 0 {
                notes.push(format!("{kind}: and {rest} more"));
            }
        }
        (self.steps, notes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Call;

    fn asks<'a>(role: Role, ids: &[&'a str]) -> Step<'a> {
        let call = |id: &&'a str| Call { id: Some((*id).into()), ..Call::default() };
        Step { calls: ids.iter().map(call).collect(), ..Step::new(role) }
    }

    fn answer(id: Option<&'static str>, content: &'static str) -> CallResult<'static> {
        CallResult { call_id: id.map(Into::into), content: content.into(), ..CallResult::default() }
    }

    #[test]
    fn result_joins_latest_call_with_id() {
        let mut talk = Talk::default();
        talk.step(asks(Role::Agent, &["a", "b"]));
        talk.result(answer(Some("b"), "1"), None);
        talk.step(asks(Role::Agent, &["a"]));
        talk.result(answer(Some("a"), "2"), None);
        talk.result(answer(Some("a"), "3"), None);
        talk.result(answer(Some("x"), "4"), None);
        let (steps, notes) = talk.end();
        assert_eq!(steps[0].results.len(), 1);
        let later: Vec<_> = steps[1].results.iter().map(|r| &*r.content).collect();
        assert_eq!(later, ["2", "3", "4"]);
        assert_eq!(notes, ["second result of a call: a, in step 2", "result without a call: x"]);
    }

    #[test]
    fn results_without_ids_follow_call_order() {
        let mut talk = Talk::default();
        talk.result(answer(None, "0"), None);
        talk.step(asks(Role::Agent, &["a", "b"]));
        talk.result(answer(None, "1"), None);
        talk.step(asks(Role::User, &["u"]));
        talk.result(answer(None, "2"), Some(Role::Agent));
        talk.result(answer(None, "3"), None);
        talk.result(answer(None, "4"), None);
        let (steps, notes) = talk.end();
        assert_eq!(steps[0].results[0].content, "0", "a step of its own");
        let ids: Vec<_> = steps[1].results.iter().map(|r| r.call_id.as_deref()).collect();
        assert_eq!(ids, [Some("a"), Some("b"), None]);
        assert_eq!(steps[2].results[0].call_id.as_deref(), Some("u"));
        assert_eq!(notes.len(), 2);
    }
}
