//! The pure kernel of Endstop: the vocabulary of agent runs, and the state machine that ends each
//! run exactly once.
//!
//! Nothing here does I/O, reads a clock, draws random numbers or holds global state. Time comes in
//! with events and randomness as a seed, so that a recorded run replays to the same outcome.
//!
//! Start with [`kernel`]: it explains how a run works and lists its files. [`termination`] lists
//! the reasons for which a run ends, [`limits`] the ceilings, [`policy`] the custom stop
//! conditions, and [`replay`] resumes a journalled run.
//!
//! | question | type |
//! |---|---|
//! | Why did the model stop this turn? | [`TerminationSignal`] |
//! | Should the run stop after this step? | [`Verdict`] of a [`TerminationPolicy`] |
//! | Why did the run end? | [`Termination`] |
#![cfg_attr(docsrs, feature(doc_cfg))]

mod alike;
pub mod bounded_json;
mod call_key;
pub mod decide;
pub mod delta_buffer;
pub mod detector;
pub mod error_class;
pub mod guest;
pub mod history;
pub mod kernel;
pub mod limits;
pub mod media;
pub mod message;
mod nearest;
pub mod policy;
pub mod price;
pub mod protocol;
pub mod registry;
pub mod replay;
pub mod run_data;
pub mod signal;
pub mod state;
pub mod stop_message;
pub mod streaming;
pub mod structured;
pub mod termination;
pub mod usage;
pub mod visible;

pub use call_key::call_key;
pub use delta_buffer::DeltaBuffer;
pub use error_class::{ErrorClass, ModelError};
pub use guest::Guest;
pub use kernel::holds_lost_call;
pub use kernel::{
    BranchPoint, BudgetAccount, CallQuote, ChangedResult, CheckState, Compaction,
    CompactionAttempt, CompactionSpec, ConsultPoint, ConversationSize, Crossing, DecidedBy,
    Decision, Effect, EffectId, Event, EventKind, FallbackModel, GuestCall, GuestMode,
    HookDecision, Hooks, InjectionReason, Layer, LimitChanges, ModelSwitch, ModelUse, Near,
    NestedEnding, NoProgressSnapshot, Outcome, PRE_TURN, Park, ParkDecision, ParkRequest, Pause,
    Permission, PreTurnCheck, ProactiveCompaction, RepeatedCall, RequestKind, Resumption, RuleHit,
    Run, RunEvent, RunPhase, RunSpec, Step, StoppedWork, ToolPolicy, ToolReport, ToolStart,
    TurnDelta, Unsuccessful, VerifyRound, Watch, WatchError, WatchMode, WouldFit,
};
pub use limits::{
    Limit, LimitError, LimitRow, LimitValue, Limits, Rates, TokensCounted, Window, WindowShares,
};
pub use media::{Attachment, Document, Image, ImageTokens, MediaError};
pub use message::{
    ArgumentsError, Message, MessageId, ModelTurn, Part, Role, ToolCall, ToolResult, ToolStatus,
};
/// Closed forms of enums that may grow, for Endstop's own crates. Not part of the interface.
#[doc(hidden)]
pub mod closed {
    pub use crate::kernel::ClosedDelta as TurnDelta;
    pub use crate::policy::ClosedVerdict as Verdict;
}

pub use policy::{
    BoxPolicy, ClonePolicy, PolicyEnd, PolicyError, StepCall, StepContext, StepOutput, StepResult,
    Stop, TerminationPolicy, Verdict,
};
pub use price::cache_use::{CacheUse, NanoUsdChange};
pub use price::{LongPrompt, LongPrompts, Price, TooManyPrices};
pub use registry::{PolicyInfo, Registry};
pub use replay::Replay;
pub use run_data::RunData;
pub use signal::{Confidence, ProviderSpecific, SignalReason, TerminationSignal};
pub use state::{CompletedCall, MultiTurnState};
pub use streaming::{InvalidTransition, StreamingState, UnknownStreamingState};
pub use termination::{Category, MultiTurnReason, Termination};
pub use usage::{Billing, NanoUsd, Unreported, Usage};
pub use visible::{is_blank, visible_text};
