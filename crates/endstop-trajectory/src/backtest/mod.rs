//! Backtests limits and policies on recorded runs: which runs they would have ended sooner, what
//! that would have saved, and which good runs they would have stopped.
//!
//! ```
//! use endstop_trajectory::backtest::{Backtest, Candidate};
//! use endstop_trajectory::{Call, Recorded, Role, Step, Trajectory};
//!
//! let again = Step {
//!     calls: vec![Call { name: "ls".into(), arguments: "{}".into(), ..Call::default() }],
//!     ..Step::new(Role::Agent)
//! };
//! let run = Trajectory {
//!     steps: vec![again; 8],
//!     recorded: Recorded { success: Some(false), ..Recorded::default() },
//!     ..Trajectory::new("run-1")
//! };
//! let mut test = Backtest::new(&Candidate::reference()?)?;
//! test.run("made", &run);
//! let figures = test.finish();
//! let all = figures.dataset("made").unwrap();
//! let third = all.candidate("repeat_call(3)").unwrap();
//! assert_eq!((third.counts.fail_stopped, third.counts.steps_saved), (1, 5));
//! # Ok::<(), endstop_core::PolicyError>(())
//! ```
//!
//! A step is a turn together with the results of its tools. A candidate that fires after the last
//! step saves nothing and does not count as a stop. Detectors are evaluated by the same rule set that
//! watches live runs; limits and other policies go through the kernel ([`replay`](crate::replay)),
//! with a fresh kernel for each run.

mod batch;
mod calibrate;
mod candidate;
pub(crate) mod count;
mod dataset;
mod engine;
mod figures;
mod group;
mod judge;
mod packed;
mod reading;
mod settings;

pub use batch::{Batch, Merged, Plan, combine, merge, tally, tally_content, tally_skipped};
pub use calibrate::calibration::{CalibratedGroup, Calibration};
pub use calibrate::family::Family;
pub use calibrate::{Calibrated, HeldBack, tasks_needed};
pub use candidate::{Candidate, Trial};
pub use count::counts::{Counts, Share, share};
pub use count::tally::Skipped;
pub use dataset::dataset;
pub use engine::{Done, Each, Engine, Progress};
pub use figures::dataset::{CandidateFigures, Cap, DatasetFigures, ParetoPoint, Verdict};
pub use figures::group::{GroupEffect, GroupFigures, HOPELESS};
pub use figures::paired::Paired;
pub use figures::{Figures, Unjudged};
pub use group::{Group, GroupBy};
pub use judge::{Backtest, Judged};
pub(crate) use judge::{full_from, show};
pub use packed::MergeError;
pub(crate) use packed::{seal, unseal};
pub(crate) use reading::Ids;
pub use reading::{Examples, Reading};
pub(crate) use reading::{Recognised, records};
