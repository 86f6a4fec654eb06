//! Parked runs of the journal: lists their requests, and stores decisions, from any process.
//!
//! ```text
//! for parked in journal.pending()? { … }
//! journal.answer("4k2v9x0abc", &Answer::approve())?; // in one transaction: the first decision counts
//! ```

use super::parked_rows::{history, insert, is_parked};
use crate::clock::wall_ms;
use crate::journal::sqlite::driver;
use crate::journal::sqlite::file::failure::problem;
use crate::journal::sqlite::file::hardening::Room;
use crate::journal::sqlite::journal::SqliteJournal;
use crate::journal::sqlite::write::all_or_none;
use crate::journal::{DecideError, JournalError, JournalErrorKind, without_secrets};
use crate::park::{Answer, AnswerRefused, ParkHistory, ParkedRun, decided};
use endstop_core::{EventKind, ParkDecision};
use rusqlite::{Connection, OptionalExtension as _};

/// The row of a run that has not ended.
struct Unended {
    number: i64,
    id: String,
    task: String,
    driver: Option<String>,
}

impl SqliteJournal {
    /// Returns the runs that wait for a decision, or were decided and wait to be resumed; the newest
    /// first.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn pending(&self) -> Result<Vec<ParkedRun>, JournalError> {
        self.pending_at(wall_ms())
    }

    /// As [`pending`](Self::pending), at this time in Unix milliseconds.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn pending_at(&self, now_ms: u64) -> Result<Vec<ParkedRun>, JournalError> {
        let connection = self.connection();
        let wrong = |error| self.failure(&error);
        let mut select = connection
            .prepare_cached(
                "SELECT number, id, task, driver FROM runs WHERE termination IS NULL
                 ORDER BY rowid DESC",
            )
            .map_err(wrong)?;
        let row = |row: &rusqlite::Row<'_>| {
            let (number, id, task, driver) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
            Ok(Unended { number, id, task, driver })
        };
        let (mut pending, mut room) = (Vec::new(), Room::of(self.path()));
        for run in select.query_map([], row).map_err(wrong)? {
            let run = run.map_err(wrong)?;
            // As in `runs`: a damaged file can list runs without end.
            if !room.take(run.task.len()) {
                let what = "it is damaged: it lists more runs than fit into its size";
                return Err(problem(self.path(), JournalErrorKind::Damaged, what));
            }
            if !is_parked(&connection, run.number).map_err(wrong)?
                || self.has_live_driver(run.driver.as_ref())
            {
                continue;
            }
            let Some(history) = history(&connection, run.number).map_err(wrong)? else { continue };
            let Some(request) = history.open().cloned() else { continue };
            let decision = history.decision(request.id).map(|(decision, _)| decision.clone());
            let expired = match &decision {
                Some(decision) => *decision == ParkDecision::Expired,
                None => request.is_expired(now_ms),
            };
            pending.push(ParkedRun { run_id: run.id, task: run.task, request, decision, expired });
        }
        Ok(pending)
    }

    /// Decides the request of a parked run. The decision is in the journal when this returns; it
    /// takes effect when the run is resumed, in any process.
    ///
    /// ```no_run
    /// use endstop::journal::SqliteJournal;
    /// use endstop::park::Answer;
    /// let journal = SqliteJournal::open("journal.db")?;
    /// for parked in journal.pending()? {
    ///     let answer = Answer::deny("not on a Friday").digest(&parked.request.digest);
    ///     journal.answer(&parked.run_id, &answer)?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The run has ended, is driven by a live process, or waits for no decision; its request was
    /// decided before, has expired, or is another one than the answer is for.
    pub fn answer(&self, run: &str, answer: &Answer) -> Result<ParkedRun, DecideError> {
        self.answer_at(run, answer, wall_ms())
    }

    /// As [`answer`](Self::answer), at this time in Unix milliseconds.
    ///
    /// # Errors
    /// Those of [`answer`](Self::answer).
    pub fn answer_at(
        &self,
        run: &str,
        answer: &Answer,
        now_ms: u64,
    ) -> Result<ParkedRun, DecideError> {
        self.driver()?;
        let keys = self.keys();
        let decide = |connection: &Connection| {
            let Some(found) = self.unended(connection, run)? else {
                return Ok(Err(self.not_parked(connection, run)?));
            };
            let Some(history) = history(connection, found.number)? else {
                let what = format!("a request of run {run} cannot be read");
                let damaged = problem(self.path(), JournalErrorKind::Damaged, what);
                return Ok(Err(damaged.into()));
            };
            let (event, refused) = match (decided(run, &history, answer, now_ms), history.open()) {
                (Ok(event), _) => (event, None),
                // The expiry is stored as well, so that a clock that is set back changes nothing.
                (Err(refused @ AnswerRefused::Expired { .. }), Some(request)) => {
                    (ParkHistory::expiry(request, now_ms), Some(refused))
                }
                (Err(refused), _) => return Ok(Err(refused.into())),
            };
            let text = serde_json::to_string(&event).unwrap_or_default();
            insert(connection, found.number, &without_secrets(&keys, text), now_ms)?;
            let (Some(request), EventKind::Decided { decision, .. }, None) =
                (history.open().cloned(), event, &refused)
            else {
                // There is an open request, or nothing would have been decided.
                return Ok(Err(refused
                    .unwrap_or(AnswerRefused::NotParked { run: run.to_owned() })
                    .into()));
            };
            let decision = Some(decision);
            let Unended { id: run_id, task, .. } = found;
            Ok(Ok(ParkedRun { run_id, task, request, decision, expired: false }))
        };
        self.grows(0);
        self.writing(|connection| all_or_none(connection, || decide(connection)))?
    }

    /// Returns a run that has not ended and that no live process drives.
    fn unended(&self, connection: &Connection, run: &str) -> rusqlite::Result<Option<Unended>> {
        let mut select = connection.prepare_cached(
            "SELECT number, task, driver FROM runs WHERE id = ?1 AND termination IS NULL",
        )?;
        let row = |row: &rusqlite::Row<'_>| {
            let (number, task, driver) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(Unended { number, id: run.to_owned(), task, driver })
        };
        let found = select.query_row([run], row).optional()?;
        Ok(found.filter(|found| !self.has_live_driver(found.driver.as_ref())))
    }

    /// Returns the reason for which a run cannot be decided at all.
    fn not_parked(&self, connection: &Connection, run: &str) -> rusqlite::Result<DecideError> {
        let mut select = connection.prepare_cached("SELECT termination FROM runs WHERE id = ?1")?;
        let termination: Option<Option<String>> =
            select.query_row([run], |row| row.get(0)).optional()?;
        let run = run.to_owned();
        Ok(match termination {
            Some(Some(termination)) => AnswerRefused::Ended { run, termination }.into(),
            Some(None) => AnswerRefused::Live { run }.into(),
            None => {
                let what = format!("there is no run `{run}`; `SqliteJournal::runs` lists all runs");
                problem(self.path(), JournalErrorKind::NotFound, what).into()
            }
        })
    }

    /// `true` if a live process drives the run.
    pub(in crate::journal::sqlite) fn has_live_driver(&self, driver: Option<&String>) -> bool {
        driver.is_some_and(|name| driver::is_alive(self.path(), name))
    }
}
