//! Guarded runs: the calls of an agent that passes through the proxy, under the kernel.
//!
//! ```text
//! proxy ─► gate.rs ─► exchange (whose call?) ─► guarded.rs ─► thread.rs ─► kernel
//!             ◄── forward, final text or refusal ◄──┘
//! response ─► observer.rs ─► guarded.rs: deltas, then the decoded response
//! ```

mod answer_call;
mod answers;
mod books;
mod call;
mod gate;
mod guarded;
mod observer;
mod pricing;
mod runs;
mod settings;
mod thread;

pub use gate::{Gate, GuardEvent, Hear};
pub use guarded::Counts;
pub use runs::RunHandle;
pub use settings::{MakePolicy, OnLimit, Settings};
