//! Checks that an SQLite file is safe to open as a journal. A third party may have made the file,
//! and SQL in its schema runs whenever a table is used.
//!
//! ```text
//! hardening::plain_files(path)?;                             // no pipes, no links next to it
//! let time = hardening::configure(&mut connection, access)?; // before the first statement
//! hardening::plain_tables(&connection, path, access)?;       // before the first query
//! ```
//!
//! The measures are those of SQLite's page on untrusted files ("Defense Against The Dark Arts"):
//! views are disabled, and for readers triggers as well; functions with side effects are refused;
//! and a statement is interrupted when its time is up.

use super::failure::{failure, problem};
use crate::journal::{JournalError, JournalErrorKind};
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::journal::sqlite) enum Access {
    Read,
    Write,
}

/// Time limit for the statements of one operation that reads. An operation takes milliseconds, but
/// a damaged tree of pages that leads back to itself has no end.
const READING: Duration = Duration::from_secs(20);
/// Time limit for an operation that writes, which may remove many runs.
const WRITING: Duration = Duration::from_secs(600);

/// SQLite instructions between two checks of the deadline. Few, because one instruction can read a
/// value of [`LONGEST`] bytes.
const LOOK: i32 = 100;

/// The longest value that a reader accepts, in bytes.
const LONGEST: i32 = 256 << 20;

/// The most tables, indexes, views and triggers that are accepted. A journal has fewer than twenty.
const OBJECTS: i64 = 200;

/// Lower bound for the bytes that a row takes in a file.
const ROW: u64 = 8;

/// The time at which running statements are interrupted.
#[derive(Clone, Debug)]
pub(in crate::journal::sqlite) struct Deadline {
    until: Arc<Mutex<Instant>>,
    patience: Duration,
}

impl Deadline {
    fn new(patience: Duration) -> Deadline {
        Deadline { until: Arc::new(Mutex::new(Instant::now() + patience)), patience }
    }

    /// Restarts the time limit for the next operation.
    pub(in crate::journal::sqlite) fn renew(&self) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + self.patience;
    }

    fn is_over(&self) -> bool {
        Instant::now() >= *self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Refuses a path that is not a regular file, unless there is nothing yet. The same holds for the log,
/// the index and the rollback journal that SQLite opens next to it, because opening a pipe blocks and a
/// link leads to another file.
pub(in crate::journal::sqlite) fn plain_files(path: &Path) -> Result<(), JournalError> {
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        let what = "not a regular file; give the path of a journal";
        return Err(problem(path, JournalErrorKind::Io, what));
    }
    for beside in ["-wal", "-shm", "-journal"] {
        let file = companion(path, beside);
        let plain = std::fs::symlink_metadata(&file).map_or(true, |found| found.is_file());
        if !plain {
            let what = format!("`{}` is not a regular file: remove it", file.display());
            return Err(problem(path, JournalErrorKind::Damaged, what));
        }
    }
    Ok(())
}

pub(in crate::journal::sqlite) fn companion(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// Disables the SQLite features through which a schema could harm this process.
pub(in crate::journal::sqlite) fn configure(
    connection: &mut Connection,
    access: Access,
) -> rusqlite::Result<Deadline> {
    for (config, on) in [
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
        // Endstop's own triggers refuse changes to stored events. A reader changes nothing and
        // needs none.
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, access == Access::Write),
    ] {
        connection.set_db_config(config, on)?;
    }
    // The schema of a file is parsed as SQL too, so its length and nesting are bounded.
    connection.set_limit(Limit::SQLITE_LIMIT_SQL_LENGTH, 1 << 20)?;
    connection.set_limit(Limit::SQLITE_LIMIT_COLUMN, 100)?;
    connection.set_limit(Limit::SQLITE_LIMIT_EXPR_DEPTH, 50)?;
    connection.set_limit(Limit::SQLITE_LIMIT_COMPOUND_SELECT, 10)?;
    let patience = match access {
        Access::Read => {
            connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, LONGEST)?;
            connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
            READING
        }
        Access::Write => WRITING,
    };
    let deadline = Deadline::new(patience);
    let watched = deadline.clone();
    connection.progress_handler(LOOK, Some(move || watched.is_over()))?;
    connection.pragma_update(None, "cell_size_check", true)?;
    // A mapped file that another process truncates would end this process with SIGBUS.
    connection.pragma_update(None, "mmap_size", 0)?;
    Ok(deadline)
}

/// Refuses a journal that contains views, virtual tables, generated columns or indexes on
/// expressions; for a writer also triggers that do more than Endstop's own.
pub(in crate::journal::sqlite) fn plain_tables(
    connection: &Connection,
    path: &Path,
    access: Access,
) -> Result<(), JournalError> {
    let foreign = |what: String| {
        let what = format!("{what}, so Endstop did not write this file; choose another one");
        problem(path, JournalErrorKind::Damaged, what)
    };
    let wrong = |error| failure(path, &error);
    let objects = objects(connection).map_err(wrong)?;
    if objects.len() as i64 >= OBJECTS {
        return Err(foreign("it has too many tables".to_owned()));
    }
    // Without `events`, which is a view for human readers. Endstop does not query it, and views are
    // disabled here.
    for table in ["runs", "log", "texts", "conversations", "parts", "spending", "booked"] {
        if let Some(object) = objects.iter().find(|object| object.name == table)
            && object.kind != "table"
        {
            return Err(foreign(format!("`{table}` is a {}", object.kind)));
        }
    }
    for Object { kind, name, sql } in &objects {
        match kind.as_str() {
            "table" => {
                if !sql.trim_start().to_ascii_uppercase().starts_with("CREATE TABLE") {
                    return Err(foreign(format!("`{name}` is not an ordinary table")));
                }
                let computed = "SELECT count(*) FROM pragma_table_xinfo(?1) WHERE hidden <> 0";
                if count(connection, computed, name).map_err(wrong)? > 0 {
                    return Err(foreign(format!("`{name}` has generated columns")));
                }
            }
            "index" => {
                let computed = "SELECT count(*) FROM pragma_index_xinfo(?1) WHERE cid = -2";
                if count(connection, computed, name).map_err(wrong)? > 0 {
                    return Err(foreign(format!("the index `{name}` is on an expression")));
                }
            }
            "trigger" if access == Access::Write && !is_harmless(sql) => {
                return Err(foreign(format!("it has a trigger `{name}`")));
            }
            _ => {}
        }
    }
    Ok(())
}

struct Object {
    kind: String,
    name: String,
    sql: String,
}

fn objects(connection: &Connection) -> rusqlite::Result<Vec<Object>> {
    // Indexes of constraints have no SQL, and SQLite makes its own tables itself.
    let mut select = connection.prepare(
        "SELECT type, name, sql FROM sqlite_schema
         WHERE sql IS NOT NULL AND substr(name, 1, 7) <> 'sqlite_' LIMIT ?1",
    )?;
    let rows = select.query_map([OBJECTS], |row| {
        Ok(Object { kind: row.get(0)?, name: row.get(1)?, sql: row.get(2)? })
    })?;
    rows.collect()
}

fn count(connection: &Connection, sql: &str, name: &str) -> rusqlite::Result<i64> {
    connection.query_row(sql, [name], |row| row.get(0))
}

/// Returns `true` if a trigger only refuses changes or deletes rows. Without parentheses there are
/// no function calls and no subqueries, so the trigger does no more work than the statement that
/// fires it.
fn is_harmless(sql: &str) -> bool {
    let Some((head, body)) = sql.split_once("BEGIN") else { return false };
    let Some(body) = body.trim_end().strip_suffix("END") else { return false };
    let harmless = |statement: &str| match statement.trim() {
        "" => true,
        statement => match statement.strip_prefix("SELECT RAISE(ABORT, '") {
            Some(rest) => rest.strip_suffix("')").is_some_and(|text| !text.contains('\'')),
            None => statement.starts_with("DELETE FROM ") && !statement.contains('('),
        },
    };
    !head.contains('(') && body.split(';').all(harmless)
}

/// Budget for the text of all rows that are read. Rows cannot hold more than the file unless they
/// share pages, which happens only in a damaged file.
pub(in crate::journal::sqlite) struct Room {
    bytes: u64,
}

impl Room {
    /// Returns the budget for a journal: the size of the file and of its log.
    pub(in crate::journal::sqlite) fn of(path: &Path) -> Room {
        let length = |path: &Path| std::fs::metadata(path).map_or(0, |found| found.len());
        Room { bytes: length(path).saturating_add(length(&companion(path, "-wal"))) }
    }

    /// Subtracts a row with this much text. Returns `false` if the file cannot hold the row.
    pub(in crate::journal::sqlite) fn take(&mut self, text: usize) -> bool {
        let left = self.bytes.checked_sub(ROW.saturating_add(text as u64));
        self.bytes = left.unwrap_or(0);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tables;
    use super::*;

    #[test]
    fn own_triggers_are_harmless() {
        let connection = Connection::open_in_memory().unwrap();
        for part in [tables::RUNS_AND_LOG, tables::SHARED, tables::SPENDING, tables::TRIGGERS] {
            connection.execute_batch(part).unwrap();
        }
        let triggers: Vec<Object> =
            objects(&connection).unwrap().into_iter().filter(|o| o.kind == "trigger").collect();
        assert!(!triggers.is_empty());
        for trigger in triggers {
            assert!(is_harmless(&trigger.sql), "{}", trigger.sql);
        }
    }

    #[test]
    fn triggers_with_queries_are_refused() {
        for body in [
            "INSERT INTO log SELECT 1 FROM log, log, log;",
            "DELETE FROM log WHERE key IN (SELECT 1);",
            "SELECT RAISE(ABORT, 'a') FROM (SELECT 1 UNION SELECT 2);",
            "SELECT RAISE(ABORT, 'a' || hex(zeroblob(9)) || 'b');",
            "SELECT 1 FROM log, log;",
            "UPDATE runs SET task = 'x';",
        ] {
            let sql = format!("CREATE TRIGGER t AFTER INSERT ON runs BEGIN {body} END");
            assert!(!is_harmless(&sql), "{sql}");
        }
        let when =
            "CREATE TRIGGER t AFTER INSERT ON runs WHEN (SELECT 1) BEGIN DELETE FROM log; END";
        assert!(!is_harmless(when));
    }

    #[test]
    fn endless_statement_is_interrupted() {
        let mut connection = Connection::open_in_memory().unwrap();
        let mut deadline = configure(&mut connection, Access::Read).unwrap();
        deadline.patience = Duration::from_millis(50);
        deadline.renew();
        let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
                       SELECT count(*) FROM n";
        let error = connection.query_row(endless, [], |row| row.get::<_, i64>(0)).unwrap_err();
        assert_eq!(
            error.sqlite_error_code(),
            Some(rusqlite::ErrorCode::OperationInterrupted),
            "{error}"
        );
        // The next operation gets a new time limit.
        deadline.renew();
        connection.query_row("SELECT 1", [], |row| row.get::<_, i64>(0)).unwrap();
    }
}
