//! Stores the header of a run as rows, so that values that several runs share (tools, schemas,
//! instructions) are stored once.
//!
//! ```text
//! parts of a run:   ""             {"policy":null,"tools":null,"spec":{"limits":{…},"tools":null}}
//!                   "/tools"       [{"name":"shell",…}]
//!                   "/spec/tools"  [{"name":"shell",…}]
//! ```
//!
//! Values that differ from run to run (id, time, task, conversation) are in the columns of `runs`.

use super::texts::Text;
use crate::journal::RunHeader;
use crate::provider::ToolDefinition;
use endstop_core::{RunSpec, bounded_json};
use endstop_wire::redact::KnownKeys;
use rusqlite::{Connection, params};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Length in bytes from which a value is stored as a part of its own; a shorter one stays in the
/// part around it, because a row would take more space than the value.
const LONG: usize = 256;

/// Placeholder for the run's own id if the header contains it a second time, so that headers of two
/// runs can be equal.
const OWN_ID: &str = "";

/// The header without the values that the row in `runs` has.
#[derive(Serialize)]
struct Frame<'a> {
    version: &'a str,
    spec: RunSpec,
    policy: &'a Option<Value>,
    system: &'a Option<String>,
    tools: &'a [ToolDefinition],
    output_schema: &'a Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: &'a Option<Value>,
    settings: &'a Value,
    #[serde(skip_serializing_if = "is_zero")]
    redacted: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The parts of a header, each with the JSON pointer to its place.
pub(in crate::journal::sqlite) struct Parts(Vec<(String, Text)>);

/// Number of split headers that are remembered. The runs of a process have few different headers,
/// because what differs from run to run is not among their parts.
const MOST_HEADERS: usize = 8;
/// Length in bytes up to which a header is remembered.
const LONGEST_REMEMBERED: usize = 64 << 10;

/// Headers that were split, so that the next run with the same one is not redacted and hashed again.
#[derive(Default)]
pub(in crate::journal::sqlite) struct Headers(Mutex<VecDeque<Remembered>>);

struct Remembered {
    /// The header as JSON, without the values that the row has.
    frame: String,
    keys: KnownKeys,
    parts: Arc<Parts>,
}

impl Headers {
    /// Splits a header into parts, without its conversation and without secrets.
    pub(in crate::journal::sqlite) fn split(
        &self,
        header: &RunHeader,
        keys: &KnownKeys,
    ) -> Result<Arc<Parts>, serde_json::Error> {
        let whole = frame_of(header);
        let frame = serde_json::to_string(&whole)?;
        let is_same = |one: &Remembered| one.keys.is_same(keys) && one.frame == frame;
        if let Some(one) = self.all().iter().find(|one| is_same(one)) {
            return Ok(Arc::clone(&one.parts));
        }
        let parts = Arc::new(split_value(serde_json::to_value(whole)?, keys)?);
        if frame.len() <= LONGEST_REMEMBERED {
            let one = Remembered { frame, keys: keys.clone(), parts: Arc::clone(&parts) };
            let mut all = self.all();
            all.push_front(one);
            all.truncate(MOST_HEADERS);
        }
        Ok(parts)
    }

    fn all(&self) -> MutexGuard<'_, VecDeque<Remembered>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a header without its conversation and without the values that its row has.
fn frame_of(header: &RunHeader) -> Frame<'_> {
    // The pattern names each field, so that the compiler reports a new field that is forgotten
    // here.
    let RunHeader {
        id,
        continues: _,
        version,
        started_ms: _,
        spec,
        policy,
        system,
        tools,
        output_schema,
        params,
        settings,
        redacted,
        keys: _,
    } = header;
    let mut spec = RunSpec { task: String::new(), ..spec.without_messages() };
    if spec.run_id.as_ref() == Some(id) {
        spec.run_id = Some(OWN_ID.to_owned());
    }
    Frame {
        version,
        spec,
        policy,
        system,
        tools,
        output_schema,
        params,
        settings,
        redacted: *redacted,
    }
}

/// Splits a header that is already JSON.
fn split_value(mut frame: Value, keys: &KnownKeys) -> Result<Parts, serde_json::Error> {
    let (mut parts, mut cuts) = (Vec::new(), 0);
    if let Some(spec) = frame.get_mut("spec").and_then(Value::as_object_mut) {
        cuts += take_long("/spec/", spec, keys, &mut parts)?;
    }
    if let Some(frame) = frame.as_object_mut() {
        cuts += take_long("/", frame, keys, &mut parts)?;
        if cuts > 0 {
            let before = frame.get("redacted").and_then(Value::as_u64).unwrap_or(0);
            frame.insert("redacted".to_owned(), json!(before.saturating_add(cuts)));
        }
    }
    parts.push((String::new(), Text::json(&frame, keys)?));
    Ok(Parts(parts))
}

/// Moves the long values out of an object and returns how many secrets were cut out of them.
fn take_long(
    place: &str,
    object: &mut Map<String, Value>,
    keys: &KnownKeys,
    parts: &mut Vec<(String, Text)>,
) -> Result<u64, serde_json::Error> {
    let mut all_cuts = 0;
    for (name, value) in object {
        // A short string stays in place; checking its length first avoids serialising it.
        let scalar = !matches!(value, Value::String(text) if text.len() >= LONG)
            && !value.is_array()
            && !value.is_object();
        // `spec` has been split already. `/` and `~` would have to be escaped in a JSON pointer.
        if scalar || name == "spec" || name.contains(['/', '~']) {
            continue;
        }
        let (text, cuts) = Text::counted(value, keys)?;
        if text.len() >= LONG {
            all_cuts += cuts;
            parts.push((format!("{place}{name}"), text));
            *value = Value::Null;
        }
    }
    Ok(all_cuts)
}

impl Parts {
    /// Stores the parts as those of a run; must be called inside a transaction.
    pub(in crate::journal::sqlite) fn store(
        &self,
        connection: &Connection,
        run: i64,
    ) -> rusqlite::Result<()> {
        let mut insert = connection
            .prepare_cached("INSERT INTO parts (run, place, text) VALUES (?1, ?2, ?3)")?;
        for (place, text) in &self.0 {
            insert.execute(params![run, place, text.store(connection)?])?;
        }
        Ok(())
    }
}

/// The values of a header that are in the row of the run.
pub(in crate::journal::sqlite) struct Row {
    pub(in crate::journal::sqlite) number: i64,
    pub(in crate::journal::sqlite) id: String,
    pub(in crate::journal::sqlite) continues: Option<String>,
    pub(in crate::journal::sqlite) started_ms: u64,
    pub(in crate::journal::sqlite) task: String,
}

/// Reassembles a header, still without its conversation.
pub(in crate::journal::sqlite) fn join(
    connection: &Connection,
    row: &Row,
) -> rusqlite::Result<Result<RunHeader, String>> {
    let mut select = connection.prepare_cached(
        "SELECT place, texts.text FROM parts JOIN texts ON texts.number = parts.text
         WHERE run = ?1 ORDER BY place",
    )?;
    let parts: Vec<(String, String)> = select
        .query_map([row.number], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    Ok(put_together(parts, row).map_err(|error| error.to_string()))
}

fn put_together(parts: Vec<(String, String)>, row: &Row) -> Result<RunHeader, serde_json::Error> {
    let mut header = Value::Null;
    // The outermost part comes first, because its place is the empty string and `ORDER BY place`
    // sorts it before the others.
    for (place, text) in parts {
        let value = bounded_json::from_str(&text)?;
        if let Some(there) = header.pointer_mut(&place) {
            *there = value;
        }
    }
    if let Some(fields) = header.as_object_mut() {
        fields.insert("id".to_owned(), json!(row.id));
        fields.insert("continues".to_owned(), json!(row.continues));
        fields.insert("started_ms".to_owned(), json!(row.started_ms));
    }
    if let Some(spec) = header.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("task".to_owned(), json!(row.task));
        if spec.get("run_id").and_then(Value::as_str) == Some(OWN_ID) {
            spec.insert("run_id".to_owned(), json!(row.id));
        }
    }
    serde_json::from_value(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "own-4f1c9a77b2e84d0d9c3e5a61-key";

    fn header(id: &str, settings: &str) -> RunHeader {
        let spec = RunSpec { run_id: Some(id.to_owned()), ..RunSpec::default() };
        RunHeader { id: id.to_owned(), settings: json!(settings), spec, ..RunHeader::default() }
    }

    fn text(parts: &Parts) -> String {
        parts.0.iter().map(|(_, text)| text.text()).collect()
    }

    #[test]
    fn equal_headers_are_split_once() {
        let headers = Headers::default();
        let keys = KnownKeys::new([SECRET]);
        let split =
            |id, settings, keys: &KnownKeys| headers.split(&header(id, settings), keys).unwrap();
        let one = split("one", SECRET, &keys);
        assert!(Arc::ptr_eq(&one, &split("two", SECRET, &keys.clone())));
        assert!(!text(&one).contains(SECRET));
        // With other secrets, the same header is another text.
        assert!(text(&split("three", SECRET, &KnownKeys::default())).contains(SECRET));
        assert!(text(&split("four", "more", &keys)).contains("more"));
    }

    #[test]
    fn few_headers_are_remembered() {
        let headers = Headers::default();
        for number in 0..3 * MOST_HEADERS {
            headers.split(&header("one", &number.to_string()), &KnownKeys::default()).unwrap();
        }
        let long = "x".repeat(LONGEST_REMEMBERED);
        headers.split(&header("one", &long), &KnownKeys::default()).unwrap();
        assert_eq!(headers.all().len(), MOST_HEADERS);
        assert!(headers.all().iter().all(|one| one.frame.len() < LONGEST_REMEMBERED));
    }
}
