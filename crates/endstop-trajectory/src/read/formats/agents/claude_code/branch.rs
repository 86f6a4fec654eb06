//! Selects the records of a session's tree that belong to the run.
//!
//! ```text
//! u1 ── a1 ── u2            asked, and then
//!         └── u3 ── a2      asked otherwise: u2 is left out
//! ```
//!
//! The run is the path to the last message. A record off that path is kept if its parent is kept
//! and it does not begin a branch: the result of a parallel call, another block of the same
//! response, a hook. A prompt off the path, or another response, begins a branch that was
//! abandoned.

use super::record::{Record, Side, What};
use std::collections::{HashMap, HashSet};

/// Returns for each record whether it belongs to the run.
pub(super) fn kept(records: &[Record]) -> Vec<bool> {
    let by_uuid: HashMap<&str, usize> = records
        .iter()
        .enumerate()
        // Reversed, so that the first record wins if a uuid occurs twice.
        .rev()
        .filter_map(|(i, record)| Some((record.uuid.as_deref()?, i)))
        .collect();
    let parent = |i: usize| {
        let parent = *by_uuid.get(records[i].parent.as_deref()?)?;
        // A parent must come before its child; otherwise the links could form a cycle.
        (parent < i).then_some(parent)
    };
    let is_message = |record: &Record| matches!(record.what, What::Assistant(_) | What::User(_));
    // A file may contain several unconnected trees. Each one has its own path.
    let mut root: Vec<usize> = (0..records.len()).collect();
    let mut leaf: HashMap<usize, usize> = HashMap::new();
    for (i, record) in records.iter().enumerate() {
        if let Some(on) = parent(i) {
            root[i] = root[on];
        }
        if record.side.is_none() && is_message(record) {
            leaf.insert(root[i], i);
        }
    }
    let mut on_path = vec![false; records.len()];
    let mut responses = HashSet::new();
    for &leaf in leaf.values() {
        let mut at = Some(leaf);
        while let Some(i) = at {
            on_path[i] = true;
            responses.extend(records[i].response());
            at = parent(i);
        }
    }
    let mut kept = vec![true; records.len()];
    for (i, record) in records.iter().enumerate() {
        if on_path[i] || record.side.is_some() {
            continue;
        }
        // A record without a parent is not a branch.
        let Some(on) = parent(i) else { continue };
        let begins = match &record.what {
            What::Assistant(_) => record.response().is_none_or(|id| !responses.contains(id)),
            _ => record.is_prompt(),
        };
        // A record on an abandoned branch is dropped together with its parent.
        kept[i] = kept[on] && !begins;
    }
    kept
}

/// Returns for each record the subagent that wrote it, if any.
pub(super) fn sides(records: &[Record]) -> Vec<Option<Side>> {
    let mut by_uuid: HashMap<&str, usize> = HashMap::new();
    let mut sides: Vec<Option<Side>> = Vec::with_capacity(records.len());
    for (i, record) in records.iter().enumerate() {
        let side = match &record.side {
            Some(Side::Unnamed) => {
                let on = record.parent.as_deref().and_then(|parent| by_uuid.get(parent));
                let inherited = on.and_then(|&on| sides[on].clone());
                // If no field names the agent, use the first record of its chain as the id.
                Some(inherited.unwrap_or_else(|| {
                    let line = || format!("line {}", record.line);
                    Side::Agent(record.uuid.clone().unwrap_or_else(line))
                }))
            }
            side => side.clone(),
        };
        sides.push(side);
        if let Some(uuid) = record.uuid.as_deref() {
            by_uuid.entry(uuid).or_insert(i);
        }
    }
    sides
}
