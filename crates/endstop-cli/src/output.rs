//! Writes to standard output and standard error. A closed stream is an error value and not a panic,
//! so that a run can still clean up.
//!
//! Lines for the user pass through [`visible`], because a name or an error may quote a file, a
//! server or a model. Coloured lines passed through it before the colours were added.

use crate::visible::visible;
use endstop::wire::redact::KnownKeys;
use serde::Serialize;
use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write};
use std::sync::{LazyLock, OnceLock};

/// Returns `true` if a stream is a terminal that shows colours, and the user wants them.
pub(crate) fn shows_colours(stream: &impl io::IsTerminal) -> bool {
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    // An empty NO_COLOR does not count, as https://no-color.org defines it.
    let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    stream.is_terminal() && wanted && !dumb
}

/// Writes a line for the user to standard output, with control characters made visible.
pub(crate) fn line(text: &str) -> io::Result<()> {
    raw_line(&visible(text))
}

/// Writes a line to standard output unchanged: JSON, an answer for a program, or coloured text.
pub(crate) fn raw_line(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.write_all(b"\n")?;
    // Flushed line by line, because a program may wait for each line of JSON.
    out.flush()
}

/// Writes a value as one line of JSON to standard output.
pub(crate) fn json(value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_string(value)?;
    raw_line(&text)
}

/// Writes a value as one line of JSON to standard output, with secrets redacted.
pub(crate) fn json_without(value: &impl Serialize, keys: &KnownKeys) -> io::Result<()> {
    raw_line(&keys.out_of_json_text(serde_json::to_string(value)?))
}

/// Sets the secrets of the run, which are redacted from standard error from now on.
pub(crate) fn hide(keys: &KnownKeys) {
    let _ = OF_RUN.set(keys.clone());
}

/// The secrets of the run. A static, because a process has one run and one standard error.
static OF_RUN: OnceLock<KnownKeys> = OnceLock::new();

/// The secrets in the environment, used until the run sets its own.
static OF_ENVIRONMENT: LazyLock<KnownKeys> = LazyLock::new(endstop::process::environment_secrets);

/// Redacts secrets from text for standard error or for a page.
pub(crate) fn hidden(text: &str) -> Cow<'_, str> {
    keys().out_of_text(text)
}

/// Returns the known secrets: those of the run, or those of the environment before a run has set
/// its own.
pub(crate) fn keys() -> &'static KnownKeys {
    OF_RUN.get().unwrap_or_else(|| &*OF_ENVIRONMENT)
}

/// Writes a line for the user to standard error; errors are ignored, because no other place could
/// report them.
pub(crate) fn note(text: &str) {
    painted_note(&visible(text));
}

/// Reports an invalid line of a batch, of which an error object is on standard output. On a
/// terminal that object is enough, because the user would read each error twice.
pub(crate) fn note_of_line(source: &str, problem: &dyn std::fmt::Display) {
    if !io::stdout().is_terminal() {
        note(&format!("endstop: {source}: {problem}"));
    }
}

/// Writes a coloured line to standard error.
pub(crate) fn painted_note(text: &str) {
    let mut err = io::stderr().lock();
    // The last step before the stream, so that no path around the redaction exists.
    let _ = writeln!(err, "{}", hidden(text));
}

/// Reports an error: on standard error and, with `--json`, as an object on standard output.
pub(crate) fn problem(message: &str, as_json: bool) {
    // Error messages quote their input, and a key may have been passed in the wrong place.
    let message = hidden(message);
    if as_json {
        let _ = json(&serde_json::json!({"type": "error", "message": message}));
    }
    note(&format!("endstop: {message}"));
}
