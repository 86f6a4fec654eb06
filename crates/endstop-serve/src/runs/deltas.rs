//! Joins deltas of one text.
//!
//! ```text
//! text_delta "Hel" + text_delta "lo"  →  text_delta "Hello"
//! ```

use endstop::{AgentEvent, AgentEventKind};

/// `true` for deltas to which the next one can be appended.
pub(super) fn is_mergeable(event: &AgentEvent) -> bool {
    matches!(
        event.kind,
        AgentEventKind::TextDelta { .. }
            | AgentEventKind::ReasoningDelta { .. }
            | AgentEventKind::RefusalDelta { .. }
            | AgentEventKind::ToolArgumentsDelta { .. }
    )
}

/// Appends a delta to the one before it, if it continues the same text. Returns the length of the text, in
/// bytes.
pub(super) fn merge(held: &mut AgentEvent, next: &AgentEvent) -> Option<usize> {
    if held.origin != next.origin {
        return None;
    }
    let (text, more) = match (&mut held.kind, &next.kind) {
        (AgentEventKind::TextDelta { text }, AgentEventKind::TextDelta { text: more })
        | (
            AgentEventKind::ReasoningDelta { text },
            AgentEventKind::ReasoningDelta { text: more },
        )
        | (AgentEventKind::RefusalDelta { text }, AgentEventKind::RefusalDelta { text: more }) => {
            (text, more)
        }
        (
            AgentEventKind::ToolArgumentsDelta { index, call_id, arguments },
            AgentEventKind::ToolArgumentsDelta { index: at, call_id: id, arguments: more },
        ) if index == at && call_id == id => (arguments, more),
        _ => return None,
    };
    text.push_str(more);
    Some(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use endstop::event::Origin;

    #[test]
    fn only_deltas_of_one_text_merge() {
        let event = |run: &str, kind| AgentEvent::new(Origin::new(run, [], Some(1)), kind);
        let text =
            |run: &str, text: &str| event(run, AgentEventKind::TextDelta { text: text.to_owned() });
        let call = |index: u32, arguments: &str| {
            let arguments = arguments.to_owned();
            event("r", AgentEventKind::ToolArgumentsDelta { index, call_id: None, arguments })
        };
        let reasoning = event("r", AgentEventKind::ReasoningDelta { text: "c".to_owned() });
        let warning = event("r", AgentEventKind::Warning { message: String::new() });

        let mut held = text("r", "a");
        assert_eq!(merge(&mut held, &text("r", "é")), Some(3));
        for other in [text("other", "b"), reasoning, call(0, "{"), warning] {
            assert_eq!(merge(&mut held, &other), None);
        }
        assert_eq!(held, text("r", "aé"));
        let mut held = call(0, "{");
        assert_eq!(merge(&mut held, &call(0, "}")), Some(2));
        assert_eq!(merge(&mut held, &call(1, "}")), None);
        assert_eq!(held, call(0, "{}"));
    }
}
