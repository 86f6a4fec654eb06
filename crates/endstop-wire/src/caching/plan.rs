//! The plan of a request for prompt caching: marks, a key, or nothing.

use super::models::bedrock;
use super::setting::Caching;
use crate::dialect::{Dialect, WireFormat};
use serde_json::{Map, Value, json};

/// The marks and the key that the requests of a conversation carry for prompt caching.
/// [`ModelParams::apply`](crate::ModelParams::apply) sets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CachePlan {
    /// The marks, if requests carry marks.
    pub marks: Option<Marks>,
    /// `true` to send `prompt_cache_key`.
    pub key: bool,
}

/// The marks of a request: at the end of the tools, of the system prompt, and of the conversation as
/// it is now and as it was in the previous request.
///
/// Rules of the API ("Prompt caching" in Anthropic's documentation): a request has at most four
/// marks, in the order tools, system, messages; text that is empty and thinking cannot be marked;
/// longer lifetimes come before shorter ones, and here all are equal. A prompt that is too short is
/// processed without caching, so no size is checked. From each mark the server looks back over 20
/// blocks for an earlier entry, so that a turn which adds more would miss the previous one. The
/// second mark in the conversation is therefore exactly where the previous request had its last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// `true` for a lifetime of an hour, `false` for five minutes.
    pub hour: bool,
    /// `true` if tools, tool results and images can be marked, `false` if only text can.
    pub anywhere: bool,
}

impl Marks {
    /// The member that marks a block of Anthropic's format, after a comma.
    pub(crate) const fn member(self) -> &'static [u8] {
        if self.hour {
            br#","cache_control":{"type":"ephemeral","ttl":"1h"}"#
        } else {
            br#","cache_control":{"type":"ephemeral"}"#
        }
    }

    /// The block that follows marked content in Bedrock's Converse format, after a comma.
    pub(crate) const fn block(self) -> &'static [u8] {
        if self.hour {
            br#",{"cachePoint":{"type":"default","ttl":"1h"}}"#
        } else {
            br#",{"cachePoint":{"type":"default"}}"#
        }
    }

    /// The block that follows marked content in Bedrock's Converse format, as JSON.
    pub(crate) fn point(self) -> Value {
        let mut point = json!({"type": "default"});
        if self.hour {
            point["ttl"] = json!("1h");
        }
        json!({"cachePoint": point})
    }
}

/// The kinds of prompt caching that an API takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Support {
    /// Marks; `true` if a lifetime of an hour is accepted.
    Marks { anywhere: bool, hour: bool },
    /// A key that routes the requests of a conversation to the same cache.
    Key,
    /// Nothing.
    Nothing,
}

impl Support {
    pub(crate) fn of(dialect: &Dialect, model: &str) -> Support {
        match dialect.family {
            WireFormat::Anthropic => Support::Marks { anywhere: true, hour: true },
            WireFormat::BedrockConverse | WireFormat::BedrockInvoke => match bedrock(model) {
                Some(known) => Support::Marks { anywhere: known.anywhere, hour: known.hour },
                None => Support::Nothing,
            },
            // Only OpenAI itself. Many compatible servers refuse a field that they do not know, and
            // Azure's dated versions do so too; they route by the prefix alone.
            WireFormat::OpenAiChat | WireFormat::OpenAiResponses
                if matches!(dialect.name, "openai-chat" | "openai-responses") =>
            {
                Support::Key
            }
            WireFormat::OpenAiChat
            | WireFormat::Gemini
            | WireFormat::OpenAiResponses
            | WireFormat::CohereV2
            | WireFormat::CohereV1
            | WireFormat::Ollama => Support::Nothing,
        }
    }

    pub(crate) const fn hour(self) -> bool {
        matches!(self, Support::Marks { hour: true, .. })
    }
}

/// Returns the plan for a setting that the API takes.
pub(crate) fn plan(setting: Caching, support: Support, extra: &Map<String, Value>) -> CachePlan {
    match support {
        _ if setting == Caching::Off => CachePlan::default(),
        // The caller's own marks take precedence, because more than four are refused.
        Support::Marks { anywhere, .. } if !has_marks(extra) => CachePlan {
            marks: Some(Marks { hour: setting == Caching::OneHour, anywhere }),
            key: false,
        },
        Support::Key => CachePlan { marks: None, key: !extra.contains_key("prompt_cache_key") },
        Support::Marks { .. } | Support::Nothing => CachePlan::default(),
    }
}

/// `true` if the extra fields contain cache marks.
pub(crate) fn has_marks(extra: &Map<String, Value>) -> bool {
    fn within(value: &Value) -> bool {
        match value {
            Value::Array(items) => items.iter().any(within),
            Value::Object(fields) => has_marks(fields),
            _ => false,
        }
    }
    let is_mark = |name: &str| matches!(name, "cache_control" | "cachePoint");
    extra.iter().any(|(name, value)| is_mark(name) || within(value))
}
