//! The letters to the run of an attempt: gives each to the run once, and notices when the run has it.
//!
//! ```text
//! steerer.send(4, content) ─► the run takes it ─► its event is journalled ─► step with `steered: [4]`
//! ```

use crate::letter::{Content, Refusal, Steered};
use endstop::agent::Steering;
use endstop::journal::Record;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;

/// Sends letters to the run of an attempt. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Steerer(mpsc::UnboundedSender<(u64, Content)>);

impl Steerer {
    pub(crate) fn new() -> (Steerer, mpsc::UnboundedReceiver<(u64, Content)>) {
        let (send, letters) = mpsc::unbounded_channel();
        (Steerer(send), letters)
    }

    /// Sends the letter with this number. Letters must be sent in the order of their numbers, from the
    /// one after [`Past::steered`](crate::Past::steered). One that the attempt does not decide is decided
    /// by the next attempt.
    pub fn send(&self, number: u64, content: Content) {
        // Without a receiver the attempt is over.
        let _ = self.0.send((number, content));
    }
}

/// The letters that were given to the run, and whose decision is in no step yet. Clones are the same box.
#[derive(Clone, Debug, Default)]
pub(crate) struct Letterbox(Arc<Mutex<VecDeque<Given>>>);

#[derive(Debug)]
struct Given {
    number: u64,
    /// Name of the event with which the run takes the letter; `None` if the decision is there.
    awaits: Option<&'static str>,
    refused: Option<Refusal>,
}

impl Letterbox {
    fn given(&self) -> MutexGuard<'_, VecDeque<Given>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a letter to the run. Returns `false` if the run takes none in this attempt any more.
    pub(crate) fn give(&self, steering: &Steering, number: u64, content: Content) -> bool {
        // Held until the letter is listed, because its event may be journalled before this returns.
        let mut given = self.given();
        let (awaits, taken) = match content {
            Content::Say(text) => ("said", steering.say(text)),
            Content::Limits(changes) => ("limits_changed", steering.tighten_limits(changes)),
        };
        let (awaits, refused) = match taken {
            Ok(()) => (Some(awaits), None),
            Err(error) => match Refusal::of(&error) {
                Some(refused) => (None, Some(refused)),
                None => return false,
            },
        };
        given.push_back(Given { number, awaits, refused });
        true
    }

    /// Notes records that will be stored. The run takes letters in the order in which they were given.
    pub(crate) fn note(&self, records: &[Record]) {
        let mut given = self.given();
        for record in records {
            let taken = given.iter_mut().find(|given| given.awaits.is_some());
            if let Some(taken) = taken.filter(|given| given.awaits == Some(record.name.as_str())) {
                taken.awaits = None;
            }
        }
    }

    /// `true` if a decision is there.
    pub(crate) fn has_decisions(&self) -> bool {
        self.given().front().is_some_and(|given| given.awaits.is_none())
    }

    /// Takes the decisions for the next step, in the order of the letters.
    pub(crate) fn take(&self) -> Vec<Steered> {
        let mut given = self.given();
        let decided = given.iter().take_while(|given| given.awaits.is_none()).count();
        let steered = |given: Given| Steered { number: given.number, refused: given.refused };
        given.drain(..decided).map(steered).collect()
    }
}
