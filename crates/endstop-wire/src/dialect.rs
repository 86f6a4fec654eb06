//! Catalogue of supported APIs: wire formats ([`WireFormat`]) and their server-specific dialects, as
//! data.
//!
//! ```
//! use endstop_wire::dialect::{WireFormat, dialect};
//! assert_eq!(dialect("groq")?.family, WireFormat::OpenAiChat);
//! assert!(dialect("telegraph").unwrap_err().to_string().contains("openai-chat"));
//! # Ok::<(), endstop_wire::dialect::UnknownApi>(())
//! ```

use std::fmt;

/// A wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WireFormat {
    /// OpenAI Chat Completions.
    OpenAiChat,
    /// Anthropic Messages.
    Anthropic,
    /// Google `generateContent`.
    Gemini,
    /// OpenAI Responses.
    OpenAiResponses,
    /// Cohere chat, version 2: `/v2/chat`.
    CohereV2,
    /// Cohere chat, version 1: `/v1/chat`. Responses are decoded, but requests are never encoded in
    /// it.
    CohereV1,
    /// Ollama `/api/chat`.
    Ollama,
    /// Amazon Bedrock Converse.
    BedrockConverse,
    /// Amazon Bedrock InvokeModel: the model's native format inside Bedrock's envelope.
    BedrockInvoke,
}

/// What is known of a format apart from its functions, which the codec's folders have.
struct Facts {
    /// Name of the format.
    name: &'static str,
    /// Name of the provider that defined it, in the list of dialects.
    provider: &'static str,
    /// Id of that provider in the catalogue, if it has prices.
    catalogue: Option<&'static str>,
    /// The end of the names of other servers' dialects of this format, after the server's name.
    dialect_suffix: Option<&'static str>,
    /// The version at the beginning of a path. `None`: base URLs have it by convention.
    version: Option<&'static str>,
    /// Framing of its streams, apart from binary frames.
    framing: Framing,
    /// `true` if its streams are binary frames.
    in_frames: bool,
    /// The format of messages that new requests have: another one inside an envelope.
    content: WireFormat,
    /// `true` if a stream begins with an output count that its end replaces.
    has_preliminary_output: bool,
    /// The format to send requests in, if this one can only be decoded.
    read_only: Option<WireFormat>,
    /// `true` if a response can have an id while its provider still works on it, and is read later.
    works_in_background: bool,
}

impl WireFormat {
    const fn facts(self) -> Facts {
        match self {
            WireFormat::OpenAiChat => Facts {
                name: "openai-chat",
                provider: "openai",
                catalogue: Some("openai"),
                dialect_suffix: Some("openai"),
                version: None,
                framing: Framing::Events,
                in_frames: false,
                content: WireFormat::OpenAiChat,
                has_preliminary_output: false,
                works_in_background: false,
                read_only: None,
            },
            WireFormat::OpenAiResponses => Facts {
                name: "openai-responses",
                provider: "openai",
                catalogue: Some("openai"),
                dialect_suffix: Some("responses"),
                version: None,
                framing: Framing::Events,
                in_frames: false,
                content: WireFormat::OpenAiResponses,
                has_preliminary_output: false,
                works_in_background: true,
                read_only: None,
            },
            WireFormat::Anthropic => Facts {
                name: "anthropic-messages",
                provider: "anthropic",
                catalogue: Some("anthropic"),
                dialect_suffix: None,
                version: Some("/v1"),
                framing: Framing::Events,
                in_frames: false,
                content: WireFormat::Anthropic,
                has_preliminary_output: true,
                works_in_background: false,
                read_only: None,
            },
            WireFormat::Gemini => Facts {
                name: "gemini",
                provider: "gemini",
                catalogue: Some("google"),
                dialect_suffix: None,
                version: Some("/v1beta"),
                framing: Framing::Array,
                in_frames: false,
                content: WireFormat::Gemini,
                has_preliminary_output: false,
                works_in_background: false,
                read_only: None,
            },
            WireFormat::CohereV2 => Facts {
                name: "cohere-v2",
                provider: "cohere",
                catalogue: Some("cohere"),
                dialect_suffix: None,
                version: Some("/v2"),
                framing: Framing::Events,
                in_frames: false,
                content: WireFormat::CohereV2,
                has_preliminary_output: false,
                works_in_background: false,
                read_only: None,
            },
            WireFormat::CohereV1 => Facts {
                name: "cohere-v1",
                provider: "cohere",
                catalogue: Some("cohere"),
                dialect_suffix: None,
                version: Some("/v1"),
                framing: Framing::Objects,
                in_frames: false,
                content: WireFormat::CohereV1,
                has_preliminary_output: false,
                works_in_background: false,
                read_only: Some(WireFormat::CohereV2),
            },
            WireFormat::Ollama => Facts {
                name: "ollama",
                provider: "ollama",
                catalogue: None,
                dialect_suffix: None,
                version: Some(""),
                framing: Framing::Objects,
                in_frames: false,
                content: WireFormat::Ollama,
                has_preliminary_output: false,
                works_in_background: false,
                read_only: None,
            },
            WireFormat::BedrockConverse => Facts {
                name: "bedrock-converse",
                provider: "bedrock",
                catalogue: Some("bedrock"),
                dialect_suffix: None,
                version: Some(""),
                framing: Framing::Objects,
                in_frames: true,
                content: WireFormat::BedrockConverse,
                has_preliminary_output: false,
                works_in_background: false,
                read_only: None,
            },
            WireFormat::BedrockInvoke => Facts {
                name: "bedrock-invoke",
                provider: "bedrock",
                catalogue: Some("bedrock"),
                dialect_suffix: None,
                version: Some(""),
                // If a client library has unpacked the frames.
                framing: Framing::Events,
                in_frames: true,
                content: WireFormat::Anthropic,
                has_preliminary_output: true,
                works_in_background: false,
                read_only: None,
            },
        }
    }

    /// Every supported format.
    pub const ALL: &[WireFormat] = &[
        WireFormat::OpenAiChat,
        WireFormat::OpenAiResponses,
        WireFormat::Anthropic,
        WireFormat::Gemini,
        WireFormat::CohereV2,
        WireFormat::CohereV1,
        WireFormat::Ollama,
        WireFormat::BedrockConverse,
        WireFormat::BedrockInvoke,
    ];

    /// Returns the format with this name. The vendor's name (`openai`, `google`) also works.
    pub fn named(name: &str) -> Option<WireFormat> {
        let name = original(name);
        WireFormat::ALL.iter().copied().find(|family| family.as_str() == name)
    }

    /// Name of the provider that defined this format. A server that is only known to be compatible
    /// is called in the same way as this provider.
    pub const fn provider(self) -> &'static str {
        self.facts().provider
    }

    /// `true` if a response can have an id while its provider still works on it, and is read later.
    pub const fn works_in_background(self) -> bool {
        self.facts().works_in_background
    }

    /// Returns the format to send requests in if this one can only be decoded, so that old
    /// recordings stay readable although no new request is made in it.
    pub const fn read_only(self) -> Option<WireFormat> {
        self.facts().read_only
    }

    /// Name of the format, as [`endstop_core::Part::Opaque`] carries it.
    pub const fn as_str(self) -> &'static str {
        self.facts().name
    }

    /// Returns the format of the messages in requests of this one: Anthropic's inside Bedrock's InvokeModel.
    #[must_use]
    pub const fn content(self) -> WireFormat {
        self.facts().content
    }

    /// `true` if a stream of this format begins with a preliminary output count, which its end replaces. The count of
    /// a cut stream must not be charged.
    pub const fn has_preliminary_output(self) -> bool {
        self.facts().has_preliminary_output
    }

    /// Id of the format's own provider in the catalogue of prices, if it has prices.
    pub const fn catalogue(self) -> Option<&'static str> {
        self.facts().catalogue
    }

    /// The version at the beginning of a path, for example `/v1`; empty if paths have none. `None` if base URLs of
    /// this format have it by convention.
    pub const fn version(self) -> Option<&'static str> {
        self.facts().version
    }

    /// Returns the dialect of the format's own provider.
    pub fn dialect(self) -> &'static Dialect {
        let own = DIALECTS.iter().find(|dialect| dialect.name == self.as_str());
        // Each format has a row with its name; a test compares them.
        own.unwrap_or(OPENAI_CHAT)
    }

    /// Framing of this format's streams. Server-sent events are accepted in addition for every
    /// format, and binary frames are covered by [`WireFormat::in_frames`].
    pub(crate) const fn framing(self) -> Framing {
        self.facts().framing
    }

    /// `true` if streams of this format are binary frames ([`crate::stream::eventstream`]). A client
    /// library may already have unpacked them, so other framing is accepted too.
    pub const fn in_frames(self) -> bool {
        self.facts().in_frames
    }
}

/// Unit that a stream is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Server-sent events only.
    Events,
    /// One JSON array whose elements are the events.
    Array,
    /// JSON objects, one per line. A single object may also be a complete body.
    Objects,
}

impl fmt::Display for WireFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Spelling of the output cap in a request of the OpenAI family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapField {
    /// `max_tokens`.
    MaxTokens,
    /// `max_completion_tokens`.
    MaxCompletionTokens,
}

/// A server's variant of a wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// Name of the dialect, for example `groq`.
    pub name: &'static str,
    /// Wire format that the dialect is based on.
    pub family: WireFormat,
    /// Field that carries the output cap.
    pub cap_field: CapField,
    /// `true` if the server reports the billed amount in `usage`.
    pub reports_cost: bool,
    /// Message field in which the server requires the reasoning of a turn with tool calls to be
    /// sent back.
    pub echo_reasoning: Option<&'static str>,
    /// `true` if the server runs `custom_tool_call` items itself, so that the client must not run
    /// them.
    pub runs_custom_tools: bool,
    /// `true` if the server rejects requests with anything it does not know: an extra field of a
    /// message, `stream_options` (its streams report usage without it), an empty message, or a user
    /// message directly after a tool result.
    pub strict: bool,
    /// Exact number of letters and digits in a tool call's id, if the server rejects other ids.
    pub call_id_length: Option<usize>,
    /// Format version to send in the body, for servers that take the model's name from the URL.
    pub version_in_body: Option<&'static str>,
    /// `true` if the server never sends a finish value, streamed or not, so that a complete answer
    /// without one is not suspicious. Each row that sets this flag names its evidence.
    pub omits_finish: bool,
}

impl Dialect {
    /// `true` if every request must carry an output cap.
    pub const fn wants_cap(&self) -> bool {
        // Anthropic rejects a request without `max_tokens`; all other formats have a default.
        matches!(self.family, WireFormat::Anthropic | WireFormat::BedrockInvoke)
    }

    // The other constructors start from these values because most servers imitate OpenAI.
    const fn openai(name: &'static str) -> Dialect {
        Dialect {
            name,
            family: WireFormat::OpenAiChat,
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
        // The same servers that reject unknown fields also check the length of call ids, so one
        // setter sets both.
        Dialect { strict: true, call_id_length: Some(call_id_length), ..self }
    }

    const fn anthropic(name: &'static str) -> Dialect {
        Dialect { family: WireFormat::Anthropic, ..Dialect::openai(name) }
    }

    const fn gemini(name: &'static str) -> Dialect {
        Dialect { family: WireFormat::Gemini, ..Dialect::openai(name) }
    }

    const fn cohere(name: &'static str, family: WireFormat) -> Dialect {
        Dialect { family, ..Dialect::openai(name) }
    }

    const fn responses(name: &'static str) -> Dialect {
        Dialect { family: WireFormat::OpenAiResponses, ..Dialect::openai(name) }
    }

    const fn ollama(name: &'static str) -> Dialect {
        Dialect { family: WireFormat::Ollama, ..Dialect::openai(name) }
    }

    const fn bedrock(name: &'static str, family: WireFormat) -> Dialect {
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

/// The dialect of OpenAI's Chat Completions API.
// These constants point at rows by position, so the first three rows must keep their order.
pub const OPENAI_CHAT: &Dialect = &DIALECTS[0];

/// The dialect of Anthropic's Messages API.
pub const ANTHROPIC: &Dialect = &DIALECTS[1];

/// The dialect of OpenAI's Responses API.
pub const OPENAI_RESPONSES: &Dialect = &DIALECTS[2];

/// Every known dialect, one row per server.
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
    // These servers reject the next request if the reasoning of a turn with tool calls is missing.
    Dialect::openai("deepseek").echoes("reasoning_content"),
    Dialect::openai("doubleword"),
    Dialect::openai("fireworks"),
    Dialect::openai("gemini-openai"),
    Dialect::openai("github-models"),
    Dialect::openai("gpustack"),
    Dialect::openai("groq"),
    Dialect::openai("huggingface"),
    Dialect::openai("llamacpp"),
    // Mistral checks call ids for exactly nine letters and digits.
    Dialect::openai("mistral").strict(9),
    Dialect::openai("mistralrs"),
    Dialect::openai("moonshot").echoes("reasoning_content"),
    Dialect::openai("ollama-openai"),
    Dialect::openai("openrouter").costs(),
    Dialect::openai("perplexity").costs(),
    Dialect::openai("sambanova"),
    Dialect::openai("sglang"),
    // Cortex leaves `finish_reason` empty for its own models, as three of its four recorded bodies
    // show.
    Dialect::openai("snowflake").omits_finish(),
    Dialect::openai("tgi"),
    Dialect::openai("together"),
    Dialect::openai("venice"),
    Dialect::openai("vercel-gateway").costs(),
    Dialect::openai("vllm"),
    Dialect::openai("xai").costs(),
    Dialect::openai("zai").echoes("reasoning_content"),
    Dialect::openai("zhipu").echoes("reasoning_content"),
    Dialect::ollama("ollama"),
    Dialect::gemini("gemini"),
    Dialect::gemini("vertex-gemini"),
    Dialect::bedrock("bedrock-converse", WireFormat::BedrockConverse),
    Dialect::bedrock("bedrock-invoke", WireFormat::BedrockInvoke),
    Dialect::responses("openai-responses-compat"),
    Dialect::responses("azure-openai-responses"),
    Dialect::responses("bedrock-openai-responses"),
    Dialect::responses("copilot-responses"),
    Dialect::responses("deepseek-responses"),
    Dialect::responses("llamacpp-responses"),
    Dialect::responses("mistralrs-responses"),
    Dialect::responses("openrouter-responses").costs(),
    Dialect::responses("xai-responses").costs().runs_custom_tools(),
    Dialect::cohere("cohere-v2", WireFormat::CohereV2),
    Dialect::cohere("cohere-v1", WireFormat::CohereV1),
];

/// Error for a name that is not the name of a dialect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownApi(
    /// The name.
    pub String,
);

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

/// Returns the dialect with this name. `openai`, `anthropic`, `google`, `bedrock` and `cohere`
/// stand for those vendors' own APIs.
pub fn dialect(name: &str) -> Result<&'static Dialect, UnknownApi> {
    let name = original(name);
    DIALECTS.iter().find(|d| d.name == name).ok_or_else(|| UnknownApi(name.to_owned()))
}

/// Returns the dialect of a format that the provider with this id in the catalogue speaks, if it has one of its own.
pub fn dialect_of(provider: &str, family: WireFormat) -> Option<&'static Dialect> {
    let suffix = family.facts().dialect_suffix?;
    let names = [provider.to_owned(), format!("{provider}-{suffix}")];
    let mut known = names.iter().filter_map(|name| dialect(name).ok());
    known.find(|known| known.family == family)
}

/// Servers recognised by their host: the domain, and the dialect's name.
const HOSTS: &[(&str, &str)] = &[("snowflakecomputing.com", "snowflake")];

/// Returns the dialect that the server at this host speaks, if it is known and based on `family`.
pub fn dialect_at(host: &str, family: WireFormat) -> Option<&'static Dialect> {
    // A fully qualified name may end in a dot, and host names ignore case.
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let of = |domain: &str| {
        // Match whole labels only, because `evilsnowflakecomputing.com` is another owner's host.
        host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    let (_, name) = HOSTS.iter().find(|(domain, _)| of(domain))?;
    // The same host may serve other formats, for example Anthropic's, to which this row does not
    // apply.
    dialect(name).ok().filter(|dialect| dialect.family == family)
}

/// Maps a vendor's name to the name of its main format, and returns any other name unchanged.
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
