//! Redaction of records before they are stored. Each record also stores how many secrets were cut
//! out of it, because a resumed run must know that its stored conversation differs from the real
//! one.
//!
//! ```json
//! {"event":"tool_ended","tool":5,"report":{"content":"TOKEN=[redacted]", …},"redacted":1}
//! ```
//!
//! The count is needed because a user may write `[redacted]` too: the text alone does not tell a
//! cut from that.

use endstop_core::EventKind;
use endstop_wire::redact::KnownKeys;
use serde::Deserialize;
use serde_json::Value;

/// The JSON member that stores the count.
const COUNT: &str = "redacted";

/// Returns the record without secrets. The count of cuts in it includes those of an earlier pass.
pub(crate) fn without_secrets(keys: &KnownKeys, record: String) -> String {
    match keys.out_of_json(&record) {
        Some((clean, cuts)) => counted(clean, cuts),
        None => record,
    }
}

/// Returns the record, from which one more secret was cut.
pub(crate) fn with_one_more(record: String) -> String {
    match serde_json::from_str(&record) {
        Ok(clean) => counted(clean, 1),
        Err(_) => record,
    }
}

fn counted(mut clean: Value, cuts: u64) -> String {
    if let Value::Object(members) = &mut clean {
        // A record may pass through here twice: in the recorder, and in a journal with keys of its
        // own.
        let before = members.get(COUNT).and_then(Value::as_u64).unwrap_or(0);
        members.insert(COUNT.to_owned(), before.saturating_add(cuts).into());
    }
    clean.to_string()
}

/// Returns how many secrets were cut out of a stored JSON object.
pub(crate) fn cuts_of(object: &str) -> u64 {
    #[derive(Deserialize)]
    struct Counted {
        #[serde(default)]
        redacted: u64,
    }
    // Almost no record has the member, so most are not parsed a second time.
    if !object.contains("\"redacted\":") {
        return 0;
    }
    serde_json::from_str::<Counted>(object).map_or(0, |counted| counted.redacted)
}

/// Returns how many secrets were cut out of the parts of an event that belong to the conversation.
pub(crate) fn cuts_for_model(kind: &EventKind, record: &str) -> u64 {
    // Only these events carry text of the conversation. A cut in any other event, for example in an
    // error message, does not change what the model sees on resume.
    let says = matches!(
        kind,
        EventKind::Delta { .. }
            | EventKind::Asked { .. }
            | EventKind::Said { .. }
            | EventKind::TurnEnded { .. }
            | EventKind::TurnFailed { partial: Some(_), .. }
            | EventKind::ToolEnded { .. }
            | EventKind::Answered { .. }
            | EventKind::Compacted { .. }
            | EventKind::Validated { .. }
            | EventKind::Verified { passed: false, .. }
    );
    if says { cuts_of(record) } else { 0 }
}
