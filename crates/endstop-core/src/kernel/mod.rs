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
//!             │                                  schema ─► stop hook ─► end  │
//!             └──────────── results appended to the conversation ◄── Tools ◄─┘
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `event.rs`, `effect.rs` | the two vocabularies, input and output |
//! | `spec.rs`, `watch.rs` | what a run is configured with |
//! | `outcome.rs`, `outcome_json.rs`, `decided_by.rs` | what a run returns, its JSON form, and the decision that ended it |
//! | `run.rs` | a run as its driver sees it |
//! | `machine.rs`, `call.rs`, `guard.rs` | the state, the phases, and the dispatch of events |
//! | `pre_turn.rs`, `boundary.rs` | checks before a turn, in a fixed order, and the model call |
//! | `turn.rs`, `judge.rs`, `success.rs` | evaluation of a response: accept, repair, continue or end |
//! | `attempt.rs`, `jitter.rs` | failed attempts and retry waits |
//! | `tools.rs`, `open_calls.rs`, `finish.rs` | tool calls of a turn, and the `finish` tool |
//! | `lost_call.rs` | detection of lost tool calls |
//! | `ledger.rs`, `booking.rs`, `quote.rs` | cost, reservations and output caps |
//! | `watchers.rs`, `watching.rs`, `progress.rs` | rules that watch the run, and no-progress detection |
//! | `compaction.rs`, `compactions.rs` | when the conversation is shortened, and which result is accepted |
//! | `resume.rs`, `ending.rs` | resume after a crash; cancel, stop and the outcome |
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

mod attempt;
mod booking;
mod boundary;
mod call;
mod compaction;
mod compactions;
mod decided_by;
mod effect;
mod ending;
mod event;
mod finish;
mod guard;
mod jitter;
mod judge;
mod ledger;
mod lost_call;
mod machine;
mod open_calls;
mod outcome;
mod outcome_json;
mod pre_turn;
mod progress;
mod quote;
mod resume;
mod run;
mod spec;
mod success;
mod tools;
mod turn;
mod watch;
mod watchers;
mod watching;

pub use decided_by::{DecidedBy, Decision, Layer};
pub use effect::{
    ConsultPoint, ConversationSize, Effect, EffectId, InjectionReason, RunEvent, ToolStart,
};
pub use event::{Answer, Compaction, Event, EventKind, Resumption, ToolReport, TurnDelta};
pub use outcome::{
    CompactionAttempt, NoProgressSnapshot, Outcome, RepeatedCall, Unsuccessful, WouldFit,
};
pub use pre_turn::{CheckState, PRE_TURN, PreTurnCheck};
pub use run::{CallQuote, Run, RunPhase, Step};
pub use spec::{CompactionSpec, Hooks, Permission, ProactiveCompaction, RunSpec, ToolPolicy};
pub use watch::{RuleHit, Watch, WatchMode};
