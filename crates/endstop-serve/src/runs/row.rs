//! The rows of the store: a run as stored, a new one, and the summary of an ending.

use crate::backend::{RunRequest, RunState, Stop};
use endstop::{Category, NanoUsd, Outcome, Termination};
use rusqlite::Row;

/// The columns that [`row`] reads, in its order.
pub(super) const COLUMNS: &str = "number, id, agent, request, redacted, state, stop, created_ms, started_ms, \
     ended_ms, termination, category, turns, cost_usd, evidence, digest, client";

/// A run as stored.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RunRow {
    pub(crate) number: i64,
    pub(crate) id: String,
    pub(crate) request: RunRequest,
    pub(crate) redacted: bool,
    pub(crate) state: RunState,
    pub(crate) stop: Option<Stop>,
    pub(crate) created_ms: u64,
    pub(crate) started_ms: Option<u64>,
    pub(crate) ended_ms: Option<u64>,
    pub(crate) termination: Option<String>,
    pub(crate) category: Option<String>,
    pub(crate) turns: Option<u32>,
    pub(crate) cost_usd: Option<f64>,
    pub(crate) evidence: Option<String>,
    pub(crate) digest: Vec<u8>,
    /// Name of the token; empty on a server without tokens.
    pub(crate) client: String,
}

/// A run to be stored.
pub(crate) struct NewRun<'a> {
    pub(crate) id: &'a str,
    pub(crate) client: &'a str,
    pub(crate) key: Option<&'a str>,
    pub(crate) digest: [u8; 32],
    pub(crate) request: &'a RunRequest,
    pub(crate) redacted: bool,
    pub(crate) now_ms: u64,
    /// `true` if the run has a place already.
    pub(crate) is_started: bool,
}

impl NewRun<'_> {
    pub(super) fn state(&self) -> RunState {
        if self.is_started { RunState::Running } else { RunState::Queued }
    }

    pub(super) fn started_ms(&self) -> Option<u64> {
        self.is_started.then_some(self.now_ms)
    }

    /// Returns the row that the run has under this number.
    pub(super) fn row(&self, number: i64) -> RunRow {
        RunRow {
            number,
            id: self.id.to_owned(),
            request: self.request.clone(),
            redacted: self.redacted,
            state: self.state(),
            stop: None,
            created_ms: self.now_ms,
            started_ms: self.started_ms(),
            ended_ms: None,
            termination: None,
            category: None,
            turns: None,
            cost_usd: None,
            evidence: None,
            digest: self.digest.to_vec(),
            client: self.client.to_owned(),
        }
    }
}

/// The summary of an ending.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ending {
    pub(crate) termination: String,
    pub(crate) category: String,
    pub(crate) turns: u32,
    /// `None` if no part of the cost is known.
    pub(crate) cost_usd: Option<f64>,
    pub(crate) evidence: String,
}

impl Ending {
    pub(crate) fn of(outcome: &Outcome) -> Ending {
        Ending {
            termination: outcome.termination.to_string(),
            category: outcome.category().to_string(),
            turns: outcome.turns,
            cost_usd: outcome.known_cost().map(NanoUsd::to_usd),
            evidence: outcome.decided_by.evidence.clone(),
        }
    }

    /// Returns the ending of a run that could not be driven to one of its own.
    pub(crate) fn interrupted(why: &str) -> Ending {
        Ending {
            termination: Termination::ErrorDuringExecution.to_string(),
            category: Category::Retryable.to_string(),
            turns: 0,
            cost_usd: None,
            evidence: why.to_owned(),
        }
    }
}

/// Reads a row with these [`COLUMNS`].
pub(super) fn row(row: &Row<'_>) -> rusqlite::Result<RunRow> {
    let time = |ms: i64| u64::try_from(ms).unwrap_or(0);
    let (agent, request): (String, String) = (row.get(2)?, row.get(3)?);
    // A damaged request must not hide the run; it has no task then.
    let request = serde_json::from_str(&request).unwrap_or_else(|_| RunRequest {
        agent,
        task: String::new(),
        limits: serde_json::Map::new(),
        origin: None,
        trace_parent: None,
    });
    let stop = match row.get::<_, Option<String>>(6)?.as_deref() {
        Some("terminate") => Some(Stop::Terminate),
        Some(_) => Some(Stop::Cancel),
        None => None,
    };
    Ok(RunRow {
        number: row.get(0)?,
        id: row.get(1)?,
        request,
        redacted: row.get(4)?,
        // An unknown state counts as ended, because a run that has ended must not be driven again.
        state: RunState::parse(&row.get::<_, String>(5)?).unwrap_or(RunState::Ended),
        stop,
        created_ms: time(row.get(7)?),
        started_ms: row.get::<_, Option<i64>>(8)?.map(time),
        ended_ms: row.get::<_, Option<i64>>(9)?.map(time),
        termination: row.get(10)?,
        category: row.get(11)?,
        turns: row.get(12)?,
        cost_usd: row.get(13)?,
        evidence: row.get(14)?,
        digest: row.get(15)?,
        client: row.get(16)?,
    })
}
