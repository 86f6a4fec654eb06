//! Reads JSON of the shape that a format describes, several times faster than serde. At any other
//! shape, and at any error, it gives up, and the caller reads the text again with serde.
//!
//! ```text
//! {"id": "x", "n": 5}   object(…): string() → "x", count() → 5
//! {"id": 7, …           string() → none, so serde decides what a number means there
//! ```
//!
//! So it need not know what a wrong shape means or how an error is described. It must only never read
//! a text that serde refuses, or read it as something else: unknown values are checked as well.

use crate::json::{Count, Str, unescaped};
use crate::stream::plain_text::plain_length;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Maximum depth of an unknown value.
const DEPTH: u32 = 32;

/// A position in a text.
pub(crate) struct JsonReader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> JsonReader<'a> {
    /// Begins at the start of a text.
    pub(crate) fn new(text: &'a str) -> JsonReader<'a> {
        JsonReader { text, at: 0 }
    }

    /// Reads an object. `each` must read the value of the name that it gets.
    pub(crate) fn object(
        &mut self,
        mut each: impl FnMut(&mut JsonReader<'a>, &'a str) -> Option<()>,
    ) -> Option<()> {
        self.expect(b'{')?;
        if self.next()? == b'}' {
            self.at += 1;
            return Some(());
        }
        loop {
            let Cow::Borrowed(name) = self.text()? else { return None };
            self.expect(b':')?;
            each(self, name)?;
            if self.is_last(b'}')? {
                return Some(());
            }
        }
    }

    /// Reads a list. `each` must read one item.
    pub(crate) fn list(
        &mut self,
        mut each: impl FnMut(&mut JsonReader<'a>) -> Option<()>,
    ) -> Option<()> {
        self.expect(b'[')?;
        if self.next()? == b']' {
            self.at += 1;
            return Some(());
        }
        loop {
            each(self)?;
            if self.is_last(b']')? {
                return Some(());
            }
        }
    }

    /// Reads `null` if it is next. Returns `true` if it was.
    pub(crate) fn null(&mut self) -> Option<bool> {
        if self.next()? != b'n' {
            return Some(false);
        }
        self.literal("null")?;
        Some(true)
    }

    /// `true` if a string is next.
    pub(crate) fn is_string(&mut self) -> Option<bool> {
        Some(self.next()? == b'"')
    }

    /// Reads a string or `null`.
    pub(crate) fn string(&mut self) -> Option<Str<'a>> {
        Some(Str(if self.null()? { None } else { Some(self.text()?) }))
    }

    /// Reads a number without sign, fraction and exponent, or `null`.
    pub(crate) fn count(&mut self) -> Option<Count> {
        if self.null()? {
            return Some(Count(None));
        }
        let from = self.at;
        let mut count = 0_u64;
        while let Some(digit @ b'0'..=b'9') = self.byte() {
            count = count.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
            self.at += 1;
        }
        let digits = self.at - from;
        let leads_with_zero = self.text.as_bytes().get(from) == Some(&b'0') && digits > 1;
        let is_other = matches!(self.byte(), Some(b'.' | b'e' | b'E'));
        (digits > 0 && !leads_with_zero && !is_other).then_some(Count(Some(count)))
    }

    /// Reads any value without parsing it. `None` stands for `null`.
    #[expect(clippy::option_option, reason = "the outer `None` leaves the text to serde")]
    pub(crate) fn raw(&mut self) -> Option<Option<&'a RawValue>> {
        if self.null()? {
            return Some(None);
        }
        let from = self.at;
        self.skip()?;
        serde_json::from_str(self.text.get(from..self.at)?).ok().map(Some)
    }

    /// Checks and skips any value.
    pub(crate) fn skip(&mut self) -> Option<()> {
        self.skip_within(DEPTH)
    }

    fn skip_within(&mut self, depth: u32) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match self.next()? {
            b'"' => {
                self.at += 1;
                self.at += plain_length(self.text.as_bytes().get(self.at..)?);
                self.rest_of_text()
            }
            b'{' => self.object(|value, _| value.skip_within(depth)),
            b'[' => self.list(|value| value.skip_within(depth)),
            b't' => self.literal("true"),
            b'f' => self.literal("false"),
            b'n' => self.literal("null"),
            _ => self.number(),
        }
    }

    fn number(&mut self) -> Option<()> {
        self.at += usize::from(self.byte() == Some(b'-'));
        if self.byte() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.byte() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.byte(), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.byte(), Some(b'+' | b'-')));
            self.digits()?;
        }
        Some(())
    }

    /// Skips one digit or more.
    fn digits(&mut self) -> Option<()> {
        let from = self.at;
        while matches!(self.byte(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        (self.at > from).then_some(())
    }

    /// Ends the text. There must be nothing but white space.
    pub(crate) fn end(mut self) -> Option<()> {
        self.next().is_none().then_some(())
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Skips white space, and returns the next byte.
    fn next(&mut self) -> Option<u8> {
        loop {
            match self.byte()? {
                b' ' | b'\t' | b'\n' | b'\r' => self.at += 1,
                byte => return Some(byte),
            }
        }
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        let found = self.next()? == byte;
        self.at += usize::from(found);
        found.then_some(())
    }

    fn literal(&mut self, literal: &str) -> Option<()> {
        let found = self.text.as_bytes()[self.at..].starts_with(literal.as_bytes());
        self.at += literal.len();
        found.then_some(())
    }

    /// Reads a comma, or the end of an object or a list. Returns `true` at the end.
    fn is_last(&mut self, end: u8) -> Option<bool> {
        let byte = self.next()?;
        self.at += 1;
        match byte {
            b',' => Some(false),
            _ if byte == end => Some(true),
            _ => None,
        }
    }

    /// Reads a string.
    fn text(&mut self) -> Option<Cow<'a, str>> {
        self.expect(b'"')?;
        let from = self.at;
        let rest = self.text.as_bytes().get(from..)?;
        let plain = plain_length(rest);
        if rest.get(plain) == Some(&b'"') {
            self.at = from + plain + 1;
            return self.text.get(from..from + plain).map(Cow::Borrowed);
        }
        self.at = from + plain;
        self.rest_of_text()?;
        unescaped(self.text.get(from - 1..self.at)?)
    }

    /// Skips the rest of a string, from a byte that is not plain.
    fn rest_of_text(&mut self) -> Option<()> {
        loop {
            match self.byte()? {
                b'"' => break,
                b'\\' => {
                    let escape = self.text.as_bytes().get(self.at + 1)?;
                    // Four digits may be half a character, which serde judges.
                    b"\"\\/bfnrt".contains(escape).then_some(())?;
                    self.at += 2;
                }
                // A control character.
                _ => return None,
            }
            self.at += plain_length(self.text.as_bytes().get(self.at..)?);
        }
        self.at += 1;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::de::IgnoredAny;
    use serde_json::{Value, json};

    fn skips(text: &str) -> bool {
        let mut reader = JsonReader::new(text);
        reader.skip().and_then(|()| reader.end()).is_some()
    }

    fn string(text: &str) -> Option<String> {
        JsonReader::new(text).text().map(Cow::into_owned)
    }

    #[test]
    fn usual_values_are_read() {
        let value = json!({"a": [1, "x\n", true, false, null, {}], "b": [], "é": {"c": u64::MAX}});
        assert!(skips(&value.to_string()) && skips(&format!("{value:#} \r\n\t")));
        assert_eq!(
            string(r#"  "a\"\\\/\b\f\n\r\tz é""#).as_deref(),
            Some("a\"\\/\u{8}\u{c}\n\r\tz é")
        );
        let count = |text| JsonReader::new(text).count().and_then(|count| count.0);
        assert_eq!([count("0"), count(" 18446744073709551615 ")], [Some(0), Some(u64::MAX)]);
        assert!(JsonReader::new("null").count().unwrap().0.is_none());
        assert!(JsonReader::new("null").string().unwrap().0.is_none());
        assert!(JsonReader::new("null").raw().unwrap().is_none());
        assert_eq!(
            JsonReader::new(r#" [{"a" :1}] "#).raw().unwrap().unwrap().get(),
            r#"[{"a" :1}]"#
        );
    }

    #[test]
    fn other_values_are_left() {
        for text in [
            "",
            " ",
            "{",
            "[",
            "[1",
            "[1,",
            "[1,]",
            "[1 2]",
            r#"{"a""#,
            r#"{"a":"#,
            r#"{"a":1"#,
            r#"{"a":1,}"#,
            "{a:1}",
            r#"{"a" 1}"#,
            r#"{"a":1 "b":2}"#,
            r#""a"#,
            r#""\"#,
            r#""\x""#,
            "\"\u{1}\"",
            "nul",
            "nulll",
            "tru",
            "01",
            "-",
            "1x",
            "1.",
            ".5",
            "1e",
            "1e+",
            "+1",
            "}",
            "]",
            ":",
            "[}",
            "1 2",
        ] {
            assert!(!skips(text), "{text}");
        }
        // Valid, but left to serde.
        assert!(!skips(r#""\u00e9""#) && serde_json::from_str::<IgnoredAny>(r#""\u00e9""#).is_ok());
        for text in ["-1", "1.5", "1e3", "0.0", "18446744073709551616"] {
            let count = JsonReader::new(text).count();
            assert!(skips(text) && count.is_none(), "{text}");
        }
        let deep = ["[".repeat(100_000), "]".repeat(100_000)].concat();
        assert!(!skips(&deep));
    }

    proptest! {
        #[test]
        fn nothing_is_read_that_serde_refuses(text in r#"[\[\]{}",: a\\n0-2.e\n-]{0,24}"#) {
            if skips(&text) {
                prop_assert!(serde_json::from_str::<IgnoredAny>(&text).is_ok(), "{text:?}");
            }
            let value = JsonReader::new(&text).raw().flatten();
            if let Some(raw) = value {
                prop_assert!(serde_json::from_str::<IgnoredAny>(raw.get()).is_ok(), "{text:?}");
            }
        }

        #[test]
        fn strings_are_those_of_serde(text in any::<String>(), after in ".{0,9}") {
            let json = Value::from(text.clone()).to_string();
            let found = string(&format!("{json}{after}"));
            // Control characters are written as four digits.
            prop_assert!(found.is_none_or(|found| found == text));
            prop_assert!(json.contains("\\u") || string(&json).is_some());
        }
    }
}
