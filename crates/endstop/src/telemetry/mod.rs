//! Telemetry: `tracing` spans for a run, its model calls and its tool calls.
//!
//! ```
//! use endstop::telemetry::{CallFacts, RunFacts, RunSpan};
//! // An agent has its spans by itself; a loop of its own opens them so.
//! let run = RunSpan::begin(&RunFacts { id: Some("r1"), ..RunFacts::default() });
//! let call = run.call(&CallFacts { provider: "openai", model: "gpt-4o", ..CallFacts::default() });
//! call.fail("timeout");
//! drop(call); // closes the span
//! ```
//!
//! Names and attributes follow OpenTelemetry's conventions for generative AI; they are listed in
//! `docs/src/telemetry.md`. Attributes contain no API key, and a prompt, an answer or arguments only if
//! [`SpanSettings::content`] is set. Without the feature `tracing` the types are empty. With the feature but
//! without a subscriber, a run holds one null pointer and allocates nothing. The feature `opentelemetry`
//! connects spans with the traces of other programs by [`TraceParent`].

#[cfg(feature = "tracing")]
mod content;
mod facts;
#[cfg(not(feature = "tracing"))]
mod off;
mod parent;
#[cfg(feature = "tracing")]
mod spans;
#[cfg(feature = "tracing")]
mod trace;

pub use facts::{Answer, CallFacts, Operation, RunFacts, SpanSettings};
#[cfg(not(feature = "tracing"))]
pub(crate) use off::Trace;
#[cfg(not(feature = "tracing"))]
pub use off::{CallSpan, RunSpan};
pub use parent::TraceParent;
#[cfg(feature = "tracing")]
pub use spans::{CallSpan, RunSpan};
#[cfg(feature = "tracing")]
pub(crate) use trace::Trace;
