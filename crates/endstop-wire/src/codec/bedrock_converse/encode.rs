//! Bedrock Converse encoder: turns a conversation into a Converse request.
//!
//! The URL, and not the body, names the model and asks for a stream. Fields of `inferenceConfig` in
//! the spec's extra fields replace those made here, one by one. A system message at the start of
//! the history is added to `system`; a later one is sent as a user message, because few models
//! accept the role. The schema of the answer is sent as `outputConfig.textFormat`, which takes it
//! as a string. The API fetches images from S3 only, so for any other URL the model receives the
//! URL as text.

use crate::codec::request::{Fields, Kept, RequestSpec};
use crate::dialect::WireFormat;
use crate::json;
use endstop_core::{Image, Message, Part, Role, ToolCall, ToolResult};
use serde_json::{Map, Value};

/// The extra field that is merged field by field instead of replaced.
const CONFIG: &str = "inferenceConfig";

/// Encodes the requests of one conversation.
#[derive(Clone, Debug)]
pub struct Encoder {
    kept: Kept,
    /// Role of the message that is still open at the end of the encoded bytes.
    open: Option<&'static str>,
    system: String,
    /// System messages at the start of the history.
    preamble: String,
    /// `true` if the extra fields set the cap. `own_system` is the same for the instructions.
    own_cap: bool,
    own_system: bool,
    cap: Option<u64>,
    /// Fields of `inferenceConfig` except the cap, each after a comma, and the closing brace.
    config: Vec<u8>,
    tail: Vec<u8>,
}

impl Encoder {
    /// Creates an encoder for this spec.
    pub fn new(spec: &RequestSpec) -> Encoder {
        let mut extra = spec.extra.clone();
        let own = match extra.remove(CONFIG) {
            Some(Value::Object(fields)) => fields,
            _ => Map::new(),
        };
        Encoder {
            kept: Kept::default(),
            open: None,
            system: spec.system.clone().filter(|s| !s.trim().is_empty()).unwrap_or_default(),
            preamble: String::new(),
            own_cap: own.contains_key("maxTokens"),
            own_system: extra.contains_key("system"),
            cap: spec.max_output_tokens,
            config: config(spec, &own),
            tail: tail(spec, &extra),
        }
    }

    /// Returns the body of the next call.
    pub fn body(&mut self, messages: &[Message], epoch: u64, output_cap: Option<u64>) -> &[u8] {
        let from = self.kept.resume(messages, epoch);
        if from == 0 {
            self.kept.out.extend_from_slice(b"{\"messages\":[");
            self.open = None;
            self.preamble.clear();
        }
        for m in &messages[from..] {
            self.message(m);
        }
        self.kept.settle(messages);
        let out = &mut self.kept.out;
        if self.open.is_some() {
            out.extend_from_slice(b"]}");
        }
        out.push(b']');
        let cap = output_cap.or(self.cap).filter(|_| !self.own_cap);
        // A length of 1 is the closing brace alone, so there is nothing to send.
        if cap.is_some() || self.config.len() > 1 {
            json::key(out, CONFIG);
            out.push(b'{');
            let mut config = self.config.as_slice();
            match cap {
                Some(cap) => {
                    json::key(out, "maxTokens");
                    out.extend_from_slice(cap.to_string().as_bytes());
                }
                // Without the cap the first field must not start with its comma.
                None => config = config.strip_prefix(b",").unwrap_or(config),
            }
            out.extend_from_slice(config);
        }
        if !self.own_system && (!self.system.is_empty() || !self.preamble.is_empty()) {
            json::key(out, "system");
            out.push(b'[');
            for text in [&self.system, &self.preamble].into_iter().filter(|text| !text.is_empty()) {
                json::comma(out);
                out.extend_from_slice(b"{\"text\":");
                json::string(out, text);
                out.push(b'}');
            }
            out.push(b']');
        }
        out.extend_from_slice(&self.tail);
        &self.kept.out
    }

    fn message(&mut self, m: &Message) {
        if m.role == Role::System && self.open.is_none() {
            let text = m.plain_text();
            if !self.preamble.is_empty() && !text.trim().is_empty() {
                self.preamble.push_str("\n\n");
            }
            // The API rejects blank text.
            return self.preamble.push_str(if text.trim().is_empty() { "" } else { &text });
        }
        let role = if m.role == Role::Assistant { "assistant" } else { "user" };
        // Results must come first in their message.
        for part in &m.parts {
            if let Part::ToolResult(result) = part {
                tool_result(self.block("user"), result);
            }
        }
        for part in &m.parts {
            match part {
                Part::Text { text } | Part::Refusal { text } if !text.trim().is_empty() => {
                    words(self.block(role), text);
                }
                Part::ToolCall(call) => tool_use(self.block(role), call),
                Part::Image(i) => image(self.block(role), i),
                Part::Opaque { api, json }
                    if api == WireFormat::BedrockConverse.as_str() && json::is_object(json) =>
                {
                    self.block(role).extend_from_slice(json.trim().as_bytes());
                }
                _ => {}
            }
        }
    }

    /// Begins a block in a message of this role. If the open message has the same role, the block
    /// joins it, because the API requires the roles to alternate.
    fn block(&mut self, role: &'static str) -> &mut Vec<u8> {
        let out = &mut self.kept.out;
        if self.open == Some(role) {
            out.push(b',');
            return out;
        }
        if self.open.is_some() {
            out.extend_from_slice(b"]},");
        }
        self.open = Some(role);
        out.extend_from_slice(b"{\"role\":\"");
        out.extend_from_slice(role.as_bytes());
        out.extend_from_slice(b"\",\"content\":[");
        out
    }
}

fn config(spec: &RequestSpec, own: &Map<String, Value>) -> Vec<u8> {
    let mut fields = Fields::over(own);
    if let Some(t) = spec.temperature {
        fields.field("temperature", |out| json::value(out, &t));
    }
    if !spec.stop.is_empty() {
        fields.field("stopSequences", |out| json::value(out, &spec.stop));
    }
    fields.finish()
}

fn tail(spec: &RequestSpec, extra: &Map<String, Value>) -> Vec<u8> {
    let mut fields = Fields::over(extra);
    if !spec.tools.is_empty() {
        fields.field("toolConfig", |out| {
            out.extend_from_slice(b"{\"tools\":[");
            for tool in &spec.tools {
                json::comma(out);
                out.extend_from_slice(b"{\"toolSpec\":{");
                tool.name_fields(out);
                json::key(out, "inputSchema");
                out.extend_from_slice(b"{\"json\":");
                tool.schema(out);
                out.extend_from_slice(b"}}}");
            }
            out.extend_from_slice(b"]}");
        });
    }
    if let Some(schema) = &spec.output_schema {
        fields.field("outputConfig", |out| {
            out.extend_from_slice(b"{\"textFormat\":{\"type\":\"json_schema\",");
            out.extend_from_slice(b"\"structure\":{\"jsonSchema\":{\"name\":");
            json::string(out, &schema.name);
            out.extend_from_slice(b",\"schema\":");
            json::string(out, &schema.schema.to_string());
            out.extend_from_slice(b"}}}}");
        });
    }
    fields.finish()
}

fn words(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(b"{\"text\":");
    json::string(out, text);
    out.push(b'}');
}

/// Writes a tool result. A status is sent only for errors, because only some models accept the
/// field. The content may be empty unless the result is an error.
fn tool_result(out: &mut Vec<u8>, result: &ToolResult) {
    let failed = result.status.is_error();
    let blank = result.content.trim().is_empty();
    out.extend_from_slice(b"{\"toolResult\":{\"toolUseId\":");
    json::string(out, &result.call_id);
    out.extend_from_slice(b",\"content\":[");
    if !blank {
        words(out, &result.content);
    } else if failed {
        words(out, result.status.as_str());
    }
    out.push(b']');
    if failed {
        out.extend_from_slice(b",\"status\":\"error\"");
    }
    out.extend_from_slice(b"}}");
}

fn tool_use(out: &mut Vec<u8>, call: &ToolCall) {
    out.extend_from_slice(b"{\"toolUse\":{\"toolUseId\":");
    json::string(out, &call.id);
    out.extend_from_slice(b",\"name\":");
    json::called(out, &call.name);
    out.extend_from_slice(b",\"input\":");
    json::arguments(out, &call.arguments);
    out.extend_from_slice(b"}}");
}

fn image(out: &mut Vec<u8>, image: &Image) {
    let (format, field, value) = match image {
        Image::Base64 { media_type, data } => {
            let subtype = media_type.rsplit('/').next().unwrap_or_default();
            // The API calls the format `jpeg`, even if the media type is the informal `image/jpg`.
            (if subtype == "jpg" { "jpeg" } else { subtype }, "bytes", data)
        }
        Image::Url(url) if url.starts_with("s3://") => {
            let end = url.rsplit('.').next().unwrap_or_default();
            let known = ["png", "gif", "webp"].into_iter().find(|f| f.eq_ignore_ascii_case(end));
            (known.unwrap_or("jpeg"), "s3Location", url)
        }
        Image::Url(url) => return words(out, url),
    };
    out.extend_from_slice(b"{\"image\":{\"format\":");
    json::string(out, format);
    out.extend_from_slice(b",\"source\":{");
    json::key(out, field);
    if field == "bytes" {
        json::string(out, value);
    } else {
        out.extend_from_slice(b"{\"uri\":");
        json::string(out, value);
        out.push(b'}');
    }
    out.extend_from_slice(b"}}}");
}
