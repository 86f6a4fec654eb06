//! The events of a guest's run for a journal, with the deltas of a turn merged.

use crate::delta_buffer::{DeltaBuffer, Mark};
use crate::kernel::{Effect, EffectId, Event, EventKind};

/// An event of a run, and the effects that the run requested in response.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// The event.
    pub event: Event,
    /// The effects, in order.
    pub effects: Vec<Effect>,
}

/// Collects the events of a run.
#[derive(Default)]
pub(super) struct Recording {
    waiting: DeltaBuffer,
    records: Vec<Recorded>,
}

/// The record of an event, computed before the run takes the event.
pub(super) enum Before {
    Delta(Event, Mark),
    /// A response with token counts, which contains everything that was streamed. Without counts the
    /// deltas are needed for the same estimate.
    Turn(EffectId, Event),
    Other(Event),
}

impl Recording {
    pub(super) fn before(&mut self, event: &Event) -> Before {
        match &event.kind {
            EventKind::Delta { call, delta } => {
                let earlier = self.waiting.earlier(*call);
                self.push(earlier);
                let mark = self.waiting.push(*call, delta, event.at);
                Before::Delta(event.clone(), mark)
            }
            EventKind::TurnEnded { call, turn }
                if turn.usage.input_tokens.is_some() && turn.usage.generated_tokens().is_some() =>
            {
                Before::Turn(*call, event.clone())
            }
            _ => Before::Other(event.clone()),
        }
    }

    pub(super) fn after(&mut self, before: Before, effects: &[Effect], ended: bool) {
        let event = match before {
            Before::Delta(..) if effects.is_empty() && !ended => return,
            // A delta that led to a decision is recorded separately, because a merged one could
            // lead to it at another place.
            Before::Delta(event, mark) => {
                self.waiting.take_back(mark);
                event
            }
            Before::Turn(call, event) => {
                // A response that came too late counts as aborted, and is estimated from its deltas.
                let aborts = |effect: &Effect| matches!(effect, Effect::AbortModel { .. });
                if !effects.iter().any(aborts) {
                    self.waiting.forget(call);
                }
                event
            }
            Before::Other(event) => event,
        };
        self.flush();
        self.records.push(Recorded { event, effects: effects.to_vec() });
    }

    fn flush(&mut self) {
        let waiting = self.waiting.take();
        self.push(waiting);
    }

    fn push(&mut self, deltas: Vec<Event>) {
        let records = deltas.into_iter().map(|event| Recorded { event, effects: Vec::new() });
        self.records.extend(records);
    }

    pub(super) fn take(&mut self, ended: bool) -> Vec<Recorded> {
        if ended {
            self.flush();
        }
        std::mem::take(&mut self.records)
    }
}
