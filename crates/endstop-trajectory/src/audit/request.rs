//! Splits a session into requests, each from a prompt to its answer.
//!
//! ```text
//! for request in requests(&run) { let steps = &run.steps[request.steps.clone()]; … }
//! ```
//!
//! Only sessions of a person with a coding agent are split. Messages sent while the agent works
//! belong to the current request; the next request begins after an answer, or after the person
//! stopped the agent.

use super::guard_stop::is_stop;
use crate::model::{Role, Step, Trajectory};
use crate::read::{is_aside, is_of_a_person};
use endstop_core::is_blank;
use std::ops::Range;

/// Prefix of the message that Claude Code writes when a person interrupts it.
pub(super) const INTERRUPTED: &str = "[Request interrupted by user";

/// A request of a session.
pub(super) struct Request {
    /// The steps of the request.
    pub(super) steps: Range<usize>,
    /// Number of turns of the session before the request.
    pub(super) before: usize,
    /// Number of turns of the request.
    pub(super) turns: usize,
}

impl Request {
    /// Returns the indices of the request's turns among those of the session.
    pub(super) fn places(&self) -> Range<usize> {
        self.before..self.before + self.turns
    }

    /// Returns `true` if the request ended with an answer: text of the model without a call, unless
    /// it is the sentence with which guard stops a run.
    pub(super) fn is_answered(&self, run: &Trajectory<'_>) -> bool {
        let last = run.steps[self.steps.clone()].iter().rev().find(|step| step.is_turn());
        last.is_some_and(|step| step.calls.is_empty() && !is_blank(&step.text) && !is_stop(step))
    }
}

/// Returns the requests of a run, in order. A prompt without a turn belongs to the next request.
pub(super) fn requests(run: &Trajectory<'_>) -> Vec<Request> {
    let cuts = is_of_a_person(run.origin.format);
    let mut requests: Vec<Request> = Vec::new();
    let mut begun = 0;
    let (mut before, mut turns) = (0, 0);
    let mut done = false;
    for (at, step) in run.steps.iter().enumerate() {
        if step.is_turn() {
            turns += 1;
            // A turn without calls is an answer; one with calls means that the agent is still
            // working.
            done = step.calls.is_empty();
        } else if step.role == Role::User && !step.copied {
            if cuts && done && turns > 0 && asks(step) {
                requests.push(Request { steps: begun..at, before, turns });
                before += turns;
                (begun, turns, done) = (at, 0, false);
            }
            done |= step.text.starts_with(INTERRUPTED);
        }
    }
    if turns > 0 {
        requests.push(Request { steps: begun..run.steps.len(), before, turns });
    }
    requests
}

fn asks(step: &Step<'_>) -> bool {
    !is_blank(&step.text) && !step.text.starts_with(INTERRUPTED) && !is_aside(step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Call;

    fn said(role: Role, text: &str) -> Step<'_> {
        Step { text: text.into(), ..Step::new(role) }
    }

    fn called() -> Step<'static> {
        Step { calls: vec![Call::default()], ..Step::new(Role::Agent) }
    }

    #[test]
    fn session_splits_after_answers_and_stops() {
        let mut run = Trajectory::new("s");
        run.steps = vec![
            said(Role::User, "First."),
            called(),
            said(Role::User, "And be quick."),
            said(Role::Agent, "Done."),
            said(Role::User, "<local-command-stdout>x"),
            said(Role::User, "Second."),
            called(),
            said(Role::User, "[Request interrupted by user]"),
            said(Role::User, "Third."),
            called(),
        ];
        let cut = |run: &Trajectory<'_>| -> Vec<(usize, usize, usize)> {
            requests(run).iter().map(|r| (r.steps.start, r.before, r.turns)).collect()
        };
        assert_eq!(cut(&run), [(0, 0, 4)], "no session of a person");
        run.origin.format = "claude-code";
        assert_eq!(cut(&run), [(0, 0, 2), (5, 2, 1), (8, 3, 1)]);
        assert!(requests(&run)[0].is_answered(&run));
        assert!(!requests(&run)[2].is_answered(&run));
        run.steps.push(said(Role::Agent, "Run stopped by endstop: error_max_turns. run a"));
        assert!(!requests(&run)[2].is_answered(&run), "guard answered in place of the model");
        run.steps.clear();
        assert!(requests(&run).is_empty());
    }
}
