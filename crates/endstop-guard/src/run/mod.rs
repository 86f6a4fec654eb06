//! Guarded runs: the calls of an agent that passes through the proxy, under the kernel.
//!
//! ```text
//! proxy ─► decide/ ─► exchange (whose call?) ─► guarded.rs ─► conversation.rs ─► kernel
//!             ◄── forward, final text or refusal ◄──┘
//! response ─► observer.rs ─► guarded.rs: deltas, then the decoded response
//! ```
//!
//! A [`Gate`] has the runs. A run is `Guarded`, with its lock and its clock in `Shared`, which a [`RunHandle`] shows to
//! its owner. It has `Conversations`, each a guest of the kernel, `CallsInFlight` and an `Account` of what they spend.

mod account;
mod calls;
mod conversation;
mod conversations;
mod decide;
mod ending;
mod event;
mod gate;
mod guarded;
mod handle;
mod journal;
mod meter;
mod observer;
mod pricing;
mod response;
mod settings;
mod shared;
mod trace;

pub use crate::clients::AwsKeys;
pub(crate) use decide::{GateLine, decide_about, line_of, route_of};
pub use ending::ProgramEnd;
pub use event::{GuardEvent, OnEvent};
pub use gate::{Gate, OnStart};
pub use handle::{LiveRun, NO_CALLS_AFTER, NoCallsWarning, RunHandle, warn_without_calls};
pub use journal::{JournalSettings, Records};
pub use meter::{BUCKETS_MS, Counts, Meter, Tally};
pub use settings::{MakePolicy, OnLimit, OtherCalls, Settings};
