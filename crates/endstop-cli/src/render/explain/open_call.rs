//! The model call that was open when the records of a run end: its process died, or still waits.

use endstop::core::{Effect, EventKind, NanoUsd, Replay, closed};
use endstop::journal::RecordedRun;
use serde_json::{Value, json};

/// Returns the open call of a run as an entry of its timeline: what was streamed until the last
/// record, the cost of the run before it, and the amount that was reserved for it.
pub(super) fn open_call(run: &RecordedRun, replay: &Replay) -> Option<Value> {
    let live = replay.run()?;
    let (id, turn) = replay.outstanding().into_iter().find_map(|effect| match effect {
        Effect::CallModel { id, turn, .. } => Some((*id, *turn)),
        _ => None,
    })?;
    let (mut text, mut hidden) = (String::new(), 0_u64);
    for event in &run.events {
        match &event.kind {
            EventKind::Delta { call, delta } if *call == id => match delta.closed() {
                closed::TurnDelta::Text(more) => text.push_str(more),
                closed::TurnDelta::Reasoning(chars) | closed::TurnDelta::ToolArguments(chars) => {
                    hidden = hidden.saturating_add(chars);
                }
            },
            _ => {}
        }
    }
    Some(json!({
        "type": "open_call",
        "at_ms": replay.at().as_secs_f64() * 1e3,
        "turn": turn,
        "text": text,
        "hidden_chars": hidden,
        "cost_usd": live.known_cost().map(NanoUsd::to_usd),
        "reserved_usd": live.reserved().to_usd(),
    }))
}
