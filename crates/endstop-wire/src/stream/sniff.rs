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

use super::members::members;
use crate::dialect::WireFormat;
use crate::stream::eventstream;
use std::borrow::Cow;
use std::ops::ControlFlow;

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
struct Fields<'a>(Vec<(Cow<'a, [u8]>, &'a [u8])>);

impl<'a> Fields<'a> {
    fn get(&self, name: &str) -> Option<&'a [u8]> {
        // The last one, as in a map.
        self.0.iter().rev().find(|(field, _)| **field == *name.as_bytes()).map(|(_, value)| *value)
    }

    fn contains_key(&self, name: &str) -> bool {
        self.0.iter().any(|(field, _)| **field == *name.as_bytes())
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    /// Splits the object at the beginning of `bytes` into its fields, and returns its length. After a field
    /// that decides, nothing is read.
    fn split(bytes: &'a [u8]) -> Option<(Fields<'a>, usize)> {
        let mut fields = Vec::with_capacity(8);
        let mut readable = true;
        let length = members(bytes, |name, value| {
            let Some(name) = unescaped(&bytes[name]) else {
                readable = false;
                return ControlFlow::Continue(());
            };
            let decides = *name == *b"object" && is_whole_response(&bytes[value.clone()]);
            fields.push((name, &bytes[value]));
            if decides { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        readable.then_some((Fields(fields), length))
    }
}

/// `true` for the values of `object` that only a whole response of OpenAI has. The rest of it is most of the
/// body, and its decoder reads it anyway.
fn is_whole_response(object: &[u8]) -> bool {
    matches!(object, br#""chat.completion""# | br#""response""#)
}

/// Returns the content of a string with quotes, copied only if it has escapes.
fn unescaped(string: &[u8]) -> Option<Cow<'_, [u8]>> {
    let content = string.get(1..string.len().checked_sub(1)?)?;
    // Names are short, so that a vectorised search costs more than it saves.
    if !content.contains(&b'\\') {
        return Some(Cow::Borrowed(content));
    }
    serde_json::from_slice::<String>(string).ok().map(|text| Cow::Owned(text.into_bytes()))
}

/// Returns the formats in which an object with these fields occurs, or none if the fields are not
/// specific.
fn of(fields: &Fields<'_>) -> &'static [WireFormat] {
    let has = |name: &str| fields.contains_key(name);
    let text = |name: &str| {
        // A value is a string if one begins it, because its end was found by the same rule.
        let content =
            fields.get(name).filter(|value| value.starts_with(b"\"")).and_then(unescaped)?;
        match content {
            Cow::Borrowed(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
            Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
        }
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
fn of_error(error: &[u8]) -> &'static [WireFormat] {
    let Some((fields, _)) = Fields::split(error) else { return &[] };
    let number = fields.get("code").and_then(|code| std::str::from_utf8(code).ok());
    let number = number.is_some_and(|code| code.parse::<u16>().is_ok());
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
        if rest.is_empty() {
            return;
        }
        let Some((fields, length)) = Fields::split(rest) else { return };
        each(&fields);
        rest = &rest[length..];
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
        let name = if kind == "chunk" { "bytes" } else { kind };
        each(&Fields(vec![(Cow::Borrowed(name.as_bytes()), message.payload)]));
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

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
    fn broken_value_leaves_the_format() {
        // The decoder names the place that is broken; without a format nothing would.
        assert_eq!(formats(br#"{"choices":[nothing],"id":1e}"#), [WireFormat::OpenAiChat]);
        assert_eq!(formats(b"{\"choices\":[\"\xff\"]}"), [WireFormat::OpenAiChat]);
        assert!(formats(br#"{"choices":[}"#).is_empty());
        assert!(formats(br#"{"choices" []}"#).is_empty());
        assert!(formats(br#"{"choices":[] "id":1}"#).is_empty());
    }

    #[test]
    fn whole_response_is_recognised_by_its_first_fields() {
        for (object, is) in [
            ("chat.completion", &[WireFormat::OpenAiChat][..]),
            ("response", &[WireFormat::OpenAiResponses]),
            // The last chunk of Bedrock names another format.
            ("chat.completion.chunk", &[]),
        ] {
            let cut = format!(r#"{{"id":"1","object":"{object}","choices":[{{"mess"#);
            assert_eq!(formats(cut.as_bytes()), is, "{cut}");
        }
        let chunk = br#"{"object":"chat.completion.chunk","amazon-bedrock-invocationMetrics":{}}"#;
        assert_eq!(formats(chunk), [WireFormat::BedrockInvoke]);
    }

    #[test]
    fn escaped_names_are_names() {
        assert_eq!(formats(br#"{"\u0063hoices" : [ ] }"#), [WireFormat::OpenAiChat]);
        assert_eq!(formats(br#"{"object":"chat\u002ecompletion"}"#), [WireFormat::OpenAiChat]);
    }

    proptest! {
        #[test]
        fn fields_are_those_of_the_parser(
            fields in proptest::collection::vec((".{0,6}", ".{0,6}", 0_u8..4), 0..8),
            pretty in any::<bool>(),
        ) {
            let mut object = Map::new();
            for (name, text, kind) in fields {
                let value = match kind {
                    0 => Value::from(text),
                    1 => json!([text, {"}": "]"}, -1.5e3]),
                    2 => json!({name.clone(): [text], "": null}),
                    _ => Value::from(text.len()),
                };
                object.insert(name, value);
            }
            let text = if pretty { serde_json::to_string_pretty(&object) } else { serde_json::to_string(&object) };
            let text = format!(" {} , ", text.unwrap());
            let (split, length) = Fields::split(text.as_bytes()).unwrap();
            prop_assert_eq!(length, text.len() - 3);
            let back: Map<String, Value> = split.0.iter().map(|(name, value)| {
                (String::from_utf8(name.to_vec()).unwrap(), serde_json::from_slice(value).unwrap())
            }).collect();
            prop_assert_eq!(back, object);
            // Without its end there are no fields.
            for end in 0..length {
                prop_assert!(Fields::split(&text.as_bytes()[..end]).is_none());
            }
        }

        #[test]
        fn any_bytes_are_split_or_not(bytes in r#"[{}\[\]",:\\ a1]{0,40}"#) {
            let _ = formats(bytes.as_bytes());
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
