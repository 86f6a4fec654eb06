//! Upgrades the tables of an earlier version without loss.
//!
//! ```text
//! 1 → 4   runs and events are copied to the current tables
//! 2 → 4   columns and tables are added; each run's conversation moves to where it is stored once
//! 3 → 4   the project of a run, and the tables of the ceilings of a day are added
//! ```
//!
//! A header or an outcome that cannot be parsed stays as it is: a row may contain its conversation
//! itself, as rows of version 2 do.

use super::header::split_value;
use super::tables::{RUNS_AND_LOG, SHARED, SPENDING, TRIGGERS};
use super::texts::{EMPTY, Text, append};
use endstop_wire::redact::KnownKeys;
use rusqlite::{Connection, params};
use serde::Serializer as _;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use std::fmt;

/// Renames the tables of version 1, so that the current ones can be created.
const SET_ASIDE_1: &str = "
DROP TRIGGER a_run_ends_once;
DROP TRIGGER what_happened_stands;
DROP INDEX runs_by_time;
ALTER TABLE events RENAME TO events_1;
ALTER TABLE runs RENAME TO runs_1;
";

const COPY_1: &str = "
INSERT INTO runs (id, continues, started_ms, version, provider, model, task, header, driver,
                  ended_ms, termination, category, turns, cost_usd, outcome, verified)
    SELECT id, continues, started_ms, version, provider, model, task, header, driver,
           ended_ms, termination, category, turns, cost_usd, outcome, verified
    FROM runs_1 ORDER BY rowid;
INSERT INTO log SELECT runs.number << 32 | seq, at_ns, wall_ms, name, event, effects
    FROM events_1 JOIN runs ON runs.id = events_1.run;
DROP TABLE events_1;
DROP TABLE runs_1;
";

const ADD_TO_2: &str = "
DROP TRIGGER a_run_ends_once;
DROP TRIGGER what_happened_stands;
DROP TRIGGER a_run_goes_whole;
DROP INDEX runs_by_time;
ALTER TABLE runs ADD COLUMN conversation INTEGER;
ALTER TABLE runs ADD COLUMN ended_conversation INTEGER;
ALTER TABLE runs ADD COLUMN project TEXT;
";

const ADD_TO_3: &str = "
ALTER TABLE runs ADD COLUMN project TEXT;
";

/// Upgrades the tables; must be called inside a transaction.
pub(super) fn upgrade(connection: &Connection, version: i64) -> rusqlite::Result<()> {
    connection.execute_batch(SPENDING)?;
    if version == 3 {
        return connection.execute_batch(ADD_TO_3);
    }
    if version < 2 {
        connection.execute_batch(SET_ASIDE_1)?;
        connection.execute_batch(RUNS_AND_LOG)?;
        connection.execute_batch(COPY_1)?;
    } else {
        connection.execute_batch(ADD_TO_2)?;
    }
    connection.execute_batch(SHARED)?;
    share_all(connection)?;
    // Last, because the triggers would refuse the updates above.
    connection.execute_batch(TRIGGERS)
}

/// Moves the values that runs share to the tables in which they are stored once.
fn share_all(connection: &Connection) -> rusqlite::Result<()> {
    let mut select = connection.prepare("SELECT number FROM runs ORDER BY number")?;
    let runs: Vec<i64> = select.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    for run in runs {
        let mut select = connection
            .prepare_cached("SELECT header, outcome, task FROM runs WHERE number = ?1")?;
        let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        let (header, outcome, task): (String, Option<String>, String) =
            select.query_row([run], row)?;
        if let Some((frame, messages)) = frame_of(&header, &task)
            && let Ok(parts) = split_value(frame, &KnownKeys::default())
        {
            parts.store(connection, run)?;
            connection
                .prepare_cached("UPDATE runs SET header = '', conversation = ?2 WHERE number = ?1")?
                .execute(params![run, store(connection, &messages)?])?;
        }
        if let Some((outcome, messages)) = outcome.as_deref().and_then(without_messages) {
            connection
                .prepare_cached(
                    "UPDATE runs SET outcome = ?2, ended_conversation = ?3 WHERE number = ?1",
                )?
                .execute(params![run, outcome, store(connection, &messages)?])?;
        }
    }
    Ok(())
}

fn store(connection: &Connection, messages: &[&RawValue]) -> rusqlite::Result<i64> {
    let mut number = EMPTY;
    for message in messages {
        number = append(connection, number, &Text::new(message.get().to_owned()))?;
    }
    Ok(number)
}

/// Returns a header without its conversation and without the values of its row; `None` if it cannot
/// be parsed.
fn frame_of<'a>(header: &'a str, task: &str) -> Option<(Value, Vec<&'a RawValue>)> {
    let header: Fields<'a> = serde_json::from_str(header).ok()?;
    let mut messages = Vec::new();
    let mut frame = serde_json::Map::new();
    let id: String = serde_json::from_str(header.get("id")?.get()).ok()?;
    for (name, value) in &header.0 {
        match name.as_str() {
            "id" | "continues" | "started_ms" => {}
            "spec" => {
                let spec: Fields<'a> = serde_json::from_str(value.get()).ok()?;
                let mut rest = serde_json::Map::new();
                for (name, value) in &spec.0 {
                    match name.as_str() {
                        "messages" => messages = serde_json::from_str(value.get()).ok()?,
                        "task" if serde_json::from_str::<String>(value.get()).ok()? == task => {}
                        // A task that differs from the row's would be lost, so such a header stays
                        // as it is.
                        "task" => return None,
                        "run_id" => {
                            let named: Option<String> = serde_json::from_str(value.get()).ok()?;
                            let named =
                                named.map(|named| if named == id { String::new() } else { named });
                            rest.insert(name.clone(), named.into());
                        }
                        _ => drop(rest.insert(name.clone(), parse(value)?)),
                    }
                }
                frame.insert(name.clone(), rest.into());
            }
            _ => drop(frame.insert(name.clone(), parse(value)?)),
        }
    }
    Some((frame.into(), messages))
}

/// Returns an outcome with an empty list of messages, and the messages; `None` if it cannot be
/// parsed.
fn without_messages(outcome: &str) -> Option<(String, Vec<&RawValue>)> {
    let fields: Fields<'_> = serde_json::from_str(outcome).ok()?;
    let messages = serde_json::from_str(fields.get("messages")?.get()).ok()?;
    let none: &RawValue = serde_json::from_str("[]").ok()?;
    // The other members are copied without parsing them, so that no number changes its digits.
    let rest = fields.0.into_iter().map(|(name, value)| {
        let value = if name == "messages" { none } else { value };
        (name, value)
    });
    let mut text = Vec::new();
    serde_json::Serializer::new(&mut text).collect_map(rest).ok()?;
    Some((String::from_utf8(text).ok()?, messages))
}

fn parse(value: &RawValue) -> Option<Value> {
    serde_json::from_str(value.get()).ok()
}

/// The members of an object, not parsed. Unlike a map it keeps their order.
struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Fields<'a> {
    fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().find_map(|(other, value)| (other == name).then_some(*value))
    }
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Fields<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Fields(members))
            }
        }
        deserializer.deserialize_map(Members)
    }
}
