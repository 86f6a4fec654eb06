//! URLs that contain more than a base, a path and a model: Google Cloud requires a project, a
//! location and the model's publisher, and Azure requires the deployment if an API version is set.
//!
//! ```
//! use endstop_wire::endpoint::resolve;
//! let env = |name: &str| match name {
//!     "GOOGLE_CLOUD_PROJECT" => Some("mine".to_owned()),
//!     "GOOGLE_CLOUD_LOCATION" => Some("global".to_owned()),
//!     _ => None,
//! };
//! let model = resolve("vertex/gemini-2.5-flash", &env)?;
//! assert_eq!(model.base_url, "https://aiplatform.googleapis.com");
//! # Ok::<(), endstop_wire::endpoint::ResolveError>(())
//! ```

use super::error::ResolveError;
use super::path::in_path;
use super::signing::is_region;
use crate::catalog::providers::{Endpoint, PlaceVars, ProviderInfo};
use crate::dialect::WireFormat;

/// Location of a model on Google Cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Variables that the values were read from.
    pub vars: &'static PlaceVars,
    /// Project, by id or number.
    pub project: String,
    /// Location: a region, a multi-region (`us`), or `global`.
    pub location: String,
}

/// Returns the endpoint for this model. The model's name determines the format, and a contradicting
/// `api` is an error.
pub(super) fn endpoint(
    provider: &'static ProviderInfo,
    model: &str,
    api: Option<WireFormat>,
) -> Result<&'static Endpoint, ResolveError> {
    let lower = model.to_lowercase();
    let named = provider.places.iter().find(|vars| lower.starts_with(vars.models));
    let api = match (api, named) {
        (Some(api), Some(vars)) if provider.speaks(api).is_some() && api != vars.api => {
            return Err(ResolveError::OtherApi { model: model.to_owned(), api, own: vars.api });
        }
        (Some(api), _) => api,
        (None, Some(vars)) => vars.api,
        (None, None) => {
            return Err(ResolveError::UnknownFormat { provider, model: model.to_owned() });
        }
    };
    provider.speaks(api).ok_or(ResolveError::UnsupportedApi { provider, api })
}

impl Place {
    /// Reads the place from the variables. Returns `None` if the provider's URLs contain none.
    pub(super) fn find(
        provider: &'static ProviderInfo,
        api: WireFormat,
        var: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Place>, ResolveError> {
        let Some(vars) = provider.places.iter().find(|vars| vars.api == api) else {
            return Ok(None);
        };
        let read =
            |what, names: &'static [&'static str], example, sound: fn(&str) -> bool| match names
                .iter()
                .find_map(|name| var(name))
            {
                None => Err(ResolveError::MissingSetting { provider, what, vars: names, example }),
                Some(value) if sound(&value) => Ok(value),
                Some(value) => {
                    Err(ResolveError::NotASetting { provider, what, value, vars: names, example })
                }
            };
        Ok(Some(Place {
            vars,
            project: read("project", vars.project, "my-project", is_project)?,
            location: read("location", vars.location, "us-central1", is_region)?,
        }))
    }

    /// Returns the base URL of this place.
    pub(super) fn base_url(&self) -> String {
        match self.location.as_str() {
            "global" => "https://aiplatform.googleapis.com".to_owned(),
            several @ ("us" | "eu") => format!("https://aiplatform.{several}.rep.googleapis.com"),
            region => format!("https://{region}-aiplatform.googleapis.com"),
        }
    }

    /// Returns the path of a model, without the method.
    pub(super) fn path(&self, version: &str, model: &str) -> String {
        let Place { vars, project, location } = self;
        // Google writes the `@` before a version unescaped.
        let model = in_path(model).replace('/', "%2F").replace("%40", "@");
        let project = in_path(project);
        format!(
            "{version}/projects/{project}/locations/{location}/publishers/{}/models/{model}",
            vars.publisher
        )
    }
}

/// `true` for a project id, with an optional domain, or a project number. The value becomes one
/// path segment, so it must not contain a character that ends one.
fn is_project(id: &str) -> bool {
    let sound = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b':' | b'_');
    id.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric()) && id.bytes().all(sound)
}

/// Returns the path and query of Azure's versioned API.
pub(super) fn versioned(api: WireFormat, deployment: &str, version: &str) -> String {
    let version = in_path(version).replace('/', "%2F");
    if api == WireFormat::OpenAiResponses {
        return format!("/openai/responses?api-version={version}");
    }
    let deployment = in_path(deployment).replace('/', "%2F");
    format!("/openai/deployments/{deployment}/chat/completions?api-version={version}")
}

#[cfg(test)]
mod tests {
    use crate::dialect::WireFormat;
    use crate::endpoint::{Overrides, ResolveError, Secret, resolve, resolve_with};

    type Set = &'static [(&'static str, &'static str)];

    fn with(set: Set) -> impl Fn(&str) -> Option<String> {
        move |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned())
    }

    const GOOGLES: Set =
        &[("GOOGLE_CLOUD_PROJECT", "mine"), ("GOOGLE_CLOUD_LOCATION", "us-central1")];

    const AZURE: Set = &[
        ("AZURE_OPENAI_ENDPOINT", "https://there.openai.azure.com/"),
        ("AZURE_OPENAI_API_KEY", "hunter2"),
    ];

    fn said(result: Result<impl std::fmt::Debug, ResolveError>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn model_name_determines_format() {
        let base = "https://us-central1-aiplatform.googleapis.com/v1/projects/mine/locations/us-central1/publishers";
        for (model, api, path, once, streamed) in [
            (
                "gemini-2.5-flash",
                WireFormat::Gemini,
                "google/models/gemini-2.5-flash",
                "generateContent",
                "streamGenerateContent?alt=sse",
            ),
            (
                "claude-sonnet-4-5@20250929",
                WireFormat::Anthropic,
                "anthropic/models/claude-sonnet-4-5@20250929",
                "rawPredict",
                "streamRawPredict",
            ),
        ] {
            for said in [None, Some(api)] {
                let overrides = Overrides { api: said, ..Overrides::default() };
                let model =
                    resolve_with(&format!("vertex/{model}"), &overrides, &with(GOOGLES)).unwrap();
                assert_eq!(model.api, api);
                assert_eq!(model.url(), format!("{base}/{path}:{once}"));
                assert_eq!(model.stream_url(), format!("{base}/{path}:{streamed}"));
            }
        }
        let speak = |model: &str, api| {
            let overrides = Overrides { api, ..Overrides::default() };
            resolve_with(&format!("vertex/{model}"), &overrides, &with(GOOGLES))
        };
        assert_eq!(
            said(speak("claude-opus-4-8", Some(WireFormat::Gemini))),
            "`claude-opus-4-8` uses anthropic-messages, not gemini; set no format, or anthropic-messages"
        );
        assert_eq!(
            said(speak("gemini-2.5-pro", Some(WireFormat::Anthropic))),
            "`gemini-2.5-pro` uses gemini, not anthropic-messages; set no format, or gemini"
        );
        assert_eq!(
            said(speak("claude-opus-4-8", Some(WireFormat::OpenAiChat))),
            "Google Vertex AI does not speak openai-chat; it speaks gemini, anthropic-messages"
        );
        assert_eq!(
            said(speak("my-own", None)),
            "the name `my-own` does not show which format Google Vertex AI uses for it (gemini… uses gemini, claude… uses anthropic-messages); set the format"
        );
        let own = speak("../x?y#z", Some(WireFormat::Gemini)).unwrap();
        assert_eq!(own.url(), format!("{base}/google/models/..%2Fx%3Fy%23z:generateContent"));
    }

    #[test]
    fn place_is_read_like_vendor_sdk() {
        let claude: Set = &[
            ("CLOUD_ML_REGION", "europe-west1"),
            ("ANTHROPIC_VERTEX_PROJECT_ID", "theirs"),
            ("ANTHROPIC_VERTEX_BASE_URL", "http://claude/v1/"),
            ("GOOGLE_CLOUD_PROJECT", "mine"),
            ("GOOGLE_CLOUD_LOCATION", "us-central1"),
            ("GOOGLE_VERTEX_BASE_URL", "http://gemini"),
        ];
        for (set, model, url) in [
            (
                claude,
                "claude-x",
                "http://claude/v1/projects/theirs/locations/europe-west1/publishers/anthropic/models/claude-x:rawPredict",
            ),
            (
                claude,
                "Gemini-x",
                "http://gemini/v1/projects/mine/locations/us-central1/publishers/google/models/Gemini-x:generateContent",
            ),
            (
                &claude[..2],
                "claude-x",
                "https://europe-west1-aiplatform.googleapis.com/v1/projects/theirs/locations/europe-west1/publishers/anthropic/models/claude-x:rawPredict",
            ),
            (
                &claude[3..5],
                "claude-x",
                "https://us-central1-aiplatform.googleapis.com/v1/projects/mine/locations/us-central1/publishers/anthropic/models/claude-x:rawPredict",
            ),
        ] {
            assert_eq!(resolve(&format!("vertex/{model}"), &with(set)).unwrap().url(), url);
        }
        for (location, host) in [
            ("global", "aiplatform.googleapis.com"),
            ("us", "aiplatform.us.rep.googleapis.com"),
            ("eu", "aiplatform.eu.rep.googleapis.com"),
            ("us-east5", "us-east5-aiplatform.googleapis.com"),
        ] {
            let env = |name: &str| match name {
                "GOOGLE_CLOUD_LOCATION" => Some(location.to_owned()),
                "GOOGLE_CLOUD_PROJECT" => Some("example.com:mine".to_owned()),
                _ => None,
            };
            let model = resolve("vertex/gemini-x", &env).unwrap();
            assert_eq!(model.base_url, format!("https://{host}"));
            let path = format!(
                "/v1/projects/example.com%3Amine/locations/{location}/publishers/google/models/gemini-x:generateContent"
            );
            assert!(model.url().ends_with(&path), "{}", model.url());
        }
    }

    #[test]
    fn missing_place_setting_is_named() {
        let gemini = |set| said(resolve("vertex/gemini-x", &with(set)));
        let claude = |set| said(resolve("vertex/claude-x", &with(set)));
        let project =
            "no project for Google Vertex AI: set GOOGLE_CLOUD_PROJECT, for example to my-project";
        assert_eq!(gemini(&[]), project);
        assert_eq!(gemini(&[("GOOGLE_CLOUD_PROJECT", " ")]), project);
        assert_eq!(
            gemini(&GOOGLES[..1]),
            "no location for Google Vertex AI: set GOOGLE_CLOUD_LOCATION, for example to us-central1"
        );
        assert_eq!(
            claude(&[]),
            "no project for Google Vertex AI: set ANTHROPIC_VERTEX_PROJECT_ID or GOOGLE_CLOUD_PROJECT, for example to my-project"
        );
        assert_eq!(
            claude(&GOOGLES[..1]),
            "no location for Google Vertex AI: set CLOUD_ML_REGION or GOOGLE_CLOUD_LOCATION, for example to us-central1"
        );
        // Neither value may end a host name or a path segment.
        assert_eq!(
            gemini(&[("GOOGLE_CLOUD_PROJECT", "p"), ("GOOGLE_CLOUD_LOCATION", "evil.example/")]),
            "invalid location `evil.example/` for Google Vertex AI; set GOOGLE_CLOUD_LOCATION, for example to us-central1"
        );
        for project in ["..", "a/b", "-", "a?b", "a b"] {
            let env = |name: &str| (name != "GOOGLE_VERTEX_BASE_URL").then(|| project.to_owned());
            let message = said(resolve("vertex/gemini-x", &env));
            assert!(message.starts_with(&format!("invalid project `{project}` for")), "{message}");
        }
    }

    #[test]
    fn token_precedes_fetched_key() {
        let file = "GOOGLE_APPLICATION_CREDENTIALS";
        let resolved = |more: &[(&'static str, &'static str)], base_url: Option<&str>| {
            let set: Vec<(&str, &str)> = GOOGLES.iter().chain(more).copied().collect();
            let env = move |name: &str| {
                set.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned())
            };
            let base_url = base_url.map(str::to_owned);
            resolve_with("vertex/gemini-x", &Overrides { base_url, ..Overrides::default() }, &env)
        };
        let token = ("CLOUDSDK_AUTH_ACCESS_TOKEN", "hunter2\n");
        let model = resolved(&[token, (file, "/a.json")], None).unwrap();
        let (name, value) = model.auth_header().unwrap();
        assert_eq!((name, value.expose()), ("authorization", "Bearer hunter2"));
        assert!(model.login.is_none() && !format!("{model:?}").contains("hunter2"));

        let login = resolved(&[(file, "/a.json")], None).unwrap().login.unwrap();
        assert_eq!(login.file.as_deref(), Some("/a.json"));
        assert_eq!(login.vars.scope, "https://www.googleapis.com/auth/cloud-platform");
        let login = resolved(&[], None).unwrap().login.unwrap();
        assert_eq!(login.file, None);

        // For a custom base URL only credentials from a variable are used.
        let error = resolved(&[], Some("http://mine")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no key for Google Vertex AI: set CLOUDSDK_AUTH_ACCESS_TOKEN or GOOGLE_APPLICATION_CREDENTIALS, or run `gcloud auth application-default login`"
        );
        let model = resolved(&[(file, "/a.json")], Some("http://mine/v1")).unwrap();
        assert_eq!(model.login.as_ref().unwrap().file.as_deref(), Some("/a.json"));
        assert!(model.url().starts_with("http://mine/v1/projects/mine/"), "{}", model.url());
        // The cloud's dialect applies at every base URL.
        assert_eq!(model.dialect(true).unwrap().name, "vertex-gemini");
    }

    #[test]
    fn azure_urls_match_its_sdk() {
        let url =
            |more: &[(&'static str, &'static str)], api: Option<WireFormat>, base: Option<&str>| {
                let set: Vec<(&str, &str)> = more.iter().chain(AZURE).copied().collect();
                let env = move |name: &str| {
                    set.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned())
                };
                let overrides =
                    Overrides { api, base_url: base.map(str::to_owned), ..Overrides::default() };
                let model = resolve_with("azure/my gpt/5", &overrides, &env).unwrap();
                let dialect = model.dialect(base.is_some()).unwrap().name;
                assert_eq!(model.url(), model.stream_url());
                (model.url(), dialect)
            };
        let responses = Some(WireFormat::OpenAiResponses);
        let version = [("OPENAI_API_VERSION", "2024-12-01-preview")];
        for base in [None, Some("http://h"), Some("http://h/openai"), Some("http://h/openai/v1/")] {
            let at = base.map_or("https://there.openai.azure.com", |_| "http://h");
            let chat = format!("{at}/openai/v1/chat/completions");
            assert_eq!(url(&[], None, base), (chat, "azure-openai-chat"));
            let answer = format!("{at}/openai/v1/responses");
            assert_eq!(url(&[], responses, base), (answer, "azure-openai-responses"));
        }
        for base in [None, Some("http://h"), Some("http://h/openai/")] {
            let at = base.map_or("https://there.openai.azure.com", |_| "http://h");
            let query = "api-version=2024-12-01-preview";
            let chat = format!("{at}/openai/deployments/my%20gpt%2F5/chat/completions?{query}");
            assert_eq!(url(&version, None, base), (chat, "azure-openai-chat"));
            let answer = format!("{at}/openai/responses?{query}");
            assert_eq!(url(&version, responses, base), (answer, "azure-openai-responses"));
        }
    }

    #[test]
    fn azure_reads_its_own_variables() {
        let model = resolve("azure/d", &with(AZURE)).unwrap();
        let (name, value) = model.auth_header().unwrap();
        assert_eq!((name, value.expose()), ("api-key", "hunter2"));
        // The token takes precedence, as in the SDK.
        let token: Set = &[
            ("AZURE_OPENAI_AD_TOKEN", "hunter3"),
            ("AZURE_OPENAI_API_KEY", "hunter2"),
            ("AZURE_OPENAI_ENDPOINT", "https://there"),
        ];
        let model = resolve("azure/d", &with(token)).unwrap();
        let (name, value) = model.auth_header().unwrap();
        assert_eq!((name, value.expose()), ("authorization", "Bearer hunter3"));
        // A key from the caller is sent as a key, not as a token.
        let overrides = Overrides { key: Some(Secret::new("mine")), ..Overrides::default() };
        let model = resolve_with("azure/d", &overrides, &with(token)).unwrap();
        assert_eq!(model.auth_header().unwrap().0, "api-key");

        assert_eq!(
            said(resolve("azure/d", &with(&AZURE[1..]))),
            "no endpoint for Azure OpenAI: set AZURE_OPENAI_ENDPOINT, for example to https://RESOURCE.openai.azure.com"
        );
        assert_eq!(
            said(resolve("azure/d", &with(&AZURE[..1]))),
            "no key for Azure OpenAI: set AZURE_OPENAI_AD_TOKEN or AZURE_OPENAI_API_KEY"
        );
    }
}
