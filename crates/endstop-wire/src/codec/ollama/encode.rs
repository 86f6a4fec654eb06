//! Ollama encoder: turns a conversation into an `/api/chat` request.
//!
//! Fields of `options` in the spec's extra fields replace those made here, one by one. An inline
//! image is sent; of a remote one the model receives only the URL, because the server does not
//! fetch images. An answer schema is described in the instructions. It is also sent as `format`,
//! unless the request has tools, because that field keeps the model from calling any.

use super::wire::MADE_ID;
use crate::codec::request::body::{Fields, Kept, Settings, open_message};
use crate::codec::request::{Encode, RequestSpec};
use crate::dialect::WireFormat;
use crate::json;
use crate::media::MediaSupport;
use endstop_core::{Image, Message, Part, Role, ToolCall, ToolResult};
use serde_json::{Map, Value};

/// The extra field that is merged field by field instead of replaced.
const OPTIONS: &str = "options";

/// Encodes the requests of one conversation.
#[derive(Clone, Debug)]
pub(crate) struct Encoder {
    kept: Kept,
    media: MediaSupport,
    system: String,
    options: Settings,
    /// All other fields and the closing brace.
    tail: Vec<u8>,
}

impl Encoder {
    /// Creates an encoder for this spec.
    pub(crate) fn new(spec: &RequestSpec) -> Encoder {
        let mut extra = spec.extra.clone();
        let own = Settings::own(&mut extra, OPTIONS);
        let mut options = Fields::over(&own);
        // Ollama's default context is small, and it silently drops older messages that do not fit.
        if let Some(tokens) = spec.context_window {
            options.field("num_ctx", |out| json::value(out, &tokens));
        }
        options.sampling(spec, "stop");
        Encoder {
            kept: Kept::default(),
            media: MediaSupport::of_format(WireFormat::Ollama, &spec.model),
            system: spec.instructions(true),
            options: Settings::new(OPTIONS, "num_predict", spec.max_output_tokens, options),
            tail: tail(spec, &extra),
        }
    }
}

impl Encode for Encoder {
    fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.kept.out
    }

    fn body(&mut self, messages: &[Message], epoch: u64, output_cap: Option<u64>) -> &[u8] {
        let out = self.kept.list(&self.system, messages, epoch, self.media, message);
        self.options.write(out, output_cap);
        out.extend_from_slice(&self.tail);
        out
    }
}

fn tail(spec: &RequestSpec, extra: &Map<String, Value>) -> Vec<u8> {
    let mut fields = Fields::over(extra);
    fields.field("model", |out| json::string(out, &spec.model));
    fields.function_tools(&spec.tools);
    if let (Some(schema), true) = (&spec.output_schema, spec.tools.is_empty()) {
        fields.field("format", |out| json::value(out, &schema.schema));
    }
    // Ollama streams by default, so `false` must be sent explicitly.
    fields.field("stream", |out| json::value(out, &spec.stream));
    // Make the server report an overlong conversation instead of dropping its oldest messages.
    fields.field("truncate", |out| out.extend_from_slice(b"false"));
    fields.finish()
}

/// Writes a message. Each tool result becomes a separate message before the rest.
fn message(out: &mut Vec<u8>, m: &Message) {
    let role = match m.role {
        Role::System => "system",
        Role::User | Role::Tool => "user",
        Role::Assistant => "assistant",
    };
    let mut answers = false;
    for part in &m.parts {
        if let Part::ToolResult(result) = part {
            answers = true;
            tool_result(out, result);
        }
    }
    let says = |p: &Part| !matches!(p, Part::ToolResult(_) | Part::Opaque { .. });
    // A message with nothing but results must not leave an empty user message behind.
    if answers && !m.parts.iter().any(says) {
        return;
    }
    open_message(out, role);
    content(out, &m.parts);
    if m.role == Role::Assistant {
        thinking(out, &m.parts);
        tool_calls(out, &m.parts);
    } else {
        images(out, &m.parts);
    }
    out.push(b'}');
}

fn content(out: &mut Vec<u8>, parts: &[Part]) {
    json::key(out, "content");
    out.push(b'"');
    for part in parts {
        match part {
            Part::Text { text } | Part::Refusal { text } => json::escaped(out, text),
            Part::Image(image) => {
                if let Err(url) = bytes_of(image) {
                    out.extend_from_slice(b"[image: ");
                    json::escaped(out, url);
                    out.push(b']');
                }
            }
            _ => {}
        }
    }
    out.push(b'"');
}

fn thinking(out: &mut Vec<u8>, parts: &[Part]) {
    if !parts.iter().any(|p| matches!(p, Part::Reasoning { text } if !text.is_empty())) {
        return;
    }
    json::key(out, "thinking");
    out.push(b'"');
    for part in parts {
        if let Part::Reasoning { text } = part {
            json::escaped(out, text);
        }
    }
    out.push(b'"');
}

/// Returns the Base64 data of an image, or its URL as the error.
fn bytes_of(image: &Image) -> Result<&str, &str> {
    match image {
        Image::Base64 { data, .. } => Ok(data),
        Image::Url(url) => {
            let inline = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
            inline.map(|(_, data)| data).ok_or(url)
        }
    }
}

fn images(out: &mut Vec<u8>, parts: &[Part]) {
    let mut any = false;
    for part in parts {
        if let Part::Image(image) = part {
            if let Ok(data) = bytes_of(image) {
                if !any {
                    any = true;
                    json::key(out, "images");
                    out.push(b'[');
                }
                json::comma(out);
                json::string(out, data);
            }
        }
    }
    if any {
        out.push(b']');
    }
}

fn tool_calls(out: &mut Vec<u8>, parts: &[Part]) {
    let mut any = false;
    for part in parts {
        if let Part::ToolCall(call) = part {
            if !any {
                any = true;
                json::key(out, "tool_calls");
                out.push(b'[');
            }
            json::comma(out);
            tool_call(out, call);
        }
    }
    if any {
        out.push(b']');
    }
}

fn tool_call(out: &mut Vec<u8>, call: &ToolCall) {
    out.push(b'{');
    id(out, "id", &call.id);
    json::key(out, "type");
    out.extend_from_slice(b"\"function\",\"function\":{\"name\":");
    json::called(out, &call.name);
    json::key(out, "arguments");
    json::arguments(out, &call.arguments);
    out.extend_from_slice(b"}}");
}

fn tool_result(out: &mut Vec<u8>, result: &ToolResult) {
    open_message(out, "tool");
    json::key(out, "tool_name");
    json::called(out, &result.name);
    id(out, "tool_call_id", &result.call_id);
    json::key(out, "content");
    json::string(out, &result.content);
    out.push(b'}');
}

/// Writes an id if it came from a provider. Ids that were generated here are unknown to the server.
fn id(out: &mut Vec<u8>, name: &str, id: &str) {
    if !id.is_empty() && !id.starts_with(MADE_ID) {
        json::key(out, name);
        json::string(out, id);
    }
}
