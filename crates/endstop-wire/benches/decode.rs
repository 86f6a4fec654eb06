//! Measures the decoding speed of recorded streams, compared with `serde_json` alone on the same
//! payloads.
//!
//! ```sh
//! cargo bench -p endstop-wire --bench decode
//! cargo bench -p endstop-wire --bench decode -- --rounds 101 --recordings DIR
//! ```
//!
//! The benchmark uses one thread and, on Unix, its processor time, so that other work on the
//! machine does not count. Each round runs every contestant once, in an order that rotates, so that
//! a busy machine affects all of them; a ratio is taken within its round. The decoder reads the
//! original bytes and produces deltas, a turn and its signal. `serde_json` is given the payloads
//! without framing and parses each into a `Value` (as a program without types does; the workspace
//! preserves key order, which costs time) or into `IgnoredAny` (checked and dropped, the lower
//! bound). MB/s counts the original bytes for all contestants.

mod corpus;

use corpus::{Format, Stream};
use endstop_wire::Eof;
use endstop_wire::stream::{eventstream, sse};
use serde::de::IgnoredAny;
use serde_json::Value;
use std::error::Error;
use std::hint::black_box;

/// Minimum time that a contestant runs in a round, in seconds.
const SAMPLE: f64 = 0.004;
/// Size of a chunk, similar to a read from a socket.
const PIECE: usize = 1400;

type Work = fn(&Stream);

/// The contestants. Ratios are relative to the first one.
const CONTESTANTS: [(&str, Work); 5] = [
    ("`serde_json` into `Value`", |stream| {
        for payload in &stream.payloads {
            let _ = black_box(serde_json::from_str::<Value>(black_box(payload)));
        }
    }),
    ("`serde_json` into `IgnoredAny`", |stream| {
        for payload in &stream.payloads {
            let _ = black_box(serde_json::from_str::<IgnoredAny>(black_box(payload)));
        }
    }),
    ("the framing alone", |stream| {
        frame(stream);
    }),
    ("decoder, whole bodies", |stream| {
        decode(stream, usize::MAX);
    }),
    ("decoder, 1,400 bytes a time", |stream| {
        decode(stream, PIECE);
    }),
];

#[expect(clippy::print_stdout, reason = "a benchmark prints what it measured")]
fn main() -> Result<(), Box<dyn Error>> {
    let rounds = rounds()?;
    let formats = corpus::load(&corpus::folder())?;
    for format in formats {
        let bytes: usize = format.streams.iter().map(|s| s.body.len()).sum();
        let payloads = format.streams.iter().flat_map(|s| &s.payloads);
        let payload_bytes: usize = payloads.map(String::len).sum();
        let times = race(&format, rounds);
        println!(
            "\n### {}: {} streams, {bytes} bytes ({payload_bytes} of them payload), {} left out, {rounds} rounds\n",
            format.name,
            format.streams.len(),
            format.left_out,
        );
        println!("| what | MB/s, median | MB/s, best | time to `Value`'s, median | of the least |");
        println!("|---|---:|---:|---:|---:|");
        let first = times.first().cloned().unwrap_or_default();
        for ((name, _), time) in CONTESTANTS.iter().zip(&times) {
            let mut ratios: Vec<f64> = time.iter().zip(&first).map(|(a, b)| a / b).collect();
            let rate = |seconds: f64| bytes as f64 / seconds / 1e6;
            println!(
                "| {name} | {:.0} | {:.0} | {:.2} | {:.2} |",
                rate(median(&mut time.clone())),
                rate(least(time)),
                median(&mut ratios),
                least(time) / least(&first),
            );
        }
    }
    Ok(())
}

fn decode(stream: &Stream, piece: usize) {
    let (decoder, deltas) = stream.push(piece);
    black_box((decoder.finish(Eof::Clean), deltas));
}

/// Splits server-sent events or binary frames.
fn frame(stream: &Stream) {
    if stream.body.starts_with(&[0]) {
        let mut frames = eventstream::EventStreamDecoder::new();
        let _ = black_box(frames.push(&stream.body, &mut |message| {
            black_box(&message);
        }));
        return;
    }
    let mut sse = sse::SseDecoder::new();
    let mut see = |item: sse::Item<'_>| {
        black_box(&item);
    };
    let _ = black_box(sse.push(&stream.body, &mut see).and_then(|()| sse.finish(&mut see)));
}

fn rounds() -> Result<usize, Box<dyn Error>> {
    let mut words = std::env::args().skip_while(|word| word != "--rounds").skip(1);
    words
        .next()
        .map_or(Ok(41), |word| word.parse().map_err(|_| "--rounds: expected a number".into()))
}

/// Returns the seconds for one pass over all streams, for each contestant in each round.
fn race(format: &Format, rounds: usize) -> Vec<Vec<f64>> {
    let passes: Vec<u32> = CONTESTANTS.iter().map(|(_, work)| passes(format, *work)).collect();
    let mut times = vec![Vec::with_capacity(rounds); CONTESTANTS.len()];
    for round in 0..rounds {
        for turn in 0..CONTESTANTS.len() {
            let at = (round + turn) % CONTESTANTS.len();
            let began = now();
            for _ in 0..passes[at] {
                format.streams.iter().for_each(CONTESTANTS[at].1);
            }
            times[at].push((now() - began) / f64::from(passes[at]));
        }
    }
    times
}

/// Returns the number of passes that fill a sample. The search also warms up the caches.
fn passes(format: &Format, work: Work) -> u32 {
    let began = now();
    let mut passes = 0;
    while now() - began < SAMPLE {
        format.streams.iter().for_each(work);
        passes += 1;
    }
    passes
}

/// Returns the seconds of processor time that this thread has used.
#[cfg(unix)]
fn now() -> f64 {
    use rustix::time::{ClockId, clock_gettime};
    let at = clock_gettime(ClockId::ThreadCPUTime);
    at.tv_sec as f64 + at.tv_nsec as f64 / 1e9
}

/// Returns the seconds since the first call.
#[cfg(not(unix))]
fn now() -> f64 {
    static BEGAN: std::sync::LazyLock<std::time::Instant> =
        std::sync::LazyLock::new(std::time::Instant::now);
    BEGAN.elapsed().as_secs_f64()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NAN, f64::min)
}
