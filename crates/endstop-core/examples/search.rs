//! Searches every order of events in small worlds, up to a depth, and prints the results.
//!
//! `cargo run --release -p endstop-core --example search -- DEPTH [WORLD…]`
//!
//! A world in which little can happen at a time is searched a few events deeper; the output shows
//! the depth. Exits with an error if a law is violated, and prints the events that led to it.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it prints its counts")]

#[path = "../tests/it/fallback_laws.rs"]
#[allow(dead_code, unreachable_pub, clippy::pedantic, reason = "shared with the tests")]
mod fallback_laws;
#[path = "../tests/it/laws.rs"]
#[allow(dead_code, unreachable_pub, clippy::pedantic, reason = "shared with the tests")]
mod laws;
#[path = "../tests/it/search/mod.rs"]
#[allow(dead_code, unreachable_pub, clippy::pedantic, reason = "shared with the tests")]
mod search;

use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let depth = args.next().and_then(|n| n.parse().ok()).unwrap_or(7);
    let only: Vec<String> = args.collect();
    std::panic::set_hook(Box::new(|info| {
        let text = info.to_string();
        if !text.contains("asked to panic") {
            eprintln!("{text}");
        }
    }));
    let mut broken = 0;
    for config in search::configs() {
        if !only.is_empty() && !only.iter().any(|name| name == config.name) {
            continue;
        }
        let began = Instant::now();
        let found = search::explore(&config, depth + config.deeper);
        println!(
            "{}: depth {}, {} states, {} transitions, {} brought to an end, {} violations ({:.1?})",
            config.name,
            found.depth,
            found.states,
            found.transitions,
            found.brought_to_an_end,
            found.broken,
            began.elapsed()
        );
        for (termination, count) in &found.endings {
            println!("  {count:>9}  {termination}");
        }
        for violation in &found.violations {
            eprintln!("{violation}");
        }
        broken += found.broken;
    }
    if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
