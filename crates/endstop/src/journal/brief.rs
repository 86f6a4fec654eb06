//! An effect in short, as a journal keeps it: what is done, under which id. The rest follows from
//! the events.
//!
//! ```
//! use endstop::journal::brief;
//! use endstop::{Effect, EffectId};
//! let call = Effect::CallModel { id: EffectId(7), turn: 3, attempt: 1, output_cap: None };
//! let short = brief(&call).unwrap().to_string();
//! assert_eq!(short, r#"{"effect":"call_model","id":7,"turn":3,"attempt":1,"output_cap":null}"#);
//! ```

use endstop_core::{ConsultPoint, Effect, RunEvent};
use serde_json::{Value, json};

/// An effect in short; `None` for what changes nothing outside the run: a timer, an event for
/// observers, but for what became of the conversation.
pub fn brief(effect: &Effect) -> Option<Value> {
    Some(match effect {
        Effect::CallModel { .. } | Effect::AbortModel { .. } | Effect::AbortTools { .. } => {
            serde_json::to_value(effect).ok()?
        }
        Effect::StartTools { calls } => {
            let calls: Vec<Value> = calls
                .iter()
                .map(
                    |start| json!({"id": start.id, "name": start.call.name, "call": start.call.id}),
                )
                .collect();
            json!({"effect": "start_tools", "calls": calls})
        }
        Effect::Reserve { id, want, .. } => json!({"effect": "reserve", "id": id, "want": want}),
        Effect::Settle { id, spent } => json!({"effect": "settle", "id": id, "spent": spent}),
        Effect::Validate { id, .. } => json!({"effect": "validate", "id": id}),
        Effect::Consult { id, point } => {
            let point = match point {
                ConsultPoint::Prompt => "prompt",
                ConsultPoint::PreIteration { .. } => "pre_iteration",
                ConsultPoint::ChatParams { .. } => "chat_params",
                ConsultPoint::PreTool { .. } => "pre_tool",
                ConsultPoint::Approval { .. } => "approval",
                ConsultPoint::Stop { .. } => "stop",
                _ => "other",
            };
            json!({"effect": "consult", "id": id, "point": point})
        }
        Effect::Compact { id, forced, before, .. } => {
            json!({"effect": "compact", "id": id, "forced": forced, "before": before})
        }
        Effect::Emit(event @ (RunEvent::Compacted { .. } | RunEvent::CompactionFailed { .. })) => {
            serde_json::to_value(event).ok()?
        }
        Effect::Abandon { id } => json!({"effect": "abandon", "id": id}),
        _ => return None,
    })
}

/// The effects in short, as a record has them; `None`: there are none.
pub(crate) fn briefs(effects: &[Effect]) -> Option<String> {
    let briefs: Vec<Value> = effects.iter().filter_map(brief).collect();
    (!briefs.is_empty()).then(|| Value::Array(briefs).to_string())
}
