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

mod branch_rows;
mod day;
mod driver;
mod failure;
mod file;
mod hardening;
mod header;
mod journal;
mod kept;
mod log;
mod parked;
mod parked_rows;
mod prune;
mod read;
mod run_rows;
mod schema;
mod space;
mod spending;
mod tables;
mod texts;
mod together;
mod write;

pub use branch_rows::BranchSummary;
pub use day::DayBudget;
pub use journal::SqliteJournal;
pub use prune::{PruneSpec, Pruned};
pub use read::RunSummary;
pub use spending::{DayBooks, RunSpending};
