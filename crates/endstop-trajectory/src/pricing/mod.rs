//! The cost of recorded model calls: the price list, and the usage of turns.
//!
//! ```
//! use endstop_trajectory::{Prices, Role, Step, Trajectory};
//! let step = Step { cost_usd: Some(0.25), ..Step::new(Role::Agent) };
//! assert_eq!(Prices::new().usd(&step, &Trajectory::new("run-1")), Some(0.25));
//! ```

mod list;
mod spent;

pub use list::{Listed, Prices};
pub use spent::Spent;
pub(crate) use spent::{model_of, provider_of};
