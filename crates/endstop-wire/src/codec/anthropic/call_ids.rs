//! Ids of calls, each used once in a conversation, as the API wants them.
//!
//! ```ignore
//! assert_eq!(ids.call("call_1"), "call_1");
//! assert_eq!(ids.call("call_1"), "call_1_2"); // of a later turn
//! assert_eq!(ids.result("call_1"), "call_1_2"); // answers the one before it
//! ```
//!
//! Other servers count anew in each turn, and so do the ids that are made here for calls that came
//! without one.

use std::borrow::Cow;
use std::collections::HashMap;

/// The ids of a conversation so far.
#[derive(Clone, Debug, Default)]
pub(super) struct CallIds {
    /// How often each has come; what was made of one counts too.
    used: HashMap<String, usize>,
    /// What stands for an id since it came again.
    made: HashMap<String, String>,
}

impl CallIds {
    /// The id of the next call: its own, or where that was used one that is made from it.
    pub(super) fn call<'a>(&mut self, id: &'a str) -> Cow<'a, str> {
        let Some(mut times) = self.used.get(id).copied() else {
            self.used.insert(id.to_owned(), 1);
            return Cow::Borrowed(id);
        };
        let made = loop {
            times += 1;
            let made = format!("{id}_{times}");
            if !self.used.contains_key(&made) {
                break made;
            }
        };
        self.used.insert(id.to_owned(), times);
        self.used.insert(made.clone(), 1);
        self.made.insert(id.to_owned(), made.clone());
        Cow::Owned(made)
    }

    /// The id of the last call of this id, for its result.
    pub(super) fn result<'a>(&self, id: &'a str) -> Cow<'a, str> {
        self.made.get(id).map_or(Cow::Borrowed(id), |made| Cow::Owned(made.clone()))
    }

    pub(super) fn clear(&mut self) {
        self.used.clear();
        self.made.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::CallIds;
    use std::collections::HashSet;

    #[test]
    fn no_id_is_used_twice_and_results_follow_their_calls() {
        let mut ids = CallIds::default();
        let mut all = HashSet::new();
        for id in ["a", "a_2", "a", "a", "b", "a_2", "a_3", "a_2_2", "a"] {
            let sent = ids.call(id).into_owned();
            assert_eq!(ids.result(id), sent);
            assert!(all.insert(sent.clone()), "`{sent}` twice");
        }
        assert_eq!(ids.result("b"), "b");
        ids.clear();
        assert_eq!(ids.call("a"), "a");
    }
}
