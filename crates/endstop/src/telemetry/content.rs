//! Messages as the attributes of a span have them: JSON of the convention, without secrets.
//!
//! ```text
//! [{"role":"user","parts":[{"type":"text","content":"Fix it."}]}]
//! ```

use endstop_core::{Message, Part, Role, ToolCall, ToolResult};
use endstop_wire::redact::KnownKeys;
use serde_json::{Value, json};

/// The most bytes of text in an attribute. Two thousand calls may wait for the exporter with two of them each.
const MOST: usize = 32 << 10;

/// Returns the messages of a request in their order: the newest ones, as far as there is room.
pub(super) fn input<'a>(
    newest_first: impl Iterator<Item = &'a Message>,
    keys: &KnownKeys,
) -> String {
    let mut room = MOST;
    let mut messages = Vec::new();
    for message in newest_first {
        if room == 0 {
            let omitted = json!({"type": "endstop.omitted", "content": "earlier messages"});
            messages.push(json!({"role": "system", "parts": [omitted]}));
            break;
        }
        let role = match message.role {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        };
        let parts = parts(&message.parts, keys, &mut room);
        messages.push(json!({"role": role, "parts": parts}));
    }
    messages.reverse();
    Value::Array(messages).to_string()
}

/// Returns the message of an answer.
pub(super) fn output(content: &[Part], finish: &str, keys: &KnownKeys) -> String {
    let mut room = MOST;
    let parts = parts(content, keys, &mut room);
    json!([{"role": "assistant", "parts": parts, "finish_reason": finish}]).to_string()
}

fn parts(content: &[Part], keys: &KnownKeys, room: &mut usize) -> Vec<Value> {
    content.iter().filter_map(|part| one(part, keys, room)).collect()
}

fn one(part: &Part, keys: &KnownKeys, room: &mut usize) -> Option<Value> {
    let mut text = |text: &str| {
        // Before it is cut: the rest of a secret would not be found.
        let mut clean = keys.out_of_text(text).into_owned();
        if clean.len() > *room {
            let end = (0..=*room).rev().find(|at| clean.is_char_boundary(*at)).unwrap_or(0);
            clean.truncate(end);
            clean.push('…');
        }
        *room = room.saturating_sub(clean.len());
        clean
    };
    Some(match part {
        Part::Text { text: content } | Part::Refusal { text: content } => {
            json!({"type": "text", "content": text(content)})
        }
        Part::Reasoning { text: content } => json!({"type": "reasoning", "content": text(content)}),
        Part::ToolCall(ToolCall { id, name, arguments }) => {
            let arguments = text(arguments);
            // As a value if it is one, which also needs that it was not cut.
            let arguments = serde_json::from_str(&arguments).unwrap_or(Value::String(arguments));
            json!({"type": "tool_call", "id": text(id), "name": text(name), "arguments": arguments})
        }
        Part::ToolResult(ToolResult { call_id, content, .. }) => {
            json!({"type": "tool_call_response", "id": text(call_id), "response": text(content)})
        }
        Part::Image(_) => json!({"type": "blob", "modality": "image"}),
        Part::Document(_) => json!({"type": "blob", "modality": "document"}),
        // Only its provider can read it. The type grows, and a part without a name here is not shown.
        _ => return None,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::{MOST, input, output};
    use endstop_core::{Message, MessageId, Part, Role, ToolCall};
    use endstop_wire::redact::KnownKeys;
    use serde_json::{Value, json};

    const KEY: &str = "sk-\"Zk04dQ71\\mmPx8Lw2";

    #[test]
    fn content_has_no_secret() {
        let keys = KnownKeys::new([KEY]);
        let messages = [
            Message::text(MessageId(1), Role::System, "Be brief."),
            Message::text(MessageId(2), Role::User, format!("The key is {KEY}.")),
        ];
        let shown: Value = serde_json::from_str(&input(messages.iter().rev(), &keys)).unwrap();
        assert_eq!(shown[0]["role"], "system");
        assert_eq!(shown[1]["parts"][0]["content"], "The key is [redacted].");
        let arguments = json!({"path": "a"}).to_string();
        let call = Part::ToolCall(ToolCall { id: "c1".into(), name: "read".into(), arguments });
        let shown: Value = serde_json::from_str(&output(&[call], "tool_use", &keys)).unwrap();
        assert_eq!(
            shown,
            json!([{"role": "assistant", "finish_reason": "tool_use", "parts": [
                {"type": "tool_call", "id": "c1", "name": "read", "arguments": {"path": "a"}}
            ]}])
        );
    }

    #[test]
    fn long_content_keeps_the_newest_messages() {
        let keys = KnownKeys::default();
        let long = "é".repeat(MOST / 3);
        let messages: Vec<Message> =
            (1..9).map(|id| Message::text(MessageId(id), Role::User, long.clone())).collect();
        let shown = input(messages.iter().rev(), &keys);
        assert!(shown.len() < MOST + 1000, "{}", shown.len());
        let shown: Value = serde_json::from_str(&shown).unwrap();
        let shown = shown.as_array().unwrap();
        assert_eq!(shown[0]["parts"][0]["type"], "endstop.omitted");
        assert_eq!(shown.last().unwrap()["parts"][0]["content"], long.as_str());
        assert!(shown[1]["parts"][0]["content"].as_str().unwrap().ends_with('…'));
    }
}
