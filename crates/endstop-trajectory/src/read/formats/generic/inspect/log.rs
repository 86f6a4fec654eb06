//! Properties of a log that its samples share, and the repair of its numbers.

use crate::read::build::fields::{Fields, peek};
use serde_json::Value;

/// The newest supported version.
const NEWEST: u64 = 3;

/// The properties of the log that its samples' runs inherit.
pub(super) struct Of<'l> {
    pub(super) eval: &'l Fields,
    pub(super) status: Option<&'l str>,
    pub(super) beside: Option<&'l Value>,
}

/// Returns the reason why a log of this version is not supported.
pub(super) fn too_new(version: Option<&Value>) -> Option<String> {
    let version = version?;
    match version.as_u64() {
        Some(version) if version <= NEWEST => None,
        _ => Some(format!("unsupported log version {version}: expected at most {NEWEST}")),
    }
}

/// Replaces each `NaN` and `Infinity` outside strings with `null`; returns `None` if there are
/// none.
pub(super) fn without_non_numbers(bytes: &[u8]) -> Option<Vec<u8>> {
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
pub(super) fn task_name<'l>(of: &Of<'l>) -> Option<&'l str> {
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
