//! Prunes a journal: removes runs and returns their disk space to the file system.
//!
//! ```no_run
//! use endstop::journal::{PruneSpec, SqliteJournal};
//! use std::time::Duration;
//!
//! let journal = SqliteJournal::open("journal.db")?;
//! let month = Duration::from_secs(30 * 86_400);
//! let pruned = journal.prune(&PruneSpec { older_than: Some(month), ..PruneSpec::default() })?;
//! println!("removed {} runs, freed {} bytes", pruned.removed.len(), pruned.freed());
//! # Ok::<(), endstop::journal::JournalError>(())
//! ```
//!
//! The oldest runs are removed first. A run that a process drives is never removed. A run that has
//! not ended stays unless [`PruneSpec::unfinished`] covers it, because it can still be resumed.

use super::space::{self, Pages};
use crate::journal::JournalError;
use crate::journal::sqlite::driver;
use crate::journal::sqlite::journal::SqliteJournal;
use crate::journal::sqlite::write::all_or_none;
use rusqlite::{Connection, params};
use std::cell::Cell;
use std::time::Duration;

/// Number of runs that are removed in one transaction. Small, so that other processes wait only
/// briefly.
const RUNS_AT_ONCE: usize = 64;

/// Selects the runs to remove. Afterwards every given bound holds, as far as runs may be removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PruneSpec {
    /// Removes runs that ended longer ago than this. For a run that has not ended, its start
    /// counts.
    pub older_than: Option<Duration>,
    /// Number of runs to keep, the newest ones.
    pub keep: Option<u64>,
    /// Target size of the file in bytes, reached by removing the oldest runs.
    pub max_bytes: Option<u64>,
    /// Also removes runs that have not ended, if no process drives them and they began longer ago
    /// than this. `None`: such runs stay.
    pub unfinished: Option<Duration>,
    /// Only reports what would be removed, and removes nothing.
    pub dry_run: bool,
}

/// Result of pruning a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Ids of the removed runs, the oldest first.
    pub removed: Vec<String>,
    /// Number of runs that are left.
    pub left: u64,
    /// Number of runs that exceed a bound but stayed because a process drives them or because they
    /// can still be resumed.
    pub spared: u64,
    /// Size of the file before, in bytes.
    pub bytes_before: u64,
    /// Size of the file after, in bytes. For a dry run, the bytes that would still be in use.
    pub bytes_after: u64,
}

impl Pruned {
    /// Returns the number of bytes by which the file became smaller.
    pub fn freed(&self) -> u64 {
        self.bytes_before.saturating_sub(self.bytes_after)
    }
}

/// A run that a bound may remove.
struct Candidate {
    number: i64,
    id: String,
    /// End time in Unix milliseconds; start time if the run has not ended.
    at_ms: i64,
    /// `true` if the run has not ended.
    unfinished: bool,
    driver: Option<String>,
}

impl SqliteJournal {
    /// Removes runs, then the messages that no run refers to any more, and returns the space to the
    /// file system.
    ///
    /// # Errors
    /// The journal cannot be read or written. Runs that were removed before the error stay removed.
    pub fn prune(&self, spec: &PruneSpec) -> Result<Pruned, JournalError> {
        self.prune_while(spec, &|| true)
    }

    /// As [`prune`](Self::prune), but stops early when `more` returns `false`. It is called between
    /// the steps of the work.
    pub fn prune_while(
        &self,
        spec: &PruneSpec,
        more: &dyn Fn() -> bool,
    ) -> Result<Pruned, JournalError> {
        self.driver()?;
        // A separate connection, so that runs of this process do not wait until all of it is done.
        let connection = self.another_connection()?;
        let failure = |error| self.failure(&error);
        let before = Pages::of(&connection).map_err(failure)?;
        let mut pruned = Pruned { bytes_before: before.file(), ..Pruned::default() };
        if spec.dry_run {
            // A dry run does the real work and rolls it back, because only that shows how much
            // space the shared messages free.
            connection.execute_batch("BEGIN IMMEDIATE").map_err(failure)?;
            let tried = self.remove(&connection, spec, more, &mut pruned);
            let after = Pages::of(&connection).map(Pages::used);
            connection.execute_batch("ROLLBACK").map_err(failure)?;
            tried.map_err(failure)?;
            pruned.bytes_after = after.map_err(failure)?.min(pruned.bytes_before);
            return Ok(pruned);
        }
        self.remove(&connection, spec, more, &mut pruned).map_err(failure)?;
        space::give_back(&connection, more).map_err(failure)?;
        pruned.bytes_after = Pages::of(&connection).map_err(failure)?.file();
        Ok(pruned)
    }

    /// Returns the number of runs and the size of the file in bytes: the values that the bounds
    /// apply to.
    pub fn extent(&self) -> Result<(u64, u64), JournalError> {
        let connection = self.connection();
        let read = || Ok((count(&connection)?, Pages::of(&connection)?.file()));
        read().map_err(|error| self.failure(&error))
    }

    fn remove(
        &self,
        connection: &Connection,
        spec: &PruneSpec,
        more: &dyn Fn() -> bool,
        pruned: &mut Pruned,
    ) -> rusqlite::Result<()> {
        let now = i64::try_from(crate::clock::wall_ms()).unwrap_or(i64::MAX);
        let runs = candidates(connection)?;
        let newest =
            spec.keep.map_or(runs.len(), |keep| usize::try_from(keep).unwrap_or(usize::MAX));
        let too_many = runs.len().saturating_sub(newest);
        let beyond = |at: usize, run: &Candidate| {
            (spec.keep.is_some() && at < too_many)
                || spec.older_than.is_some_and(|age| run.at_ms < before(now, age))
        };
        let may_go = |run: &Candidate| {
            !run.unfinished
                || (spec.unfinished.is_some_and(|age| run.at_ms <= before(now, age))
                    && !self.is_driven(run))
        };
        let (mut going, mut staying) = (Vec::new(), Vec::new());
        for (at, run) in runs.iter().enumerate() {
            match (beyond(at, run), may_go(run)) {
                (true, true) => going.push(run),
                (false, true) => staying.push(run),
                (true, false) => pruned.spared += 1,
                (false, false) => {}
            }
        }
        for some in going.chunks(RUNS_AT_ONCE) {
            if more() {
                remove_runs(connection, some, pruned)?;
            }
        }
        let collected = Cell::new(going.is_empty());
        if let Some(most) = spec.max_bytes {
            let mut rest = &staying[..];
            loop {
                // Removing a run frees its messages only once the texts without a reference are
                // collected, so collect before measuring.
                if !collected.replace(true) {
                    collect(connection)?;
                }
                let used = Pages::of(connection)?.used();
                if used <= most || rest.is_empty() || !more() {
                    break;
                }
                // Half of the runs that the average size suggests. Sizes differ, and runs share
                // messages, so removing the full estimate at once could remove more runs than
                // necessary.
                let each = (used / rest.len() as u64).max(1);
                let share = usize::try_from((used - most) / each / 2).unwrap_or(usize::MAX);
                let (some, after) = rest.split_at(share.clamp(1, rest.len().min(RUNS_AT_ONCE)));
                remove_runs(connection, some, pruned)?;
                collected.set(false);
                rest = after;
            }
        }
        if !collected.get() {
            collect(connection)?;
        }
        pruned.left = count(connection)?;
        Ok(())
    }

    fn is_driven(&self, run: &Candidate) -> bool {
        run.driver.as_ref().is_some_and(|name| driver::is_alive(self.path(), name))
    }
}

fn before(now: i64, age: Duration) -> i64 {
    now.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX))
}

fn count(connection: &Connection) -> rusqlite::Result<u64> {
    let runs: i64 = connection.query_row("SELECT count(*) FROM runs", [], |row| row.get(0))?;
    Ok(u64::try_from(runs).unwrap_or(0))
}

/// Returns all runs, the oldest first.
fn candidates(connection: &Connection) -> rusqlite::Result<Vec<Candidate>> {
    let mut select = connection.prepare(
        "SELECT number, id, coalesce(ended_ms, started_ms), termination IS NULL, driver
         FROM runs ORDER BY number",
    )?;
    let rows = select.query_map([], |row| {
        Ok(Candidate {
            number: row.get(0)?,
            id: row.get(1)?,
            at_ms: row.get(2)?,
            unfinished: row.get(3)?,
            driver: row.get(4)?,
        })
    })?;
    rows.collect()
}

fn remove_runs(
    connection: &Connection,
    runs: &[&Candidate],
    pruned: &mut Pruned,
) -> rusqlite::Result<()> {
    let removed = transaction(connection, || {
        let mut delete = connection.prepare_cached(
            // Does not match a run that was resumed since it was listed, because that has another
            // driver.
            "DELETE FROM runs WHERE number = ?1 AND id = ?2
             AND (termination IS NOT NULL OR driver IS ?3)",
        )?;
        let mut removed = Vec::new();
        for run in runs {
            if delete.execute(params![run.number, run.id, run.driver])? > 0 {
                removed.push(run.id.clone());
            }
        }
        Ok(removed)
    })?;
    pruned.removed.extend(removed);
    Ok(())
}

/// Removes the conversations and texts that no run refers to, by marking everything that is
/// reachable from a run.
fn collect(connection: &Connection) -> rusqlite::Result<()> {
    transaction(connection, || {
        connection.execute_batch(
            "DELETE FROM conversations WHERE number NOT IN (
                 WITH RECURSIVE used (number) AS (
                     SELECT conversation FROM runs WHERE conversation IS NOT NULL
                     UNION SELECT ended_conversation FROM runs WHERE ended_conversation IS NOT NULL
                     UNION SELECT before FROM conversations JOIN used USING (number)
                 ) SELECT number FROM used);
             DELETE FROM texts WHERE number NOT IN (
                 SELECT text FROM conversations UNION SELECT text FROM parts);",
        )
    })
}

/// Runs `write` in a transaction, or as a part of the open one that a dry run rolls back.
fn transaction<T>(
    connection: &Connection,
    write: impl FnOnce() -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    if connection.is_autocommit() { all_or_none(connection, write) } else { write() }
}
