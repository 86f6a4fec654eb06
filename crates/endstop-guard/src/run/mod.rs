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
mod calls;
mod deciding;
mod ending;
mod event;
mod gate;
mod guarded;
mod journal;
mod key_sets;
mod meter;
mod metered;
mod observer;
mod other;
mod passing;
mod pricing;
mod quiet;
#[cfg_attr(not(feature = "bedrock"), path = "unsigned.rs")]
mod resign;
mod runs;
mod settings;
mod stored;
mod thread;
mod threads;

pub use crate::clients::AwsKeys;
pub use ending::ProgramEnd;
pub use event::{GuardEvent, Hear};
pub use gate::{Gate, OnStart};
pub use guarded::Counts;
pub use journal::{JournalSettings, Records};
pub use meter::{BUCKETS_MS, Meter, Tally};
pub use quiet::{QUIET, QuietWarning, warn_if_quiet};
pub use runs::{LiveRun, RunHandle};
pub use settings::{MakePolicy, OnLimit, OtherCalls, Settings};
