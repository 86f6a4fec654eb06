//! The answers of a guest's run to its driver, and what the driver reports at the start and of
//! nested runs.

use crate::kernel::{EffectId, Outcome};
use crate::message::ToolCall;
use crate::price::Price;
use crate::usage::NanoUsd;
use std::sync::Arc;

/// The values that only the driver knows when a run starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuestStart {
    /// Seed of the jitter of retry waits; used only with [`GuestMode::retry`](super::GuestMode).
    pub seed: u64,
    /// Price of calls that have none of their own; `None`: their cost is unknown.
    pub price: Option<Price>,
    /// Wall clock in Unix milliseconds, for display.
    pub wall_ms: Option<u64>,
    /// `true` to keep the events for a journal, see [`Guest::take_events`](super::Guest::take_events).
    pub record: bool,
}

/// The answer to a model call that the client is about to make.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "the client may call the model only if it was admitted"]
pub enum Admission {
    /// The client may make the call.
    Go {
        /// Id of the call, for its deltas and its response.
        call: EffectId,
        /// The turn that the call is for, from 1.
        turn: u32,
        /// The attempt at that turn, from 1.
        attempt: u32,
        /// The output cap to send. Differs from the client's own only with
        /// [`GuestMode::capped`](super::GuestMode).
        output_cap: Option<u64>,
    },
    /// The shared budget must be asked first; answer with
    /// [`Guest::reserved`](super::Guest::reserved).
    Reserve {
        /// Id of the reservation.
        id: EffectId,
        /// Requested amount.
        want: NanoUsd,
        /// Minimum amount for a useful call.
        least: NanoUsd,
        /// Requested number of tokens.
        want_tokens: u64,
        /// Minimum number of tokens for a useful call.
        least_tokens: u64,
    },
    /// The run has ended: the call must not be made.
    Stop(Arc<Outcome>),
}

/// The answer to anything else that the driver reports.
#[derive(Clone, Debug, PartialEq)]
pub enum GuestReply {
    /// Nothing to do. After a response: it has no calls that may run. It is an answer, or it has a
    /// defect; [`Run::provisional`](crate::Run::provisional) has the ending that it gives.
    Continue,
    /// The client may run these calls, and no others of the response.
    Tools(Vec<Arc<ToolCall>>),
    /// The kernel repeats the model call; only with [`GuestMode::retry`](super::GuestMode).
    Again(Admission),
    /// The run has ended: a call in progress must be aborted.
    Stop(Arc<Outcome>),
}
