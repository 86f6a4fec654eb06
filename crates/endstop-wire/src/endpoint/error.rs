//! Errors of resolving a model: each names the field or the variable, and the fix.

use crate::catalog::providers::{PROVIDERS, ProviderInfo};
use crate::dialect::WireFormat;
use std::fmt;

/// Error for a model that cannot be resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResolveError {
    /// The text is not of the form `provider/model`.
    NotAModel {
        /// The given text.
        spec: String,
        /// Provider and model that were probably meant.
        did_you_mean: Option<String>,
    },
    /// The text names a provider and no model.
    NoModel {
        /// The provider.
        provider: &'static ProviderInfo,
    },
    /// The provider does not exist.
    UnknownProvider {
        /// The given name.
        name: String,
        /// Provider that was probably meant.
        did_you_mean: Option<&'static str>,
    },
    /// The provider does not support the requested format.
    UnsupportedApi {
        /// The provider.
        provider: &'static ProviderInfo,
        /// The format.
        api: WireFormat,
    },
    /// The variable has a key that another provider gave out.
    OtherKey {
        /// The provider.
        provider: &'static ProviderInfo,
        /// The variable that has the key.
        variable: &'static str,
        /// Name of the provider whose keys begin like it.
        other: &'static str,
    },
    /// The provider requires a key and none is set.
    MissingKey {
        /// The provider.
        provider: &'static ProviderInfo,
        /// A variable that is set and has the key of another provider, and the name of that provider.
        other: Option<(&'static str, &'static str)>,
    },
    /// The provider's URL or signature requires a region and none is set.
    MissingRegion {
        /// The provider.
        provider: &'static ProviderInfo,
    },
    /// The region is not valid.
    NotARegion {
        /// The provider.
        provider: &'static ProviderInfo,
        /// The given region.
        region: String,
    },
    /// The provider's URL requires a setting that no variable provides.
    MissingSetting {
        /// The provider.
        provider: &'static ProviderInfo,
        /// Name of the setting, for example `project`.
        what: &'static str,
        /// Variables that may provide it.
        vars: &'static [&'static str],
        /// Example of a value.
        example: &'static str,
    },
    /// The value cannot be part of the provider's URL.
    NotASetting {
        /// The provider.
        provider: &'static ProviderInfo,
        /// Name of the setting, for example `project`.
        what: &'static str,
        /// The given value.
        value: String,
        /// Variables that may provide it.
        vars: &'static [&'static str],
        /// Example of a value.
        example: &'static str,
    },
    /// The model uses another format at this provider.
    OtherApi {
        /// The model.
        model: String,
        /// The requested format.
        api: WireFormat,
        /// The format that the model uses.
        own: WireFormat,
    },
    /// The model's name does not show which of the provider's formats it uses.
    UnknownFormat {
        /// The provider.
        provider: &'static ProviderInfo,
        /// The model.
        model: String,
    },
    /// Requests in this format can only be made for another vendor's models.
    WrongModel {
        /// The format.
        api: WireFormat,
        /// The model.
        model: String,
    },
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ResolveError::NotAModel { spec, did_you_mean } => {
                write!(f, "`{spec}` is not PROVIDER/MODEL")?;
                match did_you_mean {
                    Some(meant) => write!(f, "; did you mean `{meant}`?"),
                    None => write!(f, "; providers: {}", ids()),
                }
            }
            ResolveError::NoModel { provider } => write!(
                f,
                "`{0}` is a provider, and no model is named; write {0}/MODEL",
                provider.id
            ),
            ResolveError::UnknownProvider { name, did_you_mean } => {
                write!(f, "unknown provider `{name}`")?;
                if let Some(id) = did_you_mean {
                    write!(f, "; did you mean `{id}`?")?;
                }
                write!(f, " (providers: {})", ids())
            }
            ResolveError::UnsupportedApi { provider, api } => {
                if let Some(other) = api.read_only() {
                    return write!(f, "{api} can only be decoded, not requested; use {other}");
                }
                let apis: Vec<&str> = provider.endpoints.iter().map(|e| e.api.as_str()).collect();
                let choices = apis.join(", ");
                write!(f, "{} does not speak {api}; it speaks {choices}", provider.name)
            }
            ResolveError::OtherKey { provider, variable, other } => write!(
                f,
                "the key in {variable} is one of {other}, not of {}: set the right key, or use a model of {other}",
                provider.name
            ),
            ResolveError::MissingKey { provider, other } => {
                let vars: Vec<&str> = provider.key_vars.iter().map(|var| var.name).collect();
                write!(f, "no key for {}: set {}", provider.name, vars.join(" or "))?;
                write_other_credentials(f, provider)?;
                match other {
                    Some((var, name)) => write!(f, "; {var} is set, for models of {name}"),
                    None => Ok(()),
                }
            }
            ResolveError::MissingRegion { provider } => {
                let vars = provider.region_vars.join(" or ");
                write!(f, "no region for {}: set {vars}, for example to us-east-1", provider.name)
            }
            ResolveError::NotARegion { provider, region } => {
                let vars = provider.region_vars.join(" or ");
                write!(
                    f,
                    "invalid region `{region}` for {}; set {vars}, for example to us-east-1",
                    provider.name
                )
            }
            ResolveError::MissingSetting { provider, what, vars, example } => {
                let vars = vars.join(" or ");
                write!(f, "no {what} for {}: set {vars}, for example to {example}", provider.name)
            }
            ResolveError::NotASetting { provider, what, value, vars, example } => {
                let vars = vars.join(" or ");
                write!(
                    f,
                    "invalid {what} `{value}` for {}; set {vars}, for example to {example}",
                    provider.name
                )
            }
            ResolveError::OtherApi { model, api, own } => {
                write!(f, "`{model}` uses {own}, not {api}; set no format, or {own}")
            }
            ResolveError::UnknownFormat { provider, model } => {
                let known = provider
                    .places
                    .iter()
                    .map(|vars| format!("{}… uses {}", vars.models, vars.api));
                write!(
                    f,
                    "the name `{model}` does not show which format {} uses for it ({}); set the format",
                    provider.name,
                    known.collect::<Vec<_>>().join(", ")
                )
            }
            ResolveError::WrongModel { api, model } => write!(
                f,
                "{api} requests can only be made for Anthropic models, and `{model}` is not one; use {}",
                WireFormat::BedrockConverse
            ),
        }
    }
}

impl std::error::Error for ResolveError {}

/// Writes the credentials that this provider takes instead of a key.
fn write_other_credentials(f: &mut fmt::Formatter<'_>, provider: &ProviderInfo) -> fmt::Result {
    match (provider.signing, provider.login) {
        (Some(pair), _) => write!(f, ", or {} and {}", pair.id, pair.secret),
        (None, Some(login)) => write!(f, " or {}, or run `{}`", login.file, login.command),
        (None, None) => Ok(()),
    }
}

fn ids() -> String {
    let ids: Vec<&str> = PROVIDERS.iter().map(|provider| provider.id).collect();
    ids.join(", ")
}
