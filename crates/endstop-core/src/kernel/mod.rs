//! The kernel: a pure state machine that turns events into effects and ends every run exactly once.
//!
//! Read this file first. The kernel does no I/O and reads no clock. A *driver* (the agent loop, a
//! replay, a test) owns a [`Run`], performs the [`Effect`]s that the run requests, and reports each
//! result as an [`Event`]:
//!
//! ```text
//!           Event (time, kind)                      Effect (id)
//! driver ─────────────────────► Run::handle ─────────────────────► driver
//!                                    │
//!                                    └─► Step::Ended(Outcome), once
//! ```
//!
//! A run moves through these phases; steps with a question mark depend on the configuration. Every
//! phase waits for one kind of event, and any phase can end the run:
//!
//! ```text
//! Start ─► boundary.rs: limits ─► compaction? ─► hooks? ─► reservation? ─► Calling
//!             ▲                                                              │ TurnEnded
//!             │                                        no calls: the answer ◄┼► calls
//!             │                        schema ─► stop hook ─► verify ─► end  │
//!             └──────────── results appended to the conversation ◄── Tools ◄─┘
//! ```
//!
//! The handler of a phase owns the phase's data and returns the step that follows (`next.rs`).
//! One loop in `machine.rs` performs these steps, so that no handler calls back into the file that
//! called it:
//!
//! ```text
//! run.rs ─► machine.rs ─► the handler of the phase ─► context.rs, judge/ ─► data
//!              ▲                     │
//!              └──────── Next ◄──────┘
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `event.rs`, `effect.rs` | the two vocabularies, input and output |
//! | `spec.rs`, `watch.rs`, `branch.rs` | what a run is configured with |
//! | `outcome.rs`, `ending.rs`, `outcome_json.rs`, `decided_by.rs` | what a run returns, its JSON form, and the decision that ended it |
//! | `run.rs` | a run as its driver sees it |
//! | `machine.rs`, `next.rs` | the dispatch of events, and the loop over the steps that follow |
//! | `phase.rs`, `call.rs`, `open_calls.rs` | the phases with their data |
//! | `context.rs`, `prompt.rs`, `guard.rs` | the state that all phases share |
//! | `boundary.rs`, `precheck.rs` | checks before a turn, in a fixed order |
//! | `consult.rs` | answers of hooks |
//! | `request.rs`, `quote.rs` | the model call: its output cap, its reservation |
//! | `stream.rs`, `turn.rs` | a response: its chunks, its usage, its message |
//! | `response.rs`, `lost_call.rs` | the evaluation of a response: accept, repair, continue or end |
//! | `attempt.rs`, `jitter.rs` | failed attempts and retry waits |
//! | `tools.rs`, `tool_step.rs`, `results.rs`, `finish.rs` | tool calls of a turn, and the `finish` tool |
//! | `success.rs`, `verification.rs`, `verdicts.rs` | the way of an answer to the end: validation, repairs, the stop hook, the verifier |
//! | `judge/` | policies, watch rules and no-progress detection, with their order of precedence |
//! | `ledger.rs`, `booking.rs` | cost and reservations |
//! | `compaction.rs`, `compactions.rs` | when a shortened conversation is accepted |
//! | `guest_mode.rs`, `asked.rs`, `closed.rs`, `meter.rs` | a guest: a driver that does not own the loop |
//! | `steering.rs`, `limit_changes.rs` | messages and changes of limits while the run works |
//! | `resume.rs` | resume after a crash |
//! | `wrap_up.rs`, `hand_over.rs`, `remaining.rs` | the hand-over when a ceiling ends the run; what is left of the limits, for the model |
//! | `stopping.rs`, `abort.rs`, `conclude.rs` | cancel, terminate, deadline and halt; the outcome |
//!
//! A complete run with one call:
//!
//! ```
//! use endstop_core::{Confidence, Effect, Event, EventKind, Message, MessageId, ModelTurn, Part,
//!     Role, Run, RunSpec, SignalReason, Step, Termination, TerminationSignal};
//! use std::time::Duration;
//!
//! let question = Message::text(MessageId(1), Role::User, "What is the capital of France?");
//! let run = Run::new(RunSpec::new(vec![question]));
//! let mut effects = Vec::new();
//!
//! let start = EventKind::Start { seed: 1, price: None, wall_ms: None };
//! let Step::Continue(run) = run.handle(Event::new(Duration::ZERO, start), &mut effects) else {
//!     panic!("the run waits for the model")
//! };
//! let call = effects.iter().find_map(|effect| match effect {
//!     Effect::CallModel { id, .. } => Some(*id),
//!     _ => None,
//! }).unwrap();
//!
//! // The driver calls the model and reports the response.
//! let signal = TerminationSignal::new(SignalReason::NaturalCompletion, Confidence::High);
//! let turn = ModelTurn::new(vec![Part::Text { text: "Paris.".into() }], signal);
//! let event = EventKind::TurnEnded { call, turn: Box::new(turn) };
//! let Step::Ended(outcome) = run.handle(Event::new(Duration::from_millis(700), event), &mut effects)
//! else { panic!("an answer ends the run") };
//! assert_eq!(outcome.termination, Termination::Stop);
//! assert_eq!(outcome.last_text.as_deref(), Some("Paris."));
//! ```
//!
//! [`Run::handle`] takes the run by value and returns it only while the run is alive. A driver
//! that sends an event to an ended run therefore does not compile.

mod abort;
mod asked;
mod attempt;
mod background;
mod booking;
mod boundary;
mod branch;
mod call;
mod closed;
mod compaction;
mod compactions;
mod conclude;
mod consult;
mod context;
mod counts;
mod decided_by;
mod effect;
mod effect_id;
mod ending;
mod event;
mod excerpt;
mod fallback;
mod fallback_model;
mod finish;
mod guard;
mod guest_mode;
mod hand_over;
mod jitter;
mod judge;
mod ledger;
mod limit_changes;
mod lost_call;
mod machine;
mod meter;
mod models;
mod nested_ending;
mod next;
mod open_calls;
mod open_work;
mod outcome;
mod outcome_display;
mod outcome_json;
mod park;
mod parked;
mod phase;
mod precheck;
mod prompt;
mod quote;
mod remaining;
mod request;
mod response;
mod results;
mod resume;
mod run;
mod spec;
mod spending;
mod steering;
mod stopping;
mod stream;
mod success;
mod tool_answer;
mod tool_step;
mod tools;
mod turn;
mod verdicts;
mod verification;
mod watch;
mod watch_error;
mod watch_mode;
mod wrap_up;

pub use branch::BranchPoint;
pub use decided_by::{DecidedBy, Decision, Layer};
pub use effect::{
    ConsultPoint, ConversationSize, Effect, EffectId, InjectionReason, RunEvent, ToolStart,
};
pub use event::{
    BudgetAccount, ChangedResult, Compaction, Event, EventKind, HookDecision, Resumption,
    ToolReport, TurnDelta,
};
pub use fallback_model::{FallbackModel, ModelSwitch, ModelUse};
pub use guest_mode::{GuestCall, GuestMode};
pub use limit_changes::LimitChanges;
pub use lost_call::holds_lost_call;
pub use nested_ending::NestedEnding;
pub use outcome::{
    CompactionAttempt, NoProgressSnapshot, Outcome, RepeatedCall, StoppedWork, Unsuccessful,
    VerifyRound, WouldFit,
};
pub use park::{Park, ParkDecision, ParkRequest, RequestKind};
pub use precheck::{CheckState, PRE_TURN, PreTurnCheck};
pub use run::{CallQuote, Run, RunPhase, Step};
pub use spec::{CompactionSpec, Hooks, Permission, ProactiveCompaction, RunSpec, ToolPolicy};
pub use spending::Spending;
pub use watch::{RuleHit, Watch};
pub use watch_error::WatchError;
pub use watch_mode::WatchMode;
