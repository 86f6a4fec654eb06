//! Telemetry: `tracing` spans for a run, its model calls and its tool calls.
//!
//! ```text
//! let mut trace = Trace::begin(provider, (name, model), streaming, run_id); // under the caller's span
//! trace.call_begins(turn, attempt, output_cap);
//! trace.answered(&response, &signal);
//! trace.ended(&outcome); // no span of the run is open after this
//! ```
//!
//! Names and attributes follow OpenTelemetry's conventions for generative AI; they are listed in
//! `docs/src/telemetry.md`. Attributes never contain a prompt, an answer, arguments, a result or an
//! API key. Without the feature `tracing` no code of this module is compiled. With the feature but
//! without a subscriber, a run holds one null pointer and allocates nothing.

#[cfg(not(feature = "tracing"))]
mod off;
#[cfg(feature = "tracing")]
mod spans;

#[cfg(not(feature = "tracing"))]
pub(crate) use off::Trace;
#[cfg(feature = "tracing")]
pub(crate) use spans::Trace;
