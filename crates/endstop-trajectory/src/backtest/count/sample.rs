//! A map of bounded size whose content does not depend on the order of insertion: of all keys it
//! holds those with the smallest hashes.
//!
//! ```text
//! let mut tasks: Sample<Task> = Sample::default();
//! if let Some(task) = tasks.entry(stable_hash([dataset, id]), 50_000) { task.good += 1; }
//! ```
//!
//! A key among the smallest of all is among the smallest of each part, so it is never dropped, and
//! its value is complete. A key that is dropped once is never inserted again. A sample that dropped keys
//! holds all keys up to its largest one, so that samples of different groups can be added: the sum holds
//! the keys up to the smallest of these, and no group has more than its part.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Values by the hash of their key.
#[derive(Clone, Debug)]
pub(crate) struct Sample<T> {
    values: BTreeMap<u64, T>,
    /// `true` if there are keys that are not here; all of these are larger than those that are.
    is_part: bool,
}

impl<T> Default for Sample<T> {
    fn default() -> Self {
        Sample { values: BTreeMap::new(), is_part: false }
    }
}

impl<T: Default> Sample<T> {
    /// Returns the value of a key, created if needed, if the sample may hold `most` keys; `None` if the
    /// key is not in the sample.
    pub(crate) fn entry(&mut self, key: u64, most: usize) -> Option<&mut T> {
        if (self.is_part || self.values.len() >= most) && !self.values.contains_key(&key) {
            self.is_part = true;
            if self.values.last_key_value().is_none_or(|(largest, _)| key > *largest) {
                return None;
            }
            if self.values.len() >= most {
                self.values.pop_last();
            }
        }
        Some(self.values.entry(key).or_default())
    }

    /// Adds another sample; `add` adds two values of the same key.
    pub(crate) fn merge(&mut self, mut other: Self, mut add: impl FnMut(&mut T, T)) {
        for largest in [self.largest(), other.largest()].into_iter().flatten() {
            self.drop_above(largest);
            other.drop_above(largest);
        }
        self.is_part |= other.is_part;
        for (key, value) in other.values {
            match self.values.entry(key) {
                Entry::Vacant(vacant) => drop(vacant.insert(value)),
                Entry::Occupied(mut own) => add(own.get_mut(), value),
            }
        }
    }

    /// Drops the largest keys, so that at most this number is left.
    pub(crate) fn shrink(&mut self, most: usize) {
        if let Some(first) = self.values.keys().nth(most).copied() {
            drop(self.values.split_off(&first));
            self.is_part = true;
        }
    }

    /// Returns the largest key if there are others that are not here.
    fn largest(&self) -> Option<u64> {
        // Without a key, none is known.
        self.is_part.then(|| self.values.last_key_value().map_or(0, |(key, _)| *key))
    }

    fn drop_above(&mut self, largest: u64) {
        if let Some(first) = largest.checked_add(1) {
            drop(self.values.split_off(&first));
        }
    }

    /// Returns the number of keys.
    pub(crate) fn len(&self) -> usize {
        self.values.len()
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

impl<T: Serialize> Serialize for Sample<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.is_part, self.values.iter().collect::<Vec<_>>()).serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Sample<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (is_part, list): (bool, Vec<(u64, T)>) = Deserialize::deserialize(deserializer)?;
        // A key that occurs twice was not written by `serialize`.
        if list.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
            return Err(serde::de::Error::custom("keys out of order"));
        }
        Ok(Sample { values: list.into_iter().collect(), is_part })
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
                let mut sample: Sample<u32> = Sample::default();
                for key in keys {
                    if let Some(count) = sample.entry(key, 7) {
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
            parts.shrink(7);
            prop_assert_eq!(parts.is_part, whole.is_part);
            prop_assert_eq!(&parts.values, &whole.values);
            let text = serde_json::to_string(&whole).unwrap();
            let again: Sample<u32> = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&again.values, &whole.values);
        }

        #[test]
        fn samples_of_groups_add_evenly(
            large in proptest::collection::btree_set(any::<u64>(), 0..60),
            small in proptest::collection::btree_set(any::<u64>(), 0..60),
        ) {
            let sample = |keys: &std::collections::BTreeSet<u64>, most: usize| {
                let mut sample: Sample<u32> = Sample::default();
                for key in keys {
                    let _ = sample.entry(*key, most);
                }
                sample
            };
            let mut sum = sample(&large, 9);
            sum.merge(sample(&small, 30), |_, _| ());
            let mut other = sample(&small, 30);
            other.merge(sample(&large, 9), |_, _| ());
            prop_assert_eq!(&sum.values, &other.values);
            // Up to the largest key of the sum, both groups are complete.
            let bar = if sum.is_part { sum.values.keys().last().copied().unwrap_or(0) } else { u64::MAX };
            let all: Vec<u64> = large.union(&small).copied().filter(|key| *key <= bar).collect();
            prop_assert_eq!(sum.values.into_keys().collect::<Vec<_>>(), all);
        }
    }
}
