//! Lines of a file that are JSON objects, and files that are one JSON object.
//!
//! ```text
//! let mut records = Records::new(bytes, file, is_record);
//! for line in lines(bytes) { let (objects, problem) = records.of(line); … }
//! ```

use super::truncated::is_half;
use crate::read::build::fields::{Fields, kind_of};
use crate::read::format::{Head, Place, Sink};
use crate::read::problem::{Problem, ProblemKind};
use endstop_core::bounded_json;
use serde::de::IgnoredAny;
use serde_json::Value;

/// Number of bytes of a damaged line that are read in vain in search of records, for each byte of the line.
const EFFORT: usize = 16;

/// A line of a file.
#[derive(Clone, Copy)]
pub(crate) struct Line<'a> {
    /// The line number, from 1.
    pub(crate) at: u64,
    pub(crate) bytes: &'a [u8],
    /// `true` if the line ends with a line break.
    pub(crate) ended: bool,
}

impl Line<'_> {
    /// Parses the line as a JSON object.
    pub(crate) fn object(&self, file: &str) -> Result<Fields, Problem> {
        match bounded_json::from_slice(self.bytes) {
            Ok(Value::Object(map)) => Ok(map),
            Ok(other) => {
                let found = kind_of(&other);
                let what = format!("invalid record: expected a JSON object, found {found}");
                let (file, at) = (file.to_owned(), Some(self.at));
                Err(Problem { file, at, kind: ProblemKind::Malformed, what })
            }
            Err(error) => Err(self.problem(file, &error)),
        }
    }

    fn problem(&self, file: &str, error: &serde_json::Error) -> Problem {
        // The last line is incomplete if the file is still being written or its writer crashed.
        let (kind, what) = if !self.ended && error.is_eof() {
            (ProblemKind::Half, "truncated record".to_owned())
        } else {
            (ProblemKind::Malformed, format!("invalid JSON: {error}"))
        };
        Problem { file: file.to_owned(), at: Some(self.at), kind, what }
    }
}

/// Reads the records of a file of lines.
pub(crate) struct Records<'p> {
    file: &'p str,
    /// Returns `true` if an object is a record of the format, and not a part of one.
    is_record: fn(&Fields) -> bool,
    /// The memory that values may still take; `None` if the file is too light to need a count.
    room: Option<u64>,
    /// `true` once the records so far have used up the memory, so that the rest of the file is not read.
    is_full: bool,
}

impl<'p> Records<'p> {
    pub(crate) fn new(bytes: &[u8], file: &'p str, is_record: fn(&Fields) -> bool) -> Records<'p> {
        let is_heavy = bounded_json::check(bytes, bounded_json::MOST).is_err();
        Records { file, is_record, room: is_heavy.then_some(bounded_json::MOST), is_full: false }
    }

    /// Parses a line, and returns each record with its bytes. Of a damaged line, returns the whole records in it, and the problem: a writer that
    /// was killed leaves a part of a record, and the next one writes its record behind it.
    pub(crate) fn of<'l>(&mut self, line: Line<'l>) -> (Vec<(Fields, &'l [u8])>, Option<Problem>) {
        if self.is_full {
            return (Vec::new(), None);
        }
        let problem = match self.record(line) {
            Ok(map) => return (vec![(map, line.bytes)], None),
            Err(problem) => problem,
        };
        let mut found = Vec::new();
        if problem.kind == ProblemKind::TooManyValues {
            return (found, Some(problem));
        }
        let (mut from, mut effort) = (0, EFFORT.saturating_mul(line.bytes.len()));
        for (begin, end) in objects_in(line.bytes) {
            // An object that was read contains no record.
            if begin < from {
                continue;
            }
            let room = self.room;
            let object = Line { bytes: &line.bytes[begin..end], ..line };
            // The syntax first: the check takes no memory, and ends at the first error.
            let lost = match serde_json::from_slice::<IgnoredAny>(object.bytes) {
                Err(error) => error.column(),
                Ok(_) => match self.record(object) {
                    Ok(map) => {
                        from = end;
                        let is_value = value_is_due(&line.bytes[..begin]);
                        if !map.is_empty() && (!is_value || (self.is_record)(&map)) {
                            found.push((map, object.bytes));
                        } else {
                            self.room = room;
                        }
                        continue;
                    }
                    Err(_) => object.bytes.len(),
                },
            };
            // The search takes linear time, whatever the line contains.
            let Some(rest) = effort.checked_sub(lost) else { break };
            effort = rest;
        }
        (found, Some(problem))
    }

    fn record(&mut self, line: Line<'_>) -> Result<Fields, Problem> {
        let Some(room) = &mut self.room else { return line.object(self.file) };
        let weight = bounded_json::weight(line.bytes);
        if weight <= *room {
            let map = line.object(self.file)?;
            *room -= weight;
            return Ok(map);
        }
        // A damaged line has no values.
        if let Err(error) = serde_json::from_slice::<IgnoredAny>(line.bytes) {
            return Err(line.problem(self.file, &error));
        }
        // A line that is too heavy alone loses only itself.
        self.is_full = weight <= bounded_json::MOST;
        let lost =
            if self.is_full { "this line and those after it are not read" } else { "not read" };
        let what = format!(
            "too many values: they need {weight} bytes in memory, and {room} are left; {lost}"
        );
        let (file, at) = (self.file.to_owned(), Some(line.at));
        Err(Problem { file, at, kind: ProblemKind::TooManyValues, what })
    }
}

/// Returns `true` if a value follows this text within a record. An object that stands there may be a part of
/// a record that was cut later, or the next record after one that was cut here.
fn value_is_due(before: &[u8]) -> bool {
    matches!(before.trim_ascii_end().last(), Some(b':' | b',' | b'['))
}

/// Returns the begin and the end of each object in a damaged text, in the order of their begins.
///
/// A cut may have left the text within a string or outside of one, so both are tried at once: the open
/// objects of each. An object begins outside of strings, whatever precedes it.
fn objects_in(bytes: &[u8]) -> Vec<(usize, usize)> {
    let (mut outside, mut inside): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
    let (mut found, mut escaped) = (Vec::new(), false);
    for (at, byte) in bytes.iter().enumerate() {
        let was_escaped = std::mem::take(&mut escaped);
        match byte {
            b'"' if !was_escaped => std::mem::swap(&mut outside, &mut inside),
            b'\\' => {
                // JSON has no backslash outside of strings.
                outside.clear();
                escaped = !was_escaped;
            }
            b'{' => outside.push(at),
            b'}' => found.extend(outside.pop().map(|begin| (begin, at + 1))),
            _ => {}
        }
    }
    found.sort_unstable();
    found
}

/// Iterates over the lines that are not blank.
pub(crate) fn lines(bytes: &[u8]) -> impl Iterator<Item = Line<'_>> {
    // A byte order mark is not JSON.
    let mut rest = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    let mut at = 0;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            at += 1;
            let (line, ended) = match memchr::memchr(b'\n', rest) {
                Some(end) => {
                    let line = &rest[..end];
                    rest = &rest[end + 1..];
                    (line, true)
                }
                None => (std::mem::take(&mut rest), false),
            };
            let line = line.trim_ascii();
            if !line.is_empty() {
                return Some(Line { at, bytes: line, ended });
            }
        }
        None
    })
}

/// Passes the object of each line to `take`, and reports to the sink each line that is not an
/// object or that `take` rejects with a reason. `is_record` recognises a record in a damaged line.
pub(crate) fn each_object(
    bytes: &[u8],
    place: &Place<'_>,
    sink: &mut Sink<'_>,
    is_record: fn(&Fields) -> bool,
    mut take: impl FnMut(Fields) -> Result<(), String>,
) {
    let mut records = Records::new(bytes, place.file, is_record);
    for line in lines(bytes) {
        let (objects, damaged) = records.of(line);
        let refused = objects.into_iter().filter_map(|(map, _)| take(map).err());
        let refused = refused.map(|what| Problem {
            file: place.file.to_owned(),
            at: Some(line.at),
            kind: ProblemKind::Malformed,
            what,
        });
        for problem in refused.chain(damaged) {
            sink(Err(problem));
        }
    }
}

/// Parses a record as a JSON object.
pub(crate) fn record(bytes: &[u8]) -> Result<Fields, Problem> {
    match bounded_json::from_slice(bytes) {
        Ok(Value::Object(record)) => Ok(record),
        Ok(other) => {
            let found = kind_of(&other);
            Err(Problem::malformed(format!("invalid run: expected an object, found {found}")))
        }
        // Reported as truncated, because serde's message would only name the missing token.
        Err(_) if is_half(bytes) => Err(Problem::half(bytes)),
        Err(error) => Err(Problem::json(&error)),
    }
}

/// Creates the problem for a file that contains nothing of the format it was recognised as.
pub(crate) fn nothing(place: &Place<'_>, what: &str) -> Problem {
    Problem {
        file: place.file.to_owned(),
        at: None,
        kind: ProblemKind::NoTrajectory,
        what: what.to_owned(),
    }
}

/// Number of lines that most formats are recognised by.
const FIRST: usize = 20;
/// Number of lines after them that a format with rare records is recognised by.
const MORE: usize = 30;

/// Returns the objects of the first lines of a file, without the lines that are not objects.
pub(crate) fn first_objects<'h>(head: &'h Head<'_>) -> &'h [Fields] {
    head.objects.get_or_init(|| {
        let mut found: Vec<Fields> = objects(lines(head.bytes).take(FIRST));
        // A pretty-printed document has no line that is an object, so use the parsed first value.
        if found.is_empty()
            && let Some(Value::Object(map)) = head.first
        {
            found.push(map.clone());
        }
        found
    })
}

/// Returns the objects of the lines after those of [`first_objects`].
pub(crate) fn more_objects<'h>(head: &'h Head<'_>) -> &'h [Fields] {
    head.more_objects.get_or_init(|| objects(lines(head.bytes).skip(FIRST).take(MORE)))
}

fn objects<'l>(lines: impl Iterator<Item = Line<'l>>) -> Vec<Fields> {
    lines.filter_map(|line| line.object("").ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records_of(
        line: &str,
        is_record: fn(&Fields) -> bool,
    ) -> (Vec<(Fields, &[u8])>, Option<Problem>) {
        let line = Line { at: 1, bytes: line.as_bytes(), ended: true };
        Records::new(line.bytes, "f", is_record).of(line)
    }

    #[test]
    fn damaged_line_loses_only_itself() {
        let whole = r#"{"a":{"b":"}{\"c\":1}"},"d":[{"e":2}]}"#;
        let spaced = r#"{ "a" : { "b" : "}}}{{x{" } , "d" : [ { } ] }"#;
        let cut = r#"{"type":"x","text":"fn() { \"y\" }"#;
        for (line, found) in [
            (whole.to_owned(), 1),
            (format!("{whole}{whole}"), 2),
            (format!("{whole} {whole}"), 2),
            (whole.repeat(101), 101),
            (format!("{{\"cut\":\"{}", whole.repeat(101)), 101),
            (format!("{{\"type\":\"x\",\"n{whole}"), 1),
            (format!("{{\"type\":\"x\",\"text\":\"cut{whole}{whole}"), 2),
            (format!("\0\0\0{whole}"), 1),
            (format!("{whole}\0\0"), 1),
            (format!("{whole}{{\"cut\":"), 1),
            (format!("oops {whole} oops"), 1),
            // Where a value is due, the record counts as well.
            (format!("{{\"cut\":{whole}"), 1),
            (format!("{{\"cut\": {whole}"), 1),
            (format!("{{\"cut\":1,{whole}"), 1),
            (format!("{{\"cut\":[{whole}"), 1),
            (format!("{{\"cut\":[{{\"id\":1}},{whole}"), 1),
            (format!("{{\"cut\":{{\"id\":{whole}{whole}"), 2),
            (format!("{{\"cut\":\"note:{whole}"), 1),
            (format!("{{\"cut\":\"note\\{whole}"), 1),
            (format!("{{\"cut\":{{{whole}"), 1),
            // White space within the record.
            (format!("{{\"cut\":\"{spaced}"), 1),
            (format!("{{\"cut\":[{spaced}{whole}"), 2),
            (format!("{{\"cut\":1,{}", spaced.replace(' ', "\t")), 1),
            // Any number of fragments.
            (format!("{}{whole}", "{\"cut\":\"".repeat(70)), 1),
            (format!("{}{whole}", "{\"cut\":".repeat(999)), 1),
            (format!("{}{spaced}", "{\"cut\":[{\"id\":1},".repeat(1_000)), 1),
            (format!("{}{whole}", cut.repeat(1_001)), 1),
            (format!("{}{whole}{whole}", format!("{cut}\\").repeat(1_002)), 2),
            // A part of a cut record is not a record.
            (r#"{"type":"x","message":{"id":1}"#.to_owned(), 0),
            (r#"{"type":"x","list":[{"id":1},{"id":2}"#.to_owned(), 0),
            (r#"{ "type" : "x" , "list" : [ { "id" : 1 } , { "id" : 2 }"#.to_owned(), 0),
            (r#"{"type":"x","text":"as \"{\"id\":1}\" says"#.to_owned(), 0),
            (r#""text": "no record""#.to_owned(), 0),
            (r#"{"type":"x","empty":{}"#.to_owned(), 0),
        ] {
            let (objects, problem) = records_of(&line, |map| map.contains_key("d"));
            assert_eq!(objects.len(), found, "{line}");
            assert_eq!(problem.is_none(), line == whole, "{line}");
        }
    }

    #[test]
    fn hostile_line_is_searched_in_linear_time() {
        const MANY: usize = 200_000;
        for (line, found) in [
            ("{\"a\":\"".repeat(MANY), 0),
            ("{\"a\":".repeat(MANY), 0),
            ("{".repeat(MANY), 0),
            ("{\"a\":{\\\"".repeat(MANY), 0),
            ("{\"a\":{}".repeat(MANY), 0),
            (format!("{}{}", "{\"a\":".repeat(MANY), "}".repeat(MANY)), 0),
            (format!("{}1{}", "{\"a\":".repeat(MANY), "}".repeat(MANY)), 0),
            (format!("{}\"{}", "{\"a\":\"".repeat(MANY), "}".repeat(MANY)), 1),
            (format!("{}{}", "{\"a\":\"".repeat(MANY), r#"{"d":1}"#), 1),
        ] {
            let (objects, _) = records_of(&line, |map| map.contains_key("d"));
            assert_eq!(objects.len(), found, "{:?}", &line[..20]);
        }
    }

    #[test]
    fn unterminated_last_line_is_half() {
        let kinds: Vec<_> = lines(b"{\"a\":1}\n\n{\"a\":\n7\n{\"a\":")
            .map(|line| (line.at, line.object("f").map_err(|p| p.kind).err()))
            .collect();
        assert_eq!(
            kinds,
            [
                (1, None),
                (3, Some(ProblemKind::Malformed)),
                (4, Some(ProblemKind::Malformed)),
                (5, Some(ProblemKind::Half)),
            ]
        );
    }
}
