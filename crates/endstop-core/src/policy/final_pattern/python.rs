//! Formats and strips values like Python, because the documented patterns answer in Python's form.
//!
//! ```text
//! {"k": [1, null]}   is   {'k': [1, None]}
//! 1e16               is   1e+16
//! ```
//!
//! Source: CPython 3.11's `str` and `repr`.

use super::pattern;
use serde_json::Value;
use std::fmt::Write as _;

/// Strips text like Python's `str.strip()`.
pub(super) fn strip(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || ('\x1c'..='\x1f').contains(&c))
}

/// Formats a value like Python's `str(value)`.
pub(super) fn str(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => {
            let mut out = String::new();
            repr(other, &mut out);
            out
        }
    }
}

fn repr(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("None"),
        Value::Bool(true) => out.push_str("True"),
        Value::Bool(false) => out.push_str("False"),
        Value::Number(n) => match n.as_f64() {
            Some(x) if n.is_f64() => float(x, out),
            _ => out.push_str(&n.to_string()),
        },
        Value::String(text) => quoted(text, out),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                repr(item, out);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push('{');
            for (i, (key, item)) in map.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                quoted(key, out);
                out.push_str(": ");
                repr(item, out);
            }
            out.push('}');
        }
    }
}

/// Writes the shortest digits that parse to the same number, with an exponent below 1e-4 and from
/// 1e16 on.
fn float(x: f64, out: &mut String) {
    let scientific = format!("{x:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = format!("{x}");
        out.push_str(&plain);
        if !plain.contains('.') {
            out.push_str(".0");
        }
        return;
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    // Writing to a string cannot fail.
    let _ = write!(out, "{digits}e{sign}{:02}", exponent.unsigned_abs());
}

fn quoted(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let unprintable = pattern::class(r"[\p{C}\p{Z}]").ok();
    let printable = |c: char| {
        c == ' '
            || !unprintable
                .as_ref()
                .is_some_and(|class| class.iter().any(|r| r.start() <= c && c <= r.end()))
    };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            ' '..='~' => out.push(c),
            c if printable(c) => out.push(c),
            c => {
                let n = u32::from(c);
                let _ = match n {
                    0..=0xff => write!(out, "\\x{n:02x}"),
                    0x100..=0xffff => write!(out, "\\u{n:04x}"),
                    _ => write!(out, "\\U{n:08x}"),
                };
            }
        }
    }
    out.push(quote);
}
