//! Irregularities of the input by kind, each with its first few cases. They can be added to those of
//! other parts of the input in any order.
//!
//! ```
//! use endstop_trajectory::read::Findings;
//! let mut found = Findings::default();
//! found.add("hidden", "runs/.b", None, "");
//! let mut other = Findings::default();
//! other.add("hidden", "runs/.a", None, "");
//! found.merge(other);
//! let cases: Vec<_> = found.into_kinds().collect();
//! assert_eq!(cases, [("hidden".to_owned(), 2, vec!["runs/.a".to_owned(), "runs/.b".to_owned()])]);
//! ```

use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::Path;

/// Number of cases that are named for each kind.
const NAMED: usize = 5;
/// Maximum number of kinds that are counted separately.
const KINDS: usize = 200;
/// Maximum length of a kind and of the text of a case, in bytes.
const LONGEST: usize = 400;

/// Cases by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings {
    kinds: BTreeMap<String, Cases>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Cases {
    count: u64,
    /// The first in the order of the files and of their records.
    first: Vec<Case>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Case {
    file: String,
    /// The line, or the index of the list element, from 1.
    at: Option<u64>,
    /// The explanation; empty if the file alone is the case.
    text: String,
}

impl Case {
    /// Compares places as a walk visits them: folder by folder, and not by the characters of the path.
    fn cmp(&self, file: &str, at: Option<u64>, text: &str) -> Ordering {
        let path = Path::new(&self.file).cmp(Path::new(file));
        path.then_with(|| (self.file.as_str(), self.at, self.text.as_str()).cmp(&(file, at, text)))
    }

    fn named(self) -> String {
        let Case { file, at, text } = self;
        let place = at.map_or(file.clone(), |at| format!("{file}:{at}"));
        if text.is_empty() { place } else { format!("{place}: {text}") }
    }
}

impl Findings {
    /// Adds a case: the file and the record that has it, and an explanation.
    pub fn add(&mut self, kind: &str, file: &str, at: Option<u64>, text: &str) {
        if let Some(cases) = self.cases(kind) {
            cases.count = cases.count.saturating_add(1);
            cases.name(file, at, shortened(text));
        }
    }

    /// Adds the cases of another part of the input.
    pub fn merge(&mut self, other: Findings) {
        for (kind, others) in other.kinds {
            let Some(cases) = self.cases(&kind) else { continue };
            cases.count = cases.count.saturating_add(others.count);
            for Case { file, at, text } in others.first {
                cases.name(&file, at, &text);
            }
        }
    }

    /// Takes a case back that is a file, for example because another reader reads the file after all.
    /// Only kinds that `of_kind` accepts are searched. Returns `false` if there is no such case.
    pub fn remove(&mut self, file: &str, of_kind: impl Fn(&str) -> bool) -> bool {
        let mut kinds: Vec<_> = self.kinds.iter_mut().filter(|(kind, _)| of_kind(kind)).collect();
        // Only the first few of a kind are named; a file without a name is one of the others.
        let named = |cases: &Cases| cases.first.iter().any(|case| case.file == file);
        let known = kinds.iter().position(|(_, cases)| named(cases));
        let other = || kinds.iter().position(|(_, cases)| cases.count > cases.first.len() as u64);
        let Some(nth) = known.or_else(other) else { return false };
        let (_, cases) = kinds.swap_remove(nth);
        cases.count -= 1;
        cases.first.retain(|case| case.file != file);
        self.kinds.retain(|_, cases| cases.count > 0);
        true
    }

    /// Returns the number of all cases.
    pub fn count(&self) -> u64 {
        self.kinds.values().fold(0, |sum, cases| sum.saturating_add(cases.count))
    }

    /// Returns the kinds in alphabetical order, each with the number of its cases and the first few.
    pub fn into_kinds(self) -> impl Iterator<Item = (String, u64, Vec<String>)> {
        let named = |cases: Vec<Case>| cases.into_iter().map(Case::named).collect();
        self.kinds.into_iter().map(move |(kind, cases)| (kind, cases.count, named(cases.first)))
    }

    /// Returns the cases of a kind. Kinds come from files, so that only the first few by alphabet are
    /// counted: this choice does not depend on their order.
    fn cases(&mut self, kind: &str) -> Option<&mut Cases> {
        let kind = shortened(kind);
        if self.kinds.len() >= KINDS && !self.kinds.contains_key(kind) {
            if self.kinds.last_key_value().is_some_and(|(last, _)| kind > last.as_str()) {
                return None;
            }
            self.kinds.pop_last();
        }
        Some(self.kinds.entry(kind.to_owned()).or_default())
    }
}

impl Cases {
    fn name(&mut self, file: &str, at: Option<u64>, text: &str) {
        let place = self.first.partition_point(|case| case.cmp(file, at, text).is_lt());
        if place < NAMED {
            self.first.insert(place, Case { file: file.to_owned(), at, text: text.to_owned() });
            self.first.truncate(NAMED);
        }
    }
}

/// Returns the beginning of a name or an explanation that comes from a file.
pub(crate) fn shortened(text: &str) -> &str {
    let mut end = LONGEST.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(cases: &[(&str, &str, Option<u64>)]) -> Findings {
        let mut found = Findings::default();
        for (kind, file, at) in cases {
            found.add(kind, file, *at, "why");
        }
        found
    }

    #[test]
    fn order_of_parts_changes_nothing() {
        let names: Vec<String> = (0..40).map(|nth| format!("a{}/b", nth % 13)).collect();
        let all: Vec<_> =
            names.iter().zip(1..).map(|(file, at)| ("k", &**file, Some(at))).collect();
        let whole = found(&all);
        for cut in [1, 7, 20, 39] {
            let (mut early, mut late) = (found(&all[..cut]), found(&all[cut..]));
            early.merge(late.clone());
            late.merge(found(&all[..cut]));
            assert_eq!((&early, &late), (&whole, &whole), "cut at {cut}");
        }
    }

    #[test]
    fn cases_are_in_walk_order() {
        // A walk visits `a/z` before `a-b/c`, although `-` is less than `/`.
        let found =
            found(&[("k", "a-b/c", Some(2)), ("k", "a/z", Some(10)), ("k", "a/z", Some(9))]);
        let kinds: Vec<_> = found.into_kinds().collect();
        assert_eq!(kinds[0].2, ["a/z:9: why", "a/z:10: why", "a-b/c:2: why"]);
    }

    #[test]
    fn kinds_are_bounded_by_alphabet() {
        let kinds: Vec<String> = (0..300).map(|nth| format!("{:03}", (nth * 7) % 300)).collect();
        let mut found = Findings::default();
        for kind in kinds.iter().chain(&kinds) {
            found.add(kind, "f", None, "");
        }
        let counted: Vec<_> = found.into_kinds().map(|(kind, count, _)| (kind, count)).collect();
        let expected: Vec<_> = (0..KINDS).map(|nth| (format!("{nth:03}"), 2)).collect();
        assert_eq!(counted, expected);
    }

    #[test]
    fn removed_file_is_not_counted() {
        let files: Vec<String> = (0..7).map(|nth| format!("f{nth}")).collect();
        let mut all = Findings::default();
        for file in &files {
            all.add("k", file, None, "");
        }
        assert!(!all.remove("f0", |kind| kind == "other"));
        // `f6` is one of the two that are not named.
        assert!(all.remove("f6", |_| true) && all.remove("f0", |_| true));
        assert_eq!(all.count(), 5);
        let (_, _, first) = all.into_kinds().next().unwrap();
        assert_eq!(first, ["f1", "f2", "f3", "f4"]);
    }

    proptest::proptest! {
        #[test]
        fn three_parts_add_up_anyhow(
            cases in proptest::collection::vec((0_u32..260, 0_u32..30, 0_u64..3, 0_usize..3), 0..900),
        ) {
            let mut parts = [Findings::default(), Findings::default(), Findings::default()];
            let mut whole = Findings::default();
            for (kind, file, at, part) in &cases {
                let (kind, file) = (format!("{kind:03}"), format!("d{}/f{file}", file % 4));
                for found in [&mut whole, &mut parts[*part]] {
                    found.add(&kind, &file, at.checked_sub(1), "why");
                }
            }
            for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
                // The counts of a part may have been written and read by another process.
                let read = |nth: usize| -> Findings {
                    serde_json::from_str(&serde_json::to_string(&parts[nth]).unwrap()).unwrap()
                };
                let mut sum = read(order[0]);
                let mut rest = read(order[1]);
                rest.merge(read(order[2]));
                sum.merge(rest);
                proptest::prop_assert_eq!(&sum, &whole);
            }
        }
    }
}
