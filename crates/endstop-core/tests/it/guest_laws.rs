//! The laws of guest runs over random clients: one ending in any order of calls, ceilings hold, a
//! provisional ending is discarded by a later call, and the recorded events replay.
//!
//! `ENDSTOP_CASES` raises the number of worlds.

use crate::guest_world::{play, spec};
use crate::kernel_laws::silence_scripted_panics;
use crate::world::{Rng, all_of};
use endstop_core::{Event, GuestMode, Message, Replay, RunPhase};
use std::collections::BTreeMap;

/// Number of random worlds.
fn cases() -> u64 {
    std::env::var("ENDSTOP_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(4_000)
}

#[test]
fn forgetting_changes_no_decision() {
    silence_scripted_panics();
    let kept = messages_kept(|mode| mode.forgets = true);
    let kept_after_turns = messages_kept(|mode| mode.forgets_input = true);
    let both = messages_kept(|mode| (mode.forgets, mode.forgets_input) = (true, true));
    let whole = messages_kept(|_| ());
    assert!(kept * 2 < whole, "{kept} of {whole} messages");
    assert!(kept_after_turns * 4 < kept * 3, "{kept_after_turns} of {kept} messages");
    assert_eq!(both, kept_after_turns);
}

/// Plays the clients' recorded events to runs with this mode, which must decide the same. Returns the
/// number of messages in their outcomes.
fn messages_kept(set: fn(&mut GuestMode)) -> usize {
    let mut kept = 0;
    for seed in 0..cases() {
        let played = play(seed).unwrap_or_else(|law| panic!("client {seed}: {law}"));
        let forgetful = || {
            let mut spec = spec(&mut Rng(seed)).0;
            set(spec.guest.as_mut().unwrap());
            spec
        };
        let mut replay = Replay::new(forgetful());
        for record in &played.records {
            let effects = replay.feed(record.event.clone()).to_vec();
            assert_eq!(effects, record.effects, "client {seed}");
        }
        let mut again = replay.outcome().unwrap().clone();
        let mut outcome = (*played.outcome).clone();
        let (few, all) =
            (std::mem::take(&mut again.messages), std::mem::take(&mut outcome.messages));
        let mut rest = all.iter();
        let is_kept = |message: &Message| rest.any(|one| one == message);
        assert!(few.iter().all(is_kept), "client {seed}: {few:?} of {all:?}");
        assert_eq!(all_of(&again), all_of(&outcome), "client {seed}");
        kept += few.len();
    }
    kept
}

#[test]
fn random_guests_keep_the_laws() {
    silence_scripted_panics();
    let mut endings = BTreeMap::new();
    for seed in 0..cases() {
        let played = play(seed).unwrap_or_else(|law| panic!("client {seed}: {law}"));
        *endings.entry(played.outcome.termination.as_str()).or_insert(0) += 1;
        let mut replay = Replay::new(spec(&mut Rng(seed)).0);
        for record in &played.records {
            // Through JSON, as a journal stores them.
            let text = serde_json::to_string(&record.event).unwrap();
            let event: Event = serde_json::from_str(&text).unwrap();
            assert_eq!(event, record.event, "client {seed}: {text}");
            replay.feed(event);
            let stopping = replay.run().is_some_and(|run| run.phase() == RunPhase::Stopping);
            assert!(!stopping || spec(&mut Rng(seed)).0.guest.unwrap().clocks, "client {seed}");
        }
        let again = replay.outcome().unwrap_or_else(|| panic!("client {seed}: no ending"));
        assert_eq!(all_of(again), all_of(&played.outcome), "client {seed}: replayed");
    }
    for ending in [
        "stop",
        "submitted",
        "error_max_turns",
        "error_max_budget_usd",
        "error_max_tokens",
        "error_timeout",
        "error_no_progress",
        "error_consecutive_mistakes",
        "error_output_truncated",
        "error_content_filtered",
        "error_during_execution",
        "error_schema_validation",
        "error_halted",
        "cancelled",
        "terminated",
    ] {
        assert!(endings.contains_key(ending), "no client ended as {ending}: {endings:?}");
    }
}
