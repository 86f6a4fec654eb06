//! Redacts secrets in text that may contain JSON: a JSON body, a stream of events, JSON lines, or
//! plain text.
//!
//! In JSON only the content of strings is changed, so that the result is still valid JSON.
//! Everything that is not part of a secret is preserved byte for byte: an id, a signature, the
//! JSON's white space.

use super::known::{Cut, KnownKeys, apply, is_name, joined};
use super::patterns;
use memchr::memmem;
use serde::de::IgnoredAny;
use std::borrow::Cow;
use std::ops::Range;

impl KnownKeys {
    /// Returns `bytes` with `[redacted]` in place of each secret.
    ///
    /// If a secret is split over several strings with the same member name (`"content"`, `"text"`
    /// …), the first string gets `[redacted]`, and the parts in the others are removed.
    pub fn out_of<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        self.out_of_chunks(bytes, false)
    }

    /// Like [`out_of`](KnownKeys::out_of). With `by_line`, no secret is searched across line
    /// breaks.
    pub(super) fn out_of_chunks<'a>(&self, bytes: &'a [u8], by_line: bool) -> Cow<'a, [u8]> {
        let cuts = self.cuts_of_chunks(bytes, by_line);
        if cuts.is_empty() {
            return Cow::Borrowed(bytes);
        }
        Cow::Owned(apply(bytes, cuts))
    }

    /// Returns the ranges that [`out_of_chunks`](KnownKeys::out_of_chunks) redacts.
    pub(super) fn cuts_of_chunks(&self, bytes: &[u8], by_line: bool) -> Vec<Cut> {
        let mut cuts = Vec::new();
        for plain in plain(bytes, by_line) {
            let found = self.find_in_text(&bytes[plain.clone()]).into_iter();
            let at = |at: Range<usize>| at.start + plain.start..at.end + plain.start;
            cuts.extend(found.map(|found| Cut { at: at(found), shown: None }));
        }
        self.find_in_strings(bytes, &mut cuts);
        let shown = patterns::find_shown(bytes).into_iter();
        cuts.extend(shown.map(|at| Cut { at, shown: None }));
        cuts
    }

    /// `true` if the text has escapes that may stand for the characters of a secret: `\u0073`, also as JSON
    /// within JSON spells it, `\/`, and any other if a secret has quotes or control characters.
    fn may_hide(&self, bytes: &[u8]) -> bool {
        memmem::find(bytes, b"\\u").is_some()
            || memmem::find(bytes, b"\\/").is_some()
            || self.has_escapes() && memchr::memchr(b'\\', bytes).is_some()
    }

    /// Returns the ranges of secrets in text, as written and with JSON escapes undone: a tool prints JSON,
    /// and a string in it may be JSON again.
    pub(super) fn find_in_text(&self, bytes: &[u8]) -> Vec<Range<usize>> {
        let mut found = self.find(bytes);
        if !self.may_hide(bytes) {
            return found;
        }
        let levels = Levels::of(bytes);
        for (nth, text) in levels.texts().enumerate() {
            found.extend(self.find(text).iter().filter_map(|at| levels.raw(nth, at)));
        }
        joined(found)
    }

    /// Searches the content of strings. Strings of one name are joined, because a stream may split a
    /// secret over them.
    fn find_in_strings(&self, bytes: &[u8], cuts: &mut Vec<Cut>) {
        let Strings { names, mut values } = strings(bytes);
        // The sort is stable, so that strings of one name keep their order.
        values.sort_by_key(|(name, _)| *name);
        for strings in values.chunk_by(|(a, _), (b, _)| a == b) {
            let mut said = Said::default();
            for (_, string) in strings {
                unescape(bytes, string.clone(), &mut said);
            }
            for found in self.find_in_text(&said.text) {
                said.cuts(&found, cuts);
            }
        }
        // A name may show that its value is a credential.
        for (name, string) in values {
            let mut said = Said::default();
            unescape(bytes, string, &mut said);
            for found in patterns::find_named(name, &said.text) {
                said.cuts(&found, cuts);
            }
        }
        // Names are searched too, because a hostile server may use a secret as a member name.
        for name in names {
            let mut said = Said::default();
            unescape(bytes, name, &mut said);
            for found in self.find_whole(&said.text) {
                said.cuts(&found, cuts);
            }
        }
    }
}

/// Returns the parts of the bytes that are not JSON. Adjacent lines are joined unless `by_line`.
fn plain(bytes: &[u8], by_line: bool) -> Vec<Range<usize>> {
    let mut plain: Vec<Range<usize>> = Vec::new();
    if !by_line && is_json(bytes) {
        return plain;
    }
    let mut start = 0;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let at = start..start + line.len();
        start = at.end;
        if is_json(line.strip_prefix(b"data:").unwrap_or(line)) {
            continue;
        }
        match plain.last_mut() {
            Some(last) if last.end == at.start && !by_line => last.end = at.end,
            _ => plain.push(at),
        }
    }
    plain
}

fn is_json(bytes: &[u8]) -> bool {
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    matches!(first, Some(b'{' | b'[' | b'"')) && serde_json::from_slice::<IgnoredAny>(bytes).is_ok()
}

/// The decoded content of the strings of one name, joined, with the position of each byte.
#[derive(Default)]
struct Said {
    text: Vec<u8>,
    runs: Vec<Run>,
}

/// Number of times that escapes are undone. Each level takes as long as a search of the text.
const LEVELS: usize = 4;

/// Text with JSON escapes undone, whether or not they are within a string of JSON: once, and again as
/// long as there are escapes.
pub(super) struct Levels(Vec<Said>);

impl Levels {
    pub(super) fn of(bytes: &[u8]) -> Levels {
        let mut levels = Levels(Vec::new());
        while levels.0.len() < LEVELS {
            let text = levels.0.last().map_or(bytes, |said| &said.text);
            if !text.contains(&b'\\') {
                break;
            }
            // The last characters of an escape may be missing.
            let mut said = Said::default();
            unescape(text, 0..unfinished_escape(text).unwrap_or(text.len()), &mut said);
            levels.0.push(said);
        }
        levels
    }

    /// The texts, from the one with the most escapes.
    pub(super) fn texts(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|said| &*said.text)
    }

    /// Returns the source bytes of a range of a text; `None` if it is empty.
    pub(super) fn raw(&self, nth: usize, at: &Range<usize>) -> Option<Range<usize>> {
        let mut at = at.clone();
        for said in self.0[..=nth].iter().rev() {
            let mut cuts = Vec::new();
            said.cuts(&at, &mut cuts);
            at = cuts.first()?.at.start..cuts.last()?.at.end;
        }
        Some(at)
    }

    /// Returns the number of source bytes from which a text was made.
    pub(super) fn end(&self, nth: usize) -> usize {
        let len = self.0[nth].text.len();
        self.raw(nth, &(len.saturating_sub(1)..len)).map_or(0, |last| last.end)
    }
}

/// Returns the position of an escape at the end whose last characters are missing.
fn unfinished_escape(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(escape) = memchr::memchr(b'\\', &bytes[at..]).map(|n| at + n) {
        let Some(kind) = bytes.get(escape + 1) else { return Some(escape) };
        let digits = &bytes[escape + 2..];
        if *kind == b'u' && digits.len() < 4 && digits.iter().all(u8::is_ascii_hexdigit) {
            return Some(escape);
        }
        at = escape + 2;
    }
    None
}

/// A run of unescaped bytes, or the character of one escape.
struct Run {
    /// Start of the run in the decoded text.
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

    /// Adds the source bytes of a range of the decoded text.
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

/// The strings of JSON, or of lines that contain JSON. Text that is not JSON may yield strings that
/// are not real, which is harmless because searching them only adds work.
#[derive(Default)]
struct Strings<'b> {
    /// Names of members.
    names: Vec<Range<usize>>,
    /// Values, each with the name before it.
    values: Vec<(&'b [u8], Range<usize>)>,
}

fn strings(bytes: &[u8]) -> Strings<'_> {
    let mut strings = Strings::default();
    let mut name: &[u8] = b"";
    let mut at = 0;
    while let Some(quote) = memchr::memchr(b'"', &bytes[at..]) {
        let start = at + quote + 1;
        let end = match closing_quote(bytes, start) {
            Ok(end) => end,
            // A JSON string contains no line break, so this quote did not start a string, and
            // neither did any quote up to the line break.
            Err(stopped) => {
                at = stopped;
                continue;
            }
        };
        at = end + 1;
        if is_name(bytes, at) {
            name = &bytes[start..end];
            strings.names.push(start..end);
        } else if start < end {
            strings.values.push((name, start..end));
        }
    }
    strings
}

/// Returns the position of the closing quote. The error is the position at which the search stopped
/// without one.
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

/// Appends the decoded content of a string to `said`.
fn unescape(bytes: &[u8], string: Range<usize>, said: &mut Said) {
    let mut at = string.start;
    while at < string.end {
        let run = memchr::memchr(b'\\', &bytes[at..string.end]).map_or(string.end, |n| at + n);
        said.push(&bytes[at..run], at..run, false);
        if run == string.end {
            return;
        }
        let Some(kind) = bytes[..string.end].get(run + 1) else {
            // Only text that is not a string of JSON ends with an unfinished escape.
            said.push(&bytes[run..string.end], run..string.end, false);
            return;
        };
        let unit = bytes.get(run + 2..run + 6).and_then(|hex| std::str::from_utf8(hex).ok());
        let unit = unit.and_then(|hex| u32::from_str_radix(hex, 16).ok());
        let (len, stands_for) = match (*kind, unit) {
            // Half of a surrogate pair is not a character, and no key has one, so any replacement
            // works.
            (b'u', Some(unit)) => (6, char::from_u32(unit).unwrap_or('\u{fffd}')),
            (b'n', _) => (2, '\n'),
            (b'r', _) => (2, '\r'),
            (b't', _) => (2, '\t'),
            (b'b', _) => (2, '\u{8}'),
            (b'f', _) => (2, '\u{c}'),
            (b'"' | b'\\' | b'/', _) => (2, char::from(*kind)),
            // Not an escape of JSON: a backslash, as in `C:\users`.
            _ => {
                said.push(b"\\", run..run + 1, false);
                at = run + 1;
                continue;
            }
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

    fn out(keys: &KnownKeys, text: &str) -> String {
        String::from_utf8(keys.out_of(text.as_bytes()).into_owned()).unwrap()
    }

    fn clean(text: &str) -> String {
        out(&KnownKeys::new([KEY]), text)
    }

    #[test]
    fn whole_partial_escaped_keys_are_redacted() {
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
    fn escaped_slashes_do_not_hide_key() {
        let keys = KnownKeys::new(["wJa1rX/tnFE/I/K7MDE/G+bPxR/iCYEX"]);
        let text = r#"{"message":"wJa1rX\/tnFE\/I\/K7MDE\/G+bPxR\/iCYEX!"}"#;
        assert_eq!(out(&keys, text), r#"{"message":"[redacted]!"}"#);
    }

    #[test]
    fn escaped_line_breaks_hide_no_key() {
        let keys = KnownKeys::new(["-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\n-----END"]);
        let text = r#"{"key":"-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\n-----END KEY"}"#;
        assert_eq!(out(&keys, text), r#"{"key":"-----BEGIN KEY-----\n[redacted]\n-----END KEY"}"#);
    }

    #[test]
    fn repeated_character_is_not_redacted() {
        let keys = KnownKeys::new(["FwoGZXIvYXdzEJr//////////wEaDNq8"]);
        let text = "////////// a comment, and FwoGZXIvYXdz";
        assert_eq!(out(&keys, text), "////////// a comment, and [redacted]");
    }

    #[test]
    fn wordlike_key_is_redacted_whole_only() {
        let keys = KnownKeys::new(["correct-horse-battery-staple", "none", ""]);
        let text =
            r#"{"required":["none"],"horse":"battery-st","key":"correct-horse-battery-staple"}"#;
        assert_eq!(
            out(&keys, text),
            r#"{"required":["none"],"horse":"battery-st","key":"[redacted]"}"#
        );
        assert!(!format!("{keys:?}").contains("horse"));
    }

    #[test]
    fn key_split_over_texts_is_redacted() {
        let long = "a line of code\\n".repeat(40);
        let (one, other) = KEY.split_at(11);
        let text = format!(r#"[{{"text":"{long}{one}"}},{{"text":"{other}\\n{long}"}}]"#);
        let said = format!(r#"[{{"text":"{long}[redacted]"}},{{"text":"\\n{long}"}}]"#);
        assert_eq!(clean(&text), said);
    }

    #[test]
    fn unclosed_quotes_take_linear_time() {
        let text = format!(
            "\"{}\n{{\"a\":\"{}\",\"a\":\"{}\"}}",
            "\\\"".repeat(200_000),
            &KEY[..9],
            &KEY[9..]
        );
        assert!(clean(&text).ends_with(r#"{"a":"[redacted]","a":""}"#));
    }

    #[test]
    fn split_key_on_line_is_redacted() {
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
        let keys = KnownKeys::new(["correct-horse-battery-staple"]);
        let text = r#"[{"t":"correct-h"},{"t":"orse-battery-staple."}]"#;
        assert_eq!(out(&keys, text), r#"[{"t":"[redacted]"},{"t":"."}]"#);
        // And where there are more names than a quick look counts.
        let many: Vec<String> = (0..128).map(|nth| format!(r#""{nth}":"{nth}","#)).collect();
        let many = many.concat();
        let text = format!(r#"{{{many}"t":"{}","u":"u","t":"{}"}}"#, &KEY[..10], &KEY[10..]);
        assert_eq!(clean(&text), format!(r#"{{{many}"t":"[redacted]","u":"u","t":""}}"#));
    }

    /// JSON within JSON within a text: each level escapes the level below, and the first one spells letters
    /// as escapes. A tool prints such text, and no quote needs to be around it.
    #[test]
    fn escapes_of_several_levels_are_undone() {
        let github = "ghp_abcdefghijklmnopqrstuvwxyzABCDEFGHIJ";
        for (secret, keys) in [(KEY, KnownKeys::new([KEY])), (github, KnownKeys::default())] {
            let escaped: Vec<String> =
                secret.chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect();
            let escaped = escaped.concat();
            let mixed = secret.replace('p', "\\u0070");
            for (spelled, levels) in [(secret.to_owned(), 5), (escaped, 4), (mixed, 4)] {
                let mut text = spelled;
                for level in 0..levels {
                    for around in
                        [("", ""), ("it is ", "."), ("{\"a\": \"", "\"}"), ("a\n", "\n{}")]
                    {
                        let text = format!("{}{text}{}", around.0, around.1);
                        let expected = format!("{}[redacted]{}", around.0, around.1);
                        assert_eq!(out(&keys, &text), expected, "{level}: {text}");
                        assert_eq!(keys.out_of_text(&text), expected, "{level}: {text}");
                        let record = json!({"event": "tool_ended", "content": text});
                        let clean = keys.out_of_json(&record.to_string()).expect("a secret").0;
                        assert_eq!(clean["content"], expected, "{level}: {text}");
                    }
                    text = serde_json::to_string(&text).unwrap();
                    text = text[1..text.len() - 1].to_owned();
                }
            }
        }
    }

    #[test]
    fn escapes_take_linear_time() {
        let keys = KnownKeys::new([KEY]);
        for unit in
            ["\\", "\\\\\\\\", "\\u0073", "\\\\u0073k-", "\\/", "\\u", "{\"a\":\"\\\\u0070\"}\n"]
        {
            let text = unit.repeat((512 << 10) / unit.len());
            keys.out_of(text.as_bytes());
            keys.out_of_text(&text);
        }
    }

    #[test]
    fn harmless_escapes_stay() {
        let keys = KnownKeys::new([KEY]);
        for text in [
            r"C:\users\me\u0041pp and \/ and \u00e9 \ud83d",
            r#"{"re": "^\\d+\/\\w", "path": "C:\\new"}"#,
            r"printf '\u001b[31m' \",
        ] {
            assert_eq!(out(&keys, text), text);
            assert_eq!(keys.out_of_text(text), text);
        }
    }

    proptest! {
                /// Checks that no part of a split key remains, and that all other text does.
        #[test]
        fn split_key_leaves_no_part(
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
            for part in KEY.as_bytes().windows(7) {
                prop_assert!(memchr::memmem::find(out.as_bytes(), part).is_none());
            }
        }

                /// Checks that text without a key is not changed.
        #[test]
        fn text_without_key_is_unchanged(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(&*KnownKeys::new([KEY]).out_of(&bytes), &bytes[..]);
        }
    }
}
