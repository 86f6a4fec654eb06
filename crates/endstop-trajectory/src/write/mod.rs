//! Writes recorded runs, for other tools and for people.
//!
//! ```
//! use endstop_trajectory::{Trajectory, write};
//! let mut line = Vec::new();
//! write::atif(&Trajectory::new("run-1"), &mut line)?;
//! assert!(line.starts_with(br#"{"schema_version":"ATIF-v1.8","session_id":"run-1""#));
//! # Ok::<(), std::io::Error>(())
//! ```

mod atif;

pub use atif::atif;
