//! Reader for Inspect: the logs of `inspect eval`, as `.json` and as `.eval`, an archive with one
//! entry per sample. Each sample of each epoch is a run.
//!
//! ```text
//! {"version":2,"status":"success","eval":{…},"samples":[{"id":1,"epoch":1,"messages":[…],"scores":{…}}]}
//! ```
//!
//! Quirks:
//!
//! - Long texts are stored elsewhere in the sample: `attachment://HASH` in `attachments`, in early
//!   versions `tc://HASH` in `transcript.content`.
//! - A model response is in `messages`, but its usage and stop reason are in the event of its call.
//!   The event's message has the same id, or in versions before ids the same text.
//! - Assistant messages that are part of the sample's input (`source: "input"`) are not turns of
//!   the run.
//! - Input tokens exclude cached tokens; in older logs of some providers they include them.
//! - The JSON contains `NaN` and `Infinity`, as Python writes it.
//! - A score of `C` or 1 is a success, `I` or 0 a failure; any other score, or scores that
//!   disagree, is neither. The reward is the score as a number (`C` 1, `P` ½, `I` and `N` 0), if
//!   there is exactly one.
//! - Version 3 has two features: messages in a pool, which are supported, and samples in chunks,
//!   which are not.

mod archive;
mod ending;
mod messages;
mod sample;
mod score;

use super::pieces::{self, Fields, peek};
use super::{Format, Head, Place, Problem, ProblemKind, Shape, Sink};
use crate::model::Origin;
use endstop_core::bounded_json;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

pub(crate) const FORMAT: Format = Format {
    name: "inspect",
    about: "Inspect: evaluation logs, .eval and .json",
    recognises,
    shape: Shape::Whole(read),
};

/// The newest supported version.
const NEWEST: u64 = 3;

fn recognises(head: &Head<'_>) -> bool {
    // An archive without the extension is recognised by its first entry.
    if archive::is_one(head.bytes) {
        return head.name.rsplit('.').next() == Some("eval")
            || archive::has_entry_of_a_log(head.bytes);
    }
    if let Some(Value::Object(map)) = head.first {
        let is_log = map.contains_key("version")
            && map.contains_key("eval")
            && ["samples", "plan", "status"].iter().any(|key| map.contains_key(*key));
        return is_log || is_bundle(map);
    }
    // A long log is not parsed as a whole here, but its first members are always these.
    let start: Vec<u8> =
        head.bytes.iter().take(400).filter(|byte| !byte.is_ascii_whitespace()).copied().collect();
    start.starts_with(b"{\"version\":")
        && memchr::memmem::find(&start, b"\"eval\":{").is_some()
        && memchr::memmem::find(&start, b"\"status\":").is_some()
}

/// Returns `true` for a single sample together with metadata of another tool.
fn is_bundle(map: &Fields) -> bool {
    map.get("sample")
        .is_some_and(|sample| sample.get("messages").is_some() && sample.get("epoch").is_some())
}

/// A log whose samples are not parsed yet.
#[derive(Deserialize)]
struct Log<'a> {
    version: Option<Value>,
    status: Option<Value>,
    eval: Option<Fields>,
    #[serde(borrow)]
    samples: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    sample: Option<&'a RawValue>,
    /// Metadata of another tool about the single sample.
    metadata: Option<Value>,
}

/// The properties of the log that its samples' runs inherit.
struct Of<'l> {
    eval: &'l Fields,
    status: Option<&'l str>,
    beside: Option<&'l Value>,
}

/// Returns `true` if a log is an archive of samples.
pub(super) fn is_archive(bytes: &[u8]) -> bool {
    archive::is_one(bytes)
}

fn read(bytes: &[u8], place: &Place<'_>, sink: &mut Sink<'_>) {
    if archive::is_one(bytes) {
        return archive::read(bytes, place, sink);
    }
    let finite;
    // serde_json rejects the literals `NaN` and `Infinity`.
    let bytes = match without_non_numbers(bytes) {
        Some(without) => {
            finite = without;
            &finite
        }
        None => bytes,
    };
    let problem = |at, kind, what: String| Problem { file: place.file.to_owned(), at, kind, what };
    let log: Log<'_> = match bounded_json::from_slice(bytes) {
        Ok(log) => log,
        Err(e) if e.is_eof() => {
            return sink(Err(problem(None, ProblemKind::Half, "truncated log".into())));
        }
        Err(e) => {
            let what = format!("invalid log: {e}");
            return sink(Err(problem(None, ProblemKind::Malformed, what)));
        }
    };
    if let Some(what) = too_new(log.version.as_ref()) {
        return sink(Err(problem(None, ProblemKind::UnknownVersion, what)));
    }
    let eval = log.eval.unwrap_or_default();
    let is_bundle = log.sample.is_some();
    let of = Of {
        eval: &eval,
        status: log.status.as_ref().and_then(Value::as_str),
        beside: log.metadata.as_ref().filter(|_| is_bundle),
    };
    let samples = log.sample.into_iter().chain(log.samples.into_iter().flatten());
    let mut found = false;
    for (at, sample) in (1..).zip(samples) {
        found = true;
        give(sample.get().as_bytes(), &of, if is_bundle { None } else { Some(at) }, place, sink);
    }
    if !found {
        sink(Err(problem(None, ProblemKind::NoTrajectory, "a log without samples".to_owned())));
    }
}

/// Decodes a sample and passes its run to the sink.
fn give(bytes: &[u8], of: &Of<'_>, at: Option<u64>, place: &Place<'_>, sink: &mut Sink<'_>) {
    let run = match bounded_json::from_slice::<Value>(bytes) {
        Ok(Value::Object(map)) => sample::run(map, of),
        Ok(other) => {
            Err(format!("invalid sample: expected an object, found {}", pieces::kind_of(&other)))
        }
        Err(e) => Err(format!("invalid JSON in a sample: {e}")),
    };
    match run {
        Ok(mut run) => {
            run.origin = Origin { format: FORMAT.name, file: place.file.to_owned(), at };
            sink(Ok(run));
        }
        Err(what) => sink(Err(Problem {
            file: place.file.to_owned(),
            at,
            kind: ProblemKind::Malformed,
            what,
        })),
    }
}

/// Returns the reason why a log of this version is not supported.
fn too_new(version: Option<&Value>) -> Option<String> {
    let version = version?;
    match version.as_u64() {
        Some(version) if version <= NEWEST => None,
        _ => Some(format!("unsupported log version {version}: expected at most {NEWEST}")),
    }
}

/// Replaces each `NaN` and `Infinity` outside strings with `null`; returns `None` if there are
/// none.
fn without_non_numbers(bytes: &[u8]) -> Option<Vec<u8>> {
    // Most logs contain neither, so avoid copying them.
    if memchr::memmem::find(bytes, b"NaN").is_none()
        && memchr::memmem::find(bytes, b"Infinity").is_none()
    {
        return None;
    }
    let mut out = Vec::with_capacity(bytes.len());
    let mut changed = false;
    let (mut i, mut in_string) = (0, false);
    while let Some(&byte) = bytes.get(i) {
        let rest = &bytes[i..];
        let word: &[u8] = match byte {
            b'N' if !in_string && rest.starts_with(b"NaN") => b"NaN",
            b'I' if !in_string && rest.starts_with(b"Infinity") => b"Infinity",
            b'-' if !in_string && rest.starts_with(b"-Infinity") => b"-Infinity",
            _ => {
                // Copy the escaped character as well, because it may be a quote.
                if in_string && byte == b'\\' {
                    out.push(byte);
                    i += 1;
                } else if byte == b'"' {
                    in_string = !in_string;
                }
                out.extend(bytes.get(i));
                i += 1;
                continue;
            }
        };
        out.extend_from_slice(b"null");
        changed = true;
        i += word.len();
    }
    changed.then_some(out)
}

/// Returns the name of the evaluation, which is a part of a sample's task id.
fn task_name<'l>(of: &Of<'l>) -> Option<&'l str> {
    peek(of.eval, "task")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn non_finite_numbers_become_null() {
        let of = |text: &str| {
            without_non_numbers(text.as_bytes()).map(|b| String::from_utf8(b).unwrap())
        };
        assert_eq!(
            of(r#"{"a":NaN,"b":[-Infinity,Infinity]}"#).unwrap(),
            r#"{"a":null,"b":[null,null]}"#
        );
        assert_eq!(of(r#"{"a":"NaN \" Infinity"}"#), None);
        assert_eq!(of(r#"{"a":"x\\","b":NaN}"#).unwrap(), r#"{"a":"x\\","b":null}"#);
        assert_eq!(of(r#"{"a":"NaN\"#), None);
        assert_eq!(of("{}"), None);
    }
}
