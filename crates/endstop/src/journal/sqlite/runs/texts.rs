//! Stores each conversation, and each other long value, only once, however many runs share it.
//!
//! A row of `conversations` is a conversation and is identified by its last message; `before` is
//! the same conversation without that message. A run that continues a conversation therefore adds
//! rows only for the new messages and refers to the last one.
//!
//! ```text
//! let prepared = Prepared::new(&known, &messages, &keys)?;   // JSON, before the file is locked
//! let number = prepared.store(&connection)?;                 // inside a transaction
//! let messages = load_conversation(&connection, number)?;
//! ```

use crate::journal::without_secrets;
use endstop_core::Message;
use endstop_wire::redact::KnownKeys;
use rusqlite::{Connection, OptionalExtension, params};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of the empty conversation. Rows are counted from 1, so 0 is free.
pub(in crate::journal::sqlite) const EMPTY: i64 = 0;

/// The largest conversation that is read, in bytes. A conversation that expands to more is damaged:
/// its rows refer to each other wrongly.
const MOST_BYTES: usize = 1 << 30;

/// A text, and the digest by which it is found.
#[derive(Debug)]
pub(in crate::journal::sqlite) struct Text {
    digest: [u8; 32],
    text: String,
}

impl Text {
    fn new(text: String) -> Text {
        Text { digest: Sha256::digest(&text).into(), text }
    }

    /// Serialises an object as JSON without secrets and with the count of those that were cut.
    pub(in crate::journal::sqlite) fn json(
        value: &impl Serialize,
        keys: &KnownKeys,
    ) -> Result<Text, serde_json::Error> {
        Ok(Text::new(without_secrets(keys, serde_json::to_string(value)?)))
    }

    /// Serialises a value as JSON without secrets, and returns how many were cut. The value itself
    /// gets no count, because it may be a list, or a schema to which no member may be added.
    pub(in crate::journal::sqlite) fn counted(
        value: &impl Serialize,
        keys: &KnownKeys,
    ) -> Result<(Text, u64), serde_json::Error> {
        let text = serde_json::to_string(value)?;
        Ok(match keys.out_of_json(&text) {
            Some((clean, cuts)) => (Text::new(clean.to_string()), cuts),
            None => (Text::new(text), 0),
        })
    }

    pub(in crate::journal::sqlite) fn len(&self) -> usize {
        self.text.len()
    }

    #[cfg(test)]
    pub(in crate::journal::sqlite) fn text(&self) -> &str {
        &self.text
    }

    /// Stores the text unless it is already stored, and returns its number.
    pub(in crate::journal::sqlite) fn store(
        &self,
        connection: &Connection,
    ) -> rusqlite::Result<i64> {
        self.store_new(connection).map(|(number, _)| number)
    }

    /// As [`store`](Self::store), and returns `true` if the text is new.
    fn store_new(&self, connection: &Connection) -> rusqlite::Result<(i64, bool)> {
        let inserted = connection
            .prepare_cached(
                // Insert first: a new text needs one statement, and the unique index finds an
                // existing one.
                "INSERT INTO texts (digest, text) VALUES (?1, ?2) ON CONFLICT (digest) DO NOTHING",
            )?
            .execute(params![self.digest, self.text])?;
        if inserted > 0 {
            return Ok((connection.last_insert_rowid(), true));
        }
        connection
            .prepare_cached("SELECT number FROM texts WHERE digest = ?1")?
            .query_row([&self.digest], |row| Ok((row.get(0)?, false)))
    }
}

/// Cache of the conversations that this process has stored, so that a long one is not serialised
/// again for each run.
#[derive(Default)]
pub(in crate::journal::sqlite) struct Known(Mutex<Tips>);

#[derive(Default)]
struct Tips {
    /// Seeded at random, because a collision of two 64-bit hashes would join two conversations: no
    /// author of a message can construct one.
    state: RandomState,
    /// Number of the stored conversation by the hash over its messages.
    numbers: HashMap<u64, i64>,
}

impl Known {
    /// Largest number of entries. Each message is an entry of 16 bytes; a full map is emptied.
    const MOST: usize = 1 << 18;

    fn tips(&self) -> MutexGuard<'_, Tips> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Empties the cache, because another process has removed conversations.
    pub(in crate::journal::sqlite) fn forget(&self) {
        self.tips().numbers.clear();
    }

    /// Returns, for each message, the hash over all messages up to and including it.
    fn hashes(&self, messages: &[Message]) -> Vec<u64> {
        let state = self.tips().state.clone();
        let mut last = 0u64;
        let hash = |message: &Message| {
            last = state.hash_one((last, message));
            last
        };
        messages.iter().map(hash).collect()
    }

    /// Returns the longest known conversation that is a prefix of this one: its number of messages,
    /// and its number.
    fn longest(&self, hashes: &[u64]) -> (usize, i64) {
        let tips = self.tips();
        let known = hashes.iter().enumerate().rev();
        let mut known = known.filter_map(|(at, hash)| Some((at + 1, *tips.numbers.get(hash)?)));
        known.next().unwrap_or((0, EMPTY))
    }

    fn learn(&self, hashes: &[u64], numbers: &[i64]) {
        let mut tips = self.tips();
        if tips.numbers.len() + numbers.len() > Known::MOST {
            tips.numbers.clear();
        }
        tips.numbers.extend(hashes.iter().copied().zip(numbers.iter().copied()));
    }
}

/// A conversation that is serialised and about to be stored.
#[derive(Debug)]
pub(in crate::journal::sqlite) struct Prepared {
    hashes: Vec<u64>,
    /// Number of messages that are already stored, as the conversation `base`.
    stored: usize,
    base: i64,
    /// The messages after those.
    new: Vec<Text>,
}

/// Identifies a stored conversation.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::journal::sqlite) struct Stored {
    pub(in crate::journal::sqlite) number: i64,
    messages: usize,
    hash: u64,
}

impl Prepared {
    /// Serialises the messages that are not known to be stored.
    pub(in crate::journal::sqlite) fn new(
        known: &Known,
        messages: &[Message],
        keys: &KnownKeys,
    ) -> Result<Prepared, serde_json::Error> {
        let hashes = known.hashes(messages);
        let (stored, base) = known.longest(&hashes);
        Prepared::from(hashes, (stored, base), messages, keys)
    }

    /// Serialises the messages that `earlier` does not have. If the conversation was shortened
    /// since and no longer continues `earlier`, serialises all of them.
    pub(in crate::journal::sqlite) fn after(
        earlier: Stored,
        known: &Known,
        messages: &[Message],
        keys: &KnownKeys,
    ) -> Result<Prepared, serde_json::Error> {
        let hashes = known.hashes(messages);
        let last = earlier.messages.checked_sub(1).and_then(|at| hashes.get(at));
        let base = if last == Some(&earlier.hash) {
            (earlier.messages, earlier.number)
        } else {
            (0, EMPTY)
        };
        Prepared::from(hashes, base, messages, keys)
    }

    fn from(
        hashes: Vec<u64>,
        (stored, base): (usize, i64),
        messages: &[Message],
        keys: &KnownKeys,
    ) -> Result<Prepared, serde_json::Error> {
        let new = messages[stored..].iter().map(|message| Text::json(message, keys));
        let new = new.collect::<Result<_, _>>()?;
        Ok(Prepared { hashes, stored, base, new })
    }

    /// Returns the bytes of the new messages.
    pub(in crate::journal::sqlite) fn bytes(&self) -> usize {
        self.new.iter().map(Text::len).sum()
    }

    /// Stores the conversation; must be called inside a transaction. Returns `None` if the
    /// conversation that it continues is no longer stored.
    pub(in crate::journal::sqlite) fn store(
        &self,
        connection: &Connection,
    ) -> rusqlite::Result<Option<Vec<i64>>> {
        if self.base != EMPTY {
            let there = connection
                .prepare_cached("SELECT 1 FROM conversations WHERE number = ?1")?
                .exists([self.base])?;
            if !there {
                return Ok(None);
            }
        }
        let mut numbers = Vec::with_capacity(self.new.len());
        let mut before = self.base;
        for message in &self.new {
            before = append(connection, before, message)?;
            numbers.push(before);
        }
        Ok(Some(numbers))
    }

    /// Adds the conversation to the cache. Called only after the transaction is committed, because
    /// a rollback would leave numbers in the cache that do not exist.
    pub(in crate::journal::sqlite) fn stored(&self, known: &Known, numbers: &[i64]) -> Stored {
        known.learn(&self.hashes[self.stored..], numbers);
        Stored {
            number: self.number(numbers),
            messages: self.hashes.len(),
            hash: self.hashes.last().copied().unwrap_or_default(),
        }
    }

    /// Returns the number of the conversation, given the numbers that [`store`](Self::store)
    /// returned.
    pub(in crate::journal::sqlite) fn number(&self, numbers: &[i64]) -> i64 {
        numbers.last().copied().unwrap_or(self.base)
    }
}

/// Stores the conversation `before` with one more message, and returns its number.
fn append(connection: &Connection, before: i64, message: &Text) -> rusqlite::Result<i64> {
    let (text, is_new) = message.store_new(connection)?;
    // No stored conversation can end with a message that was not stored before, so a new one needs
    // no lookup.
    if !is_new {
        let found = connection
            .prepare_cached("SELECT number FROM conversations WHERE before = ?1 AND text = ?2")?
            .query_row([before, text], |row| row.get(0))
            .optional()?;
        if let Some(number) = found {
            return Ok(number);
        }
    }
    connection
        .prepare_cached("INSERT INTO conversations (before, text) VALUES (?1, ?2)")?
        .execute([before, text])?;
    Ok(connection.last_insert_rowid())
}

/// Returns the messages of a stored conversation as JSON, the first one first.
pub(in crate::journal::sqlite) fn load_conversation(
    connection: &Connection,
    number: i64,
) -> rusqlite::Result<Result<Vec<String>, String>> {
    let mut select = connection.prepare_cached(
        "SELECT before, texts.text FROM conversations JOIN texts ON texts.number = conversations.text
         WHERE conversations.number = ?1",
    )?;
    let (mut messages, mut at, mut bytes) = (Vec::new(), number, 0);
    while at != EMPTY {
        let row = select
            .query_row([at], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)))
            .optional()?;
        let Some((before, message)) = row else {
            return Ok(Err(format!("its message {at} is missing")));
        };
        bytes += message.len();
        // A conversation always has a higher number than the one that it continues. Checking that
        // also ends a chain of rows that leads back to itself.
        if before >= at || before < EMPTY || bytes > MOST_BYTES {
            return Ok(Err(format!("its message {at} is out of place")));
        }
        messages.push(message);
        at = before;
    }
    messages.reverse();
    Ok(Ok(messages))
}
