//! Calls that are answers: clients that want an object declare a tool for it, and end after the
//! call without a result. As a call it would stay open, and the run would end as unfinished.

use crate::exchange::Structured;
use endstop_core::{ModelTurn, Part, SignalReason};

/// Returns the turn with its call as its text, if its only calls are the answer.
pub(super) fn as_answer(mut turn: ModelTurn, wanted: Option<&Structured>) -> ModelTurn {
    let calls: Vec<&str> = turn
        .parts
        .iter()
        .filter_map(|part| match part {
            Part::ToolCall(call) => Some(call.name.as_str()),
            _ => None,
        })
        .collect();
    let Some(wanted) = wanted else { return turn };
    // A cut call is not whole, so its own ending must stand. Some servers end a forced call with
    // the value of a text.
    let whole =
        matches!(turn.signal.reason, SignalReason::ToolUse | SignalReason::NaturalCompletion)
            && turn.unparseable.is_none();
    let only = !calls.is_empty() && calls.into_iter().all(|name| wanted.is_answer(name));
    if !whole || !only {
        return turn;
    }
    for part in &mut turn.parts {
        if let Part::ToolCall(call) = part {
            let text = std::mem::take(&mut call.arguments);
            *part = Part::Text { text };
        }
    }
    turn.signal.reason = SignalReason::NaturalCompletion;
    turn.signal.should_terminate = true;
    turn
}

#[cfg(test)]
mod tests {
    use super::as_answer;
    use crate::exchange::Structured;
    use endstop_core::{Confidence, ModelTurn, Part, SignalReason, TerminationSignal, ToolCall};

    fn calling(names: &[&str]) -> ModelTurn {
        let call = |name: &&str| {
            let (id, name) = (format!("id-{name}"), (*name).to_owned());
            Part::ToolCall(ToolCall { id, name, arguments: r#"{"answer":4}"#.to_owned() })
        };
        let signal = TerminationSignal::new(SignalReason::ToolUse, Confidence::High);
        ModelTurn::new(names.iter().map(call).collect(), signal)
    }

    #[test]
    fn only_a_call_that_is_the_answer_becomes_text() {
        let wanted = Some(&Structured::ToolChoice);
        let answer = as_answer(calling(&["StructuredOutput"]), wanted);
        assert_eq!(answer.signal.reason, SignalReason::NaturalCompletion);
        assert_eq!(answer.parts, [Part::Text { text: r#"{"answer":4}"#.to_owned() }]);
        for other in [&["bash"][..], &["StructuredOutput", "bash"], &[]] {
            assert_eq!(as_answer(calling(other), wanted), calling(other), "{other:?}");
        }
        let named = Structured::Tool("extract".to_owned());
        let answer = as_answer(calling(&["extract"]), Some(&named));
        assert_eq!(answer.signal.reason, SignalReason::NaturalCompletion);
        // Without the wish for an object the name means nothing.
        assert_eq!(as_answer(calling(&["final_answer"]), None), calling(&["final_answer"]));
        let mut cut = calling(&["StructuredOutput"]);
        cut.signal.reason = SignalReason::TokenLimitReached;
        assert_eq!(as_answer(cut.clone(), wanted), cut);
    }
}
