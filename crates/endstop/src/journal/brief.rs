//! The short form of an effect that a journal stores: the action and its id. Everything else
//! follows from the events, so storing it again would only make the journal larger.
//!
//! ```
//! use endstop::journal::brief;
//! use endstop::core::{Effect, EffectId};
//! let call = Effect::CallModel { id: EffectId(7), turn: 3, attempt: 1, output_cap: None };
//! let short = brief(&call).unwrap().to_string();
//! assert_eq!(short, r#"{"effect":"call_model","id":7,"turn":3,"attempt":1,"output_cap":null}"#);
//! ```

use endstop_core::{ConsultPoint, Effect, EffectId, RunEvent, ToolStart};
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};
use serde_json::Value;

/// Returns the short form of an effect. Returns `None` for an effect that changes nothing outside
/// the run, such as a timer or an event for observers. Compaction events are the exception, because
/// they say what became of the conversation.
pub fn brief(effect: &Effect) -> Option<Value> {
    serde_json::to_value(Brief::of(effect)?).ok()
}

/// Returns the short forms as one JSON array for a record, or `None` if there are none.
pub(crate) fn briefs(effects: &[Effect]) -> Option<String> {
    let briefs: Vec<Brief<'_>> = effects.iter().filter_map(Brief::of).collect();
    if briefs.is_empty() { None } else { serde_json::to_string(&briefs).ok() }
}

/// An effect that is stored, serialised in its short form.
struct Brief<'e>(&'e Effect);

impl Brief<'_> {
    fn of(effect: &Effect) -> Option<Brief<'_>> {
        match effect {
            Effect::Emit(RunEvent::Compacted { .. } | RunEvent::CompactionFailed { .. }) => {}
            Effect::Emit(_) | Effect::WakeAt { .. } => return None,
            _ => {}
        }
        Some(Brief(effect))
    }
}

impl Serialize for Brief<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let named = |serializer: S, name: &str, id: Option<&EffectId>| {
            let mut map = serializer.serialize_map(None)?;
            map.serialize_entry("effect", name)?;
            if let Some(id) = id {
                map.serialize_entry("id", id)?;
            }
            Ok(map)
        };
        match self.0 {
            Effect::StartTools { calls } => {
                // The arguments of the calls are in the `turn_ended` event, so they are not
                // repeated here.
                let mut map = named(serializer, "start_tools", None)?;
                map.serialize_entry("calls", &Starts(calls))?;
                map.end()
            }
            Effect::Reserve { id, want, want_tokens, .. } => {
                let mut map = named(serializer, "reserve", Some(id))?;
                map.serialize_entry("want", want)?;
                map.serialize_entry("want_tokens", want_tokens)?;
                map.end()
            }
            Effect::Settle { id, spent, tokens } => {
                let mut map = named(serializer, "settle", Some(id))?;
                map.serialize_entry("spent", spent)?;
                map.serialize_entry("tokens", tokens)?;
                map.end()
            }
            Effect::Validate { id, .. } => named(serializer, "validate", Some(id))?.end(),
            Effect::Verify { id, round, .. } => {
                let mut map = named(serializer, "verify", Some(id))?;
                map.serialize_entry("round", round)?;
                map.end()
            }
            Effect::Consult { id, point } => {
                let mut map = named(serializer, "consult", Some(id))?;
                map.serialize_entry("point", name_of(point))?;
                map.end()
            }
            Effect::Compact { id, forced, before, .. } => {
                let mut map = named(serializer, "compact", Some(id))?;
                map.serialize_entry("forced", forced)?;
                map.serialize_entry("before", before)?;
                map.end()
            }
            // Only the compaction events get here, because `Brief::of` rejects the others.
            Effect::Emit(event) => event.serialize(serializer),
            effect => effect.serialize(serializer),
        }
    }
}

/// The short form of started tool calls: ids and names, without arguments.
struct Starts<'e>(&'e [ToolStart]);

impl Serialize for Starts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Start<'e> {
            id: EffectId,
            name: &'e str,
            call: &'e str,
        }
        let mut list = serializer.serialize_seq(Some(self.0.len()))?;
        for start in self.0 {
            list.serialize_element(&Start {
                id: start.id,
                name: &start.call.name,
                call: &start.call.id,
            })?;
        }
        list.end()
    }
}

fn name_of(point: &ConsultPoint) -> &'static str {
    match point {
        ConsultPoint::Prompt => "prompt",
        ConsultPoint::PreIteration { .. } => "pre_iteration",
        ConsultPoint::ChatParams { .. } => "chat_params",
        ConsultPoint::PreCall { .. } => "pre_call",
        ConsultPoint::PreTool { .. } => "pre_tool",
        ConsultPoint::Approval { .. } => "approval",
        ConsultPoint::PostTool { .. } => "post_tool",
        ConsultPoint::Stop { .. } => "stop",
        ConsultPoint::Reply => "reply",
        _ => "other",
    }
}
