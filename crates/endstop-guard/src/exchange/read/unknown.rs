//! Bodies of requests to paths that no row knows: those that look like a model call.

use super::fields::{Fields, elements_of, folded};
use endstop_core::bounded_json;
use serde_json::value::RawValue;

/// Members at the top of the bodies of model calls, in all formats.
const MEMBERS: &[&str] = &["model", "prompt", "input", "messages", "contents"];

/// The most memory that the values of a body may need, in bytes.
const HEAVIEST: u64 = 64 << 20;

/// Returns whether a body looks like a model call: a JSON object with one of the members that all formats
/// have (`model`, `prompt`, `input`, `messages`, `contents`, in any case, because some servers ignore it), or a
/// list or lines of such objects. `None` if it is not JSON, or too large to be read.
///
/// ```
/// use endstop_guard::exchange::is_like_model_call;
/// assert_eq!(is_like_model_call(br#"{"Model": "m"}"#), Some(true));
/// assert_eq!(is_like_model_call(br#"{"event": "start"}"#), Some(false));
/// assert_eq!(is_like_model_call(b"a=b"), None);
/// ```
pub fn is_like_model_call(body: &[u8]) -> Option<bool> {
    let body = body.strip_prefix("\u{feff}".as_bytes()).unwrap_or(body);
    bounded_json::check(body, HEAVIEST).ok()?;
    let text = std::str::from_utf8(body).ok()?;
    let mut found = false;
    for value in serde_json::Deserializer::from_str(text).into_iter::<&RawValue>() {
        let value = value.ok()?.get();
        found |= is_call(value)? || any(elements_of(value))?;
    }
    Some(found)
}

fn any(values: Vec<&str>) -> Option<bool> {
    values.into_iter().try_fold(false, |found, value| Some(found | is_call(value)?))
}

/// `true` if an object has such a member. `None` if it is an object that cannot be read.
fn is_call(value: &str) -> Option<bool> {
    if !value.trim_start().starts_with('{') {
        return Some(false);
    }
    let fields = Fields::of(value).ok()?;
    Some(fields.names().any(|name| MEMBERS.contains(&folded(name).as_str())))
}

#[cfg(test)]
mod tests {
    use super::is_like_model_call;

    #[test]
    fn members_of_model_calls_are_found() {
        for body in [
            r#"{"model":"m"}"#,
            r#"{"a":1,"messages":[]}"#,
            r#"{"prompt":null}"#,
            r#"{"input":"x"}"#,
            r#"{"contents":[{}]}"#,
            r#"{"MODEL":"m"}"#,
            r#"{"\u006dodel":"m"}"#,
            "{\"me\u{17f}\u{17f}ages\":[]}",
            "\u{feff} {\"model\":1}",
            r#"[{"x":1},{"model":"m"}]"#,
            "{\"x\":1}\n{\"model\":\"m\"}\n",
        ] {
            assert_eq!(is_like_model_call(body.as_bytes()), Some(true), "{body}");
        }
    }

    #[test]
    fn other_bodies_are_no_calls() {
        for body in [
            "{}",
            "",
            "null",
            "[]",
            "4",
            r#""model""#,
            r#"{"x":{"model":"m"}}"#,
            r#"[["model"]]"#,
            r#"{"models":[]}"#,
            "{\"a\":1}\n{\"b\":2}",
        ] {
            assert_eq!(is_like_model_call(body.as_bytes()), Some(false), "{body}");
        }
        let deep = "[".repeat(1 << 20);
        for body in ["model=m", "{", r#"{"a":1} x"#, "{'model':1}", "\u{0}{", deep.as_str()] {
            assert_eq!(is_like_model_call(body.as_bytes()), None);
        }
        assert_eq!(is_like_model_call(&[0xff, 0xfe, b'{', 0]), None);
    }
}
