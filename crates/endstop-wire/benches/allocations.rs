//! Counts the decoder's allocations, compared with `serde_json` alone on the same payloads.
//!
//! ```sh
//! cargo bench -p endstop-wire --bench allocations
//! ```
//!
//! The counts are exact and the same on every machine. This benchmark is separate from `decode`,
//! because a counting allocator would slow the measured code down.

mod corpus;

use endstop_wire::Eof;
use serde_json::Value;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, Stats, StatsAlloc};
use std::alloc::System;
use std::error::Error;
use std::hint::black_box;

#[global_allocator]
static COUNTING: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[expect(clippy::print_stdout, reason = "a benchmark prints what it measured")]
fn main() -> Result<(), Box<dyn Error>> {
    let formats = corpus::load(&corpus::folder())?;
    println!(
        "Allocations, and growths of one, while a stream is pushed, and in all with its end:\n"
    );
    println!(
        "| format | streams (left out) | payloads | deltas | pushed, a delta | in all, a delta | in all, a payload | `Value`, a payload |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|");
    for format in formats {
        let (mut deltas, mut payloads) = (0, 0);
        let (mut pushed, mut ended, mut values) = (0, 0, 0);
        for stream in &format.streams {
            let counted = Region::new(COUNTING);
            let (decoder, of_stream) = stream.push(usize::MAX);
            pushed += asked(counted.change());
            black_box(decoder.finish(Eof::Clean));
            ended += asked(counted.change());
            deltas += of_stream;
            payloads += stream.payloads.len();

            let counted = Region::new(COUNTING);
            for payload in &stream.payloads {
                let _ = black_box(serde_json::from_str::<Value>(black_box(payload)));
            }
            values += asked(counted.change());
        }
        let each = |asked: usize, of: usize| asked as f64 / of as f64;
        println!(
            "| {} | {} ({}) | {payloads} | {deltas} | {:.2} | {:.2} | {:.2} | {:.2} |",
            format.name,
            format.streams.len(),
            format.left_out,
            each(pushed, deltas),
            each(ended, deltas),
            each(ended, payloads),
            each(values, payloads),
        );
    }
    Ok(())
}

/// Returns the number of allocations, including reallocations.
fn asked(stats: Stats) -> usize {
    stats.allocations + stats.reallocations
}
