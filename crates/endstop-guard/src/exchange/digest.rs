//! Salted fingerprints: texts and keys are compared by them, so that neither is stored.

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::hash::Hasher as _;

/// Secret random bytes of this process. With them a fingerprint of a key cannot be matched against
/// a list of known keys, and ids cannot be forged to collide.
#[derive(Clone)]
pub struct Salt {
    /// A hash that has read the bytes. They fill a block of it, so that it is read once and not for each
    /// fingerprint.
    start: Sha256,
    /// The keys of two hashes of the same bytes.
    keys: [HashKey; 2],
}

#[derive(Clone)]
struct HashKey {
    seed: u64,
    shared: SharedSeed,
}

impl HashKey {
    fn hasher(&self) -> FoldHasher<'_> {
        FoldHasher::with_seed(self.seed, &self.shared)
    }
}

impl Salt {
    /// Wraps bytes that the caller drew from a secure random source.
    pub fn new(bytes: [u8; 32]) -> Salt {
        let (words, _) = bytes.as_chunks::<8>();
        let word = |at: usize| u64::from_le_bytes(words[at]);
        let key = |seed, shared| HashKey { seed, shared: SharedSeed::from_u64(shared) };
        let start = Sha256::new().chain_update(bytes).chain_update([0; 32]);
        Salt { start, keys: [key(word(0), word(1)), key(word(2), word(3))] }
    }
}

impl fmt::Debug for Salt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Salt(…)")
    }
}

/// The first 16 bytes of a SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 16]);

impl Fingerprint {
    /// Returns the fingerprint of bytes without a salt, for ids of clients that are too long.
    pub fn of(bytes: &[u8]) -> Fingerprint {
        Mixer(Sha256::new()).add(bytes).done()
    }

    /// The bytes, to be a part of another fingerprint.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
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
pub(super) struct Mixer(Sha256);

impl Mixer {
    /// Starts a fingerprint. Fingerprints with different purposes never match.
    pub(super) fn new(salt: &Salt, purpose: &str) -> Mixer {
        Mixer(salt.start.clone()).add(purpose.as_bytes())
    }

    /// Adds a part. Its length goes first, so that parts cannot run into each other.
    pub(super) fn add(mut self, part: &[u8]) -> Mixer {
        self.0.update((part.len() as u64).to_le_bytes());
        self.0.update(part);
        self
    }

    /// Adds a part that may be long, by its length and two keyed hashes of 64 bits, which take a
    /// tenth of the time. No hash leaves the process, so a client cannot search for two texts with
    /// the same fingerprint, and such a pair would only join two of its own conversations.
    pub(super) fn add_long(mut self, part: &[u8], salt: &Salt) -> Mixer {
        self.0.update((part.len() as u64).to_le_bytes());
        for key in &salt.keys {
            let mut hash = key.hasher();
            hash.write(part);
            self.0.update(hash.finish().to_le_bytes());
        }
        self
    }

    pub(super) fn done(self) -> Fingerprint {
        // 128 bits are enough for equality, and halve the memory of the tables.
        let full = self.0.finalize();
        let mut short = [0; 16];
        short.copy_from_slice(&full[..16]);
        Fingerprint(short)
    }
}

/// A keyed hash of bytes and their length, to compare what one client sends with what it sent before.
///
/// Many times cheaper than a [`Fingerprint`], because each request is hashed completely. The key
/// is the salt, and no hash leaves the process, so a client cannot search for two texts with the same
/// mark. The worst that such a pair could do is to hide a change of the client's own history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mark {
    bytes: u64,
    hash: u64,
}

/// Collects the parts of a mark.
pub(super) struct Marker<'a> {
    bytes: u64,
    hash: FoldHasher<'a>,
}

impl<'a> Marker<'a> {
    /// Starts a mark. Marks with different purposes never match.
    pub(super) fn new(salt: &'a Salt, purpose: &str) -> Marker<'a> {
        Marker { bytes: 0, hash: salt.keys[0].hasher() }.add(purpose.as_bytes())
    }

    /// Adds a part. Its length goes first, so that parts cannot run into each other.
    pub(super) fn add(mut self, part: &[u8]) -> Marker<'a> {
        self.bytes = self.bytes.wrapping_add(part.len() as u64);
        self.hash.write_u64(part.len() as u64);
        self.hash.write(part);
        self
    }

    /// Adds a mark in place of the bytes that it stands for.
    pub(super) fn add_mark(mut self, mark: Mark) -> Marker<'a> {
        self.bytes = self.bytes.wrapping_add(mark.bytes);
        self.hash.write_u64(mark.bytes);
        self.hash.write_u64(mark.hash);
        self
    }

    pub(super) fn done(self) -> Mark {
        Mark { bytes: self.bytes, hash: self.hash.finish() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn print(part: &[u8], salt: &Salt) -> Fingerprint {
        Mixer::new(salt, "test").add_long(part, salt).done()
    }

    proptest! {
        #[test]
        fn long_part_is_told_by_each_byte(
            text in proptest::collection::vec(any::<u8>(), 1..2000),
            at in any::<proptest::sample::Index>(), bits in 1..=u8::MAX, words in any::<[u8; 32]>()
        ) {
            let salt = Salt::new(words);
            let mut other = text.clone();
            other[at.index(text.len())] ^= bits;
            prop_assert_eq!(print(&text, &salt), print(&text, &salt));
            prop_assert_ne!(print(&text, &salt), print(&other, &salt));
            prop_assert_ne!(print(&text, &salt), print(&text[1..], &salt));
        }

        #[test]
        fn each_word_of_the_salt_counts(words in any::<[u8; 32]>(), at in 0..32_usize, bits in 1..=u8::MAX) {
            let mut other = words;
            other[at] ^= bits;
            // Also each of the hashes by itself has one of the keys.
            let hashes = |words| Salt::new(words).keys.map(|key| {
                let mut hash = key.hasher();
                hash.write(b"a text of some length, which is hashed in more than one step");
                hash.finish()
            });
            let (a, b) = (hashes(words), hashes(other));
            let changed = at / 16;
            prop_assert_ne!(a[changed], b[changed]);
            prop_assert_eq!(a[1 - changed], b[1 - changed]);
        }
    }
}
