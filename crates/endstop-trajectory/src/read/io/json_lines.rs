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
        let taken = line.object(place.file).and_then(|map| {
            take(map).map_err(|what| Problem {
                file: place.file.to_owned(),
                at: Some(line.at),
                kind: ProblemKind::Malformed,
                what,
            })
        });
        if let Err(problem) = taken {
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
