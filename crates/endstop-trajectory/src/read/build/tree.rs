//! Selects the branch of a conversation that its last record belongs to.
//!
//! ```text
//! u1 ── a1 ── u2            asked, and then
//!         └── u3 ── a2      asked otherwise: u2 is left out
//! ```

use std::collections::HashMap;

/// Returns for each record, given as its id and the id of its parent, whether it is on the path to
/// the last record. A record without an id belongs to every branch.
pub(crate) fn on_last_path(links: &[(Option<&str>, Option<&str>)]) -> Vec<bool> {
    let mut by_id: HashMap<&str, usize> = HashMap::new();
    for (i, (id, _)) in links.iter().enumerate() {
        if let Some(id) = id {
            // The first record wins if an id occurs twice.
            by_id.entry(id).or_insert(i);
        }
    }
    let mut kept: Vec<bool> = links.iter().map(|(id, _)| id.is_none()).collect();
    let mut at = links.iter().rposition(|(id, _)| id.is_some());
    while let Some(i) = at {
        kept[i] = true;
        at = match links[i].1 {
            None => None,
            // A parent must come before its child; otherwise the links could form a cycle.
            Some(parent) => match by_id.get(parent) {
                Some(&parent) if parent < i => Some(parent),
                // The parent's line is missing or unreadable: the records before it still belong
                // to the conversation.
                _ => links[..i].iter().rposition(|(id, _)| id.is_some()),
            },
        };
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::on_last_path;

    #[test]
    fn path_follows_last_record() {
        let kept = |links: &[(&'static str, &'static str)]| {
            let some = |text: &'static str| (!text.is_empty()).then_some(text);
            let links: Vec<_> = links.iter().map(|(id, on)| (some(id), some(on))).collect();
            on_last_path(&links)
        };
        assert_eq!(
            kept(&[("a", ""), ("b", "a"), ("c", "a"), ("", ""), ("d", "c")]),
            [true, false, true, true, true]
        );
        // A missing parent, a record that is its own parent, and a cycle.
        assert_eq!(kept(&[("a", ""), ("c", "gone")]), [true, true]);
        assert_eq!(kept(&[("a", "a"), ("b", "b")]), [true, true]);
        assert_eq!(kept(&[("a", "b"), ("b", "a")]), [true, true]);
        assert!(on_last_path(&[]).is_empty());
    }
}
