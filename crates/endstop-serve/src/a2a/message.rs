//! A message of another agent: a task, or the decision about a call that waits for approval.

use super::envelope::RpcError;
use endstop::Approval;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::fmt::Write as _;

/// The longest reason for a denial, in characters.
const LONGEST_REASON: usize = 4096;

/// The longest `messageId`, in bytes.
const LONGEST_ID: usize = 200;

/// The parameters of `SendMessage` and `SendStreamingMessage`. Unknown members are ignored, as the
/// protocol demands.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Sent {
    pub(super) message: Message,
    #[serde(default)]
    pub(super) configuration: Configuration,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Configuration {
    /// `true`: answer when the task was accepted, not when it has ended.
    pub(super) return_immediately: bool,
    pub(super) task_push_notification_config: Option<Value>,
}

/// A message. Absent strings are empty, as in the protocol's other binding.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Message {
    #[serde(default, rename = "messageId")]
    id: String,
    #[serde(default)]
    pub(super) task_id: String,
    #[serde(default)]
    pub(super) context_id: String,
    #[serde(default)]
    role: String,
    #[serde(default)]
    parts: Vec<Part>,
    #[serde(default)]
    metadata: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
struct Part {
    text: Option<String>,
    data: Option<Value>,
    raw: Option<Value>,
    url: Option<Value>,
}

/// The decision about a call.
#[derive(Debug)]
pub(super) struct Decision {
    /// The request; `None`: the only one that is open.
    pub(super) request: Option<u64>,
    pub(super) approval: Approval,
}

impl Message {
    /// Checks what every message must have.
    pub(super) fn check(&self) -> Result<(), RpcError> {
        let wrong = |problem: &str| Err(RpcError::params(format!("message: {problem}")));
        let visible = self.id.bytes().all(|byte| (0x21..0x7f).contains(&byte));
        if self.id.is_empty() || self.id.len() > LONGEST_ID || !visible {
            return wrong("`messageId`: expected 1 to 200 visible ASCII characters");
        }
        match &*self.role {
            "ROLE_USER" => {}
            _ => return wrong("`role`: expected ROLE_USER"),
        }
        if self.parts.iter().any(|part| part.raw.is_some() || part.url.is_some()) {
            return Err(RpcError::new(
                -32005,
                "message: files are not supported; expected parts with `text` or `data`",
            ));
        }
        Ok(())
    }

    /// Returns the key that makes a repeated message start no second run.
    pub(super) fn key(&self) -> String {
        format!("a2a:{}", self.id)
    }

    /// Returns the task: the texts, and data as JSON.
    pub(super) fn task(&self) -> String {
        let mut task = String::new();
        for part in &self.parts {
            let separator = if task.is_empty() { "" } else { "\n" };
            // Writing to a string cannot fail.
            let _ = match (&part.text, &part.data) {
                (Some(text), _) => write!(task, "{separator}{text}"),
                (None, Some(data)) => write!(task, "{separator}{data}"),
                (None, None) => Ok(()),
            };
        }
        task
    }

    /// Returns the limits that the message lowers: `metadata.endstop.limits`.
    pub(super) fn limits(&self) -> Result<Map<String, Value>, RpcError> {
        match self.metadata.get("endstop").and_then(|own| own.get("limits")) {
            None => Ok(Map::new()),
            Some(Value::Object(limits)) => Ok(limits.clone()),
            Some(_) => {
                Err(RpcError::params("message: `metadata.endstop.limits`: expected an object"))
            }
        }
    }

    /// Reads a decision: a part with `data` of the form `{"decision": "allow" | "deny",
    /// "request_id": …, "reason": …}`, or a text that is one of the two words.
    pub(super) fn decision(&self) -> Result<Decision, RpcError> {
        let wrong = || {
            RpcError::params(
                "message: the task waits for an approval; expected a part with \
                 `data: {\"decision\": \"allow\"}`, or \"deny\" with a `reason`",
            )
        };
        let [part] = &self.parts[..] else { return Err(wrong()) };
        let (word, data) = match (&part.text, &part.data) {
            (Some(word), None) => (word.trim().to_owned(), Value::Null),
            (None, Some(data)) => {
                (data["decision"].as_str().ok_or_else(wrong)?.to_owned(), data.clone())
            }
            _ => return Err(wrong()),
        };
        let request = match &data["request_id"] {
            Value::Null => None,
            // Numbers of the other binding are floating-point; a request has at most 53 bits.
            id => Some(whole(id).ok_or_else(wrong)?),
        };
        let approval = match &*word {
            "allow" => Approval::Allow,
            "deny" => {
                let reason = data["reason"].as_str().unwrap_or("the other agent denied this call");
                if reason.chars().count() > LONGEST_REASON {
                    return Err(RpcError::params("message: `reason`: at most 4096 characters"));
                }
                Approval::Deny(reason.to_owned())
            }
            _ => return Err(wrong()),
        };
        Ok(Decision { request, approval })
    }
}

/// Returns a whole number, also if it was written as `5.0` or as text.
fn whole(value: &Value) -> Option<u64> {
    const MOST: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.as_u64().or_else(|| {
            let number = number.as_f64()?;
            let fits = number.fract() == 0.0 && (0.0..=MOST).contains(&number);
            fits.then_some(number as u64)
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn message(mut value: Value) -> Message {
        value["messageId"] = "m".into();
        value["role"] = "ROLE_USER".into();
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn decision_is_explicit() {
        for (part, allowed) in [
            (json!({"text": " allow "}), Some(true)),
            (json!({"text": "deny"}), Some(false)),
            (json!({"data": {"decision": "allow", "request_id": 5.0}}), Some(true)),
            (json!({"data": {"decision": "deny", "reason": "no", "request_id": "5"}}), Some(false)),
            (json!({"text": "please allow it"}), None),
            (json!({"text": "yes"}), None),
            (json!({"data": {"decision": "maybe"}}), None),
            (json!({"data": {"decision": "allow", "request_id": 5.5}}), None),
            (json!({"data": {"decision": "allow", "request_id": -1}}), None),
        ] {
            let decision = message(json!({"parts": [part.clone()]})).decision();
            let read = decision.ok().map(|decision| decision.approval == Approval::Allow);
            assert_eq!(read, allowed, "{part}");
        }
        // Two parts could contradict each other.
        let two = json!({"parts": [{"text": "allow"}, {"text": "deny"}]});
        assert!(message(two).decision().is_err());
    }

    #[test]
    fn task_joins_text_and_data() {
        let parts = json!({"parts": [{"text": "Sum"}, {"data": {"a": 1}}, {"text": "them."}]});
        assert_eq!(message(parts).task(), "Sum\n{\"a\":1}\nthem.");
    }

    #[test]
    fn files_are_refused() {
        let file = message(json!({"parts": [{"url": "https://x.example/a"}]}));
        assert_eq!(file.check().unwrap_err().code, -32005);
    }
}
