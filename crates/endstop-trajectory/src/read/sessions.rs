//! The formats that are read as whole files: agent sessions, evaluation logs and telemetry spans.
//!
//! ```text
//! let format = FORMATS.iter().find(|format| (format.recognises)(&head));
//! ```

use super::{Format, Head, Place, Problem, Shape};
use super::{claude_code, codex, copilot, cursor, inspect, otel};
use crate::model::Trajectory;
use endstop_core::bounded_json;

pub(crate) const FORMATS: &[Format] = &[
    claude_code::FORMAT,
    codex::FORMAT,
    copilot::FORMAT,
    cursor::FORMAT,
    inspect::FORMAT,
    otel::FORMAT,
];

/// Returns the name and description of each format.
#[doc(hidden)]
pub fn formats() -> impl Iterator<Item = (&'static str, &'static str)> {
    FORMATS.iter().map(|format| (format.name, format.about))
}

/// Returns the first of these formats that recognises the bytes. For this crate's tests.
#[doc(hidden)]
pub fn recognised(name: &str, bytes: &[u8]) -> Option<&'static str> {
    let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
    // The first line is a record in most formats; otherwise the whole file is one document.
    let first = bounded_json::from_slice(line).or_else(|_| bounded_json::from_slice(bytes)).ok();
    let head = Head { name, bytes, first: first.as_ref() };
    FORMATS.iter().find(|format| (format.recognises)(&head)).map(|format| format.name)
}

/// Reads a file in a named format; returns `false` if no format has that name. For this crate's
/// tests.
#[doc(hidden)]
pub fn read(
    format: &str,
    file: &str,
    bytes: &[u8],
    each: &mut dyn FnMut(Result<Trajectory<'_>, Problem>),
) -> bool {
    let place = Place { file, beside: &|_| None };
    match FORMATS.iter().find(|known| known.name == format).map(|format| &format.shape) {
        Some(Shape::Whole(read)) => read(bytes, &place, each),
        _ => return false,
    }
    true
}
