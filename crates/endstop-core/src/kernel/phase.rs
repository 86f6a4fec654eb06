//! The phases of a run, each with the data that only it needs.

use super::effect::{ConversationSize, EffectId};
use super::model_call::Call;
use super::outcome::ending::Ending;
use super::tools::open_calls::OpenCalls;
use std::time::Duration;

/// The phase of a run. An event that does not fit the phase (a late answer, a second answer) is
/// ignored.
#[derive(Debug)]
pub(super) enum Phase {
    /// Before `Start`. Also a placeholder while a handler owns the contents of another phase.
    New,
    /// Waits for a hook or a person.
    Consulting { id: EffectId, point: Point },
    /// Waits for the shared budget.
    Reserving { id: EffectId },
    /// Waits for the model.
    Calling(Call),
    /// Waits until the next attempt.
    Backoff { until: Duration },
    /// Waits for the tools of a turn.
    Tools(OpenCalls),
    /// Waits for the next call of a guest, or for its end.
    Guest(Idle),
    /// Waits for a shorter conversation.
    Compacting { id: EffectId, forced: bool, before: ConversationSize },
    /// Waits for the validation of a success against the schema.
    Validating { id: EffectId, success: Box<Ending> },
    /// Waits for the verdict of the verifier on a success, since this time.
    Verifying { id: EffectId, success: Box<Ending>, since: Duration },
    /// Waits for background work, with an answer in text that ends the run if nothing comes first.
    Waiting { answer: Box<Ending>, text: String },
    /// Waits for the hand-over; the ending is decided.
    WrappingUp(Box<WrapUp>),
    /// Waits for running tools to end within their grace period; the ending is decided.
    Stopping { ending: Box<Ending>, calls: OpenCalls, until: Duration },
}

/// A hand-over in progress.
#[derive(Debug)]
pub(super) struct WrapUp {
    /// The ending that the run will have.
    pub(super) ending: Box<Ending>,
    pub(super) stage: Stage,
}

impl WrapUp {
    /// `true` if the hook that sees requests must answer with this id.
    pub(super) fn waits_for_hook(&self, id: EffectId) -> bool {
        matches!(self.stage, Stage::Consulting(waited) if waited == id)
    }

    /// `true` if the shared budget must answer with this id.
    pub(super) fn waits_for_budget(&self, id: EffectId) -> bool {
        matches!(self.stage, Stage::Reserving(waited) if waited == id)
    }
}

/// The component that a hand-over waits for.
#[derive(Debug)]
pub(super) enum Stage {
    /// The hook that sees requests.
    Consulting(EffectId),
    /// The shared budget.
    Reserving(EffectId),
    /// The model.
    Calling(Call),
}

/// The state of a guest's run between two model calls.
#[derive(Debug, Default)]
pub(super) struct Idle {
    /// The ending that the last response or attempt decided. Final unless the guest calls again.
    pub(super) provisional: Option<Box<Ending>>,
    /// The calls of a response that is not whole. The kernel did not release them, but the client
    /// may run them.
    pub(super) calls: OpenCalls,
    /// Text of an attempt that failed.
    pub(super) partial: Option<String>,
}

/// A question to a hook. A question about a success holds the ending that the hook can veto.
#[derive(Debug)]
pub(super) enum Point {
    Prompt,
    PreIteration,
    ChatParams,
    PreCall,
    /// About the result of a background call.
    Background,
    /// About a success, since this time.
    Stop {
        success: Box<Ending>,
        asked: Duration,
    },
    Reply(Box<Ending>),
}

impl Phase {
    /// Takes the contents out, so that a handler can own them.
    pub(super) fn take(&mut self) -> Phase {
        std::mem::replace(self, Phase::New)
    }

    /// Returns the model call in progress, also that of a hand-over.
    pub(super) fn call(&self) -> Option<&Call> {
        match self {
            Phase::Calling(call) => Some(call),
            Phase::WrappingUp(wrap_up) => match &wrap_up.stage {
                Stage::Calling(call) => Some(call),
                Stage::Consulting(_) | Stage::Reserving(_) => None,
            },
            _ => None,
        }
    }

    /// Like [`call`](Phase::call), to change it.
    pub(super) fn call_mut(&mut self) -> Option<&mut Call> {
        match self {
            Phase::Calling(call) => Some(call),
            Phase::WrappingUp(wrap_up) => match &mut wrap_up.stage {
                Stage::Calling(call) => Some(call),
                Stage::Consulting(_) | Stage::Reserving(_) => None,
            },
            _ => None,
        }
    }

    /// `true` if the last content of the model call in progress was reasoning.
    pub(super) fn thinks(&self) -> bool {
        self.call().is_some_and(|call| call.thinks_since.is_some())
    }

    /// Takes the model call with this id; `None` if it is not in progress.
    pub(super) fn take_call(&mut self, id: EffectId) -> Option<Call> {
        match self.take() {
            Phase::Calling(call) if call.id == id => Some(call),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Takes the hand-over, if its call has this id.
    pub(super) fn take_hand_over(&mut self, id: EffectId) -> Option<(Box<Ending>, Call)> {
        match self.take() {
            Phase::WrappingUp(wrap_up) => match *wrap_up {
                WrapUp { ending, stage: Stage::Calling(call) } if call.id == id => {
                    Some((ending, call))
                }
                other => {
                    *self = Phase::WrappingUp(Box::new(other));
                    None
                }
            },
            other => {
                *self = other;
                None
            }
        }
    }

    /// Takes the calls of a turn; `None` if no tools are open.
    pub(super) fn take_calls(&mut self) -> Option<OpenCalls> {
        match self.take() {
            Phase::Tools(calls) => Some(calls),
            other => {
                *self = other;
                None
            }
        }
    }

    /// `true` if the answer to the current question leads directly to a model call.
    pub(super) fn leads_to_a_call(&self) -> bool {
        matches!(
            self,
            Phase::Consulting {
                point: Point::PreIteration | Point::ChatParams | Point::PreCall | Point::Background,
                ..
            }
        )
    }
}
