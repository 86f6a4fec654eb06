//! The price of a model behind an upstream.

use endstop_core::Price;
use endstop_wire::WireFormat;
use endstop_wire::catalog::{prices, providers::PROVIDERS};

/// Returns the price of a model, if the catalogue knows it.
///
/// The provider is found by the upstream's host; behind any other host (a company's gateway) the
/// price is that of the format's own provider.
pub(super) fn price_of(format: WireFormat, host: Option<&str>, model: &str) -> Option<Price> {
    let by_host = host.and_then(provider_at);
    let provider = by_host.or_else(|| own_provider(format))?;
    prices::lookup(provider, model).map(|info| info.price)
}

/// The provider whose endpoint has this host.
fn provider_at(host: &str) -> Option<&'static str> {
    let has_host = |url: &str| {
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        rest.split(['/', ':']).next().is_some_and(|name| name.eq_ignore_ascii_case(host))
    };
    PROVIDERS.iter().find(|row| has_host(row.base_url)).map(|row| row.id)
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
