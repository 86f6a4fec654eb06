//! Resolution of `provider/model` and the environment to a URL, a key and headers.

use super::error::ResolveError;
use super::host;
use super::login::{Login, login};
use super::place::{self, Place};
use super::resolved::ResolvedModel;
use super::secret::Secret;
use super::signing::{SigningKeys, is_region, keys as signing_keys};
use super::suggest::{nearest, whole};
use crate::catalog::providers::{AuthStyle, Endpoint, PROVIDERS, ProviderInfo, provider};
use crate::dialect::WireFormat;
use crate::redact::address;
use std::fmt;

/// Values from the caller that take precedence over the table and the environment.
#[derive(Clone, Default)]
pub struct Overrides {
    /// Another format of the provider.
    pub api: Option<WireFormat>,
    /// Another base URL.
    pub base_url: Option<String>,
    /// Key to send in the provider's usual header.
    pub key: Option<Secret>,
}

impl fmt::Debug for Overrides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overrides")
            .field("api", &self.api)
            // The URL may contain a password.
            .field("base_url", &self.base_url.as_deref().map(address))
            .field("key", &self.key)
            .finish()
    }
}

/// Resolves `provider/model`. `env` looks up a variable.
pub fn resolve(
    spec: &str,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<ResolvedModel, ResolveError> {
    resolve_with(spec, &Overrides::default(), env)
}

/// Like [`resolve`], with values from the caller that take precedence over the environment.
pub fn resolve_with(
    spec: &str,
    overrides: &Overrides,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<ResolvedModel, ResolveError> {
    // Trim, because keys are often pasted or read from files with a newline at the end.
    let var = |name: &str| {
        env(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    };
    let (provider, model) = provider_and_model(spec.trim())?;
    let endpoint = endpoint(provider, model, overrides.api)?;
    let lookup = Lookup { provider, overrides, var: &var };
    let region = provider.region_vars.iter().find_map(|name| var(name));
    let place = Place::find(provider, endpoint.api, &var)?;
    let credentials = lookup.credentials(region.as_deref())?;
    let base_url = lookup.base_url(place.as_ref())?;
    let base_url = lookup.in_region(base_url, region, credentials.signing.is_some())?;
    Ok(ResolvedModel {
        provider,
        model: model.to_owned(),
        api: endpoint.api,
        base_url: base_url.trim().trim_end_matches('/').to_owned(),
        path: endpoint.path,
        key: credentials.key,
        signing: credentials.signing,
        login: credentials.login,
        place,
        version: provider.version_var.and_then(var),
        headers: lookup.headers(),
    })
}

/// Splits `provider/model` and finds the provider.
fn provider_and_model(spec: &str) -> Result<(&'static ProviderInfo, &str), ResolveError> {
    let (id, model) = spec.split_once('/').unwrap_or((spec, ""));
    match provider(&id.to_lowercase()) {
        Some(provider) if !model.is_empty() => Ok((provider, model)),
        Some(provider) => Err(ResolveError::NoModel { provider }),
        None if model.is_empty() => {
            Err(ResolveError::NotAModel { spec: spec.to_owned(), did_you_mean: whole(spec) })
        }
        None => {
            Err(ResolveError::UnknownProvider { name: id.to_owned(), did_you_mean: nearest(id) })
        }
    }
}

/// Returns the provider's endpoint in this format, or its default one.
fn endpoint(
    provider: &'static ProviderInfo,
    model: &str,
    api: Option<WireFormat>,
) -> Result<&'static Endpoint, ResolveError> {
    let endpoint = match api {
        api if !provider.places.is_empty() => place::endpoint(provider, model, api)?,
        None => &provider.endpoints[0],
        Some(api) => provider.speaks(api).ok_or(ResolveError::UnsupportedApi { provider, api })?,
    };
    if endpoint.api == WireFormat::BedrockInvoke && !may_be_anthropics(model) {
        return Err(ResolveError::WrongModel { api: endpoint.api, model: model.to_owned() });
    }
    Ok(endpoint)
}

/// The beginnings of keys that only one provider gives out, with its id and its name.
const KEY_PREFIXES: [(&str, &str, &str); 6] = [
    ("sk-ant-", "anthropic", "Anthropic"),
    ("sk-proj-", "openai", "OpenAI"),
    ("sk-svcacct-", "openai", "OpenAI"),
    ("sk-or-", "openrouter", "OpenRouter"),
    ("gsk_", "groq", "Groq"),
    ("xai-", "xai", "xAI"),
];

/// Returns a variable that is set and has the key of another provider, with the name of that provider.
fn other_key(
    missing: &ProviderInfo,
    var: &dyn Fn(&str) -> Option<String>,
) -> Option<(&'static str, &'static str)> {
    let others = PROVIDERS.iter().filter(|provider| provider.id != missing.id);
    let mut keys = others.flat_map(|one| one.key_vars.iter().map(|key| (key.name, one.name)));
    keys.find(|(name, _)| var(name).is_some())
}

/// Credentials of a model's calls. A key excludes the others.
struct Credentials {
    key: Option<(AuthStyle, Secret)>,
    signing: Option<SigningKeys>,
    login: Option<Login>,
}

/// A provider, the caller's values for it, and the environment.
struct Lookup<'a> {
    provider: &'static ProviderInfo,
    overrides: &'a Overrides,
    var: &'a dyn Fn(&str) -> Option<String>,
}

impl Lookup<'_> {
    /// Returns the caller's key, or the first key that the environment has.
    fn key(&self) -> Option<(AuthStyle, Secret)> {
        let vars = self.provider.key_vars;
        if let Some(key) = self.overrides.key.clone() {
            // Use a token's header only if no key of the provider has a header of its own.
            let usual = vars.iter().map(|var| var.auth).find(|auth| *auth != AuthStyle::Bearer);
            return Some((usual.unwrap_or(AuthStyle::Bearer), key));
        }
        vars.iter().find_map(|key| Some((key.auth, Secret::new((self.var)(key.name)?))))
    }

    /// Refuses a key of another provider before it is sent to this one. A server at another address may take any
    /// key.
    fn check_vendor(&self) -> Result<(), ResolveError> {
        let Lookup { provider, overrides, var } = *self;
        let set = |name: Option<&str>| name.and_then(var).is_some();
        if overrides.key.is_some()
            || overrides.base_url.is_some()
            || set(provider.base_url_var)
            || set(provider.wider_url_var)
        {
            return Ok(());
        }
        let Some((variable, key)) =
            provider.key_vars.iter().find_map(|key| Some((key.name, var(key.name)?)))
        else {
            return Ok(());
        };
        let owner = KEY_PREFIXES.iter().find(|(prefix, _, _)| key.starts_with(prefix));
        match owner {
            Some((_, id, other)) if *id != provider.id => {
                Err(ResolveError::OtherKey { provider, variable, other })
            }
            _ => Ok(()),
        }
    }

    /// Returns the credentials. A bearer key takes precedence over signing, as in AWS's SDK.
    fn credentials(&self, region: Option<&str>) -> Result<Credentials, ResolveError> {
        let Lookup { provider, overrides, var } = *self;
        if let Some(key) = self.key() {
            self.check_vendor()?;
            return Ok(Credentials { key: Some(key), signing: None, login: None });
        }
        let signing = signing_keys(provider, region.unwrap_or_default(), var);
        let login = login(provider, overrides.base_url.is_some(), var);
        if signing.is_none() && login.is_none() && provider.key_required {
            return Err(ResolveError::MissingKey { provider, other: other_key(provider, var) });
        }
        Ok(Credentials { key: None, signing, login })
    }

    /// Returns the base URL of the caller, the environment or the place, or `None` if the table's
    /// applies.
    fn base_url(&self, place: Option<&Place>) -> Result<Option<String>, ResolveError> {
        let Lookup { provider, overrides, var } = *self;
        let of_provider = || {
            let value = var(provider.base_url_var?)?;
            Some(match provider.base_url_port {
                Some(port) => host::base_url(&value, port),
                None => value,
            })
        };
        let base_url = overrides
            .base_url
            .clone()
            .or_else(|| var(place?.vars.base_url))
            .or_else(of_provider)
            .or_else(|| var(provider.wider_url_var?))
            .or_else(|| Some(place?.base_url()));
        match (&base_url, &provider.base_url_var) {
            (None, Some(variable)) if provider.is_at_its_users() => {
                Err(ResolveError::MissingSetting {
                    provider,
                    what: "endpoint",
                    vars: std::slice::from_ref(variable),
                    example: "https://RESOURCE.openai.azure.com",
                })
            }
            _ => Ok(base_url),
        }
    }

    /// Returns the base URL with the region that it or the signature requires.
    fn in_region(
        &self,
        configured: Option<String>,
        region: Option<String>,
        signed: bool,
    ) -> Result<String, ResolveError> {
        let provider = self.provider;
        let regional = configured.is_none() && !provider.region_vars.is_empty();
        let base_url = configured.unwrap_or_else(|| provider.base_url.to_owned());
        match region {
            // A signature needs the region even if a custom base URL does not.
            None if regional || signed => Err(ResolveError::MissingRegion { provider }),
            Some(region) if !is_region(&region) => {
                Err(ResolveError::NotARegion { provider, region })
            }
            Some(region) if regional => Ok(base_url.replace("{region}", &region)),
            _ => Ok(base_url),
        }
    }

    /// Returns the headers that are fixed and those that the environment sets.
    fn headers(&self) -> Vec<(&'static str, String)> {
        let fixed = self.provider.headers.iter().map(|(name, value)| (*name, (*value).to_owned()));
        let from_env = self.provider.header_vars.iter();
        fixed.chain(from_env.filter_map(|(name, from)| Some((*name, (self.var)(from)?)))).collect()
    }
}

/// `true` if the model may be Anthropic's. Bedrock ids start with the vendor, optionally after a
/// region, such as `us.anthropic.claude-…`. An ARN need not contain the vendor.
fn may_be_anthropics(model: &str) -> bool {
    model.contains("anthropic") || model.starts_with("arn:") || !model.contains('.')
}

#[cfg(test)]
mod tests;
