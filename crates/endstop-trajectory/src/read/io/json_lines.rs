//! Lines of a file that are JSON objects, and files that are one JSON object.
//!
//! ```text
//! for line in lines(bytes) { … line.object()? … }
//! ```

use super::truncated::is_half;
use crate::read::build::fields::{Fields, kind_of};
use crate::read::format::{Head, Place, Sink};
use crate::read::problem::{Problem, ProblemKind};
use endstop_core::bounded_json;
use serde_json::Value;

/// Number of places of a damaged line at which a whole record is looked for in vain.
const MOST_TRIES: usize = 64;

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
    /// Parses the line. Of a damaged line, returns the whole records in it, and the problem: a writer that
    /// was killed leaves a part of a record, and the next one writes its record behind it.
    pub(crate) fn objects(&self, file: &str) -> (Vec<Fields>, Option<Problem>) {
        let problem = match self.object(file) {
            Ok(map) => return (vec![map], None),
            Err(problem) => problem,
        };
        let (mut found, mut at, mut tries) = (Vec::new(), 0, 0);
        while let Some(begin) = next_record(self.bytes, at).filter(|_| tries < MOST_TRIES) {
            let end = object_end(&self.bytes[begin..]).map(|end| begin + end);
            let record = end.map(|end| Line { bytes: &self.bytes[begin..end], ..*self });
            let map = record.and_then(|record| record.object(file).ok());
            if let (Some(map), Some(end)) = (map, end) {
                found.push(map);
                at = end;
            } else {
                tries += 1;
                at = begin + 1;
            }
        }
        (found, Some(problem))
    }

    /// Parses the line as a JSON object.
    pub(crate) fn object(&self, file: &str) -> Result<Fields, Problem> {
        let problem = |kind, what: String| {
            Err(Problem { file: file.to_owned(), at: Some(self.at), kind, what })
        };
        match bounded_json::from_slice(self.bytes) {
            Ok(Value::Object(map)) => Ok(map),
            Ok(other) => problem(
                ProblemKind::Malformed,
                format!("invalid record: expected a JSON object, found {}", kind_of(&other)),
            ),
            // The last line is incomplete if the file is still being written or its writer crashed.
            Err(e) if !self.ended && e.is_eof() => {
                problem(ProblemKind::Half, "truncated record".to_owned())
            }
            Err(e) => problem(ProblemKind::Malformed, format!("invalid JSON: {e}")),
        }
    }
}

/// Returns the next place at which a record may begin: an object that is not a member or an element of
/// another value.
fn next_record(bytes: &[u8], from: usize) -> Option<usize> {
    memchr::memmem::find_iter(&bytes[from..], b"{\"").map(|at| from + at).find(|at| {
        let before = bytes[..*at].trim_ascii_end().last();
        !before.is_some_and(|before| matches!(before, b':' | b',' | b'['))
    })
}

/// Returns the end of the object that the text begins with.
fn object_end(bytes: &[u8]) -> Option<usize> {
    let (mut depth, mut quoted, mut escaped) = (0_u32, false, false);
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' if !quoted => depth += 1,
            b'}' if !quoted => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
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
/// object or that `take` rejects with a reason.
pub(crate) fn each_object(
    bytes: &[u8],
    place: &Place<'_>,
    sink: &mut Sink<'_>,
    mut take: impl FnMut(Fields) -> Result<(), String>,
) {
    for line in lines(bytes) {
        let (objects, damaged) = line.objects(place.file);
        let refused = objects.into_iter().filter_map(|map| take(map).err());
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

    #[test]
    fn damaged_line_loses_only_itself() {
        let whole = r#"{"a":{"b":"}{\"c\":1}"},"d":[{"e":2}]}"#;
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
            // A part of a cut record is not a record.
            (r#"{"type":"x","message":{"id":1}"#.to_owned(), 0),
            (r#"{"type":"x","list":[{"id":1},{"id":2}"#.to_owned(), 0),
            (r#"{"type":"x","text":"as \"{\"id\":1}\" says"#.to_owned(), 0),
            (r#""text": "no record""#.to_owned(), 0),
        ] {
            let one = Line { at: 1, bytes: line.as_bytes(), ended: true };
            let (objects, problem) = one.objects("f");
            assert_eq!(objects.len(), found, "{line}");
            assert_eq!(problem.is_none(), line == whole, "{line}");
        }
        let hostile = "{\"a\":\"".repeat(100_000);
        assert_eq!(Line { at: 1, bytes: hostile.as_bytes(), ended: true }.objects("f").0.len(), 0);
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
