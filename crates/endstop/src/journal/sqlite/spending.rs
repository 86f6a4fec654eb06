//! The spending of stored runs, and the books of a period.
//!
//! ```no_run
//! use endstop::journal::SqliteJournal;
//! let journal = SqliteJournal::read("journal.db")?;
//! for run in journal.spending(0)? {
//!     println!("{} {:?} {:?}", run.id, run.cost, run.tokens);
//! }
//! # Ok::<(), endstop::journal::JournalError>(())
//! ```

use super::file::failure::problem;
use super::file::hardening::Room;
use super::journal::SqliteJournal;
use super::period::{HOUR_MS, Period};
use crate::budget::Amount;
use crate::journal::{JournalError, JournalErrorKind};
use endstop_core::{NanoUsd, Outcome, bounded_json};
use rusqlite::{Connection, Row, params};
use serde::Serialize;

/// The spending of a stored run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSpending {
    /// Id of the run.
    pub id: String,
    /// Start time in Unix milliseconds.
    pub started_ms: u64,
    /// Project of the run, if it has one.
    pub project: Option<String>,
    /// Name of the provider.
    pub provider: Option<String>,
    /// Name of the model as it was requested.
    pub model: Option<String>,
    /// Name of the termination; `None`: the run has not ended, and its spending is not known yet.
    pub termination: Option<String>,
    /// Known cost; `None`: no price is known, or the run has not ended.
    pub cost: Option<NanoUsd>,
    /// `true` if the cost of some calls is not known. `cost` is then a part of it.
    pub cost_unknown: bool,
    /// Tokens of all attempts; `None` if the run has not ended, or its outcome cannot be read.
    pub tokens: Option<u64>,
}

/// The books of the runs of a project in a period, as far as ceilings of periods apply to them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SpendBooks {
    /// The project; `None` for runs without one.
    pub project: Option<String>,
    /// Money that was spent.
    pub spent: NanoUsd,
    /// Tokens that were used.
    pub spent_tokens: u64,
    /// Money that calls in flight have reserved.
    pub reserved: NanoUsd,
    /// Tokens that calls in flight have reserved.
    pub reserved_tokens: u64,
    /// Money that processes had reserved when they died. It counts as spent, because their calls may
    /// have been billed.
    pub lost: NanoUsd,
    /// The same in tokens.
    pub lost_tokens: u64,
}

/// The amount that a run counts with in the books.
pub(super) struct Spent {
    pub(super) run: String,
    pub(super) started_ms: u64,
    pub(super) project: Option<String>,
    pub(super) amount: Amount,
}

impl Spent {
    /// Returns the ended runs that started in this period and are not in the books.
    pub(super) fn of_unbooked(
        connection: &Connection,
        from_ms: u64,
        until_ms: u64,
    ) -> rusqlite::Result<Vec<Spent>> {
        let sql = "SELECT id, project, cost_usd, outcome,
                   (SELECT outcome FROM runs AS earlier WHERE earlier.id = runs.continues), started_ms FROM runs
                   WHERE started_ms >= ?1 AND started_ms < ?2 AND termination IS NOT NULL AND uncounted IS NULL
                   AND id NOT IN (SELECT run FROM booked)";
        let mut select = connection.prepare_cached(sql)?;
        let rows = select.query_map(params![whole(from_ms), whole(until_ms)], |row| {
            let (cost, outcome): (Option<f64>, Option<String>) = (row.get(2)?, row.get(3)?);
            let outcome = read(outcome.as_deref());
            if cost.is_some_and(|cost| cost < 0.0) {
                return Err(rusqlite::Error::IntegralValueOutOfRange(2, -1));
            }
            let known = cost.map(NanoUsd::from_usd).unwrap_or_default();
            let amount = outcome.as_ref().map_or(Amount::from(known), |outcome| Amount {
                usd: outcome.cost_upper.unwrap_or(outcome.cost),
                tokens: outcome.tokens_upper.unwrap_or(outcome.usage.total_tokens()),
            });
            let before = before(outcome.as_ref(), row.get::<_, Option<String>>(4)?.as_deref());
            let amount = Amount {
                usd: amount.usd.saturating_sub(before.usd),
                tokens: amount.tokens.saturating_sub(before.tokens),
            };
            let started_ms = u64::try_from(row.get::<_, i64>(5)?).unwrap_or(0);
            Ok(Spent { run: row.get(0)?, started_ms, project: row.get(1)?, amount })
        })?;
        rows.collect()
    }
}

/// Fails if the books of these hours have a negative amount, which would be a credit: only another program or damage
/// can have written it.
pub(super) fn no_credit(
    connection: &Connection,
    (from, until): (u64, u64),
) -> rusqlite::Result<()> {
    let sql = "SELECT coalesce(min(min(usd, tokens, lost_usd, lost_tokens, reserved_usd, reserved_tokens)), 0)
               FROM spending WHERE hour >= ?1 AND hour < ?2";
    let hours = [whole(from), whole(until)];
    let least = connection.prepare_cached(sql)?.query_row(hours, |row| row.get(0))?;
    if least < 0 { Err(rusqlite::Error::IntegralValueOutOfRange(0, least)) } else { Ok(()) }
}

impl SqliteJournal {
    /// Returns the spending of the runs that started at this Unix time in milliseconds or later, in
    /// the order in which they were stored. A run that continues another one counts only what came after that. Demos
    /// and replays spend nothing.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn spending(&self, since_ms: u64) -> Result<Vec<RunSpending>, JournalError> {
        let connection = self.connection();
        let wrong = |error| self.failure(&error);
        let sql = "SELECT id, started_ms, project, provider, model, termination, cost_usd, outcome,
                   (SELECT outcome FROM runs AS earlier WHERE earlier.id = runs.continues)
                   FROM runs WHERE started_ms >= ?1 AND uncounted IS NULL ORDER BY rowid";
        let mut select = connection.prepare(sql).map_err(wrong)?;
        let rows = select.query_map([whole(since_ms)], spending_of).map_err(wrong)?;
        let mut room = Room::of(self.path());
        let mut runs = Vec::new();
        for row in rows {
            let (run, length) = row.map_err(wrong)?;
            // As for the list of runs: a damaged file may list runs without end.
            if !room.take(length) {
                let what = "it is damaged: it lists more runs than fit into its size";
                return Err(problem(self.path(), JournalErrorKind::Damaged, what));
            }
            runs.push(run);
        }
        Ok(runs)
    }

    /// Returns the books of the period that contains `at_ms`, by project. `now_ms` is the Unix time in milliseconds, at
    /// which a reservation whose lease has ended counts as lost.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn books(
        &self,
        period: Period,
        at_ms: u64,
        now_ms: u64,
    ) -> Result<Vec<SpendBooks>, JournalError> {
        let (from, until) = period.around(at_ms);
        let hours = (from / HOUR_MS, until / HOUR_MS);
        let connection = self.connection();
        let wrong = |error| self.failure(&error);
        no_credit(&connection, hours).map_err(wrong)?;
        let mut select = connection
            .prepare_cached(
                "SELECT project, sum(usd), sum(tokens),
                 sum(iif(lease_ms < ?2, 0, reserved_usd)), sum(iif(lease_ms < ?2, 0, reserved_tokens)),
                 sum(lost_usd + iif(lease_ms < ?2, reserved_usd, 0)),
                 sum(lost_tokens + iif(lease_ms < ?2, reserved_tokens, 0))
                 FROM spending WHERE hour >= ?1 AND hour < ?3 GROUP BY project ORDER BY project",
            )
            .map_err(wrong)?;
        let rows =
            select.query_map(params![whole(hours.0), whole(now_ms), whole(hours.1)], |row| {
                let amount =
                    |at: usize| row.get::<_, i64>(at).map(|n| u64::try_from(n).unwrap_or(0));
                Ok(SpendBooks {
                    project: Some(row.get(0)?).filter(|name: &String| !name.is_empty()),
                    spent: NanoUsd(amount(1)?),
                    spent_tokens: amount(2)?,
                    reserved: NanoUsd(amount(3)?),
                    reserved_tokens: amount(4)?,
                    lost: NanoUsd(amount(5)?),
                    lost_tokens: amount(6)?,
                })
            });
        rows.and_then(Iterator::collect).map_err(wrong)
    }
}

/// Reads the spending of a row, and the length of its text.
fn spending_of(row: &Row<'_>) -> rusqlite::Result<(RunSpending, usize)> {
    let (cost, text): (Option<f64>, Option<String>) = (row.get(6)?, row.get(7)?);
    let outcome = read(text.as_deref());
    let before = before(outcome.as_ref(), row.get::<_, Option<String>>(8)?.as_deref());
    let run = RunSpending {
        id: row.get(0)?,
        started_ms: u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0),
        project: row.get(2)?,
        provider: row.get(3)?,
        model: row.get(4)?,
        termination: row.get(5)?,
        cost: cost.map(|cost| NanoUsd::from_usd(cost).saturating_sub(before.usd)),
        // An outcome that cannot be read makes no claim.
        cost_unknown: outcome.as_ref().is_none_or(|outcome| outcome.cost_unknown),
        tokens: outcome.map(|outcome| outcome.usage.total_tokens().saturating_sub(before.tokens)),
    };
    Ok((run, text.map_or(0, |text| text.len())))
}

/// Returns the part of an outcome that was spent in the earlier run that it continues. A branch does not contain what was
/// spent before it.
fn before(outcome: Option<&Outcome>, earlier: Option<&str>) -> Amount {
    let continued = outcome.filter(|outcome| outcome.branched_from.is_none());
    continued.and_then(|_| read(earlier)).map_or(Amount::default(), |earlier| Amount {
        usd: earlier.cost,
        tokens: earlier.usage.total_tokens(),
    })
}

/// Reads an outcome; `None` if there is none that can be read.
fn read(text: Option<&str>) -> Option<Outcome> {
    bounded_json::from_str(text?).ok()
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
