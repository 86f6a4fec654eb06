//! Reader for Claude Code: the transcripts of `~/.claude/projects`, and the output of
//! `claude -p --output-format stream-json` (or `json`).
//!
//! ```text
//! {"type":"assistant","uuid":…,"parentUuid":…,"message":{"id":"msg_1","content":[…],"usage":{…}}, …}
//! {"type":"result","subtype":"success","total_cost_usd":0.01,"num_turns":2, …}
//! ```
//!
//! Quirks:
//!
//! - A model response is written as one record per content block, all with the same `message.id`,
//!   and the results of its first calls may come between them. These records are one turn
//!   (`responses.rs`). Each
//!   record repeats the usage, which grows; the largest value is counted once.
//! - The records form a tree by `parentUuid`. If a person went back and edited a prompt, the run is
//!   the branch of the last message; the other branches are dropped and counted in a note. The
//!   results of parallel calls, and hooks next to a result, look like branches but are not
//!   (`branch.rs`).
//! - A record may occur twice. A message that the harness writes in the model's role
//!   (`<synthetic>`, for example an API error) is not a turn.
//! - Subagents are either in the same file (`isSidechain`, `parent_tool_use_id`) and become
//!   children of the run, or in separate files, which are runs with the tag `subagent`.
//! - A transcript does not record how its session ended, except for the model's last stop reason.
//! - Records of several sessions in one file are several runs, unless one session continues
//!   another.

mod agents;
mod assemble;
mod branch;
mod ending;
mod record;
mod responses;
mod session;

use crate::model::Origin;
use crate::read::build::conversation::Tally;
use crate::read::build::fields::{Fields, peek};
use crate::read::format::{Format, Head, Place, Shape, Sink};
use crate::read::io::json_lines::{self, Line, Records};
use crate::read::problem::{Problem, ProblemKind};
use endstop_core::bounded_json;
use record::{Record, What};
use serde_json::value::RawValue;
use session::Session;
use std::collections::HashMap;

pub(crate) const FORMATS: &[Format] = &[Format {
    name: "claude-code",
    about: "Claude Code: session transcripts, and output of --output-format stream-json",
    recognises,
    of_a_person: true,
    shape: Some(Shape::Session(read)),
}];

/// Record types that only Claude Code writes.
const OWN: &[&str] =
    &["file-history-snapshot", "queue-operation", "permission-mode", "last-prompt"];

fn recognises(head: &Head<'_>) -> bool {
    match as_array(head.bytes) {
        Some(elements) => {
            let mut objects =
                elements.iter().take(50).filter_map(|e| line_of(e, 1).object("").ok());
            objects.any(|map| is_own(&map))
        }
        // The first records of a session may be of kinds that other agents write too.
        None => {
            json_lines::first_objects(head).iter().any(is_own)
                || json_lines::more_objects(head).iter().any(is_own)
        }
    }
}

fn is_own(map: &Fields) -> bool {
    let Some(kind) = peek(map, "type") else { return false };
    let session = ["sessionId", "session_id"].iter().any(|key| peek(map, key).is_some());
    match kind {
        "user" | "assistant" => {
            let linked = ["parentUuid", "isSidechain", "parent_tool_use_id"];
            map.get("message")
                .is_some_and(|m| m.get("role").is_some() || m.get("content").is_some())
                && (session || linked.iter().any(|key| map.contains_key(*key)))
        }
        "system" => map.contains_key("subtype") && (session || map.contains_key("parentUuid")),
        "result" => map.contains_key("subtype") && map.contains_key("num_turns"),
        "summary" => map.contains_key("leafUuid"),
        "attachment" => map.contains_key("attachment") && map.contains_key("parentUuid"),
        other => OWN.contains(&other) && (session || map.contains_key("messageId")),
    }
}

fn is_record(map: &Fields) -> bool {
    let session = ["sessionId", "session_id"].iter().any(|key| peek(map, key).is_some());
    is_own(map) || session && peek(map, "type").is_some()
}

/// Parses a file that is one list, as `--output-format json --verbose` writes it.
fn as_array(bytes: &[u8]) -> Option<Vec<&RawValue>> {
    if !bytes.trim_ascii_start().starts_with(b"[") {
        return None;
    }
    bounded_json::from_slice(bytes).ok()
}

fn line_of(raw: &RawValue, at: u64) -> Line<'_> {
    Line { at, bytes: raw.get().as_bytes(), ended: true }
}

fn read(bytes: &[u8], place: &Place<'_>, sink: &mut Sink<'_>) {
    let mut sessions = Sessions::default();
    let mut records = Records::new(bytes, place.file, is_record);
    match as_array(bytes) {
        Some(elements) => {
            for (at, element) in (1..).zip(elements) {
                sessions.take(line_of(element, at), &mut records, place.file, sink);
            }
        }
        None => {
            for line in json_lines::lines(bytes) {
                sessions.take(line, &mut records, place.file, sink);
            }
        }
    }
    sessions.finish(place, sink);
}

/// The records of a file, grouped by session.
#[derive(Default)]
struct Sessions {
    all: Vec<Session>,
    by_id: HashMap<String, usize>,
    /// Maps a record's uuid to its session and to a hash of the record.
    seen: HashMap<String, (usize, u64)>,
    last: Option<usize>,
    /// Records before the first one that names its session.
    early: Vec<Record>,
}

impl Sessions {
    fn take(&mut self, line: Line<'_>, records: &mut Records<'_>, file: &str, sink: &mut Sink<'_>) {
        let (objects, damaged) = records.of(line);
        for (map, bytes) in objects {
            self.take_object(map, Line { bytes, ..line }, file, sink);
        }
        if let Some(problem) = damaged {
            sink(Err(problem));
        }
    }

    fn take_object(&mut self, map: Fields, line: Line<'_>, file: &str, sink: &mut Sink<'_>) {
        let record = match record::read(map, line.at) {
            Ok(record) => record,
            Err(what) => {
                return sink(Err(Problem {
                    file: file.to_owned(),
                    at: Some(line.at),
                    kind: ProblemKind::Malformed,
                    what,
                }));
            }
        };
        let Some(index) = self.session_of(&record) else {
            self.early.push(record);
            return;
        };
        self.last = Some(index);
        if let Some(uuid) = &record.uuid {
            let hash = hash(line.bytes);
            match self.seen.get(uuid) {
                Some((_, before)) if *before == hash => {
                    return self.all[index].odd.add("duplicate records");
                }
                // The blocks of one streamed response may share a uuid; the assembler separates
                // them by content.
                Some(_) if matches!(record.what, What::Assistant(_)) => {}
                Some(_) => {
                    return self.all[index]
                        .odd
                        .add("different records with the uuid of an earlier one");
                }
                None => {
                    self.seen.insert(uuid.clone(), (index, hash));
                }
            }
        }
        self.all[index].records.push(record);
    }

    fn session_of(&mut self, record: &Record) -> Option<usize> {
        // A record without a session id belongs to the session of its parent.
        let parent = record.parent.as_ref().and_then(|parent| self.seen.get(parent));
        let Some(id) = &record.session else {
            return parent.map(|(index, _)| *index).or(self.last);
        };
        if let Some(&index) = self.by_id.get(id) {
            return Some(index);
        }
        // The session resumes an earlier one in the same file, so both are one run.
        let index = parent.map_or(self.all.len(), |(index, _)| *index);
        if index == self.all.len() {
            self.all.push(Session::default());
        }
        self.all[index].ids.push(id.clone());
        self.by_id.insert(id.clone(), index);
        Some(index)
    }

    fn finish(mut self, place: &Place<'_>, sink: &mut Sink<'_>) {
        if self.all.is_empty() && !self.early.is_empty() {
            self.all.push(Session::default());
        }
        // The early records were written before the first session id, so they are its first
        // records.
        if let Some(first) = self.all.first_mut() {
            first.records.splice(0..0, self.early);
        }
        // A session with only metadata records, such as snapshots, is not a run.
        let is_run = |s: &Session| s.records.iter().any(|record| record.what.is_said());
        let (sessions, others): (Vec<_>, Vec<_>) = self.all.into_iter().partition(is_run);
        let mut unread = Tally::default();
        for record in others.iter().flat_map(|session| &session.records) {
            unread.add(record.kind());
        }
        let mut unread = unread.line("records of sessions without a message");
        if sessions.is_empty() {
            return sink(Err(Problem {
                file: place.file.to_owned(),
                at: None,
                kind: ProblemKind::NoTrajectory,
                what: unread.unwrap_or_else(|| "no record of a session".to_owned()),
            }));
        }
        let is_one = sessions.len() == 1;
        for session in sessions {
            let at = session.records.iter().find(|r| r.what.is_said()).map(|r| r.line);
            let mut run = assemble::run(session);
            run.notes.extend(unread.take());
            run.origin = Origin { at: if is_one { None } else { at }, ..Origin::default() };
            sink(Ok(run));
        }
    }
}

/// FNV-1a; distinguishes a repeated record from a different one with the same uuid.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
