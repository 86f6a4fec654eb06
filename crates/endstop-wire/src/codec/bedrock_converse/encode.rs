//! Bedrock Converse encoder: turns a conversation into a Converse request.
//!
//! The URL, and not the body, names the model and asks for a stream. Fields of `inferenceConfig` in
//! the spec's extra fields replace those made here, one by one. A system message at the start of
//! the history is added to `system`; a later one is sent as a user message, because few models
//! accept the role. The schema of the answer is sent as `outputConfig.textFormat`, which takes it
//! as a string. The API fetches images from S3 only, so for any other URL the model receives the
//! URL as text.

use crate::caching::{Marks, has_marks};
use crate::codec::request::body::{BlockHistory, Fields, Settings};
use crate::codec::request::history_marks::unmarked;
use crate::codec::request::{Encode, RequestSpec};
use crate::dialect::WireFormat;
use crate::json;
use crate::media::MediaSupport;
use endstop_core::{Attachment, Document, Image, Message, Part, Role, ToolCall, ToolResult};
use serde_json::{Map, Value};

/// The extra field that is merged field by field instead of replaced.
const CONFIG: &str = "inferenceConfig";

/// Encodes the requests of one conversation.
#[derive(Clone, Debug)]
pub(crate) struct Encoder {
    history: BlockHistory,
    system: String,
    /// `true` if the extra fields set the instructions.
    own_system: bool,
    config: Settings,
    marks: Option<Marks>,
    /// `true` if the caller marks requests itself. The marks of imported blocks are then kept.
    own_marks: bool,
    media: MediaSupport,
    tail: Vec<u8>,
}

impl Encoder {
    /// Creates an encoder for this spec.
    pub(crate) fn new(spec: &RequestSpec) -> Encoder {
        let mut extra = spec.extra.clone();
        let own = Settings::own(&mut extra, CONFIG);
        Encoder {
            history: BlockHistory::new("{\"messages\":[", "content"),
            system: spec.system.clone().filter(|s| !s.trim().is_empty()).unwrap_or_default(),
            own_system: extra.contains_key("system"),
            config: config(spec, &own),
            marks: spec.cache.marks,
            own_marks: spec.cache.marks.is_none() && has_marks(&spec.extra),
            media: MediaSupport::of_format(WireFormat::BedrockConverse, &spec.model),
            tail: tail(spec, &extra),
        }
    }
}

impl Encode for Encoder {
    fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.history.kept.out
    }

    fn body(&mut self, messages: &[Message], epoch: u64, output_cap: Option<u64>) -> &[u8] {
        let from = self.history.resume(messages, epoch);
        for m in &messages[from..] {
            self.message(&self.media.lower(m));
        }
        self.history.close(messages);
        let BlockHistory { kept, preamble, marks, .. } = &mut self.history;
        let out = &mut kept.out;
        if let Some(mark) = self.marks {
            marks.insert(out, mark.block(), 0);
        }
        self.config.write(out, output_cap);
        if !self.own_system && (!self.system.is_empty() || !preamble.is_empty()) {
            json::key(out, "system");
            out.push(b'[');
            for text in [&self.system, &*preamble].into_iter().filter(|text| !text.is_empty()) {
                json::comma(out);
                words(out, text);
            }
            out.extend_from_slice(self.marks.map_or(b"", Marks::block));
            out.push(b']');
        }
        out.extend_from_slice(&self.tail);
        out
    }
}

impl Encoder {
    fn message(&mut self, m: &Message) {
        if m.role == Role::System && self.history.is_at_start() {
            let text = m.plain_text();
            // The API rejects blank text.
            if !text.trim().is_empty() {
                self.history.instruct(&text);
            }
            return;
        }
        let role = if m.role == Role::Assistant { "assistant" } else { "user" };
        if m.role == Role::Assistant {
            self.history.marks.turn();
        }
        // Results must come first in their message.
        for part in &m.parts {
            if let Part::ToolResult(result) = part {
                tool_result(self.history.block("user"), result);
                self.markable("user");
            }
        }
        for part in &m.parts {
            match part {
                Part::Text { text } | Part::Refusal { text } if !text.trim().is_empty() => {
                    words(self.history.block(role), text);
                    self.history.markable(role);
                }
                Part::ToolCall(call) => tool_use(self.history.block(role), call),
                Part::Image(i) => {
                    image(self.history.block(role), i);
                    self.markable(role);
                }
                Part::Document(d) => {
                    document(self.history.block(role), d);
                    self.markable(role);
                }
                Part::Opaque { api, json }
                    if api == WireFormat::BedrockConverse.as_str() && json::is_object(json) =>
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

    /// Ends a block other than text that a cache mark may follow.
    fn markable(&mut self, role: &str) {
        if self.marks.is_some_and(|marks| marks.anywhere) {
            self.history.markable(role);
        }
    }
}

fn config(spec: &RequestSpec, own: &Map<String, Value>) -> Settings {
    let mut fields = Fields::over(own);
    fields.sampling(spec, "stopSequences");
    Settings::new(CONFIG, "maxTokens", spec.max_output_tokens, fields)
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
            let mark = spec.cache.marks.filter(|marks| marks.anywhere);
            out.extend_from_slice(mark.map_or(b"", Marks::block));
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
    for content in &result.attachments {
        json::comma(out);
        match content {
            Attachment::Image(i) => image(out, i),
            Attachment::Document(d) => document(out, d),
            // `lower` has replaced what the format does not take.
            _ => words(out, "[not shown]"),
        }
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

/// Writes a document. The API requires a name, and allows few characters in it.
fn document(out: &mut Vec<u8>, document: &Document) {
    let name = document.name.as_deref().unwrap_or("document");
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    let allowed = |c: char| if c.is_ascii_alphanumeric() || "-()[]".contains(c) { c } else { ' ' };
    let words: Vec<String> =
        stem.split_whitespace().map(|word| word.chars().map(allowed).collect()).collect();
    // The API rejects two spaces in a row.
    let words: Vec<&str> = words.iter().flat_map(|word| word.split_whitespace()).collect();
    let name = if words.is_empty() { "document".to_owned() } else { words.join(" ") };
    out.extend_from_slice(b"{\"document\":{\"format\":\"pdf\",\"name\":");
    json::string(out, &name);
    out.extend_from_slice(b",\"source\":{\"bytes\":");
    json::string(out, &document.data);
    out.extend_from_slice(b"}}}");
}
