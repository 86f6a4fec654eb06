//! The providers that are known, as data: addresses, variables and keys.

use crate::dialect::WireFormat;

/// Header that carries a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AuthStyle {
    /// `authorization: Bearer KEY`
    Bearer,
    /// `x-api-key: KEY`
    XApiKey,
    /// `api-key: KEY`
    ApiKey,
    /// `x-goog-api-key: KEY`
    XGoogApiKey,
}

/// A variable that may hold a key, and the header for that key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyVar {
    /// Name of the variable.
    pub name: &'static str,
    /// Header for the key.
    pub auth: AuthStyle,
}

/// A wire format that a provider supports, and its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Wire format.
    pub api: WireFormat,
    /// Path after the base URL. For [`WireFormat::Gemini`] and the Bedrock formats the model and the
    /// method follow, because they are part of the URL.
    pub path: &'static str,
}

/// Variables and commands of a fetched key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginVars {
    /// Variable that names the credentials file.
    pub file: &'static str,
    /// OAuth scope of the key.
    pub scope: &'static str,
    /// Command that creates the credentials.
    pub command: &'static str,
}

/// Models of one vendor on Google Cloud: their names, their format, and the variables that the
/// vendor's SDK reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceVars {
    /// Prefix of the models' names.
    pub models: &'static str,
    /// Format of the models.
    pub api: WireFormat,
    /// Publisher of the models, as the URL spells it.
    pub publisher: &'static str,
    /// Variable of the base URL.
    pub base_url: &'static str,
    /// Variables of the project, in order of precedence.
    pub project: &'static [&'static str],
    /// Variables of the location, in order of precedence.
    pub location: &'static [&'static str],
}

/// Variables of the keys that sign each request (AWS Signature Version 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SigningVars {
    /// Name of the service in a signature.
    pub service: &'static str,
    /// Variable of the key's id.
    pub id: &'static str,
    /// Variable of the secret key.
    pub secret: &'static str,
    /// Variable of the session token, which only temporary keys have.
    pub session: &'static str,
}

/// A provider's entry in the table.
#[derive(Debug, PartialEq, Eq)]
pub struct ProviderInfo {
    /// Text before the first slash in `provider/model`.
    pub id: &'static str,
    /// Display name.
    pub name: &'static str,
    /// Supported formats, the default one first.
    pub endpoints: &'static [Endpoint],
    /// Base URL, unless the caller or [`ProviderInfo::base_url_var`] sets another. `{region}`
    /// stands for the region, `{location}` for that of [`Place`](crate::endpoint::Place), and
    /// `{resource}` for a name that only the user knows, so that the URL must be set.
    pub base_url: &'static str,
    /// Variable from which the provider's SDK reads the base URL.
    pub base_url_var: Option<&'static str>,
    /// Default port, if that variable may hold a host without scheme and port.
    pub base_url_port: Option<u16>,
    /// Variable that the SDK reads next: a base URL for all services of the vendor.
    pub wider_url_var: Option<&'static str>,
    /// Variables from which the SDK reads the region, in order of precedence.
    pub region_vars: &'static [&'static str],
    /// Variables from which the SDK reads the key, in order of precedence.
    pub key_vars: &'static [KeyVar],
    /// Variables of the keys that sign each request, used if none of [`ProviderInfo::key_vars`] is
    /// set.
    pub signing: Option<&'static SigningVars>,
    /// Source of a fetched key, used if none of [`ProviderInfo::key_vars`] is set.
    pub login: Option<&'static LoginVars>,
    /// Vendors of the hosted models, if the provider's URLs contain project, location and vendor.
    pub places: &'static [PlaceVars],
    /// Variable from which the SDK reads the API version. If it is set, the URL contains version
    /// and deployment; the paths in this table are those without.
    pub version_var: Option<&'static str>,
    /// `true` if the provider rejects calls without a key.
    pub key_required: bool,
    /// Headers sent with every request.
    pub headers: &'static [(&'static str, &'static str)],
    /// Headers with their value in a variable: header, variable. A header is omitted if its
    /// variable is unset.
    pub header_vars: &'static [(&'static str, &'static str)],
    /// Remarks for the user.
    pub notes: &'static str,
}

impl ProviderInfo {
    /// Returns the endpoint for this format, if the provider supports it.
    pub fn speaks(&self, api: WireFormat) -> Option<&Endpoint> {
        self.endpoints.iter().find(|endpoint| endpoint.api == api)
    }

    /// `true` if the provider has no URL of its own, because each user has a separate one.
    pub fn is_at_its_users(&self) -> bool {
        self.base_url.contains("{resource}")
    }
}

const CHAT: &[Endpoint] = &[Endpoint { api: WireFormat::OpenAiChat, path: "/chat/completions" }];

const CHAT_V1: &[Endpoint] =
    &[Endpoint { api: WireFormat::OpenAiChat, path: "/v1/chat/completions" }];

const CHAT_AND_RESPONSES: &[Endpoint] =
    &[CHAT[0], Endpoint { api: WireFormat::OpenAiResponses, path: "/responses" }];

/// Common defaults of the table's rows.
const PLAIN: ProviderInfo = ProviderInfo {
    id: "",
    name: "",
    endpoints: CHAT,
    base_url: "",
    base_url_var: None,
    base_url_port: None,
    wider_url_var: None,
    region_vars: &[],
    key_vars: &[],
    signing: None,
    login: None,
    places: &[],
    version_var: None,
    key_required: true,
    headers: &[],
    header_vars: &[],
    notes: "",
};

macro_rules! bearer {
    ($name:literal) => {
        &[KeyVar { name: $name, auth: AuthStyle::Bearer }]
    };
}

/// All providers, in the order in which they are listed to the user.
pub const PROVIDERS: &[ProviderInfo] = &[
    ProviderInfo {
        id: "anthropic",
        name: "Anthropic",
        endpoints: &[Endpoint { api: WireFormat::Anthropic, path: "/v1/messages" }],
        base_url: "https://api.anthropic.com",
        base_url_var: Some("ANTHROPIC_BASE_URL"),
        key_vars: &[
            KeyVar { name: "ANTHROPIC_API_KEY", auth: AuthStyle::XApiKey },
            KeyVar { name: "ANTHROPIC_AUTH_TOKEN", auth: AuthStyle::Bearer },
        ],
        headers: &[("anthropic-version", "2023-06-01")],
        notes: "The version header matches the format that is encoded and decoded here.",
        ..PLAIN
    },
    ProviderInfo {
        id: "openai",
        name: "OpenAI",
        endpoints: CHAT_AND_RESPONSES,
        base_url: "https://api.openai.com/v1",
        base_url_var: Some("OPENAI_BASE_URL"),
        key_vars: bearer!("OPENAI_API_KEY"),
        header_vars: &[
            ("openai-organization", "OPENAI_ORG_ID"),
            ("openai-project", "OPENAI_PROJECT_ID"),
        ],
        ..PLAIN
    },
    ProviderInfo {
        id: "gemini",
        name: "Google Gemini",
        endpoints: &[Endpoint { api: WireFormat::Gemini, path: "/v1beta" }],
        base_url: "https://generativelanguage.googleapis.com",
        base_url_var: Some("GOOGLE_GEMINI_BASE_URL"),
        key_vars: &[
            KeyVar { name: "GOOGLE_API_KEY", auth: AuthStyle::XGoogApiKey },
            KeyVar { name: "GEMINI_API_KEY", auth: AuthStyle::XGoogApiKey },
        ],
        notes: "Also called google. If both keys are set, GOOGLE_API_KEY is used, as in the SDK.",
        ..PLAIN
    },
    ProviderInfo {
        id: "ollama",
        name: "Ollama",
        endpoints: &[Endpoint { api: WireFormat::Ollama, path: "/api/chat" }, CHAT_V1[0]],
        base_url: "http://localhost:11434",
        base_url_var: Some("OLLAMA_HOST"),
        base_url_port: Some(11434),
        key_vars: bearer!("OLLAMA_API_KEY"),
        key_required: false,
        notes: "Local, without a key; https://ollama.com requires one. A context window sets the \
                size of the model's context.",
        ..PLAIN
    },
    ProviderInfo {
        id: "llamacpp",
        name: "llama.cpp server",
        endpoints: CHAT_AND_RESPONSES,
        base_url: "http://localhost:8080/v1",
        key_vars: bearer!("LLAMA_API_KEY"),
        key_required: false,
        notes: "Local. A key is needed if the server was started with one.",
        ..PLAIN
    },
    ProviderInfo {
        id: "vllm",
        name: "vLLM",
        endpoints: CHAT_AND_RESPONSES,
        base_url: "http://localhost:8000/v1",
        key_vars: bearer!("VLLM_API_KEY"),
        key_required: false,
        notes: "Local. A key is needed if the server was started with one.",
        ..PLAIN
    },
    ProviderInfo {
        id: "openrouter",
        name: "OpenRouter",
        endpoints: CHAT_AND_RESPONSES,
        base_url: "https://openrouter.ai/api/v1",
        key_vars: bearer!("OPENROUTER_API_KEY"),
        notes: "Model ids contain a slash: openrouter/VENDOR/MODEL.",
        ..PLAIN
    },
    ProviderInfo {
        id: "bedrock",
        name: "Amazon Bedrock",
        endpoints: &[
            Endpoint { api: WireFormat::BedrockConverse, path: "/model" },
            Endpoint { api: WireFormat::BedrockInvoke, path: "/model" },
        ],
        base_url: "https://bedrock-runtime.{region}.amazonaws.com",
        base_url_var: Some("AWS_ENDPOINT_URL_BEDROCK_RUNTIME"),
        wider_url_var: Some("AWS_ENDPOINT_URL"),
        region_vars: &["AWS_REGION", "AWS_DEFAULT_REGION"],
        key_vars: bearer!("AWS_BEARER_TOKEN_BEDROCK"),
        signing: Some(&SigningVars {
            service: "bedrock",
            id: "AWS_ACCESS_KEY_ID",
            secret: "AWS_SECRET_ACCESS_KEY",
            session: "AWS_SESSION_TOKEN",
        }),
        notes: "The model is an id or the ARN of an inference profile. Keys are read from variables \
                only, not from ~/.aws or the role of a machine or container.",
        ..PLAIN
    },
    ProviderInfo {
        id: "vertex",
        name: "Google Vertex AI",
        endpoints: &[
            Endpoint { api: WireFormat::Gemini, path: "/v1" },
            Endpoint { api: WireFormat::Anthropic, path: "/v1" },
        ],
        base_url: "https://{location}-aiplatform.googleapis.com",
        places: &[
            PlaceVars {
                models: "gemini",
                api: WireFormat::Gemini,
                publisher: "google",
                base_url: "GOOGLE_VERTEX_BASE_URL",
                project: &["GOOGLE_CLOUD_PROJECT"],
                location: &["GOOGLE_CLOUD_LOCATION"],
            },
            PlaceVars {
                models: "claude",
                api: WireFormat::Anthropic,
                publisher: "anthropic",
                base_url: "ANTHROPIC_VERTEX_BASE_URL",
                // Anthropic's SDK asks Google's library for the project, which reads the second
                // variable.
                project: &["ANTHROPIC_VERTEX_PROJECT_ID", "GOOGLE_CLOUD_PROJECT"],
                location: &["CLOUD_ML_REGION", "GOOGLE_CLOUD_LOCATION"],
            },
        ],
        key_vars: bearer!("CLOUDSDK_AUTH_ACCESS_TOKEN"),
        login: Some(&LoginVars {
            file: "GOOGLE_APPLICATION_CREDENTIALS",
            scope: "https://www.googleapis.com/auth/cloud-platform",
            command: "gcloud auth application-default login",
        }),
        notes: "The model's name determines the format: gemini… or claude…. Without a token the \
                application default credentials are used: a service account file, the gcloud \
                login, or the machine's account.",
        ..PLAIN
    },
    ProviderInfo {
        id: "azure",
        name: "Azure OpenAI",
        endpoints: &[
            Endpoint { api: WireFormat::OpenAiChat, path: "/openai/v1/chat/completions" },
            Endpoint { api: WireFormat::OpenAiResponses, path: "/openai/v1/responses" },
        ],
        base_url: "https://{resource}.openai.azure.com",
        base_url_var: Some("AZURE_OPENAI_ENDPOINT"),
        version_var: Some("OPENAI_API_VERSION"),
        key_vars: &[
            KeyVar { name: "AZURE_OPENAI_AD_TOKEN", auth: AuthStyle::Bearer },
            KeyVar { name: "AZURE_OPENAI_API_KEY", auth: AuthStyle::ApiKey },
        ],
        notes: "The model is the deployment's name. If that is also a model's name, that model's \
                price and limits apply.",
        ..PLAIN
    },
    ProviderInfo {
        id: "cerebras",
        name: "Cerebras",
        endpoints: CHAT_V1,
        base_url: "https://api.cerebras.ai",
        base_url_var: Some("CEREBRAS_BASE_URL"),
        key_vars: bearer!("CEREBRAS_API_KEY"),
        ..PLAIN
    },
    ProviderInfo {
        id: "cohere",
        name: "Cohere",
        endpoints: &[Endpoint { api: WireFormat::CohereV2, path: "/v2/chat" }],
        base_url: "https://api.cohere.com",
        base_url_var: Some("CO_API_URL"),
        key_vars: &[
            KeyVar { name: "CO_API_KEY", auth: AuthStyle::Bearer },
            KeyVar { name: "COHERE_API_KEY", auth: AuthStyle::Bearer },
        ],
        notes: "Cohere bills fewer tokens than the model uses, so costs are upper bounds.",
        ..PLAIN
    },
    ProviderInfo {
        id: "deepseek",
        name: "DeepSeek",
        endpoints: CHAT_AND_RESPONSES,
        base_url: "https://api.deepseek.com",
        key_vars: bearer!("DEEPSEEK_API_KEY"),
        ..PLAIN
    },
    ProviderInfo {
        id: "fireworks",
        name: "Fireworks AI",
        endpoints: CHAT_V1,
        base_url: "https://api.fireworks.ai/inference",
        base_url_var: Some("FIREWORKS_BASE_URL"),
        key_vars: bearer!("FIREWORKS_API_KEY"),
        notes: "Model ids contain slashes: fireworks/accounts/fireworks/models/MODEL.",
        ..PLAIN
    },
    ProviderInfo {
        id: "groq",
        name: "Groq",
        endpoints: &[Endpoint { api: WireFormat::OpenAiChat, path: "/openai/v1/chat/completions" }],
        base_url: "https://api.groq.com",
        base_url_var: Some("GROQ_BASE_URL"),
        key_vars: bearer!("GROQ_API_KEY"),
        ..PLAIN
    },
    ProviderInfo {
        id: "mistral",
        name: "Mistral AI",
        endpoints: CHAT_V1,
        base_url: "https://api.mistral.ai",
        key_vars: bearer!("MISTRAL_API_KEY"),
        ..PLAIN
    },
    ProviderInfo {
        id: "moonshot",
        name: "Moonshot AI",
        base_url: "https://api.moonshot.ai/v1",
        key_vars: bearer!("MOONSHOT_API_KEY"),
        notes: "Keys of the Chinese platform need its own base URL.",
        ..PLAIN
    },
    ProviderInfo {
        id: "perplexity",
        name: "Perplexity",
        base_url: "https://api.perplexity.ai",
        base_url_var: Some("PERPLEXITY_BASE_URL"),
        key_vars: bearer!("PERPLEXITY_API_KEY"),
        notes: "Sonar models also bill a fee per request: a cost ceiling needs a price.",
        ..PLAIN
    },
    ProviderInfo {
        id: "together",
        name: "Together AI",
        endpoints: CHAT_V1,
        // The SDK sends chats to this host. The rest of the API has another one.
        base_url: "https://api-inference.together.ai",
        base_url_var: Some("TOGETHER_BASE_URL"),
        key_vars: bearer!("TOGETHER_API_KEY"),
        notes: "Model ids contain a slash: together/VENDOR/MODEL.",
        ..PLAIN
    },
    ProviderInfo {
        id: "xai",
        name: "xAI",
        endpoints: CHAT_AND_RESPONSES,
        base_url: "https://api.x.ai/v1",
        key_vars: bearer!("XAI_API_KEY"),
        notes: "xAI has deprecated its Chat Completions API: use `openai-responses`.",
        ..PLAIN
    },
    ProviderInfo {
        id: "zai",
        name: "Z.AI",
        base_url: "https://api.z.ai/api/paas/v4",
        base_url_var: Some("ZAI_BASE_URL"),
        key_vars: bearer!("ZAI_API_KEY"),
        ..PLAIN
    },
    ProviderInfo {
        id: "crusoe",
        name: "Crusoe",
        base_url: "https://api.inference.crusoecloud.com/v1",
        key_vars: bearer!("CRUSOE_API_KEY"),
        notes: "Model ids contain a slash: crusoe/VENDOR/MODEL.",
        ..PLAIN
    },
    ProviderInfo {
        id: "dashscope",
        name: "Alibaba DashScope",
        base_url: "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        key_vars: bearer!("DASHSCOPE_API_KEY"),
        notes: "Keys of mainland China need the base URL https://dashscope.aliyuncs.com/compatible-mode/v1.",
        ..PLAIN
    },
    ProviderInfo {
        id: "doubleword",
        name: "Doubleword",
        base_url: "https://api.doubleword.ai/v1",
        key_vars: bearer!("DOUBLEWORD_API_KEY"),
        ..PLAIN
    },
    ProviderInfo {
        id: "github-models",
        name: "GitHub Models",
        base_url: "https://models.github.ai/inference",
        key_vars: bearer!("GITHUB_TOKEN"),
        notes: "The token needs the permission `models:read`. Model ids contain a slash: \
                github-models/VENDOR/MODEL.",
        ..PLAIN
    },
    ProviderInfo {
        id: "huggingface",
        name: "Hugging Face Inference Providers",
        base_url: "https://router.huggingface.co/v1",
        key_vars: bearer!("HF_TOKEN"),
        notes: "Model ids contain a slash: huggingface/VENDOR/MODEL[:PROVIDER].",
        ..PLAIN
    },
    ProviderInfo {
        id: "sambanova",
        name: "SambaNova",
        base_url: "https://api.sambanova.ai/v1",
        base_url_var: Some("SAMBANOVA_BASE_URL"),
        key_vars: bearer!("SAMBANOVA_API_KEY"),
        ..PLAIN
    },
    ProviderInfo {
        id: "venice",
        name: "Venice",
        base_url: "https://api.venice.ai/api/v1",
        key_vars: bearer!("VENICE_API_KEY"),
        ..PLAIN
    },
    ProviderInfo {
        id: "vercel-gateway",
        name: "Vercel AI Gateway",
        base_url: "https://ai-gateway.vercel.sh/v1",
        key_vars: bearer!("AI_GATEWAY_API_KEY"),
        notes: "Model ids contain a slash: vercel-gateway/VENDOR/MODEL.",
        ..PLAIN
    },
    ProviderInfo {
        id: "zhipu",
        name: "Zhipu AI",
        base_url: "https://open.bigmodel.cn/api/paas/v4",
        base_url_var: Some("ZHIPUAI_BASE_URL"),
        key_vars: bearer!("ZHIPUAI_API_KEY"),
        ..PLAIN
    },
    ProviderInfo {
        id: "mistralrs",
        name: "mistral.rs server",
        endpoints: CHAT_AND_RESPONSES,
        base_url: "http://localhost:1234/v1",
        key_required: false,
        notes: "Local, without a key.",
        ..PLAIN
    },
    ProviderInfo {
        id: "sglang",
        name: "SGLang",
        base_url: "http://localhost:30000/v1",
        key_required: false,
        notes: "Local. If the server was started with a key, use its base URL with OPENAI_API_KEY.",
        ..PLAIN
    },
];

/// Returns the provider with this id. `google` is another name for `gemini`.
pub fn provider(id: &str) -> Option<&'static ProviderInfo> {
    let id = if id == "google" { "gemini" } else { id };
    PROVIDERS.iter().find(|provider| provider.id == id)
}

/// Returns the address of a format's own provider if it is the same for all of its users. Bedrock has one for each
/// region, and a local server none.
///
/// ```
/// use endstop_wire::WireFormat;
/// use endstop_wire::catalog::providers::public_base_url;
/// assert_eq!(public_base_url(WireFormat::Anthropic), Some("https://api.anthropic.com"));
/// assert_eq!(public_base_url(WireFormat::BedrockConverse), None);
/// ```
pub fn public_base_url(format: WireFormat) -> Option<&'static str> {
    let provider = provider(format.catalogue()?)?;
    (!provider.base_url.contains('{')).then_some(provider.base_url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_table_is_consistent() {
        for (at, provider) in PROVIDERS.iter().enumerate() {
            assert!(PROVIDERS[..at].iter().all(|other| other.id != provider.id));
            assert!(!provider.name.is_empty() && !provider.endpoints.is_empty());
            let plain = |b: u8| b.is_ascii_lowercase() || b == b'-';
            assert!(provider.id.bytes().all(plain), "{}", provider.id);
            assert!(provider.base_url.starts_with("http") && !provider.base_url.ends_with('/'));
            assert!(provider.endpoints.iter().all(|e| e.path.starts_with('/')));
            assert!(!provider.key_required || !provider.key_vars.is_empty());
            let regional = provider.base_url.contains("{region}");
            assert_eq!(regional, !provider.region_vars.is_empty());
            let local = provider.base_url.starts_with("http://localhost:");
            assert_eq!(local, !provider.key_required, "{}", provider.id);
            assert!(local || provider.base_url.starts_with("https://"));
        }
    }
}
