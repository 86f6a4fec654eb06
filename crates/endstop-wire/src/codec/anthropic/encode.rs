//! Anthropic encoder: turns a conversation into a Messages request.
//!
//! Structured output is sent as `output_config.format` of type `json_schema`. A system message at
//! the start of the history is added to the top-level `system`. A later one is sent as a user
//! message.

use super::call_ids::CallIds;
use crate::caching::{Marks, has_marks};
use crate::codec::request::body::{BlockHistory, Fields, instructions};
use crate::codec::request::history_marks::unmarked;
use crate::codec::request::{Encode, RequestSpec};
use crate::dialect::WireFormat;
use crate::json;
use crate::media::MediaSupport;
use endstop_core::{Attachment, Document, Image, Message, Part, Role, ToolCall, ToolResult};

/// Output cap in tokens if neither the spec nor the call sets one. The API requires a number.
pub(crate) const DEFAULT_MAX_TOKENS: u64 = 8192;

/// Encodes the requests of one conversation.
#[derive(Clone, Debug)]
pub(crate) struct Encoder {
    history: BlockHistory,
    ids: CallIds,
    system: Option<String>,
    /// `true` if the extra fields set the cap. `own_system` is the same for the instructions.
    own_cap: bool,
    own_system: bool,
    cap: u64,
    marks: Option<Marks>,
    /// `true` if the caller marks requests itself. The marks of imported blocks are then kept.
    own_marks: bool,
    media: MediaSupport,
    tail: Vec<u8>,
}

impl Encoder {
    /// Creates an encoder for this spec.
    pub(crate) fn new(spec: &RequestSpec) -> Encoder {
        Encoder {
            history: BlockHistory::new("{\"messages\":[", "content"),
            ids: CallIds::default(),
            system: spec.system.clone().filter(|s| !s.trim().is_empty()),
            own_cap: spec.extra.contains_key("max_tokens"),
            own_system: spec.extra.contains_key("system"),
            cap: spec.max_output_tokens.unwrap_or(DEFAULT_MAX_TOKENS),
            marks: spec.cache.marks,
            own_marks: spec.cache.marks.is_none() && has_marks(&spec.extra),
            media: MediaSupport::of_format(WireFormat::Anthropic, &spec.model),
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
}

impl Encode for Encoder {
    fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.history.kept.out
    }

    fn body(&mut self, messages: &[Message], epoch: u64, output_cap: Option<u64>) -> &[u8] {
        let from = self.history.resume(messages, epoch);
        if from == 0 {
            self.ids.clear();
        }
        for m in &messages[from..] {
            self.message(&self.media.lower(m));
        }
        self.history.close(messages);
        let BlockHistory { kept, preamble, marks, .. } = &mut self.history;
        let out = &mut kept.out;
        if let Some(mark) = self.marks {
            // Inside the block, before its closing brace.
            marks.insert(out, mark.member(), 1);
        }
        if !self.own_cap {
            json::key(out, "max_tokens");
            out.extend_from_slice(output_cap.unwrap_or(self.cap).to_string().as_bytes());
        }
        if !self.own_system && (self.system.is_some() || !preamble.is_empty()) {
            let system = self.system.as_deref().unwrap_or("");
            // An empty text cannot be marked.
            let blank = system.is_empty() && preamble.trim().is_empty();
            let mark = self.marks.filter(|_| !blank);
            json::key(out, "system");
            out.extend_from_slice(if mark.is_some() {
                b"[{\"type\":\"text\",\"text\":"
            } else {
                b""
            });
            out.push(b'"');
            instructions(out, system, preamble);
            out.push(b'"');
            if let Some(mark) = mark {
                out.extend_from_slice(mark.member());
                out.extend_from_slice(b"}]");
            }
        }
        out.extend_from_slice(&self.tail);
        out
    }
}

impl Encoder {
    fn message(&mut self, m: &Message) {
        if m.role == Role::System && self.history.is_at_start() {
            return self.history.instruct(&m.plain_text());
        }
        let role = if m.role == Role::Assistant { "assistant" } else { "user" };
        if m.role == Role::Assistant {
            self.history.marks.turn();
        }
        // Results must come first in their message, or the API rejects it.
        for part in &m.parts {
            if let Part::ToolResult(result) = part {
                let id = self.ids.result(&result.call_id);
                tool_result(self.history.block("user"), &id, result);
                if !result.content.trim().is_empty() {
                    self.markable("user");
                }
            }
        }
        for part in &m.parts {
            match part {
                // The API rejects blank text blocks.
                Part::Text { text } | Part::Refusal { text } if !text.trim().is_empty() => {
                    let out = self.history.block(role);
                    out.extend_from_slice(b"{\"type\":\"text\",\"text\":");
                    json::string(out, text);
                    out.push(b'}');
                    self.history.markable(role);
                }
                Part::ToolCall(call) => {
                    let id = self.ids.call(&call.id);
                    tool_use(self.history.block(role), &id, call);
                }
                Part::Image(i) => {
                    image(self.history.block(role), i);
                    self.markable(role);
                }
                Part::Document(d) => {
                    document(self.history.block(role), d);
                    self.markable(role);
                }
                Part::Opaque { api, json }
                    if api == WireFormat::Anthropic.as_str() && json::is_object(json) =>
                {
                    let kept = if self.own_marks { Some(json.into()) } else { unmarked(json) };
                    if let Some(json) = kept {
                        self.history.block(role).extend_from_slice(json.trim().as_bytes());
                    }
                }
                _ => {}
            }
        }
    }

    /// Ends a block other than text that can carry a cache mark.
    fn markable(&mut self, role: &str) {
        if self.marks.is_some_and(|marks| marks.anywhere) {
            self.history.markable(role);
        }
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
    let mark = spec.cache.marks.filter(|marks| marks.anywhere).map_or(&b""[..], Marks::member);
    fields.marked_tools(&spec.tools, b"{", "input_schema", b"}", mark);
    fields.sampling(spec, "stop_sequences");
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
    if result.attachments.is_empty() {
        json::string(out, &result.content);
    } else {
        result_blocks(out, result);
    }
    if result.status.is_error() {
        out.extend_from_slice(b",\"is_error\":true");
    }
    out.push(b'}');
}

/// Writes the text of a result, its images and its documents.
fn result_blocks(out: &mut Vec<u8>, result: &ToolResult) {
    out.push(b'[');
    // The API rejects blank text blocks.
    if !result.content.trim().is_empty() {
        out.extend_from_slice(b"{\"type\":\"text\",\"text\":");
        json::string(out, &result.content);
        out.push(b'}');
    }
    for content in &result.attachments {
        json::comma(out);
        match content {
            Attachment::Image(i) => image(out, i),
            Attachment::Document(d) => document(out, d),
            // `lower` has replaced what the format does not take.
            _ => out.extend_from_slice(b"{\"type\":\"text\",\"text\":\"[not shown]\"}"),
        }
    }
    out.push(b']');
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

fn document(out: &mut Vec<u8>, document: &Document) {
    out.extend_from_slice(
        b"{\"type\":\"document\",\"source\":{\"type\":\"base64\",\"media_type\":",
    );
    json::string(out, &document.media_type);
    out.extend_from_slice(b",\"data\":");
    json::string(out, &document.data);
    out.push(b'}');
    if let Some(name) = &document.name {
        json::key(out, "title");
        json::string(out, name);
    }
    out.push(b'}');
}
