//! The members of a JSON object, each with its place in the text.

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use std::fmt;

/// The most members that are read. No request has a hundred.
const MOST: usize = 4096;

/// Folds the case of a name. Upper case first: it folds letters such as the long s, as Go's decoder does.
pub(crate) fn folded(name: &str) -> String {
    name.to_uppercase().to_lowercase()
}

/// The members in their order, also those with the same name.
#[derive(Clone, Debug, Default)]
pub struct Fields<'a>(Vec<(String, &'a str)>);

impl<'a> Fields<'a> {
    /// Reads the members of an object.
    ///
    /// # Errors
    /// The text is not a JSON object, or has too many members.
    pub fn of(text: &'a str) -> Result<Fields<'a>, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Returns a member's text. Of members with the same name the last counts, as in most parsers.
    pub fn raw(&self, name: &str) -> Option<&'a str> {
        self.0.iter().rev().find(|(key, _)| key == name).map(|(_, value)| *value)
    }

    /// Iterates over the texts of all members with one of these names.
    pub fn all<'s>(&'s self, names: &'s [&str]) -> impl Iterator<Item = &'a str> + 's {
        let named = self.0.iter().filter(|(key, _)| names.contains(&key.as_str()));
        named.map(|(_, value)| *value)
    }

    /// `true` if there is such a member and it is not `null`.
    pub fn has(&self, name: &str) -> bool {
        self.raw(name).is_some_and(|text| text != "null")
    }

    /// `true` if there is more than one member of this name, or one in another case, which servers may read instead.
    pub fn is_ambiguous(&self, name: &str) -> bool {
        let wanted = folded(name);
        let same: Vec<&str> = self.names().filter(|one| folded(one) == wanted).collect();
        same.len() > 1 || same.first().is_some_and(|one| *one != name)
    }

    /// The members in their order, with their texts.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &'a str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// The names of the members, in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Returns a member that is a string.
    pub fn string(&self, name: &str) -> Option<String> {
        parsed(self.raw(name)?)
    }

    /// Returns a member that is a boolean, also as a number or a word: many servers read them alike.
    pub fn flag(&self, name: &str) -> Option<bool> {
        let text = self.raw(name).filter(|text| !text.starts_with(['{', '[']))?;
        match any(text) {
            Value::Bool(flag) => Some(flag),
            Value::Number(number) => number.as_f64().map(|number| number != 0.0),
            Value::String(word) => match word.to_ascii_lowercase().as_str() {
                "true" | "1" | "yes" | "on" | "t" | "y" => Some(true),
                "false" | "0" | "no" | "off" | "f" | "n" => Some(false),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns a member as a value, or `null`.
    pub fn value(&self, name: &str) -> Value {
        self.raw(name).map_or(Value::Null, any)
    }

    /// Returns the members of an object in this one, or none.
    #[must_use]
    pub fn object(&self, name: &str) -> Fields<'a> {
        self.raw(name).and_then(|text| Fields::of(text).ok()).unwrap_or_default()
    }

    /// Returns the texts of the elements of a list, or none.
    pub fn list(&self, name: &str) -> Vec<&'a str> {
        self.raw(name).map(elements_of).unwrap_or_default()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Vec<(String, &'de str)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
                    // Every look-up walks this list, so its length bounds the work.
                    if members.len() == MOST {
                        return Err(A::Error::custom("the object has more than 4096 members"));
                    }
                    members.push((name, value.get()));
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(Members).map(Fields)
    }
}

/// Splits the text of a list into the texts of its elements. Another value has none.
pub(crate) fn elements_of(text: &str) -> Vec<&str> {
    let elements = parsed::<Vec<&RawValue>>(text).unwrap_or_default();
    elements.into_iter().map(RawValue::get).collect()
}

/// Parses a value of this type, or returns `None` if the text has another shape.
pub(crate) fn parsed<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    serde_json::from_str(text).ok()
}

/// Parses any value. A client that cuts a string in the middle of a character sends half a surrogate
/// pair, which is replaced; text that still does not parse is `null`.
pub(crate) fn any(text: &str) -> Value {
    parsed(text)
        .or_else(|| {
            let repaired = crate::without_lone_surrogates(text)?;
            serde_json::from_str(&repaired).ok()
        })
        .unwrap_or_default()
}

/// Parses the fields of a value, or returns the default if it has another shape.
pub(crate) fn any_of<T: Default + for<'a> Deserialize<'a>>(text: &str) -> T {
    parsed(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{Fields, any, elements_of};
    use serde_json::Value;

    #[test]
    fn members_keep_their_order_and_their_bytes() {
        let text = r#" {"b": [1,  2], "a\u0022": "x\ud800", "b": {"c": 3}}"#;
        let fields = Fields::of(text).unwrap();
        assert_eq!(fields.names().collect::<Vec<_>>(), ["b", "a\"", "b"]);
        assert_eq!(fields.raw("b"), Some(r#"{"c": 3}"#), "the last one counts");
        assert_eq!(fields.all(&["b"]).collect::<Vec<_>>(), ["[1,  2]", r#"{"c": 3}"#]);
        assert_eq!(elements_of("[1,  {\"a\": [2]}]"), ["1", "{\"a\": [2]}"]);
        for text in ["", "[]", "{", r#"{"a": 1} 2"#, r#"{"a": tru}"#, r#"{"a": ["x" "y"]}"#] {
            assert!(Fields::of(text).is_err(), "{text}");
        }
    }

    #[test]
    fn flag_is_read_as_servers_read_it() {
        for (text, flag) in [
            ("true", Some(true)),
            ("1", Some(true)),
            ("1.0", Some(true)),
            ("\"True\"", Some(true)),
            ("\"1\"", Some(true)),
            ("\"ON\"", Some(true)),
            ("\"yes\"", Some(true)),
            ("false", Some(false)),
            ("0", Some(false)),
            ("\"False\"", Some(false)),
            ("\"no\"", Some(false)),
            ("null", None),
            ("\"\"", None),
            ("[true]", None),
            ("{\"a\": true}", None),
        ] {
            let object = format!("{{\"stream\": {text}}}");
            assert_eq!(Fields::of(&object).unwrap().flag("stream"), flag, "{text}");
        }
    }

    #[test]
    fn half_a_surrogate_pair_is_replaced() {
        let text = "[\"\\u00e9\\ud83d\\ude00\\ud800\"]";
        assert_eq!(any(text)[0], "\u{e9}\u{1f600}\u{fffd}");
        assert_eq!(any(&"[".repeat(1 << 20)), Value::Null);
    }

    #[test]
    fn other_value_has_no_elements() {
        for text in ["null", "{}", "\"[1]\"", "4", "[]", "[ ]"] {
            assert!(elements_of(text).is_empty(), "{text}");
        }
    }
}
