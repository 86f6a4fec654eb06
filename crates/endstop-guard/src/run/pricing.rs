//! The provider behind an upstream, with its dialect and its prices.

use endstop_wire::catalog::prices::{ModelInfo, PriceBook};
use endstop_wire::catalog::providers::{PROVIDERS, ProviderInfo};
use endstop_wire::dialect::{self, Dialect, WireFormat, dialect_at};
use http::Uri;
use std::sync::LazyLock;

/// Looks up the price of a model.
///
/// The provider is found by the upstream's host; behind any other host (a company's gateway) the
/// price is that of the format's own provider.
pub(super) fn price_of(
    book: &PriceBook,
    format: WireFormat,
    host: Option<&str>,
    model: &str,
) -> Option<ModelInfo> {
    let by_host = host.and_then(provider_at).map(|provider| provider.id);
    book.lookup(by_host.or_else(|| format.catalogue()).unwrap_or_default(), model)
}

/// The reason for a refusal of a call in which servers may read another model than guard does.
pub(super) const TWO_MODELS: &str = "the request names its model more than once";

/// The reason for a refusal of a model without a price. The runs of a standing proxy have that of their profile.
pub(super) fn no_price(model: Option<&str>, is_only: bool) -> String {
    let model = model.unwrap_or("unknown");
    let option = if is_only { "--price" } else { "`price` in its profile" };
    let option = format!("{option}, or `[prices]` in your settings");
    format!(
        "no price is known for the model `{model}`, so the cost limit cannot be enforced; give one with {option}"
    )
}

/// Returns the dialect that the upstream speaks: that of the provider at its host, or that of the
/// format's own provider.
pub(super) fn dialect_of(format: WireFormat, host: Option<&str>) -> &'static Dialect {
    let at_host = host.and_then(|host| {
        dialect_at(host, format).or_else(|| {
            let id = provider_at(host)?.id;
            dialect::dialect_of(id, format)
        })
    });
    at_host.unwrap_or_else(|| format.dialect())
}

/// Returns the id of the provider that has this host, or of the one that defined the format.
pub(super) fn provider_of(format: WireFormat, host: Option<&str>) -> &'static str {
    host.and_then(provider_at).map_or(format.provider(), |provider| provider.id)
}

/// The port of an address.
pub(super) fn port_of(url: &Uri) -> u16 {
    let standard = if url.scheme_str() == Some("http") { 80 } else { 443 };
    url.port_u16().unwrap_or(standard)
}

/// `true` if an address is one of a provider's own for a format, which serves each path as its documentation has it.
pub(super) fn is_at_provider(url: &Uri, format: WireFormat) -> bool {
    let provider = url.host().and_then(provider_at);
    url.scheme_str() == Some("https") && provider.is_some_and(|one| one.speaks(format).is_some())
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

#[cfg(test)]
mod tests {
    use super::*;

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
