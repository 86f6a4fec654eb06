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
mod log;
mod messages;
mod sample;
mod score;

use crate::read::build::fields::Fields;
use crate::read::format::{Format, Head, Place, Shape, Sink};
use crate::read::io::unpack::is_zip;
use crate::read::problem::{Problem, ProblemKind};
use endstop_core::bounded_json;
use log::{Of, too_new, without_non_numbers};
use sample::give;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

pub(crate) const FORMATS: &[Format] = &[Format {
    name: "inspect",
    about: "Inspect: evaluation logs, .eval and .json",
    recognises,
    of_a_person: false,
    shape: Some(Shape::Archive(read)),
}];

fn recognises(head: &Head<'_>) -> bool {
    // An archive without the extension is recognised by its first entry.
    if is_zip(head.bytes) {
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

fn read(bytes: &[u8], place: &Place<'_>, sink: &mut Sink<'_>) {
    if is_zip(bytes) {
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
