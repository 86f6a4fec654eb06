//! What a decision is about, and its digest.
//!
//! ```text
//! let subject = Subject::of(&point, last_text, &keys)?;
//! let request = subject.request(id, park, now_ms);
//! ```

use endstop_core::{ConsultPoint, EffectId, Park, ParkRequest, RequestKind, ToolCall};
use endstop_wire::redact::KnownKeys;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;

/// The most bytes of a question that a request holds.
const MOST_TEXT: usize = 64 << 10;

/// What a decision is about.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    kind: RequestKind,
    tool: Option<String>,
    call_id: Option<String>,
    text: String,
    digest: String,
}

impl Subject {
    /// Returns what the question at this point is about; `None` if a run cannot be parked there.
    /// `keys` are the secrets that the journal does not store: they are not part of the digest
    /// either, from which a short secret could be guessed.
    pub(crate) fn of(
        point: &ConsultPoint,
        last_text: Option<&str>,
        keys: &KnownKeys,
    ) -> Option<Subject> {
        let (kind, tool, call_id, text) = match point {
            ConsultPoint::Approval { call } => {
                let (tool, id) = (call.name.clone(), call.id.clone());
                (RequestKind::Approval, Some(tool), Some(id), canonical(call))
            }
            ConsultPoint::Reply => {
                let text = last_text.unwrap_or_default();
                let end =
                    (0..=MOST_TEXT.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
                (RequestKind::Question, None, None, text[..end.unwrap_or_default()].to_owned())
            }
            _ => return None,
        };
        let text = keys.out_of_text(&text).into_owned();
        let digest = digest(kind, tool.as_deref(), &text);
        Some(Subject { kind, tool, call_id, text, digest })
    }

    /// Returns the request for a decision.
    pub(crate) fn request(self, id: EffectId, park: Park, now_ms: u64) -> ParkRequest {
        let Subject { kind, tool, call_id, text, digest } = self;
        ParkRequest {
            id,
            kind,
            tool,
            call_id,
            subject: text,
            digest,
            reason: park.reason,
            asked_ms: now_ms,
            expires_ms: park.expires_after_ms.map(|after| now_ms.saturating_add(after)),
        }
    }

    /// Returns the digest, which names the subject in a decision.
    pub(crate) fn digest(&self) -> &str {
        &self.digest
    }
}

/// Returns the arguments of a call in canonical form. Arguments that are not an object are kept as
/// the model wrote them.
fn canonical(call: &ToolCall) -> String {
    match call.parsed_arguments() {
        Ok(parsed) => {
            let mut parsed = Value::Object(parsed);
            parsed.sort_all_objects();
            parsed.to_string()
        }
        Err(_) => call.arguments.clone(),
    }
}

/// Returns the SHA-256 of a subject in hexadecimal.
fn digest(kind: RequestKind, tool: Option<&str>, text: &str) -> String {
    let mut hash = Sha256::new();
    // With the lengths, so that no part can imitate the end of the one before it.
    for part in [kind.as_str(), tool.unwrap_or_default(), text] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().iter().fold(String::with_capacity(64), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, arguments: &str) -> Subject {
        let call = ToolCall {
            id: "c1".to_owned(),
            name: name.to_owned(),
            arguments: arguments.to_owned(),
        };
        Subject::of(&ConsultPoint::Approval { call }, None, &KnownKeys::default()).unwrap()
    }

    #[test]
    fn digest_ignores_key_order_and_space() {
        let one = of("rm", r#"{"a": 1, "b": {"d": 2, "c": 3}}"#);
        let two = of("rm", r#"{"b":{"c":3,"d":2},"a":1}"#);
        assert_eq!(one.digest(), two.digest());
        assert_eq!(one.digest().len(), 64);
    }

    #[test]
    fn digest_differs_for_any_change() {
        let one = of("rm", r#"{"a":1}"#);
        for other in [of("rm", r#"{"a":2}"#), of("rn", r#"{"a":1}"#), of("r", r#"m{"a":1}"#)] {
            assert_ne!(one.digest(), other.digest());
        }
    }
}
