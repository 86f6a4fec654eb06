//! The delivery of a run's one ending: to its session, and to all that wait for it.
//!
//! ```text
//! delivery.deliver(outcome, whole);   // or `park`
//! ```

use crate::agent::handle::ending::EndingCell;
use crate::agent::session::state::SessionShared;
use endstop_core::{Message, MessageId, Outcome, ParkRequest, Role};
use std::sync::Arc;

/// The place where a run's ending is written, once.
pub(super) struct Delivery {
    owner: Arc<SessionShared>,
    /// The number of the run in its session.
    number: u64,
    ending: EndingCell,
    /// The newest message that existed before the model answered.
    input: Option<MessageId>,
    begun: bool,
}

impl Delivery {
    pub(super) fn new(
        owner: Arc<SessionShared>,
        number: u64,
        ending: EndingCell,
        input: Option<MessageId>,
    ) -> Delivery {
        Delivery { owner, number, ending, input, begun: false }
    }

    /// Returns the session of the run.
    pub(super) fn owner(&self) -> &SessionShared {
        &self.owner
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// `true` if the delivery has not begun.
    pub(super) fn is_due(&self) -> bool {
        !self.begun
    }

    /// Begins the delivery, after which the driver has nothing left to end.
    pub(super) fn begin(&mut self) {
        self.begun = true;
    }

    /// Delivers the outcome. `whole` is `true` if the conversation is complete, so that the session may continue it.
    pub(super) fn deliver(&self, outcome: Arc<Outcome>, whole: bool) {
        // The session is idle before the outcome is visible, so that a caller can start the next run
        // at once.
        let conversation = Some(&*outcome).filter(|outcome| whole && self.has_answer(outcome));
        self.owner.finished(self.number, conversation);
        self.ending.write(outcome);
    }

    /// Delivers that the run is parked, with an outcome for a caller that only waits for one.
    pub(super) fn park(&self, request: Arc<ParkRequest>, part: Outcome) {
        self.owner.finished(self.number, None);
        self.ending.park(request, part);
    }

    /// `true` if the model has answered anything since the run's input. If it has not, the session's
    /// conversation stays as it was before the run. Otherwise an input that the provider refuses
    /// would be sent again, and refused again, by each later run.
    ///
    /// `false` also if no session is left that could read the conversation: then it is not copied.
    fn has_answer(&self, outcome: &Outcome) -> bool {
        if Arc::strong_count(&self.owner) == 1 {
            return false;
        }
        let says =
            |message: &Message| message.role == Role::Assistant && Some(message.id) > self.input;
        outcome.turns > 0 || outcome.messages.iter().any(says)
    }
}
