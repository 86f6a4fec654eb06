//! Computes the hash of a call from its name and arguments, independent of the order of keys and
//! of white space.
//!
//! ```text
//! arguments_key("read", r#"{"b": [1], "a": "x"}"#) == arguments_key("read", r#"{"a":"x","b":[1]}"#)
//! arguments_key("read", r#"{"a": 1}"#)             != arguments_key("read", r#"{"a": 1.0}"#)
//! ```
//!
//! The JSON is read once, without building a tree of values, because this runs for every call of
//! every recorded run. If a key is repeated, the last value counts.

use foldhash::fast::FixedState;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};

/// The hasher, with a fixed seed, because a replay in another process must give the same facts.
pub(super) const HASHER: FixedState = FixedState::with_seed(0x0065_6e64_7374_6f70);

/// Returns the hash of a call, never 0. Arguments that are not JSON are compared as text.
pub(crate) fn arguments_key(name: &str, arguments: &str) -> u64 {
    let mut reader = serde_json::Deserializer::from_str(arguments);
    let read = Canonical.deserialize(&mut reader).and_then(|key| reader.end().map(|()| key));
    // The tags 0 to 7 keep values of different types apart, for example `"1"` and `1`.
    let key = read.unwrap_or_else(|_| hash_of((7u8, arguments.trim())));
    hash_of((name, key)).max(1)
}

fn hash_of(value: impl Hash) -> u64 {
    HASHER.hash_one(value)
}

/// Reads a JSON value as its hash.
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
        // `i128` holds both `i64` and `u64`, so that 18446744073709551615 and -1 differ.
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
        // As in the `Hash` of a slice, so that the input of no list is a prefix of another's.
        len.hash(&mut hasher);
        Ok(hasher.finish())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<u64, A::Error> {
        let mut entries: Vec<(u64, u64)> = Vec::new();
        while let Some(name) = map.next_key_seed(Canonical)? {
            entries.push((name, map.next_value_seed(Canonical)?));
        }
        // Sorted by hash, because any fixed order makes the keys' own order irrelevant. The sort is
        // stable, so that of equal keys the last stays last.
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
    fn equal_values_have_equal_hashes() {
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
