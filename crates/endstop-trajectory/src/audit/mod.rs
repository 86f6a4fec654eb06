//! Audits the sessions that agents recorded, individually and in total.
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
//! A session of a person with an agent is a sequence of *requests*, each from a prompt to its
//! answer. A request corresponds to a run of other formats. Loops and limits are evaluated for each
//! request separately. An [`Audit`] has a constant size, however many sessions are added: it stores
//! totals and the worst sessions.

mod batch;
mod claim;
mod command;
mod ending;
mod guard_stop;
mod limits;
mod loops;
mod noticed;
mod provider_error;
mod quote;
mod request;
mod session;
mod total;

pub use batch::{Merged, Plan, combine, merge, no_sessions, tally, tally_skipped};
pub use claim::Sign;
pub use ending::{Ended, How};
pub use limits::Stop;
pub use loops::Loop;
pub use noticed::Noticed;
pub use session::Session;
pub use total::{AgentGroup, Audit, Group};

/// Parses a time or a date to Unix milliseconds. A time without an offset is UTC.
pub fn time_ms(text: &str) -> Option<i64> {
    crate::time::unix_ms(text)
}
