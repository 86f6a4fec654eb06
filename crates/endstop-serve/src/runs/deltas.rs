//! Collects the deltas of a moment into one event, because each event is redacted, written as JSON and put into
//! the feed, which for each token costs more than the rest of the run.
//!
//! ```text
//! if let Some(event) = deltas.take(event, now) { show(event) }  // a delta may be held
//! ```

use endstop::AgentEvent;
use std::time::Duration;
use tokio::time::Instant;

/// The longest time for which a delta is held. Readers get their events at most every 50 ms anyway.
const LONGEST_HOLD: Duration = Duration::from_millis(20);

/// Bytes of text above which a delta is no longer held.
const MOST_HELD: usize = 8 << 10;

/// Deltas that are held.
#[derive(Debug, Default)]
pub(super) struct Deltas {
    held: Option<AgentEvent>,
    /// The time at which the last delta was passed on.
    passed: Option<Instant>,
}

impl Deltas {
    /// Takes an event. Returns the events that are to be shown now, in their order.
    pub(super) fn take(&mut self, event: AgentEvent, now: Instant) -> [Option<AgentEvent>; 2] {
        if !is_text(&event) {
            return [self.flush(now), Some(event)];
        }
        let added = self.held.as_mut().is_some_and(|held| append(held, &event));
        let before = if added { None } else { self.held.replace(event) };
        // The first delta after a pause is shown at once.
        let soon = self.until().is_some_and(|until| now < until);
        let small = self.held.as_ref().is_some_and(|held| text_of(held).len() < MOST_HELD);
        if soon && small { [before, None] } else { [before, self.flush(now)] }
    }

    /// Returns the time at which [`flush`](Self::flush) is to be called; `None` if nothing is held.
    pub(super) fn due(&self) -> Option<Instant> {
        self.held.as_ref().and_then(|_| self.until())
    }

    /// Returns the delta that is held.
    pub(super) fn flush(&mut self, now: Instant) -> Option<AgentEvent> {
        let held = self.held.take()?;
        self.passed = Some(now);
        Some(held)
    }

    fn until(&self) -> Option<Instant> {
        self.passed.map(|passed| passed + LONGEST_HOLD)
    }
}

fn is_text(event: &AgentEvent) -> bool {
    matches!(event, AgentEvent::TextDelta { .. } | AgentEvent::ReasoningDelta { .. })
}

fn text_of(event: &AgentEvent) -> &str {
    match event {
        AgentEvent::TextDelta { text, .. } | AgentEvent::ReasoningDelta { text, .. } => text,
        _ => "",
    }
}

/// Appends the text of a delta to one of the same kind and run. `false` if they are not.
fn append(held: &mut AgentEvent, next: &AgentEvent) -> bool {
    match (held, next) {
        (
            AgentEvent::TextDelta { origin, text },
            AgentEvent::TextDelta { origin: other, text: more },
        )
        | (
            AgentEvent::ReasoningDelta { origin, text },
            AgentEvent::ReasoningDelta { origin: other, text: more },
        ) if origin == other => {
            text.push_str(more);
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use endstop::event::Origin;

    fn text(text: &str) -> AgentEvent {
        AgentEvent::TextDelta { origin: Origin::new("r", [], None), text: text.to_owned() }
    }

    fn shown(events: [Option<AgentEvent>; 2]) -> Vec<String> {
        let name = |event: AgentEvent| format!("{} {}", event.kind(), text_of(&event));
        events.into_iter().flatten().map(name).collect()
    }

    #[test]
    fn deltas_of_a_moment_become_one() {
        let (mut deltas, begin) = (Deltas::default(), Instant::now());
        let at = |ms| begin + Duration::from_millis(ms);
        assert_eq!(shown(deltas.take(text("a"), at(0))), ["text_delta a"]);
        assert!(shown(deltas.take(text("b"), at(1))).is_empty());
        assert!(shown(deltas.take(text("c"), at(2))).is_empty());
        assert_eq!(deltas.due(), Some(at(20)));
        assert_eq!(deltas.flush(at(20)), Some(text("bc")));
        assert_eq!((deltas.due(), deltas.flush(at(20))), (None, None));
        assert_eq!(shown(deltas.take(text("d"), at(90))), ["text_delta d"]);
    }

    #[test]
    fn other_event_follows_the_held_text() {
        let (mut deltas, now) = (Deltas::default(), Instant::now());
        let reasoning =
            AgentEvent::ReasoningDelta { origin: Origin::new("r", [], None), text: "r".to_owned() };
        let warning =
            AgentEvent::Warning { origin: Origin::new("r", [], None), message: String::new() };
        deltas.take(text("a"), now);
        deltas.take(text("b"), now);
        assert_eq!(shown(deltas.take(reasoning, now)), ["text_delta b"]);
        assert_eq!(shown(deltas.take(warning, now)), ["reasoning_delta r", "warning "]);
        assert_eq!(deltas.due(), None);
    }

    #[test]
    fn held_text_is_bounded() {
        let (mut deltas, now) = (Deltas::default(), Instant::now());
        deltas.take(text("a"), now);
        assert!(shown(deltas.take(text("b"), now)).is_empty());
        let long = "x".repeat(MOST_HELD);
        assert_eq!(shown(deltas.take(text(&long), now)).len(), 1);
        assert_eq!(deltas.due(), None);
    }
}
