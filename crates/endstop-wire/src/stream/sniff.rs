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

    fn has_any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.contains_key(name))
    }

    /// Returns the fields of an object in this field.
    fn nested(&self, name: &str) -> Option<Fields<'a>> {
        self.get(name).and_then(Fields::split).map(|(fields, _)| fields)
    }

    /// Returns a field that is a string.
    fn text(&self, name: &str) -> Option<Cow<'a, str>> {
        // A value is a string if one begins it, because its end was found by the same rule.
        let content =
            self.get(name).filter(|value| value.starts_with(b"\"")).and_then(unescaped)?;
        match content {
            Cow::Borrowed(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
            Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
        }
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
/// specific. A field that responses of other formats, parts of responses or other documents have as well
/// counts only with its values or with further fields.
fn of(fields: &Fields<'_>) -> &'static [WireFormat] {
    let has = |name: &str| fields.contains_key(name);
    // The first byte tells the type of a value, because its end was found by the same rule.
    let begins = |name: &str, first: &[u8]| fields.get(name).is_some_and(|v| v.starts_with(first));
    let is_object = |name: &str| begins(name, b"{");
    let is_string = |name: &str| begins(name, b"\"");
    // Check the most specific fields first, because general ones such as `choices` occur in several
    // formats.
    if has("amazon-bedrock-invocationMetrics") || is_packed_chunk(fields) {
        return &[WireFormat::BedrockInvoke];
    }
    match fields.text("object").as_deref() {
        Some("response") => return &[WireFormat::OpenAiResponses],
        Some("chat.completion" | "chat.completion.chunk") => return &[WireFormat::OpenAiChat],
        _ => {}
    }
    if let Some(kind) = fields.text("type") {
        match &*kind {
            "message_start"
            | "message_delta"
            | "message_stop"
            | "content_block_start"
            | "content_block_delta"
            | "content_block_stop" => return &[WireFormat::Anthropic],
            // Messages among the output of OpenAI Responses have neither.
            "message" if has("content") && (has("stop_reason") || has("model")) => {
                return &[WireFormat::Anthropic];
            }
            "message-start" | "message-end" | "content-start" | "content-delta" | "content-end"
            | "tool-plan-delta" | "tool-call-start" | "tool-call-delta" | "tool-call-end"
            | "citation-start" | "citation-end" => return &[WireFormat::CohereV2],
            kind if kind.starts_with("response.") => return &[WireFormat::OpenAiResponses],
            "error" if has("sequence_number") => return &[WireFormat::OpenAiResponses],
            "error" if is_object("error") => return &[WireFormat::Anthropic],
            _ => {}
        }
    }
    if fields.get("choices").is_some_and(are_choices) {
        return &[WireFormat::OpenAiChat];
    }
    let gemini_usage = ["promptTokenCount", "candidatesTokenCount", "totalTokenCount"];
    if begins("candidates", b"[")
        || is_object("promptFeedback")
        || fields.nested("usageMetadata").is_some_and(|usage| usage.has_any(&gemini_usage))
    {
        return &[WireFormat::Gemini];
    }
    if has("event_type") && has("is_finished") || has("generation_id") && has("text") {
        return &[WireFormat::CohereV1];
    }
    if (begins("done", b"true") || begins("done", b"false"))
        && is_string("model")
        && (is_object("message") || is_string("response"))
    {
        return &[WireFormat::Ollama];
    }
    let of_converse = ["messageStart", "contentBlockStart", "contentBlockDelta", "messageStop"];
    if is_string("stopReason") && is_object("output")
        || of_converse.iter().any(|name| is_object(name))
    {
        return &[WireFormat::BedrockConverse];
    }
    // In capitals: a choice of OpenAI has the same fields with other values.
    let capitals = |value: &str| value.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
    if is_object("message")
        && fields.text("finish_reason").is_some_and(|v| !v.is_empty() && capitals(&v))
    {
        return &[WireFormat::CohereV2];
    }
    if is_string("generation") && has("stop_reason") || has("inputTextTokenCount") {
        return &[WireFormat::BedrockInvoke];
    }
    fields.get("error").map_or(&[], |error| of_error(error))
}

/// `true` for a chunk of Bedrock's InvokeModel, whose bytes are an event in base64.
fn is_packed_chunk(fields: &Fields<'_>) -> bool {
    // `{` and a quotation mark or a space.
    let packed = |fields: &Fields<'_>| {
        fields.len() <= 2
            && fields.get("bytes").is_some_and(|v| v.starts_with(b"\"ey") || v.starts_with(b"\"ew"))
    };
    packed(fields) || fields.nested("chunk").is_some_and(|chunk| packed(&chunk))
}

/// `true` for the choices of a chat completion. Those of other APIs of OpenAI have their text outside of
/// a message.
fn are_choices(value: &[u8]) -> bool {
    let Some(first) = value.strip_prefix(b"[").map(<[u8]>::trim_ascii_start) else { return false };
    // An empty list, or one that the decoder reports as broken.
    let Some((choice, _)) = Fields::split(first) else { return true };
    choice.has_any(&["message", "delta"]) || !choice.contains_key("text")
}

/// Returns what a body is that is not a whole response: the name of the part that a program took out of
/// one, or of another object that is mistaken for one. `None` if it is not known.
///
/// ```
/// use endstop_wire::stream::sniff::part;
/// let choice = br#"{"index":0,"message":{"role":"assistant"},"finish_reason":"stop"}"#;
/// assert_eq!(part(choice), Some("a choice"));
/// assert_eq!(part(br#"{"hello":1}"#), None);
/// ```
pub fn part(body: &[u8]) -> Option<&'static str> {
    let mut found = None;
    each_object(body, &mut |fields| found = found.or_else(|| part_of(fields)));
    found
}

fn part_of(fields: &Fields<'_>) -> Option<&'static str> {
    let has = |names: &[&str]| names.iter().all(|name| fields.contains_key(name));
    let any = |names: &[&str]| fields.has_any(names);
    if any(&["response_metadata", "additional_kwargs"]) || has(&["lc", "kwargs"]) {
        return Some("a message of LangChain");
    }
    if any(&["message", "delta"]) && any(&["finish_reason", "index"]) {
        return Some("a choice");
    }
    if has(&["content"]) && any(&["finishReason", "finish_reason"]) {
        return Some("a candidate");
    }
    if has(&["messages"]) || has(&["contents"]) {
        return Some("a request");
    }
    if has(&["role"]) && any(&["content", "parts", "tool_calls"]) {
        return Some("a message");
    }
    let tokens = ["prompt_tokens", "input_tokens", "inputTokens", "promptTokenCount"];
    if any(&tokens) {
        return Some("token usage");
    }
    match fields.text("type").as_deref() {
        Some("text" | "output_text" | "thinking" | "reasoning") => Some("a block of content"),
        Some("tool_use" | "function" | "function_call" | "tool-call") => Some("a tool call"),
        _ => None,
    }
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
        each(&Fields(vec![(Cow::Borrowed(kind.as_bytes()), message.payload)]));
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
            (r#"{"type":"message","content":[],"stop_reason":null}"#, &[WireFormat::Anthropic]),
            (r#"[{"candidates":[]},{"usageMetadata":{}}"#, &[WireFormat::Gemini]),
            (r#"{"usageMetadata":{"totalTokenCount":3}}"#, &[WireFormat::Gemini]),
            (
                "{\"model\":\"m\",\"done\":false,\"message\":{}}\n{\"done\":true,\"message\":{}}",
                &[WireFormat::Ollama],
            ),
            (r#"{"message":{},"finish_reason":"MAX_TOKENS"}"#, &[WireFormat::CohereV2]),
            (r#"{"event_type":"stream-start","is_finished":false}"#, &[WireFormat::CohereV1]),
            (r#"{"bytes":"eyJ0eXBlIjoi","p":"abc"}"#, &[WireFormat::BedrockInvoke]),
            (r#"{"chunk":{"bytes":"eyJ0eXBlIjoi"}}"#, &[WireFormat::BedrockInvoke]),
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
    fn shared_fields_decide_nothing() {
        for body in [
            r#"{"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop","index":0}"#,
            r#"{"delta":{"content":"Hi"},"finish_reason":null,"index":0}"#,
            r#"{"role":"assistant","content":"Hi"}"#,
            r#"{"id":"msg_1","type":"message","role":"assistant","status":"completed","content":[]}"#,
            r#"{"content":"Hi","type":"ai","usage_metadata":{"input_tokens":1}}"#,
            r#"{"content":{"parts":[]},"finishReason":"STOP","index":0}"#,
            r#"{"usageMetadata":{"plan":"pro"}}"#,
            r#"{"candidates":{"a":1}}"#,
            r#"{"candidates":3}"#,
            r#"{"promptFeedback":"good"}"#,
            r#"{"choices":{"a":1}}"#,
            r#"{"object":"text_completion","choices":[{"text":"Hi","finish_reason":"stop"}]}"#,
            r#"{"bytes":"aGVsbG8="}"#,
            r#"{"bytes":12}"#,
            r#"{"chunk":"text"}"#,
            r#"{"event_type":"click"}"#,
            r#"{"done":true,"message":"all tasks are done"}"#,
            r#"{"done":false,"created_at":"2026-01-01","message":"buy milk"}"#,
            r#"{"done":"no","model":"m","message":{}}"#,
            r#"{"type":"error","error":"no"}"#,
            r#"{"stopReason":"endTurn","output":"text"}"#,
            r#"{"messageStop":true}"#,
            r#"{"message":"no","finish_reason":"STOP"}"#,
            r#"{"message":{},"finish_reason":""}"#,
            r#"{"generation":3,"stop_reason":"x"}"#,
        ] {
            assert_eq!(formats(body.as_bytes()), [], "{body}");
        }
    }

    #[test]
    fn part_of_a_response_is_named() {
        for (body, is) in [
            (r#"{"message":{},"finish_reason":"stop"}"#, Some("a choice")),
            (r#"[{"delta":{},"index":0}]"#, Some("a choice")),
            (r#"{"role":"assistant","content":"Hi"}"#, Some("a message")),
            (r#"{"role":"model","parts":[]}"#, Some("a message")),
            (r#"{"type":"message","role":"assistant","content":[]}"#, Some("a message")),
            (
                r#"{"content":"Hi","type":"ai","response_metadata":{}}"#,
                Some("a message of LangChain"),
            ),
            (r#"{"lc":1,"type":"constructor","kwargs":{}}"#, Some("a message of LangChain")),
            (r#"{"content":{"parts":[]},"finishReason":"STOP"}"#, Some("a candidate")),
            (r#"{"model":"m","messages":[]}"#, Some("a request")),
            (r#"{"contents":[]}"#, Some("a request")),
            (r#"{"prompt_tokens":1}"#, Some("token usage")),
            (r#"{"type":"text","text":"Hi"}"#, Some("a block of content")),
            (r#"{"type":"tool_use","name":"f"}"#, Some("a tool call")),
            (r#"{"text":"{\"role\":1,\"content\":1}"}"#, None),
            ("<html>", None),
            ("", None),
        ] {
            assert_eq!(part(body.as_bytes()), is, "{body}");
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
