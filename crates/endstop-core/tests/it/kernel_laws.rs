//! The laws of the kernel, over random worlds: every run ends once, whatever the order of events;
//! after a cancel it only aborts; every call is answered; ceilings hold; the same events, or the
//! same text in other deltas, lead to the same outcome.
//!
//! `ENDSTOP_CASES` raises the number of worlds. `cargo run --release -p endstop-core --example
//! soak` plays a million and prints its counts.

use crate::world::{
    Rng, all_of, cut_elsewhere, cut_in_mid_stream, play, replay, replayed_with, set_back,
};
use std::time::Duration;

#[test]
fn random_runs_keep_kernel_laws() {
    silence_scripted_panics();
    let cases = std::env::var("ENDSTOP_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(8_000);
    for seed in 0..cases {
        let played = play(seed).unwrap_or_else(|law| panic!("world {seed}: {law}"));
        if seed % 4 == 0 {
            let again = replay(seed, &played.events).unwrap();
            assert_eq!(all_of(&again), all_of(&played.outcome), "world {seed}: replayed");
            if !cut_in_mid_stream(&played.outcome) {
                let cut = cut_elsewhere(&played.events, &mut Rng(seed));
                let other = replay(seed, &cut).unwrap();
                assert_eq!(all_of(&other), all_of(&played.outcome), "world {seed}: cut elsewhere");
            }
        }
    }
}

/// A clock that is set back does not shorten elapsed time: the run has the same outcome, and no
/// duration shrinks on the way.
#[test]
fn clock_set_back_changes_nothing() {
    silence_scripted_panics();
    let mut earlier = 0_usize;
    for seed in 0..4_000 {
        let played = play(seed).unwrap_or_else(|law| panic!("world {seed}: {law}"));
        let told = set_back(&played.events, &mut Rng(seed ^ 0x5e7));
        earlier += told.windows(2).filter(|two| two[1].at < two[0].at).count();
        let mut elapsed = Duration::ZERO;
        let outcome = replayed_with(seed, &told, &mut |run| {
            assert!(run.elapsed() >= elapsed, "world {seed}: the time since the start shrinks");
            elapsed = run.elapsed();
        })
        .unwrap();
        assert!(outcome.duration >= elapsed, "world {seed}: the whole is shorter than its part");
        assert_eq!(all_of(&outcome), all_of(&played.outcome), "world {seed}: set back");
    }
    assert!(earlier > 4_000, "the clock was set back {earlier} times");
}

/// Suppresses the output of the panics that the worlds cause on purpose, because it would hide the
/// test's own messages.
pub fn silence_scripted_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let text = info.to_string();
        if !text.contains("asked to panic") {
            before(info);
        }
    }));
}
