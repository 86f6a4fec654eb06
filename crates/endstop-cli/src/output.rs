//! Standard output and error, written so that a closed one is no panic: the cleaning up goes on.
//!
//! Lines for people go through [`visible`]: a name or an error may quote a file, a server or a
//! model. What is painted has gone through it before the paint was added.

use crate::visible::visible;
use endstop::wire::redact::KnownKeys;
use serde::Serialize;
use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::{LazyLock, OnceLock};

/// Writes a line for a person to standard output.
pub(crate) fn line(text: &str) -> io::Result<()> {
    raw_line(&visible(text))
}

/// Writes a line to standard output as it is: JSON, an answer to a program, or painted text.
pub(crate) fn raw_line(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Writes a value as one line of JSON to standard output.
pub(crate) fn json(value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_string(value)?;
    raw_line(&text)
}

/// Writes a value as one line of JSON to standard output, without secrets.
pub(crate) fn json_without(value: &impl Serialize, keys: &KnownKeys) -> io::Result<()> {
    raw_line(&keys.out_of_json_text(serde_json::to_string(value)?))
}

/// The secrets of the run, which must not come to standard error from here on.
pub(crate) fn hide(keys: &KnownKeys) {
    let _ = OF_RUN.set(keys.clone());
}

/// A process has one run, and one standard error.
static OF_RUN: OnceLock<KnownKeys> = OnceLock::new();

static OF_ENVIRONMENT: LazyLock<KnownKeys> = LazyLock::new(endstop::process::environment_secrets);

/// Text for standard error or a page, without secrets.
pub(crate) fn hidden(text: &str) -> Cow<'_, str> {
    keys().out_of_text(text)
}

/// The secrets that are known: those of the run, else those of the environment.
pub(crate) fn keys() -> &'static KnownKeys {
    OF_RUN.get().unwrap_or_else(|| &*OF_ENVIRONMENT)
}

/// Writes a line for a person to standard error; a closed one is not told to anybody.
pub(crate) fn note(text: &str) {
    painted_note(&visible(text));
}

/// The same for a line that was painted.
pub(crate) fn painted_note(text: &str) {
    let mut err = io::stderr().lock();
    let _ = writeln!(err, "{}", hidden(text));
}

/// Says what went wrong: on standard error, and as an object on standard output under `--json`.
pub(crate) fn problem(message: &str, as_json: bool) {
    // A key that is given where something else belongs is quoted like anything else.
    let message = hidden(message);
    if as_json {
        let _ = json(&serde_json::json!({"type": "error", "message": message}));
    }
    note(&format!("endstop: {message}"));
}
