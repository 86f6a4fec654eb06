//! The APIs that are understood: families of wire formats, and dialects of them as data.
//!
//! ```
//! use endstop_wire::dialect::{Family, dialect};
//! assert_eq!(dialect("groq")?.family, Family::OpenAiChat);
//! assert!(dialect("telegraph").unwrap_err().to_string().contains("openai-chat"));
//! # Ok::<(), endstop_wire::dialect::UnknownApi>(())
//! ```

use std::fmt;

/// A wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Family {
    /// OpenAI's chat completions.
    OpenAiChat,
    /// Anthropic's messages.
    Anthropic,
    /// Google's `generateContent`.
    Gemini,
    /// OpenAI's Responses.
    OpenAiResponses,
    /// Cohere's second chat, `/v2/chat`.
    CohereV2,
    /// Cohere's first chat, `/v1/chat`; its responses are read, but it is not asked.
    CohereV1,
    /// Ollama's `/api/chat`.
    Ollama,
    /// Bedrock's Converse.
    BedrockConverse,
    /// Bedrock's InvokeModel: the model's own format in Bedrock's envelope.
    BedrockInvoke,
}

impl Family {
    /// All of them.
    pub const ALL: &[Family] = &[
        Family::OpenAiChat,
        Family::OpenAiResponses,
        Family::Anthropic,
        Family::Gemini,
        Family::CohereV2,
        Family::CohereV1,
        Family::Ollama,
        Family::BedrockConverse,
        Family::BedrockInvoke,
    ];

    /// The format of this name, as a user gives it; its maker's name will do.
    pub fn named(name: &str) -> Option<Family> {
        let name = original(name);
        Family::ALL.iter().copied().find(|family| family.as_str() == name)
    }

    /// The provider whose format it is: what is compatible is called as that one is.
    pub const fn provider(self) -> &'static str {
        match self {
            Family::OpenAiChat | Family::OpenAiResponses => "openai",
            Family::Anthropic => "anthropic",
            Family::Gemini => "gemini",
            Family::BedrockConverse | Family::BedrockInvoke => "bedrock",
            Family::CohereV2 | Family::CohereV1 => "cohere",
            Family::Ollama => "ollama",
        }
    }

    /// The format to ask in instead, where this one is only read: what was recorded in it is
    /// understood, but no request of it is made.
    pub const fn read_only(self) -> Option<Family> {
        match self {
            Family::CohereV1 => Some(Family::CohereV2),
            _ => None,
        }
    }

    /// The name of the format; [`endstop_core::Part::Opaque`] carries it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Family::OpenAiChat => "openai-chat",
            Family::Anthropic => "anthropic-messages",
            Family::Gemini => "gemini",
            Family::OpenAiResponses => "openai-responses",
            Family::BedrockConverse => "bedrock-converse",
            Family::BedrockInvoke => "bedrock-invoke",
            Family::CohereV2 => "cohere-v2",
            Family::CohereV1 => "cohere-v1",
            Family::Ollama => "ollama",
        }
    }

    /// What its streams are, beside server-sent events, which are taken from every format, and
    /// frames.
    pub(crate) const fn framing(self) -> Framing {
        match self {
            Family::Gemini => Framing::Array,
            Family::BedrockConverse | Family::CohereV1 | Family::Ollama => Framing::Objects,
            Family::OpenAiChat
            | Family::Anthropic
            | Family::OpenAiResponses
            | Family::BedrockInvoke
            | Family::CohereV2 => Framing::Events,
        }
    }

    /// Its streams are binary frames ([`crate::stream::eventstream`]), unless somebody unpacked them.
    pub const fn in_frames(self) -> bool {
        matches!(self, Family::BedrockConverse | Family::BedrockInvoke)
    }
}

/// What a stream is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Server-sent events alone.
    Events,
    /// One array, whose elements are the events.
    Array,
    /// Objects, a line each; one alone may be a whole body.
    Objects,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How the output cap is spelled in a request of the OpenAI family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapField {
    /// `max_tokens`.
    MaxTokens,
    /// `max_completion_tokens`.
    MaxCompletionTokens,
}

/// A server's way of speaking a family's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// The name: `groq`.
    pub name: &'static str,
    /// The format it speaks.
    pub family: Family,
    /// How it wants the output cap.
    pub cap_field: CapField,
    /// `usage` tells what it billed.
    pub reports_cost: bool,
    /// It wants the reasoning of a turn with tool calls back, in this field of the message.
    pub echo_reasoning: Option<&'static str>,
    /// Its `custom_tool_call` items are work of its own, not the client's.
    pub runs_custom_tools: bool,
    /// It refuses a request for what it does not know: a field of a message, `stream_options` (a
    /// stream has its usage without them), a message that says nothing, the user's word straight
    /// after a tool's.
    pub strict: bool,
    /// It refuses the id of a call that is not of so many letters and digits.
    pub call_id_length: Option<usize>,
    /// The address says the model, and the body this version of the format.
    pub version_in_body: Option<&'static str>,
    /// It never sends a finish value, whole or streamed: a whole answer without one is not
    /// suspicious. Each row that sets it names the evidence.
    pub omits_finish: bool,
}

impl Dialect {
    /// Each request must have an output cap.
    pub const fn wants_cap(&self) -> bool {
        matches!(self.family, Family::Anthropic | Family::BedrockInvoke)
    }

    const fn openai(name: &'static str) -> Dialect {
        Dialect {
            name,
            family: Family::OpenAiChat,
            cap_field: CapField::MaxTokens,
            reports_cost: false,
            echo_reasoning: None,
            runs_custom_tools: false,
            strict: false,
            call_id_length: None,
            version_in_body: None,
            omits_finish: false,
        }
    }

    const fn strict(self, call_id_length: usize) -> Dialect {
        Dialect { strict: true, call_id_length: Some(call_id_length), ..self }
    }

    const fn anthropic(name: &'static str) -> Dialect {
        Dialect { family: Family::Anthropic, ..Dialect::openai(name) }
    }

    const fn gemini(name: &'static str) -> Dialect {
        Dialect { family: Family::Gemini, ..Dialect::openai(name) }
    }

    const fn cohere(name: &'static str, family: Family) -> Dialect {
        Dialect { family, ..Dialect::openai(name) }
    }

    const fn responses(name: &'static str) -> Dialect {
        Dialect { family: Family::OpenAiResponses, ..Dialect::openai(name) }
    }

    const fn ollama(name: &'static str) -> Dialect {
        Dialect { family: Family::Ollama, ..Dialect::openai(name) }
    }

    const fn bedrock(name: &'static str, family: Family) -> Dialect {
        Dialect { family, ..Dialect::openai(name) }
    }

    const fn completion_cap(self) -> Dialect {
        Dialect { cap_field: CapField::MaxCompletionTokens, ..self }
    }

    const fn costs(self) -> Dialect {
        Dialect { reports_cost: true, ..self }
    }

    const fn echoes(self, field: &'static str) -> Dialect {
        Dialect { echo_reasoning: Some(field), ..self }
    }

    const fn says_version(self, version: &'static str) -> Dialect {
        Dialect { version_in_body: Some(version), ..self }
    }

    const fn omits_finish(self) -> Dialect {
        Dialect { omits_finish: true, ..self }
    }

    const fn runs_custom_tools(self) -> Dialect {
        Dialect { runs_custom_tools: true, ..self }
    }
}

/// OpenAI's own chat completions.
pub const OPENAI_CHAT: &Dialect = &DIALECTS[0];

/// Anthropic's own messages.
pub const ANTHROPIC: &Dialect = &DIALECTS[1];

/// OpenAI's own Responses.
pub const OPENAI_RESPONSES: &Dialect = &DIALECTS[2];

/// All dialects.
pub const DIALECTS: &[Dialect] = &[
    Dialect::openai("openai-chat").completion_cap(),
    Dialect::anthropic("anthropic-messages"),
    Dialect::responses("openai-responses"),
    Dialect::anthropic("vertex-anthropic").says_version("vertex-2023-10-16"),
    Dialect::openai("openai-compatible"),
    Dialect::openai("azure-openai-chat").completion_cap(),
    Dialect::openai("bedrock-openai"),
    Dialect::openai("cerebras"),
    Dialect::openai("copilot"),
    Dialect::openai("crusoe"),
    Dialect::openai("dashscope"),
    Dialect::openai("deepseek").echoes("reasoning_content"),
    Dialect::openai("doubleword"),
    Dialect::openai("fireworks"),
    Dialect::openai("gemini-openai"),
    Dialect::openai("github-models"),
    Dialect::openai("gpustack"),
    Dialect::openai("groq"),
    Dialect::openai("huggingface"),
    Dialect::openai("llamacpp"),
    Dialect::openai("mistral").strict(9),
    Dialect::openai("mistralrs"),
    Dialect::openai("moonshot").echoes("reasoning_content"),
    Dialect::openai("ollama-openai"),
    Dialect::openai("openrouter").costs(),
    Dialect::openai("perplexity").costs(),
    Dialect::openai("sambanova"),
    Dialect::openai("sglang"),
    // Cortex leaves `finish_reason` empty for its own models: three of its four recorded bodies.
    Dialect::openai("snowflake").omits_finish(),
    Dialect::openai("tgi"),
    Dialect::openai("together"),
    Dialect::openai("venice"),
    Dialect::openai("vercel-gateway").costs(),
    Dialect::openai("vllm"),
    Dialect::openai("xai"),
    Dialect::openai("zai").echoes("reasoning_content"),
    Dialect::openai("zhipu").echoes("reasoning_content"),
    Dialect::ollama("ollama"),
    Dialect::gemini("gemini"),
    Dialect::gemini("vertex-gemini"),
    Dialect::bedrock("bedrock-converse", Family::BedrockConverse),
    Dialect::bedrock("bedrock-invoke", Family::BedrockInvoke),
    Dialect::responses("openai-responses-compat"),
    Dialect::responses("azure-openai-responses"),
    Dialect::responses("bedrock-openai-responses"),
    Dialect::responses("copilot-responses"),
    Dialect::responses("deepseek-responses"),
    Dialect::responses("llamacpp-responses"),
    Dialect::responses("mistralrs-responses"),
    Dialect::responses("openrouter-responses").costs(),
    Dialect::responses("xai-responses").costs().runs_custom_tools(),
    Dialect::cohere("cohere-v2", Family::CohereV2),
    Dialect::cohere("cohere-v1", Family::CohereV1),
];

/// A name that no dialect has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownApi(pub String);

impl fmt::Display for UnknownApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown or unsupported api `{}`; choose one of ", self.0)?;
        for (i, d) in DIALECTS.iter().enumerate() {
            write!(f, "{}{}", if i == 0 { "" } else { ", " }, d.name)?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownApi {}

/// The dialect of this name; `openai`, `anthropic`, `google`, `bedrock` and `cohere` name the
/// originals.
pub fn dialect(name: &str) -> Result<&'static Dialect, UnknownApi> {
    let name = original(name);
    DIALECTS.iter().find(|d| d.name == name).ok_or_else(|| UnknownApi(name.to_owned()))
}

/// Servers that are known by their host: its last labels, and the dialect.
const HOSTS: &[(&str, &str)] = &[("snowflakecomputing.com", "snowflake")];

/// The dialect that the server at this host is known to speak, if it is one of this format.
pub fn dialect_at(host: &str, family: Family) -> Option<&'static Dialect> {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let of = |domain: &str| {
        host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    let (_, name) = HOSTS.iter().find(|(domain, _)| of(domain))?;
    dialect(name).ok().filter(|dialect| dialect.family == family)
}

/// The format that a maker's name stands for.
fn original(name: &str) -> &str {
    match name {
        "openai" => "openai-chat",
        "anthropic" => "anthropic-messages",
        "google" => "gemini",
        "bedrock" => "bedrock-converse",
        "cohere" => "cohere-v2",
        other => other,
    }
}
