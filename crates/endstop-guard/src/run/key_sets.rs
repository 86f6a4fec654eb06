//! The credentials of clients, ready to be searched for.

use endstop_wire::redact::KnownKeys;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Number of sets that are remembered. Most guards serve clients with the same key, or with few.
const MOST_SETS: usize = 16;

/// Search tables for credentials, shared by runs whose clients send the same ones. To build them takes
/// longer than a call, and they are larger than the rest of a short run.
#[derive(Default)]
pub(super) struct KeySets(Mutex<VecDeque<(Vec<String>, KnownKeys)>>);

impl KeySets {
    /// Returns the tables for these credentials together with `others`.
    pub(super) fn of(&self, credentials: &[String], others: &KnownKeys) -> KnownKeys {
        let known = {
            let mut sets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let at = sets.iter().position(|(of, _)| of == credentials);
            at.and_then(|at| sets.remove(at))
        };
        let build = || (credentials.to_vec(), KnownKeys::new(credentials));
        let (credentials, keys) = known.unwrap_or_else(build);
        // A union of sets of which one contains the other is cheap, so what is remembered is the union.
        let keys = keys.and(others);
        let mut sets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sets.push_front((credentials, keys.clone()));
        sets.truncate(MOST_SETS);
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHERS: &str = "own-4f1c9a77b2e84d0d9c3e5a61-key";

    fn credentials(number: usize) -> Vec<String> {
        vec![format!("sk-proj-{number}-9b1f0c77d2e84d0d9c3e5a61")]
    }

    fn hides(keys: &KnownKeys, secret: &str) -> bool {
        keys.out_of_text(secret) == "[redacted]"
    }

    #[test]
    fn set_has_all_secrets_and_no_others() {
        let sets = KeySets::default();
        let others = KnownKeys::new([OTHERS]);
        // More than are remembered, so that some are built again.
        for number in (0..2 * MOST_SETS).chain(0..2 * MOST_SETS) {
            let keys = sets.of(&credentials(number), &KnownKeys::default());
            assert!(hides(&keys, &credentials(number)[0]));
            let both = sets.of(&credentials(number), &others);
            assert!(hides(&both, &credentials(number)[0]) && hides(&both, OTHERS));
        }
        assert_eq!(sets.0.lock().unwrap().len(), MOST_SETS);
    }
}
