//! Spans of a run, its model calls and its tools, for whichever `tracing` subscriber listens.
//!
//! ```text
//! let mut trace = Trace::begin(provider, (name, model), streaming, run_id); // under the caller's span
//! trace.call_begins(turn, attempt, output_cap);
//! trace.answered(&response, &signal);
//! trace.ended(&outcome); // nothing of it is open behind this
//! ```
//!
//! Names and attributes are those of OpenTelemetry's conventions for generative AI, as
//! `docs/src/telemetry.md` lists them. No prompt, answer, argument or result is among them, and no
//! key. Without the feature `tracing` there is nothing of this in the program; with it, and nobody
//! who listens, a run holds a pointer and asks for no memory.

#[cfg(not(feature = "tracing"))]
mod off;
#[cfg(feature = "tracing")]
mod spans;

#[cfg(not(feature = "tracing"))]
pub(crate) use off::Trace;
#[cfg(feature = "tracing")]
pub(crate) use spans::Trace;
