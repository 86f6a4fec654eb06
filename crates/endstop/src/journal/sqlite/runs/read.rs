//! Reads the journal: the list of runs, a complete run, and the intact part of a damaged one.

use super::branch_rows::branched_at;
use super::parked_rows::is_parked;
use super::{header, texts};
use crate::journal::redaction::{cuts_for_model, cuts_of};
use crate::journal::sqlite::driver;
use crate::journal::sqlite::file::failure::problem;
use crate::journal::sqlite::file::hardening::Room;
use crate::journal::sqlite::journal::SqliteJournal;
use crate::journal::{JournalError, JournalErrorKind, RecordedRun};
use endstop_core::{Event, EventKind, NanoUsd, bounded_json};
use rusqlite::{Connection, Row};
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::time::Duration;

/// An entry of the list of runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunSummary {
    /// Id of the run.
    #[serde(rename = "run_id")]
    pub id: String,
    /// Id of the ended run that this run continues, or of the run that it branched from.
    pub continues: Option<String>,
    /// Number of turns of that run that this one began with, if it branched from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branched_at: Option<u32>,
    /// Start time in Unix milliseconds.
    pub started_ms: u64,
    /// End time in Unix milliseconds, if the run has ended.
    pub ended_ms: Option<u64>,
    /// Name of the provider.
    pub provider: Option<String>,
    /// Name of the model as it was requested.
    pub model: Option<String>,
    /// The task message.
    pub task: String,
    /// Name of the termination, if the run has ended.
    pub termination: Option<String>,
    /// Category of the termination, which determines what to do.
    pub category: Option<String>,
    /// Number of turns, if the run has ended.
    pub turns: Option<u32>,
    /// Cost, if the run has ended; `None` also if it is not known.
    #[serde(rename = "cost_usd", serialize_with = "in_dollars")]
    pub cost: Option<NanoUsd>,
    /// `true` if a verifier accepted the work, `false` if it rejected it, `None` if there was none.
    pub verified: Option<bool>,
    /// `true` if the run has not ended and a live process drives it.
    pub running: bool,
    /// `true` if the run is parked: it waits for a decision, or was decided and waits to be resumed.
    pub parked: bool,
    /// The reason why it spends nothing of its own: the name of the demo whose script played the model, or `replay` for a
    /// recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncounted: Option<String>,
}

impl SqliteJournal {
    /// Returns the last `most` runs, the newest first. The order is that in which they were stored
    /// and not that of their times, because clocks may be set back.
    pub fn runs(&self, most: u32) -> Result<Vec<RunSummary>, JournalError> {
        self.listed("", most)
    }

    /// Returns the runs whose process died before they ended, the newest first:
    /// [`Agent::resume`](crate::Agent::resume) takes their ids. Parked runs are not among them.
    ///
    /// ```
    /// # use endstop::{Agent, journal::SqliteJournal, testkit::{ScriptedModel, Turn}};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let journal = SqliteJournal::open(folder.path().join("runs.db"))?;
    /// # let agent = Agent::builder(ScriptedModel::new([Turn::text("Hi.")])).journal(journal.clone()).build()?;
    /// # agent.run("Hello")?.await;
    /// for run in journal.interrupted()? {
    ///     println!("{}", agent.resume(run.id)?.await);
    /// }
    /// # assert!(journal.interrupted()?.is_empty());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn interrupted(&self) -> Result<Vec<RunSummary>, JournalError> {
        let mut runs = self.listed("WHERE termination IS NULL", u32::MAX)?;
        runs.retain(|run| !run.running && !run.parked);
        Ok(runs)
    }

    /// Returns the last `most` runs to which the condition applies.
    fn listed(&self, condition: &str, most: u32) -> Result<Vec<RunSummary>, JournalError> {
        let connection = self.connection();
        let wrong = |error| self.failure(&error);
        let mut select = connection
            .prepare_cached(&format!(
                "SELECT id, continues, started_ms, ended_ms, provider, model, task, termination,
                 category, turns, cost_usd, verified, driver, rowid, uncounted
                 FROM runs {condition} ORDER BY rowid DESC LIMIT ?1",
            ))
            .map_err(wrong)?;
        let rows = select
            .query_map([most], |row| {
                Ok((summary(row)?, row.get::<_, Option<String>>(12)?, row.get::<_, i64>(13)?))
            })
            .map_err(wrong)?;
        let mut runs = Vec::new();
        let mut room = Room::of(self.path());
        for row in rows {
            let (mut run, driver, number) = row.map_err(wrong)?;
            // A damaged file can have a tree of pages that leads back to itself and then lists runs
            // without end.
            if !room.take(run.task.len()) {
                let what = "it is damaged: it lists more runs than fit into its size";
                return Err(problem(self.path(), JournalErrorKind::Damaged, what));
            }
            run.running = run.termination.is_none()
                && driver.is_some_and(|name| driver::is_alive(self.path(), &name));
            if let Some(from) = &run.continues {
                run.branched_at = branched_at(&connection, number, from).map_err(wrong)?;
            }
            run.parked = run.termination.is_none()
                && !run.running
                && is_parked(&connection, number).map_err(wrong)?;
            runs.push(run);
        }
        Ok(runs)
    }

    /// Returns `true` if a live process drives this run.
    pub fn is_running(&self, id: &str) -> Result<bool, JournalError> {
        // The second half returns a row for an ended run too, so that only an unknown id is an
        // error.
        let sql = "SELECT driver FROM runs WHERE id = ?1 AND termination IS NULL
                   UNION ALL SELECT NULL FROM runs WHERE id = ?1 AND termination IS NOT NULL";
        let driver: Option<String> = self
            .connection()
            .query_row(sql, [id], |row| row.get(0))
            .map_err(|error| self.failure(&error))?;
        Ok(driver.is_some_and(|name| driver::is_alive(self.path(), &name)))
    }

    /// Returns the full id of a run, given its id, the beginning of its id, or `last`.
    ///
    /// # Errors
    /// No run matches, or several do.
    pub fn find(&self, name: &str) -> Result<String, JournalError> {
        let connection = self.connection();
        let wrong = |error| self.failure(&error);
        let ids = |sql: &str, name: &str| -> rusqlite::Result<Vec<String>> {
            let mut select = connection.prepare(sql)?;
            let parameters: &[&dyn rusqlite::ToSql] =
                if sql.contains("?1") { &[&name] } else { &[] };
            select.query_map(parameters, |row| row.get(0))?.collect()
        };
        let found = if name == "last" {
            ids("SELECT id FROM runs ORDER BY rowid DESC LIMIT 1", "")
        } else {
            ids("SELECT id FROM runs WHERE id = ?1", name).and_then(|exact| {
                if exact.is_empty() && !name.is_empty() {
                    // Not `LIKE`, because it would treat `_` and `%` in the given name as
                    // wildcards.
                    let sql = "SELECT id FROM runs WHERE substr(id, 1, length(?1)) = ?1 LIMIT 4";
                    ids(sql, name)
                } else {
                    Ok(exact)
                }
            })
        };
        let found = found.map_err(wrong)?;
        match &found[..] {
            [id] => Ok(id.clone()),
            [] if name == "last" => {
                let what = "it contains no run yet";
                Err(problem(self.path(), JournalErrorKind::NotFound, what))
            }
            [] => {
                let what =
                    format!("there is no run `{name}`; `SqliteJournal::runs` lists all runs");
                Err(problem(self.path(), JournalErrorKind::NotFound, what))
            }
            several => {
                let what = format!("`{name}` matches {}; give more of the id", several.join(", "));
                Err(problem(self.path(), JournalErrorKind::NotFound, what))
            }
        }
    }

    /// Loads one complete run. If the run is damaged, loads everything before the damage.
    ///
    /// # Errors
    /// There is no run with this id, or none of it can be read.
    pub fn load(&self, id: &str) -> Result<RecordedRun, JournalError> {
        let connection = self.connection();
        let wrong = |error| self.failure(&error);
        // A read transaction keeps one snapshot of the file, so that another process may prune in
        // between.
        let connection = connection.unchecked_transaction().map_err(wrong)?;
        let (mut run, has_conversation) = self.without_events(&connection, id)?;
        if !has_conversation {
            // The events only make sense after the conversation that they continue.
            return Ok(run);
        }
        let mut weight = 0;
        let mut select = connection
            .prepare_cached(
                // In the order of the key, so that the intact events of a damaged file come first.
                "SELECT key & 4294967295, at_ns, wall_ms, event, effects FROM log
                 WHERE key >= (SELECT number << 32 FROM runs WHERE id = ?1)
                   AND key < (SELECT (number + 1) << 32 FROM runs WHERE id = ?1) ORDER BY key",
            )
            .map_err(wrong)?;
        let mut rows = select.query([id]).map_err(wrong)?;
        for expected in 0i64.. {
            let read = rows.next().and_then(|row| row.map(record).transpose());
            let damage = match read {
                Ok(None) => break,
                // The sum is bounded too: each event may be small enough, and all of them together
                // not.
                Ok(Some(Ok(step))) if weight > bounded_json::MOST => {
                    format!("the events from number {} on need too much memory", step.seq)
                }
                Ok(Some(Ok(step))) if step.seq == expected => {
                    weight += step.weight;
                    run.events.push(step.event);
                    run.wall_ms.push(step.wall_ms);
                    run.effects.push(step.effects);
                    run.redacted += step.redacted;
                    continue;
                }
                Ok(Some(Ok(step))) => format!("event {expected} is missing, {} is next", step.seq),
                Ok(Some(Err(what))) => format!("event {expected} cannot be read: {what}"),
                Err(error) => {
                    format!("from event {expected} on: {}", self.failure(&error).problem)
                }
            };
            run.damage = Some(damage);
            break;
        }
        Ok(run)
    }
}

impl SqliteJournal {
    /// Returns a run without its events, and `true` if the conversation that it began with was
    /// read.
    fn without_events(
        &self,
        connection: &Connection,
        id: &str,
    ) -> Result<(RecordedRun, bool), JournalError> {
        let damaged = |what: String| problem(self.path(), JournalErrorKind::Damaged, what);
        let row = connection
            .prepare_cached(
                "SELECT outcome, verified, conversation, ended_conversation, rowid, continues,
                 started_ms, task FROM runs WHERE id = ?1",
            )
            .and_then(|mut select| select.query_row([id], |row| stored_run(row, id)))
            .map_err(|error| match error {
                rusqlite::Error::QueryReturnedNoRows => {
                    let what =
                        format!("there is no run `{id}`; `SqliteJournal::runs` lists all runs");
                    problem(self.path(), JournalErrorKind::NotFound, what)
                }
                error => self.failure(&error),
            })?;
        let mut run = RecordedRun { verified: row.verified, ..RecordedRun::default() };
        let unread = |what: String| damaged(format!("run {id}: its header cannot be read: {what}"));
        run.header = header::join(connection, &row.own)
            .map_err(|error| self.failure(&error))?
            .map_err(unread)?;
        run.redacted = run.header.redacted;
        let messages = |number: i64| match texts::load_conversation(connection, number) {
            Ok(read) => read,
            Err(error) => Err(self.failure(&error).problem),
        };
        if let Some(text) = &row.outcome {
            let outcome = bounded_json::from_str(text).map_err(|error| error.to_string());
            let whole = outcome.and_then(|mut outcome: Value| {
                if let Some(number) = row.ended_conversation {
                    outcome["messages"] = Value::Array(parsed(&messages(number)?)?);
                }
                Ok(outcome)
            });
            match whole {
                Ok(outcome) => run.outcome = Some(outcome),
                Err(what) => run.damage = Some(format!("its outcome cannot be read: {what}")),
            }
        }
        let counted = |messages: Vec<String>| {
            let cuts: u64 = messages.iter().map(|message| cuts_of(message)).sum();
            Ok((parsed(&messages)?, cuts))
        };
        match messages(row.conversation).and_then(counted) {
            Ok((messages, cuts)) => {
                run.header.spec.messages = messages;
                run.redacted += cuts;
                Ok((run, true))
            }
            Err(what) => {
                let what = format!("from event 0 on: its conversation cannot be read: {what}");
                run.damage = Some(what);
                Ok((run, false))
            }
        }
    }
}

/// Parses each message from its JSON.
fn parsed<T: serde::de::DeserializeOwned>(messages: &[String]) -> Result<Vec<T>, String> {
    let mut weight = 0u64;
    let parse = |message: &String| {
        weight = weight.saturating_add(bounded_json::weight(message.as_bytes()));
        if weight > bounded_json::MOST {
            return Err("its values need too much memory".to_owned());
        }
        serde_json::from_str(message).map_err(|error| error.to_string())
    };
    messages.iter().map(parse).collect()
}

/// A row of `runs`, before its JSON is parsed.
struct StoredRun {
    outcome: Option<String>,
    verified: Option<bool>,
    conversation: i64,
    ended_conversation: Option<i64>,
    own: header::Row,
}

fn stored_run(row: &Row<'_>, id: &str) -> rusqlite::Result<StoredRun> {
    Ok(StoredRun {
        outcome: row.get(0)?,
        verified: row.get(1)?,
        conversation: row.get(2)?,
        ended_conversation: row.get(3)?,
        own: header::Row {
            number: row.get(4)?,
            id: id.to_owned(),
            continues: row.get(5)?,
            started_ms: u64::try_from(row.get::<_, i64>(6)?).unwrap_or(0),
            task: row.get(7)?,
        },
    })
}

fn summary(row: &Row<'_>) -> rusqlite::Result<RunSummary> {
    let time = |ms: i64| u64::try_from(ms).unwrap_or(0);
    Ok(RunSummary {
        id: row.get(0)?,
        continues: row.get(1)?,
        branched_at: None,
        started_ms: time(row.get(2)?),
        ended_ms: row.get::<_, Option<i64>>(3)?.map(time),
        provider: row.get(4)?,
        model: row.get(5)?,
        task: row.get(6)?,
        termination: row.get(7)?,
        category: row.get(8)?,
        turns: row.get(9)?,
        cost: row.get::<_, Option<f64>>(10)?.map(NanoUsd::from_usd),
        verified: row.get(11)?,
        running: false,
        parked: false,
        uncounted: row.get(14)?,
    })
}

#[expect(clippy::ref_option, reason = "the signature that serde asks for")]
fn in_dollars<S: Serializer>(cost: &Option<NanoUsd>, serializer: S) -> Result<S::Ok, S::Error> {
    cost.map(NanoUsd::to_usd).serialize(serializer)
}

struct Stored {
    seq: i64,
    wall_ms: u64,
    event: Event,
    effects: Vec<Value>,
    redacted: u64,
    /// Estimated memory of the parsed values in bytes.
    weight: u64,
}

fn record(row: &Row<'_>) -> rusqlite::Result<Result<Stored, String>> {
    let (seq, at, wall): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
    let (event, effects): (String, Option<String>) = (row.get(3)?, row.get(4)?);
    let weight = |text: &str| bounded_json::weight(text.as_bytes());
    let weight = weight(&event) + effects.as_deref().map_or(0, weight);
    let kind: EventKind = match bounded_json::from_str(&event) {
        Ok(kind) => kind,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let effects = match effects.map(|effects| bounded_json::from_str(&effects)).transpose() {
        Ok(effects) => effects.unwrap_or_default(),
        Err(error) => return Ok(Err(error.to_string())),
    };
    let at = Duration::from_nanos(u64::try_from(at).unwrap_or(0));
    let wall_ms = u64::try_from(wall).unwrap_or(0);
    let redacted = cuts_for_model(&kind, &event);
    Ok(Ok(Stored { seq, wall_ms, event: Event::new(at, kind), effects, redacted, weight }))
}
