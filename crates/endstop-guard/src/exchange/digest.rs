//! Keyed fingerprints: texts and keys are compared by them, so that neither is stored. What differs each time in a tool
//! result, such as a time, is left out before ([`steady`]): no result would be equal to the one before, and no
//! repetition would be seen.

use siphasher::sip128::{Hasher128 as _, SipHasher24};
use std::fmt;
use std::hash::Hasher as _;

/// Secret random bytes of this process, the key of its fingerprints. With them a fingerprint of a key
/// cannot be matched against a list of known keys, and texts cannot be forged to collide.
#[derive(Clone)]
pub struct Salt([u8; 16]);

impl Salt {
    /// Wraps bytes that the caller drew from a secure random source.
    pub fn new(bytes: [u8; 16]) -> Salt {
        Salt(bytes)
    }
}

impl fmt::Debug for Salt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Salt(…)")
    }
}

/// A SipHash-2-4 of 128 bits, whose key is the salt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 16]);

impl Fingerprint {
    /// The bytes, to be a part of another fingerprint.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Reads the form that `Display` writes.
    pub(super) fn parse(text: &str) -> Option<Fingerprint> {
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(text, 16).ok().filter(|_| is_hex)?;
        Some(Fingerprint(number.to_be_bytes()))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// Collects the parts of a fingerprint.
#[derive(Clone)]
pub(super) struct Mixer(SipHasher24);

impl Mixer {
    /// Starts a fingerprint. Fingerprints with different purposes never match.
    pub(super) fn new(salt: &Salt, purpose: &str) -> Mixer {
        Mixer(SipHasher24::new_with_key(&salt.0)).add(purpose.as_bytes())
    }

    /// Adds a part. Its length goes first, so that parts cannot run into each other.
    pub(super) fn add(mut self, part: &[u8]) -> Mixer {
        self.0.write(&(part.len() as u64).to_le_bytes());
        self.0.write(part);
        self
    }

    pub(super) fn done(self) -> Fingerprint {
        Fingerprint(self.0.finish128().as_bytes())
    }
}

/// What a client adds to the results of tools, and what differs each time: none of it is output of the tool.
enum Added {
    /// A line that begins so, anywhere, of at most [`LONGEST`] bytes. A longer one is output.
    Line(&'static str),
    /// The last part of the result, from the first of these strings to the second.
    End(&'static str, &'static str),
}

/// The clients' additions: the only place that knows them. A line for each, with its client.
const ADDED: [Added; 6] = [
    // codex 0.171, each command.
    Added::Line("Chunk ID: "),
    Added::Line("Wall time: "),
    // Gemini CLI 0.61, Qwen Code 0.24, each command.
    Added::Line("Process Group PGID: "),
    Added::Line("Background PIDs: "),
    // Claude Code 2.1.332: reminders, among them `<total_tokens>`, another number after each call.
    Added::End("<system-reminder>", "</system-reminder>"),
    // Copilot CLI 1.0.102: `<shellId: 97 completed with exit code 0>`.
    Added::End("<shellId: ", ">"),
];

/// Longest line that a client adds, in bytes.
const LONGEST: usize = 80;

impl Added {
    /// Returns the end of the rest, if the result ends with this addition.
    fn starts_at(&self, result: &str) -> Option<usize> {
        let Added::End(from, to) = self else { return None };
        let before = result.strip_suffix(to)?;
        let start = before.rfind(from)?;
        // Otherwise the end belongs to something else, which the tool wrote.
        (!before[start..].contains(to)).then_some(start)
    }

    fn is_line(&self, line: &str) -> bool {
        matches!(self, Added::Line(from) if line.len() <= LONGEST && line.starts_with(from))
    }

    fn may_be_in(&self, result: &str) -> bool {
        let (Added::Line(from) | Added::End(from, _)) = self;
        result.contains(from)
    }
}

/// Returns the result without what only its client has added.
///
/// ```
/// use endstop_guard::exchange::steady;
/// let result = "Chunk ID: 1b4c9f\nWall time: 0.0512 seconds\nOutput:\nready\n".to_owned();
/// assert_eq!(steady(result), "Output:\nready\n");
/// let result = "ready\n\n<system-reminder>\n<total_tokens>149 left</total_tokens>\n</system-reminder>";
/// assert_eq!(steady(result.to_owned()), "ready");
/// ```
pub fn steady(result: String) -> String {
    // Most results have no such part, and are returned as they are.
    if !ADDED.iter().any(|added| added.may_be_in(&result)) {
        return result;
    }
    let mut rest = result.as_str();
    while let Some(start) = ADDED.iter().find_map(|added| added.starts_at(rest.trim_end())) {
        rest = rest[..start].trim_end();
    }
    let is_added = |line: &str| ADDED.iter().any(|added| added.is_line(line));
    rest.split_inclusive('\n').filter(|line| !is_added(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn print(salt: [u8; 16], purpose: &str, parts: &[&[u8]]) -> Fingerprint {
        parts.iter().fold(Mixer::new(&Salt::new(salt), purpose), |mix, part| mix.add(part)).done()
    }

    #[test]
    fn additions_of_clients_are_removed_at_the_end() {
        let reminder = "<system-reminder>\nx\n</system-reminder>";
        for (result, expected) in [
            (format!("a\n\n{reminder}\n{reminder}\n"), "a"),
            (
                format!("{reminder}\nthe file is about it\n"),
                "<system-reminder>\nx\n</system-reminder>\nthe file is about it\n",
            ),
            (reminder.to_owned(), ""),
            ("ok\n<shellId: 97 completed with exit code 0>".to_owned(), "ok"),
            ("<shellId: 9> is written as <b>".to_owned(), "<shellId: 9> is written as <b>"),
            ("</system-reminder>".to_owned(), "</system-reminder>"),
            (format!("Wall time: {}", "é".repeat(60)), &format!("Wall time: {}", "é".repeat(60))),
        ] {
            assert_eq!(steady(result), expected);
        }
    }

    proptest! {
        #[test]
        fn each_byte_counts(
            text in proptest::collection::vec(any::<u8>(), 1..2000),
            at in any::<proptest::sample::Index>(), bits in 1..=u8::MAX, salt in any::<[u8; 16]>()
        ) {
            let mut other = text.clone();
            other[at.index(text.len())] ^= bits;
            let own = print(salt, "test", &[&text]);
            prop_assert_eq!(own, print(salt, "test", &[&text]));
            prop_assert_ne!(own, print(salt, "test", &[&other]));
            prop_assert_ne!(own, print(salt, "test", &[&text[1..]]));
            prop_assert_ne!(own, print(salt, "tests", &[&text]));
            let (left, right) = text.split_at(at.index(text.len()));
            prop_assert_ne!(own, print(salt, "test", &[left, right]));
            let mut other = salt;
            other[at.index(16)] ^= bits;
            prop_assert_ne!(own, print(other, "test", &[&text]));
        }
    }
}
