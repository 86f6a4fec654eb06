//! A run as the API shows it.

use crate::runs::{Origin, RunRow, RunState, Runs};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

/// The longest task in a list, in characters.
const LONGEST_TASK: usize = 500;

/// A run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct RunView {
    /// Id of the run, which its events, its journal and `endstop explain` have too.
    id: String,
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
    run: String,
    /// The last turn of it that the run began with.
    turn: u32,
}

impl From<Origin> for OriginView {
    fn from(Origin { run, turn, .. }: Origin) -> OriginView {
        OriginView { run, turn }
    }
}

/// A run with its outcome.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct RunDetail {
    #[serde(flatten)]
    pub(super) run: RunView,
    /// The outcome, as `endstop run --json` prints it; `null` until the run has ended.
    pub(super) outcome: Option<Value>,
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
    /// Returns a stored run with what is known of it now.
    pub(super) fn of(runs: &Runs, row: RunRow) -> RunView {
        // The store learns of progress at the end only; until then the live run has it. An ended run
        // stays live until its tools have ended, but its row is complete.
        let live = runs.live(&row.id).filter(|_| row.state != RunState::Ended);
        let progress = live.as_ref().map(|live| live.progress());
        let stopping = row.state != RunState::Ended
            && (row.stop.is_some() || live.is_some_and(|live| live.stop_asked().is_some()));
        // The place is looked up only for a waiting run, because that takes a lock.
        let queued = row.state == RunState::Queued;
        RunView {
            queue_position: if queued { runs.queue_position(&row.id) } else { None },
            approvals: progress.map(|progress| progress.approvals).filter(|count| *count > 0),
            stopping,
            turns: row.turns.or(progress.map(|progress| progress.turns)),
            cost_usd: row.cost_usd.or(progress.and_then(|progress| progress.cost_usd)),
            id: row.id,
            agent: row.request.agent,
            state: row.state.as_str(),
            task: row.request.task,
            branched_from: row.request.origin.map(OriginView::from),
            limits: row.request.limits,
            created_ms: row.created_ms,
            started_ms: row.started_ms,
            ended_ms: row.ended_ms,
            termination: row.termination,
            category: row.category,
            evidence: row.evidence,
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
