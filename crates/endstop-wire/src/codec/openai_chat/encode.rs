//! OpenAI Chat encoder: turns a conversation into a Chat Completions request.
//!
//! A strict server receives only fields that it knows: a refusal is sent as text, and the fields
//! that other servers require back are omitted. It receives no assistant message without text and
//! calls, and a blank assistant message is inserted between a tool result and a user message.

use crate::caching::CacheKey;
use crate::codec::request::body::{
    Fields, Kept, document_name, document_url, image_url, open_message, plain_message,
};
use crate::codec::request::{Encode, RequestSpec};
use crate::dialect::{CapField, Dialect, WireFormat};
use crate::json;
use crate::media::MediaSupport;
use endstop_core::{Message, Part, Role, ToolCall};
use std::borrow::Cow;

/// Encodes the requests of one conversation.
#[derive(Clone, Debug)]
pub(crate) struct Encoder {
    kept: Kept,
    way: Way,
    media: MediaSupport,
    /// Role of the last encoded message.
    last: Option<Role>,
    system: Option<String>,
    /// Name of the cap's field, unless the spec's extra fields set it.
    cap_key: Option<&'static str>,
    cap: Option<u64>,
    cache_key: Option<CacheKey>,
    /// All other fields and the closing brace.
    tail: Vec<u8>,
}

/// Dialect settings that affect how messages are written.
#[derive(Clone, Copy, Debug)]
struct Way {
    strict: bool,
    call_id_length: Option<usize>,
}

impl Encoder {
    /// Creates an encoder for this dialect.
    pub(crate) fn new(dialect: &Dialect, spec: &RequestSpec) -> Encoder {
        let cap_name = match dialect.cap_field {
            CapField::MaxTokens => "max_tokens",
            CapField::MaxCompletionTokens => "max_completion_tokens",
        };
        Encoder {
            kept: Kept::default(),
            way: Way { strict: dialect.strict, call_id_length: dialect.call_id_length },
            media: MediaSupport::of(dialect, &spec.model),
            last: None,
            system: spec.system.clone(),
            cap_key: (!spec.extra.contains_key(cap_name)).then_some(cap_name),
            cap: spec.max_output_tokens,
            cache_key: spec.cache_key(),
            tail: tail(spec, dialect),
        }
    }
}

impl Encode for Encoder {
    fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.kept.out
    }

    fn body(&mut self, messages: &[Message], epoch: u64, output_cap: Option<u64>) -> &[u8] {
        let from = self.kept.resume(messages, epoch);
        let out = &mut self.kept.out;
        if from == 0 {
            self.last = None;
            self.cache_key.iter_mut().for_each(CacheKey::clear);
            out.extend_from_slice(b"{\"messages\":[");
            if let Some(system) = &self.system {
                plain_message(out, "system", system);
            }
        }
        for m in &messages[from..] {
            let begin = self.kept.out.len();
            let m = self.media.lower(m);
            if self.way.strict {
                self.strictly(&m);
            } else {
                message(&mut self.kept.out, &m, self.way);
            }
            if let Some(key) = &mut self.cache_key {
                key.read(m.role, &self.kept.out[begin..]);
            }
        }
        self.kept.settle(messages);
        let out = &mut self.kept.out;
        out.push(b']');
        if let (Some(key), Some(cap)) = (self.cap_key, output_cap.or(self.cap)) {
            json::key(out, key);
            out.extend_from_slice(cap.to_string().as_bytes());
        }
        if let Some(key) = self.cache_key.as_ref().and_then(CacheKey::get) {
            json::key(out, "prompt_cache_key");
            json::string(out, key);
        }
        out.extend_from_slice(&self.tail);
        &self.kept.out
    }
}

impl Encoder {
    /// Writes a message for a strict server, which accepts system messages only at the start. A
    /// later system message is sent as a user message.
    fn strictly(&mut self, m: &Message) {
        let out = &mut self.kept.out;
        let blank = !m.parts.iter().any(|part| match part {
            Part::Text { text } => !text.trim().is_empty(),
            Part::Refusal { text } => m.role == Role::Assistant && !text.trim().is_empty(),
            Part::ToolCall(_) => m.role == Role::Assistant,
            Part::Image(_) | Part::Document(_) => m.role != Role::Assistant,
            _ => false,
        });
        if m.role == Role::Assistant {
            // Mistral rejects an assistant message with neither text nor calls.
            if !blank {
                assistant(out, m, self.way);
                self.last = Some(Role::Assistant);
            }
            return;
        }
        if m.parts.iter().any(|p| matches!(p, Part::ToolResult(_))) {
            tool_results_of(out, m, self.way);
            self.last = Some(Role::Tool);
        }
        if blank {
            return;
        }
        // Mistral rejects a user message directly after a tool result, so a blank assistant message
        // goes between them.
        if self.last == Some(Role::Tool) {
            open_message(out, "assistant");
            out.extend_from_slice(b",\"content\":\" \"}");
        }
        let instructs = m.role == Role::System && matches!(self.last, None | Some(Role::System));
        said(out, if instructs { "system" } else { "user" }, m);
        self.last = Some(if instructs { Role::System } else { Role::User });
    }
}

fn tail(spec: &RequestSpec, dialect: &Dialect) -> Vec<u8> {
    let mut fields = Fields::new(spec);
    fields.field("model", |out| json::string(out, &spec.model));
    fields.function_tools(&spec.tools);
    fields.sampling(spec, "stop");
    if let Some(schema) = &spec.output_schema {
        fields.field("response_format", |out| {
            out.extend_from_slice(b"{\"type\":\"json_schema\",\"json_schema\":{");
            schema.fields(out);
            out.extend_from_slice(b"}}");
        });
    }
    if spec.stream {
        fields.field("stream", |out| out.extend_from_slice(b"true"));
    }
    // Without this option most servers omit the usage of a stream.
    if spec.stream && !dialect.strict {
        fields.field("stream_options", |out| {
            out.extend_from_slice(b"{\"include_usage\":true}");
        });
    }
    fields.finish()
}

fn message(out: &mut Vec<u8>, m: &Message, way: Way) {
    match m.role {
        Role::System => plain(out, "system", m, way),
        Role::User => plain(out, "user", m, way),
        Role::Assistant => assistant(out, m, way),
        Role::Tool => tool_results(out, m, way),
    }
}

/// Writes a message of any role except the assistant.
fn plain(out: &mut Vec<u8>, role: &str, m: &Message, way: Way) {
    // Results inside a user message come first, because they answer the previous turn.
    tool_results_of(out, m, way);
    let is_said = |p: &Part| is_content(p) || matches!(p, Part::Refusal { .. });
    if !m.parts.iter().any(is_said) {
        if !m.parts.iter().any(|p| matches!(p, Part::ToolResult(_))) {
            open_message(out, role);
            out.extend_from_slice(b",\"content\":\"\"}");
        }
        return;
    }
    said(out, role, m);
}

/// `true` for a part that a user can say.
fn is_content(part: &Part) -> bool {
    matches!(part, Part::Text { .. } | Part::Image(_) | Part::Document(_))
}

/// Writes the content as a string, or as a list of parts if it contains images or documents.
fn said(out: &mut Vec<u8>, role: &str, m: &Message) {
    open_message(out, role);
    json::key(out, "content");
    if !m.parts.iter().any(|p| matches!(p, Part::Image(_) | Part::Document(_))) {
        text(out, m);
        out.push(b'}');
        return;
    }
    out.push(b'[');
    for part in &m.parts {
        match part {
            Part::Text { text } | Part::Refusal { text } if !text.is_empty() => {
                json::comma(out);
                out.extend_from_slice(b"{\"type\":\"text\",\"text\":");
                json::string(out, text);
                out.push(b'}');
            }
            Part::Image(image) => {
                json::comma(out);
                out.extend_from_slice(b"{\"type\":\"image_url\",\"image_url\":{\"url\":");
                image_url(out, image);
                out.extend_from_slice(b"}}");
            }
            Part::Document(document) => {
                json::comma(out);
                out.extend_from_slice(b"{\"type\":\"file\",\"file\":{\"filename\":");
                json::string(out, document_name(document));
                json::key(out, "file_data");
                document_url(out, document);
                out.extend_from_slice(b"}}");
            }
            _ => {}
        }
    }
    out.extend_from_slice(b"]}");
}

/// Writes the text parts as one string, without allocating the joined text.
fn text(out: &mut Vec<u8>, m: &Message) {
    out.push(b'"');
    for part in &m.parts {
        if let Part::Text { text } = part {
            json::escaped(out, text);
        }
    }
    out.push(b'"');
}

fn assistant(out: &mut Vec<u8>, m: &Message, way: Way) {
    let mut has_text = false;
    let mut has_calls = false;
    let mut refusal = None;
    for part in &m.parts {
        match part {
            Part::Text { text } => has_text |= !text.is_empty(),
            Part::ToolCall(_) => has_calls = true,
            Part::Refusal { text } => refusal = Some(text),
            _ => {}
        }
    }
    open_message(out, "assistant");
    json::key(out, "content");
    // Servers accept a null content only next to calls or a refusal.
    if has_text || !has_calls && refusal.is_none() {
        text(out, m);
    } else if let Some(refusal) = refusal.filter(|_| way.strict) {
        json::string(out, refusal);
    } else {
        out.extend_from_slice(b"null");
    }
    if let Some(refusal) = refusal.filter(|_| !way.strict) {
        json::key(out, "refusal");
        json::string(out, refusal);
    }
    if has_calls {
        json::key(out, "tool_calls");
        out.push(b'[');
        for part in &m.parts {
            if let Part::ToolCall(call) = part {
                json::comma(out);
                tool_call(out, call, way);
            }
        }
        out.push(b']');
    }
    for part in &m.parts {
        if let Part::Opaque { api, json } = part {
            if api == WireFormat::OpenAiChat.as_str() && !way.strict {
                opaque_fields(out, json);
            }
        }
    }
    out.push(b'}');
}

/// Adds the fields of an opaque object to the message.
fn opaque_fields(out: &mut Vec<u8>, json: &str) {
    let inside = json.trim();
    let inside = inside.strip_prefix('{').and_then(|s| s.strip_suffix('}'));
    if let Some(inside) = inside.map(str::trim).filter(|s| !s.is_empty()) {
        // The object comes from a journal that may have been edited, so check it before splicing
        // raw JSON.
        if json::is_object(json) {
            out.push(b',');
            out.extend_from_slice(inside.as_bytes());
        }
    }
}

fn tool_call(out: &mut Vec<u8>, call: &ToolCall, way: Way) {
    out.extend_from_slice(b"{\"id\":");
    json::string(out, &call_id(&call.id, way.call_id_length));
    out.extend_from_slice(b",\"type\":\"function\",\"function\":{\"name\":");
    json::called(out, &call.name);
    out.extend_from_slice(b",\"arguments\":");
    json::arguments_text(out, &call.arguments);
    out.extend_from_slice(b"}}");
}

/// Writes one tool message per result. Other parts of the message follow as a user message.
fn tool_results(out: &mut Vec<u8>, m: &Message, way: Way) {
    tool_results_of(out, m, way);
    if m.parts.iter().any(is_content) {
        let rest = m.parts.iter().filter(|p| !matches!(p, Part::ToolResult(_))).cloned().collect();
        let rest = Message::new(m.id, Role::User, rest);
        plain(out, "user", &rest, way);
    }
}

fn tool_results_of(out: &mut Vec<u8>, m: &Message, way: Way) {
    for part in &m.parts {
        if let Part::ToolResult(result) = part {
            open_message(out, "tool");
            json::key(out, "tool_call_id");
            json::string(out, &call_id(&result.call_id, way.call_id_length));
            json::key(out, "content");
            json::string(out, &result.content);
            out.push(b'}');
        }
    }
}

/// Returns the id, or a replacement of `length` letters and digits derived from it. The result is
/// deterministic, because a call and its result must agree even if the id is from another server or
/// was generated here.
fn call_id(id: &str, length: Option<usize>) -> Cow<'_, str> {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let Some(length) = length else {
        return Cow::Borrowed(id);
    };
    if id.len() == length && id.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return Cow::Borrowed(id);
    }
    // FNV-1a with 128 bits, so that all characters of the replacement depend on the whole id.
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for byte in id.bytes() {
        hash = (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
    let mut made = String::with_capacity(length);
    for _ in 0..length {
        made.push(char::from(DIGITS[(hash % 62) as usize]));
        hash /= 62;
    }
    Cow::Owned(made)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn derived_ids_are_valid_and_distinct() {
        let ids: Vec<String> = (0..10_000).map(|n| format!("call_turn_{n}")).collect();
        let made: HashSet<String> =
            ids.iter().map(|id| call_id(id, Some(9)).into_owned()).collect();
        assert_eq!(made.len(), ids.len());
        assert!(made.iter().all(|id| id.len() == 9 && call_id(id, Some(9)) == id.as_str()));
        for id in ["", "null", "ten letter", "D681PevK-", "é12345678", "D681PevKs1"] {
            let made = call_id(id, Some(9));
            assert!(made.len() == 9 && made.bytes().all(|b| b.is_ascii_alphanumeric()), "{made}");
            assert_eq!(made, call_id(id, Some(9)));
        }
    }
}
