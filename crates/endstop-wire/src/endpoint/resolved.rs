//! A resolved model: its URL, its dialect and the header of its key.

use super::login::Login;
use super::path::in_path;
use super::place::{self, Place};
use super::secret::Secret;
use super::signing::SigningKeys;
use crate::catalog::providers::{AuthStyle, ProviderInfo};
use crate::dialect::{Dialect, UnknownApi, WireFormat, dialect};
use crate::redact::address;
use std::fmt;

/// A model and everything needed to call it.
#[derive(Clone)]
pub struct ResolvedModel {
    /// The provider.
    pub provider: &'static ProviderInfo,
    /// Id of the model, as the provider expects it.
    pub model: String,
    /// Wire format.
    pub api: WireFormat,
    /// Base URL without a trailing slash.
    pub base_url: String,
    /// Path after the base URL.
    pub path: &'static str,
    /// Key and its header, or `None` if the provider needs none.
    pub key: Option<(AuthStyle, Secret)>,
    /// Keys that sign each request, or `None` if a key is sent instead.
    pub signing: Option<SigningKeys>,
    /// Key to fetch before the call, or `None` if a key is known.
    pub login: Option<Login>,
    /// Project and location in the URL.
    pub place: Option<Place>,
    /// API version in the URL.
    pub version: Option<String>,
    /// All other headers that the provider requires.
    pub headers: Vec<(&'static str, String)>,
}

impl fmt::Debug for ResolvedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResolvedModel")
            .field("provider", &self.provider.id)
            .field("model", &self.model)
            .field("api", &self.api)
            // The URL may contain a password.
            .field("base_url", &address(&self.base_url))
            .field("path", &self.path)
            .field("key", &self.key)
            .field("signing", &self.signing)
            .field("place", &self.place)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

impl ResolvedModel {
    /// Returns the URL of the call.
    ///
    /// SDKs disagree about which part of the path belongs to the base URL. If the end of the base
    /// URL equals the beginning of the path, it is written once: `…/v1` and `/v1/messages` give
    /// `…/v1/messages`.
    pub fn url(&self) -> String {
        self.address(match self.api {
            WireFormat::BedrockConverse => "/converse",
            WireFormat::BedrockInvoke => "/invoke",
            WireFormat::Anthropic => ":rawPredict",
            WireFormat::OpenAiChat
            | WireFormat::Gemini
            | WireFormat::OpenAiResponses
            | WireFormat::CohereV2
            | WireFormat::CohereV1
            | WireFormat::Ollama => ":generateContent",
        })
    }

    /// Returns the URL of a streaming call. Most formats request a stream in the body and use the
    /// same URL.
    pub fn stream_url(&self) -> String {
        self.address(match self.api {
            WireFormat::BedrockConverse => "/converse-stream",
            WireFormat::BedrockInvoke => "/invoke-with-response-stream",
            WireFormat::Anthropic => ":streamRawPredict",
            WireFormat::OpenAiChat
            | WireFormat::Gemini
            | WireFormat::OpenAiResponses
            | WireFormat::CohereV2
            | WireFormat::CohereV1
            | WireFormat::Ollama => ":streamGenerateContent?alt=sse",
        })
    }

    /// Returns the URL, with this method if the format puts model and method into the URL.
    fn address(&self, method: &str) -> String {
        let mut path = self.path.to_owned();
        if let Some(place) = &self.place {
            path = place.path(self.path, &self.model);
            path.push_str(method);
        } else if let Some(version) = &self.version {
            path = place::versioned(self.api, &self.model, version);
        } else if self.api == WireFormat::Gemini {
            // A tuned model has a separate collection, which is part of its name.
            let named = self.model.starts_with("models/") || self.model.starts_with("tunedModels/");
            path.push_str(if named { "/" } else { "/models/" });
            path.push_str(&in_path(&self.model));
            path.push_str(method);
        } else if self.api.in_frames() {
            // An ARN contains slashes but must be one path segment.
            path.push('/');
            path.push_str(&in_path(&self.model).replace('/', "%2F"));
            path.push_str(method);
        }
        // A query in the base URL stays a query, so the path is inserted before it.
        let (base, query) = self.base_url.split_once('?').unwrap_or((&self.base_url, ""));
        let mut base = base.trim_end_matches('/');
        if self.api == WireFormat::Ollama {
            // Ollama's own format is not below `/v1`, the OpenAI route that users often give as the
            // base URL.
            base = base.strip_suffix("/v1").unwrap_or(base);
        }
        // Longest common part wins, because `rfind` starts from the longest prefix.
        let common = path
            .match_indices('/')
            .map(|(at, _)| &path[..at])
            .rfind(|start| !start.is_empty() && base.ends_with(start))
            .unwrap_or("");
        let mut address = format!("{base}{}", &path[common.len()..]);
        if !query.is_empty() {
            address.push(if address.contains('?') { '&' } else { '?' });
            address.push_str(query);
        }
        address
    }

    /// Returns the dialect for this provider and format. `plain` is `true` if the server is only
    /// known to be compatible, as at a custom base URL. A cloud's dialect is the same at every URL.
    ///
    /// # Errors
    /// Never fails for a provider of the table.
    pub fn dialect(&self, plain: bool) -> Result<&'static Dialect, UnknownApi> {
        let id = self.provider.id;
        let in_cloud = |maker: &str| dialect(&format!("{id}-{maker}"));
        let (own, compatible) = match self.api {
            family if self.provider.is_at_its_users() => return in_cloud(family.as_str()),
            // A provider with a format of its own uses its plain name for that format.
            WireFormat::OpenAiChat => {
                ([id.to_owned(), format!("{id}-openai")], "openai-compatible")
            }
            WireFormat::OpenAiResponses => {
                ([id.to_owned(), format!("{id}-responses")], "openai-responses-compat")
            }
            family if self.place.is_some() => return in_cloud(family.provider()),
            family => return dialect(family.as_str()),
        };
        let mut own = own.iter().filter_map(|name| dialect(name).ok());
        match own.find(|known| known.family == self.api).filter(|_| !plain) {
            Some(known) => Ok(known),
            None => dialect(compatible),
        }
    }

    /// Returns the name and value of the header that carries the key.
    pub fn auth_header(&self) -> Option<(&'static str, Secret)> {
        let (style, key) = self.key.as_ref()?;
        Some(match style {
            AuthStyle::Bearer => ("authorization", Secret::new(format!("Bearer {}", key.expose()))),
            AuthStyle::XApiKey => ("x-api-key", key.clone()),
            AuthStyle::ApiKey => ("api-key", key.clone()),
            AuthStyle::XGoogApiKey => ("x-goog-api-key", key.clone()),
        })
    }
}
