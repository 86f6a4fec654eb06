//! Configuration files: JSON with comments, TOML, and lines of `.env` files.
//!
//! ```text
//! json(r#"{"a": 1, /* … */ }"#) // {"a": 1}
//! ```

use serde_json::Value;

/// Parses JSON that may have comments and commas before a closing bracket, as several clients allow.
pub(super) fn json(text: &str) -> Result<Value, String> {
    let text = text.trim_start_matches('\u{feff}');
    if text.trim().is_empty() {
        return Ok(Value::Null);
    }
    // Strict first, because almost all files are.
    serde_json::from_str(text)
        .or_else(|_| serde_json::from_str(&without_comments(text)))
        .map_err(|error| format!("line {}, column {}: invalid JSON", error.line(), error.column()))
}

/// Replaces comments and trailing commas by spaces, so that positions stay the same.
fn without_comments(text: &str) -> String {
    let mut out: Vec<u8> = text.as_bytes().to_vec();
    let (mut at, mut comma) = (0, None);
    while at < out.len() {
        match (out[at], out.get(at + 1)) {
            (b'"', _) => {
                comma = None;
                at += 1;
                while at < out.len() && out[at] != b'"' {
                    at += 1 + usize::from(out[at] == b'\\');
                }
                at += 1;
            }
            (b'/', Some(b'/')) => {
                let end = out[at..].iter().position(|b| *b == b'\n').map_or(out.len(), |n| at + n);
                out[at..end].fill(b' ');
                at = end;
            }
            (b'/', Some(b'*')) => {
                let end = out[at + 2..].windows(2).position(|two| two == b"*/");
                let end = end.map_or(out.len(), |n| at + n + 4);
                for byte in out[at..end].iter_mut().filter(|byte| **byte != b'\n') {
                    *byte = b' ';
                }
                at = end;
            }
            (b',', _) => {
                comma = Some(at);
                at += 1;
            }
            (b']' | b'}', _) => {
                if let Some(comma) = comma.take() {
                    out[comma] = b' ';
                }
                at += 1;
            }
            (byte, _) => {
                if !byte.is_ascii_whitespace() {
                    comma = None;
                }
                at += 1;
            }
        }
    }
    // Only whole characters were replaced, so the text stays valid.
    String::from_utf8(out).unwrap_or_default()
}

/// Parses TOML.
pub(super) fn toml(text: &str) -> Result<Value, String> {
    // The message of the parser quotes the file, which can contain keys.
    toml::from_str(text).map_err(|error: toml::de::Error| {
        let at = error.span().map_or(0, |span| span.start).min(text.len());
        format!("line {}: invalid TOML", text.as_bytes()[..at].split(|b| *b == b'\n').count())
    })
}

/// Returns the value of a variable in a `.env` file.
pub(super) fn dotenv<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let value = text.lines().rev().find_map(|line| {
        let line = line.trim().trim_start_matches("export ").trim_start();
        let (found, value) = line.split_once('=')?;
        (found.trim_end() == name).then(|| value.trim())
    })?;
    let quoted = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    Some(quoted('"').or_else(|| quoted('\'')).unwrap_or(value)).filter(|value| !value.is_empty())
}

/// Returns the string at a path of keys.
pub(super) fn text<'a>(value: &'a Value, path: &[&str]) -> Option<&'a str> {
    path.iter()
        .try_fold(value, |value, key| value.get(key))?
        .as_str()
        .filter(|text| !text.is_empty())
}

/// Sets a value at a path of keys. Values in between that are not objects are replaced.
pub(super) fn put(value: &mut Value, path: &[&str], new: Value) {
    let Some((key, rest)) = path.split_first() else {
        *value = new;
        return;
    };
    if !value.is_object() {
        *value = Value::Object(serde_json::Map::new());
    }
    if let Value::Object(map) = value {
        put(map.entry(*key).or_insert(Value::Null), rest, new);
    }
}

/// Returns `true` if a base URL can be an upstream: `http` or `https`, a host, no user name, no query.
pub(super) fn is_base_url(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else { return false };
    let host = rest.split('/').next().unwrap_or_default();
    let known = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    known
        && !host.is_empty()
        && !host.starts_with(':')
        && !host.contains('@')
        && !rest.contains(['?', '#', '\\'])
        && !rest.contains(|c: char| c.is_whitespace() || c.is_control())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn comments_are_removed() {
        let text = "{ // a \"b\"\n \"u\": \"http://x/*y*/\", /* c,\n */ \"l\": [1, 2, /**/ ], }";
        assert_eq!(json(text).unwrap(), json!({"u": "http://x/*y*/", "l": [1, 2]}));
        assert_eq!(json(" \n").unwrap(), Value::Null);
        assert_eq!(json("{\n\n\"sk-secret\" x}").unwrap_err(), "line 3, column 13: invalid JSON");
    }

    #[test]
    fn errors_do_not_quote_file() {
        assert_eq!(toml("a = 1\nkey = sk-secret").unwrap_err(), "line 2: invalid TOML");
    }

    #[test]
    fn last_line_of_dotenv_wins() {
        let text = "A=1\nexport B = 'x y'\n# A=3\nA=\"2\"\nC=";
        assert_eq!((dotenv(text, "A"), dotenv(text, "B")), (Some("2"), Some("x y")));
        assert_eq!((dotenv(text, "C"), dotenv(text, "D")), (None, None));
    }

    #[test]
    fn base_urls_are_checked() {
        for good in ["https://a.example", "http://127.0.0.1:8080/v1", "HTTPS://[::1]/x/"] {
            assert!(is_base_url(good), "{good}");
        }
        for bad in [
            "",
            "a.example",
            "file:///x",
            "https://",
            "https://u:p@h",
            "http://h/?k=1",
            "http://h\n",
        ] {
            assert!(!is_base_url(bad), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_without_panic(text in r#"([{}\[\]",:/*a1\\ \n=é]|//|/\*|\*/){0,40}"#) {
            let _ = json(&text);
            let _ = toml(&text);
            let _ = dotenv(&text, "a");
            prop_assert_eq!(without_comments(&text).len(), text.len());
        }
    }
}
