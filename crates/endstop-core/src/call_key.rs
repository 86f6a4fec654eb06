//! Computes the key of a tool call: the canonical form of its name and arguments, as a hash.
//!
//! Two calls are the same call if their keys are equal. The order of keys and white space do not
//! matter, and numbers are compared by value:
//!
//! ```
//! use endstop_core::call_key;
//! let key = |arguments| call_key("read", arguments);
//! assert_eq!(key(r#"{"b": [1], "a": "x"}"#), key(r#"{"a":"x","b":[1.0]}"#));
//! assert_ne!(key(r#"{"a": 1}"#), key(r#"{"a": "1"}"#));
//! // A 64-bit float cannot hold this number, so the digits are compared.
//! assert_ne!(key("[9007199254740993]"), key("[9007199254740992.0]"));
//! ```
//!
//! The JSON is read once, without building a tree of values, because this runs for every call of
//! every recorded run. If a key is repeated, the last value counts.

use foldhash::fast::FixedState;
use std::hash::{BuildHasher, Hash, Hasher};

/// The hasher, with a fixed seed, because a replay in another process must give the same facts.
pub(crate) const HASHER: FixedState = FixedState::with_seed(0x0065_6e64_7374_6f70);

/// Maximum depth of nested values. Deeper arguments are compared as text, because the reader is
/// recursive. The same depth as `serde_json` reads.
const DEEPEST: u32 = 127;

/// Maximum number of members of an object that are read without an allocation.
const FEW: usize = 4;

/// Returns the key of a call, never 0. Arguments that are not JSON are compared as text.
pub fn call_key(name: &str, arguments: &str) -> u64 {
    let mut reader = Reader { text: arguments, at: 0 };
    let key = reader.value(0).filter(|_| reader.is_at_end());
    // The tags 0 to 7 keep values of different types apart, for example `"1"` and `1`.
    let key = key.unwrap_or_else(|| hash_of((7u8, arguments.trim())));
    hash_of((name, key)).max(1)
}

fn hash_of(value: impl Hash) -> u64 {
    HASHER.hash_one(value)
}

/// Reads JSON as hashes. Every method returns `None` if the text is not JSON.
// By hand and not by `serde_json`, because that reads 9007199254740992.5 as 9007199254740992.
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: u32) -> Option<u64> {
        if depth > DEEPEST {
            return None;
        }
        self.skip_space();
        match self.peek()? {
            b'n' => self.word("null").then(|| hash_of(0u8)),
            b't' => self.word("true").then(|| hash_of((1u8, true))),
            b'f' => self.word("false").then(|| hash_of((1u8, false))),
            b'"' => self.string(),
            b'[' => self.list(depth),
            b'{' => self.object(depth),
            _ => self.number(),
        }
    }

    fn list(&mut self, depth: u32) -> Option<u64> {
        self.at += 1;
        let mut hasher = HASHER.build_hasher();
        5u8.hash(&mut hasher);
        let mut len = 0u64;
        while !self.closes(b']', len == 0)? {
            self.value(depth + 1)?.hash(&mut hasher);
            len += 1;
        }
        // As in the `Hash` of a slice, so that the input of no list is a prefix of another's.
        len.hash(&mut hasher);
        Some(hasher.finish())
    }

    fn object(&mut self, depth: u32) -> Option<u64> {
        self.at += 1;
        // Most calls have few arguments, which need no allocation.
        let mut few = [(0, 0); FEW];
        let mut many: Vec<(u64, u64)> = Vec::new();
        let mut len = 0;
        while !self.closes(b'}', len == 0)? {
            self.skip_space();
            let name = (self.peek()? == b'"').then(|| self.string())??;
            self.skip_space();
            if !self.take(b':') {
                return None;
            }
            let entry = (name, self.value(depth + 1)?);
            match few.get_mut(len) {
                Some(place) => *place = entry,
                None if len == FEW => {
                    many.extend_from_slice(&few);
                    many.push(entry);
                }
                None => many.push(entry),
            }
            len += 1;
        }
        let entries = if len > FEW { &mut many[..] } else { &mut few[..len] };
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
        Some(hasher.finish())
    }

    /// Reads the sign between two items: `true` if it closes the list or object.
    fn closes(&mut self, close: u8, first: bool) -> Option<bool> {
        self.skip_space();
        if self.take(close) {
            return Some(true);
        }
        (first || self.take(b',')).then_some(false)
    }

    fn string(&mut self) -> Option<u64> {
        let start = self.at;
        self.at += 1;
        let mut escaped = false;
        loop {
            self.at = next_special(self.text.as_bytes(), self.at);
            match self.peek()? {
                b'"' => break,
                b'\\' => {
                    escaped = true;
                    self.at += 2;
                }
                // JSON does not allow raw control characters in strings.
                _ => return None,
            }
        }
        self.at += 1;
        let quoted = self.text.get(start..self.at)?;
        if !escaped {
            return Some(hash_of((4u8, &quoted[1..quoted.len() - 1])));
        }
        let text: String = serde_json::from_str(quoted).ok()?;
        Some(hash_of((4u8, text.as_str())))
    }

    /// Reads a number as its sign, its digits without zeros at either end, and its exponent, so that
    /// equal values have equal hashes and no digit is lost: `1`, `1.0`, `10e-1`.
    fn number(&mut self) -> Option<u64> {
        let negative = self.take(b'-');
        let whole = self.digits();
        // `01` is not JSON.
        if whole.is_empty() || whole.len() > 1 && whole.starts_with('0') {
            return None;
        }
        let fraction = if self.take(b'.') { Some(self.digits()) } else { None };
        let fraction = match fraction {
            Some("") => return None,
            fraction => fraction.unwrap_or_default(),
        };
        let mut exponent = 0i64;
        if self.take(b'e') || self.take(b'E') {
            let below = self.take(b'-');
            if !below {
                self.take(b'+');
            }
            exponent = self.digits().parse().ok()?;
            exponent = if below { -exponent } else { exponent };
        }
        let joined;
        let all = if fraction.is_empty() {
            whole
        } else {
            joined = [whole, fraction].concat();
            &joined
        };
        exponent = exponent.checked_sub(i64::try_from(fraction.len()).ok()?)?;
        let digits = all.trim_end_matches('0');
        exponent = exponent.checked_add(i64::try_from(all.len() - digits.len()).ok()?)?;
        let digits = digits.trim_start_matches('0');
        // Zero has no sign and no exponent: `0`, `-0.0`, `0e9`.
        if digits.is_empty() {
            return Some(hash_of((2u8, false, "", 0i64)));
        }
        Some(hash_of((2u8, negative, digits, exponent)))
    }

    fn digits(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let len = rest.bytes().take_while(u8::is_ascii_digit).count();
        self.at += len;
        &rest[..len]
    }

    fn word(&mut self, word: &str) -> bool {
        let is = self.text[self.at..].starts_with(word);
        self.at += if is { word.len() } else { 0 };
        is
    }

    fn take(&mut self, byte: u8) -> bool {
        let is = self.peek() == Some(byte);
        self.at += usize::from(is);
        is
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn is_at_end(&mut self) -> bool {
        self.skip_space();
        self.at == self.text.len()
    }
}

/// Returns the position of the first quote, backslash or control character from `at` on, or the length
/// of the text.
// Eight bytes at a time, because strings are most of the arguments.
fn next_special(text: &[u8], mut at: usize) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    // The high bit of each byte that is below a limit of at most 128. A borrow may also set those of
    // higher bytes, so only the lowest bit that is set is certain.
    let below = |word: u64, limit: u64| word.wrapping_sub(ONES * limit) & !word;
    while let Some(block) = text.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let word = u64::from_le_bytes(*block);
        let quote = below(word ^ (ONES * u64::from(b'"')), 1);
        let backslash = below(word ^ (ONES * u64::from(b'\\')), 1);
        let found = (below(word, 0x20) | quote | backslash) & HIGH;
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let rest = text.get(at..).unwrap_or_default();
    let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=0x1f);
    rest.iter().position(is_special).map_or(text.len(), |found| at + found)
}

#[cfg(test)]
mod tests {
    use super::{DEEPEST, Reader, call_key as key, next_special};
    use proptest::prelude::*;
    use serde_json::Value;

    fn same(a: &str, b: &str) -> bool {
        key("t", a) == key("t", b)
    }

    #[test]
    fn equal_values_have_equal_keys() {
        assert!(same(r#"{"a":1,"b":{"c":[1,"x"]}}"#, r#" {"b" : {"c":[1, "\u0078"]}, "a":1}"#));
        assert!(same(r#"{"a":1,"a":2}"#, r#"{"a":2}"#));
        assert!(same("no json ", "no json"));
        for (a, b) in [
            (r#"{"a":1}"#, r#"{"a":"1"}"#),
            (r#"{"a":[1,2]}"#, r#"{"a":[2,1]}"#),
            (r#"{"a":[[],1]}"#, r#"{"a":[[1]]}"#),
            (r#"{"a":{}}"#, r#"{"a":[]}"#),
            (r#"{"a":null}"#, "{}"),
            ("{}", "{} {}"),
            (r#"["a "]"#, r#"["a"]"#),
            (r#"["a"]"#, r#"["A"]"#),
            (r#"{"a":18446744073709551615}"#, r#"{"a":-1}"#),
        ] {
            assert!(!same(a, b), "{a} {b}");
        }
        assert_ne!(key("t", "{}"), key("u", "{}"));
    }

    #[test]
    fn numbers_compare_by_value() {
        for equal in [
            vec!["1", "1.0", "1e0", "10e-1", "0.1E+1", "1.000"],
            vec!["0", "-0", "-0.0", "0e9", "0.00"],
            vec!["120", "1.2e2", "12e1", "120.0"],
            vec!["-2.5", "-25e-1"],
            vec!["9007199254740993", "9007199254740993.0", "9.007199254740993e15"],
            vec!["1e400", "10e399"],
        ] {
            for number in &equal {
                assert!(same(&format!("[{number}]"), &format!("[{}]", equal[0])), "{number}");
            }
        }
        for (a, b) in [
            ("9007199254740993", "9007199254740992.0"),
            ("9007199254740993.0", "9007199254740992"),
            ("18446744073709551616", "18446744073709551617"),
            ("0.1", "0.10000000000000001"),
            ("1", "-1"),
            ("1", "10"),
            ("1", "0.1"),
            ("1", "true"),
            ("0", "null"),
            ("1e400", "1e401"),
        ] {
            assert!(!same(&format!("[{a}]"), &format!("[{b}]")), "{a} {b}");
        }
    }

    #[test]
    fn deep_arguments_are_text() {
        let nested = |depth: usize, space: &str| {
            format!("{}{space}{}", "[".repeat(depth), "]".repeat(depth))
        };
        let deepest = DEEPEST as usize;
        assert!(same(&nested(deepest, " "), &nested(deepest, "")));
        assert!(!same(&nested(100_000, " "), &nested(100_000, "")));
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-40i64..40).prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            (-40i32..40).prop_map(|n| Value::from(f64::from(n) / 4.0)),
            "[a-c\"\\\\\n\u{e9}]{0,3}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec(("[a-c\"]{0,2}", inner), 0..4)
                    .prop_map(|members| { Value::Object(members.into_iter().collect()) }),
            ]
        })
    }

    /// Writes a value in another notation: keys in reverse order, white space, escapes, and numbers
    /// with an exponent.
    fn other_notation(value: &Value) -> String {
        match value {
            Value::Number(number) => {
                let text = number.to_string();
                // `1e5` would get a second exponent.
                if text.contains(['e', 'E']) {
                    return text;
                }
                match text.split_once('.') {
                    Some((whole, fraction)) => format!("{whole}.{fraction}00E0"),
                    None => format!("{text}.0e+00"),
                }
            }
            Value::String(text) => {
                let escaped = |unit: u16| format!("\\u{unit:04x}");
                format!("\"{}\"", text.encode_utf16().map(escaped).collect::<String>())
            }
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(other_notation).collect();
                format!("[ {}\n]", items.join("\t, "))
            }
            Value::Object(map) => {
                let member = |(key, value): (&String, &Value)| {
                    format!(
                        "{} : {}",
                        other_notation(&Value::from(key.as_str())),
                        other_notation(value)
                    )
                };
                let members: Vec<String> = map.iter().rev().map(member).collect();
                format!("{{{}}}", members.join(" ,"))
            }
            other => other.to_string(),
        }
    }

    /// Compares by the rule without hashes. Numbers that random values produce have at most 17
    /// digits, so their shortest notation identifies them.
    fn equal(a: &Value, b: &Value) -> bool {
        match (a, b) {
            (Value::Number(a), Value::Number(b)) => match (a.as_i128(), b.as_i128()) {
                (Some(a), Some(b)) => a == b,
                (None, None) => a.as_f64() == b.as_f64(),
                (Some(whole), None) => b.as_f64().is_some_and(|b| exactly(b, whole)),
                (None, Some(whole)) => a.as_f64().is_some_and(|a| exactly(a, whole)),
            },
            (Value::Array(a), Value::Array(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b))
            }
            (Value::Object(a), Value::Object(b)) => {
                a.len() == b.len()
                    && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| equal(a, b)))
            }
            (a, b) => a == b,
        }
    }

    fn exactly(float: f64, whole: i128) -> bool {
        float.fract() == 0.0 && float.abs() < 1e17 && float as i128 == whole
    }

    proptest! {
        #[test]
        fn notation_does_not_change_key(value in values()) {
            prop_assert!(same(&value.to_string(), &other_notation(&value)));
        }

        #[test]
        fn keys_are_equal_if_values_are(a in values(), b in values()) {
            prop_assert_eq!(same(&a.to_string(), &b.to_string()), equal(&a, &b));
        }

        #[test]
        fn special_byte_is_found_anywhere(text in proptest::collection::vec(
            prop_oneof![4 => any::<u8>(), 1 => 0x1f_u8..0x24, 1 => Just(b'\\'), 40 => Just(b'a')],
            0..40,
        ), from in 0_usize..50) {
            let is_special = |at: &usize| matches!(text[*at], b'"' | b'\\' | 0..=0x1f);
            prop_assert_eq!(next_special(&text, from), (from..text.len()).find(is_special).unwrap_or(text.len()));
        }

        #[test]
        fn reader_accepts_what_serde_accepts(text in "[\\[\\]{},:\"\\\\ntrue0-9.eE+\u{1}u -]{0,12}") {
            let mut reader = Reader { text: &text, at: 0 };
            let read = reader.value(0).is_some() && reader.is_at_end();
            // `serde_json` refuses numbers that no float can hold, such as 1e999.
            let accepted = match serde_json::from_str::<Value>(&text) {
                Err(error) => error.to_string().contains("number out of range"),
                Ok(_) => true,
            };
            prop_assert!(read == accepted || read && text.contains(['e', 'E']), "{}", text);
        }
    }
}
