//! JSON shapes of Chat Completions. Parsing is lenient: a field of an unexpected type counts as
//! missing.

use crate::bounded::{Choices, List};
use crate::json::{Count, Str, unescaped};
use serde::Deserialize;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// A chunk of a stream, or a complete body, whose usage was read as `U`.
#[derive(Debug, Deserialize)]
pub(super) struct Chunk<'a, U> {
    #[serde(borrow, default)]
    pub(super) id: Str<'a>,
    #[serde(borrow, default)]
    pub(super) model: Str<'a>,
    #[serde(borrow, default)]
    pub(super) object: Str<'a>,
    #[serde(borrow, default)]
    pub(super) service_tier: Str<'a>,
    #[serde(borrow, default)]
    pub(super) choices: Option<Choices<Choice<'a>>>,
    // Boxed because serde moves the fields several times, and most chunks of a stream have none.
    #[serde(default = "Option::default", bound(deserialize = "U: Deserialize<'de>"))]
    pub(super) usage: Option<Box<U>>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) x_groq: Option<&'a RawValue>,
    // A flat error has these fields instead of choices.
    #[serde(borrow, default)]
    pub(super) message: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) detail: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) code: Option<&'a RawValue>,
    /// MiniMax: the status of each response.
    #[serde(borrow, default)]
    pub(super) base_resp: Option<&'a RawValue>,
}

impl<'a, U> Chunk<'a, U> {
    /// Replaces the usage.
    pub(super) fn with_usage<V>(self, read: impl FnOnce(U) -> Option<V>) -> Chunk<'a, V> {
        Chunk {
            id: self.id,
            model: self.model,
            object: self.object,
            service_tier: self.service_tier,
            choices: self.choices,
            usage: self.usage.and_then(|usage| read(*usage)).map(Box::new),
            error: self.error,
            x_groq: self.x_groq,
            message: self.message,
            detail: self.detail,
            code: self.code,
            base_resp: self.base_resp,
        }
    }

    /// Returns the text of a chunk that adds nothing else to a turn which has read the same chunk before,
    /// with any text. The values that a chunk sets, such as its service tier, are set again to the same.
    pub(super) fn only_text(&self) -> Option<&str> {
        let Chunk {
            choices: Some(Choices { first: Some(choice), more }),
            usage: None,
            error: None,
            x_groq: None,
            ..
        } = self
        else {
            return None;
        };
        let Choice {
            delta: Some(delta),
            message: None,
            logprobs: None,
            usage: None,
            error: None,
            ..
        } = choice
        else {
            return None;
        };
        if !more.is_empty() {
            return None;
        }
        let silent = |content: &Content<'_>| match content {
            Content::None => true,
            Content::Text(text) => text.is_empty(),
            Content::Parts(_) => false,
        };
        let Content::Text(text) = &delta.content else { return None };
        let alone = delta.reasonings().into_iter().all(silent)
            && delta.refusal.filled().is_none()
            && delta.reasoning_details.is_none()
            && delta.thinking_blocks.is_none()
            && delta.executed_tools.is_none()
            && delta.tool_calls.as_ref().is_none_or(|calls| calls.is_empty())
            && delta.function_call.is_none();
        alone.then_some(text)
    }
}

#[derive(Debug, Deserialize, Default)]
pub(super) struct Choice<'a> {
    #[serde(default)]
    pub(super) index: Count,
    // Boxed because serde moves the fields several times while it collects them.
    #[serde(borrow, default)]
    pub(super) delta: Option<Box<Message<'a>>>,
    #[serde(borrow, default)]
    pub(super) message: Option<Box<Message<'a>>>,
    #[serde(borrow, default)]
    pub(super) finish_reason: Str<'a>,
    /// vLLM: the matched stop string or token id.
    #[serde(borrow, default)]
    pub(super) stop_reason: Option<&'a RawValue>,
    /// SGLang's name for the same.
    #[serde(borrow, default)]
    pub(super) matched_stop: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) logprobs: Option<&'a RawValue>,
    /// Usage, in Moonshot's streams.
    #[serde(borrow, default)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) native_finish_reason: Str<'a>,
}

#[derive(Debug, Deserialize, Default)]
pub(super) struct Message<'a> {
    #[serde(borrow, default)]
    pub(super) content: Content<'a>,
    #[serde(borrow, default)]
    pub(super) reasoning_content: Content<'a>,
    #[serde(borrow, default)]
    pub(super) reasoning: Content<'a>,
    /// GitHub Copilot.
    #[serde(borrow, default)]
    pub(super) reasoning_text: Content<'a>,
    #[serde(borrow, default)]
    pub(super) thinking: Content<'a>,
    /// OpenRouter, MiniMax: a list of [`ReasoningDetail`]s.
    #[serde(borrow, default)]
    pub(super) reasoning_details: Option<&'a RawValue>,
    /// LiteLLM: Anthropic's blocks.
    #[serde(borrow, default)]
    pub(super) thinking_blocks: Option<&'a RawValue>,
    /// Groq: a list of the [`ExecutedTool`]s.
    #[serde(borrow, default)]
    pub(super) executed_tools: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) refusal: Str<'a>,
    #[serde(borrow, default)]
    pub(super) tool_calls: Option<List<Call<'a>>>,
    #[serde(borrow, default)]
    pub(super) function_call: Option<Function<'a>>,
}

impl<'a> Message<'a> {
    /// The fields with reasoning. A server that sends several of them sends the same text in each.
    pub(super) fn reasonings(&self) -> [&Content<'a>; 4] {
        [&self.reasoning_content, &self.reasoning, &self.reasoning_text, &self.thinking]
    }
}

/// An item of `reasoning_details` or `thinking_blocks`.
#[derive(Deserialize)]
pub(super) struct ReasoningDetail<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Str<'a>,
    #[serde(borrow, default)]
    pub(super) text: Str<'a>,
    #[serde(borrow, default)]
    pub(super) summary: Str<'a>,
    #[serde(borrow, default)]
    pub(super) thinking: Str<'a>,
    /// Encrypted reasoning.
    #[serde(borrow, default)]
    pub(super) data: Str<'a>,
}

/// A tool that the provider has run.
#[derive(Deserialize)]
pub(super) struct ExecutedTool<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Str<'a>,
    #[serde(borrow, default)]
    pub(super) arguments: Str<'a>,
}

#[derive(Debug, Deserialize, Default)]
pub(super) struct Call<'a> {
    #[serde(default)]
    pub(super) index: Count,
    #[serde(borrow, default)]
    pub(super) id: Str<'a>,
    #[serde(borrow, default)]
    pub(super) function: Option<Function<'a>>,
}

#[derive(Debug, Deserialize, Default)]
pub(super) struct Function<'a> {
    #[serde(borrow, default)]
    pub(super) name: Str<'a>,
    #[serde(borrow, default)]
    pub(super) arguments: Arguments<'a>,
}

/// Arguments of a call, or a fragment of them, as JSON text; empty if the field is missing. The format
/// requires a string, but some servers send the object itself.
#[derive(Debug, Default)]
pub(super) struct Arguments<'a>(pub(super) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Arguments<'a> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Arguments<'a>, D::Error> {
        let raw = Option::<&RawValue>::deserialize(d)?;
        Ok(match raw.filter(|raw| raw.get().starts_with('"')) {
            Some(string) => Arguments(unescaped(string.get()).unwrap_or_default()),
            None => Arguments(filled(raw).map_or("", RawValue::get).into()),
        })
    }
}

/// A string, or a list of typed parts.
#[derive(Debug, Default)]
pub(super) enum Content<'a> {
    #[default]
    None,
    Text(Cow<'a, str>),
    Parts(List<ContentPart<'a>>),
}

#[derive(Debug, Deserialize)]
pub(super) struct ContentPart<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Str<'a>,
    #[serde(borrow, default)]
    pub(super) text: Str<'a>,
    /// Mistral: a list of text parts.
    #[serde(borrow, default)]
    pub(super) thinking: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) refusal: Str<'a>,
}

impl Content<'_> {
    /// Returns the texts of the content that are not empty.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        let (text, parts): (_, &[ContentPart<'_>]) = match self {
            Content::None => ("", &[]),
            Content::Text(text) => (&**text, &[]),
            Content::Parts(parts) => ("", parts),
        };
        let texts = std::iter::once(text).chain(parts.iter().map(|part| part.text.get()));
        texts.filter(|text| !text.is_empty())
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content<'de>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }
    fn visit_borrowed_str<E>(self, v: &'de str) -> Result<Content<'de>, E> {
        Ok(Content::Text(Cow::Borrowed(v)))
    }
    fn visit_str<E>(self, v: &str) -> Result<Content<'de>, E> {
        Ok(Content::Text(Cow::Owned(v.to_owned())))
    }
    fn visit_unit<E>(self) -> Result<Content<'de>, E> {
        Ok(Content::None)
    }
    fn visit_bool<E>(self, _: bool) -> Result<Content<'de>, E> {
        Ok(Content::None)
    }
    fn visit_u64<E>(self, _: u64) -> Result<Content<'de>, E> {
        Ok(Content::None)
    }
    fn visit_i64<E>(self, _: i64) -> Result<Content<'de>, E> {
        Ok(Content::None)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Content<'de>, E> {
        Ok(Content::None)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Content<'de>, A::Error> {
        List::deserialize(SeqAccessDeserializer::new(seq)).map(Content::Parts)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Content<'de>, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Content::None)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Content<'a>, D::Error> {
        d.deserialize_any(ContentVisitor)
    }
}

/// `usage`, with all names that dialects use for the same counts. The details were read as `D`.
#[derive(Debug, Deserialize, Default)]
pub(super) struct Usage<'a, D> {
    #[serde(default)]
    pub(super) prompt_tokens: Count,
    #[serde(default)]
    pub(super) completion_tokens: Count,
    #[serde(default)]
    pub(super) total_tokens: Count,
    #[serde(default = "Option::default", bound(deserialize = "D: Deserialize<'de>"))]
    pub(super) prompt_tokens_details: Option<D>,
    #[serde(default = "Option::default", bound(deserialize = "D: Deserialize<'de>"))]
    pub(super) completion_tokens_details: Option<D>,
    #[serde(default)]
    pub(super) prompt_cache_hit_tokens: Count,
    #[serde(default)]
    pub(super) cached_tokens: Count,
    #[serde(default)]
    pub(super) num_cached_tokens: Count,
    #[serde(default)]
    pub(super) cache_read_input_tokens: Count,
    #[serde(default)]
    pub(super) cache_creation_input_tokens: Count,
    #[serde(default)]
    pub(super) reasoning_tokens: Count,
    #[serde(borrow, default)]
    pub(super) cost: Option<&'a RawValue>,
    /// xAI: the cost in ten-billionths of a dollar.
    #[serde(default)]
    pub(super) cost_in_usd_ticks: Count,
    /// OpenRouter: `true` if the user's own key of another provider paid for the tokens.
    #[serde(borrow, default)]
    pub(super) is_byok: Str<'a>,
    #[serde(borrow, default)]
    pub(super) cost_details: Option<&'a RawValue>,
    /// Mistral.
    #[serde(borrow, default)]
    pub(super) service_tier: Str<'a>,
    /// OpenRouter.
    #[serde(borrow, default)]
    pub(super) server_tool_use: Option<&'a RawValue>,
    /// xAI: the number of sources that a search used.
    #[serde(default)]
    pub(super) num_sources_used: Count,
}

impl<'a, D> Usage<'a, D> {
    /// Replaces the details.
    pub(super) fn with_details<E>(self, read: impl Fn(D) -> Option<E>) -> Usage<'a, E> {
        Usage {
            prompt_tokens: self.prompt_tokens,
            completion_tokens: self.completion_tokens,
            total_tokens: self.total_tokens,
            prompt_tokens_details: self.prompt_tokens_details.and_then(&read),
            completion_tokens_details: self.completion_tokens_details.and_then(&read),
            prompt_cache_hit_tokens: self.prompt_cache_hit_tokens,
            cached_tokens: self.cached_tokens,
            num_cached_tokens: self.num_cached_tokens,
            cache_read_input_tokens: self.cache_read_input_tokens,
            cache_creation_input_tokens: self.cache_creation_input_tokens,
            reasoning_tokens: self.reasoning_tokens,
            cost: self.cost,
            cost_in_usd_ticks: self.cost_in_usd_ticks,
            is_byok: self.is_byok,
            cost_details: self.cost_details,
            service_tier: self.service_tier,
            server_tool_use: self.server_tool_use,
            num_sources_used: self.num_sources_used,
        }
    }
}

/// Usage whose details were read.
pub(super) type Counts<'a> = Usage<'a, Details>;

/// Details of the input or the output side of the usage.
#[derive(Debug, Deserialize, Default)]
pub(super) struct Details {
    #[serde(default, rename = "cached_tokens")]
    pub(super) cached: Count,
    #[serde(default, rename = "cache_write_tokens")]
    pub(super) cache_write: Count,
    #[serde(default, rename = "reasoning_tokens")]
    pub(super) reasoning: Count,
    #[serde(default, rename = "audio_tokens")]
    pub(super) audio: Count,
    #[serde(default, rename = "image_tokens")]
    pub(super) image: Count,
}

/// Details of the cost.
#[derive(Deserialize)]
pub(super) struct CostDetails<'a> {
    #[serde(borrow, default)]
    pub(super) upstream_inference_cost: Option<&'a RawValue>,
}

/// Groq's additional field.
#[derive(Deserialize, Default)]
pub(super) struct XGroq<'a> {
    #[serde(borrow, default)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
}

/// Log probabilities of a choice.
#[derive(Deserialize, Default)]
pub(super) struct Logprobs {
    #[serde(default)]
    pub(super) content: Option<Vec<Logprob>>,
}

#[derive(Deserialize)]
pub(super) struct Logprob {
    pub(super) logprob: f64,
}

/// MiniMax's status of a response; 0 is success.
#[derive(Deserialize)]
pub(super) struct BaseResp {
    pub(super) status_code: i64,
}

/// Returns the raw value, unless it is absent, null, false or empty.
pub(super) fn filled(raw: Option<&RawValue>) -> Option<&RawValue> {
    raw.filter(|r| !matches!(r.get(), "null" | "\"\"" | "{}" | "[]" | "false"))
}
