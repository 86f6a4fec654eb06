//! Builds a run step by step, and attaches each result to the step that requested it.
//!
//! ```text
//! let turn = run.push(Step { at, ..Step::new(Role::Agent) });
//! run.call(turn, call);
//! run.result(result);                       // finds its step by the call's id
//! let (steps, notes) = run.finish();
//! ```
//!
//! A result may come before its call. A result whose call never comes is attached to the turn
//! before it, or to a separate step that is not a turn, and is noted.

use crate::model::{Call, CallResult, Role, Step};
use std::collections::{BTreeMap, HashMap};

#[derive(Default)]
pub(crate) struct Conversation {
    pub(crate) steps: Vec<Step<'static>>,
    asked: HashMap<String, Asked>,
    /// Results whose call has not come yet, each with the number of steps at that time.
    early: Vec<(usize, CallResult<'static>)>,
    unanswered: u64,
    last_turn: Option<usize>,
    pub(crate) odd: Tally,
    /// Further irregularities, one line each.
    pub(crate) notes: Vec<String>,
}

struct Asked {
    step: usize,
    /// Number of calls of the step with this id.
    calls: u64,
    results: u64,
    /// `true` if the provider runs the call; its result need not be in the recording.
    elsewhere: bool,
}

impl Asked {
    /// Returns the number of calls whose result must still come.
    const fn open(&self) -> u64 {
        if self.elsewhere { 0 } else { self.calls.saturating_sub(self.results) }
    }
}

impl Conversation {
    pub(crate) fn push(&mut self, step: Step<'static>) -> usize {
        if step.is_turn() {
            self.last_turn = Some(self.steps.len());
        }
        self.steps.push(step);
        self.steps.len() - 1
    }

    pub(crate) fn has_call(&self, id: &str) -> bool {
        self.asked.contains_key(id)
    }

    /// Returns `true` if this call has a result.
    pub(crate) fn is_answered(&self, id: &str) -> bool {
        self.asked.get(id).is_some_and(|asked| asked.results > 0)
    }

    /// Returns `true` if this step requested this call.
    pub(crate) fn has_call_at(&self, step: usize, id: &str) -> bool {
        self.asked.get(id).is_some_and(|asked| asked.step == step)
    }

    /// Adds a call that this step requested.
    pub(crate) fn call(&mut self, step: usize, call: Call<'static>) {
        self.add_call(step, call, false);
    }

    /// Adds a call that the provider ran itself.
    pub(crate) fn call_elsewhere(&mut self, step: usize, call: Call<'static>) {
        self.add_call(step, call, true);
    }

    fn add_call(&mut self, step: usize, call: Call<'static>, elsewhere: bool) {
        let Some(at) = self.steps.get_mut(step) else { return };
        if let Some(id) = call.id.as_deref() {
            match self.asked.get_mut(id) {
                // Some models give all calls of a turn the same id.
                Some(asked) if asked.step == step => asked.calls += 1,
                // The new call replaces the old one, because a later result can only belong to the
                // later call.
                _ => {
                    let asked = Asked { step, calls: 1, results: 0, elsewhere };
                    if let Some(before) = self.asked.insert(id.to_owned(), asked) {
                        self.odd.add("reused call ids");
                        self.unanswered += before.open();
                    }
                }
            }
        } else if !elsewhere {
            self.odd.add("calls without an id");
        }
        at.calls.push(call);
    }

    /// Adds a result to the step that requested it.
    pub(crate) fn result(&mut self, result: CallResult<'static>) {
        match result.call_id.as_deref().and_then(|id| self.asked.get_mut(id)) {
            Some(asked) => {
                asked.results += 1;
                if asked.results == asked.calls + 1 {
                    self.odd.add("calls with more than one result");
                }
                // Both results are kept, because the recording does not show which of them the
                // model received.
                self.steps[asked.step].results.push(result);
            }
            None => self.early.push((self.steps.len(), result)),
        }
    }

    /// Returns the index of the last turn.
    pub(crate) const fn last_turn_index(&self) -> Option<usize> {
        self.last_turn
    }

    /// Returns the last turn.
    pub(crate) fn last_turn(&mut self) -> Option<&mut Step<'static>> {
        self.steps.get_mut(self.last_turn?)
    }

    /// Returns the steps, and the notes about their irregularities.
    pub(crate) fn finish(mut self) -> (Vec<Step<'static>>, Vec<String>) {
        self.attach_early();
        let open = self.unanswered + self.asked.values().map(Asked::open).sum::<u64>();
        if open > 0 {
            self.odd.add_many("calls without a result", open);
        }
        let mut notes = self.odd.lines();
        notes.extend(self.notes);
        (self.steps, notes)
    }

    /// Attaches the results that came before or without their call, in time linear in the number of
    /// steps.
    fn attach_early(&mut self) {
        let mut of_calls: HashMap<usize, Vec<CallResult<'static>>> = HashMap::new();
        let mut orphans: HashMap<usize, Vec<CallResult<'static>>> = HashMap::new();
        for (at, result) in std::mem::take(&mut self.early) {
            let asked = result.call_id.as_deref().and_then(|id| self.asked.get_mut(id));
            if let Some(asked) = asked {
                asked.results += 1;
                self.odd.add("results that come before their call");
                of_calls.entry(asked.step).or_default().push(result);
            } else {
                self.odd.add("results without a call");
                orphans.entry(at).or_default().push(result);
            }
        }
        for (step, results) in of_calls {
            // In front, because these results came before the ones that were attached in order.
            self.steps[step].results.splice(0..0, results);
        }
        if orphans.is_empty() {
            return;
        }
        // Rebuild the list once: inserting into it for each orphan would take quadratic time.
        let mut turn = None;
        let steps = std::mem::take(&mut self.steps);
        let count = steps.len();
        let mut steps = steps.into_iter();
        for at in 0..=count {
            let results = orphans.remove(&at).unwrap_or_default();
            match turn {
                _ if results.is_empty() => {}
                Some(turn) => {
                    let step: &mut Step<'static> = &mut self.steps[turn];
                    step.results.extend(results);
                }
                None => self.steps.push(Step { results, ..Step::new(Role::User) }),
            }
            if let Some(step) = steps.next() {
                if step.is_turn() {
                    turn = Some(self.steps.len());
                }
                self.steps.push(step);
            }
        }
    }
}

/// Counts of irregularities by name.
#[derive(Default)]
pub(crate) struct Tally(BTreeMap<String, u64>);

/// Maximum number of distinct names; all others share one counter. The limit is needed because
/// names come from the file.
const NAMES: usize = 64;

impl Tally {
    pub(crate) fn add(&mut self, what: &str) {
        self.add_many(what, 1);
    }

    pub(crate) fn add_many(&mut self, what: &str, times: u64) {
        let what: String = what.chars().take(80).collect();
        if let Some(count) = self.0.get_mut(&what) {
            *count += times;
        } else if self.0.len() < NAMES {
            self.0.insert(what, times);
        } else {
            *self.0.entry("others".to_owned()).or_default() += times;
        }
    }

    /// Returns one line per name: `name: count`.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.iter().map(|(what, count)| format!("{what}: {count}")).collect()
    }

    /// Returns all names in one line: `title: name count, name count`.
    pub(crate) fn line(&self, title: &str) -> Option<String> {
        let all: Vec<_> = self.0.iter().map(|(what, count)| format!("{what} {count}")).collect();
        (!all.is_empty()).then(|| format!("{title}: {}", all.join(", ")))
    }

    #[cfg(test)]
    fn count(&self) -> u64 {
        self.0.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str) -> Call<'static> {
        Call { id: Some(id.to_owned().into()), ..Call::default() }
    }

    fn result(id: &str) -> CallResult<'static> {
        CallResult { call_id: Some(id.to_owned().into()), ..CallResult::default() }
    }

    #[test]
    fn result_finds_call_in_either_order() {
        let mut run = Conversation::default();
        run.result(result("unasked"));
        run.result(result("also unasked"));
        run.result(result("late"));
        let first = run.push(Step::new(Role::Agent));
        run.call(first, call("a"));
        let second = run.push(Step::new(Role::Agent));
        run.call(second, call("b"));
        run.result(result("b"));
        run.result(result("a"));
        run.call(second, call("late"));
        let (steps, notes) = run.finish();
        let of = |step: &Step<'static>| {
            step.results.iter().filter_map(|r| r.call_id.clone()).collect::<Vec<_>>()
        };
        assert_eq!(
            steps.iter().map(of).collect::<Vec<_>>(),
            [vec!["unasked", "also unasked"], vec!["a"], vec!["late", "b"]]
        );
        assert_eq!(steps[0].role, Role::User);
        assert_eq!(notes, ["results that come before their call: 1", "results without a call: 2"]);
    }

    #[test]
    fn reused_call_id_keeps_both_calls() {
        let mut run = Conversation::default();
        let first = run.push(Step::new(Role::Agent));
        run.call(first, call("x"));
        let second = run.push(Step::new(Role::Agent));
        run.call(second, call("x"));
        run.result(result("x"));
        let (steps, notes) = run.finish();
        assert_eq!((steps[0].results.len(), steps[1].results.len()), (0, 1));
        assert_eq!(notes, ["calls without a result: 1", "reused call ids: 1"]);
    }

    #[test]
    fn distinct_names_are_bounded() {
        let mut tally = Tally::default();
        for i in 0..1000 {
            tally.add(&format!("kind {i}"));
        }
        assert_eq!((tally.lines().len(), tally.count()), (NAMES + 1, 1000));
    }
}
