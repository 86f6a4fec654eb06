//! Redaction of text that arrives in chunks, when each piece is written before the next is known.
//!
//! ```
//! use endstop_wire::redact::{KnownKeys, TextRedactor};
//! let mut text = TextRedactor::new(KnownKeys::new(["sk-proj-4fQ9xTz71LmN0pWv"]));
//! assert_eq!(text.push("The key is sk-pr"), "The key is ");
//! assert_eq!(text.push("oj-4fQ9xTz71LmN0pWv, as you"), "[redacted], as you");
//! // Text that cannot become a secret is not delayed; the rest follows at the end.
//! assert_eq!(text.push(" see: s"), " see: ");
//! assert_eq!(text.finish(), "s");
//! ```
//!
//! A piece is returned without the suffix that more text could turn into a secret: the beginning of
//! a known secret, or a format whose end was not seen. The suffix has a bound.

use super::known::{Cut, KnownKeys, apply};
use super::patterns;
use super::text::Levels;
use std::ops::Range;

/// Maximum number of bytes that are held back, unless a known secret is longer. It exceeds the
/// longest format, a private key.
const MOST_HELD: usize = 64 << 10;

/// Number of held bytes from which a piece is not searched at once.
const LONG: usize = 256;

/// Number of bytes before the held text that are remembered. The start of a word depends on them,
/// and so does a part of a secret whose first bytes were too short to recognise, and the name of a value.
const CONTEXT: usize = 64;

/// Redacts a text that arrives in chunks.
#[derive(Clone, Debug, Default)]
pub struct TextRedactor {
    keys: KnownKeys,
    /// The last bytes that were returned, then the text that is held back.
    buffer: String,
    /// Length of the part of the buffer that was returned.
    returned: usize,
    /// Number of bytes at the end that were not searched yet.
    unsearched: usize,
    /// `true` if the returned text ends with a replacement.
    marked: bool,
    /// `true` while the rest of a secret that exceeded the bound is dropped.
    dropping: bool,
}

impl TextRedactor {
    /// Creates a redactor for these secrets and for credentials of a known format.
    pub fn new(keys: KnownKeys) -> TextRedactor {
        TextRedactor { keys, ..TextRedactor::default() }
    }

    /// Takes the next piece, and returns the text that can be written now; it may be empty.
    pub fn push(&mut self, piece: &str) -> String {
        let mut piece = piece;
        if self.dropping {
            let rest = piece.trim_start_matches(|c: char| u8::try_from(c).is_ok_and(continues));
            if rest.is_empty() {
                return String::new();
            }
            (piece, self.dropping) = (rest, false);
        }
        self.buffer.push_str(piece);
        self.unsearched += piece.len();
        if self.may_wait(piece) { String::new() } else { self.take(false) }
    }

    /// `true` if a long suffix is held back and this piece most probably belongs to it. It is then
    /// searched with the pieces after it, so that the time stays linear.
    fn may_wait(&self, piece: &str) -> bool {
        let held = &self.buffer[self.returned..];
        if !(LONG..MOST_HELD).contains(&held.len()) {
            return false;
        }
        // A private key and an address continue after such a character.
        let lasting = held.starts_with("-----BEGIN") || held.starts_with("://");
        piece.bytes().all(continues) || lasting && self.unsearched < held.len() / 8
    }

    /// Returns the rest at the end of the text. The next piece begins a new text.
    pub fn finish(&mut self) -> String {
        let rest = if self.buffer.len() > self.returned { self.take(true) } else { String::new() };
        *self = TextRedactor::new(std::mem::take(&mut self.keys));
        rest
    }

    fn take(&mut self, all: bool) -> String {
        self.unsearched = 0;
        let bytes = self.buffer.as_bytes();
        let found = self.keys.find_in_text(bytes);
        let len = bytes.len();
        let mut end = if all { len } else { self.keys.open_end(bytes, &found) };
        end = end.max(self.returned);
        let touches = found.last().is_some_and(|last| last.end == len);
        if len - end > MOST_HELD.max(self.keys.longest()) {
            // Nothing that long is a secret as a whole, so what was recognised is redacted now.
            end = len;
            self.dropping = touches;
        }
        let from = self.returned;
        let mut cuts = Vec::new();
        for at in found.iter().filter(|at| at.end > from && at.start < end) {
            // A replacement was already written for a secret that began in the returned text.
            let shown = !(self.marked && at.start <= from);
            let at = at.start.max(from) - from..at.end.min(end) - from;
            cuts.push(Cut { at, shown: Some(shown) });
        }
        let text = if cuts.is_empty() {
            self.buffer[from..end].to_owned()
        } else {
            String::from_utf8_lossy(&apply(&bytes[from..end], cuts)).into_owned()
        };
        if end > from {
            self.marked = found.iter().any(|at| at.start < end && at.end >= end);
        }
        let mut keep = end.saturating_sub(CONTEXT);
        while !self.buffer.is_char_boundary(keep) {
            keep += 1;
        }
        self.buffer.drain(..keep);
        self.returned = end - keep;
        if keep > 0 && self.buffer.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric) {
            // The start of the buffer must not count as the start of a word. No format has a `Z`
            // at its start, and the context is not returned again.
            self.buffer.replace_range(..1, "Z");
        }
        text
    }
}

impl KnownKeys {
    /// Returns the length of the text without the suffix that more text could turn into a secret.
    pub fn settled(&self, text: &str) -> usize {
        let found = self.find_in_text(text.as_bytes());
        let end = self.open_end(text.as_bytes(), &found);
        if text.len() - end > MOST_HELD.max(self.longest()) { text.len() } else { end }
    }

    /// Returns the number of bytes at the start of `text` that belong to a secret which begins in
    /// the text before it.
    pub fn continued(&self, before: &str, text: &str) -> usize {
        let both = [before, text].concat();
        let found = self.find_in_text(both.as_bytes());
        let across = found.iter().find(|at| at.start < before.len() && at.end > before.len());
        let mut end = across.map_or(0, |at| at.end - before.len());
        while !text.is_char_boundary(end) {
            end += 1;
        }
        end
    }

    /// Returns the start of the suffix that could become a secret; the length if there is none.
    fn open_end(&self, bytes: &[u8], found: &[Range<usize>]) -> usize {
        let mut end = self.open(bytes);
        // The text may be the source of JSON, in which an escape stands for any character.
        let levels = Levels::of(bytes);
        for (nth, text) in levels.texts().enumerate() {
            let open = levels.raw(nth, &(self.open(text)..text.len()));
            // Without a beginning of a secret, only an unfinished escape waits.
            end = end.min(open.map_or_else(|| levels.end(nth), |at| at.start));
        }
        // A secret at the end may continue, and one that overlaps the suffix is written as a whole.
        while let Some(at) = found
            .iter()
            .find(|at| at.start < end && (at.end > end || at.end == bytes.len() && at.end == end))
        {
            end = at.start;
        }
        while end > 0 && end < bytes.len() && bytes[end] & 0xc0 == 0x80 {
            end -= 1;
        }
        end
    }

    fn open(&self, bytes: &[u8]) -> usize {
        let known = self.begins_known(bytes);
        let format = patterns::unfinished(bytes);
        known.into_iter().chain(format).min().unwrap_or(bytes.len())
    }
}

/// `true` for the characters of tokens and of Base64.
fn continues(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_+/=.%~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: &str = "sk-proj-4fQ9xTz71LmN0pWv8aBcD";
    const GITHUB: &str = "ghp_abcdefghijklmnopqrstuvwxyzABCDEFGHIJ";

    fn streamed<'t>(keys: &KnownKeys, pieces: impl IntoIterator<Item = &'t str>) -> String {
        let mut text = TextRedactor::new(keys.clone());
        let mut out: String = pieces.into_iter().map(|piece| text.push(piece)).collect();
        out.push_str(&text.finish());
        assert_eq!(text.finish(), "");
        out
    }

    /// Splits at these offsets.
    fn split(text: &str, cuts: &[usize]) -> Vec<String> {
        let mut cuts: Vec<usize> = cuts.iter().map(|at| at % (text.len() + 1)).collect();
        cuts.retain(|at| text.is_char_boundary(*at));
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        cuts.windows(2).map(|pair| text[pair[0]..pair[1]].to_owned()).collect()
    }

    #[test]
    fn secret_in_two_pieces_is_redacted() {
        let pem = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkq\n-----END PRIVATE KEY-----";
        let keys = KnownKeys::new([KEY, "correct horse battery staple"]);
        for secret in [
            KEY,
            GITHUB,
            "correct horse battery staple",
            "AKIAIOSFODNN7EXAMPLE",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
            "hooks.slack.com/services/T0AB12CD3/B0AB12CD3/4fQ9xTz71LmN0pWv8aBcDeFg",
            pem,
        ] {
            let text = format!("see {secret}, and so on");
            let whole = keys.out_of_text(&text);
            assert!(whole.contains("[redacted]"), "{whole}");
            for at in (0..text.len()).filter(|at| text.is_char_boundary(*at)) {
                assert_eq!(streamed(&keys, [&text[..at], &text[at..]]), whole, "at {at}");
            }
            let each = text.char_indices().map(|(at, c)| &text[at..at + c.len_utf8()]);
            assert_eq!(streamed(&keys, each), whole);
        }
    }

    #[test]
    fn harmless_text_is_not_delayed() {
        let mut text = TextRedactor::new(KnownKeys::new([KEY]));
        for piece in ["The tests ", "pass. ", "Item", " 12 is done; see `main.rs`.\n", "é", "日本"]
        {
            assert_eq!(text.push(piece), piece);
        }
        // One character that begins a secret waits for the next.
        assert_eq!(text.push("It is s"), "It is ");
        assert_eq!(text.push("afe."), "safe.");
        assert_eq!(text.push("sk-no-key"), "");
        assert_eq!(text.push(" is set. "), "sk-no-key is set. ");
    }

    #[test]
    fn escaped_secret_is_redacted_in_pieces() {
        let keys = KnownKeys::new([KEY]);
        let text = format!(r#"{{"a":"sk-p\u0072oj{}", "b":"C:\users"}}"#, &KEY[7..]);
        for at in 0..text.len() {
            let out = streamed(&keys, [&text[..at], &text[at..]]);
            assert_eq!(out, r#"{"a":"[redacted]", "b":"C:\users"}"#, "at {at}");
        }
        // A backslash that escapes nothing stays, although an escape follows later.
        let text = format!(r"C:\{KEY} \/ end");
        for at in 0..text.len() {
            assert_eq!(streamed(&keys, [&text[..at], &text[at..]]), r"C:\[redacted] \/ end");
        }
        // JSON within JSON.
        let text = format!(r#"{{\"a\":\"sk-p\\u0072oj{}\", \"b\":1}}"#, &KEY[7..]);
        for at in 0..text.len() {
            let out = streamed(&keys, [&text[..at], &text[at..]]);
            assert_eq!(out, r#"{\"a\":\"[redacted]\", \"b\":1}"#, "at {at}");
        }
        let each = text.char_indices().map(|(at, c)| &text[at..at + c.len_utf8()]);
        assert_eq!(streamed(&keys, each), r#"{\"a\":\"[redacted]\", \"b\":1}"#);
    }

    #[test]
    fn held_text_is_bounded() {
        let mut text = TextRedactor::new(KnownKeys::new([KEY]));
        let (mut pushed, mut got) = (0, 0);
        // Ordinary words after a prefix, without an end.
        for _ in 0..40_000 {
            pushed += 3;
            got += text.push(if pushed == 3 { "sk-" } else { "abc" }).len();
            assert!(pushed - got <= MOST_HELD + 3, "{pushed} {got}");
        }
        got += text.finish().len();
        assert_eq!(pushed, got);
        // A token without an end is redacted, also beyond the bound.
        let mut out = text.push(" ghp_");
        for _ in 0..40_000 {
            out.push_str(&text.push("aB3"));
        }
        out.push_str(&text.push(" end"));
        out.push_str(&text.finish());
        assert_eq!(out, " [redacted] end");
    }

    #[test]
    fn part_of_secret_leaves_few_characters() {
        let keys = KnownKeys::new([KEY]);
        for from in 0..KEY.len() - 10 {
            for size in 1..6 {
                let text = format!("it is {} there", &KEY[from..]);
                let pieces = split(&text, &(0..text.len()).step_by(size).collect::<Vec<_>>());
                let out = streamed(&keys, pieces.iter().map(String::as_str));
                for part in KEY.as_bytes().windows(7) {
                    let part = std::str::from_utf8(part).unwrap();
                    let whole = keys.out_of_text(&text);
                    assert!(!out.contains(part) || whole.contains(part), "{out} / {whole}");
                }
            }
        }
    }

    proptest! {
        /// The pieces do not matter: the result is that of the whole text.
        #[test]
        fn pieces_do_not_change_the_result(
            parts in proptest::collection::vec(prop_oneof![
                Just(KEY.to_owned()),
                Just(GITHUB.to_owned()),
                Just("hunter2hunter2".to_owned()),
                Just("ter2xTz81LmN".to_owned()),
                Just("postgres://app:Zk93-xQ71mmP@db/app".to_owned()),
                Just("sk-".to_owned()),
                "[a-z .:@/\n é]{0,12}",
                "[ -~]{0,6}",
            ], 0..8),
            cuts in proptest::collection::vec(0usize..400, 0..20),
        ) {
            let keys = KnownKeys::new([KEY, "hunter2hunter2", "ter2xTz81LmN"]);
            let text = parts.concat();
            let pieces = split(&text, &cuts);
            let whole = streamed(&keys, [text.as_str()]);
            prop_assert_eq!(&streamed(&keys, pieces.iter().map(String::as_str)), &whole);
            if !text.contains('\\') {
                prop_assert_eq!(keys.out_of_text(&text), whole);
            }
        }

        /// No byte of text without a secret is lost.
        #[test]
        fn harmless_text_is_whole(
            text in "[a-f \\\\\"\n:/.é]{0,60}",
            cuts in proptest::collection::vec(0usize..80, 0..20),
        ) {
            let pieces = split(&text, &cuts);
            let out = streamed(&KnownKeys::new([KEY]), pieces.iter().map(String::as_str));
            prop_assert_eq!(out, text);
        }
    }
}
