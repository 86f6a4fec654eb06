//! The events of a guest's run for a journal, with the deltas of a turn merged.

use crate::delta_buffer::{DeltaBuffer, Mark};
use crate::kernel::{Effect, EffectId, Event, EventKind, TurnDelta};
use std::time::Duration;

/// Deltas are recorded after this time at the latest. If the process dies during a call, all but the
/// last moment of it can then be charged.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// Size of the merged deltas (bytes of text plus characters of the rest) above which they are recorded
/// without delay.
const MOST_WAITING: u64 = 16 << 10;

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
    /// The time of the first delta that waits.
    since: Duration,
    records: Vec<Recorded>,
}

/// The record of an event, computed before the run takes the event.
pub(super) enum Before {
    Delta {
        call: EffectId,
        at: Duration,
        mark: Mark,
    },
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
                if self.waiting.waiting() == 0 {
                    self.since = event.at;
                }
                let mark = self.waiting.push(*call, delta, event.at);
                Before::Delta { call: *call, at: event.at, mark }
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
            Before::Delta { at, .. } if effects.is_empty() && !ended => {
                let waited = at.saturating_sub(self.since);
                if waited >= LONGEST_WAIT || self.waiting.waiting() >= MOST_WAITING {
                    self.flush();
                }
                return;
            }
            // A delta that led to a decision is recorded separately, because a merged one could
            // lead to it at another place.
            Before::Delta { call, at, mark } => {
                let delta = self.waiting.take_back(mark);
                let delta = delta.unwrap_or(TurnDelta::Text(String::new()));
                Event::new(at, EventKind::Delta { call, delta })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_stream_is_recorded_in_parts() {
        let mut recording = Recording::default();
        let mut feed = |ms, delta| {
            let kind = EventKind::Delta { call: EffectId(1), delta };
            let event = Event::new(Duration::from_millis(ms), kind);
            let before = recording.before(&event);
            recording.after(before, &[], false);
            recording.take(false).into_iter().map(|record| record.event.kind).collect::<Vec<_>>()
        };
        let text = |text: &str| TurnDelta::Text(text.to_owned());
        let recorded = |delta| EventKind::Delta { call: EffectId(1), delta };
        assert_eq!(feed(5_000, text("one ")), []);
        assert_eq!(feed(5_999, text("two ")), []);
        assert_eq!(feed(6_000, text("three")), [recorded(text("one two three"))]);
        // A second begins with the next delta, however long the pause was.
        assert_eq!(feed(60_000, text("four")), []);
        assert_eq!(feed(60_001, TurnDelta::Reasoning(1)), []);
        let large = "x".repeat(MOST_WAITING as usize);
        let parts = [recorded(TurnDelta::Reasoning(1)), recorded(text(&format!("four{large}")))];
        assert_eq!(feed(60_002, text(&large)), parts);
    }
}
