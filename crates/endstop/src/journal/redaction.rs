//! Secrets cut out of what a journal keeps, and the count of them, so that a resumed run knows that its
//! conversation is not what the model said and was told.
//!
//! ```json
//! {"event":"tool_ended","tool":5,"report":{"content":"TOKEN=[redacted]", …},"redacted":1}
//! ```
//!
//! A user may write `[redacted]` as well: only the count tells a cut from that.

#[cfg(feature = "journal")]
use endstop_core::EventKind;
use endstop_wire::redact::KnownKeys;
#[cfg(feature = "journal")]
use serde::Deserialize;
use serde_json::Value;

/// The member with the count.
const COUNT: &str = "redacted";

/// A record without secrets, with the count of those that were cut now and before.
pub(crate) fn without_secrets(keys: &KnownKeys, record: String) -> String {
    let Some((mut clean, cuts)) = keys.out_of_json(&record) else { return record };
    if let Value::Object(members) = &mut clean {
        let before = members.get(COUNT).and_then(Value::as_u64).unwrap_or(0);
        members.insert(COUNT.to_owned(), before.saturating_add(cuts).into());
    }
    clean.to_string()
}

/// How many secrets were cut out of a stored object.
#[cfg(feature = "journal")]
pub(crate) fn cuts_of(object: &str) -> u64 {
    #[derive(Deserialize)]
    struct Counted {
        #[serde(default)]
        redacted: u64,
    }
    if !object.contains("\"redacted\":") {
        return 0;
    }
    serde_json::from_str::<Counted>(object).map_or(0, |counted| counted.redacted)
}

/// How many secrets were cut out of what an event says to the model.
#[cfg(feature = "journal")]
pub(crate) fn cuts_for_model(kind: &EventKind, record: &str) -> u64 {
    let says = matches!(
        kind,
        EventKind::Delta { .. }
            | EventKind::TurnEnded { .. }
            | EventKind::TurnFailed { partial: Some(_), .. }
            | EventKind::ToolEnded { .. }
            | EventKind::Answered { .. }
            | EventKind::Compacted { .. }
            | EventKind::Validated { .. }
    );
    if says { cuts_of(record) } else { 0 }
}
