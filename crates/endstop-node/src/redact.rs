//! Removal of secrets from text.

use endstop_wire::redact::{KnownKeys, secrets_out};
use napi_derive::napi;

/// Removes credentials from text: those of known formats, and the given keys wherever they occur.
#[napi(catch_unwind)]
pub fn redact(text: String, keys: Option<Vec<String>>) -> String {
    let text = secrets_out(&text);
    KnownKeys::new(keys.unwrap_or_default()).out_of_text(&text).into_owned()
}
