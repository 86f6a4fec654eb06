//! Runs that were recorded before later changes of the kernel replay to the same outcome. They test that
//! it is deterministic: a change that is not meant to must not change what it decides.
//!
//! `tests/recorded/VERSION.jsonl` has a run per line: its `spec`, its `events` and its `outcome`, made
//! from the random worlds of `world/`. If a rule changes on purpose, remove the runs that it
//! concerns, state the rule in `docs/src/departures.md`, and add new runs:
//!
//! ```sh
//! cargo test -p endstop-core --test it record_runs -- --ignored --nocapture > NEW.jsonl
//! ```

use crate::world::{Rng, play, spec};
use endstop_core::{Event, Replay, RunSpec};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[derive(Deserialize)]
struct Recorded {
    seed: u64,
    spec: RunSpec,
    events: Vec<Event>,
    outcome: Value,
}

#[test]
fn recorded_runs_replay_to_same_outcome() {
    let mut endings = BTreeSet::new();
    for line in include_str!("../recorded/0.1.0.jsonl").lines() {
        let run: Recorded = serde_json::from_str(line).unwrap();
        let mut replay = Replay::new(run.spec);
        for event in run.events {
            replay.feed(event);
        }
        let outcome = replay.into_outcome().unwrap_or_else(|| panic!("run {} ends", run.seed));
        endings.insert(outcome.termination.as_str());
        assert_eq!(serde_json::to_value(&outcome).unwrap(), run.outcome, "run {}", run.seed);
    }
    assert!(endings.len() >= 18, "{endings:?}");
}

#[test]
#[ignore = "prints runs for tests/recorded"]
fn record_runs() {
    for seed in 0..200 {
        let mut spec = spec(&mut Rng(seed)).0;
        // A policy is code, and is not recorded.
        if spec.policy.take().is_some() {
            continue;
        }
        let played = play(seed).unwrap();
        let outcome = serde_json::to_value(&played.outcome).unwrap();
        let run = json!({"seed": seed, "spec": spec, "events": played.events, "outcome": outcome});
        println!("{run}");
    }
}
