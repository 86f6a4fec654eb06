//! Removal of secrets from text.

use crate::exit::enter;
use endstop_wire::redact::{KnownKeys, secrets_out};
use pyo3::prelude::*;

/// Removes credentials from text: those of known formats, and the given keys wherever they occur.
///
/// >>> endstop.redact("bad key: sk-abcdef1234567890")
/// 'bad key: [redacted]'
#[pyfunction]
#[pyo3(signature = (text, *, keys = Vec::new()))]
#[expect(clippy::needless_pass_by_value, reason = "Python's values are converted")]
pub(crate) fn redact(py: Python<'_>, text: String, keys: Vec<String>) -> String {
    let _inside = enter(py);
    py.detach(|| {
        // Known formats first, because a given key may be a part of a longer credential.
        let text = secrets_out(&text);
        KnownKeys::new(&keys).out_of_text(&text).into_owned()
    })
}
