//! `bench-events [DELTAS [KIND LISTENER]]`: measures what an event of a delta costs.
//!
//! ```text
//! target/release/bench-events 1000000
//! target/release/bench-events 1000000 reasoning heard
//! ```
//!
//! The provider is in memory, so that only the driver, the kernel and the handle are measured.

use endstop::provider::{
    CallEvent, CallSpec, CallStream, ModelSession, Provider, Response, SessionSpec,
};
use endstop::{Agent, Outcome, provider::TurnDelta};
use futures_core::Stream;
use serde_json::json;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::pin::Pin;
use std::process::ExitCode;
use std::task::{Context, Poll};
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const KINDS: [&str; 3] = ["text", "reasoning", "arguments"];
const LISTENERS: [&str; 3] = ["quiet", "heard", "observed"];

/// A provider whose answer has this many deltas of a kind.
#[derive(Clone)]
struct Deltas {
    kind: String,
    left: usize,
    details: bool,
    ended: bool,
}

impl Deltas {
    fn delta(&self) -> CallEvent {
        let piece = " word";
        match (self.kind.as_str(), self.details) {
            ("text", _) => CallEvent::Delta(TurnDelta::Text(piece.to_owned())),
            ("reasoning", true) => CallEvent::Reasoning(piece.to_owned()),
            ("reasoning", false) => CallEvent::Delta(TurnDelta::Reasoning(piece.len() as u64)),
            (_, true) => CallEvent::ToolArguments { index: 0, json: piece.to_owned() },
            (_, false) => CallEvent::Delta(TurnDelta::ToolArguments(piece.len() as u64)),
        }
    }
}

impl Stream for Deltas {
    type Item = CallEvent;
    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<CallEvent>> {
        if self.left > 0 {
            self.left -= 1;
            return Poll::Ready(Some(self.delta()));
        }
        let first = !std::mem::replace(&mut self.ended, true);
        Poll::Ready(first.then(|| CallEvent::Ended(Box::new(Response::text("done")))))
    }
}

impl ModelSession for Deltas {
    fn call(&mut self, call: CallSpec<'_>) -> CallStream {
        Box::pin(Deltas { details: call.details, ..self.clone() })
    }
}

impl Provider for Deltas {
    fn name(&self) -> &'static str {
        "deltas"
    }
    fn model(&self) -> &'static str {
        "deltas"
    }
    fn open(&self, _: SessionSpec) -> Box<dyn ModelSession> {
        Box::new(self.clone())
    }
    fn is_terminal(&self, _: &Response) -> bool {
        true
    }
}

/// Runs once, and returns the number of events that were read.
async fn run(
    kind: &str,
    listener: &str,
    deltas: usize,
) -> Result<(usize, Outcome), Box<dyn std::error::Error>> {
    let provider = Deltas { kind: kind.to_owned(), left: deltas, details: false, ended: false };
    let mut builder = Agent::builder(provider);
    if listener == "observed" {
        builder = builder.on_event(|event| {
            std::hint::black_box(event);
        });
    }
    let mut handle = builder.build()?.run("go")?;
    let mut events = 0;
    while listener == "heard" && handle.next().await.is_some() {
        events += 1;
    }
    Ok((events, handle.outcome().await))
}

fn measure(kind: &str, listener: &str, deltas: usize) -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // A first run warms up the caches.
    runtime.block_on(run(kind, listener, 100))?;
    let (region, began) = (Region::new(ALLOCATOR), Instant::now());
    let (events, outcome) = runtime.block_on(run(kind, listener, deltas))?;
    let (used, seconds) = (region.change(), began.elapsed().as_secs_f64());
    if !outcome.is_success() {
        return Err(outcome.termination.to_string().into());
    }
    let each = |count: usize| count as f64 / deltas as f64;
    let line = json!({
        "kind": kind, "listener": listener, "deltas": deltas, "events": events,
        "deltas_s": deltas as f64 / seconds, "allocations_delta": each(used.allocations),
        "bytes_delta": each(used.bytes_allocated),
    });
    println!("{line}");
    Ok(())
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let deltas = words.first().and_then(|word| word.parse().ok()).unwrap_or(1_000_000);
    let chosen = |at: usize, name: &str| words.get(at).is_none_or(|word| word == name);
    for kind in KINDS.iter().filter(|kind| chosen(1, kind)) {
        for listener in LISTENERS.iter().filter(|listener| chosen(2, listener)) {
            if let Err(error) = measure(kind, listener, deltas) {
                eprintln!("bench-events: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
