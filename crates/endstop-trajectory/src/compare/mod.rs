//! Compares two policies on the same runs, or two sets of runs on the same tasks: the differences in
//! success, steps, tokens, dollars and endings, with confidence intervals.
//!
//! ```
//! use endstop_trajectory::compare::Sets;
//! use endstop_trajectory::{Prices, Recorded, Role, Step, Trajectory};
//!
//! let run = |task: usize, success| Trajectory {
//!     task_id: Some(task.to_string().into()),
//!     steps: vec![Step::new(Role::Agent)],
//!     recorded: Recorded { success: Some(success), ..Recorded::default() },
//!     ..Trajectory::new(task.to_string())
//! };
//! let (mut sets, prices) = (Sets::default(), Prices::new());
//! for task in 0..60 {
//!     sets.a.add(&run(task, task % 3 > 0), &prices);
//!     sets.b.add(&run(task, task % 3 > 1), &prices);
//! }
//! let found = sets.finish("v1", "v2");
//! let success = &found.measures[0];
//! assert!(success.difference.unwrap().is_below_zero());
//! ```
//!
//! The unit is the task: runs of a task are alike, and ten of them tell less than ten tasks. Two sets
//! are compared within each task that both have, which removes the effect of easy and hard tasks. Two
//! policies are compared within each run. An interval is only given if it holds its coverage.

mod endings;
mod outcome;
mod policies;
mod sets;
mod usage;

pub use crate::statistics::{Difference, NoInterval};
pub use outcome::{Comparison, Differing, Measure, Pairing, Unit};
pub use policies::Policies;
pub use sets::{Set, Sets};
