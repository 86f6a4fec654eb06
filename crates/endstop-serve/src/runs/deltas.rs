//! Joins deltas of one text.
//!
//! ```text
//! text_delta "Hel" + text_delta "lo"  →  text_delta "Hello"
//! ```

use endstop::AgentEvent;

/// `true` for deltas to which the next one can be appended.
pub(super) fn is_mergeable(event: &AgentEvent) -> bool {
    matches!(
        event,
        AgentEvent::TextDelta { .. }
            | AgentEvent::ReasoningDelta { .. }
            | AgentEvent::RefusalDelta { .. }
            | AgentEvent::ToolArgumentsDelta { .. }
    )
}

/// Appends a delta to the one before it, if it continues the same text. Returns the length of the text, in
/// bytes.
pub(super) fn merge(held: &mut AgentEvent, next: &AgentEvent) -> Option<usize> {
    let (text, more) = match (held, next) {
        (
            AgentEvent::TextDelta { origin, text },
            AgentEvent::TextDelta { origin: other, text: more },
        )
        | (
            AgentEvent::ReasoningDelta { origin, text },
            AgentEvent::ReasoningDelta { origin: other, text: more },
        )
        | (
            AgentEvent::RefusalDelta { origin, text },
            AgentEvent::RefusalDelta { origin: other, text: more },
        ) if origin == other => (text, more),
        (
            AgentEvent::ToolArgumentsDelta { origin, index, call_id, arguments },
            AgentEvent::ToolArgumentsDelta {
                origin: other,
                index: at,
                call_id: id,
                arguments: more,
            },
        ) if origin == other && index == at && call_id == id => (arguments, more),
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
        let origin = |run: &str| Origin::new(run, [], Some(1));
        let text = |run: &str, text: &str| AgentEvent::TextDelta {
            origin: origin(run),
            text: text.to_owned(),
        };
        let call = |index: u32, arguments: &str| AgentEvent::ToolArgumentsDelta {
            origin: origin("r"),
            index,
            call_id: None,
            arguments: arguments.to_owned(),
        };
        let reasoning = AgentEvent::ReasoningDelta { origin: origin("r"), text: "c".to_owned() };
        let warning = AgentEvent::Warning { origin: origin("r"), message: String::new() };

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
