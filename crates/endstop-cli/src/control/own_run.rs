//! The run of `endstop run`, under control.

use super::protocol::{Controlled, LiveRun, Reply};
use endstop::agent::{Agent, RunHandle};
use endstop::event::{AgentEvent, AgentEventKind};
use endstop::{LimitChanges, SteerError, Steering};
use serde_json::{Map, Value};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The run of this process, as its events show it.
pub(crate) struct OwnRun {
    agent: Agent,
    steering: Steering,
    run_id: String,
    began: Instant,
    facts: Mutex<Facts>,
}

#[derive(Clone, Default)]
struct Facts {
    phase: &'static str,
    turns: u32,
    cost_usd: Option<f64>,
    calls_in_flight: usize,
}

impl OwnRun {
    pub(crate) fn new(agent: Agent, run: &RunHandle) -> OwnRun {
        let facts = Mutex::new(Facts { phase: "waiting", ..Facts::default() });
        let (steering, run_id) = (run.steering(), run.run_id().to_owned());
        OwnRun { agent, steering, run_id, began: Instant::now(), facts }
    }

    /// Follows the run by its events.
    pub(crate) fn saw(&self, event: &AgentEvent) {
        // Runs inside this one have events too, but only their cost counts here.
        if event.origin.run_id() != self.run_id {
            return;
        }
        let mut facts = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        match event.kind {
            AgentEventKind::TurnStarted { .. } => {
                (facts.phase, facts.calls_in_flight) = ("calling", 1);
            }
            AgentEventKind::Usage { cost, .. } => {
                facts.cost_usd = cost.map(endstop::NanoUsd::to_usd);
            }
            AgentEventKind::TurnFinished { .. } => {
                // Counted here, because the outcome with the number comes only at the end.
                facts.turns = facts.turns.saturating_add(1);
                (facts.phase, facts.calls_in_flight) = ("waiting", 0);
            }
            AgentEventKind::ToolStarted { .. } => facts.phase = "tools",
            _ => {}
        }
    }
}

impl Controlled for OwnRun {
    fn runs(&self) -> Vec<LiveRun> {
        let facts = self.facts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        vec![LiveRun {
            run_id: self.run_id.clone(),
            kind: "run".to_owned(),
            profile: None,
            phase: facts.phase.to_owned(),
            turns: facts.turns,
            cost_usd: facts.cost_usd,
            elapsed_ms: u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
            calls_in_flight: facts.calls_in_flight,
            pid: std::process::id(),
        }]
    }

    fn cancel(&self, run: &str) -> Reply {
        if run != self.run_id {
            return Reply::UnknownRun;
        }
        self.agent.cancel();
        Reply::Done
    }

    fn limits(&self, run: &str, limits: &Map<String, Value>) -> Reply {
        if run != self.run_id {
            return Reply::UnknownRun;
        }
        let changes = match LimitChanges::read(limits) {
            Ok(changes) => changes,
            Err(error) => return Reply::Invalid(error.to_string()),
        };
        match self.steering.set_limits(changes) {
            Ok(()) => Reply::Done,
            Err(SteerError::Ended) => Reply::UnknownRun,
            Err(error) => Reply::Invalid(error.to_string()),
        }
    }
}
