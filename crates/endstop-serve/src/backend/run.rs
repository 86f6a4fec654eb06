//! Runs and agents as a backend describes them.

use super::request::RunRequest;
use endstop::Limits;
use std::collections::BTreeMap;

/// An agent that clients can start.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentInfo {
    /// Name of the agent.
    pub name: String,
    /// Name of its model, for display.
    pub model: Option<String>,
    /// The limits, which a request may lower.
    pub limits: Limits,
}

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// The run waits until it can start.
    Queued,
    /// The run works.
    Running,
    /// The run waits for a decision, without a place.
    Parked,
    /// The run has ended.
    Ended,
}

impl RunState {
    const ALL: [RunState; 4] =
        [RunState::Queued, RunState::Running, RunState::Parked, RunState::Ended];

    /// Returns the name in JSON, for example `queued`.
    pub fn as_str(self) -> &'static str {
        match self {
            RunState::Queued => "queued",
            RunState::Running => "running",
            RunState::Parked => "parked",
            RunState::Ended => "ended",
        }
    }

    /// Reads a name.
    pub fn parse(text: &str) -> Option<RunState> {
        RunState::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

/// A stop that a client asks for. A terminate outranks a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    /// The run ends as `cancelled`, after the grace period of its tools.
    Cancel,
    /// The run ends as `terminated`, at once.
    Terminate,
}

impl Stop {
    /// Returns the name, for example `cancel`.
    pub fn as_str(self) -> &'static str {
        match self {
            Stop::Cancel => "cancel",
            Stop::Terminate => "terminate",
        }
    }
}

/// An accepted request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Started {
    /// The id of a new run.
    New(String),
    /// The id of the run that the same request has started before.
    Known(String),
}

impl Started {
    /// Returns the id of the run.
    pub fn id(&self) -> &str {
        let (Started::New(id) | Started::Known(id)) = self;
        id
    }
}

/// A run.
#[derive(Clone, Debug)]
pub struct RunInfo {
    /// Place in the order in which runs were accepted. Larger is newer.
    pub number: i64,
    /// Id of the run.
    pub id: String,
    /// The request, without known secrets.
    pub request: RunRequest,
    /// The state.
    pub state: RunState,
    /// Unix time in milliseconds at which it was accepted.
    pub created_ms: u64,
    /// Unix time in milliseconds at which it started.
    pub started_ms: Option<u64>,
    /// Unix time in milliseconds at which it ended.
    pub ended_ms: Option<u64>,
    /// Place in the queue, from 1; `None` if it does not wait, or if the place is not known.
    pub queue_position: Option<usize>,
    /// Number of calls that wait for approval; `None` if there are none.
    pub approvals: Option<u32>,
    /// `true` if a client has asked for its stop, and it has not ended.
    pub stopping: bool,
    /// The termination, once it has ended.
    pub termination: Option<String>,
    /// Category of the termination.
    pub category: Option<String>,
    /// The evidence for the termination.
    pub evidence: Option<String>,
    /// Number of turns so far.
    pub turns: Option<u32>,
    /// Cost so far in US dollars; `None` if no price is known.
    pub cost_usd: Option<f64>,
}

/// The runs of a list.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only runs in this state.
    pub state: Option<RunState>,
    /// Only runs whose ending has this category.
    pub category: Option<String>,
    /// Only runs of these agents; `None` means all.
    pub agents: Option<Vec<String>>,
    /// Only runs that were accepted before the one with this [number](RunInfo::number).
    pub before: Option<i64>,
    /// The largest number of runs.
    pub most: u32,
}

/// Counters and gauges of a backend.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// Runs that started or were resumed, by agent.
    pub started: BTreeMap<String, u64>,
    /// Runs that ended, by agent and termination.
    pub ended: BTreeMap<(String, String), u64>,
    /// Cost of ended runs in US dollars, by agent.
    pub cost_usd: BTreeMap<String, f64>,
    /// Number of runs that work.
    pub running: usize,
    /// Number of runs that wait until they can start.
    pub queued: usize,
    /// Number of runs that wait for a decision, without a place.
    pub parked: usize,
    /// `true` after a shutdown began.
    pub draining: bool,
}
