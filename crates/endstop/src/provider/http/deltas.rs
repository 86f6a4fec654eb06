//! Converts the deltas of a decoder into events of the call.
//!
//! ```text
//! Text("It"), Text(" is") in one chunk → Delta(Text("It is"))
//! Reasoning("Hm.")                     → Delta(Reasoning(3)), or Reasoning("Hm.") with details
//! ```

use crate::provider::CallEvent;
use endstop_core::TurnDelta;
use endstop_wire::Delta;
use std::collections::VecDeque;

/// Appends a delta. Consecutive deltas of the same kind are merged.
pub(super) fn take_delta(ready: &mut VecDeque<CallEvent>, delta: Delta<'_>, details: bool) {
    if let Delta::Text(text) = delta {
        match ready.back_mut() {
            Some(CallEvent::Delta(TurnDelta::Text(so_far))) => so_far.push_str(text),
            _ => ready.push_back(CallEvent::Delta(TurnDelta::Text(text.to_owned()))),
        }
    } else if details {
        take_text(ready, delta);
    } else {
        take_count(ready, delta);
    }
}

fn take_text(ready: &mut VecDeque<CallEvent>, delta: Delta<'_>) {
    match (delta, ready.back_mut()) {
        (Delta::Reasoning(text), Some(CallEvent::Reasoning(so_far)))
        | (Delta::Refusal(text), Some(CallEvent::Refusal(so_far))) => so_far.push_str(text),
        (Delta::Reasoning(text), _) => ready.push_back(CallEvent::Reasoning(text.to_owned())),
        (Delta::Refusal(text), _) => ready.push_back(CallEvent::Refusal(text.to_owned())),
        (
            Delta::ToolArguments { index, json },
            Some(CallEvent::ToolArguments { index: last, json: so_far }),
        ) if *last as usize == index => so_far.push_str(json),
        (Delta::ToolArguments { index, json }, _) => {
            let json = json.to_owned();
            ready.push_back(CallEvent::ToolArguments { index: position(index), json });
        }
        (Delta::ToolCallStarted { index, id, name }, _) => {
            let (id, name) = (id.to_owned(), name.to_owned());
            ready.push_back(CallEvent::ToolCallStarted { index: position(index), id, name });
        }
        (hidden, _) => take_count(ready, hidden),
    }
}

fn position(index: usize) -> u32 {
    // The decoder bounds the number of calls, so no real position is cut.
    u32::try_from(index).unwrap_or(u32::MAX)
}

fn take_count(ready: &mut VecDeque<CallEvent>, delta: Delta<'_>) {
    // The name of a call does not continue the arguments of the one before.
    let starts = matches!(delta, Delta::ToolCallStarted { .. });
    match (delta.counted(), ready.back_mut()) {
        (TurnDelta::Reasoning(more), Some(CallEvent::Delta(TurnDelta::Reasoning(so_far)))) => {
            *so_far += more;
        }
        (
            TurnDelta::ToolArguments(more),
            Some(CallEvent::Delta(TurnDelta::ToolArguments(so_far))),
        ) if !starts => *so_far += more,
        (counted, _) => ready.push_back(CallEvent::Delta(counted)),
    }
}
