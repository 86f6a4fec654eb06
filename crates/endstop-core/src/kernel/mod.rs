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
//! The handler of a phase owns the phase's data and returns the step that follows (`Next`).
//! One loop in `machine.rs` performs these steps, so that no handler calls back into the file that
//! called it:
//!
//! ```text
//! run.rs ─► machine.rs ─► the handler of the phase ─► context.rs, judge/ ─► data
//!              ▲                     │
//!              └──────── Next ◄──────┘
//! ```
//!
//! The root has the machine; each room has one idea and a `mod.rs` that names it:
//!
//! | file or room | contents |
//! |---|---|
//! | `event.rs`, `effect.rs` | the two vocabularies, input and output |
//! | `run.rs` | a run as its driver sees it |
//! | `machine.rs` | the dispatch of events, and the loop over the steps that follow |
//! | `phase.rs` | the phases with their data, and the step that follows a handler |
//! | `context.rs`, `records.rs` | the state that all phases share: settings and conversation; counters and records |
//! | `park.rs`, `effect_id.rs` | the vocabulary of parked runs; ids |
//! | `resume.rs` | resume after a crash |
//! | `guest.rs` | a guest: a driver that does not own the loop |
//! | `setup/` | what a run is configured with |
//! | `outcome/` | what a run returns, its JSON form, and the decision that ended it |
//! | `ceilings/` | cost, tokens and reservations, and the checks before a turn, in a fixed order |
//! | `judge/` | policies, watch rules and no-progress detection, with their order of precedence |
//! | `tools/` | tool calls of a turn, background calls, and the `finish` tool |
//! | `call/` | the boundary before a model call, its request, stream, failed attempts and fallbacks; compaction |
//! | `answer/` | the evaluation of a response: accept, repair, continue or end; validation, the stop hook, the verifier |
//! | `stopping/` | cancel, terminate, deadline and halt; the hand-over; the outcome |
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

mod answer;
mod call;
mod ceilings;
mod context;
mod effect;
mod effect_id;
mod event;
mod guest;
mod judge;
mod machine;
mod outcome;
mod park;
mod phase;
mod records;
mod resume;
mod run;
mod setup;
mod stopping;
mod tools;

pub use answer::lost_call::holds_lost_call;
pub use ceilings::near::{Crossing, Near};
pub use ceilings::pause::Pause;
pub use ceilings::precheck::{CheckState, PRE_TURN, PreTurnCheck};
pub use effect::{
    ConsultPoint, ConversationSize, Effect, EffectId, InjectionReason, RunEvent, ToolStart,
};
pub use event::{
    BudgetAccount, ChangedResult, ClosedDelta, Compaction, Event, EventKind, HookDecision,
    Resumption, ToolReport, TurnDelta,
};
pub use outcome::decided_by::{DecidedBy, Decision, Layer};
pub use outcome::ending::NestedEnding;
pub use outcome::{
    CompactionAttempt, NoProgressSnapshot, Outcome, RepeatedCall, StoppedWork, Unsuccessful,
    VerifyRound, WouldFit,
};
pub use park::{Park, ParkDecision, ParkRequest, RequestKind};
pub use run::{CallQuote, Run, RunPhase, Step};
pub use setup::guest_mode::{GuestCall, GuestMode};
pub use setup::limit_changes::LimitChanges;
pub use setup::models::Spending;
pub use setup::models::{FallbackModel, ModelSwitch, ModelUse};
pub use setup::spec::BranchPoint;
pub use setup::spec::{
    CompactionSpec, Hooks, Permission, ProactiveCompaction, RunSpec, ToolPolicy,
};
pub use setup::watch::WatchError;
pub use setup::watch::WatchMode;
pub use setup::watch::{RuleHit, Watch};
