//! The vocabulary of decoding: a response as a [`Decoded`] turn, its [`Delta`]s, and the trait that
//! each wire format implements.

mod billing;
pub(super) mod halves;
mod kinds;
pub(super) mod rest;
pub(super) mod stream;
pub(super) mod tail;
pub(super) mod text_frame;
pub(super) mod turn;
pub(super) mod write;

pub use billing::ServiceTier;
pub use tail::{Ending, Tail};
pub use write::{Closing, NO_USAGE, Response};

use crate::catalog::prices::ModelInfo;
use endstop_core::{ModelError, ModelTurn, TerminationSignal, TurnDelta, Window};
use serde::{Deserialize, Serialize};

/// Facts about the request that decoding needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestFacts {
    /// `true` if the request listed stop strings.
    pub stop_strings: bool,
    /// Output cap of the request, in tokens.
    pub output_cap: Option<u64>,
    /// `true` if the request asked for a cache entry that lives for an hour.
    pub cached_for_hour: bool,
    /// `true` if the request asked for several alternatives (`n`), of which the first one counts. Without it, the
    /// choices of a response are one answer.
    pub has_alternatives: bool,
}

/// An increment of a streamed turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delta<'a> {
    /// Visible text.
    Text(&'a str),
    /// Reasoning in plain text.
    Reasoning(&'a str),
    /// Text of a refusal, if the provider reports refusals separately from text.
    Refusal(&'a str),
    /// Start of a tool call.
    ToolCallStarted {
        /// Position of the call among the turn's calls, from 0.
        index: usize,
        /// Id that the call has in the decoded turn, unless another call of the turn has the same
        /// one; empty if it is not known yet.
        id: &'a str,
        /// Name of the tool.
        name: &'a str,
    },
    /// A fragment of a tool call's arguments.
    ToolArguments {
        /// Position of the call.
        index: usize,
        /// Fragment of JSON text.
        json: &'a str,
    },
    /// Output that is generated, but is neither text of the turn nor a call for the client: the input of a tool that
    /// the provider runs, the type of an item without readable output, or text and arguments of another choice. It is
    /// not blank.
    Hidden(&'a str),
    /// Reasoning whose text is not that of the turn: reasoning of another choice, or the type of reasoning that is
    /// encrypted.
    HiddenReasoning(&'a str),
}

impl<'a> Delta<'a> {
    /// The generated text in this delta.
    fn generated(&self) -> &'a str {
        match self {
            Delta::Text(text)
            | Delta::Reasoning(text)
            | Delta::Refusal(text)
            | Delta::Hidden(text)
            | Delta::HiddenReasoning(text) => text,
            Delta::ToolCallStarted { name, .. } => name,
            Delta::ToolArguments { json, .. } => json,
        }
    }

    /// Number of bytes that this delta adds to the turn.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Delta::Hidden(_) | Delta::HiddenReasoning(_) => 0,
            _ => self.generated().len() as u64,
        }
    }

    /// Returns the delta as a run counts it: text of the answer as it is, and the length of everything else.
    pub fn counted(&self) -> TurnDelta {
        let text = self.generated();
        let chars = text.chars().count() as u64;
        match self {
            Delta::Text(_) => TurnDelta::Text(text.to_owned()),
            // A refusal is content, but not text that a policy may read as an answer. The finished turn has it.
            Delta::Reasoning(_) | Delta::Refusal(_) | Delta::HiddenReasoning(_) => {
                TurnDelta::Reasoning(chars)
            }
            Delta::ToolCallStarted { .. } | Delta::ToolArguments { .. } | Delta::Hidden(_) => {
                TurnDelta::ToolArguments(chars)
            }
        }
    }
}

/// The way a body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eof {
    /// The server closed it.
    Clean,
    /// The connection was reset.
    Reset,
}

/// A decoded response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decoded {
    /// Content and usage. In addition to an error, this holds what arrived before the error.
    pub turn: Option<ModelTurn>,
    /// The error that the response is or contains, or that ended it.
    pub error: Option<ModelError>,
    /// Reason why generation stopped. Always `error_termination` if `error` is set.
    pub signal: TerminationSignal,
    /// The service tier that the response reports, unless it is the ordinary one, or the response
    /// reports its cost.
    pub service_tier: Option<ServiceTier>,
    /// `true` if the response was a stream of events.
    pub streamed: bool,
    /// `true` if a finish value or the protocol's end marker arrived.
    pub complete: bool,
    /// `true` if the deciding field was missing or null. An empty string counts as a value.
    pub value_missing: bool,
    /// The provider's own statement about retrying, if it sent one.
    pub should_retry: Option<bool>,
    /// The use of a subscription's windows, if the response reports it.
    pub windows: Vec<Window>,
}

impl Decoded {
    /// Sets the cost of the turn by the price of its service tier, if `info` has that price. Without
    /// it, [`endstop_core::Billing`] of the usage states how the bill differs.
    ///
    /// `info` must be the source of the run's price, see
    /// [`catalogue_price`](crate::catalog::prices::catalogue_price).
    pub fn price_service_tier(&mut self, info: Option<&ModelInfo>) {
        // The counts of a failed call may be preliminary.
        if self.error.is_some() {
            return;
        }
        let (Some(tier), Some(turn)) = (&self.service_tier, &mut self.turn) else { return };
        let Some(price) = info.and_then(|info| info.tier(&tier.name)) else { return };
        let usage = &mut turn.usage;
        // Without both counts, the kernel estimates the usage, and the bill stays uncertain.
        if usage.input_tokens.is_some() && usage.generated_tokens().is_some() {
            usage.billing = tier.rest;
            turn.cost = Some(price.cost(usage));
        }
    }
}
