//! Search for known secrets: complete, in part, and split across the chunks of a stream.
//!
//! ```
//! use endstop_wire::redact::KnownKeys;
//! let keys = KnownKeys::new(["sk-proj-4fQ9xTz71LmN0pWv"]);
//! // A model that repeats a key streams it in tokens.
//! let stream = b"data: {\"content\":\"sk-pr\"}\n\ndata: {\"content\":\"oj-4fQ9xTz71LmN0pWv!\"}\n\n";
//! let clean = keys.out_of(stream);
//! assert_eq!(&*clean, b"data: {\"content\":\"[redacted]\"}\n\ndata: {\"content\":\"!\"}\n\n");
//! ```
//!
//! Credentials of a known format are found as well, even if they are not among the keys.

use super::entropy::changes;
use super::names::REDACTED;
use super::value::{Needle, needles};
use super::{formats, patterns, variables};
use aho_corasick::{AhoCorasick, MatchKind};
use memchr::memmem;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// Minimum length of a key's part that is removed. Shorter parts would match ordinary text.
const PART: usize = 7;
/// Number of bytes that are checked first. Every part contains four consecutive bytes that start at
/// an offset divisible by four, so checking those offsets is enough.
const GRAM: usize = 4;
const GRAMS: usize = 1 << 16;
/// Maximum number of member names in the quick check. A text with more names is always searched
/// string by string.
const TAILS: usize = 64;
/// Minimum length of a key that is also found in part. A shorter key, or one without a digit, may
/// consist of words, so only the complete key is removed.
const SHORTEST_RANDOM: usize = 20;

/// Minimum number of characters of a key's beginning that count as a part, as in a masked key.
const SHORTEST_BEGINNING: usize = 10;

/// Set of known secrets. `Debug` does not reveal them, and cloning is cheap.
///
/// Not every value is specific enough to search for: see [the rules](super#what-is-a-secret).
#[derive(Clone, Default)]
pub struct KnownKeys(Option<Arc<Inner>>);

struct Inner {
    needles: Vec<Needle>,
    /// Automaton that finds all needles at once.
    whole: AhoCorasick,
    /// Needles as JSON spells them, and escapes with which nested JSON may spell any character.
    spelled: AhoCorasick,
    /// For each part, the index of its needle and its offset in it.
    parts: HashMap<[u8; PART], (usize, usize)>,
    /// One bit for each four-byte sequence at any offset of a part.
    part_grams: Box<Grams>,
    /// The same for all sequences of a key. At a boundary between strings this shows if a key may
    /// continue from one into the other.
    grams: Box<Grams>,
    /// The first and the second bytes of the needles, one bit for each.
    heads: [[u64; 4]; 2],
    /// Length of the longest needle.
    longest: usize,
    /// `true` if JSON escapes a character of a needle.
    has_escapes: bool,
}

impl Inner {
    /// `true` if every needle of `other` is also one of this set, and is searched for as widely.
    fn contains(&self, other: &Arc<Inner>) -> bool {
        std::ptr::eq(self, Arc::as_ptr(other))
            || other.needles.iter().all(|needle| {
                let order =
                    |own: &Needle| (&own.bytes, own.whole).cmp(&(&needle.bytes, needle.whole));
                self.needles.binary_search_by(order).is_ok()
            })
    }
}

/// A set of four-byte sequences, with possible false positives.
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
    /// Creates a set of these secrets. A value that is a word, a number or a path is ignored. In
    /// JSON, PEM, URLs and connection strings, only the secret parts are used.
    pub fn new<K: AsRef<[u8]>>(keys: impl IntoIterator<Item = K>) -> KnownKeys {
        let of_key = |key: K| match std::str::from_utf8(key.as_ref()) {
            Ok(text) => needles(text, 0),
            Err(_) => vec![Needle { bytes: key.as_ref().to_vec(), whole: true }],
        };
        KnownKeys::of(keys.into_iter().flat_map(of_key).collect())
    }

    /// Creates a set of the secrets among these environment variables (name, value).
    pub fn of_variables<N: AsRef<str>, V: AsRef<str>>(
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> KnownKeys {
        let of_one = |(name, value): (N, V)| variables::needles_of(name.as_ref(), value.as_ref());
        KnownKeys::of(variables.into_iter().flat_map(of_one).collect())
    }

    /// Creates a set of the credentials in the addresses of proxies: the password, even if it is a
    /// word, and user and password in the forms in which they are written and sent. A credential of
    /// less than six characters is ignored.
    ///
    /// ```
    /// use endstop_wire::redact::KnownKeys;
    /// let keys = KnownKeys::of_proxies(["http://me:swordfish@proxy.example:3128"]);
    /// assert_eq!(keys.out_of_text("Basic bWU6c3dvcmRmaXNo"), "Basic [redacted]");
    /// assert_eq!(keys.out_of_text("the swordfish"), "the [redacted]");
    /// ```
    pub fn of_proxies<A: AsRef<str>>(addresses: impl IntoIterator<Item = A>) -> KnownKeys {
        KnownKeys::of(
            addresses.into_iter().flat_map(|one| variables::of_proxy(one.as_ref())).collect(),
        )
    }

    fn of(mut needles: Vec<Needle>) -> KnownKeys {
        // Of equal needles, keep the one that is also found in part, which sorts first.
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
        // Only leftmost matches have a vectorised search, and here any match is enough.
        let spelled = AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(&spelled);
        let (Ok(whole), Ok(spelled)) = (whole, spelled) else {
            // The automaton only fails for gigabytes of secrets, which no environment contains.
            return KnownKeys(None);
        };
        let (mut parts, mut part_grams, mut grams) = (HashMap::new(), Grams::new(), Grams::new());
        for (nth, needle) in needles.iter().enumerate().filter(|(_, needle)| !needle.whole) {
            for gram in needle.bytes.windows(GRAM) {
                grams.insert(gram_of(gram));
            }
            let has_digit = needle.bytes.iter().any(u8::is_ascii_digit);
            // Parts of short or word-like keys would match ordinary text.
            if needle.bytes.len() < SHORTEST_RANDOM || !has_digit {
                continue;
            }
            for (at, part) in needle.bytes.windows(PART).enumerate() {
                let Ok(part) = <[u8; PART]>::try_from(part) else { continue };
                let telling = is_telling(&part) || at == 0 && formats::begins(&needle.bytes);
                if telling && parts.insert(part, (nth, at)).is_none() {
                    for gram in part.windows(GRAM) {
                        part_grams.insert(gram_of(gram));
                    }
                }
            }
        }
        let mut heads = [[0; 4]; 2];
        for needle in &needles {
            for (head, byte) in heads.iter_mut().zip(&*needle.bytes) {
                head[usize::from(byte / 64)] |= 1 << (byte % 64);
            }
        }
        let longest = needles.iter().map(|needle| needle.bytes.len()).max().unwrap_or(0);
        let is_escaped = |byte: &u8| *byte < 0x20 || matches!(byte, b'"' | b'\\');
        let has_escapes = needles.iter().any(|needle| needle.bytes.iter().any(is_escaped));
        KnownKeys(Some(Arc::new(Inner {
            needles,
            whole,
            spelled,
            parts,
            part_grams,
            grams,
            heads,
            longest,
            has_escapes,
        })))
    }

    /// Returns the union of both sets.
    #[must_use]
    pub fn and(&self, other: &KnownKeys) -> KnownKeys {
        match (&self.0, &other.0) {
            (_, None) => self.clone(),
            (None, _) => other.clone(),
            // Building the search tables takes longer than a turn, so a set that contains the
            // other is used as it is: mostly both are the same set.
            (Some(a), Some(b)) if a.contains(b) => self.clone(),
            (Some(a), Some(b)) if b.contains(a) => other.clone(),
            (Some(a), Some(b)) => {
                KnownKeys::of(a.needles.iter().chain(&b.needles).cloned().collect())
            }
        }
    }

    /// `true` if both are the same set or clones of it. Sets that were built separately are different,
    /// even if they have the same secrets.
    pub fn is_same(&self, other: &KnownKeys) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// `true` if the set is empty. Credentials of a known format are found even then.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns text with `[redacted]` in place of each secret, also of one that JSON escapes spell. The
    /// text must not be JSON: see [`out_of_json`](KnownKeys::out_of_json).
    pub fn out_of_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let found = self.find_in_text(text.as_bytes());
        if found.is_empty() {
            return Cow::Borrowed(text);
        }
        let cuts = found.into_iter().map(|at| Cut { at, shown: None }).collect();
        Cow::Owned(String::from_utf8_lossy(&apply(text.as_bytes(), cuts)).into_owned())
    }

    /// Returns the ranges of secrets and of parts of them, in order and without overlap.
    pub(super) fn find(&self, bytes: &[u8]) -> Vec<Range<usize>> {
        let mut found = patterns::find(bytes);
        if let Some(inner) = &self.0 {
            inner.find_whole(bytes, &mut found);
            inner.find_parts(bytes, &mut found);
        }
        joined(found)
    }

    /// Returns the start of the longest suffix that begins a secret, or that may begin a part of
    /// one. A complete secret does not count.
    pub(super) fn begins_known(&self, bytes: &[u8]) -> Option<usize> {
        let inner = self.0.as_ref()?;
        let from = (bytes.len() + 1).saturating_sub(inner.longest);
        let whole = (from..bytes.len()).find(|start| inner.is_beginning(&bytes[*start..]));
        // A part that begins with fewer bytes would be found in most words.
        let part =
            (GRAM..PART).rev().filter(|len| *len <= bytes.len()).map(|len| bytes.len() - len).find(
                |start| {
                    bytes[*start..].windows(GRAM).all(|gram| inner.part_grams.has(gram_of(gram)))
                },
            );
        whole.into_iter().chain(part).min()
    }

    /// `true` if JSON escapes a character of a secret.
    pub(super) fn has_escapes(&self) -> bool {
        self.0.as_ref().is_some_and(|inner| inner.has_escapes)
    }

    /// Returns the length of the longest secret.
    pub(super) fn longest(&self) -> usize {
        self.0.as_ref().map_or(0, |inner| inner.longest)
    }

    /// Like [`find`](KnownKeys::find), without parts.
    pub(super) fn find_whole(&self, bytes: &[u8]) -> Vec<Range<usize>> {
        let mut found = patterns::find(bytes);
        if let Some(inner) = &self.0 {
            inner.find_whole(bytes, &mut found);
        }
        joined(found)
    }

    /// Like [`find`](KnownKeys::find), without secrets that are only recognised by their format.
    pub(super) fn find_known(&self, bytes: &[u8]) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        if let Some(inner) = &self.0 {
            inner.find_whole(bytes, &mut found);
            inner.find_parts(bytes, &mut found);
        }
        joined(found)
    }

    /// Quick check: `true` if a string of this JSON may contain a secret. It may report a false
    /// positive but never misses a secret.
    pub(super) fn may_be_in_json(&self, json: &[u8]) -> bool {
        if patterns::is_in(json) || has_escaped_letter(json) {
            return true;
        }
        let Some(inner) = &self.0 else { return false };
        let mut parts = Vec::new();
        inner.spelled.is_match(json) || {
            inner.find_parts(json, &mut parts);
            !parts.is_empty()
        }
    }

    /// Quick check: `true` if consecutive strings of these bytes may contain a split key. It
    /// examines one line of JSON, as written for each step. A key that continues from one string
    /// into the next of the same name has a known four-byte sequence at the boundary.
    pub(super) fn may_be_in_pieces(&self, bytes: &[u8]) -> bool {
        let Some(inner) = &self.0 else { return false };
        let mut tails = Tails::default();
        let mut name: &[u8] = b"";
        let mut at = 0;
        while let Some(quote) = memchr::memchr(b'"', &bytes[at..]) {
            let start = at + quote + 1;
            // An unclosed string means that this is not one line of JSON, so search it fully.
            let Some(end) = closing_quote_in_line(bytes, start) else { return true };
            at = end + 1;
            if is_name(bytes, at) {
                name = &bytes[start..end];
                continue;
            }
            let string = &bytes[start..end];
            let Some(tail) = tails.of(name) else { return true };
            // Only sequences that cross the boundary matter; those inside a string are found
            // elsewhere.
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
    /// `true` if a secret is longer than these bytes and begins with them.
    fn is_beginning(&self, bytes: &[u8]) -> bool {
        // Most text begins no secret, and its first two bytes show that without a search.
        let is_head =
            |(head, byte): (&[u64; 4], &u8)| head[usize::from(byte / 64)] >> (byte % 64) & 1 == 1;
        if !self.heads.iter().zip(bytes).all(is_head) {
            return false;
        }
        // The secrets are sorted, so those with this beginning follow each other.
        let first = self.needles.partition_point(|needle| *needle.bytes < *bytes);
        let mut with = self.needles[first..].iter().take_while(|one| one.bytes.starts_with(bytes));
        with.any(|needle| needle.bytes.len() > bytes.len())
    }

    fn find_whole(&self, bytes: &[u8], found: &mut Vec<Range<usize>>) {
        // A secret may be the beginning of another, or may overlap another.
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
            // A part that contains these four bytes begins at most three bytes before them.
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
                // A prefix that all keys of a format share is not a part of this key.
                if *place > 0 || end - start >= SHORTEST_BEGINNING || is_telling(part) {
                    done = end;
                    found.push(start..end);
                }
            }
        }
    }
}

/// `true` for an escape of a printable ASCII character, `\u0021` to `\u007e` or `\/`, at any level of JSON
/// within JSON. Endstop's own JSON has none, so that such an escape is the choice of a tool or a model.
fn has_escaped_letter(json: &[u8]) -> bool {
    memmem::find_iter(json, br"\u00").any(|at| matches!(json.get(at + 4), Some(b'2'..=b'7')))
        || memmem::find(json, br"\/").is_some()
}

/// Returns the needle as it is, as JSON spells it, and as nested JSON spells it.
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

/// `true` if these bytes of a key differ from words, because they alternate between letters and
/// digits or between cases. Around such a part the key is compared byte by byte.
fn is_telling(part: &[u8]) -> bool {
    let of_key = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_+/=.".contains(byte);
    let capitals = |pair: &&[u8]| pair[0].is_ascii_uppercase() && pair[1].is_ascii_lowercase();
    part.iter().all(of_key) && changes(part) + part.windows(2).filter(capitals).count() >= 3
}

/// Sorts the ranges and merges overlapping ones.
pub(super) fn joined(mut found: Vec<Range<usize>>) -> Vec<Range<usize>> {
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

/// Returns four bytes as a number.
fn gram_of(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes.try_into().unwrap_or_default())
}

/// Returns the bit for a four-byte sequence.
fn bit_of(gram: u32) -> usize {
    // Fibonacci hashing: the multiplier is 2^32 divided by the golden ratio, and the top 16 bits
    // spread best.
    (gram.wrapping_mul(0x9e37_79b1) >> 16) as usize
}

/// The last four bytes of the strings with each member name, for as many names as one step has.
struct Tails<'b>([Option<(&'b [u8], u32)>; TAILS]);

impl Default for Tails<'_> {
    fn default() -> Self {
        Tails([None; TAILS])
    }
}

impl<'b> Tails<'b> {
    /// Returns the entry for this name, or `None` if there are too many names.
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

/// Bytes to remove, and `true` if `[redacted]` replaces them. `None` stands for `true` unless an
/// overlapping cut decides otherwise.
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
        // Merge overlapping cuts into one, so that `[redacted]` appears once.
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

/// Returns `true` if the string that ended before this offset is a member name.
pub(super) fn is_name(bytes: &[u8], at: usize) -> bool {
    bytes[at..].iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b':')
}

/// Returns the offset of the quote that ends the string starting here, in JSON without line breaks.
fn closing_quote_in_line(bytes: &[u8], start: usize) -> Option<usize> {
    let mut from = start;
    loop {
        let quote = from + memchr::memchr(b'"', &bytes[from..])?;
        // An odd number of backslashes before a quote escapes it.
        let escapes = bytes[start..quote].iter().rev().take_while(|byte| **byte == b'\\').count();
        if escapes % 2 == 0 {
            return Some(quote);
        }
        from = quote + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::KnownKeys;
    use std::sync::Arc;

    const KEYS: [&str; 4] = [
        "sk-proj-4fQ9xTz71LmN0pWv",
        "Zk39-vQx81-LLp02",
        "Zk39-vQx81-LLp02-and-more-77",
        "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n-----END PRIVATE KEY-----",
    ];

    fn set(bits: usize) -> KnownKeys {
        KnownKeys::new((0..KEYS.len()).filter(|nth| bits >> nth & 1 == 1).map(|nth| KEYS[nth]))
    }

    #[test]
    fn union_equals_one_set_of_all_keys() {
        let text = format!("{} and {}, {}: {}", KEYS[0], KEYS[1], KEYS[2], KEYS[3]);
        for one in 0..1 << KEYS.len() {
            for other in 0..1 << KEYS.len() {
                let (union, all) = (set(one).and(&set(other)), set(one | other));
                assert_eq!(union.out_of_text(&text), all.out_of_text(&text), "{one} {other}");
            }
        }
    }

    #[test]
    fn containing_set_is_not_rebuilt() {
        let (all, part) = (set(0b1111), set(0b0110));
        for union in [all.and(&part), part.and(&all), all.and(&all.clone())] {
            let tables = |keys: &KnownKeys| keys.0.as_ref().map(Arc::as_ptr);
            assert_eq!(tables(&union), tables(&all));
        }
    }
}
