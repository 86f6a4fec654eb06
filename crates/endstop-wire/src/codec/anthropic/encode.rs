//! Anthropic encoder: turns a conversation into a Messages request.
//!
//! Structured output is sent as `output_config.format` of type `json_schema`. A system message at
//! the start of the history is added to the top-level `system`. A later one is sent as a user
//! message.

use super::call_ids::CallIds;
use crate::codec::request::{Fields, Kept, RequestSpec};
use crate::dialect::WireFormat;
use crate::json;
use endstop_core::{Image, Message, Part, Role, ToolCall, ToolResult};

/// Output cap in tokens if neither the spec nor the call sets one. The API requires a number.
pub(crate) const DEFAULT_MAX_TOKENS: u64 = 8192;

/// Encodes the requests of one conversation.
#[derive(Clone, Debug)]
pub struct Encoder {
    kept: Kept,
    /// Role of the message that is still open at the end of the encoded bytes.
    open: Option<&'static str>,
    ids: CallIds,
    system: Option<String>,
    /// System messages at the start of the history.
    preamble: String,
    /// `true` if the extra fields set the cap. `own_system` is the same for the instructions.
    own_cap: bool,
    own_system: bool,
    cap: u64,
    tail: Vec<u8>,
}

impl Encoder {
    /// Creates an encoder for this spec.
    pub fn new(spec: &RequestSpec) -> Encoder {
        Encoder {
            kept: Kept::default(),
            open: None,
            ids: CallIds::default(),
            system: spec.system.clone().filter(|s| !s.trim().is_empty()),
            preamble: String::new(),
            own_cap: spec.extra.contains_key("max_tokens"),
            own_system: spec.extra.contains_key("system"),
            cap: spec.max_output_tokens.unwrap_or(DEFAULT_MAX_TOKENS),
            tail: tail(spec),
        }
    }

    /// Creates an encoder for a server that takes the model from the URL. The server may still
    /// require `stream` in the body.
    pub(crate) fn addressed(spec: &RequestSpec, version: &str, stream: bool) -> Encoder {
        let mut fields = Fields::new(spec);
        fields.field("anthropic_version", |out| json::string(out, version));
        if stream {
            fields.field("stream", |out| out.extend_from_slice(b"true"));
        }
        Encoder { tail: options(fields, spec), ..Encoder::new(spec) }
    }

    /// Returns the body of the next call.
    pub fn body(&mut self, messages: &[Message], epoch: u64, output_cap: Option<u64>) -> &[u8] {
        let from = self.kept.resume(messages, epoch);
        if from == 0 {
            self.kept.out.extend_from_slice(b"{\"messages\":[");
            self.open = None;
            self.ids.clear();
            self.preamble.clear();
        }
        for m in &messages[from..] {
            self.message(m);
        }
        self.kept.settle(messages);
        // From here on the bytes belong to this call only; `resume` removes them.
        let out = &mut self.kept.out;
        if self.open.is_some() {
            out.extend_from_slice(b"]}");
        }
        out.push(b']');
        if !self.own_cap {
            json::key(out, "max_tokens");
            out.extend_from_slice(output_cap.unwrap_or(self.cap).to_string().as_bytes());
        }
        if !self.own_system && (self.system.is_some() || !self.preamble.is_empty()) {
            json::key(out, "system");
            let system = self.system.as_deref().unwrap_or("");
            out.push(b'"');
            json::escaped(out, system);
            if !system.is_empty() && !self.preamble.is_empty() {
                out.extend_from_slice(b"\\n\\n");
            }
            json::escaped(out, &self.preamble);
            out.push(b'"');
        }
        out.extend_from_slice(&self.tail);
        &self.kept.out
    }

    fn message(&mut self, m: &Message) {
        if m.role == Role::System && self.open.is_none() {
            if !self.preamble.is_empty() {
                self.preamble.push_str("\n\n");
            }
            return self.preamble.push_str(&m.plain_text());
        }
        let role = if m.role == Role::Assistant { "assistant" } else { "user" };
        // Results must come first in their message, or the API rejects it.
        for part in &m.parts {
            if let Part::ToolResult(result) = part {
                let id = self.ids.result(&result.call_id);
                tool_result(self.block("user"), &id, result);
            }
        }
        for part in &m.parts {
            match part {
                // The API rejects blank text blocks.
                Part::Text { text } | Part::Refusal { text } if !text.trim().is_empty() => {
                    let out = self.block(role);
                    out.extend_from_slice(b"{\"type\":\"text\",\"text\":");
                    json::string(out, text);
                    out.push(b'}');
                }
                Part::ToolCall(call) => {
                    let id = self.ids.call(&call.id);
                    tool_use(self.block(role), &id, call);
                }
                Part::Image(i) => image(self.block(role), i),
                Part::Opaque { api, json }
                    if api == WireFormat::Anthropic.as_str() && json::is_object(json) =>
                {
                    self.block(role).extend_from_slice(json.trim().as_bytes());
                }
                _ => {}
            }
        }
    }

    /// Begins a block in a message of this role. If the open message has the same role, the block
    /// joins it, because the API treats adjacent messages of one role as a single message.
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

fn tail(spec: &RequestSpec) -> Vec<u8> {
    let mut fields = Fields::new(spec);
    fields.field("model", |out| json::string(out, &spec.model));
    if spec.stream {
        fields.field("stream", |out| out.extend_from_slice(b"true"));
    }
    options(fields, spec)
}

fn options(mut fields: Fields<'_>, spec: &RequestSpec) -> Vec<u8> {
    if !spec.tools.is_empty() {
        fields.field("tools", |out| {
            out.push(b'[');
            for tool in &spec.tools {
                json::comma(out);
                out.push(b'{');
                tool.fields(out, "input_schema");
                out.push(b'}');
            }
            out.push(b']');
        });
    }
    if let Some(t) = spec.temperature {
        fields.field("temperature", |out| json::value(out, &t));
    }
    if !spec.stop.is_empty() {
        fields.field("stop_sequences", |out| json::value(out, &spec.stop));
    }
    if let Some(schema) = &spec.output_schema {
        fields.field("output_config", |out| {
            out.extend_from_slice(b"{\"format\":{\"type\":\"json_schema\",\"schema\":");
            json::value(out, &schema.schema);
            out.extend_from_slice(b"}}");
        });
    }
    fields.finish()
}

fn tool_result(out: &mut Vec<u8>, id: &str, result: &ToolResult) {
    out.extend_from_slice(b"{\"type\":\"tool_result\",\"tool_use_id\":");
    json::string(out, id);
    out.extend_from_slice(b",\"content\":");
    json::string(out, &result.content);
    if result.status.is_error() {
        out.extend_from_slice(b",\"is_error\":true");
    }
    out.push(b'}');
}

fn tool_use(out: &mut Vec<u8>, id: &str, call: &ToolCall) {
    out.extend_from_slice(b"{\"type\":\"tool_use\",\"id\":");
    json::string(out, id);
    out.extend_from_slice(b",\"name\":");
    json::called(out, &call.name);
    out.extend_from_slice(b",\"input\":");
    json::arguments(out, &call.arguments);
    out.push(b'}');
}

fn image(out: &mut Vec<u8>, image: &Image) {
    out.extend_from_slice(b"{\"type\":\"image\",\"source\":{\"type\":");
    match image {
        Image::Url(url) => {
            out.extend_from_slice(b"\"url\",\"url\":");
            json::string(out, url);
        }
        Image::Base64 { media_type, data } => {
            out.extend_from_slice(b"\"base64\",\"media_type\":");
            json::string(out, media_type);
            out.extend_from_slice(b",\"data\":");
            json::string(out, data);
        }
    }
    out.extend_from_slice(b"}}");
}
