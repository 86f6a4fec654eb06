//! The provider behind an upstream, with its dialect and its prices.

use endstop_wire::catalog::prices::{self, ModelInfo};
use endstop_wire::catalog::providers::{PROVIDERS, ProviderInfo};
use endstop_wire::dialect::{Dialect, WireFormat, dialect, dialect_at};
use std::collections::VecDeque;
use std::sync::{LazyLock, Mutex, PoisonError};

/// Models whose prices are remembered. A run seldom has more than its main model and one for titles.
const REMEMBERED: usize = 8;

/// Longest name of a model that is remembered, in bytes.
const LONGEST_NAME: usize = 256;

/// Looks prices up in the catalogue, which is a table of 150 kB, and remembers the last results, also for models that it
/// does not have.
#[derive(Default)]
pub(super) struct Prices(Mutex<VecDeque<Known>>);

struct Known {
    format: WireFormat,
    host: Option<String>,
    model: String,
    info: Option<ModelInfo>,
}

impl Prices {
    /// Returns the price of a model, if the catalogue knows it.
    pub(super) fn of(
        &self,
        format: WireFormat,
        host: Option<&str>,
        model: &str,
    ) -> Option<ModelInfo> {
        // The list is valid after a panic: each change is one call.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |one: &&Known| {
            one.format == format && one.host.as_deref() == host && one.model == model
        };
        if let Some(one) = known.iter().find(is_same) {
            return one.info.clone();
        }
        let info = price_of(format, host, model);
        if model.len() <= LONGEST_NAME {
            known.truncate(REMEMBERED - 1);
            let (host, model) = (host.map(str::to_owned), model.to_owned());
            known.push_front(Known { format, host, model, info: info.clone() });
        }
        info
    }
}

/// Looks up the price of a model.
///
/// The provider is found by the upstream's host; behind any other host (a company's gateway) the
/// price is that of the format's own provider.
fn price_of(format: WireFormat, host: Option<&str>, model: &str) -> Option<ModelInfo> {
    let by_host = host.and_then(provider_at).map(|provider| provider.id);
    let provider = by_host.or_else(|| own_provider(format))?;
    prices::lookup(provider, model)
}

/// Returns the dialect that the upstream speaks: that of the provider at its host, or that of the
/// format's own provider.
pub(super) fn dialect_of(format: WireFormat, host: Option<&str>) -> &'static Dialect {
    let at_host = host.and_then(|host| {
        dialect_at(host, format).or_else(|| {
            let id = provider_at(host)?.id;
            let names = match format {
                WireFormat::OpenAiChat => [id.to_owned(), format!("{id}-openai")],
                WireFormat::OpenAiResponses => [id.to_owned(), format!("{id}-responses")],
                _ => return None,
            };
            let mut known = names.iter().filter_map(|name| dialect(name).ok());
            known.find(|known| known.family == format)
        })
    });
    at_host.unwrap_or_else(|| format.dialect())
}

/// The host of a provider's endpoint.
struct Host {
    start: &'static str,
    /// The end of the host, if a region, a location or a resource stands before it.
    end: Option<&'static str>,
    provider: &'static ProviderInfo,
}

impl Host {
    fn of(provider: &'static ProviderInfo) -> Host {
        let url = provider.base_url;
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        let name = rest.split(['/', ':']).next().unwrap_or(rest);
        // At most one placeholder, as in every row of the catalogue.
        match (name.split_once('{'), name.split_once('}')) {
            (Some((start, _)), Some((_, end))) => Host { start, end: Some(end), provider },
            _ => Host { start: name, end: None, provider },
        }
    }

    fn is(&self, host: &str) -> bool {
        let Some(end) = self.end else { return !self.start.is_empty() && self.start == host };
        let middle = host.strip_prefix(self.start).and_then(|rest| rest.strip_suffix(end));
        // A region is never empty.
        middle.is_some_and(|middle| !middle.is_empty() && !middle.contains('.'))
    }
}

/// The hosts of all providers, read once, because each call looks for one.
static HOSTS: LazyLock<Vec<Host>> = LazyLock::new(|| PROVIDERS.iter().map(Host::of).collect());

/// The provider whose endpoint has this host.
fn provider_at(host: &str) -> Option<&'static ProviderInfo> {
    let host = host.to_ascii_lowercase();
    HOSTS.iter().find(|known| known.is(&host)).map(|known| known.provider)
}

fn own_provider(format: WireFormat) -> Option<&'static str> {
    Some(match format {
        WireFormat::OpenAiChat | WireFormat::OpenAiResponses => "openai",
        WireFormat::Anthropic => "anthropic",
        WireFormat::Gemini => "google",
        WireFormat::BedrockInvoke | WireFormat::BedrockConverse => "bedrock",
        WireFormat::CohereV1 | WireFormat::CohereV2 => "cohere",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembered_prices_are_those_of_the_catalogue() {
        let prices = Prices::default();
        let long = "m".repeat(LONGEST_NAME + 1);
        let mut names = vec!["gpt-4o-mini", "claude-sonnet-4-5", "no-such-model", "", &long];
        // The earlier ones are replaced.
        names.extend(["gpt-4o", "gpt-4.1", "gpt-5", "gpt-5-mini", "o3", "o4-mini", "gpt-4o-mini"]);
        let formats = [WireFormat::OpenAiChat, WireFormat::Anthropic];
        let hosts = [None, Some("api.x.ai"), Some("openrouter.ai"), Some("127.0.0.1")];
        let mut found = 0;
        for name in names {
            for (host, format) in
                hosts.iter().flat_map(|host| formats.map(|format| (*host, format)))
            {
                let fresh = price_of(format, host, name);
                found += usize::from(fresh.is_some());
                for _ in 0..2 {
                    assert_eq!(prices.of(format, host, name), fresh, "{name} at {host:?}");
                }
                assert!(prices.0.lock().unwrap().len() <= REMEMBERED);
            }
        }
        assert!(found > 10, "{found}");
        // A result that is not the catalogue's shows that it was remembered.
        let (format, host, name) = (WireFormat::OpenAiChat, None, "gpt-4o");
        assert!(prices.of(format, host, name).is_some());
        prices.0.lock().unwrap()[0].info = None;
        assert_eq!(prices.of(format, host, name), None);
        // One that is too long is looked up each time.
        let before = prices.0.lock().unwrap()[0].model.clone();
        assert_eq!(prices.of(format, host, &long), None);
        assert_eq!(prices.0.lock().unwrap()[0].model, before);
    }

    #[test]
    fn provider_is_found_by_host() {
        for (host, id) in [
            ("api.x.ai", Some("xai")),
            ("OpenRouter.ai", Some("openrouter")),
            ("bedrock-runtime.eu-west-1.amazonaws.com", Some("bedrock")),
            ("us-central1-aiplatform.googleapis.com", Some("vertex")),
            ("acme.openai.azure.com", Some("azure")),
            ("bedrock-runtime..amazonaws.com", None),
            ("a.b.openai.azure.com", None),
            ("127.0.0.1", None),
            ("", None),
        ] {
            assert_eq!(provider_at(host).map(|row| row.id), id, "{host}");
        }
    }

    #[test]
    fn dialect_is_that_of_provider_at_host() {
        let chat = |host| dialect_of(WireFormat::OpenAiChat, Some(host)).name;
        assert_eq!(chat("openrouter.ai"), "openrouter");
        assert_eq!(chat("api.x.ai"), "xai");
        assert_eq!(chat("acme.snowflakecomputing.com"), "snowflake");
        assert_eq!(chat("gateway.example"), "openai-chat");
        let responses = |host| dialect_of(WireFormat::OpenAiResponses, Some(host)).name;
        assert_eq!(responses("api.x.ai"), "xai-responses");
        assert_eq!(responses("api.groq.com"), "openai-responses");
        assert_eq!(
            dialect_of(WireFormat::Anthropic, Some("openrouter.ai")).name,
            "anthropic-messages"
        );
    }
}
