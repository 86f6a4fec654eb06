//! The facts of one call that its answer, its observer and its report need.

use crate::exchange::answer::Reply;
use crate::exchange::{Kind, Seat, ThreadId};
use crate::proxy::AbortToken;
use endstop_core::{EffectId, Price};
use endstop_wire::catalog::prices::ModelInfo;
use endstop_wire::{Dialect, RequestFacts};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

/// A thread's place: a conversation, or a single call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Thread(ThreadId),
    /// A turn that is made while another call of its conversation is in flight, by the number of its
    /// exchange.
    Parallel(u64),
    /// A call that is not a turn, by the number of its exchange.
    Auxiliary(u64),
}

impl Place {
    /// `true` if the thread has a single call.
    pub(super) fn is_single(&self) -> bool {
        matches!(self, Place::Parallel(_) | Place::Auxiliary(_))
    }
}

/// The facts of a call that its request states.
#[derive(Debug)]
pub(super) struct CallFacts {
    pub(super) seat: Seat,
    pub(super) kind: Kind,
    /// `true` if the client is a coding agent that guard knows.
    pub(super) is_known_agent: bool,
    /// `true` if the call makes no text: embeddings, images. It can be no answer of the program.
    pub(super) is_metered: bool,
    /// `true` if the provider works on after its response, which the client then asks for by its id.
    pub(super) is_background: bool,
    /// `true` if its key belongs to a subscription.
    pub(super) is_subscription: bool,
    pub(super) reply: Reply,
    pub(super) request: RequestFacts,
    pub(super) dialect: &'static Dialect,
    /// The host of the upstream.
    pub(super) host: Option<String>,
    /// The price of the call, if it is known.
    pub(super) price: Option<Price>,
    /// The source of the call's price, if that is the catalogue.
    pub(super) catalogue: Option<ModelInfo>,
}

/// The reading of a response, as a later call of the same client sees it.
pub(super) trait OpenCall: Send {
    /// Ends the call if the whole message has passed, although the exchange has not ended. If the caller has waited for
    /// the end of the message, its finish value and its usage are enough. Returns `true` if the call remains open and
    /// only its usage may follow. Reads what was put off; if that ends the run in the middle of the
    /// message, the exchange is aborted.
    fn end_if_complete(&mut self, has_waited: bool) -> bool;

    /// Ends the call if its finish value has passed. The exchange continues, and what it reports later is booked.
    fn end_if_finished(&mut self);
}

/// Locks a reading.
// After a panic the response is at worst one that cannot be decoded, which is an error of the call.
pub(super) fn lock_call<T: OpenCall + ?Sized>(reading: &Mutex<T>) -> MutexGuard<'_, T> {
    reading.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The open call of an exchange; gone once the exchange has ended.
pub(super) type WeakCall = Weak<Mutex<dyn OpenCall>>;

/// The admission of a call.
#[derive(Clone, Debug)]
pub(super) struct Ticket {
    pub(super) number: u64,
    pub(super) place: Place,
    pub(super) call: EffectId,
    /// The output cap to send, if caps are lowered.
    pub(super) output_cap: Option<u64>,
    pub(super) abort: AbortToken,
}
