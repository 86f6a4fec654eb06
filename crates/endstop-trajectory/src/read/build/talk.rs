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
    /// The latest step of each role.
    latest: HashMap<Role, usize>,
    /// The latest step with calls of each role.
    asking: HashMap<Role, Asking>,
    notes: Vec<(&'static str, Vec<String>, u64)>,
}

/// A step with calls, and the place up to which they have results. The place only moves on, because a
/// search from the first call for each result would take quadratic time.
struct Asking {
    step: usize,
    /// The first call that may have no result.
    next: usize,
    /// Number of results without an id that answer a call from there on.
    unnamed: usize,
}

impl<'a> Talk<'a> {
    /// Appends a step.
    pub(crate) fn step(&mut self, step: Step<'a>) {
        let at = self.steps.len();
        self.open_calls(at, &step.calls);
        self.latest.insert(step.role, at);
        self.steps.push(step);
        self.ask(at);
    }

    /// Notes a step whose calls wait for results.
    fn ask(&mut self, at: usize) {
        let step = &self.steps[at];
        if step.calls.is_empty() || self.asking.get(&step.role).is_some_and(|own| own.step == at) {
            return;
        }
        let unnamed = step.results.iter().filter(|result| result.call_id.is_none()).count();
        self.asking.insert(step.role, Asking { step: at, next: 0, unnamed });
    }

    /// Adds a result to a step.
    fn attach(&mut self, at: usize, result: CallResult<'a>) {
        let step = &mut self.steps[at];
        if result.call_id.is_none()
            && let Some(asking) = self.asking.get_mut(&step.role).filter(|own| own.step == at)
        {
            asking.unnamed += 1;
        }
        step.results.push(result);
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
        self.ask(at);
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
                self.attach(at, result);
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
            self.attach(at, result);
            return;
        } else {
            self.note("result without a call", || "no id".to_owned());
        }
        // An orphan goes to the last step of the role that usually makes calls, so that no result
        // is lost.
        let role = by.unwrap_or(Role::Agent);
        match self.latest.get(&role) {
            Some(at) => self.attach(*at, result),
            None => self.step(Step { results: vec![result], ..Step::new(Role::User) }),
        }
    }

    /// Returns the first call without a result in the latest step that has calls.
    fn waiting(&mut self, by: Option<Role>) -> Option<(usize, Option<String>)> {
        let asking = match by {
            Some(by) => self.asking.get_mut(&by)?,
            None => self.asking.values_mut().max_by_key(|asking| asking.step)?,
        };
        while let Some(call) = self.steps[asking.step].calls.get(asking.next) {
            match call.id.as_deref() {
                Some(id) if self.open.get(id).is_some_and(|(_, open)| *open > 0) => {
                    return Some((asking.step, Some(id.to_owned())));
                }
                Some(_) => {}
                // Results without an id answer the calls without an id in order.
                None if asking.unnamed > 0 => asking.unnamed -= 1,
                None => return Some((asking.step, None)),
            }
            asking.next += 1;
        }
        None
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

    #[test]
    fn odd_results_take_linear_time() {
        let started = std::time::Instant::now();
        let many = 60_000;
        let mut talk = Talk::default();
        talk.step(asks(Role::User, &["u"]));
        talk.result(answer(Some("u"), ""), None);
        for _ in 0..many {
            // Results without a call, in a recording without a turn of the model.
            talk.result(answer(Some("x"), "1"), None);
            talk.result(answer(None, "2"), None);
        }
        let (steps, notes) = talk.end();
        assert_eq!((steps.len(), notes.len()), (1 + 2 * many, 11));
        assert_eq!(notes[10], format!("result without a call: and {} more", 2 * many - 10));
        assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
    }

    #[test]
    fn unnamed_results_take_linear_time() {
        let started = std::time::Instant::now();
        let many = 60_000;
        for named in [true, false] {
            let call =
                |nth: usize| Call { id: named.then(|| nth.to_string().into()), ..Call::default() };
            let mut talk = Talk::default();
            talk.step(Step { calls: (0..many).map(call).collect(), ..Step::new(Role::Agent) });
            for _ in 0..many {
                talk.result(answer(None, "1"), None);
            }
            talk.more_calls(vec![call(many)]);
            talk.result(answer(None, "2"), None);
            talk.result(answer(None, "3"), None);
            let (steps, notes) = talk.end();
            assert_eq!(notes, ["result without a call: no id"]);
            let (results, last) = (&steps[0].results, named.then(|| many.to_string()));
            assert_eq!(results.len(), many + 2);
            assert_eq!(
                (&*results[many].content, results[many].call_id.as_deref()),
                ("2", last.as_deref())
            );
            assert_eq!((&*results[many + 1].content, &results[many + 1].call_id), ("3", &None));
        }
        assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
    }

    /// The same rules as [`Talk`], with a search through all steps for each result.
    #[derive(Default)]
    struct Slow {
        steps: Vec<Step<'static>>,
        open: HashMap<String, (usize, usize)>,
    }

    impl Slow {
        fn ask(&mut self, at: usize, calls: &[Call<'static>]) {
            for id in calls.iter().filter_map(|call| call.id.as_deref()) {
                match self.open.get_mut(id) {
                    Some((known, open)) if *known == at => *open += 1,
                    _ => drop(self.open.insert(id.to_owned(), (at, 1))),
                }
            }
        }

        fn result(&mut self, mut result: CallResult<'static>, by: Option<Role>) {
            if let Some((at, open)) = result.call_id.as_deref().and_then(|id| self.open.get_mut(id))
            {
                *open = open.saturating_sub(1);
                return self.steps[*at].results.push(result);
            }
            let fits = |step: &&mut Step<'_>| {
                !step.calls.is_empty() && by.is_none_or(|by| step.role == by)
            };
            if let Some(step) = self.steps.iter_mut().rev().find(fits)
                && result.call_id.is_none()
            {
                let unnamed = step.results.iter().filter(|result| result.call_id.is_none()).count();
                let free = step.calls.iter().filter(|call| call.id.is_none()).nth(unnamed);
                let waits = |call: &&Call<'_>| match call.id.as_deref() {
                    Some(id) => self.open[id].1 > 0,
                    None => free.is_some_and(|free| std::ptr::eq(free, *call)),
                };
                if let Some(call) = step.calls.iter().find(waits) {
                    if let Some(id) = call.id.as_deref()
                        && let Some((_, open)) = self.open.get_mut(id)
                    {
                        *open -= 1;
                        result.call_id = call.id.clone();
                    }
                    return step.results.push(result);
                }
            }
            let role = by.unwrap_or(Role::Agent);
            match self.steps.iter_mut().rev().find(|step| step.role == role) {
                Some(step) => step.results.push(result),
                None => self.steps.push(Step { results: vec![result], ..Step::new(Role::User) }),
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn results_are_placed_as_searched(
            events in proptest::collection::vec(
                (0_u8..4, 0_usize..3, proptest::collection::vec(0_usize..4, 0..4)), 0..40,
            ),
        ) {
            // Two roles have different ids, because a reused id is that of its latest call only.
            let id = |role: Role, nth: usize| (nth > 0).then(|| format!("{role:?}{nth}").into());
            let roles = [Role::System, Role::User, Role::Agent];
            let (mut talk, mut slow) = (Talk::default(), Slow::default());
            for (nth, (event, role, ids)) in events.iter().enumerate() {
                let role = match slow.steps.last() {
                    Some(last) if *event == 1 => last.role,
                    _ => roles[*role],
                };
                let call = |nth: &usize| Call { id: id(role, *nth), ..Call::default() };
                let calls: Vec<Call<'static>> = ids.iter().map(call).collect();
                match event {
                    0 => {
                        slow.ask(slow.steps.len(), &calls);
                        let step = Step { calls, ..Step::new(role) };
                        slow.steps.push(step.clone());
                        talk.step(step);
                    }
                    1 if !slow.steps.is_empty() => {
                        let at = slow.steps.len() - 1;
                        // New ids: an answered call stays answered if its id occurs again.
                        let renamed = |call: Call<'static>| Call {
                            id: call.id.map(|id| format!("{id} of event {nth}").into()),
                            ..call
                        };
                        let calls: Vec<Call<'static>> = calls.into_iter().map(renamed).collect();
                        slow.ask(at, &calls);
                        slow.steps[at].calls.extend(calls.clone());
                        talk.more_calls(calls);
                    }
                    _ => {
                        let by = (*event == 2).then_some(role);
                        for call_id in ids.iter().map(|nth| id(role, *nth)) {
                            let content = nth.to_string().into();
                            let result = CallResult { call_id, content, ..CallResult::default() };
                            slow.result(result.clone(), by);
                            talk.result(result, by);
                        }
                    }
                }
            }
            proptest::prop_assert_eq!(talk.end().0, slow.steps);
        }
    }
}
