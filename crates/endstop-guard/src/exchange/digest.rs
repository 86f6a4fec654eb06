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

/// Beginnings of lines that codex (the first two) and Gemini CLI add to the output of a command.
const VOLATILE: [&str; 4] =
    ["Chunk ID: ", "Wall time: ", "Process Group PGID: ", "Background PIDs: "];

/// Longest line that can be one of those, in bytes. A longer line is output of the command.
const LONGEST: usize = 80;

/// Returns the result without lines that only its client has added.
///
/// ```
/// use endstop_guard::exchange::steady;
/// let result = "Chunk ID: 1b4c9f\nWall time: 0.0512 seconds\nOutput:\nready\n".to_owned();
/// assert_eq!(steady(result), "Output:\nready\n");
/// ```
pub fn steady(result: String) -> String {
    // Most results have no such line, and are returned as they are.
    if !VOLATILE.iter().any(|start| result.contains(start)) {
        return result;
    }
    let is_volatile =
        |line: &str| line.len() <= LONGEST && VOLATILE.iter().any(|start| line.starts_with(start));
    result.split_inclusive('\n').filter(|line| !is_volatile(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn print(salt: [u8; 16], purpose: &str, parts: &[&[u8]]) -> Fingerprint {
        parts.iter().fold(Mixer::new(&Salt::new(salt), purpose), |mix, part| mix.add(part)).done()
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
