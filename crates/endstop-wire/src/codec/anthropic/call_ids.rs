//! Tool call ids for Anthropic, which requires each id to be unique in a conversation.
//!
//! ```text
//! call("call_1")   → "call_1"
//! call("call_1")   → "call_1_2"   (the same id in a later turn)
//! result("call_1") → "call_1_2"   (answers the most recent call)
//! ```
//!
//! Ids repeat because other servers number their calls anew in each turn, as this crate does for
//! calls that arrive without an id.

use std::borrow::Cow;
use std::collections::HashMap;

/// The call ids of a conversation so far.
#[derive(Clone, Debug, Default)]
pub(super) struct CallIds {
    /// Number of times each id was used. Generated ids count too.
    used: HashMap<String, usize>,
    /// Generated id that currently replaces a repeated id.
    made: HashMap<String, String>,
}

impl CallIds {
    /// Returns the id to send for the next call: its own id, or a generated one if that was used
    /// before.
    pub(super) fn call<'a>(&mut self, id: &'a str) -> Cow<'a, str> {
        let Some(mut times) = self.used.get(id).copied() else {
            self.used.insert(id.to_owned(), 1);
            return Cow::Borrowed(id);
        };
        // Loop because a generated id such as `a_2` may also have been used by a server.
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

    /// Returns the id of the most recent call with this id, for its result.
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
    fn repeated_id_is_renamed_with_result() {
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
