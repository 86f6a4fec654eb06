//! A map with a fixed number of entries. A new entry replaces the one that was used least recently.

use std::collections::BTreeMap;

/// The map. Its order of replacement depends on the calls alone, because there is no clock.
pub(super) struct BoundedMap<K, V> {
    most: usize,
    /// The number of uses so far.
    uses: u64,
    entries: BTreeMap<K, (u64, V)>,
    by_use: BTreeMap<u64, K>,
}

impl<K: Ord + Clone, V> BoundedMap<K, V> {
    /// Creates a map for at most `most` entries, at least one.
    pub(super) fn new(most: usize) -> BoundedMap<K, V> {
        BoundedMap { most: most.max(1), uses: 0, entries: BTreeMap::new(), by_use: BTreeMap::new() }
    }

    /// Returns the value without counting as a use.
    pub(super) fn peek(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(_, value)| value)
    }

    /// Returns the value to change it, and counts as a use.
    pub(super) fn get(&mut self, key: &K) -> Option<&mut V> {
        let (used, value) = self.entries.get_mut(key)?;
        // The last one that was used stays the last one.
        if *used == self.uses {
            return Some(value);
        }
        let key = self.by_use.remove(used)?;
        self.uses += 1;
        *used = self.uses;
        self.by_use.insert(self.uses, key);
        Some(value)
    }

    /// Stores a value, and returns the entry that had to go.
    pub(super) fn put(&mut self, key: K, value: V) -> Option<(K, V)> {
        if let Some(stored) = self.get(&key) {
            *stored = value;
            return None;
        }
        // Make room first, so that the map never exceeds its size.
        let gone = if self.entries.len() < self.most { None } else { self.drop_oldest() };
        self.uses += 1;
        self.by_use.insert(self.uses, key.clone());
        self.entries.insert(key, (self.uses, value));
        gone
    }

    /// Removes the entries with these keys.
    pub(super) fn remove(&mut self, unwanted: impl Fn(&K) -> bool) {
        self.entries.retain(|key, _| !unwanted(key));
        self.by_use.retain(|_, key| !unwanted(key));
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    fn drop_oldest(&mut self) -> Option<(K, V)> {
        let (_, key) = self.by_use.pop_first()?;
        let (_, value) = self.entries.remove(&key)?;
        Some((key, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_recently_used_entry_goes() {
        let mut map = BoundedMap::new(2);
        assert_eq!(map.put("a", 1), None);
        assert_eq!(map.put("b", 2), None);
        // The second time it is the newest already.
        for _ in 0..2 {
            assert_eq!(map.get(&"a"), Some(&mut 1));
        }
        assert_eq!(map.put("c", 3), Some(("b", 2)));
        assert_eq!(map.put("a", 4), None);
        assert_eq!((map.peek(&"a"), map.peek(&"b"), map.len()), (Some(&4), None, 2));
        assert_eq!(map.by_use.len(), 2);
        map.remove(|key| *key == "a");
        assert_eq!((map.peek(&"a"), map.len(), map.by_use.len()), (None, 1, 1));
    }
}
