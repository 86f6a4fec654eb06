//! Standard output and error, written so that a closed one is no panic: the cleaning up goes on.

use endstop::wire::redact::{KnownKeys, secrets_out};
use serde::Serialize;
use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::OnceLock;

/// Writes a line to standard output.
pub(crate) fn line(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Writes a value as one line of JSON to standard output.
pub(crate) fn json(value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_string(value)?;
    line(&text)
}

/// Writes a value as one line of JSON to standard output, without these keys.
pub(crate) fn json_without(value: &impl Serialize, keys: &KnownKeys) -> io::Result<()> {
    let text = serde_json::to_string(value)?;
    line(&keys.out_of_text(&text))
}

/// The keys that must not come to standard error, from here on.
pub(crate) fn hide(keys: &KnownKeys) {
    let _ = KEYS.set(keys.clone());
}

/// A process has one run, and one standard error.
static KEYS: OnceLock<KnownKeys> = OnceLock::new();

/// A text for standard error, without the keys that are known.
pub(crate) fn hidden(text: &str) -> Cow<'_, str> {
    KEYS.get().map_or(Cow::Borrowed(text), |keys| keys.out_of_text(text))
}

/// Writes a line to standard error; a closed one is not told to anybody.
pub(crate) fn note(text: &str) {
    let mut err = io::stderr().lock();
    let _ = writeln!(err, "{}", hidden(text));
}

/// Says what went wrong: on standard error, and as an object on standard output under `--json`.
pub(crate) fn problem(message: &str, as_json: bool) {
    // A key that stands where something else belongs is quoted like anything else.
    let message = secrets_out(message);
    if as_json {
        let _ = json(&serde_json::json!({"type": "error", "message": message}));
    }
    note(&format!("endstop: {message}"));
}
