//! The phases of a run, each with the data that only it needs, and the step that leads to the next one.
//! Handlers return that step instead of calling each other, and the loop in `machine.rs` performs it.

use super::ceilings::ledger::Ceiling;
use super::ceilings::meter::Meter;
use super::effect::{ConsultPoint, ConversationSize, EffectId};
use super::event::TurnDelta;
use super::outcome::ending::Ending;
use super::tools::open_calls::OpenCalls;
use crate::limits::Limits;
use crate::usage::NanoUsd;
use crate::visible::{Opening, is_blank};
use serde_json::Value;
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
    /// Waits until the next attempt, or until a window of the subscription begins anew.
    Backoff { until: Duration, before: Before },
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

/// What follows a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// Another attempt.
    Retry,
    /// A turn, after a pause.
    Turn,
    /// A call, after a pause.
    Call,
}

impl Before {
    /// The step at the end of the wait.
    pub(super) fn next(self) -> Next {
        match self {
            Before::Retry | Before::Call => Next::Call,
            Before::Turn => Next::Boundary,
        }
    }
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

    /// `true` if no visible output has followed the last reasoning of the model call in progress.
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

    /// Returns what follows, if the run pauses for a window of the subscription.
    pub(super) fn pauses_before(&self) -> Option<Before> {
        match self {
            Phase::Backoff { before, .. } => Some(*before).filter(|one| *one != Before::Retry),
            _ => None,
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

/// The name of the limit on reasoning without visible output.
pub(super) const THINKING: &str = "thinking_timeout";

/// The model call in progress.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) id: EffectId,
    /// Time of the request, later by the times in which the process was suspended.
    pub(super) started: Duration,
    /// Time of the last content; `None` before the first.
    pub(super) last_content: Option<Duration>,
    /// Time at which the reasoning began that no visible output has followed yet.
    pub(super) thinks_since: Option<Duration>,
    pub(super) text: String,
    /// Finds the visible part of the text.
    pub(super) opening: Opening,
    /// Policies and rules have read the visible part of the text.
    pub(super) shown: bool,
    /// The policy requested a stop mid-stream, but the stop had to wait for the complete turn.
    pub(super) deferred_stop: bool,
    /// Number of generated characters that are not visible text (reasoning, tool arguments).
    pub(super) hidden: u64,
    /// The caller's output cap, before any ceiling.
    pub(super) own_cap: Option<u64>,
    /// The output cap that was sent.
    pub(super) cap: Option<u64>,
    /// The ceiling that lowered the cap below the caller's.
    pub(super) lowered_by: Option<Ceiling>,
    pub(super) quote: Option<NanoUsd>,
    pub(super) reservation: Option<EffectId>,
    pub(super) prompt_bound: u64,
    /// Counts the output of a call whose cap cannot be lowered.
    pub(super) meter: Option<Box<Meter>>,
}

/// A timeout that applies to the current model call.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallClock {
    /// The limit's name as configuration spells it.
    pub(super) name: &'static str,
    pub(super) since: Duration,
    pub(super) limit: Duration,
}

impl CallClock {
    pub(super) fn deadline(self) -> Duration {
        self.since.saturating_add(self.limit)
    }
}

impl Call {
    /// Returns the timeouts that apply now. A stall is only detectable between two pieces of
    /// content, because a model that reasons without streaming its reasoning is silent before the
    /// first one.
    pub(super) fn clocks(&self, limits: &Limits, streaming: bool) -> [Option<CallClock>; 3] {
        let clock = |name, since, limit: Option<Duration>| {
            limit.map(|limit| CallClock { name, since, limit })
        };
        let content = match self.last_content {
            // Content before the end is a stream, also if none was requested.
            Some(last) => clock("stall_timeout", last, limits.stall_timeout),
            None if !streaming => None,
            None => clock("first_content_timeout", self.started, limits.first_content_timeout),
        };
        let thinks = self.thinks_since;
        let thinks = thinks.and_then(|since| clock(THINKING, since, limits.thinking_timeout));
        [clock("turn_timeout", self.started, limits.turn_timeout), thinks, content]
    }

    /// Adds streamed content that is not empty. Returns where the part of the text begins that policies and rules
    /// have to read: its end, if the content shows nothing.
    pub(super) fn add(&mut self, delta: TurnDelta, now: Duration) -> usize {
        self.last_content = Some(now);
        match delta {
            TurnDelta::Text(piece) => self.add_text(&piece, now),
            // No policy reads them, but they count for the estimate of the usage.
            TurnDelta::Reasoning(chars) => {
                self.hidden = self.hidden.saturating_add(chars);
                self.thinks_since.get_or_insert(now);
                self.text.len()
            }
            TurnDelta::ToolArguments(chars) => {
                self.hidden = self.hidden.saturating_add(chars);
                self.thinks_since = None;
                self.text.len()
            }
        }
    }

    fn add_text(&mut self, piece: &str, now: Duration) -> usize {
        let before = self.text.len();
        self.text.push_str(piece);
        let hidden = self.text.len() - self.opening.read(&self.text).len();
        let shown = std::mem::replace(&mut self.shown, hidden < self.text.len());
        let new = if shown { before } else { hidden };
        // Some models send blanks while they reason.
        if !is_blank(&self.text[new..]) {
            self.thinks_since = None;
        } else if self.opening.reasons() && !is_blank(piece) {
            self.thinks_since.get_or_insert(now);
        }
        new
    }

    /// The visible text that policies and rules have read.
    pub(super) fn visible(&self) -> &str {
        if self.shown { self.opening.clone().read(&self.text) } else { "" }
    }

    /// Excludes a time in which the process did not run, and therefore could not receive content.
    pub(super) fn skip_suspension(&mut self, time: Duration, now: Duration) {
        let (content, thinks) = (self.last_content.as_mut(), self.thinks_since.as_mut());
        for since in [Some(&mut self.started), content, thinks].into_iter().flatten() {
            *since = since.saturating_add(time).min(now);
        }
    }
}

/// The step that follows a handler.
///
/// A handler returns `Flow<Next>`: `Break` ends the run, and the current phase tells what is still
/// in progress. A handler that owns open tool calls returns [`Next::End`] instead, so that each of
/// them is answered.
pub(super) enum Next {
    /// Wait for an event in this phase.
    Wait(Phase),
    /// Start a turn: check the limits, then compact if that is due.
    Boundary,
    /// Start another turn instead of ending the run as this. A guest may not call again, and the
    /// ending is then final.
    Again(Box<Ending>),
    /// Ask the hook before a turn.
    Iteration,
    /// Ask the hook before a model call.
    Params,
    /// Ask the hook that sees the request.
    PreCall,
    /// Make a model call.
    Call,
    /// Make another attempt after this wait.
    Retry { wait: Duration },
    /// Start what may start of the calls, or collect their results.
    Tools(OpenCalls),
    /// Shorten the conversation. `forced` if the provider refused the prompt.
    Compact { forced: bool },
    /// Ask a hook.
    Consult { point: Point, ask: ConsultPoint },
    /// Validate a success against the schema.
    Validate { success: Box<Ending>, candidate: Value },
    /// Ask the verifier about a success.
    Verify { success: Box<Ending> },
    /// End the run as soon as the running calls have ended.
    Stop { ending: Box<Ending>, calls: OpenCalls },
    /// End the run, and answer the open calls.
    End { ending: Box<Ending>, calls: OpenCalls },
}
