//! Gemini encoder: turns a conversation into a `generateContent` request.
//!
//! The URL, and not the body, names the model and asks for a stream. Fields of `generationConfig`
//! in the spec's extra fields replace those made here, one by one. A system message at the start of
//! the history is added to `systemInstruction`; a later one is sent as a user message.

use super::wire::MADE_ID;
use crate::codec::request::body::{BlockHistory, Fields, Settings, instructions};
use crate::codec::request::{Encode, RequestSpec};
use crate::dialect::WireFormat;
use crate::json;
use crate::media::MediaSupport;
use endstop_core::{Attachment, Document, Image, Message, Part, Role, ToolCall, ToolResult};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// The extra field that is merged field by field instead of replaced.
const CONFIG: &str = "generationConfig";

/// The documented signature, as JSON, of a call that another model has made.
const UNSIGNED: &str = "\"skip_thought_signature_validator\"";

/// Encodes the requests of one conversation.
#[derive(Clone, Debug)]
pub(crate) struct Encoder {
    history: BlockHistory,
    system: String,
    /// `true` if the extra fields set the instructions.
    own_system: bool,
    /// `true` if the model refuses a call without a signature.
    requires_signatures: bool,
    config: Settings,
    media: MediaSupport,
    tail: Vec<u8>,
}

impl Encoder {
    /// Creates an encoder for this spec.
    pub(crate) fn new(spec: &RequestSpec) -> Encoder {
        let mut extra = spec.extra.clone();
        // The history is written by this encoder, so an extra field must not replace it.
        extra.remove("contents");
        let own = Settings::own(&mut extra, CONFIG);
        Encoder {
            history: BlockHistory::new("{\"contents\":[", "parts"),
            system: spec.instructions(schema_or_tools(spec)),
            own_system: extra.contains_key("systemInstruction"),
            requires_signatures: requires_signatures(&spec.model),
            config: config(spec, &own),
            media: MediaSupport::of_format(WireFormat::Gemini, &spec.model),
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
        let BlockHistory { kept, preamble, .. } = &mut self.history;
        let out = &mut kept.out;
        self.config.write(out, output_cap);
        if !self.own_system && (!self.system.is_empty() || !preamble.is_empty()) {
            json::key(out, "systemInstruction");
            out.extend_from_slice(b"{\"parts\":[{\"text\":\"");
            instructions(out, &self.system, preamble);
            out.extend_from_slice(b"\"}]}");
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
        let role = if m.role == Role::Assistant { "model" } else { "user" };
        // Results must come first in their message.
        for part in &m.parts {
            if let Part::ToolResult(result) = part {
                function_response(self.history.block("user"), result);
            }
        }
        // A signature waits here for the next part, which must be of the kind that it was made for.
        let mut pending: Option<Signature<'_>> = None;
        let mut unsigned = self.requires_signatures && !m.parts.iter().any(is_own);
        for part in &m.parts {
            let signed = match (pending.take(), part) {
                (Some(s), Part::Text { text }) if s.function_call.is_none() && !text.is_empty() => {
                    Some(s.thought_signature)
                }
                (Some(s), Part::ToolCall(_)) if s.function_call.is_some() => {
                    Some(s.thought_signature)
                }
                // Any other part means that the signed part was dropped from the history.
                (left, _) => {
                    self.left(role, left);
                    None
                }
            };
            match part {
                // The API rejects an empty text.
                Part::Text { text } | Part::Refusal { text } if !text.is_empty() => {
                    let out = self.history.block(role);
                    out.extend_from_slice(b"{\"text\":");
                    json::string(out, text);
                    sign(out, signed.map(RawValue::get));
                }
                Part::ToolCall(call) => {
                    let out = self.history.block(role);
                    function_call(out, call);
                    // Another model has made the call, so there is no signature. Only the first call
                    // of a message has one.
                    let is_first = std::mem::take(&mut unsigned);
                    let signed = signed.map(RawValue::get).or(is_first.then_some(UNSIGNED));
                    sign(out, signed);
                }
                Part::Image(i) => image(self.history.block(role), i),
                Part::Document(d) => document(self.history.block(role), d),
                Part::Opaque { api, json } if api == WireFormat::Gemini.as_str() => {
                    if let Ok(alone) = serde_json::from_str(json) {
                        pending = Some(alone);
                    } else if json::is_object(json) {
                        self.history.block(role).extend_from_slice(json.trim().as_bytes());
                    }
                }
                _ => {}
            }
        }
        self.left(role, pending);
    }

    /// Writes the signature of a text that is missing from the history, on an empty text, as Gemini
    /// itself sends it. The signature of a missing call is dropped, because it has no meaning
    /// without the call.
    fn left(&mut self, role: &'static str, signature: Option<Signature<'_>>) {
        if let Some(left) = signature.filter(|s| s.function_call.is_none()) {
            let out = self.history.block(role);
            out.extend_from_slice(b"{\"text\":\"\"");
            sign(out, Some(left.thought_signature.get()));
        }
    }
}

/// `true` for a part that only Gemini reads, such as a signature.
fn is_own(part: &Part) -> bool {
    matches!(part, Part::Opaque { api, .. } if api == WireFormat::Gemini.as_str())
}

/// `true` if the model refuses a call of the current turn without a signature: Gemini 3 and later.
fn requires_signatures(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or_default();
    let version = name.strip_prefix("gemini-").unwrap_or_default();
    let digits = version.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    digits.parse().is_ok_and(|major: u32| major >= 3)
}

/// A stored signature. It belongs to the part that follows.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Signature<'a> {
    /// Present if that part is a call.
    #[serde(default)]
    function_call: Option<IgnoredAny>,
    #[serde(borrow)]
    thought_signature: &'a RawValue,
}

/// Ends a part, with its signature if there is one.
fn sign(out: &mut Vec<u8>, signature: Option<&str>) {
    if let Some(signature) = signature {
        json::key(out, "thoughtSignature");
        out.extend_from_slice(signature.as_bytes());
    }
    out.push(b'}');
}

/// `true` if the schema must be described in words: models before Gemini 3 reject a request that
/// has both tools and an answer schema.
fn schema_or_tools(spec: &RequestSpec) -> bool {
    let model = spec.model.rsplit('/').next().unwrap_or_default();
    !spec.tools.is_empty() && (model.starts_with("gemini-1") || model.starts_with("gemini-2"))
}

fn config(spec: &RequestSpec, own: &Map<String, Value>) -> Settings {
    let mut fields = Fields::over(own);
    fields.sampling(spec, "stopSequences");
    if let (Some(schema), false) = (&spec.output_schema, schema_or_tools(spec)) {
        fields.field("responseMimeType", |out| out.extend_from_slice(b"\"application/json\""));
        // A `responseSchema` of the user's own would conflict with ours.
        if !own.contains_key("responseSchema") {
            fields.field("responseJsonSchema", |out| json::value(out, &schema.schema));
        }
    }
    Settings::new(CONFIG, "maxOutputTokens", spec.max_output_tokens, fields)
}

fn tail(spec: &RequestSpec, extra: &Map<String, Value>) -> Vec<u8> {
    let mut fields = Fields::over(extra);
    if !spec.tools.is_empty() {
        fields.field("tools", |out| {
            out.extend_from_slice(b"[{\"functionDeclarations\":[");
            for tool in &spec.tools {
                json::comma(out);
                out.push(b'{');
                tool.name_fields(out);
                // `parameters` accepts only a subset of JSON Schema, so the full schema has its own
                // field. A missing schema means that the tool has no parameters.
                if !tool.schema.is_null() {
                    json::key(out, "parametersJsonSchema");
                    json::value(out, &tool.schema);
                }
                out.push(b'}');
            }
            out.extend_from_slice(b"]}]");
        });
    }
    fields.finish()
}

/// Writes `,"id":…` if the id came from a provider. Ids that were generated here are unknown to the
/// server.
fn id(out: &mut Vec<u8>, id: &str) {
    if !id.is_empty() && !id.starts_with(MADE_ID) {
        json::key(out, "id");
        json::string(out, id);
    }
}

fn function_response(out: &mut Vec<u8>, result: &ToolResult) {
    out.extend_from_slice(b"{\"functionResponse\":{\"name\":");
    json::called(out, &result.name);
    id(out, &result.call_id);
    json::key(out, "response");
    out.push(b'{');
    json::key(out, if result.status.is_error() { "error" } else { "output" });
    json::string(out, &result.content);
    out.push(b'}');
    if !result.attachments.is_empty() {
        json::key(out, "parts");
        out.push(b'[');
        for content in &result.attachments {
            json::comma(out);
            match content {
                Attachment::Image(i) => image(out, i),
                Attachment::Document(d) => document(out, d),
                // `lower` has replaced what the format does not take.
                _ => out.extend_from_slice(b"{}"),
            }
        }
        out.push(b']');
    }
    out.extend_from_slice(b"}}");
}

/// Writes a call. Its part stays open, so that a signature can follow.
fn function_call(out: &mut Vec<u8>, call: &ToolCall) {
    out.extend_from_slice(b"{\"functionCall\":{\"name\":");
    json::called(out, &call.name);
    id(out, &call.id);
    json::key(out, "args");
    json::arguments(out, &call.arguments);
    out.push(b'}');
}

fn image(out: &mut Vec<u8>, image: &Image) {
    match image {
        Image::Url(url) => {
            out.extend_from_slice(b"{\"fileData\":{\"fileUri\":");
            json::string(out, url);
        }
        Image::Base64 { media_type, data } => {
            out.extend_from_slice(b"{\"inlineData\":{\"mimeType\":");
            json::string(out, media_type);
            json::key(out, "data");
            json::string(out, data);
        }
    }
    out.extend_from_slice(b"}}");
}

fn document(out: &mut Vec<u8>, document: &Document) {
    out.extend_from_slice(b"{\"inlineData\":{\"mimeType\":");
    json::string(out, &document.media_type);
    json::key(out, "data");
    json::string(out, &document.data);
    out.extend_from_slice(b"}}");
}
