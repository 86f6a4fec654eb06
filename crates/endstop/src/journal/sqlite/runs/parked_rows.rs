//! The events of a parked run in the file: its requests, and the decisions about them.
//!
//! ```text
//! if is_parked(&connection, run)? { let history = history(&connection, run)?; }
//! ```

use crate::journal::sqlite::file::tables;
use crate::park::ParkHistory;
use endstop_core::{EventKind, bounded_json};
use rusqlite::{Connection, OptionalExtension as _, params};

/// The events from which the open request of a run is known.
const OF_PARKS: &str = "('parked', 'decided', 'answered', 'cancel', 'terminate', 'fault')";

/// Returns `true` if the run waits for a decision, or was decided and not resumed. Its last event
/// tells, so that a list of many runs reads one row of each.
pub(in crate::journal::sqlite) fn is_parked(
    connection: &Connection,
    run: i64,
) -> rusqlite::Result<bool> {
    let (first, last) = tables::keys(run);
    let mut select = connection.prepare_cached(
        "SELECT name FROM log WHERE key BETWEEN ?1 AND ?2 ORDER BY key DESC LIMIT 1",
    )?;
    let name: Option<String> = select.query_row([first, last], |row| row.get(0)).optional()?;
    Ok(name.is_some_and(|name| name == "parked" || name == "decided"))
}

/// Reads the requests and decisions of a run; `None` if one of them cannot be read, or if they need
/// too much memory.
pub(in crate::journal::sqlite) fn history(
    connection: &Connection,
    run: i64,
) -> rusqlite::Result<Option<ParkHistory>> {
    let (first, last) = tables::keys(run);
    let mut select = connection.prepare_cached(&format!(
        "SELECT event FROM log WHERE key BETWEEN ?1 AND ?2 AND name IN {OF_PARKS} ORDER BY key"
    ))?;
    let mut rows = select.query([first, last])?;
    let (mut history, mut weight) = (ParkHistory::default(), 0);
    while let Some(row) = rows.next()? {
        let text: String = row.get(0)?;
        // The sum is bounded too, because each event may be small enough and all of them not.
        weight += bounded_json::weight(text.as_bytes());
        if weight > bounded_json::MOST {
            return Ok(None);
        }
        let Ok(kind) = bounded_json::from_str::<EventKind>(&text) else { return Ok(None) };
        history.saw(&kind);
    }
    Ok(Some(history))
}

/// Appends a decision to the events of a run, at the time of the last one: the clock of a parked run
/// stands still.
pub(in crate::journal::sqlite) fn insert(
    connection: &Connection,
    run: i64,
    text: &str,
    now_ms: u64,
) -> rusqlite::Result<()> {
    let (first, last) = tables::keys(run);
    let (key, at): (i64, i64) = connection
        .prepare_cached(
            "SELECT key, at_ns FROM log WHERE key BETWEEN ?1 AND ?2 ORDER BY key DESC LIMIT 1",
        )?
        .query_row([first, last], |row| Ok((row.get(0)?, row.get(1)?)))?;
    connection
        .prepare_cached(
            "INSERT INTO log (key, at_ns, wall_ms, name, event) VALUES (?1, ?2, ?3, 'decided', ?4)",
        )?
        .execute(params![key + 1, at, i64::try_from(now_ms).unwrap_or(i64::MAX), text])?;
    Ok(())
}
