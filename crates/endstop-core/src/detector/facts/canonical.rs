//! One number for a call: its name and its arguments, whatever the order of their keys and the white
//! space between them.
//!
//! ```text
//! arguments_key("read", r#"{"b": [1], "a": "x"}"#) == arguments_key("read", r#"{"a":"x","b":[1]}"#)
//! arguments_key("read", r#"{"a": 1}"#)             != arguments_key("read", r#"{"a": 1.0}"#)
//! ```
//!
//! The text is read once, without a tree of values. Of a key that is there twice the last counts.

use super::HASHER;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};

/// The number of a call, never 0. Arguments that are no JSON are compared as they stand.
pub(crate) fn arguments_key(name: &str, arguments: &str) -> u64 {
    let mut reader = serde_json::Deserializer::from_str(arguments);
    let read = Canonical.deserialize(&mut reader).and_then(|key| reader.end().map(|()| key));
    let key = read.unwrap_or_else(|_| hash_of((7u8, arguments.trim())));
    hash_of((name, key)).max(1)
}

fn hash_of(value: impl Hash) -> u64 {
    HASHER.hash_one(value)
}

/// Reads a value as its number.
struct Canonical;

impl<'de> DeserializeSeed<'de> for Canonical {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u64, D::Error> {
        deserializer.deserialize_any(Canonical)
    }
}

impl<'de> Visitor<'de> for Canonical {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<u64, E> {
        Ok(hash_of(0u8))
    }

    fn visit_bool<E>(self, value: bool) -> Result<u64, E> {
        Ok(hash_of((1u8, value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<u64, E> {
        Ok(hash_of((2u8, i128::from(value))))
    }

    fn visit_u64<E>(self, value: u64) -> Result<u64, E> {
        Ok(hash_of((2u8, i128::from(value))))
    }

    fn visit_f64<E>(self, value: f64) -> Result<u64, E> {
        Ok(hash_of((3u8, value.to_bits())))
    }

    fn visit_str<E>(self, value: &str) -> Result<u64, E> {
        Ok(hash_of((4u8, value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<u64, A::Error> {
        let mut hasher = HASHER.build_hasher();
        5u8.hash(&mut hasher);
        let mut len = 0u64;
        while let Some(key) = list.next_element_seed(Canonical)? {
            key.hash(&mut hasher);
            len += 1;
        }
        len.hash(&mut hasher);
        Ok(hasher.finish())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<u64, A::Error> {
        let mut entries: Vec<(u64, u64)> = Vec::new();
        while let Some(name) = map.next_key_seed(Canonical)? {
            entries.push((name, map.next_value_seed(Canonical)?));
        }
        // In one order, whichever; of equal names the last stays.
        entries.sort_by_key(|(name, _)| *name);
        let last = |nth: usize| entries.get(nth + 1).is_none_or(|next| next.0 != entries[nth].0);
        let mut hasher = HASHER.build_hasher();
        6u8.hash(&mut hasher);
        for (nth, entry) in entries.iter().enumerate() {
            if last(nth) {
                entry.hash(&mut hasher);
            }
        }
        Ok(hasher.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::arguments_key as key;

    #[test]
    fn equal_values_have_equal_keys_and_others_have_not() {
        let same = |a: &str, b: &str| key("t", a) == key("t", b);
        assert!(same(r#"{"a":1,"b":{"c":[1,"x"]}}"#, r#" {"b" : {"c":[1, "\u0078"]}, "a":1}"#));
        assert!(same(r#"{"a":1,"a":2}"#, r#"{"a":2}"#));
        assert!(same("no json ", "no json"));
        for (a, b) in [
            (r#"{"a":1}"#, r#"{"a":1.0}"#),
            (r#"{"a":1}"#, r#"{"a":"1"}"#),
            (r#"{"a":[1,2]}"#, r#"{"a":[2,1]}"#),
            (r#"{"a":[[],1]}"#, r#"{"a":[[1]]}"#),
            (r#"{"a":{}}"#, r#"{"a":[]}"#),
            (r#"{"a":null}"#, "{}"),
            ("{}", "{} {}"),
            (r#"{"a":18446744073709551615}"#, r#"{"a":-1}"#),
        ] {
            assert!(!same(a, b), "{a} {b}");
        }
        assert_ne!(key("t", "{}"), key("u", "{}"));
    }
}
