//! A session, cut into requests: from what somebody asks to the answer.
//!
//! ```text
//! for request in requests(&run) { let steps = &run.steps[request.steps.clone()]; … }
//! ```
//!
//! Only sessions of a person with a coding agent are cut. What is said while the agent works is part of
//! the request; the next one begins behind an answer, or behind a stop by the person.

use crate::model::{Role, Step, Trajectory};
use crate::read::is_aside;
use std::ops::Range;

/// Formats whose runs are sessions of a person.
const SESSIONS: &[&str] = &["claude-code", "codex"];
/// What Claude Code writes where a person stops it.
pub(super) const INTERRUPTED: &str = "[Request interrupted by user";

/// A request of a session.
pub(super) struct Request {
    /// Its steps.
    pub(super) steps: Range<usize>,
    /// How many turns of the session came before it.
    pub(super) before: usize,
    /// How many it has.
    pub(super) turns: usize,
}

impl Request {
    /// Its turns, by their place among those of the session.
    pub(super) fn places(&self) -> Range<usize> {
        self.before..self.before + self.turns
    }

    /// Whether it ended with an answer: words of the model, and no call.
    pub(super) fn is_answered(&self, run: &Trajectory<'_>) -> bool {
        let last = run.steps[self.steps.clone()].iter().rev().find(|step| step.is_turn());
        last.is_some_and(|step| step.calls.is_empty() && !step.text.trim().is_empty())
    }
}

/// The requests of a run, in order; those without a turn are part of the next.
pub(super) fn requests(run: &Trajectory<'_>) -> Vec<Request> {
    let cuts = SESSIONS.contains(&run.origin.format);
    let mut requests: Vec<Request> = Vec::new();
    let mut begun = 0;
    let (mut before, mut turns) = (0, 0);
    let mut done = false;
    for (at, step) in run.steps.iter().enumerate() {
        if step.is_turn() {
            turns += 1;
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
    !step.text.trim().is_empty() && !step.text.starts_with(INTERRUPTED) && !is_aside(step)
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
    fn a_session_is_cut_behind_answers_and_stops_alone() {
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
        run.steps.clear();
        assert!(requests(&run).is_empty());
    }
}
