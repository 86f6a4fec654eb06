//! Writes to standard output and standard error. All commands write through these functions, which
//! remember a write error for the exit status; a command continues after it, so that a run is paid
//! for and stored as a whole.
//!
//! Lines for the user pass through [`visible`], because a name or an error may quote a file, a
//! server or a model. Coloured lines passed through it before the colours were added.

use crate::failure::Status;
use crate::visible::visible;
use endstop::wire::redact::KnownKeys;
use serde::Serialize;
use std::borrow::Cow;
use std::io::{self, ErrorKind, IsTerminal as _, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, OnceLock};

/// Returns `true` if a stream is a terminal that shows colours, and the user wants them.
pub(crate) fn shows_colours(stream: &impl io::IsTerminal) -> bool {
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    // An empty NO_COLOR does not count, as https://no-color.org defines it.
    let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    stream.is_terminal() && wanted && !dumb
}

/// The exit status after a write error (`EX_IOERR`).
const UNWRITTEN: u8 = 74;

/// `true` once standard output takes no more text: its reader is gone, or a write failed.
static ENDED: AtomicBool = AtomicBool::new(false);

/// `true` once a write error was reported.
static FAILED: AtomicBool = AtomicBool::new(false);

/// Returns `true` if standard output takes no more text, so that a command may end early.
pub(crate) fn has_ended() -> bool {
    ENDED.load(Ordering::Relaxed)
}

/// Reports a write error of an output, which changes the [`exit_status`]. A closed pipe is
/// not an error, because its reader has read as much as it wanted.
pub(crate) fn write_failed(output: &str, error: &io::Error, effect: &str) {
    if error.kind() != ErrorKind::BrokenPipe {
        FAILED.store(true, Ordering::Relaxed);
        note(&format!("endstop: {output}: {error}{effect}"));
    }
}

/// Returns the exit status of the process. After a write error, a status that describes the result
/// of Endstop's own work becomes 74, because that result may not have arrived. The status of
/// another error, of a parked run, of a signal or of a guarded program stays.
pub(crate) fn exit_status(status: Status) -> u8 {
    match status {
        Status::OfCommand(0 | 1 | 10 | 20 | 30) | Status::OfProgram(0)
            if FAILED.load(Ordering::Relaxed) =>
        {
            UNWRITTEN
        }
        Status::OfCommand(status) | Status::OfProgram(status) => status,
    }
}

/// Writes text to standard output unchanged. After an error nothing more is written, so that the
/// output has no gap; [`exit_status`] accounts for the error.
pub(crate) fn raw(text: &str) {
    if has_ended() {
        return;
    }
    let mut out = io::stdout().lock();
    // Flushed at once, because a program may wait for each line of JSON.
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        stdout_failed(error);
    }
}

/// Remembers that a write to standard output failed, and returns the error.
pub(crate) fn stdout_failed(error: io::Error) -> io::Error {
    if !ENDED.swap(true, Ordering::Relaxed) {
        write_failed("standard output", &error, "");
    }
    error
}

/// Writes a line for the user to standard output, with control characters made visible.
pub(crate) fn line(text: &str) {
    raw_line(&visible(text));
}

/// Writes a line to standard output unchanged: JSON, an answer for a program, or coloured text.
pub(crate) fn raw_line(text: &str) {
    raw(&format!("{text}\n"));
}

/// Writes a value as one line of JSON to standard output.
pub(crate) fn json(value: &impl Serialize) {
    json_line(value, |text| text);
}

/// Writes a value as one line of JSON to standard output, with secrets redacted.
pub(crate) fn json_without(value: &impl Serialize, keys: &KnownKeys) {
    json_line(value, |text| keys.out_of_json_text(text));
}

fn json_line(value: &impl Serialize, clean: impl Fn(String) -> String) {
    match serde_json::to_string(value) {
        Ok(text) => raw_line(&clean(text)),
        Err(error) => drop(stdout_failed(error.into())),
    }
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
        json(&serde_json::json!({"type": "error", "message": message}));
    }
    note(&format!("endstop: {message}"));
}
