//! A run as the API shows it.

use crate::backend::{Origin, RunInfo};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

/// The longest task in a list, in characters.
const LONGEST_TASK: usize = 500;

/// A run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct RunView {
    /// Id of the run, which its events, its journal and `endstop explain` have too.
    run_id: String,
    /// Name of its agent.
    agent: String,
    /// `queued`, `running`, `parked` (it waits for a decision, without a place) or `ended`.
    state: &'static str,
    /// The task; shortened in lists.
    task: String,
    /// The run and the turn that it branched from.
    #[serde(skip_serializing_if = "Option::is_none")]
    branched_from: Option<OriginView>,
    /// Limits that the request lowered.
    #[serde(skip_serializing_if = "Map::is_empty")]
    limits: Map<String, Value>,
    /// Unix time in milliseconds at which it was accepted.
    created_ms: u64,
    /// Unix time in milliseconds at which it started.
    started_ms: Option<u64>,
    /// Unix time in milliseconds at which it ended.
    ended_ms: Option<u64>,
    /// Place in the queue, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_position: Option<usize>,
    /// Number of calls that wait for approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    approvals: Option<u32>,
    /// `true` if a client has asked for its stop.
    stopping: bool,
    /// The termination.
    termination: Option<String>,
    /// Category of the ending: `success`, `retryable`, `capacity` or `fatal`.
    category: Option<String>,
    /// The evidence for the ending.
    evidence: Option<String>,
    /// Number of turns so far.
    turns: Option<u32>,
    /// Cost so far in US dollars; `null` if no price is known.
    cost_usd: Option<f64>,
}

/// The place in another run that a run branched from.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct OriginView {
    /// Id of the other run.
    run_id: String,
    /// The last turn of it that the run began with.
    turn: u32,
}

impl From<Origin> for OriginView {
    fn from(Origin { run, turn, .. }: Origin) -> OriginView {
        OriginView { run_id: run, turn }
    }
}

/// A run with its outcome.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RunDetail {
    #[serde(flatten)]
    pub(super) run: RunView,
    /// The outcome, as `endstop run --json` prints it; `null` until the run has ended.
    pub(super) outcome: Option<Value>,
    /// What to do about the ending; `null` until the run has ended, and after a success.
    pub(super) next: Option<String>,
}

/// A page of the list of runs.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RunList {
    /// The runs, the newest first.
    pub(super) runs: Vec<RunView>,
    /// The value of `before` for the next page; `null` on the last one.
    pub(super) next: Option<String>,
}

impl RunView {
    /// Returns a run as the API shows it.
    pub(super) fn of(run: RunInfo) -> RunView {
        RunView {
            queue_position: run.queue_position,
            approvals: run.approvals,
            stopping: run.stopping,
            turns: run.turns,
            cost_usd: run.cost_usd,
            run_id: run.id,
            agent: run.request.agent,
            state: run.state.as_str(),
            task: run.request.task,
            branched_from: run.request.origin.map(OriginView::from),
            limits: run.request.limits,
            created_ms: run.created_ms,
            started_ms: run.started_ms,
            ended_ms: run.ended_ms,
            termination: run.termination,
            category: run.category,
            evidence: run.evidence,
        }
    }

    /// Shortens the task for a list.
    pub(super) fn shortened(mut self) -> RunView {
        if let Some((at, _)) = self.task.char_indices().nth(LONGEST_TASK) {
            self.task.truncate(at);
            self.task.push('…');
        }
        self
    }
}
