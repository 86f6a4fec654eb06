//! Runs whose loop belongs to another program: a proxy in front of an agent, or a framework that
//! reports its steps.
//!
//! A [`Guest`] owns the [`Run`](crate::Run), feeds it events, and answers each step with "continue" or "stop, and
//! why". It is pure: time comes in with each call. Its outcome, journal and replay are those of any
//! other run. [`GuestMode`] lists what a guest may be able to do.
//!
//! ```
//! use endstop_core::guest::{Admission, Guest, GuestStart, GuestReply};
//! use endstop_core::{Confidence, GuestCall, Limits, Message, ModelTurn, Part, RunSpec, SignalReason,
//!     Termination, TerminationSignal, ToolCall, ToolReport, ToolStatus};
//! use std::time::Duration;
//!
//! # fn client_asks(turn: u32) -> GuestCall {
//! #     let input = if turn == 1 { vec![Message::user("Count the files.")] } else { vec![] };
//! #     GuestCall { input, prompt_bytes: 400 * u64::from(turn), ..GuestCall::default() }
//! # }
//! # fn response(turn: u32) -> ModelTurn {
//! #     let arguments = format!(r#"{{"page":{turn}}}"#);
//! #     let call = ToolCall { id: format!("c{turn}"), name: "list".into(), arguments };
//! #     let signal = TerminationSignal::new(SignalReason::ToolUse, Confidence::High);
//! #     ModelTurn::new(vec![Part::ToolCall(call)], signal)
//! # }
//! let limits = Limits { max_turns: Some(3), ..Limits::default() };
//! let mut guest = Guest::new(RunSpec { limits, ..RunSpec::default() }, GuestStart::default());
//! let mut now = Duration::ZERO;
//! let mut turns = 0;
//! let outcome = loop {
//!     now += Duration::from_millis(100);
//!     // The client is about to call the model.
//!     let call = match guest.ask(now, client_asks(turns + 1)) {
//!         Admission::Go { call, .. } => call,
//!         Admission::Stop(outcome) => break outcome,
//!         Admission::Reserve { .. } => panic!("this run has no shared budget"),
//!     };
//!     turns += 1;
//!     // The response passed through, and the client runs its tools.
//!     if let GuestReply::Tools(calls) = guest.turn(now, call, response(turns)) {
//!         for call in calls {
//!             let page = format!("page {turns}");
//!             guest.result(now, &call.id, ToolReport::new(ToolStatus::Ok, page));
//!         }
//!     }
//! };
//! assert_eq!(turns, 3);
//! assert_eq!(outcome.termination, Termination::ErrorMaxTurns);
//! assert_eq!(outcome.decided_by.evidence, "3 of 3 turns");
//! // The loop may end later, or not at all: the run has one ending.
//! assert_eq!(guest.close(now, true, ""), outcome);
//! ```

mod driver;
mod recording;

pub use crate::kernel::{GuestCall, GuestMode, Spending};
pub use driver::Guest;
pub use driver::{Admission, GuestReply, GuestStart};
pub use recording::Recorded;
