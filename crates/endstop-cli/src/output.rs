//! Writes to standard output and standard error. All commands write through these functions, which
//! remember a write error for the exit status; a command continues after it, so that a run is paid
//! for and stored as a whole.
//!
//! Each function redacts the secrets of the process, which [`hide`] adds to, except [`answer`] and
//! [`unredacted_line`]. A test checks that no other file opens these streams.
//!
//! Lines for the user pass through [`visible`], because a name or an error may quote a file, a
//! server or a model. Coloured lines passed through it before the colours were added.

use crate::failure::Status;
use crate::visible::visible;
use endstop::wire::redact::{KnownKeys, Redacted};
use serde::Serialize;
use std::borrow::Cow;
use std::io::{self, ErrorKind, IsTerminal as _, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, PoisonError, RwLock};

/// Returns `true` if a stream is a terminal that shows colours, and the user wants them.
pub(crate) fn shows_colours(stream: &impl io::IsTerminal) -> bool {
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    // An empty NO_COLOR does not count, as https://no-color.org defines it.
    let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    stream.is_terminal() && wanted && !dumb
}

/// Returns the width of the terminal that shows notes and cards; `None` if that is not a terminal.
pub(crate) fn terminal_width() -> Option<usize> {
    terminal_size::terminal_size_of(io::stderr()).map(|(width, _)| usize::from(width.0))
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

/// Writes text to standard output. After an error nothing more is written, so that the output has no
/// gap; [`exit_status`] accounts for the error.
fn write(text: &Redacted) {
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
    painted_line(&visible(text));
}

/// Writes a coloured line to standard output.
pub(crate) fn painted_line(text: &str) {
    write(&keys().redact(&format!("{text}\n")));
}

/// Writes a value as one line of JSON to standard output.
pub(crate) fn json(value: &impl Serialize) {
    json_of(value, &KnownKeys::default());
}

/// Like [`json`], with secrets that only this line has. A process that serves many clients does not
/// collect the secrets of all of them.
pub(crate) fn json_of(value: &impl Serialize, more: &KnownKeys) {
    match keys().and(more).redact_json(value) {
        // A line break cannot complete a secret.
        Ok(text) => write(&Redacted::exempt(format!("{text}\n"))),
        Err(error) => drop(stdout_failed(error.into())),
    }
}

/// Writes a part of the answer of a run to standard output unchanged, because the answer belongs to the
/// user, and a program may read it.
pub(crate) fn answer(text: &str) {
    write(&Redacted::exempt(text));
}

/// Writes a line to standard output unchanged. Only for text without any value of a variable, a file, a
/// server or a model, and for lines that a shell executes.
pub(crate) fn unredacted_line(text: &str) {
    write(&Redacted::exempt(format!("{text}\n")));
}

/// Adds secrets, which are redacted from everything that the process writes from now on.
pub(crate) fn hide(more: &KnownKeys) {
    let mut keys = KEYS.write().unwrap_or_else(PoisonError::into_inner);
    let all = keys.and(more);
    *keys = all;
}

/// The secrets in the environment, and those that were added. A static, because a process has one
/// standard output and one standard error.
static KEYS: LazyLock<RwLock<KnownKeys>> =
    LazyLock::new(|| RwLock::new(endstop::process::environment_secrets()));

/// Redacts secrets from text for standard error or for a page.
pub(crate) fn hidden(text: &str) -> Cow<'_, str> {
    keys().out_of_text(text)
}

/// Returns the known secrets of the process.
pub(crate) fn keys() -> KnownKeys {
    KEYS.read().unwrap_or_else(PoisonError::into_inner).clone()
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
    shown(&format!("{text}\n"));
}

/// Writes text without a line break to standard error: a question, or a line that is drawn again.
pub(crate) fn shown(text: &str) {
    // The last step before the stream, so that no path around the redaction exists.
    let text = hidden(text);
    let mut err = io::stderr().lock();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
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
