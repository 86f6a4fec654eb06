//! Aggregates all sessions: totals, and the worst sessions.
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
use crate::pricing::Spent;
use serde::{Deserialize, Serialize};
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// Maximum number of models, and of agents by model, that are listed separately.
const MODELS: usize = 500;
/// The name for all others. A model of that name is counted there as well.
const OTHERS: &str = "(others)";

/// A group of sessions and its usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Number of sessions.
    pub sessions: u64,
    /// The usage of the sessions.
    pub spent: Spent,
}

impl Group {
    fn add(&mut self, spent: Spent) {
        self.sessions += 1;
        self.spent += spent;
    }
}

/// The sessions of one agent with one model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentGroup {
    /// Number of sessions.
    pub sessions: u64,
    /// Number of these with a recorded outcome.
    pub judged: u64,
    /// Number of sessions that failed: by their recorded outcome or, without one, because they ended
    /// without an answer.
    pub failed: u64,
    /// Number of sessions with a loop.
    pub looped: u64,
    /// The usage of the sessions.
    pub spent: Spent,
}

impl AddAssign for AgentGroup {
    /// Saturates, because counts may come from a file.
    fn add_assign(&mut self, other: AgentGroup) {
        for (own, other) in [
            (&mut self.sessions, other.sessions),
            (&mut self.judged, other.judged),
            (&mut self.failed, other.failed),
            (&mut self.looped, other.looped),
        ] {
            *own = own.saturating_add(other);
        }
        self.spent += other.spent;
    }
}

/// Adds a value to that of a name. Names come from files, so that only the first ones by alphabet are
/// listed, which depends neither on the order of the sessions nor on their division into parts.
fn add_named<T: AddAssign + Default>(all: &mut BTreeMap<String, T>, name: &str, value: T) {
    if let Some(own) = all.get_mut(name) {
        *own += value;
        return;
    }
    let listed = all.len() - usize::from(all.contains_key(OTHERS));
    if name == OTHERS || listed < MODELS {
        all.insert(name.to_owned(), value);
        return;
    }
    let mut rest = value;
    let last = all.keys().rev().find(|name| *name != OTHERS).cloned();
    if let Some(last) = last.filter(|last| name < last.as_str())
        && let Some(moved) = all.remove(&last)
    {
        all.insert(name.to_owned(), std::mem::replace(&mut rest, moved));
    }
    *all.entry(OTHERS.to_owned()).or_default() += rest;
}

/// The results of an audit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Audit {
    /// Number of sessions, including subagents that have a file of their own.
    pub sessions: u64,
    /// Number of these that are subagents.
    pub subagents: u64,
    /// Number of requests of persons.
    pub requests: u64,
    /// Number of tool calls.
    pub calls: u64,
    /// Number of results that are failures.
    pub failures: u64,
    /// Number of sessions whose recording does not contain tool results: their failures, loops and
    /// contradicted claims are unknown.
    pub lacking_results: u64,
    /// The usage of all sessions.
    pub spent: Spent,
    /// Number of sessions with a recorded cost.
    pub cost_recorded: u64,
    /// The earliest time in any session, in Unix milliseconds.
    pub first_ms: Option<i64>,
    /// The latest time in any session, in Unix milliseconds.
    pub last_ms: Option<i64>,
    /// Number of sessions by format.
    pub formats: BTreeMap<String, u64>,
    /// Sessions by ending.
    pub ended: BTreeMap<How, Group>,
    /// Sessions with a contradicted claim.
    pub signs: Group,
    /// Number of sessions with a loop.
    pub looped: u64,
    /// Number of loops.
    pub loops: u64,
    /// The usage after loops.
    pub behind_loops: Spent,
    /// Number of loops by rule; several rules may fire in one loop.
    pub rules: BTreeMap<String, u64>,
    /// Number of requests that the default limits would have ended.
    pub stopped: u64,
    /// Number of these that had an answer.
    pub stopped_answered: u64,
    /// The same requests by the ending that they would have had.
    pub stopped_as: BTreeMap<String, u64>,
    /// The usage after those stops.
    pub behind_stops: Spent,
    /// The part of it in requests that had no answer.
    pub behind_stops_unanswered: Spent,
    /// The usage of each model.
    pub models: BTreeMap<String, Spent>,
    /// Number of sessions with a recorded outcome.
    pub judged: u64,
    /// Number of these that succeeded.
    pub succeeded: u64,
    /// The sessions of each agent by model: `codex, gpt-5`. A session with several models counts for
    /// the one with the most turns.
    pub agents: BTreeMap<String, AgentGroup>,
    /// The worst sessions: those with the most usage in question, in dollars, then in tokens.
    pub worst: Vec<Session>,
    /// The sessions that [failed](Session::has_failed), by how they ended.
    #[serde(default)]
    pub ended_wrongly: BTreeMap<How, u64>,
    /// Number of sessions with a problem: they ended wrongly, looped, or made a contradicted claim.
    pub wrong: u64,
    /// The usage in question.
    pub in_question: Spent,
    /// Maximum number of worst sessions that are stored.
    #[serde(skip)]
    top: usize,
}

impl Audit {
    /// Creates an empty audit that stores up to `top` of the worst sessions.
    pub fn new(top: usize) -> Audit {
        Audit { top, ..Audit::default() }
    }

    /// Sets the number of worst sessions that are stored; counts that were read do not contain it.
    pub(super) fn keep_at_most(&mut self, top: usize) {
        self.top = top;
        self.worst.truncate(top);
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
        *self.formats.entry(session.format.to_string()).or_default() += 1;
        self.ended.entry(session.ended.how).or_default().add(session.spent);
        if session.sign.is_some() {
            self.signs.add(session.spent);
        }
        self.looped += u64::from(!session.loops.is_empty());
        for one in &session.loops {
            self.loops += 1;
            self.behind_loops += one.behind;
            for rule in &one.rules {
                // The turn is removed, so that the same rule is counted once for all turns.
                let name = rule.split(" at ").next().unwrap_or(rule);
                *self.rules.entry(name.to_owned()).or_default() += 1;
            }
        }
        for stop in &session.stops {
            self.stopped += 1;
            self.stopped_answered += u64::from(stop.answered);
            *self.stopped_as.entry(stop.termination.as_str().to_owned()).or_default() += 1;
            self.behind_stops += stop.behind;
            if !stop.answered {
                self.behind_stops_unanswered += stop.behind;
            }
        }
        for (model, spent) in &session.models {
            add_named(&mut self.models, model, *spent);
        }
        self.judged += u64::from(session.success.is_some());
        self.succeeded += u64::from(session.success == Some(true));
        self.group(&session);
        if session.has_failed() {
            *self.ended_wrongly.entry(session.ended.how).or_default() += 1;
        }
        if session.is_wrong() {
            self.wrong += 1;
            self.in_question += session.in_question();
            self.keep(session);
        }
    }

    /// Adds the results for other sessions. Neither the order nor the division of the sessions changes
    /// the sum. All counts saturate, because they may come from a file.
    pub fn merge(&mut self, other: Audit) {
        for (own, other) in [
            (&mut self.sessions, other.sessions),
            (&mut self.subagents, other.subagents),
            (&mut self.requests, other.requests),
            (&mut self.calls, other.calls),
            (&mut self.failures, other.failures),
            (&mut self.lacking_results, other.lacking_results),
            (&mut self.cost_recorded, other.cost_recorded),
            (&mut self.looped, other.looped),
            (&mut self.loops, other.loops),
            (&mut self.stopped, other.stopped),
            (&mut self.stopped_answered, other.stopped_answered),
            (&mut self.wrong, other.wrong),
            (&mut self.judged, other.judged),
            (&mut self.succeeded, other.succeeded),
            (&mut self.signs.sessions, other.signs.sessions),
        ] {
            *own = own.saturating_add(other);
        }
        for (own, other) in [
            (&mut self.spent, other.spent),
            (&mut self.signs.spent, other.signs.spent),
            (&mut self.behind_loops, other.behind_loops),
            (&mut self.behind_stops, other.behind_stops),
            (&mut self.behind_stops_unanswered, other.behind_stops_unanswered),
            (&mut self.in_question, other.in_question),
        ] {
            *own += other;
        }
        self.first_ms = [self.first_ms, other.first_ms].into_iter().flatten().min();
        self.last_ms = [self.last_ms, other.last_ms].into_iter().flatten().max();
        for (how, many) in other.ended_wrongly {
            let own = self.ended_wrongly.entry(how).or_default();
            *own = own.saturating_add(many);
        }
        for (own, other) in [
            (&mut self.formats, other.formats),
            (&mut self.rules, other.rules),
            (&mut self.stopped_as, other.stopped_as),
        ] {
            for (name, count) in other {
                let own = own.entry(name).or_default();
                *own = own.saturating_add(count);
            }
        }
        for (how, group) in other.ended {
            let own = self.ended.entry(how).or_default();
            own.sessions = own.sessions.saturating_add(group.sessions);
            own.spent += group.spent;
        }
        for (model, spent) in other.models {
            add_named(&mut self.models, &model, spent);
        }
        for (name, group) in other.agents {
            add_named(&mut self.agents, &name, group);
        }
        for session in other.worst {
            self.keep(session);
        }
    }

    fn group(&mut self, session: &Session) {
        let agent = session.agent.as_deref().unwrap_or(&session.format);
        let model = session.main_model().unwrap_or("(not said)");
        let group = AgentGroup {
            sessions: 1,
            judged: u64::from(session.success.is_some()),
            failed: u64::from(session.has_failed()),
            looped: u64::from(!session.loops.is_empty()),
            spent: session.spent,
        };
        add_named(&mut self.agents, &format!("{agent}, {model}"), group);
    }

    /// Stores a session if it is among the worst. Equal sessions are in the order of their files, lines
    /// and ids.
    fn keep(&mut self, session: Session) {
        let place = self.worst.partition_point(|other| order(other, &session).is_le());
        if place < self.top {
            self.worst.insert(place, session);
            self.worst.truncate(self.top);
        }
    }
}

/// Compares stored sessions: the worst first, then by file, line and id.
fn order(one: &Session, other: &Session) -> Ordering {
    rank(one)
        .cmp(&rank(other))
        .then_with(|| one.file.cmp(&other.file))
        .then_with(|| one.at.cmp(&other.at))
        .then_with(|| one.id.cmp(&other.id))
        // Recordings may repeat an id. The result must not depend on the order all the same.
        .then_with(|| format!("{one:?}").cmp(&format!("{other:?}")))
}

/// The sort key that puts the worst session first.
fn rank(session: &Session) -> Reverse<(u64, u64, u64)> {
    let spent = session.in_question();
    Reverse((spent.usd.0, spent.tokens(), spent.turns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Call, Role, Step, Trajectory};
    use crate::pricing::Prices;

    #[test]
    fn worst_sessions_are_sorted_and_bounded() {
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
