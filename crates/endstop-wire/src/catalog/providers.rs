//! The providers that are known, as data: addresses, variables and keys.

use crate::dialect::Family;

/// The header that carries a key.
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

/// A variable that may hold a key, and the header for such a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyVar {
    /// The variable's name.
    pub name: &'static str,
    /// The header.
    pub auth: AuthStyle,
}

/// A wire format that a provider speaks, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The format.
    pub api: Family,
    /// The path after the base URL; the model and the method follow where the format wants them in
    /// the address ([`Family::Gemini`] and Bedrock's).
    pub path: &'static str,
}

/// What is known of keys that are fetched: application default credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginVars {
    /// The variable that names the file of the credentials.
    pub file: &'static str,
    /// What the key is to be good for.
    pub scope: &'static str,
    /// The command that makes the credentials.
    pub command: &'static str,
}

/// The models of one maker in Google's cloud: what they are called, what they speak, and the
/// variables that their SDK reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceVars {
    /// What the models' names begin with.
    pub models: &'static str,
    /// The format that they speak.
    pub api: Family,
    /// Whose models they are, as the address says it.
    pub publisher: &'static str,
    /// The variable of the base URL.
    pub base_url: &'static str,
    /// The variables of the project, in the order in which they count.
    pub project: &'static [&'static str],
    /// The variables of the location, in the order in which they count.
    pub location: &'static [&'static str],
}

/// The variables of a pair of keys that sign each request (AWS's Signature Version 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SigningVars {
    /// What the service is called in a signature.
    pub service: &'static str,
    /// The variable of the key's id.
    pub id: &'static str,
    /// The variable of the secret key.
    pub secret: &'static str,
    /// The variable of the session token, which only temporary keys have.
    pub session: &'static str,
}

/// What is known of a provider.
#[derive(Debug, PartialEq, Eq)]
pub struct Provider {
    /// What comes before the first slash in `provider/model`.
    pub id: &'static str,
    /// The name to show.
    pub name: &'static str,
    /// The formats it speaks, the usual one first.
    pub endpoints: &'static [Endpoint],
    /// Where it is, unless the caller or [`Provider::base_url_var`] says otherwise; `{region}`
    /// stands for the region, `{location}` for that of [`Place`], and `{resource}` for what nobody
    /// knows but its owner, so that the address must be said.
    pub base_url: &'static str,
    /// The variable that its SDK reads the base URL from.
    pub base_url_var: Option<&'static str>,
    /// Where that variable may hold a host without scheme and port: the port that is meant then.
    pub base_url_port: Option<u16>,
    /// The variable that its SDK reads after that one: the base URL of all its maker's services.
    pub wider_url_var: Option<&'static str>,
    /// The variables that its SDK reads the region from, in that order.
    pub region_vars: &'static [&'static str],
    /// The variables that its SDK reads the key from, in that order.
    pub key_vars: &'static [KeyVar],
    /// The keys that sign each request, where none of [`Provider::key_vars`] is set.
    pub signing: Option<&'static SigningVars>,
    /// A key that is fetched, where none of [`Provider::key_vars`] is set.
    pub login: Option<&'static LoginVars>,
    /// The makers whose models it has, where its addresses say project, location and maker.
    pub places: &'static [PlaceVars],
    /// The variable that its SDK reads the API's version from. Where it is set, version and
    /// deployment stand in the address; the paths here are those without.
    pub version_var: Option<&'static str>,
    /// A call without a key is refused.
    pub key_required: bool,
    /// Headers of every request.
    pub headers: &'static [(&'static str, &'static str)],
    /// Headers whose value is in a variable: header, variable. Left out where that is unset.
    pub header_vars: &'static [(&'static str, &'static str)],
    /// What a user should know.
    pub notes: &'static str,
}

impl Provider {
    /// Where it speaks this format, if it does.
    pub fn speaks(&self, api: Family) -> Option<&Endpoint> {
        self.endpoints.iter().find(|endpoint| endpoint.api == api)
    }

    /// It has no address of its own: whoever uses it has one.
    pub fn is_at_its_users(&self) -> bool {
        self.base_url.contains("{resource}")
    }
}

const CHAT: &[Endpoint] = &[Endpoint { api: Family::OpenAiChat, path: "/chat/completions" }];

const CHAT_V1: &[Endpoint] = &[Endpoint { api: Family::OpenAiChat, path: "/v1/chat/completions" }];

const CHAT_AND_RESPONSES: &[Endpoint] =
    &[CHAT[0], Endpoint { api: Family::OpenAiResponses, path: "/responses" }];

/// What most of them have in common.
const PLAIN: Provider = Provider {
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

/// All providers, in the order in which they are listed to a user.
pub const PROVIDERS: &[Provider] = &[
    Provider {
        id: "anthropic",
        name: "Anthropic",
        endpoints: &[Endpoint { api: Family::Anthropic, path: "/v1/messages" }],
        base_url: "https://api.anthropic.com",
        base_url_var: Some("ANTHROPIC_BASE_URL"),
        key_vars: &[
            KeyVar { name: "ANTHROPIC_API_KEY", auth: AuthStyle::XApiKey },
            KeyVar { name: "ANTHROPIC_AUTH_TOKEN", auth: AuthStyle::Bearer },
        ],
        headers: &[("anthropic-version", "2023-06-01")],
        notes: "The version header is that of the format which is encoded and decoded here.",
        ..PLAIN
    },
    Provider {
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
    Provider {
        id: "gemini",
        name: "Google Gemini",
        endpoints: &[Endpoint { api: Family::Gemini, path: "/v1beta" }],
        base_url: "https://generativelanguage.googleapis.com",
        base_url_var: Some("GOOGLE_GEMINI_BASE_URL"),
        key_vars: &[
            KeyVar { name: "GOOGLE_API_KEY", auth: AuthStyle::XGoogApiKey },
            KeyVar { name: "GEMINI_API_KEY", auth: AuthStyle::XGoogApiKey },
        ],
        notes: "Also called google. Where both keys are set the first counts, as in Google's SDK.",
        ..PLAIN
    },
    Provider {
        id: "ollama",
        name: "Ollama",
        endpoints: &[Endpoint { api: Family::Ollama, path: "/api/chat" }, CHAT_V1[0]],
        base_url: "http://localhost:11434",
        base_url_var: Some("OLLAMA_HOST"),
        base_url_port: Some(11434),
        key_vars: bearer!("OLLAMA_API_KEY"),
        key_required: false,
        notes: "Local, without a key; https://ollama.com wants one. --context-window sets the size of \
                the model's context.",
        ..PLAIN
    },
    Provider {
        id: "llamacpp",
        name: "llama.cpp server",
        endpoints: CHAT_AND_RESPONSES,
        base_url: "http://localhost:8080/v1",
        key_vars: bearer!("LLAMA_API_KEY"),
        key_required: false,
        notes: "Local. The key is needed where the server was started with one.",
        ..PLAIN
    },
    Provider {
        id: "vllm",
        name: "vLLM",
        endpoints: CHAT_AND_RESPONSES,
        base_url: "http://localhost:8000/v1",
        key_vars: bearer!("VLLM_API_KEY"),
        key_required: false,
        notes: "Local. The key is needed where the server was started with one.",
        ..PLAIN
    },
    Provider {
        id: "openrouter",
        name: "OpenRouter",
        endpoints: CHAT_AND_RESPONSES,
        base_url: "https://openrouter.ai/api/v1",
        key_vars: bearer!("OPENROUTER_API_KEY"),
        notes: "Model ids contain a slash: openrouter/VENDOR/MODEL.",
        ..PLAIN
    },
    Provider {
        id: "bedrock",
        name: "Amazon Bedrock",
        endpoints: &[
            Endpoint { api: Family::BedrockConverse, path: "/model" },
            Endpoint { api: Family::BedrockInvoke, path: "/model" },
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
                alone: not from ~/.aws, nor from the machine's or container's role.",
        ..PLAIN
    },
    Provider {
        id: "vertex",
        name: "Google Vertex AI",
        endpoints: &[
            Endpoint { api: Family::Gemini, path: "/v1" },
            Endpoint { api: Family::Anthropic, path: "/v1" },
        ],
        base_url: "https://{location}-aiplatform.googleapis.com",
        places: &[
            PlaceVars {
                models: "gemini",
                api: Family::Gemini,
                publisher: "google",
                base_url: "GOOGLE_VERTEX_BASE_URL",
                project: &["GOOGLE_CLOUD_PROJECT"],
                location: &["GOOGLE_CLOUD_LOCATION"],
            },
            PlaceVars {
                models: "claude",
                api: Family::Anthropic,
                publisher: "anthropic",
                base_url: "ANTHROPIC_VERTEX_BASE_URL",
                // Anthropic's SDK asks Google's for the project, which reads the second.
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
        notes: "The model's name says the format: gemini… or claude…. Without a token the application \
                default credentials are used: the file of a service account, what gcloud logged in, \
                or the machine's own account.",
        ..PLAIN
    },
    Provider {
        id: "azure",
        name: "Azure OpenAI",
        endpoints: &[
            Endpoint { api: Family::OpenAiChat, path: "/openai/v1/chat/completions" },
            Endpoint { api: Family::OpenAiResponses, path: "/openai/v1/responses" },
        ],
        base_url: "https://{resource}.openai.azure.com",
        base_url_var: Some("AZURE_OPENAI_ENDPOINT"),
        version_var: Some("OPENAI_API_VERSION"),
        key_vars: &[
            KeyVar { name: "AZURE_OPENAI_AD_TOKEN", auth: AuthStyle::Bearer },
            KeyVar { name: "AZURE_OPENAI_API_KEY", auth: AuthStyle::ApiKey },
        ],
        notes: "The model is the deployment's name; where that is a model's name too, it has that one's \
                price and limits.",
        ..PLAIN
    },
    Provider {
        id: "cerebras",
        name: "Cerebras",
        endpoints: CHAT_V1,
        base_url: "https://api.cerebras.ai",
        base_url_var: Some("CEREBRAS_BASE_URL"),
        key_vars: bearer!("CEREBRAS_API_KEY"),
        ..PLAIN
    },
    Provider {
        id: "cohere",
        name: "Cohere",
        endpoints: &[Endpoint { api: Family::CohereV2, path: "/v2/chat" }],
        base_url: "https://api.cohere.com",
        base_url_var: Some("CO_API_URL"),
        key_vars: &[
            KeyVar { name: "CO_API_KEY", auth: AuthStyle::Bearer },
            KeyVar { name: "COHERE_API_KEY", auth: AuthStyle::Bearer },
        ],
        notes: "It bills fewer tokens than the model reads and writes: a cost is an upper bound.",
        ..PLAIN
    },
    Provider {
        id: "deepseek",
        name: "DeepSeek",
        endpoints: CHAT_AND_RESPONSES,
        base_url: "https://api.deepseek.com",
        key_vars: bearer!("DEEPSEEK_API_KEY"),
        ..PLAIN
    },
    Provider {
        id: "fireworks",
        name: "Fireworks AI",
        endpoints: CHAT_V1,
        base_url: "https://api.fireworks.ai/inference",
        base_url_var: Some("FIREWORKS_BASE_URL"),
        key_vars: bearer!("FIREWORKS_API_KEY"),
        notes: "Model ids contain slashes: fireworks/accounts/fireworks/models/MODEL.",
        ..PLAIN
    },
    Provider {
        id: "groq",
        name: "Groq",
        endpoints: &[Endpoint { api: Family::OpenAiChat, path: "/openai/v1/chat/completions" }],
        base_url: "https://api.groq.com",
        base_url_var: Some("GROQ_BASE_URL"),
        key_vars: bearer!("GROQ_API_KEY"),
        ..PLAIN
    },
    Provider {
        id: "mistral",
        name: "Mistral AI",
        endpoints: CHAT_V1,
        base_url: "https://api.mistral.ai",
        key_vars: bearer!("MISTRAL_API_KEY"),
        ..PLAIN
    },
    Provider {
        id: "moonshot",
        name: "Moonshot AI",
        base_url: "https://api.moonshot.ai/v1",
        key_vars: bearer!("MOONSHOT_API_KEY"),
        notes: "Keys of the Chinese platform need its own base URL.",
        ..PLAIN
    },
    Provider {
        id: "perplexity",
        name: "Perplexity",
        base_url: "https://api.perplexity.ai",
        base_url_var: Some("PERPLEXITY_BASE_URL"),
        key_vars: bearer!("PERPLEXITY_API_KEY"),
        notes: "Sonar models bill each request besides its tokens: a ceiling on cost needs a price.",
        ..PLAIN
    },
    Provider {
        id: "together",
        name: "Together AI",
        endpoints: CHAT_V1,
        // Where its SDK sends chats; the rest of its API is elsewhere.
        base_url: "https://api-inference.together.ai",
        base_url_var: Some("TOGETHER_BASE_URL"),
        key_vars: bearer!("TOGETHER_API_KEY"),
        notes: "Model ids contain a slash: together/VENDOR/MODEL.",
        ..PLAIN
    },
    Provider {
        id: "xai",
        name: "xAI",
        endpoints: CHAT_AND_RESPONSES,
        base_url: "https://api.x.ai/v1",
        key_vars: bearer!("XAI_API_KEY"),
        notes: "xAI calls its Chat Completions deprecated: --api openai-responses is what it wants.",
        ..PLAIN
    },
    Provider {
        id: "zai",
        name: "Z.AI",
        base_url: "https://api.z.ai/api/paas/v4",
        base_url_var: Some("ZAI_BASE_URL"),
        key_vars: bearer!("ZAI_API_KEY"),
        ..PLAIN
    },
    Provider {
        id: "crusoe",
        name: "Crusoe",
        base_url: "https://api.inference.crusoecloud.com/v1",
        key_vars: bearer!("CRUSOE_API_KEY"),
        notes: "Model ids contain a slash: crusoe/VENDOR/MODEL.",
        ..PLAIN
    },
    Provider {
        id: "dashscope",
        name: "Alibaba DashScope",
        base_url: "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        key_vars: bearer!("DASHSCOPE_API_KEY"),
        notes: "Keys of mainland China need --base-url https://dashscope.aliyuncs.com/compatible-mode/v1.",
        ..PLAIN
    },
    Provider {
        id: "doubleword",
        name: "Doubleword",
        base_url: "https://api.doubleword.ai/v1",
        key_vars: bearer!("DOUBLEWORD_API_KEY"),
        ..PLAIN
    },
    Provider {
        id: "github-models",
        name: "GitHub Models",
        base_url: "https://models.github.ai/inference",
        key_vars: bearer!("GITHUB_TOKEN"),
        notes: "The token needs the permission `models:read`. Model ids contain a slash: \
                github-models/VENDOR/MODEL.",
        ..PLAIN
    },
    Provider {
        id: "huggingface",
        name: "Hugging Face Inference Providers",
        base_url: "https://router.huggingface.co/v1",
        key_vars: bearer!("HF_TOKEN"),
        notes: "Model ids contain a slash: huggingface/VENDOR/MODEL[:PROVIDER].",
        ..PLAIN
    },
    Provider {
        id: "sambanova",
        name: "SambaNova",
        base_url: "https://api.sambanova.ai/v1",
        base_url_var: Some("SAMBANOVA_BASE_URL"),
        key_vars: bearer!("SAMBANOVA_API_KEY"),
        ..PLAIN
    },
    Provider {
        id: "venice",
        name: "Venice",
        base_url: "https://api.venice.ai/api/v1",
        key_vars: bearer!("VENICE_API_KEY"),
        ..PLAIN
    },
    Provider {
        id: "vercel-gateway",
        name: "Vercel AI Gateway",
        base_url: "https://ai-gateway.vercel.sh/v1",
        key_vars: bearer!("AI_GATEWAY_API_KEY"),
        notes: "Model ids contain a slash: vercel-gateway/VENDOR/MODEL.",
        ..PLAIN
    },
    Provider {
        id: "zhipu",
        name: "Zhipu AI",
        base_url: "https://open.bigmodel.cn/api/paas/v4",
        base_url_var: Some("ZHIPUAI_BASE_URL"),
        key_vars: bearer!("ZHIPUAI_API_KEY"),
        ..PLAIN
    },
    Provider {
        id: "mistralrs",
        name: "mistral.rs server",
        endpoints: CHAT_AND_RESPONSES,
        base_url: "http://localhost:1234/v1",
        key_required: false,
        notes: "Local, without a key.",
        ..PLAIN
    },
    Provider {
        id: "sglang",
        name: "SGLang",
        base_url: "http://localhost:30000/v1",
        key_required: false,
        notes: "Local. Where the server was started with a key, use --base-url with OPENAI_API_KEY.",
        ..PLAIN
    },
];

/// The provider of this id; `google` is another name of `gemini`.
pub fn provider(id: &str) -> Option<&'static Provider> {
    let id = if id == "google" { "gemini" } else { id };
    PROVIDERS.iter().find(|provider| provider.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sound() {
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
