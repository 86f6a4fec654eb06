//! `bench-guard [ROUNDS]`: measures what guard adds to a model call, without and with a journal, next to
//! its proxy alone, a byte pump, which is the floor of any proxy, and a direct call.
//!
//! ```text
//! target/release/bench-guard 5
//! ```
//!
//! The upstream is a process of its own, and each proxy is two: one for single calls, one for many at once. The
//! memory is that of the larger one. The calls alternate between the proxies, the streams after each half second, so
//! that the load of the machine meets all of them. Linux only.

mod calls;
mod servers;
mod usage;

use calls::{Kind, Sample, one_by_one, together};
use servers::{Server, serve};
use std::error::Error;
use std::fmt::Write;
use std::process::ExitCode;
use usage::Usage;

/// Measured arrangements: the name, and the program between client and upstream.
const TARGETS: [(&str, Option<&str>); 7] = [
    ("direct", None),
    (PUMP, Some("pump")),
    ("proxy", Some("proxy")),
    ("proxy, reads bodies", Some("reading")),
    ("proxy, 2 threads", Some("threads")),
    ("guard", Some("gate")),
    ("guard, journal", Some("recorded")),
];
const PUMP: &str = "byte pump";
const STREAMS: usize = 50;
/// The times that they are started for each round.
const TIMES: usize = 3;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["serve", what, target] => serve(what, target).map(|()| String::new()),
        [] => measured(5),
        [rounds] => rounds.parse().map_err(Into::into).and_then(measured),
        _ => Err("expected a number of rounds, for example 5".into()),
    };
    match done {
        Ok(text) => {
            // A server prints nothing, because its output is closed by now.
            if !text.is_empty() {
                println!("{text}");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bench-guard: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The process that is called, and its port. Without a process the upstream is called.
struct Serving {
    server: Option<Server>,
    port: u16,
}

impl Serving {
    fn start(program: Option<&str>, upstream: u16) -> Result<Serving, Box<dyn Error>> {
        let target = format!("127.0.0.1:{upstream}");
        let server = program.map(|program| Server::start(program, &target)).transpose()?;
        let port = server.as_ref().map_or(upstream, |server| server.port);
        Ok(Serving { server, port })
    }

    /// Returns the processor time so far, with the work that its calls have left to it.
    async fn processor_ms(&self) -> Result<Option<f64>, Box<dyn Error>> {
        Ok(match &self.server {
            Some(server) => Some(server.at_rest().await?),
            None => None,
        })
    }

    fn memory_mb(&self) -> (f64, f64) {
        self.server.as_ref().map_or((0.0, 0.0), Server::memory_mb)
    }
}

/// Everything that was measured of one target.
struct Measured {
    name: &'static str,
    calls: Serving,
    /// A process of its own: a database sometimes works on all that it was given before, which would count for the
    /// streams.
    together: Serving,
    whole: Vec<Sample>,
    first: Vec<Sample>,
    streams: Vec<Sample>,
    whole_usage: Usage,
    streams_usage: Usage,
}

fn measured(rounds: usize) -> Result<String, Box<dyn Error>> {
    let upstream = Server::start("upstream", "-")?;
    let mut all = Vec::new();
    for (name, program) in TARGETS {
        all.push(Measured {
            name,
            calls: Serving::start(program, upstream.port)?,
            together: Serving::start(program, upstream.port)?,
            whole: Vec::new(),
            first: Vec::new(),
            streams: Vec::new(),
            whole_usage: Usage::default(),
            streams_usage: Usage::default(),
        });
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for _ in 0..rounds {
        for one in &mut all {
            runtime.block_on(one.call_one_by_one())?;
        }
    }
    // The first of them start the runs.
    for nth in 0..=rounds * TIMES {
        for one in &mut all {
            runtime.block_on(one.stream_together(nth > 0))?;
        }
    }
    Ok(table(&mut all))
}

impl Measured {
    /// Makes single calls: those of one round.
    async fn call_one_by_one(&mut self) -> Result<(), Box<dyn Error>> {
        let port = self.calls.port;
        // Not counted, because the first calls of a round fill caches and connection pools.
        one_by_one(port, Kind::Whole, 50).await?;
        let before = self.calls.processor_ms().await?;
        let samples = one_by_one(port, Kind::Whole, 1000).await?;
        let after = self.calls.processor_ms().await?;
        self.whole_usage.add(before, after, samples.len());
        self.whole.extend(samples);
        self.first.extend(one_by_one(port, Kind::Stream, 400).await?);
        Ok(())
    }

    /// Makes many streams at once.
    async fn stream_together(&mut self, counts: bool) -> Result<(), Box<dyn Error>> {
        let before = self.together.processor_ms().await?;
        let samples = together(self.together.port, STREAMS).await?;
        let after = self.together.processor_ms().await?;
        if counts {
            self.streams_usage.add(before, after, samples.len());
            self.streams.extend(samples);
        }
        Ok(())
    }
}

fn table(all: &mut [Measured]) -> String {
    let mut text = format!(
        "milliseconds; 40 kB requests, keep-alive; {STREAMS} streams of 20 chunks in 0.5 s at once\n\n\
         {:22}{:>17}{:>17}{:>20}{:>22}{:>14}\n{:22}{:>17}{:>17}{:>20}{:>22}{:>14}\n",
        "",
        "whole call",
        "first byte",
        "50 streams: first,",
        "CPU a call: whole,",
        "RSS MB, peak",
        "",
        "p50 / p99",
        "p50 / p99",
        "total p50",
        "stream (of the pump)",
        "",
    );
    let pump = all.iter().find(|one| one.name == PUMP).map(|one| one.streams_usage.a_call());
    for one in all {
        let total = |samples: &[Sample]| samples.iter().map(|s| s.total).collect::<Vec<_>>();
        let first = |samples: &[Sample]| samples.iter().map(|s| s.first).collect::<Vec<_>>();
        let pair = |mut values: Vec<f64>| {
            let (p50, p99) = (quantile(&mut values, 0.5), quantile(&mut values, 0.99));
            format!("{p50:.3} / {p99:.3}")
        };
        let (calls, together) = (one.calls.memory_mb(), one.together.memory_mb());
        let (rss, peak) = (calls.0.max(together.0), calls.1.max(together.1));
        let _ = writeln!(
            text,
            "{:22}{:>17}{:>17}{:>20}{:>22}{:>14}",
            one.name,
            pair(total(&one.whole)),
            pair(first(&one.first)),
            format!(
                "{:.2}, {:.1}",
                quantile(&mut first(&one.streams), 0.5),
                quantile(&mut total(&one.streams), 0.5)
            ),
            format!(
                "{:.3}, {:.3} ({:.2})",
                one.whole_usage.a_call(),
                one.streams_usage.a_call(),
                one.streams_usage.a_call() / pump.unwrap_or(f64::NAN)
            ),
            format!("{rss:.1}, {peak:.1}"),
        );
    }
    text
}

fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = (values.len() as f64 * share) as usize;
    values.get(at.min(values.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}
