//! The SQLite journal: all runs in one database file, which any SQLite tool can read.
//!
//! ```no_run
//! use endstop::journal::SqliteJournal;
//! let journal = SqliteJournal::open("journal.db")?;
//! for run in journal.runs(10)? {
//!     println!("{} {}", run.id, run.termination.as_deref().unwrap_or("not ended"));
//! }
//! # Ok::<(), endstop::journal::JournalError>(())
//! ```
//!
//! The file is in WAL mode, so everything that was written before a process is killed survives.
//! Several processes may store their runs in one file.

mod ceilings;
mod day;
mod driver;
mod file;
mod journal;
mod kept;
mod period;
mod runs;
mod spending;
mod write;

pub use ceilings::SpendCeilings;
pub use day::SpendBudget;
pub use journal::SqliteJournal;
pub use period::Period;
pub use runs::branch_rows::BranchSummary;
pub use runs::prune::{PruneSpec, Pruned};
pub use runs::read::RunSummary;
pub use spending::{RunSpending, SpendBooks};
