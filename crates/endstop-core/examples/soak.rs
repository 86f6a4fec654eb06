//! Plays many random worlds against the kernel and prints what they covered.
//!
//! `cargo run --release -p endstop-core --example soak -- 1000000`
//!
//! Exits with an error if a law is violated, or if the worlds do not reach the required coverage:
//! each termination 1,000 times in a million, each pair of phase and event, a median length of 12.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it prints its counts")]

#[path = "../tests/it/changes.rs"]
#[allow(dead_code, unreachable_pub, clippy::pedantic, reason = "shared with the tests")]
mod changes;
#[path = "../tests/it/fallback_laws.rs"]
#[allow(dead_code, unreachable_pub, clippy::pedantic, reason = "shared with the tests")]
mod fallback_laws;
#[path = "../tests/it/laws.rs"]
#[allow(dead_code, unreachable_pub, clippy::pedantic, reason = "shared with the tests")]
mod laws;
#[path = "../tests/it/world/mod.rs"]
#[allow(dead_code, unreachable_pub, clippy::pedantic, reason = "shared with the tests")]
mod world;

use endstop_core::Termination;
use std::collections::BTreeMap;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cases: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    std::panic::set_hook(Box::new(|info| {
        let text = info.to_string();
        if !text.contains("asked to panic") {
            eprintln!("{text}");
        }
    }));
    let mut endings: BTreeMap<&str, u64> = BTreeMap::new();
    let mut pairs: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let mut lengths: BTreeMap<usize, u64> = BTreeMap::new();
    let (mut replayed, mut cut) = (0u64, 0u64);
    for seed in 0..cases {
        let played = match world::play(seed) {
            Ok(played) => played,
            Err(law) => {
                eprintln!("world {seed}: {law}");
                return ExitCode::FAILURE;
            }
        };
        *endings.entry(played.outcome.termination.as_str()).or_default() += 1;
        *lengths.entry(played.events.len()).or_default() += 1;
        for pair in &played.pairs {
            *pairs.entry(*pair).or_default() += 1;
        }
        if seed % 10 == 0 {
            let all = world::all_of(&played.outcome);
            replayed += 1;
            let same = world::replay(seed, &played.events).is_ok_and(|o| world::all_of(&o) == all);
            let mut other_pieces = true;
            if !world::cut_in_mid_stream(&played.outcome) {
                cut += 1;
                let events = world::cut_elsewhere(&played.events, &mut world::Rng(seed));
                other_pieces = world::replay(seed, &events).is_ok_and(|o| world::all_of(&o) == all);
            }
            if !same || !other_pieces {
                eprintln!(
                    "world {seed}: another outcome (same events: {same}, other pieces: {other_pieces})"
                );
                return ExitCode::FAILURE;
            }
        }
    }
    println!("{cases} worlds, one ending each; {replayed} replayed, {cut} cut elsewhere");
    let mut fails = 0;
    for termination in Termination::all() {
        let count = endings.get(termination.as_str()).copied().unwrap_or(0);
        let needed = cases / 1000;
        fails += u32::from(count < needed);
        println!("  {count:>8}  {termination}{}", if count < needed { "   too few" } else { "" });
    }
    let mut seen = 0;
    for phase in world::PHASES.iter().chain(["stopping"].iter()) {
        for kind in world::KINDS {
            if pairs.contains_key(&(*phase, kind)) {
                seen += 1;
            } else {
                fails += 1;
                println!("  never: {phase} × {kind}");
            }
        }
    }
    println!("{seen} pairs of phase and event");
    let mut left = cases / 2;
    let median = lengths
        .iter()
        .find(|(_, count)| {
            let found = left < **count;
            left = left.saturating_sub(**count);
            found
        })
        .map_or(0, |(length, _)| *length);
    println!("median length {median}, longest {}", lengths.keys().last().unwrap_or(&0));
    // Worlds that all end early would prove little; each further limit shortens them.
    fails += u32::from(median < 12);
    if fails == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
