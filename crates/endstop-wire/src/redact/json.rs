//! Secrets cut out of the string values of JSON, before it is written: what is written is always JSON,
//! and always of the same form.
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

use super::REDACTED;
use super::known::{Cut, KnownKeys, apply};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::ops::Range;

impl KnownKeys {
    /// JSON without secrets, as a value, and how many were cut; `None`: it has none, and may be written
    /// as it is.
    pub fn out_of_json(&self, json: &str) -> Option<(Value, u64)> {
        let in_pieces = self.may_be_in_pieces(json.as_bytes());
        if !in_pieces && !self.may_be_in_json(json.as_bytes()) {
            return None;
        }
        let mut value = match serde_json::from_str(json) {
            Ok(value) => value,
            Err(_) => Value::from(json),
        };
        let cuts = self.cut(&mut value);
        (cuts > 0).then_some((value, cuts))
    }

    /// As [`out_of_json`](KnownKeys::out_of_json), as text.
    pub fn out_of_json_text(&self, json: String) -> String {
        match self.out_of_json(&json) {
            Some((clean, _)) => clean.to_string(),
            None => json,
        }
    }

    /// Cuts secrets out of the strings of a value, and counts them.
    pub fn cut(&self, value: &mut Value) -> u64 {
        // Before a part of one is cut out of its own string.
        let cuts = self.cut_pieces(value);
        cuts + self.cut_strings(value)
    }

    fn cut_strings(&self, value: &mut Value) -> u64 {
        match value {
            Value::String(text) => self.cut_string(text),
            Value::Array(list) => list.iter_mut().map(|one| self.cut_strings(one)).sum(),
            Value::Object(members) => {
                let within: u64 = members.values_mut().map(|one| self.cut_strings(one)).sum();
                within + self.cut_names(members)
            }
            _ => 0,
        }
    }

    /// What a string says. If that is JSON itself, as the arguments of a call are, it stays so.
    fn cut_string(&self, text: &mut String) -> u64 {
        let cuts = self.cuts_of_chunks(text.as_bytes(), false);
        let count = cuts.len() as u64;
        if count > 0 {
            *text = String::from_utf8_lossy(&apply(text.as_bytes(), cuts)).into_owned();
        }
        count
    }

    /// Names of members belong to the form, and stay. A model may use a secret as one: names of ours
    /// consist of lower case and underscores.
    fn cut_names(&self, members: &mut Map<String, Value>) -> u64 {
        let is_ours = |name: &String| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
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

    /// Secrets that strings of one name have between them.
    fn cut_pieces(&self, value: &mut Value) -> u64 {
        if self.is_empty() {
            return 0;
        }
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

/// What the strings of one name say, one after the other.
#[derive(Default)]
struct Said {
    text: String,
    /// Where each begins.
    starts: Vec<usize>,
    found: Vec<Range<usize>>,
    next: usize,
}

impl Said {
    fn push(&mut self, text: &str) {
        self.starts.push(self.text.len());
        self.text.push_str(text);
    }

    /// Looks for secrets that go over from one string to another; how many there are.
    fn find(&mut self, keys: &KnownKeys) -> u64 {
        if self.starts.len() < 2 {
            return 0;
        }
        self.found = keys.find_known(self.text.as_bytes());
        let starts = &self.starts;
        self.found.retain(|at| {
            let first = starts.partition_point(|start| *start <= at.start);
            starts.get(first).is_some_and(|start| *start < at.end)
        });
        self.found.len() as u64
    }

    /// The next string, if something of it is cut.
    fn next(&mut self) -> Option<String> {
        let start = *self.starts.get(self.next)?;
        self.next += 1;
        let end = self.starts.get(self.next).copied().unwrap_or(self.text.len());
        let mut cuts = Vec::new();
        for found in self.found.iter().filter(|at| at.start < end && start < at.end) {
            let at = found.start.max(start) - start..found.end.min(end) - start;
            cuts.push(Cut { at, shown: Some(found.start >= start) });
        }
        if cuts.is_empty() {
            return None;
        }
        let clean = apply(&self.text.as_bytes()[start..end], cuts);
        Some(String::from_utf8_lossy(&clean).into_owned())
    }
}

/// Calls back with each string, by the name before it.
fn each_string(name: &str, value: &mut Value, f: &mut impl FnMut(&str, &mut String)) {
    match value {
        // Marks have nothing of a secret any more.
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
            // The account as a tool printed it: it stays JSON, without its key.
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
        /// A quick look passes over nothing that a look at every string finds.
        #[test]
        fn a_quick_look_misses_nothing(
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
