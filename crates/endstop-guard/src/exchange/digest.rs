//! Salted fingerprints: texts and keys are compared by them, so that neither is stored.

use ahash::{AHasher, RandomState};
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _};

/// Secret random bytes of this process. With them a fingerprint of a key cannot be matched against
/// a list of known keys, and ids cannot be forged to collide.
#[derive(Clone)]
pub struct Salt([u8; 32]);

impl Salt {
    /// Wraps bytes that the caller drew from a secure random source.
    pub fn new(bytes: [u8; 32]) -> Salt {
        Salt(bytes)
    }

    /// The salt as four numbers.
    fn words(&self) -> [u64; 4] {
        let (words, _) = self.0.as_chunks::<8>();
        std::array::from_fn(|at| u64::from_le_bytes(words[at]))
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
        let mut hash = Sha256::new();
        hash.update(salt.0);
        Mixer(hash).add(purpose.as_bytes())
    }

    /// Adds a part. Its length goes first, so that parts cannot run into each other.
    pub(super) fn add(mut self, part: &[u8]) -> Mixer {
        self.0.update((part.len() as u64).to_le_bytes());
        self.0.update(part);
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
pub(super) struct Marker {
    bytes: u64,
    hash: AHasher,
}

impl Marker {
    /// Starts a mark. Marks with different purposes never match.
    pub(super) fn new(salt: &Salt, purpose: &str) -> Marker {
        let [first, second, third, fourth] = salt.words();
        let hash = RandomState::with_seeds(first, second, third, fourth).build_hasher();
        Marker { bytes: 0, hash }.add(purpose.as_bytes())
    }

    /// Adds a part. Its length goes first, so that parts cannot run into each other.
    pub(super) fn add(mut self, part: &[u8]) -> Marker {
        self.bytes = self.bytes.wrapping_add(part.len() as u64);
        self.hash.write_u64(part.len() as u64);
        self.hash.write(part);
        self
    }

    /// Adds a mark in place of the bytes that it stands for.
    pub(super) fn add_mark(mut self, mark: Mark) -> Marker {
        self.bytes = self.bytes.wrapping_add(mark.bytes);
        self.hash.write_u64(mark.bytes);
        self.hash.write_u64(mark.hash);
        self
    }

    pub(super) fn done(self) -> Mark {
        Mark { bytes: self.bytes, hash: self.hash.finish() }
    }
}
