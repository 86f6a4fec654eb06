//! Reads the outcomes of runs from a separate file, if the recordings do not contain them.
//!
//! ```
//! use endstop_trajectory::{Trajectory, read::Outcomes};
//! let mut outcomes = Outcomes::parse(r#"{"run-1": true, "run-2": 0.5, "gone": false}"#)?;
//! let mut run = Trajectory::new("run-1");
//! assert!(outcomes.apply(&mut run));
//! assert_eq!(run.recorded.success, Some(true));
//! assert_eq!(outcomes.unused(), 2);
//! # Ok::<(), endstop_trajectory::read::Problem>(())
//! ```
//!
//! The file is a JSON object from run id to a boolean, a number or `{"success", "reward"}`; lines
//! of `{"run_id" | "id", "success"?, "reward" | "score"?}`; or CSV with these names in its first line.
//! A number is a reward, and a reward of 1 or more is a success.

use crate::model::{Recorded, Trajectory};
use crate::read::problem::{Problem, ProblemKind};
use crate::read::stats::Position;
use endstop_core::bounded_json;
use memchr::memchr_iter;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// Maximum length of the file. A device such as `/dev/zero` has no end.
const LONGEST: u64 = 256 << 20;

/// The outcomes of runs, by run id.
#[derive(Clone, Debug, Default)]
pub struct Outcomes {
    known: HashMap<String, (Recorded, bool)>,
    missing: u64,
    missed: Vec<String>,
    /// The positions of the missed runs in the input.
    missed_at: Vec<Position>,
}

/// Returns `true` if a reward counts as success.
pub(crate) fn is_success(reward: f64) -> bool {
    // The tolerance allows for rewards that are averages or sums of floating-point numbers.
    reward >= 1.0 - 1e-6
}

impl Outcomes {
    /// Reads a file of outcomes.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is in none of the three forms, or contains a run twice.
    pub fn read(path: impl AsRef<Path>) -> Result<Outcomes, Problem> {
        let path = path.as_ref();
        let file = path.display().to_string();
        let mut text = String::new();
        File::open(path)
            .and_then(|file| file.take(LONGEST + 1).read_to_string(&mut text))
            .map_err(|error| {
                Problem::new(ProblemKind::Unreadable, format!("cannot be read: {error}"))
            })
            .and_then(|read| {
                let what = format!("longer than {} MiB, which is not read", LONGEST >> 20);
                let fits = read as u64 <= LONGEST;
                if fits { Ok(text) } else { Err(Problem::new(ProblemKind::TooLong, what)) }
            })
            .and_then(|text| Outcomes::parse(&text))
            .map_err(|problem| Problem { file, ..problem })
    }

    /// As [`Outcomes::read`], for the text of a file.
    ///
    /// # Errors
    ///
    /// As [`Outcomes::read`].
    pub fn parse(text: &str) -> Result<Outcomes, Problem> {
        let text = text.trim_start_matches('\u{feff}');
        let mut outcomes = Outcomes::default();
        if !text.trim_start().starts_with('{') {
            outcomes.csv(text)?;
            return Ok(outcomes);
        }
        // Checked before parsing, because parsing is what needs the memory.
        bounded_json::check(text.as_bytes(), bounded_json::MOST)
            .map_err(|heavy| Problem::new(ProblemKind::TooManyValues, heavy.to_string()))?;
        let objects = objects(text)?;
        // A run may have the id "id", so a single object is only treated as a line if it also has
        // `success` or `reward`.
        let lines = objects.len() > 1
            || objects.iter().any(|(_, Members(members))| {
                let object: Map<String, Value> = members.iter().cloned().collect();
                id_of(&object).is_some()
                    && object
                        .keys()
                        .any(|key| matches!(key.as_str(), "success" | "reward" | "score"))
            });
        for (at, Members(members)) in objects {
            if lines {
                let object = distinct(members).map_err(|what| at_line(at, &what))?;
                let Some(id) = id_of(&object) else {
                    return Err(at_line(at, "missing `run_id` or `id`"));
                };
                let recorded = of_object(&object).map_err(|what| at_line(at, &what))?;
                outcomes.add(id, recorded, Some(at))?;
                continue;
            }
            for (id, value) in members {
                let recorded = of_value(&value)
                    .map_err(|what| Problem::malformed(format!("run `{id}`: {what}")))?;
                outcomes.add(id, recorded, None)?;
            }
        }
        Ok(outcomes)
    }

    /// Overrides the outcome in a run's recording; returns `false` if there is no outcome for the
    /// run.
    pub fn apply(&mut self, run: &mut Trajectory<'_>) -> bool {
        // Runs that the caller applies itself follow those that have a position.
        self.apply_at(run, (u64::MAX, self.missing))
    }

    /// Like [`apply`](Outcomes::apply), for a run at this position of the input.
    pub(crate) fn apply_at(&mut self, run: &mut Trajectory<'_>, at: Position) -> bool {
        let Some((recorded, used)) = self.known.get_mut(&*run.run_id) else {
            self.missing += 1;
            // Five examples are enough for a report; the count above is exact.
            let place = self.missed_at.partition_point(|other| *other <= at);
            if place < 5 {
                self.missed_at.insert(place, at);
                self.missed.insert(place, run.run_id.to_string());
                self.missed_at.truncate(5);
                self.missed.truncate(5);
            }
            return false;
        };
        *used = true;
        run.recorded = Recorded {
            reward: recorded.reward.or(run.recorded.reward),
            success: recorded.success.or(run.recorded.success),
        };
        true
    }

    /// Returns the number of runs with an outcome.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Returns `true` if there are no outcomes.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Returns the number of runs that were looked up and not found.
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// Returns the ids of the first few runs that were not found.
    pub fn missed(&self) -> &[String] {
        &self.missed
    }

    /// Returns the number of outcomes that were never looked up.
    pub fn unused(&self) -> usize {
        self.known.values().filter(|(_, used)| !used).count()
    }

    /// Returns the ids of the outcomes that were never looked up, sorted.
    pub fn unused_ids(&self) -> Vec<&str> {
        let unused = self.known.iter().filter(|(_, (_, used))| !used);
        let mut ids: Vec<&str> = unused.map(|(id, _)| id.as_str()).collect();
        ids.sort_unstable();
        ids
    }

    fn add(&mut self, id: String, recorded: Recorded, at: Option<u64>) -> Result<(), Problem> {
        if self.known.contains_key(&id) {
            let what = format!("duplicate run `{id}`");
            return Err(Problem { at, ..Problem::malformed(what) });
        }
        self.known.insert(id, (recorded, false));
        Ok(())
    }

    fn csv(&mut self, text: &str) -> Result<(), Problem> {
        let mut rows = Rows { rest: text, at: 0 };
        let header = rows.next_row()?.unwrap_or_default();
        let column = |names: &[&str]| {
            header.iter().position(|cell| names.contains(&cell.trim().to_lowercase().as_str()))
        };
        let (id, success, reward) =
            (column(&["run_id", "id"]), column(&["success"]), column(&["reward", "score"]));
        let (Some(id), true) = (id, success.is_some() || reward.is_some()) else {
            return Err(Problem::malformed(
                "neither JSON nor CSV with the columns `run_id` and `success` or `reward`",
            ));
        };
        while let Some(row) = rows.next_row()? {
            if row.iter().all(|cell| cell.trim().is_empty()) {
                continue;
            }
            let cell = |column: Option<usize>| {
                column.and_then(|i| row.get(i)).map_or("", |cell| cell.trim())
            };
            if cell(Some(id)).is_empty() {
                return Err(at_line(rows.at, "missing run id"));
            }
            let reward = match cell(reward) {
                "" => None,
                text => Some(
                    text.parse::<f64>()
                        .ok()
                        // `NaN` and `inf` parse as numbers, and would distort every average.
                        .filter(|number| number.is_finite())
                        .ok_or_else(|| at_line(rows.at, "invalid `reward`: expected a number"))?,
                ),
            };
            let success = match cell(success).to_ascii_lowercase().as_str() {
                "" => reward.map(is_success),
                "true" | "1" | "yes" => Some(true),
                "false" | "0" | "no" => Some(false),
                _ => return Err(at_line(rows.at, "invalid `success`: expected `true` or `false`")),
            };
            self.add(cell(Some(id)).to_owned(), Recorded { reward, success }, Some(rows.at))?;
        }
        Ok(())
    }
}

/// The members of an object in order; unlike a map, it shows a name that occurs twice.
struct Members(Vec<(String, Value)>);

impl<'a> Deserialize<'a> for Members {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'a> Visitor<'a> for All {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<Members, M::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(All)
    }
}

/// Parses the objects of a text, each with the line at which it begins.
fn objects(text: &str) -> Result<Vec<(u64, Members)>, Problem> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Members>();
    let (mut objects, mut counted, mut at) = (Vec::new(), 0, 1);
    loop {
        let end = values.byte_offset();
        let begin = end + text[end..].len() - text[end..].trim_start().len();
        at += memchr_iter(b'\n', &text.as_bytes()[counted..begin]).count() as u64;
        counted = begin;
        match values.next() {
            None => return Ok(objects),
            Some(object) => objects.push((at, object.map_err(|e| Problem::json(&e))?)),
        }
    }
}

/// Returns the members of a line as a map, which would only hold the last of two contradictory ones.
fn distinct(members: Vec<(String, Value)>) -> Result<Map<String, Value>, String> {
    let mut object = Map::new();
    for (name, value) in members {
        let is_read = matches!(name.as_str(), "run_id" | "id" | "success" | "reward" | "score");
        if is_read && object.contains_key(&name) {
            return Err(format!("duplicate `{name}`"));
        }
        object.insert(name, value);
    }
    Ok(object)
}

fn at_line(at: u64, what: &str) -> Problem {
    Problem { at: Some(at), ..Problem::malformed(what) }
}

fn id_of(object: &Map<String, Value>) -> Option<String> {
    match object.get("run_id").or_else(|| object.get("id"))? {
        Value::String(id) => Some(id.clone()),
        Value::Number(id) => Some(id.to_string()),
        _ => None,
    }
}

fn of_value(value: &Value) -> Result<Recorded, String> {
    match value {
        Value::Bool(success) => Ok(Recorded { reward: None, success: Some(*success) }),
        Value::Number(number) => {
            let reward = number.as_f64();
            Ok(Recorded { reward, success: reward.map(is_success) })
        }
        Value::Object(object) => of_object(object),
        Value::Null => Ok(Recorded::default()),
        _ => Err("expected a boolean, a number or an object".to_owned()),
    }
}

fn of_object(object: &Map<String, Value>) -> Result<Recorded, String> {
    let number = |name: &str| match object.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            value.as_f64().map(Some).ok_or_else(|| format!("invalid `{name}`: expected a number"))
        }
    };
    let reward = match (number("reward")?, object.get("success")) {
        // CSV has the same two names. A score that is the only outcome must not be lost in silence.
        (None, None | Some(Value::Null)) => number("score")?,
        (None, _) => object.get("score").and_then(Value::as_f64),
        (reward, _) => reward,
    };
    let success = match object.get("success") {
        None | Some(Value::Null) => reward.map(is_success),
        Some(Value::Bool(success)) => Some(*success),
        Some(_) => return Err("invalid `success`: expected a boolean".to_owned()),
    };
    Ok(Recorded { reward, success })
}

/// A CSV parser. Quoted cells may contain commas, quotes and line breaks.
struct Rows<'t> {
    rest: &'t str,
    at: u64,
}

impl Rows<'_> {
    fn next_row(&mut self) -> Result<Option<Vec<String>>, Problem> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        self.at += 1;
        let from = self.at;
        let (mut cells, mut cell, mut quoted) = (Vec::new(), String::new(), false);
        let mut chars = self.rest.char_indices().peekable();
        while let Some((i, c)) = chars.next() {
            match c {
                // Two quotes inside a quoted cell are one literal quote.
                '"' if quoted && chars.next_if(|(_, next)| *next == '"').is_some() => {
                    cell.push('"');
                }
                '"' if quoted => quoted = false,
                '"' if cell.is_empty() => quoted = true,
                '\n' if quoted => {
                    // Lines are counted inside cells too, so that problems name the right line.
                    self.at += 1;
                    cell.push(c);
                }
                _ if quoted => cell.push(c),
                ',' => cells.push(std::mem::take(&mut cell)),
                '\n' => {
                    self.rest = &self.rest[i + 1..];
                    cells.push(cell);
                    return Ok(Some(cells));
                }
                // Lines may end with CRLF.
                '\r' => {}
                _ => cell.push(c),
            }
        }
        self.rest = "";
        if quoted {
            return Err(Problem { kind: ProblemKind::Half, ..at_line(from, "unterminated quote") });
        }
        cells.push(cell);
        Ok(Some(cells))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(text: &str) -> Vec<(String, Option<f64>, Option<bool>)> {
        let outcomes = Outcomes::parse(text).unwrap();
        let mut list: Vec<_> =
            outcomes.known.iter().map(|(id, (r, _))| (id.clone(), r.reward, r.success)).collect();
        list.sort_by(|a, b| a.0.cmp(&b.0));
        list
    }

    #[test]
    fn three_forms_give_same_outcomes() {
        let want = vec![
            ("a".to_owned(), Some(1.0), Some(true)),
            ("b, \"x\"".to_owned(), Some(0.5), Some(false)),
            ("c".to_owned(), None, Some(true)),
        ];
        assert_eq!(known(r#"{"a": 1, "b, \"x\"": {"reward": 0.5}, "c": true}"#), want);
        let lines = "{\"run_id\": \"a\", \"reward\": 1.0}\n{\"id\": \"b, \\\"x\\\"\", \"reward\": 0.5, \
                     \"success\": false}\r\n\n{\"id\": \"c\", \"success\": true}\n";
        assert_eq!(known(lines), want);
        let csv = "run_id,success,reward\r\na,,1\n\"b, \"\"x\"\"\",no,0.5\nc,TRUE,\n";
        assert_eq!(known(csv), want);
    }

    #[test]
    fn unmatched_runs_and_outcomes_are_counted() {
        let mut outcomes = Outcomes::parse(r#"{"a": 0.9999999, "b": false}"#).unwrap();
        let mut run = Trajectory::new("a");
        assert!(outcomes.apply(&mut run));
        assert_eq!(run.recorded.success, Some(true), "within a millionth of 1");
        assert!(!outcomes.apply(&mut Trajectory::new("x")));
        assert_eq!((outcomes.missing(), outcomes.missed()), (1, &["x".to_owned()][..]));
        assert_eq!(outcomes.unused_ids(), ["b"]);
    }

    #[test]
    fn invalid_outcomes_are_refused() {
        for (text, what) in [
            ("", "neither JSON nor CSV"),
            ("hello", "neither JSON nor CSV"),
            ("run_id,success\na,maybe", "`success`"),
            ("run_id,reward\na,nan", "`reward`"),
            ("run_id,reward\n\"a,1", "unterminated"),
            ("run_id,reward\na,1\na,0", "duplicate"),
            (r#"{"a": "yes"}"#, "expected a boolean"),
            (r#"{"a": {"success": 1}}"#, "expected a boolean"),
            ("{\"id\": \"a\", \"reward\": 1}\n{\"reward\": 1}", "missing `run_id`"),
            ("{\"a\": 1", "EOF"),
        ] {
            let problem = Outcomes::parse(text).unwrap_err();
            assert!(problem.what.contains(what), "{text:?}: {problem}");
        }
    }
}
