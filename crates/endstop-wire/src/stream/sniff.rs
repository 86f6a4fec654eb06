//! Format detection: recognises the wire format of a response by its body.
//!
//! ```
//! use endstop_wire::dialect::WireFormat;
//! use endstop_wire::stream::sniff::formats;
//! let body = br#"{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}"#;
//! assert_eq!(formats(body), [WireFormat::OpenAiChat]);
//! assert_eq!(formats(b"data: {\"type\":\"message_start\"}\n\n"), [WireFormat::Anthropic]);
//! assert!(formats(b"<html>").is_empty());
//! ```
//!
//! Only field names and a few values of the first events are read, so that text written by a model
//! cannot influence the result.

use crate::dialect::WireFormat;
use crate::stream::eventstream;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// Maximum number of a stream's objects that are examined.
const MOST: usize = 32;

/// Families that share OpenAI's error shape, which many servers copy.
const OPENAI: &[WireFormat] = &[WireFormat::OpenAiChat, WireFormat::OpenAiResponses];

/// Returns the formats that a body may have: one if it is certain, several if the evidence fits all
/// of them, none if nothing was recognised.
pub fn formats(body: &[u8]) -> Vec<WireFormat> {
    let mut found: Option<Vec<WireFormat>> = None;
    each_object(body, &mut |fields| {
        let may_be = of(fields);
        if may_be.is_empty() {
            return;
        }
        match &mut found {
            None => found = Some(may_be.to_vec()),
            Some(found) => {
                let both: Vec<WireFormat> =
                    found.iter().copied().filter(|one| may_be.contains(one)).collect();
                // Contradicting events leave the format open.
                *found = if both.is_empty() { [&found[..], may_be].concat() } else { both };
            }
        }
    });
    found.unwrap_or_default()
}

/// Unparsed fields of an object. A list, because the few fields that are looked up cost less to find
/// in it than to hash.
struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Fields<'a> {
    fn get(&self, name: &str) -> Option<&'a RawValue> {
        // The last one, as in a map.
        self.0.iter().rev().find(|(field, _)| field == name).map(|(_, value)| *value)
    }

    fn contains_key(&self, name: &str) -> bool {
        self.0.iter().any(|(field, _)| field == name)
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Fields<'a>, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Fields<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Vec::with_capacity(8);
                while let Some(Name(name)) = map.next_key()? {
                    fields.push((name, map.next_value()?));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Visit)
    }
}

/// The name of a field, copied only if it has escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// Returns the formats in which an object with these fields occurs, or none if the fields are not
/// specific.
fn of(fields: &Fields<'_>) -> &'static [WireFormat] {
    let has = |name: &str| fields.contains_key(name);
    let text = |name: &str| {
        fields.get(name).and_then(|value| serde_json::from_str::<Cow<'_, str>>(value.get()).ok())
    };
    // Check the most specific fields first, because general ones such as `choices` occur in several
    // formats.
    if has("amazon-bedrock-invocationMetrics") || has("bytes") && fields.len() <= 2 {
        return &[WireFormat::BedrockInvoke];
    }
    match text("object").as_deref() {
        Some("response") => return &[WireFormat::OpenAiResponses],
        Some("chat.completion" | "chat.completion.chunk") => return &[WireFormat::OpenAiChat],
        _ => {}
    }
    if let Some(kind) = text("type") {
        match &*kind {
            "message_start"
            | "message_delta"
            | "message_stop"
            | "content_block_start"
            | "content_block_delta"
            | "content_block_stop" => return &[WireFormat::Anthropic],
            "message" if has("content") && has("role") => return &[WireFormat::Anthropic],
            "message-start" | "message-end" | "content-start" | "content-delta" | "content-end"
            | "tool-plan-delta" | "tool-call-start" | "tool-call-delta" | "tool-call-end"
            | "citation-start" | "citation-end" => return &[WireFormat::CohereV2],
            kind if kind.starts_with("response.") => return &[WireFormat::OpenAiResponses],
            "error" if has("sequence_number") => return &[WireFormat::OpenAiResponses],
            "error" if has("error") => return &[WireFormat::Anthropic],
            _ => {}
        }
    }
    if has("choices") {
        return &[WireFormat::OpenAiChat];
    }
    if has("candidates") || has("promptFeedback") || has("usageMetadata") {
        return &[WireFormat::Gemini];
    }
    if has("event_type") || has("generation_id") && has("text") {
        return &[WireFormat::CohereV1];
    }
    if has("done") && (has("message") || has("created_at")) {
        return &[WireFormat::Ollama];
    }
    let of_converse = ["messageStart", "contentBlockStart", "contentBlockDelta", "messageStop"];
    if has("stopReason") && has("output") || of_converse.iter().any(|name| has(name)) {
        return &[WireFormat::BedrockConverse];
    }
    if has("message") && has("finish_reason") {
        return &[WireFormat::CohereV2];
    }
    if has("generation") && has("stop_reason") || has("inputTextTokenCount") {
        return &[WireFormat::BedrockInvoke];
    }
    fields.get("error").map_or(&[], |error| of_error(error))
}

/// Returns the formats whose errors have this shape.
fn of_error(error: &RawValue) -> &'static [WireFormat] {
    let Ok(fields) = serde_json::from_str::<Fields<'_>>(error.get()) else { return &[] };
    let number = fields.get("code").is_some_and(|code| code.get().parse::<u16>().is_ok());
    if number && fields.contains_key("status") {
        return &[WireFormat::Gemini];
    }
    let openai = ["type", "param", "code"].iter().all(|name| fields.contains_key(name));
    if openai { OPENAI } else { &[] }
}

/// Calls `each` for every object of a body: a single one, one per line, elements of an array,
/// server-sent events or events of binary frames.
fn each_object(body: &[u8], each: &mut dyn FnMut(&Fields<'_>)) {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii_start();
    match body.first() {
        Some(b'{') => objects(body, each),
        Some(b'[') => objects(&body[1..], each),
        // The first letter of `data`, `event`, `id`, `retry` or of a comment.
        Some(b'd' | b'e' | b'i' | b'r' | b':') => {
            let events = body.split(|byte| matches!(byte, b'\n' | b'\r'));
            for line in events.filter_map(|line| line.strip_prefix(b"data:")).take(MOST) {
                objects(line, each);
            }
        }
        Some(_) => frames(body, each),
        None => {}
    }
}

/// Handles consecutive objects, with or without commas between them.
fn objects(mut rest: &[u8], each: &mut dyn FnMut(&Fields<'_>)) {
    for _ in 0..MOST {
        rest = rest.trim_ascii_start();
        rest = rest.strip_prefix(b",").unwrap_or(rest).trim_ascii_start();
        let mut stream = serde_json::Deserializer::from_slice(rest).into_iter::<Fields<'_>>();
        let Some(Ok(fields)) = stream.next() else { return };
        each(&fields);
        rest = &rest[stream.byte_offset()..];
    }
}

/// Handles the events of binary frames, which only Bedrock sends.
fn frames(body: &[u8], each: &mut dyn FnMut(&Fields<'_>)) {
    let mut left = MOST;
    // Ignore the error: everything before a broken frame was examined.
    let _ = eventstream::EventStreamDecoder::new().push(body, &mut |message| {
        if left == 0 {
            return;
        }
        left -= 1;
        // The event type is a header here, but a field name in Bedrock's unpacked streams.
        let Some(kind) = message.text(":event-type") else { return };
        if let Ok(payload) = serde_json::from_slice::<&RawValue>(message.payload) {
            let name = if kind == "chunk" { "bytes" } else { kind };
            each(&Fields(vec![(Cow::Borrowed(name), payload)]));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_is_found_by_fields() {
        for (body, is) in [
            (r#"{"choices":[]}"#, &[WireFormat::OpenAiChat][..]),
            (r#"{"object":"response","output":[]}"#, &[WireFormat::OpenAiResponses]),
            (r#"{"type":"message","role":"assistant","content":[]}"#, &[WireFormat::Anthropic]),
            (r#"[{"candidates":[]},{"usageMetadata":{}}"#, &[WireFormat::Gemini]),
            (
                "{\"done\":false,\"message\":{}}\n{\"done\":true,\"message\":{}}",
                &[WireFormat::Ollama],
            ),
            (
                r#"{"output":{"message":{}},"stopReason":"end_turn"}"#,
                &[WireFormat::BedrockConverse],
            ),
            (r#"{"error":{"message":"m","type":"t","param":null,"code":null}}"#, OPENAI),
            (": ping\n\nevent: x\ndata: {\"type\":\"ping\"}\n\ndata: [DONE]\n", &[]),
            ("data: {\"type\":\"response.created\"}\r\n\r\n", &[WireFormat::OpenAiResponses]),
            (r#"{"message":"no"}"#, &[]),
            (r#"{"choi"#, &[]),
            ("null", &[]),
            ("", &[]),
        ] {
            assert_eq!(formats(body.as_bytes()), is, "{body}");
        }
    }

    #[test]
    fn text_of_model_is_ignored() {
        let text = r#"{\"choices\":[]} data: {\"type\":\"message_start\"}"#;
        let body = format!(r#"{{"text":"{text}","error":{{"message":"{text}"}}}}"#);
        assert!(formats(body.as_bytes()).is_empty());
        let body = format!(r#"{{"candidates":[{{"text":"{text}"}}]}}"#);
        assert_eq!(formats(body.as_bytes()), [WireFormat::Gemini]);
    }

    #[test]
    fn contradicting_events_leave_it_open() {
        let body = b"{\"choices\":[]}\n{\"candidates\":[]}";
        assert_eq!(formats(body), [WireFormat::OpenAiChat, WireFormat::Gemini]);
    }
}
