//! The key that tells OpenAI which requests belong together.
//!
//! Rule of the API ("Prompt caching" in OpenAI's documentation): requests are routed to a machine by
//! a hash of the first part of the prompt, with which `prompt_cache_key` is combined. Requests with
//! a common prefix should have the same key in all turns.
//!
//! The key is computed from the instructions, the names of the tools and the user's first message. A
//! session that is resumed or forked therefore has the key of its first run, in any process.

use endstop_core::Role;

/// The key of a conversation.
#[derive(Clone, Debug)]
pub(crate) struct CacheKey {
    /// Hash of the constant parts.
    constant: u64,
    key: Option<String>,
}

impl CacheKey {
    /// Creates the key of a conversation with these constant parts.
    pub(crate) fn new<'a>(constant: impl Iterator<Item = &'a str>) -> CacheKey {
        // The separator keeps `ab`, `c` apart from `a`, `bc`.
        let hash = |hash, part: &str| fnv(fnv(hash, part.as_bytes()), &[0xff]);
        CacheKey { constant: constant.fold(OFFSET, hash), key: None }
    }

    /// Forgets the first message, because another conversation follows.
    pub(crate) fn clear(&mut self) {
        self.key = None;
    }

    /// Reads an encoded message. The user's first one completes the key.
    pub(crate) fn read(&mut self, role: Role, encoded: &[u8]) {
        if role == Role::User && self.key.is_none() {
            self.key = Some(format!("endstop-{:016x}", fnv(self.constant, encoded)));
        }
    }

    /// Returns the key, once there is a message of the user.
    pub(crate) fn get(&self) -> Option<&str> {
        self.key.as_deref()
    }
}

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

/// The hash FNV-1a, because the standard library's may differ between versions of Rust.
fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_depends_on_constant_parts_and_first_message() {
        let key = |parts: &[&str], first: &str| {
            let mut key = CacheKey::new(parts.iter().copied());
            key.read(Role::System, b"ignored");
            assert_eq!(key.get(), None);
            key.read(Role::User, first.as_bytes());
            key.read(Role::User, b"later");
            key.get().unwrap().to_owned()
        };
        assert_eq!(key(&["s", "t"], "a"), key(&["s", "t"], "a"));
        assert_ne!(key(&["s", "t"], "a"), key(&["s", "t"], "b"));
        assert_ne!(key(&["st"], "a"), key(&["s", "t"], "a"));
        assert_eq!(key(&["s"], "a").len(), "endstop-".len() + 16);
    }
}
