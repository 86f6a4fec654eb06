//! Redaction of string values in JSON before it is written. The result is always valid JSON with
//! the same structure.
//!
//! ```
//! use endstop_wire::redact::KnownKeys;
//! use serde_json::json;
//! let account = r#"{"type": "service_account", "client_secret": "4fQ9xTz71LmN0pWv"}"#;
//! let keys = KnownKeys::new([account]);
//! let record = json!({"type": "turn_ended", "text": "It is 4fQ9xTz71LmN0pWv."}).to_string();
//! let (clean, cuts) = keys.out_of_json(&record).unwrap();
//! assert_eq!((clean, cuts), (json!({"type": "turn_ended", "text": "It is [redacted]."}), 1));
//! assert!(keys.out_of_json(r#"{"type":"turn_ended"}"#).is_none());
//! ```

use super::known::{Cut, KnownKeys, apply};
use super::names::REDACTED;
use super::patterns;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::ops::Range;

impl KnownKeys {
    /// Returns the JSON without secrets, and the number of replacements, or `None` if it has no
    /// secrets and may be written unchanged.
    pub fn out_of_json(&self, json: &str) -> Option<(Value, u64)> {
        let in_pieces = self.may_be_in_pieces(json.as_bytes());
        if !in_pieces && !self.may_be_in_json(json.as_bytes()) {
            return None;
        }
        let mut value = match serde_json::from_str(json) {
            Ok(value) => value,
            // Text that is not JSON is treated as one string, so that its secrets are removed as
            // well.
            Err(_) => Value::from(json),
        };
        let cuts = self.cut(&mut value);
        (cuts > 0).then_some((value, cuts))
    }

    /// Like [`out_of_json`](KnownKeys::out_of_json), but returns text.
    pub fn out_of_json_text(&self, json: String) -> String {
        match self.out_of_json(&json) {
            Some((clean, _)) => clean.to_string(),
            None => json,
        }
    }

    /// Removes secrets from the strings of a value and returns the number of replacements.
    pub fn cut(&self, value: &mut Value) -> u64 {
        // Search across strings first, before a part of a secret is removed from its own string.
        let cuts = self.cut_pieces(value);
        cuts + self.cut_strings(value)
    }

    fn cut_strings(&self, value: &mut Value) -> u64 {
        match value {
            Value::String(text) => self.cut_string(text),
            Value::Array(list) => list.iter_mut().map(|one| self.cut_strings(one)).sum(),
            Value::Object(members) => {
                let file = is_file(members);
                let within: u64 = members
                    .iter_mut()
                    .map(|(name, one)| match one {
                        Value::String(data) if file && name == "data" => self.cut_known(data),
                        Value::String(text) => cut_named(name, text) + self.cut_string(text),
                        one => self.cut_strings(one),
                    })
                    .sum();
                within + self.cut_names(members)
            }
            _ => 0,
        }
    }

    /// Redacts one string. If the string is JSON itself, such as a call's arguments, it stays valid
    /// JSON.
    fn cut_string(&self, text: &mut String) -> u64 {
        let cuts = self.cuts_of_chunks(text.as_bytes(), false);
        let count = cuts.len() as u64;
        if count > 0 {
            *text = String::from_utf8_lossy(&apply(text.as_bytes(), cuts)).into_owned();
        }
        count
    }

    /// Redacts the known keys in the base64 of a file. By chance its letters may look like a
    /// credential of a known format, and the file would be damaged.
    fn cut_known(&self, data: &mut String) -> u64 {
        if self.find_known(data.as_bytes()).is_empty() { 0 } else { self.cut_string(data) }
    }

    /// Redacts member names. Names in Endstop's own records consist of lower case letters and
    /// underscores and are never changed, because they are part of the structure; a model may use a
    /// secret as a name.
    fn cut_names(&self, members: &mut Map<String, Value>) -> u64 {
        let is_ours = |name: &String| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        // Only complete secrets count in a name, because a changed name breaks readers of the
        // record.
        let has_secret =
            |name: &String| !is_ours(name) && !self.find_whole(name.as_bytes()).is_empty();
        if !members.keys().any(has_secret) {
            return 0;
        }
        let mut cuts = 0;
        *members = std::mem::take(members)
            .into_iter()
            .map(|(name, member)| {
                let found = self.find_whole(name.as_bytes());
                if is_ours(&name) || found.is_empty() {
                    return (name, member);
                }
                cuts += found.len() as u64;
                let found = found.into_iter().map(|at| Cut { at, shown: None }).collect();
                (String::from_utf8_lossy(&apply(name.as_bytes(), found)).into_owned(), member)
            })
            .collect();
        cuts
    }

    /// Removes secrets that are split across consecutive strings with the same member name.
    fn cut_pieces(&self, value: &mut Value) -> u64 {
        if self.is_empty() {
            return 0;
        }
        // A stream repeats one structure, so the pieces of a text have the same member name.
        let mut said: HashMap<String, Said> = HashMap::new();
        each_string("", value, &mut |name, text| {
            said.entry(name.to_owned()).or_default().push(text);
        });
        let mut cuts = 0;
        for said in said.values_mut() {
            cuts += said.find(self);
        }
        if cuts > 0 {
            each_string("", value, &mut |name, text| {
                if let Some(clean) = said.get_mut(name).and_then(Said::next) {
                    *text = clean;
                }
            });
        }
        cuts
    }
}

/// Redacts a credential that the name of its member shows: `"SecretAccessKey": "…"`.
fn cut_named(name: &str, text: &mut String) -> u64 {
    let found = patterns::find_named(name.as_bytes(), text.as_bytes());
    let count = found.len() as u64;
    if count > 0 {
        let cuts = found.into_iter().map(|at| Cut { at, shown: None }).collect();
        *text = String::from_utf8_lossy(&apply(text.as_bytes(), cuts)).into_owned();
    }
    count
}

/// The base64 of the first bytes of the files that a message may contain.
const FILES: &[(&str, &str)] = &[
    ("image/png", "iVBORw0KGg"),
    ("image/jpeg", "/9j/"),
    ("image/gif", "R0lGODdh"),
    ("image/gif", "R0lGODlh"),
    ("image/webp", "UklGR"),
    ("application/pdf", "JVBERi0"),
];

/// `true` for the JSON of an inline image or document.
fn is_file(members: &Map<String, Value>) -> bool {
    let text = |name: &str| members.get(name).and_then(Value::as_str).unwrap_or_default();
    let (media_type, data) = (text("media_type"), text("data"));
    let known = FILES.iter().any(|(kind, start)| *kind == media_type && data.starts_with(start));
    known && data.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'='))
}

/// Concatenation of the strings with one member name.
#[derive(Default)]
struct Said {
    text: String,
    /// Offset at which each string begins.
    starts: Vec<usize>,
    found: Vec<Range<usize>>,
    next: usize,
}

impl Said {
    fn push(&mut self, text: &str) {
        self.starts.push(self.text.len());
        self.text.push_str(text);
    }

    /// Searches for secrets that extend across strings, and returns their number.
    fn find(&mut self, keys: &KnownKeys) -> u64 {
        if self.starts.len() < 2 {
            return 0;
        }
        self.found = keys.find_known(self.text.as_bytes());
        let starts = &self.starts;
        // Keep only secrets that cross the start of a string. The others are found within their
        // string.
        self.found.retain(|at| {
            let first = starts.partition_point(|start| *start <= at.start);
            starts.get(first).is_some_and(|start| *start < at.end)
        });
        self.found.len() as u64
    }

    /// Returns the next string with its cuts applied, or `None` if nothing in it is cut.
    fn next(&mut self) -> Option<String> {
        let start = *self.starts.get(self.next)?;
        self.next += 1;
        let end = self.starts.get(self.next).copied().unwrap_or(self.text.len());
        let mut cuts = Vec::new();
        for found in self.found.iter().filter(|at| at.start < end && start < at.end) {
            let at = found.start.max(start) - start..found.end.min(end) - start;
            // The replacement is written only in the string in which the secret starts.
            cuts.push(Cut { at, shown: Some(found.start >= start) });
        }
        if cuts.is_empty() {
            return None;
        }
        let clean = apply(&self.text.as_bytes()[start..end], cuts);
        Some(String::from_utf8_lossy(&clean).into_owned())
    }
}

/// Calls `f` for each string with the member name that precedes it.
fn each_string(name: &str, value: &mut Value, f: &mut impl FnMut(&str, &mut String)) {
    match value {
        // A replacement mark contains nothing secret, and cutting it again would garble the text.
        Value::String(text) if text != REDACTED => f(name, text),
        Value::Array(list) => list.iter_mut().for_each(|one| each_string(name, one, f)),
        Value::Object(members) => {
            members.iter_mut().for_each(|(name, one)| each_string(name, one, f));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn base64_of_file_keeps_chance_matches() {
        let key = "4fQ9xTz71LmN0pWv8aBcD";
        let keys = KnownKeys::new([key]);
        let chance = format!("iVBORw0KGgo/AIza{}/", "a1B2c3D4e5".repeat(4));
        let image = |data: &str| json!({"base64": {"media_type": "image/png", "data": data}});
        assert!(keys.out_of_json(&image(&chance).to_string()).is_none());
        // In any other string it counts.
        assert_eq!(keys.out_of_json(&json!({"data": chance}).to_string()).unwrap().1, 1);
        let text = format!("iVBORw0KGgo AIza{}", "a1B2c3D4e5".repeat(4));
        assert!(keys.out_of_json(&image(&text).to_string()).is_some());
        // A known key is cut everywhere.
        let (clean, cuts) =
            keys.out_of_json(&image(&format!("iVBORw0KGgo{key}")).to_string()).unwrap();
        assert_eq!((clean, cuts), (image("iVBORw0KGgo[redacted]"), 1));
    }

    const KEY: &str = "sk-proj-4fQ9xTz71LmN0pWv8aBcD";

    fn clean(keys: &KnownKeys, value: &Value) -> Value {
        keys.out_of_json(&value.to_string()).map_or_else(|| value.clone(), |(clean, _)| clean)
    }

    #[test]
    fn service_account_leaves_structure_whole() {
        let pem = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEF\nAASCBKcwggSjAgEAAoIBAQC7\n-----END PRIVATE KEY-----\n";
        let account =
            json!({"type": "service_account", "project_id": "my-project-1", "private_key": pem});
        for spelled in [account.to_string(), serde_json::to_string_pretty(&account).unwrap()] {
            let keys = KnownKeys::new([spelled.clone()]);
            let record = json!({"type": "turn_started", "project_id": "my-project-1", "turn": 1});
            assert!(keys.out_of_json(&record.to_string()).is_none());
            // The account as a tool printed it stays JSON, without its key.
            let printed = json!({"type": "tool_ended", "content": spelled});
            let out = clean(&keys, &printed);
            let inner: Value = serde_json::from_str(out["content"].as_str().unwrap()).unwrap();
            assert_eq!(inner["type"], "service_account");
            assert!(
                !out.to_string().contains("MIIE") && !out.to_string().contains("AASC"),
                "{out}"
            );
            let line = json!({"content": "grep: AASCBKcwggSjAgEAAoIBAQC7"});
            assert_eq!(clean(&keys, &line)["content"], "grep: [redacted]");
        }
    }

    #[test]
    fn secret_like_own_names_keeps_them() {
        let keys = KnownKeys::new(["turn_started-9f8a7b6c5d4e", "\"type\":\"outcome\",\"x\":1234"]);
        let record =
            json!({"type": "turn_started", "turn": 1, "note": "turn_started-9f8a7b6c5d4e"});
        let want = json!({"type": "turn_started", "turn": 1, "note": "[redacted]"});
        assert_eq!(clean(&keys, &record), want);
    }

    #[test]
    fn key_goes_however_json_spells_it() {
        let keys = KnownKeys::new([KEY, "pa\"ss\\word-77é"]);
        for (value, want) in [
            (json!({"a": format!("x {KEY}{KEY}.")}), json!({"a": "x [redacted]."})),
            (
                json!({"arguments": r#"{"k":"sk-p\u0072oj-4fQ9xTz71LmN0pWv8aBcD","n":1.50}"#}),
                json!({"arguments": r#"{"k":"[redacted]","n":1.50}"#}),
            ),
            (json!({"a": "it is pa\"ss\\word-77é"}), json!({"a": "it is [redacted]"})),
            (
                json!({"arguments": json!({"a": "pa\"ss\\word-77é"}).to_string()}),
                json!({"arguments": r#"{"a":"[redacted]"}"#}),
            ),
            (json!({KEY: 1}), json!({"[redacted]": 1})),
            (
                json!([{"text": &KEY[..9]}, {"text": format!("{}!", &KEY[9..])}]),
                json!([{"text": "[redacted]"}, {"text": "!"}]),
            ),
            (json!({"a": "ghp_abcdefghijklmnopqrstuvwxyzABCDEFGHIJ"}), json!({"a": "[redacted]"})),
        ] {
            assert_eq!(clean(&keys, &value), want);
        }
    }

    #[test]
    fn prefix_of_another_secret_leaves_nothing() {
        let keys = KnownKeys::new(["4fQ9xTz71LmN", "4fQ9xTz71LmN0pWv8aBcD", "0pWv8aBcDxyz99"]);
        for text in
            ["a 4fQ9xTz71LmN0pWv8aBcD b", "a 4fQ9xTz71LmN b", "a 4fQ9xTz71LmN0pWv8aBcDxyz99 b"]
        {
            assert_eq!(clean(&keys, &json!({"text": text})), json!({"text": "a [redacted] b"}));
        }
    }

    #[test]
    fn word_as_secret_changes_nothing() {
        let keys =
            KnownKeys::of_variables([("POSTGRES_PASSWORD", "postgres"), ("API_TOKEN", "true")]);
        assert!(keys.is_empty());
        assert!(keys.out_of_json(r#"{"text":"jdbc:postgresql://db is true"}"#).is_none());
    }

    proptest! {
        /// The quick check never misses a secret that a search of every string finds.
        #[test]
        fn quick_check_misses_no_secret(
            strings in proptest::collection::vec(
                (
                    0usize..3,
                    prop_oneof![
                        (0usize..KEY.len(), 0usize..9)
                            .prop_map(|(from, len)| KEY[from..KEY.len().min(from + len)].to_owned()),
                        "[a-cf\"\\\\\n/\u{1}\u{8}\u{c}é]{0,4}",
                    ],
                ),
                0..10,
            ),
            pieces in proptest::collection::vec(0usize..KEY.len(), 0..8),
        ) {
            let keys = KnownKeys::new([KEY]);
            let mut cuts = pieces;
            cuts.extend([0, KEY.len()]);
            cuts.sort_unstable();
            let cut = cuts.windows(2).map(|pair| (2, KEY[pair[0]..pair[1]].to_owned()));
            let mut mixed: Vec<(usize, String)> = Vec::new();
            let mut strings = strings.into_iter();
            for piece in cut {
                mixed.extend(strings.next());
                mixed.push(piece);
            }
            mixed.extend(strings);
            let names = ["content", "role", "text"];
            let record = mixed.into_iter().map(|(name, text)| json!({names[name]: text}));
            let record = Value::from(record.collect::<Vec<Value>>());
            let mut walked = record.clone();
            let cuts = keys.cut(&mut walked);
            let looked = keys.out_of_json(&record.to_string());
            prop_assert_eq!(looked, (cuts > 0).then_some((walked, cuts)));
        }
    }
}
