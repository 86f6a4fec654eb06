//! Memory use of the decoder on hostile bodies. This is a separate test program, because its
//! allocator counts every allocation of the process.
//!
//! ```sh
//! cargo test -p endstop-wire --test memory -- --nocapture     # prints the peaks
//! ```
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use endstop_wire::dialect::DIALECTS;
use endstop_wire::{Decoded, Eof, Headers, RequestFacts, StreamDecoder, WireFormat};
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const MB: usize = 1 << 20;

/// Pushes a body that is never held as a whole: `first`, then `again` repeatedly until `total`
/// bytes were sent or the decoder refuses them. Returns the result and the peak memory.
fn peak(family: WireFormat, first: &str, again: &str, total: usize) -> (Decoded, usize) {
    let dialect = DIALECTS.iter().find(|d| d.family == family).unwrap();
    let piece = again.repeat((64 << 10) / again.len());
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let mut s = StreamDecoder::new(dialect, 200, Headers::new(), RequestFacts::default());
    let mut pushed = s.push(first.as_bytes(), &mut |_| ());
    let mut came = 0;
    while pushed.is_ok() && came < total {
        pushed = s.push(piece.as_bytes(), &mut |_| ());
        came += piece.len();
    }
    let decoded = s.finish(Eof::Clean);
    (decoded, MEMORY.peak_usage() - before)
}

#[test]
fn endless_body_stays_within_memory_bounds() {
    let line = format!("data: {}\n", "x".repeat(1000));
    // The repeated text, the number of megabytes to send, and the maximum memory.
    let bodies: [(&str, &str, &str, usize, usize); 13] = [
        ("a line", "data: ", "x", 100, 48),
        ("a line of JSON", "data: {\"a\":\"", "x", 100, 48),
        ("a line of brackets", "data: ", "[", 100, 48),
        ("a name", "event: ", "x", 100, 48),
        ("JSON", "{\"a\":\"", "x", 100, 192),
        ("an array", "[\"", "x", 100, 192),
        ("a page", "<html>", "x", 100, 2),
        ("binary", "\u{1f}", "x", 100, 2),
        ("an event of many lines", "", &line, 40, 96),
        // These take long to parse, and excessive memory would show early.
        ("blanks", "", " \r\n", 2, 1),
        ("bare lines", "x", "x\n{\n", 2, 1),
        ("comments", "", ": ping\n\n", 2, 1),
        ("empty events", "", "data: {}\n\n", 2, 1),
    ];
    for family in WireFormat::ALL {
        for (what, first, again, total, most) in bodies {
            let (d, held) = peak(*family, first, again, total * MB);
            println!("{family}: {what}: {:.1} MB", held as f64 / MB as f64);
            assert!(d.error.is_some(), "{family}: {what}: {:?}", d.signal);
            assert!(held <= most * MB, "{family}: {what} held {} MB", held / MB);
        }
    }
    // Lists whose items need hundreds of times the memory of their text.
    for family in WireFormat::ALL {
        for (start, again, end) in [
            ("{\"choices\":[{\"message\":{\"content\":[", "{},", "{}]}}]}"),
            ("{\"choices\":[{\"message\":{\"tool_calls\":[", "{},", "{}]}}]}"),
            ("{\"choices\":[", "{},", "{\"index\":1}]}"),
            ("{\"content\":[", "{},", "{}]}"),
            ("{\"candidates\":[{\"content\":{\"parts\":[", "{},", "{}]}}]}"),
            ("{\"candidates\":[", "{\"index\":1},", "{}]}"),
            ("{\"output\":[", "{},", "{}]}"),
        ] {
            let dialect = DIALECTS.iter().find(|d| d.family == *family).unwrap();
            let body = [start, &again.repeat(MB / 4), end].concat();
            MEMORY.reset_peak_usage();
            let before = MEMORY.current_usage();
            let facts = RequestFacts::default();
            let d =
                endstop_wire::decode_body(dialect, 200, &Headers::new(), body.as_bytes(), &facts);
            let held = MEMORY.peak_usage() - before;
            println!("{family}: {start}: {:.1} MB", held as f64 / MB as f64);
            let reason = d.signal.reason.as_str();
            assert!(!matches!(reason, "natural_completion" | "stop_sequence"), "{family}: {start}");
            assert!(held <= 8 * MB, "{family}: {start} held {} MB", held / MB);
        }
    }
}
