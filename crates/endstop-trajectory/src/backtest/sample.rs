//! A map of bounded size whose content does not depend on the order of insertion: of all keys it
//! holds those with the smallest hashes.
//!
//! ```text
//! let mut tasks: Sample<Task, 50_000> = Sample::default();
//! if let Some(task) = tasks.entry(stable_hash([dataset, id])) { task.good += 1; }
//! ```
//!
//! A key among the smallest of all is among the smallest of each part, so it is never dropped, and
//! its value is complete. A key that is dropped once is never inserted again.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// At most `MOST` values by the hash of their key.
#[derive(Clone, Debug)]
pub(crate) struct Sample<T, const MOST: usize> {
    values: BTreeMap<u64, T>,
}

impl<T, const MOST: usize> Default for Sample<T, MOST> {
    fn default() -> Self {
        Sample { values: BTreeMap::new() }
    }
}

impl<T: Default, const MOST: usize> Sample<T, MOST> {
    /// Returns the value of a key, created if needed; `None` if the key is not in the sample.
    pub(crate) fn entry(&mut self, key: u64) -> Option<&mut T> {
        if self.values.len() >= MOST && !self.values.contains_key(&key) {
            let (largest, _) = self.values.last_key_value()?;
            if key > *largest {
                return None;
            }
            self.values.pop_last();
        }
        Some(self.values.entry(key).or_default())
    }

    /// Adds another sample; `add` adds two values of the same key.
    pub(crate) fn merge(&mut self, other: Self, mut add: impl FnMut(&mut T, T)) {
        for (key, value) in other.values {
            // The usual case of a merge: one side is empty, and nothing needs to be added.
            if self.values.len() < MOST
                && let Entry::Vacant(vacant) = self.values.entry(key)
            {
                vacant.insert(value);
            } else if let Some(own) = self.entry(key) {
                add(own, value);
            }
        }
    }

    /// Iterates over keys and values in the order of the hashes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.values.iter().map(|(key, value)| (*key, value))
    }

    /// Iterates over the values in the order of the hashes.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.values.values()
    }
}

impl<T: Serialize, const MOST: usize> Serialize for Sample<T, MOST> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&self.values)
    }
}

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for Sample<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let list: Vec<(u64, T)> = Vec::deserialize(deserializer)?;
        // A longer list, or a key that occurs twice, was not written by `serialize`.
        if list.len() > MOST || list.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
            return Err(serde::de::Error::custom("keys out of order"));
        }
        Ok(Sample { values: list.into_iter().collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::Sample;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn order_and_split_change_nothing(
            keys in proptest::collection::vec(0_u64..40, 0..80), mask in any::<u128>(),
        ) {
            let sample = |keys: &mut dyn Iterator<Item = u64>| {
                let mut sample: Sample<u32, 7> = Sample::default();
                for key in keys {
                    if let Some(count) = sample.entry(key) {
                        *count += 1;
                    }
                }
                sample
            };
            let whole = sample(&mut keys.iter().copied());
            let mut distinct = keys.clone();
            distinct.sort_unstable();
            distinct.dedup();
            distinct.truncate(7);
            prop_assert_eq!(whole.values.keys().copied().collect::<Vec<_>>(), distinct);
            for (key, count) in &whole.values {
                prop_assert_eq!(*count as usize, keys.iter().filter(|one| *one == key).count());
            }
            prop_assert_eq!(&sample(&mut keys.iter().rev().copied()).values, &whole.values);
            let part = |want: bool| {
                let of = keys.iter().enumerate().filter(|(nth, _)| (mask >> nth & 1 == 1) == want);
                sample(&mut of.map(|(_, key)| *key))
            };
            let mut parts = part(true);
            parts.merge(part(false), |own, other| *own += other);
            prop_assert_eq!(&parts.values, &whole.values);
            let text = serde_json::to_string(&whole).unwrap();
            let again: Sample<u32, 7> = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&again.values, &whole.values);
        }
    }
}
