//! Recorded events, altered so that a replay must not notice: other clocks and other chunks.

use super::Rng;
use endstop_core::*;
use std::time::Duration;

/// The recorded events with a clock that is sometimes set back: some events get an earlier time
/// than the previous one.
pub fn set_back(events: &[Event], rng: &mut Rng) -> Vec<Event> {
    let mut latest = Duration::ZERO;
    let mut told = Vec::with_capacity(events.len());
    for event in events {
        // An event at the same time as the previous one may also be reported as earlier than it.
        let repeats = event.at <= latest;
        latest = latest.max(event.at);
        let at = if repeats && rng.chance(60) {
            latest.saturating_sub(Duration::from_millis(1 + rng.below(10_000_000)))
        } else {
            event.at
        };
        told.push(Event::new(at, event.kind.clone()));
    }
    told
}

/// Splits the text deltas of recorded events at random positions.
pub fn cut_elsewhere(events: &[Event], rng: &mut Rng) -> Vec<Event> {
    let mut out = Vec::new();
    for event in events {
        match &event.kind {
            EventKind::Delta { call, delta: TurnDelta::Text(text) } if text.len() > 1 => {
                let chars: Vec<char> = text.chars().collect();
                let at = rng.below(chars.len() as u64 + 1) as usize;
                for part in [&chars[..at], &chars[at..]] {
                    let delta = TurnDelta::Text(part.iter().collect());
                    out.push(Event::new(event.at, EventKind::Delta { call: *call, delta }));
                }
            }
            _ => out.push(event.clone()),
        }
    }
    out
}
