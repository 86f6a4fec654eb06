//! All sessions together: totals, and the worst of them.
//!
//! ```
//! use endstop_trajectory::{Prices, Trajectory};
//! use endstop_trajectory::audit::{Audit, Session};
//! let mut audit = Audit::new(10);
//! audit.add(Session::of(&Trajectory::new("empty"), &Prices::new()));
//! assert_eq!((audit.sessions, audit.worst.len()), (1, 0));
//! ```

use super::ending::How;
use super::session::Session;
use crate::spent::Spent;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// How many models are told apart.
const MODELS: usize = 500;

/// Sessions of a kind, and what they used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Group {
    /// How many.
    pub sessions: u64,
    /// What they used.
    pub spent: Spent,
}

impl Group {
    fn add(&mut self, spent: Spent) {
        self.sessions += 1;
        self.spent += spent;
    }
}

/// What was found in all sessions.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Audit {
    /// Sessions, those of agents that others started counted with them where they have a file of their
    /// own.
    pub sessions: u64,
    /// Of them, those of agents that others started.
    pub subagents: u64,
    /// Requests of persons.
    pub requests: u64,
    /// Tool calls.
    pub calls: u64,
    /// Results that are failures.
    pub failures: u64,
    /// Sessions whose recording does not say what tools gave: their failures, their loops and whether their
    /// claims hold are unknown.
    pub lacking_results: u64,
    /// What they used.
    pub spent: Spent,
    /// Sessions whose recording says what they cost.
    pub cost_recorded: u64,
    /// The first time in them, in Unix milliseconds.
    pub first_ms: Option<i64>,
    /// The last time in them, in Unix milliseconds.
    pub last_ms: Option<i64>,
    /// Sessions by format.
    pub formats: BTreeMap<&'static str, u64>,
    /// How they ended.
    pub ended: BTreeMap<How, Group>,
    /// Those that give a sign of claiming more than their record shows.
    pub signs: Group,
    /// Sessions that went round.
    pub looped: u64,
    /// Loops in them.
    pub loops: u64,
    /// What came behind the loops.
    pub behind_loops: Spent,
    /// Loops by the rule that fired; several may in one.
    pub rules: BTreeMap<String, u64>,
    /// Requests that the default limits would have ended.
    pub stopped: u64,
    /// Of them, those that came to an answer.
    pub stopped_answered: u64,
    /// By how they would have ended.
    pub stopped_as: BTreeMap<&'static str, u64>,
    /// What came behind those stops.
    pub behind_stops: Spent,
    /// Of that, what came in requests that had no answer in the end.
    pub behind_stops_unanswered: Spent,
    /// What each model used.
    pub models: BTreeMap<String, Spent>,
    /// The worst: those of which most is in question, in dollars, then in tokens.
    pub worst: Vec<Session>,
    /// Sessions with which something is wrong.
    pub wrong: u64,
    /// What is in question of what they used.
    pub in_question: Spent,
    /// How many of the worst are kept.
    #[serde(skip)]
    top: usize,
}

impl Audit {
    /// Nothing yet; `top` is how many of the worst are kept.
    pub fn new(top: usize) -> Audit {
        Audit { top, ..Audit::default() }
    }

    /// Adds a session.
    pub fn add(&mut self, session: Session) {
        self.sessions += 1;
        self.subagents += u64::from(session.subagent);
        self.requests += session.requests;
        self.calls += session.calls;
        self.failures += session.failures;
        self.lacking_results += u64::from(session.lacks_results);
        self.spent += session.spent;
        self.cost_recorded += u64::from(session.cost_recorded);
        self.first_ms = [self.first_ms, session.first_ms].into_iter().flatten().min();
        self.last_ms = [self.last_ms, session.last_ms].into_iter().flatten().max();
        *self.formats.entry(session.format).or_default() += 1;
        self.ended.entry(session.ended.how).or_default().add(session.spent);
        if session.sign.is_some() {
            self.signs.add(session.spent);
        }
        self.looped += u64::from(!session.loops.is_empty());
        for one in &session.loops {
            self.loops += 1;
            self.behind_loops += one.behind;
            for rule in &one.rules {
                let name = rule.split(" at ").next().unwrap_or(rule);
                *self.rules.entry(name.to_owned()).or_default() += 1;
            }
        }
        for stop in &session.stops {
            self.stopped += 1;
            self.stopped_answered += u64::from(stop.answered);
            *self.stopped_as.entry(stop.termination.as_str()).or_default() += 1;
            self.behind_stops += stop.behind;
            if !stop.answered {
                self.behind_stops_unanswered += stop.behind;
            }
        }
        for (model, spent) in &session.models {
            let full = self.models.len() >= MODELS && !self.models.contains_key(model);
            let model = if full { "(others)" } else { model.as_str() };
            *self.models.entry(model.to_owned()).or_default() += *spent;
        }
        if session.is_wrong() {
            self.wrong += 1;
            self.in_question += session.in_question();
            self.keep(session);
        }
    }

    /// Keeps a session where it is among the worst; the first of equals stays first.
    fn keep(&mut self, session: Session) {
        let place = self.worst.partition_point(|other| rank(other) <= rank(&session));
        if place < self.top {
            self.worst.insert(place, session);
            self.worst.truncate(self.top);
        }
    }
}

/// The worst first.
fn rank(session: &Session) -> Reverse<(u64, u64, u64)> {
    let spent = session.in_question();
    Reverse((spent.usd.0, spent.tokens(), spent.turns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Call, Role, Step, Trajectory};
    use crate::prices::Prices;

    #[test]
    fn the_worst_are_kept_in_order_and_no_more_of_them() {
        let mut audit = Audit::new(3);
        for turns in [2usize, 9, 4, 7, 4, 1] {
            let step = Step {
                calls: vec![Call { name: format!("t{turns}").into(), ..Call::default() }],
                cost_usd: Some(0.5),
                ..Step::new(Role::Agent)
            };
            let mut run = Trajectory { steps: vec![step; turns], ..Trajectory::new("s") };
            run.run_id = format!("s{turns}").into();
            audit.add(Session::of(&run, &Prices::new()));
        }
        let fine = Step { text: "Paris.".into(), cost_usd: Some(9.0), ..Step::new(Role::Agent) };
        audit.add(Session::of(
            &Trajectory { steps: vec![fine], ..Trajectory::new("fine") },
            &Prices::new(),
        ));
        let ids: Vec<&str> = audit.worst.iter().map(|session| &*session.id).collect();
        assert_eq!(ids, ["s9", "s7", "s4"]);
        assert_eq!((audit.sessions, audit.wrong), (7, 6));
        assert_eq!(audit.ended[&How::Interrupted].sessions, 6);
        assert_eq!(audit.ended[&How::Answered].spent.usd.to_usd(), 9.0);
        assert_eq!(audit.spent.usd.to_usd(), 27.0 / 2.0 + 9.0);
        assert_eq!(audit.cost_recorded, 7);
    }
}
