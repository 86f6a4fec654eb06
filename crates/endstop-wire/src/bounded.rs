//! Limits on memory and nesting depth that a response body cannot exceed: bounded lists, notes and
//! generated ids.
//!
//! ```text
//! List of 16385 items      → parse error
//! made_id("call_", "r", 2) → "call_r_2"
//! ```

use crate::redact::excerpt;
use serde::de::{Deserialize, Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use std::fmt;
use std::marker::PhantomData;

/// Maximum number of items in a list, and of parts in a turn. The limit is needed because `{}`
/// takes two bytes to send and hundreds of bytes to hold.
pub(crate) const ITEMS_CAP: usize = 16 << 10;

/// Maximum length in bytes, and maximum depth, of a value stored next to the signal.
const NOTE_BYTES: usize = 64 << 10;
/// Maximum nesting depth of such a value.
const NOTE_DEPTH: usize = 64;

/// Maximum number of bytes of a response's id that are copied into generated ids.
const ID_BYTES: usize = 64;

/// A list of at most [`ITEMS_CAP`] items. More items are a parse error.
#[derive(Debug)]
pub(crate) struct List<T>(Vec<T>);

impl<T> Default for List<T> {
    fn default() -> List<T> {
        List(Vec::new())
    }
}

impl<T> std::ops::Deref for List<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> IntoIterator for List<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<List<T>, D::Error> {
        struct Items<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
            type Value = List<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<List<T>, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = seq.next_element()? {
                    // Check before the push, so that a hostile body never makes the vector grow
                    // past the cap.
                    if list.len() == ITEMS_CAP {
                        return Err(A::Error::custom(format!(
                            "a list has more than {ITEMS_CAP} items"
                        )));
                    }
                    list.push(item);
                }
                Ok(List(list))
            }
        }
        d.deserialize_seq(Items(PhantomData))
    }
}

/// Maximum number of choices of one event. A request cannot ask for more.
const CHOICES_CAP: usize = 128;

/// The choices of an event, of which there is almost always one. Those beyond the cap are parsed one at a time and
/// discarded.
#[derive(Debug)]
pub(crate) struct Choices<T> {
    pub(crate) first: Option<T>,
    pub(crate) more: Vec<T>,
}

impl<T> IntoIterator for Choices<T> {
    type Item = T;
    type IntoIter = std::iter::Chain<std::option::IntoIter<T>, std::vec::IntoIter<T>>;
    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.more)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Choices<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Choices<T>, D::Error> {
        struct Items<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
            type Value = Choices<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Choices<T>, A::Error> {
                let mut choices = Choices { first: seq.next_element()?, more: Vec::new() };
                while let Some(item) = seq.next_element()? {
                    if choices.more.len() + 1 < CHOICES_CAP {
                        choices.more.push(item);
                    }
                }
                Ok(choices)
            }
        }
        d.deserialize_seq(Items(PhantomData))
    }
}

/// Returns a value to store next to the signal, or `None` for `null`. A value that is too large or
/// too deep to be printed and parsed again is replaced by an excerpt of its text.
pub(crate) fn noted(raw: &RawValue) -> Option<Value> {
    let text = raw.get();
    if text == "null" {
        return None;
    }
    // Check the depth in the text first, because parsing and dropping a deep value recurses.
    let value = (text.len() <= NOTE_BYTES && depth(text) <= NOTE_DEPTH)
        .then(|| serde_json::from_str(text).ok())
        .flatten();
    value.or_else(|| Some(Value::from(excerpt(text))))
}

/// Returns the maximum nesting depth of brackets in JSON text.
pub(crate) fn depth(text: &str) -> usize {
    let mut nesting = Nesting::default();
    nesting.push(text);
    nesting.deepest
}

/// Makes an id for a call that arrived without one: the `n`th call of the response `of`.
pub(crate) fn made_id(prefix: &str, of: Option<&str>, n: usize) -> String {
    // The prefix of the response id is enough, because ids only need to be unique within a
    // conversation.
    let of = of.unwrap_or("turn");
    let mut end = of.len().min(ID_BYTES);
    while !of.is_char_boundary(end) {
        end -= 1;
    }
    format!("{prefix}{}_{n}", &of[..end])
}

/// Tracks the brackets of JSON text that arrives in chunks.
#[derive(Debug, Default)]
pub(crate) struct Nesting {
    depth: usize,
    deepest: usize,
    string: bool,
    escaped: bool,
}

impl Nesting {
    /// Takes a chunk. Returns `true` if the outermost bracket was closed in it.
    pub(crate) fn push(&mut self, piece: &str) -> bool {
        let mut closed = false;
        for byte in piece.bytes() {
            if self.string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.string = true,
                b'[' | b'{' => {
                    self.depth += 1;
                    self.deepest = self.deepest.max(self.depth);
                }
                b']' | b'}' => {
                    closed |= self.depth == 1;
                    // Saturate because stray closing brackets must not underflow in unbalanced
                    // input.
                    self.depth = self.depth.saturating_sub(1);
                }
                _ => {}
            }
        }
        closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_beyond_cap_is_refused() {
        let list = |n: usize| format!("[{}0]", "0,".repeat(n - 1));
        let read = |text: &str| serde_json::from_str::<List<u8>>(text).map(|list| list.len());
        assert_eq!(read(&list(ITEMS_CAP)).unwrap(), ITEMS_CAP);
        let e = read(&list(ITEMS_CAP + 1)).unwrap_err();
        assert!(e.to_string().contains("more than 16384"), "{e}");
    }

    #[test]
    fn choices_beyond_cap_are_discarded() {
        let text = format!("[{}0]", "1,".repeat(1_000));
        let choices: Choices<u8> = serde_json::from_str(&text).unwrap();
        assert_eq!(choices.into_iter().collect::<Vec<_>>(), [1; CHOICES_CAP]);
        let none: Choices<u8> = serde_json::from_str("[]").unwrap();
        assert_eq!(none.into_iter().count(), 0);
    }

    #[test]
    fn note_can_be_parsed_again() {
        let note = |text: &str| noted(serde_json::from_str(text).unwrap());
        assert_eq!(note("null"), None);
        assert_eq!(note(r#"{"a":[1]}"#), Some(serde_json::json!({"a": [1]})));
        let deep = ["[".repeat(5_000), "]".repeat(5_000)].concat();
        assert!(note(&deep).unwrap().as_str().unwrap().starts_with("[[["));
        let large = format!("\"{}\"", "x".repeat(NOTE_BYTES));
        assert!(note(&large).unwrap().as_str().unwrap().len() < 2_000);
        assert!(note("1e999").unwrap().is_string());
    }

    #[test]
    fn nesting_is_chunk_independent() {
        let text = r#"{"a":"]}\"{[","b":[[1],{}]}"#;
        assert_eq!(depth(text), 3);
        for cut in 1..text.len() {
            let mut nesting = Nesting::default();
            assert!(!nesting.push(&text[..cut]), "{cut}");
            assert!(nesting.push(&text[cut..]), "{cut}");
        }
        assert!(!Nesting::default().push("]}"));
    }

    #[test]
    fn made_id_is_bounded() {
        assert_eq!(made_id("call_", None, 3), "call_turn_3");
        let long = made_id("call_", Some(&"é".repeat(1 << 20)), 3);
        assert!(long.len() <= 80 && long.ends_with("é_3"), "{long}");
    }
}
