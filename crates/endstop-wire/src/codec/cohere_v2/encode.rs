//! Cohere v2 encoder: turns a conversation into a `/v2/chat` request.
//!
//! Structured output is sent as `response_format` of type `json_object` with its schema. The API
//! does not accept that together with tools, so the schema is then described in the instructions.
//! An assistant message without text and calls is left out, because the API rejects it.

use crate::codec::request::body::{Fields, Kept, image_url, open_message};
use crate::codec::request::{Encode, RequestSpec};
use crate::dialect::WireFormat;
use crate::json;
use crate::media::MediaSupport;
use endstop_core::{Image, Message, Part, Role, ToolCall};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Encodes the requests of one conversation.
#[derive(Clone, Debug)]
pub(crate) struct Encoder {
    kept: Kept,
    media: MediaSupport,
    system: String,
    /// `true` if the extra fields set the cap.
    own_cap: bool,
    cap: Option<u64>,
    /// All other fields and the closing brace.
    tail: Vec<u8>,
}

impl Encoder {
    /// Creates an encoder for this spec.
    pub(crate) fn new(spec: &RequestSpec) -> Encoder {
        Encoder {
            kept: Kept::default(),
            media: MediaSupport::of_format(WireFormat::CohereV2, &spec.model),
            system: spec.instructions(!spec.tools.is_empty()),
            own_cap: spec.extra.contains_key("max_tokens"),
            cap: spec.max_output_tokens,
            tail: tail(spec),
        }
    }
}

impl Encode for Encoder {
    fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.kept.out
    }

    fn body(&mut self, messages: &[Message], epoch: u64, output_cap: Option<u64>) -> &[u8] {
        let out = self.kept.list(&self.system, messages, epoch, self.media, message);
        if let Some(cap) = output_cap.or(self.cap).filter(|_| !self.own_cap) {
            json::key(out, "max_tokens");
            out.extend_from_slice(cap.to_string().as_bytes());
        }
        out.extend_from_slice(&self.tail);
        out
    }
}

fn tail(spec: &RequestSpec) -> Vec<u8> {
    let mut fields = Fields::new(spec);
    fields.field("model", |out| json::string(out, &spec.model));
    fields.function_tools(&spec.tools);
    fields.sampling(spec, "stop_sequences");
    if let (Some(schema), true) = (&spec.output_schema, spec.tools.is_empty()) {
        fields.field("response_format", |out| {
            out.extend_from_slice(b"{\"type\":\"json_object\",\"json_schema\":");
            json::value(out, &schema.schema);
            out.push(b'}');
        });
    }
    fields.field("stream", |out| json::value(out, &spec.stream));
    fields.finish()
}

fn message(out: &mut Vec<u8>, m: &Message) {
    // Results come first because they answer the previous turn, whatever message carries them.
    for part in &m.parts {
        if let Part::ToolResult(result) = part {
            open_message(out, "tool");
            json::key(out, "tool_call_id");
            json::string(out, &result.call_id);
            json::key(out, "content");
            json::string(out, &result.content);
            out.push(b'}');
        }
    }
    let role = match m.role {
        Role::System => "system",
        Role::Assistant => "assistant",
        Role::User | Role::Tool => "user",
    };
    let back = m.role == Role::Assistant;
    let mut content = vec![b'['];
    for part in &m.parts {
        match part {
            Part::Text { text } | Part::Refusal { text } if !text.trim().is_empty() => {
                json::comma(&mut content);
                content.extend_from_slice(b"{\"type\":\"text\",\"text\":");
                json::string(&mut content, text);
                content.push(b'}');
            }
            Part::Image(i) if m.role != Role::System && !back => image(&mut content, i),
            Part::Opaque { api, json } if back && is_thinking(api, json) => {
                json::comma(&mut content);
                content.extend_from_slice(json.trim().as_bytes());
            }
            _ => {}
        }
    }
    let calls = m.parts.iter().any(|part| back && matches!(part, Part::ToolCall(_)));
    if content.len() == 1 && !calls {
        return;
    }
    open_message(out, role);
    if content.len() > 1 {
        json::key(out, "content");
        out.extend_from_slice(&content);
        out.push(b']');
    }
    if calls {
        tool_calls(out, m);
    }
    out.push(b'}');
}

/// Writes the calls of an assistant message and the plan that precedes them.
fn tool_calls(out: &mut Vec<u8>, m: &Message) {
    let plan = m.parts.iter().find_map(|part| match part {
        Part::Opaque { api, json } => back::<Plan<'_>>(api, json),
        _ => None,
    });
    if let Some(plan) = plan {
        json::key(out, "tool_plan");
        out.extend_from_slice(plan.tool_plan.get().as_bytes());
    }
    json::key(out, "tool_calls");
    out.push(b'[');
    for part in &m.parts {
        if let Part::ToolCall(call) = part {
            json::comma(out);
            tool_call(out, call);
        }
    }
    out.push(b']');
}

fn tool_call(out: &mut Vec<u8>, call: &ToolCall) {
    out.extend_from_slice(b"{\"id\":");
    json::string(out, &call.id);
    out.extend_from_slice(b",\"type\":\"function\",\"function\":{\"name\":");
    json::called(out, &call.name);
    out.extend_from_slice(b",\"arguments\":");
    json::arguments_text(out, &call.arguments);
    out.extend_from_slice(b"}}");
}

fn image(out: &mut Vec<u8>, image: &Image) {
    json::comma(out);
    out.extend_from_slice(b"{\"type\":\"image_url\",\"image_url\":{\"url\":");
    image_url(out, image);
    out.extend_from_slice(b"}}");
}

/// A stored plan.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plan<'a> {
    #[serde(borrow)]
    tool_plan: &'a RawValue,
}

/// Parses an opaque part of this format, if it has the shape of `T`.
fn back<'a, T: Deserialize<'a>>(api: &str, json: &'a str) -> Option<T> {
    (api == WireFormat::CohereV2.as_str()).then(|| serde_json::from_str(json).ok()).flatten()
}

/// `true` if the opaque part is a content block to send back, and not a plan.
fn is_thinking(api: &str, json: &str) -> bool {
    api == WireFormat::CohereV2.as_str()
        && json::is_object(json)
        && back::<Plan<'_>>(api, json).is_none()
}
