//! The words that other protocols have for the end of a run, in both directions.
//!
//! [`Protocol::word`] writes an ending in a protocol's vocabulary, [`Protocol::read`] reads a
//! third-party word. Three rules hold for every protocol:
//!
//! - Only `stop` and `submitted` are written as a success.
//! - A word that this version does not know is read as a failure.
//! - A word that means "waits for a person" is read as [`PeerEnding::Parked`], which is not an
//!   ending.
//!
//! Most protocols cannot say that a run reached a budget or made no progress. A bridge must
//! therefore send the termination's own name, category, cost and evidence in addition to the word,
//! in the protocol's field for extensions (`_meta`, `metadata`, `extra`, `error.data`).
//!
//! ```
//! use endstop_core::Termination;
//! use endstop_core::protocol::{PeerEnding, Protocol};
//! assert_eq!(Termination::ErrorMaxBudgetUsd.as_acp().status, "max_turn_requests");
//! assert_eq!(Termination::ErrorMaxBudgetUsd.as_a2a().status, "TASK_STATE_FAILED");
//! // A stop reason that a newer peer invented is a failure.
//! let unknown = Protocol::AcpV1.read("vanished");
//! assert_eq!(unknown, PeerEnding::Unknown);
//! assert_eq!(unknown.termination(), Some(Termination::ErrorDuringExecution));
//! ```

mod reading;
mod words;
mod writing;

pub use words::{PeerEnding, Protocol, Word};
