//! Finds the end of the history that a forked session repeats.
//!
//! ```text
//! session_meta (own)  session_meta (of the other session)  its lines …  │  own lines …
//! ```
//!
//! Codex writes the lines of the other session again, with new times, and then its own. The first mark that
//! the file has decides:
//!
//! 1. Ordinals: the own history begins at `subagent_history_start_ordinal`. A session with a
//!    `history_base` repeats nothing: it refers to the lines of the other one.
//! 2. Turns: ids of version 7 contain their time, and `task_started` has it in `started_at`. The turns
//!    before the session are not its own.
//! 3. The file of the other session: the lines that both files have. Those that it has from after the fork
//!    do not count.
//! 4. Times before the session: lines that were repeated as they were.
//! 5. The session's own record, again after that of the other one.
//! 6. Pauses. Lines that are repeated are written without one, and no model answers without one.
//!
//! Lines without any mark are the session's own.

use crate::read::build::fields::{Fields, peek};
use crate::read::io::json_lines;
use crate::time::unix_ms;
use serde_json::Value;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Time within which no model answers, in milliseconds.
const PAUSE_MS: i64 = 100;

/// The beginning of a session that may repeat another one.
#[derive(Default)]
pub(super) struct Own {
    id: Option<String>,
    /// The session that was forked.
    from: Option<String>,
    /// The time of the record, in milliseconds.
    at: Option<i64>,
    /// The first own ordinal.
    start: Option<u64>,
    /// The repeated lines are only referred to.
    refers: bool,
    marks: Option<Vec<Mark>>,
}

/// A line, and the number of steps and paid calls before it.
struct Mark {
    steps: usize,
    outside: usize,
    at: Option<i64>,
    ordinal: Option<u64>,
    sign: Sign,
}

/// The place at which the own history begins.
pub(super) struct Begin {
    /// Number of lines, steps and paid calls before it.
    pub(super) lines: usize,
    pub(super) steps: usize,
    pub(super) outside: usize,
}

/// What a line shows. The hashes are equal for the same line in two files.
#[derive(Clone, Copy)]
enum Sign {
    /// A session record; `true` if it is the own one.
    Session(bool),
    /// The begin of a turn: whether it is an own one, and its id.
    Turn(Option<bool>, Option<u64>),
    /// A message of the user, or a result.
    Request(Option<u64>),
    /// An item of a response.
    Response(Option<u64>),
    Tokens(u64),
    Other,
}

impl Own {
    /// Takes the first session record of the file.
    pub(super) fn new(session: &Fields, at: Option<i64>) -> Own {
        let text = |key| peek(session, key).map(str::to_owned);
        let start = session.get("subagent_history_start_ordinal").and_then(Value::as_u64);
        let from = text("forked_from_id");
        let mut own = Own {
            id: text("id").or_else(|| text("session_id")),
            at,
            start,
            refers: start.is_none() && session.get("history_base").is_some_and(Value::is_object),
            ..Own::default()
        };
        if from.is_some() || start.is_some() {
            own.repeats(from);
        }
        own
    }

    /// Takes a further session record that precedes all steps.
    pub(super) fn another(&mut self, session: &Fields) {
        let id = peek(session, "id");
        if id.is_some() && id != self.id.as_deref() {
            self.repeats(id.map(str::to_owned));
        }
    }

    fn repeats(&mut self, from: Option<String>) {
        if !self.refers {
            self.from = self.from.take().or(from);
            self.marks.get_or_insert_default();
        }
    }

    /// Returns `true` if the file may repeat another session.
    pub(super) fn is_fork(&self) -> bool {
        self.marks.is_some()
    }

    /// Returns the number of lines that were noted.
    pub(super) fn lines(&self) -> usize {
        self.marks.as_ref().map_or(0, Vec::len)
    }

    /// Notes a line of a session that may repeat another one.
    pub(super) fn note(
        &mut self,
        (kind, payload): (&str, &Fields),
        (at, ordinal): (Option<i64>, Option<u64>),
        (steps, outside): (usize, usize),
    ) {
        if self.marks.is_some() {
            let sign = self.sign(kind, payload);
            let mark = Mark { steps, outside, at, ordinal, sign };
            self.marks.get_or_insert_default().push(mark);
        }
    }

    fn sign(&self, kind: &str, payload: &Fields) -> Sign {
        let event = peek(payload, "type").unwrap_or_default();
        match (kind, event) {
            ("session_meta", _) => Sign::Session(peek(payload, "id") == self.id.as_deref()),
            ("turn_context", _) | ("event_msg", "task_started" | "turn_started") => {
                let id = peek(payload, "turn_id");
                Sign::Turn(
                    self.is_own_turn(id, payload.get("started_at")),
                    id.map(|id| hash(&[id])),
                )
            }
            ("event_msg", "token_count") => {
                let total = payload.get("info").and_then(|info| info.get("total_token_usage"));
                total.map_or(Sign::Other, |total| Sign::Tokens(hash(&[&total.to_string()])))
            }
            ("token_usage_record", _) => payload
                .get("thread_token_usage")
                .map_or(Sign::Other, |total| Sign::Tokens(hash(&[&total.to_string()]))),
            ("response_item", "message") => {
                let content = payload.get("content").map(Value::to_string).unwrap_or_default();
                match peek(payload, "role") {
                    Some("assistant") => Sign::Response(Some(hash(&["said", &content]))),
                    Some("user") => Sign::Request(Some(hash(&["asked", &content]))),
                    _ => Sign::Other,
                }
            }
            ("response_item", item) if item.ends_with("_output") => Sign::Request(None),
            ("response_item", item) if item.ends_with("_call") => {
                let of = |key: &str| payload.get(key).map(Value::to_string).unwrap_or_default();
                let asked = ["call_id", "name", "arguments", "input", "action"].map(of);
                Sign::Response(Some(hash(&asked.each_ref().map(String::as_str))))
            }
            // Its text is encrypted, or left out.
            ("response_item", "reasoning") => Sign::Response(None),
            _ => Sign::Other,
        }
    }

    /// Returns whether a turn began in this session; `None` if neither its id nor its time shows it.
    fn is_own_turn(&self, id: Option<&str>, started_at: Option<&Value>) -> Option<bool> {
        if let Some((turn, own)) = id.and_then(uuid_ms).zip(self.id.as_deref().and_then(uuid_ms)) {
            return Some(turn >= own);
        }
        // The time is in whole seconds, so one within the same second shows nothing.
        let (started, own) = (started_at?.as_f64()?.floor(), self.at?.div_euclid(1000));
        #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are below 2^53")]
        let own = own as f64;
        let order = started.partial_cmp(&own).filter(|order| order.is_ne());
        order.map(Ordering::is_gt)
    }

    /// Returns the begin of the own history; `None` if nothing is repeated. `file_of` reads the file of a
    /// session.
    pub(super) fn begin(&self, file_of: &dyn Fn(&str) -> Option<Vec<u8>>) -> Option<Begin> {
        let marks = self.marks.as_deref()?;
        let lines = by_ordinals(marks, self.start)
            .or_else(|| by_turns(marks))
            .or_else(|| self.by_other_file(marks, &file_of(self.from.as_deref()?)?))
            .or_else(|| by_times(marks, self.at?))
            .or_else(|| by_own_record(marks))
            .or_else(|| by_pauses(marks, self.at))?;
        let mark = marks.get(lines);
        Some(Begin {
            lines,
            steps: mark.map_or(usize::MAX, |mark| mark.steps),
            outside: mark.map_or(usize::MAX, |mark| mark.outside),
        })
    }

    /// Compares the lines with those of the other session.
    fn by_other_file(&self, marks: &[Mark], file: &[u8]) -> Option<usize> {
        let mut places: HashMap<u64, Vec<usize>> = HashMap::new();
        let (mut count, mut last) = (0, None);
        for line in json_lines::lines(file) {
            let Ok(map) = line.object("") else { continue };
            let at = peek(&map, "timestamp").and_then(unix_ms);
            // Written after the fork.
            if at.zip(self.at).is_some_and(|(at, fork)| at > fork) {
                break;
            }
            let Some(payload) = map.get("payload").and_then(Value::as_object) else { continue };
            let sign = self.sign(peek(&map, "type").unwrap_or_default(), payload);
            if let Some(hash) = sign.hash().filter(|hash| !sign.repeats(*hash, &mut last)) {
                places.entry(hash).or_default().push(count);
                count += 1;
            }
        }
        let (mut next, mut response, mut last, mut any) = (0, None, None, false);
        for (at, mark) in marks.iter().enumerate() {
            match mark.sign {
                Sign::Response(_) => response = response.or(Some(at)),
                Sign::Turn(..) | Sign::Request(_) | Sign::Session(_) => response = None,
                Sign::Tokens(_) | Sign::Other => {}
            }
            let Some(hash) = mark.sign.hash().filter(|hash| !mark.sign.repeats(*hash, &mut last))
            else {
                continue;
            };
            let here = places.get(&hash).map_or(&[][..], Vec::as_slice);
            match here.get(here.partition_point(|place| *place < next)) {
                Some(place) => (next, any) = (place + 1, true),
                // The items of a response precede its count.
                None => return any.then(|| response.unwrap_or(at)),
            }
            if let Sign::Tokens(_) = mark.sign {
                response = None;
            }
        }
        any.then_some(marks.len())
    }
}

impl Sign {
    const fn hash(self) -> Option<u64> {
        match self {
            Sign::Turn(_, hash) | Sign::Request(hash) | Sign::Response(hash) => hash,
            Sign::Tokens(hash) => Some(hash),
            Sign::Session(_) | Sign::Other => None,
        }
    }

    /// Returns `true` if a line has the count or the turn of the one before it.
    fn repeats(self, hash: u64, last: &mut Option<u64>) -> bool {
        matches!(self, Sign::Tokens(_) | Sign::Turn(..)) && last.replace(hash) == Some(hash)
    }
}

fn by_ordinals(marks: &[Mark], start: Option<u64>) -> Option<usize> {
    let start = start?;
    let is_own = |mark: &Mark| mark.ordinal.is_some_and(|ordinal| ordinal >= start);
    let is_counted = marks.iter().any(|mark| mark.ordinal.is_some());
    is_counted.then(|| marks.iter().position(is_own).unwrap_or(marks.len()))
}

fn by_turns(marks: &[Mark]) -> Option<usize> {
    let known =
        |own: bool| move |mark: &Mark| matches!(mark.sign, Sign::Turn(Some(is), _) if is == own);
    let last = marks.iter().rposition(known(false)).map_or(0, |last| last + 1);
    let own = marks[last..].iter().position(known(true)).map(|at| last + at);
    own.or_else(|| (last > 0).then_some(marks.len()))
}

fn by_times(marks: &[Mark], own: i64) -> Option<usize> {
    Some(marks.iter().rposition(|mark| mark.at.is_some_and(|at| at < own))? + 1)
}

fn by_own_record(marks: &[Mark]) -> Option<usize> {
    let other = marks.iter().position(|mark| matches!(mark.sign, Sign::Session(false)))?;
    let own = marks[other..].iter().position(|mark| matches!(mark.sign, Sign::Session(true)))?;
    Some(other + own)
}

fn by_pauses(marks: &[Mark], own: Option<i64>) -> Option<usize> {
    if marks.iter().all(|mark| mark.at.is_none()) {
        return None;
    }
    // The lines since the last response belong to the next one.
    let (mut begin, mut before, mut paused) = (0, own, false);
    for (at, mark) in marks.iter().enumerate() {
        paused |= mark.at.zip(before).is_some_and(|(at, before)| at - before >= PAUSE_MS);
        before = mark.at.or(before);
        match mark.sign {
            Sign::Response(_) | Sign::Tokens(_) if paused => return Some(begin),
            Sign::Response(_) | Sign::Tokens(_) => begin = at + 1,
            // The lines of the other session follow.
            Sign::Session(false) => paused = false,
            Sign::Session(true) | Sign::Turn(..) | Sign::Request(_) | Sign::Other => {}
        }
    }
    Some(marks.len())
}

/// Returns the time in an id of version 7, in milliseconds.
fn uuid_ms(id: &str) -> Option<u64> {
    let digits = id.replace('-', "");
    let is_uuid = id.len() == 36 && digits.len() == 32 && digits.as_bytes()[12] == b'7';
    // An id may contain characters of several bytes.
    is_uuid.then(|| u64::from_str_radix(digits.get(..12)?, 16).ok()).flatten()
}

fn hash(parts: &[&str]) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}
