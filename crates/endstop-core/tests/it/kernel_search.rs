//! Every order of events in small worlds, up to a depth, keeps the laws of the kernel.
//!
//! `ENDSTOP_DEPTH` searches deeper than the test does by default; `cargo run --release -p
//! endstop-core --example search -- 7` prints its progress.

use crate::search::{configs, explore};

#[test]
fn every_event_order_keeps_laws() {
    crate::kernel_laws::silence_scripted_panics();
    let depth = std::env::var("ENDSTOP_DEPTH").ok().and_then(|n| n.parse().ok()).unwrap_or(4);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let search = |first: usize| {
        // Made anew in each thread, because the policy in a world belongs to one thread.
        for config in configs().into_iter().skip(first).step_by(threads) {
            let found = explore(&config, depth + config.deeper);
            assert!(found.violations.is_empty(), "{}", found.violations.join("\n"));
            assert!(
                found.states > 100 && found.endings.len() > 2,
                "{}: too small a world",
                config.name
            );
        }
    };
    std::thread::scope(|scope| {
        for first in 0..threads {
            scope.spawn(move || search(first));
        }
    });
}
