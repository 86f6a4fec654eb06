//! Secrets that are known, found wherever they occur: whole, in part, and in the chunks that a stream
//! delivers them in.
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
//! Credentials of a known format are found, too, whether or not they are among the keys.

use super::value::{Needle, changes, needles};
use super::{REDACTED, patterns, variables};
use aho_corasick::AhoCorasick;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// A part of a key that is longer than six characters is cut out.
const PART: usize = 7;
/// So many bytes of a part are looked at first: every part has four in a row that begin at a place
/// divisible by four.
const GRAM: usize = 4;
const GRAMS: usize = 1 << 16;
/// A text with strings of more names than these is always looked at string by string.
const TAILS: usize = 64;
/// A shorter key, or one without a digit, may consist of words: only the whole key is cut out, not its
/// parts.
const SHORTEST_RANDOM: usize = 20;

/// So many characters of the beginning of a key are a part of it, as in a masked key.
const SHORTEST_BEGINNING: usize = 10;

/// Secrets that are known. `Debug` does not show them. Cheap to clone.
///
/// Not every value is specific enough to be looked for: see [the rule](super#what-is-a-secret).
#[derive(Clone, Default)]
pub struct KnownKeys(Option<Arc<Inner>>);

struct Inner {
    needles: Vec<Needle>,
    /// All needles at once.
    whole: AhoCorasick,
    /// The needles as JSON spells them, and escapes by which JSON within JSON may spell any character.
    spelled: AhoCorasick,
    /// Where a part is in which needle.
    parts: HashMap<[u8; PART], (usize, usize)>,
    /// A bit for the beginning of each four bytes in a row that a part has.
    part_grams: Box<Grams>,
    /// The same of all that a key has: where two strings meet, it tells whether a key may go over from
    /// one to the other.
    grams: Box<Grams>,
}

/// A set of four bytes in a row.
struct Grams([u64; GRAMS / 64]);

impl Grams {
    fn new() -> Box<Grams> {
        Box::new(Grams([0; GRAMS / 64]))
    }

    fn insert(&mut self, gram: u32) {
        let bit = bit_of(gram);
        self.0[bit / 64] |= 1 << (bit % 64);
    }

    fn has(&self, gram: u32) -> bool {
        let bit = bit_of(gram);
        self.0[bit / 64] & (1 << (bit % 64)) != 0
    }
}

impl std::fmt::Debug for KnownKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KnownKeys({})", self.0.as_ref().map_or(0, |inner| inner.needles.len()))
    }
}

impl KnownKeys {
    /// These secrets. One whose value is a word, a number or a path is not looked for; of JSON, of PEM,
    /// of an address and of a connection string the secret parts are.
    pub fn new<K: AsRef<[u8]>>(keys: impl IntoIterator<Item = K>) -> KnownKeys {
        let of_key = |key: K| match std::str::from_utf8(key.as_ref()) {
            Ok(text) => needles(text, 0),
            Err(_) => vec![Needle { bytes: key.as_ref().to_vec(), whole: true }],
        };
        KnownKeys::of(keys.into_iter().flat_map(of_key).collect())
    }

    /// The secrets among these variables of an environment: names and values.
    pub fn of_variables<N: AsRef<str>, V: AsRef<str>>(
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> KnownKeys {
        let of_one = |(name, value): (N, V)| variables::needles_of(name.as_ref(), value.as_ref());
        KnownKeys::of(variables.into_iter().flat_map(of_one).collect())
    }

    fn of(mut needles: Vec<Needle>) -> KnownKeys {
        // One that is found in part as well stands before the same one that is not.
        needles.sort_by(|a, b| (&a.bytes, a.whole).cmp(&(&b.bytes, b.whole)));
        needles.dedup_by(|b, a| a.bytes == b.bytes);
        if needles.is_empty() {
            return KnownKeys(None);
        }
        let spelled: HashSet<Vec<u8>> = needles
            .iter()
            .flat_map(|needle| spellings(&needle.bytes))
            .chain([br"\\u".to_vec(), br"\\/".to_vec()])
            .collect();
        let whole = AhoCorasick::new(needles.iter().map(|needle| &needle.bytes));
        let (Ok(whole), Ok(spelled)) = (whole, AhoCorasick::new(&spelled)) else {
            // Secrets of gigabytes: no environment has them.
            return KnownKeys(None);
        };
        let (mut parts, mut part_grams, mut grams) = (HashMap::new(), Grams::new(), Grams::new());
        for (nth, needle) in needles.iter().enumerate().filter(|(_, needle)| !needle.whole) {
            for gram in needle.bytes.windows(GRAM) {
                grams.insert(gram_of(gram));
            }
            let has_digit = needle.bytes.iter().any(u8::is_ascii_digit);
            if needle.bytes.len() < SHORTEST_RANDOM || !has_digit {
                continue;
            }
            for (at, part) in needle.bytes.windows(PART).enumerate() {
                let Ok(part) = <[u8; PART]>::try_from(part) else { continue };
                let telling = is_telling(&part) || at == 0 && patterns::begins(&needle.bytes);
                if telling && parts.insert(part, (nth, at)).is_none() {
                    for gram in part.windows(GRAM) {
                        part_grams.insert(gram_of(gram));
                    }
                }
            }
        }
        KnownKeys(Some(Arc::new(Inner { needles, whole, spelled, parts, part_grams, grams })))
    }

    /// These and those.
    #[must_use]
    pub fn and(&self, other: &KnownKeys) -> KnownKeys {
        match (&self.0, &other.0) {
            (_, None) => self.clone(),
            (None, _) => other.clone(),
            (Some(a), Some(b)) => {
                KnownKeys::of(a.needles.iter().chain(&b.needles).cloned().collect())
            }
        }
    }

    /// There are none. Credentials of a known format are still found.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Text without secrets: `[redacted]` stands for each. It must not be JSON: see
    /// [`out_of_json`](KnownKeys::out_of_json).
    pub fn out_of_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let found = self.find(text.as_bytes());
        if found.is_empty() {
            return Cow::Borrowed(text);
        }
        let cuts = found.into_iter().map(|at| Cut { at, shown: None }).collect();
        Cow::Owned(String::from_utf8_lossy(&apply(text.as_bytes(), cuts)).into_owned())
    }

    /// Where secrets are, and parts of them; in order, without overlap.
    pub(super) fn find(&self, bytes: &[u8]) -> Vec<Range<usize>> {
        let mut found = patterns::find(bytes);
        if let Some(inner) = &self.0 {
            inner.find_whole(bytes, &mut found);
            inner.find_parts(bytes, &mut found);
        }
        joined(found)
    }

    /// As [`find`](KnownKeys::find), without parts.
    pub(super) fn find_whole(&self, bytes: &[u8]) -> Vec<Range<usize>> {
        let mut found = patterns::find(bytes);
        if let Some(inner) = &self.0 {
            inner.find_whole(bytes, &mut found);
        }
        joined(found)
    }

    /// As [`find`](KnownKeys::find), without those that are found by their format alone.
    pub(super) fn find_known(&self, bytes: &[u8]) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        if let Some(inner) = &self.0 {
            inner.find_whole(bytes, &mut found);
            inner.find_parts(bytes, &mut found);
        }
        joined(found)
    }

    /// Whether JSON may have a secret in one of its strings: a quick look that errs on one side only.
    pub(super) fn may_be_in_json(&self, json: &[u8]) -> bool {
        if patterns::is_in(json) {
            return true;
        }
        let Some(inner) = &self.0 else { return false };
        let mut parts = Vec::new();
        inner.spelled.is_match(json) || {
            inner.find_parts(json, &mut parts);
            !parts.is_empty()
        }
    }

    /// Whether strings of these bytes may have a key in chunks: a quick look at one line of JSON, for
    /// what is written step by step. A key that goes over from one string to the next of its name has
    /// four bytes in a row where they meet.
    pub(super) fn may_be_in_pieces(&self, bytes: &[u8]) -> bool {
        let Some(inner) = &self.0 else { return false };
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
                if inner.grams.has(*tail) {
                    return true;
                }
            }
            if let Some(last) = string.last_chunk() {
                *tail = u32::from_le_bytes(*last);
            }
        }
        false
    }
}

impl Inner {
    fn find_whole(&self, bytes: &[u8], found: &mut Vec<Range<usize>>) {
        // A secret may be the beginning of another, and both may overlap.
        found.extend(self.whole.find_overlapping_iter(bytes).map(|at| at.start()..at.end()));
    }

    fn find_parts(&self, bytes: &[u8], found: &mut Vec<Range<usize>>) {
        if self.parts.is_empty() {
            return;
        }
        let mut done = 0;
        for (nth, gram) in bytes.chunks_exact(GRAM).enumerate() {
            if !self.part_grams.has(gram_of(gram)) {
                continue;
            }
            // A part that has these four whole begins at most three before them.
            let at = nth * GRAM;
            for at in at.saturating_sub(PART - GRAM).max(done)..=at {
                let Some(part) = bytes.get(at..at + PART) else { continue };
                let Some((needle, place)) = self.parts.get(part) else { continue };
                let needle = &self.needles[*needle].bytes;
                let same = |pair: &(&u8, &u8)| pair.0 == pair.1;
                let before = bytes[..at].iter().rev().zip(needle[..*place].iter().rev());
                let after = bytes[at + PART..].iter().zip(&needle[place + PART..]);
                let start = at - before.take_while(same).count();
                let end = at + PART + after.take_while(same).count();
                // The beginning that all keys of a format have in common is not a part of one.
                if *place > 0 || end - start >= SHORTEST_BEGINNING || is_telling(part) {
                    done = end;
                    found.push(start..end);
                }
            }
        }
    }
}

/// A needle as it stands, and as JSON spells it, and JSON within JSON.
fn spellings(needle: &[u8]) -> Vec<Vec<u8>> {
    let mut all = vec![needle.to_vec()];
    for _ in 0..2 {
        let Some(Ok(text)) = all.last().map(|last| std::str::from_utf8(last)) else { break };
        let Ok(spelled) = serde_json::to_string(text) else { break };
        let spelled = spelled.as_bytes()[1..spelled.len() - 1].to_vec();
        if all.last() == Some(&spelled) {
            break;
        }
        all.push(spelled);
    }
    all
}

/// Whether these bytes of a key tell it from words: they change between letters and digits, or between
/// cases. Around a part that does the key is compared byte by byte.
fn is_telling(part: &[u8]) -> bool {
    let of_key = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_+/=.".contains(byte);
    let capitals = |pair: &&[u8]| pair[0].is_ascii_uppercase() && pair[1].is_ascii_lowercase();
    part.iter().all(of_key) && changes(part) + part.windows(2).filter(capitals).count() >= 3
}

/// In order, without overlap.
fn joined(mut found: Vec<Range<usize>>) -> Vec<Range<usize>> {
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
pub(super) struct Cut {
    pub(super) at: Range<usize>,
    pub(super) shown: Option<bool>,
}

pub(super) fn apply(bytes: &[u8], mut cuts: Vec<Cut>) -> Vec<u8> {
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

/// Whether the string that ended before here is the name of what follows.
pub(super) fn is_name(bytes: &[u8], at: usize) -> bool {
    bytes[at..].iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b':')
}

/// Where the string that begins here ends, in JSON without a line break.
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
