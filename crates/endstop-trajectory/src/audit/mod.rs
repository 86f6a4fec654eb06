//! Audit: what became of the sessions that agents have left behind, one by one and all together.
//!
//! ```
//! use endstop_trajectory::audit::{Audit, How, Session};
//! use endstop_trajectory::{Call, CallResult, Prices, Role, Step, Trajectory};
//!
//! let again = Step {
//!     calls: vec![Call { name: "Bash".into(), arguments: r#"{"command":"ls"}"#.into(), ..Call::default() }],
//!     results: vec![CallResult { content: "a.txt".into(), ..CallResult::default() }],
//!     ..Step::new(Role::Agent)
//! };
//! let run = Trajectory { steps: vec![again; 8], ..Trajectory::new("session-1") };
//! let session = Session::of(&run, &Prices::new());
//! assert_eq!(session.ended.how, How::NoAnswer);
//! assert_eq!((session.loops[0].turn, session.loops[0].behind.turns), (3, 5));
//!
//! let mut audit = Audit::new(10);
//! audit.add(session);
//! assert_eq!((audit.sessions, audit.looped), (1, 1));
//! ```
//!
//! A session of a person with an agent is one request after another; a *request* is what one run is
//! elsewhere: from what somebody asks to the answer. Loops and limits are looked for in each request by
//! itself. An [`Audit`] is as large after a million sessions as after ten: totals, and the worst.

mod claim;
mod command;
mod ending;
mod limits;
mod loops;
mod quote;
mod request;
mod session;
mod total;

pub use claim::Sign;
pub use ending::{Ended, How};
pub use limits::Stop;
pub use loops::Loop;
pub use session::Session;
pub use total::{Audit, Group};

/// A time, or a day, in Unix milliseconds; one without an offset counts as UTC.
pub fn time_ms(text: &str) -> Option<i64> {
    crate::time::unix_ms(text)
}
