//! Keys that are known, cut out of bytes wherever they stand: whole, in part, and in the pieces that
//! a stream has them in.
//!
//! ```
//! use endstop_wire::redact::KnownKeys;
//! let keys = KnownKeys::new(["sk-proj-4fQ9xTz71LmN0pWv"]);
//! // A model that repeats a key says it in tokens.
//! let stream = b"data: {\"content\":\"sk-pr\"}\n\ndata: {\"content\":\"oj-4fQ9xTz71LmN0pWv!\"}\n\n";
//! let clean = keys.out_of(stream);
//! assert_eq!(&*clean, b"data: {\"content\":\"[redacted]\"}\n\ndata: {\"content\":\"!\"}\n\n");
//! ```
//!
//! What is not part of a key stays as it is, to the byte: an id, a signature, the form of the JSON.

use super::REDACTED;
use memchr::memmem;
use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

/// A part of a key that is longer than six characters goes.
const PART: usize = 7;
/// So many bytes of a part are looked at first: every part has four in a row that begin at a place
/// divisible by four.
const GRAM: usize = 4;
const GRAMS: usize = 1 << 16;
/// With strings of more names than these a text is always looked at string by string.
const TAILS: usize = 64;
/// A shorter key, such as `none`, is a word like any other.
const SHORTEST: usize = 8;
/// A key that is shorter, or has no digit, may consist of words (`sk-no-key-required`): it goes whole,
/// its parts stay.
const SHORTEST_RANDOM: usize = 20;

/// Keys that are known. `Debug` does not show them.
#[derive(Clone, Default)]
pub struct KnownKeys {
    whole: Vec<memmem::Finder<'static>>,
    parts: HashSet<[u8; PART]>,
    /// A bit for each four bytes in a row that a key has: one look at every fourth place of a text
    /// tells where a part may be, and one where two strings meet whether a key may go over from one
    /// to the other.
    grams: Option<Box<[u64; GRAMS / 64]>>,
    /// Bytes of the longest key.
    longest: usize,
    /// A key has a line break, a quote or a backslash in it, as a private key in PEM has.
    is_odd: bool,
}

impl std::fmt::Debug for KnownKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KnownKeys({})", self.whole.len())
    }
}

impl KnownKeys {
    /// These keys; one of fewer than eight characters is none.
    pub fn new<K: AsRef<[u8]>>(keys: impl IntoIterator<Item = K>) -> KnownKeys {
        let mut known = KnownKeys::default();
        for key in keys {
            let key = key.as_ref();
            if key.len() < SHORTEST {
                continue;
            }
            known.whole.push(memmem::Finder::new(key).into_owned());
            known.longest = known.longest.max(key.len());
            known.is_odd |=
                key.iter().any(|byte| byte.is_ascii_control() || b"\"\\".contains(byte));
            if key.len() >= SHORTEST_RANDOM && key.iter().any(u8::is_ascii_digit) {
                known.parts.extend(key.windows(PART).filter_map(|part| {
                    let part: [u8; PART] = part.try_into().ok()?;
                    // Tokens of AWS have a row of slashes in them, as comments have.
                    part.iter().any(|byte| *byte != part[0]).then_some(part)
                }));
            }
        }
        for key in &known.whole {
            let grams = known.grams.get_or_insert_with(|| Box::new([0; GRAMS / 64]));
            for gram in key.needle().windows(GRAM) {
                let bit = bit_of(gram_of(gram));
                grams[bit / 64] |= 1 << (bit % 64);
            }
        }
        known
    }

    /// These and those.
    #[must_use]
    pub fn and(&self, other: &KnownKeys) -> KnownKeys {
        KnownKeys::new(self.whole.iter().chain(&other.whole).map(memmem::Finder::needle))
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.whole.is_empty()
    }

    /// `bytes` without the keys: each stretch of one is `[redacted]`.
    ///
    /// Where strings of one name (`"content"`, `"text"` …) have a key between them, piece by piece,
    /// the first has `[redacted]` for it, and the others nothing.
    pub fn out_of<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        if self.is_empty() {
            return Cow::Borrowed(bytes);
        }
        let mut cuts: Vec<Cut> =
            self.find(bytes).into_iter().map(|at| Cut { at, shown: None }).collect();
        if self.may_be_in_pieces(bytes) {
            self.find_pieces(bytes, &mut cuts);
        }
        if cuts.is_empty() {
            return Cow::Borrowed(bytes);
        }
        Cow::Owned(apply(bytes, cuts))
    }

    /// Where keys stand in pieces, in strings of one name.
    fn find_pieces(&self, bytes: &[u8], cuts: &mut Vec<Cut>) {
        for strings in strings_by_name(bytes).chunk_by(|(a, _), (b, _)| a == b) {
            if !self.may_be_split(bytes, strings) {
                continue;
            }
            let mut said = Said::default();
            for (_, string) in strings {
                self.say_ends(bytes, string, &mut said);
            }
            for found in self.find(&said.text) {
                said.cuts(&found, cuts);
            }
        }
    }

    /// As [`out_of`](KnownKeys::out_of), of text.
    pub fn out_of_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.out_of(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        }
    }

    /// Whether strings of these bytes may have a key in pieces: a quick look at one line of JSON, for
    /// what is written step by step. A key that goes over from one string to the next of its name has
    /// four bytes in a row where they meet.
    fn may_be_in_pieces(&self, bytes: &[u8]) -> bool {
        if memchr::memchr(b'\n', bytes).is_some() || self.may_spell_a_key(bytes, &(0..bytes.len()))
        {
            return true;
        }
        let mut tails = Tails::default();
        let mut name: &[u8] = b"";
        let mut at = 0;
        while let Some(quote) = memchr::memchr(b'"', &bytes[at..]) {
            let start = at + quote + 1;
            let Some(end) = closing_quote_in_line(bytes, start) else { return true };
            at = end + 1;
            if is_name(bytes, at) {
                name = &bytes[start..end];
                continue;
            }
            let string = &bytes[start..end];
            let Some(tail) = tails.of(name) else { return true };
            for byte in string.iter().take(GRAM - 1) {
                *tail = *tail >> 8 | u32::from(*byte) << 24;
                if self.has_gram(*tail) {
                    return true;
                }
            }
            if let Some(last) = string.last_chunk() {
                *tail = u32::from_le_bytes(*last);
            }
        }
        false
    }

    fn has_gram(&self, gram: u32) -> bool {
        let bit = bit_of(gram);
        self.grams.as_ref().is_some_and(|grams| grams[bit / 64] & (1 << (bit % 64)) != 0)
    }

    /// Whether these strings of one name may have a key in pieces: there are several, or one that
    /// spells a character of a key by an escape.
    fn may_be_split(&self, bytes: &[u8], strings: &[(&[u8], Range<usize>)]) -> bool {
        match strings {
            [(_, string)] => self.may_spell_a_key(bytes, string),
            several => several.len() > 1,
        }
    }

    /// Whether an escape in this string may stand for a character of a key.
    fn may_spell_a_key(&self, bytes: &[u8], string: &Range<usize>) -> bool {
        memchr::memchr_iter(b'\\', &bytes[string.clone()])
            .any(|at| !self.breaks_every_key(bytes.get(string.start + at + 1)))
    }

    /// What a string says; of a long one only its ends, where another may go on with a key.
    fn say_ends(&self, bytes: &[u8], string: &Range<usize>, said: &mut Said) {
        let end = self.longest.max(PART);
        if string.len() <= 4 * end || self.may_spell_a_key(bytes, string) {
            return unescape(bytes, string.clone(), said);
        }
        unescape(bytes, string.start..string.start + end, said);
        // What lies between is no part of a key in pieces.
        said.text.push(0);
        unescape(bytes, string.end - end..string.end, said);
    }

    /// The escape of this letter stands for a character that no key has.
    fn breaks_every_key(&self, letter: Option<&u8>) -> bool {
        letter.is_some_and(|letter| b"nrtbf\"\\".contains(letter)) && !self.is_odd
    }

    /// Where keys stand, and parts of them; in order, without overlap.
    fn find(&self, bytes: &[u8]) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> = Vec::new();
        for key in &self.whole {
            found.extend(key.find_iter(bytes).map(|at| at..at + key.needle().len()));
        }
        if let Some(grams) = self.grams.as_ref().filter(|_| !self.parts.is_empty()) {
            for (nth, gram) in bytes.chunks_exact(GRAM).enumerate() {
                let bit = bit_of(gram_of(gram));
                if grams[bit / 64] & (1 << (bit % 64)) == 0 {
                    continue;
                }
                // A part that has these four whole begins at most three before them.
                let at = nth * GRAM;
                for at in at.saturating_sub(PART - GRAM)..=at {
                    if bytes.get(at..at + PART).is_some_and(|part| self.parts.contains(part)) {
                        found.push(at..at + PART);
                    }
                }
            }
        }
        found.sort_by_key(|at| at.start);
        let mut joined: Vec<Range<usize>> = Vec::with_capacity(found.len());
        for at in found {
            match joined.last_mut() {
                Some(last) if at.start <= last.end => last.end = last.end.max(at.end),
                _ => joined.push(at),
            }
        }
        joined
    }
}

/// Four bytes as a number.
fn gram_of(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes.try_into().unwrap_or_default())
}

/// The bit that stands for four bytes.
fn bit_of(gram: u32) -> usize {
    (gram.wrapping_mul(0x9e37_79b1) >> 16) as usize
}

/// The last four bytes of what the strings of each name say, for as many names as one step has.
struct Tails<'b>([Option<(&'b [u8], u32)>; TAILS]);

impl Default for Tails<'_> {
    fn default() -> Self {
        Tails([None; TAILS])
    }
}

impl<'b> Tails<'b> {
    /// That of this name; `None`: there are too many names.
    fn of(&mut self, name: &'b [u8]) -> Option<&mut u32> {
        let ends = name
            .first()
            .zip(name.last())
            .map_or(0, |(first, last)| first.wrapping_mul(5).wrapping_add(*last));
        let first = name.len().wrapping_mul(7).wrapping_add(usize::from(ends));
        let at = (first..first + TAILS)
            .map(|at| at % TAILS)
            .find(|at| self.0[*at].is_none_or(|(own, _)| own == name))?;
        Some(&mut self.0[at].get_or_insert((name, 0)).1)
    }
}

/// Bytes that go, and whether `[redacted]` stands for them; `None`: unless another cut of the same
/// bytes says otherwise.
struct Cut {
    at: Range<usize>,
    shown: Option<bool>,
}

fn apply(bytes: &[u8], mut cuts: Vec<Cut>) -> Vec<u8> {
    cuts.sort_by_key(|cut| cut.at.start);
    let mut out = Vec::with_capacity(bytes.len());
    let mut from = 0;
    let mut cuts = cuts.into_iter().peekable();
    while let Some(mut cut) = cuts.next() {
        // What overlaps is one.
        while let Some(more) = cuts.next_if(|next| next.at.start <= cut.at.end) {
            cut.at.end = cut.at.end.max(more.at.end);
            cut.shown = match (cut.shown, more.shown) {
                (Some(a), Some(b)) => Some(a || b),
                (a, b) => a.or(b),
            };
        }
        out.extend_from_slice(&bytes[from..cut.at.start]);
        if cut.shown.unwrap_or(true) {
            out.extend_from_slice(REDACTED.as_bytes());
        }
        from = cut.at.end;
    }
    out.extend_from_slice(&bytes[from..]);
    out
}

/// What the strings of one name say, one behind the other, and where each byte of it stands.
#[derive(Default)]
struct Said {
    text: Vec<u8>,
    runs: Vec<Run>,
}

/// A run of bytes that stand together, or what one escape stands for.
struct Run {
    /// Where it begins in the text.
    from: usize,
    raw: Range<usize>,
    escape: bool,
}

impl Said {
    fn push(&mut self, bytes: &[u8], raw: Range<usize>, escape: bool) {
        if !raw.is_empty() {
            self.runs.push(Run { from: self.text.len(), raw, escape });
            self.text.extend_from_slice(bytes);
        }
    }

    /// The bytes that a stretch of the text stands in.
    fn cuts(&self, found: &Range<usize>, cuts: &mut Vec<Cut>) {
        let mut shown = true;
        let first = self.runs.partition_point(|run| run.from <= found.start).saturating_sub(1);
        for run in self.runs[first..].iter().take_while(|run| run.from < found.end) {
            let at = if run.escape {
                run.raw.clone()
            } else {
                let start = run.raw.start + found.start.saturating_sub(run.from);
                start..run.raw.end.min(run.raw.start + (found.end - run.from))
            };
            if at.start < at.end {
                cuts.push(Cut { at, shown: Some(shown) });
                shown = false;
            }
        }
    }
}

/// Where the strings stand in JSON, or in lines that have JSON in them, each with its name (the one
/// before it), those of one name together. What is no JSON gives strings that nobody said, and does no
/// harm: they are only looked at.
fn strings_by_name(bytes: &[u8]) -> Vec<(&[u8], Range<usize>)> {
    let mut strings: Vec<(&[u8], Range<usize>)> = Vec::new();
    let mut name: &[u8] = b"";
    let mut at = 0;
    while let Some(quote) = memchr::memchr(b'"', &bytes[at..]) {
        let start = at + quote + 1;
        let end = match closing_quote(bytes, start) {
            Ok(end) => end,
            // A string has no line break in it: what began here was none, nor what a quote up to there
            // would begin.
            Err(stopped) => {
                at = stopped;
                continue;
            }
        };
        at = end + 1;
        if is_name(bytes, at) {
            name = &bytes[start..end];
        } else if start < end {
            strings.push((name, start..end));
        }
    }
    // Those of one name stay in their order.
    strings.sort_by_key(|(name, _)| *name);
    strings
}

/// Whether the string that ended before here is the name of what follows.
fn is_name(bytes: &[u8], at: usize) -> bool {
    bytes[at..].iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b':')
}

/// As [`closing_quote`], where there is no line break.
fn closing_quote_in_line(bytes: &[u8], start: usize) -> Option<usize> {
    let mut from = start;
    loop {
        let quote = from + memchr::memchr(b'"', &bytes[from..])?;
        let escapes = bytes[start..quote].iter().rev().take_while(|byte| **byte == b'\\').count();
        if escapes % 2 == 0 {
            return Some(quote);
        }
        from = quote + 1;
    }
}

/// Where the string that begins here ends; an error: how far it was looked for, where it does not.
fn closing_quote(bytes: &[u8], mut at: usize) -> Result<usize, usize> {
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        at += memchr::memchr3(b'"', b'\\', b'\n', rest).ok_or(bytes.len())?;
        match bytes[at] {
            b'"' => return Ok(at),
            b'\\' if bytes.get(at + 1) != Some(&b'\n') => at += 2,
            _ => return Err(at + 1),
        }
    }
}

/// What a string says.
fn unescape(bytes: &[u8], string: Range<usize>, said: &mut Said) {
    let mut at = string.start;
    while at < string.end {
        let run = memchr::memchr(b'\\', &bytes[at..string.end]).map_or(string.end, |n| at + n);
        said.push(&bytes[at..run], at..run, false);
        if run == string.end {
            return;
        }
        let unit = bytes.get(run + 2..run + 6).and_then(|hex| std::str::from_utf8(hex).ok());
        let unit = unit.and_then(|hex| u32::from_str_radix(hex, 16).ok());
        let (len, stands_for) = match (bytes[run + 1], unit) {
            // Half of a pair is no character, and no key has one.
            (b'u', Some(unit)) => (6, char::from_u32(unit).unwrap_or('\u{fffd}')),
            (b'n', _) => (2, '\n'),
            (b'r', _) => (2, '\r'),
            (b't', _) => (2, '\t'),
            (b'b', _) => (2, '\u{8}'),
            (b'f', _) => (2, '\u{c}'),
            (other, _) => (2, char::from(other)),
        };
        let end = (run + len).min(string.end);
        said.push(stands_for.encode_utf8(&mut [0; 4]).as_bytes(), run..end, true);
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    const KEY: &str = "sk-proj-4fQ9xTz71LmN0pWv8aBcD";

    fn clean(text: &str) -> String {
        KnownKeys::new([KEY]).out_of_text(text).into_owned()
    }

    #[test]
    fn a_key_goes_whole_and_in_part_and_escaped() {
        assert_eq!(clean(&format!("a {KEY} b {KEY}{KEY}.")), "a [redacted] b [redacted].");
        // Masked, as some servers do.
        assert_eq!(clean("key: sk-proj-4fQ9*****BcD."), "key: [redacted]*****BcD.");
        assert_eq!(clean("key: sk-pr***8aBcD"), "key: sk-pr***8aBcD");
        assert_eq!(
            clean(r#"{"a":"sk-p\u0072oj-4f","a":"Q9xTz7\u0031LmN0pWv8aBcD"}"#),
            r#"{"a":"[redacted]","a":""}"#
        );
        assert_eq!(clean("\"unclosed\nsk-proj-4fQ9xT\"\\"), "\"unclosed\n[redacted]\"\\");
    }

    #[test]
    fn a_key_with_slashes_goes_where_they_are_escaped() {
        let keys = KnownKeys::new(["wJa1rX/tnFE/I/K7MDE/G+bPxR/iCYEX"]);
        let text = r#"{"message":"wJa1rX\/tnFE\/I\/K7MDE\/G+bPxR\/iCYEX!"}"#;
        assert_eq!(keys.out_of_text(text), r#"{"message":"[redacted]!"}"#);
    }

    #[test]
    fn a_key_of_several_lines_goes_where_its_breaks_are_escaped() {
        let keys = KnownKeys::new(["-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\n-----END"]);
        let text = r#"{"key":"-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\n-----END KEY"}"#;
        assert_eq!(keys.out_of_text(text), r#"{"key":"[redacted] KEY"}"#);
    }

    #[test]
    fn a_row_of_one_character_is_no_part_of_a_key() {
        let keys = KnownKeys::new(["FwoGZXIvYXdzEJr//////////wEaDNq8"]);
        let text = "////////// a comment, and FwoGZXIv";
        assert_eq!(keys.out_of_text(text), "////////// a comment, and [redacted]");
    }

    #[test]
    fn a_key_that_may_be_words_goes_whole_only() {
        let keys = KnownKeys::new(["sk-no-key-required", "none", ""]);
        let text = r#"{"required":["none"],"key":"sk-no-key-required"}"#;
        assert_eq!(keys.out_of_text(text), r#"{"required":["none"],"key":"[redacted]"}"#);
        assert!(!format!("{keys:?}").contains("required"));
    }

    #[test]
    fn a_key_that_two_long_texts_have_between_them_goes() {
        let long = "a line of code\\n".repeat(40);
        let (one, other) = KEY.split_at(11);
        let text = format!(r#"[{{"text":"{long}{one}"}},{{"text":"{other}{long}"}}]"#);
        let said = format!(r#"[{{"text":"{long}[redacted]"}},{{"text":"{long}"}}]"#);
        assert_eq!(clean(&text), said);
    }

    #[test]
    fn quotes_that_nothing_closes_are_passed_in_one_go() {
        let text = format!(
            "\"{}\n{{\"a\":\"{}\",\"a\":\"{}\"}}",
            "\\\"".repeat(200_000),
            &KEY[..9],
            &KEY[9..]
        );
        assert!(clean(&text).ends_with(r#"{"a":"[redacted]","a":""}"#));
    }

    #[test]
    fn a_key_in_pieces_goes_from_one_line() {
        let text = format!(
            r#"{{"a":"x{}","b":"{}","a":"{}","c":["{}","{}\\"],"a":"{}y"}}"#,
            &KEY[..8],
            &KEY[..3],
            &KEY[8..9],
            &KEY[3..5],
            &KEY[5..20],
            &KEY[9..]
        );
        assert_eq!(
            clean(&text),
            r#"{"a":"x[redacted]","b":"sk-","a":"","c":["[redacted]","\\"],"a":"y"}"#
        );
        // Also one that may be words, and goes whole only.
        let keys = KnownKeys::new(["sk-no-key-required"]);
        let text = r#"[{"t":"sk-no"},{"t":"-key-required."}]"#;
        assert_eq!(keys.out_of_text(text), r#"[{"t":"[redacted]"},{"t":"."}]"#);
        // And where there are more names than a quick look counts.
        let many: Vec<String> = (0..2 * TAILS).map(|nth| format!(r#""{nth}":"{nth}","#)).collect();
        let many = many.concat();
        let text = format!(r#"{{{many}"t":"{}","u":"u","t":"{}"}}"#, &KEY[..10], &KEY[10..]);
        assert_eq!(clean(&text), format!(r#"{{{many}"t":"[redacted]","u":"u","t":""}}"#));
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
            stray in "[\"\\\\a:, ]{0,4}",
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
            let mut line = stray;
            for (name, text) in mixed {
                line.push_str(&json!({names[name]: text}).to_string());
            }
            let mut walked: Vec<Cut> =
                keys.find(line.as_bytes()).into_iter().map(|at| Cut { at, shown: None }).collect();
            keys.find_pieces(line.as_bytes(), &mut walked);
            // Two strings that are keys as they stand may be shown as one cut, or as one each.
            let left = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(REDACTED, "");
            prop_assert_eq!(
                left(&keys.out_of(line.as_bytes())),
                left(&apply(line.as_bytes(), walked))
            );
        }

        /// However a stream cuts a key, its text has no part of it left, and all the rest.
        #[test]
        fn no_cutting_keeps_a_part(
            before in "[a-z \"\\\\\n]{0,20}",
            after in "[a-z \"\\\\\né]{0,20}",
            cuts in proptest::collection::vec(0usize..80, 0..12),
            stray in "[\"\\\\a\n:]{0,6}",
        ) {
            let text = format!("{before}|{KEY}|{after}");
            let mut cuts: Vec<usize> =
                cuts.into_iter().filter(|at| *at < text.len() && text.is_char_boundary(*at)).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let mut stream = format!(": {stray}\n");
            for pair in cuts.windows(2) {
                let event = json!({"index": 0, "delta": {"content": text[pair[0]..pair[1]], "role": "x"}});
                stream.extend(["data: ", &event.to_string(), "\n\n"]);
            }
            let out = clean(&stream);
            let said: String = out
                .lines()
                .filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok())
                .filter_map(|event| event["delta"]["content"].as_str().map(str::to_owned))
                .collect();
            prop_assert_eq!(said, format!("{before}|[redacted]|{after}"));
            for part in KEY.as_bytes().windows(PART) {
                prop_assert!(memmem::find(out.as_bytes(), part).is_none());
            }
        }

        /// What has nothing of a key in it stays as it is.
        #[test]
        fn what_is_no_key_stays(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(&*KnownKeys::new([KEY]).out_of(&bytes), &bytes[..]);
        }
    }
}
