//! The price of a run's calls: given by the caller, or that of the model that answers.

use crate::response::Detection;
use endstop_core::guest::Spending;
use endstop_core::usage::Unreported;
use endstop_core::{ModelTurn, NanoUsd, Price, Usage};
use endstop_wire::catalog::prices::{ModelInfo, lookup};
use endstop_wire::dialect::dialect;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The price of the run's calls.
#[derive(Debug)]
pub struct Pricing {
    /// The price of the next call.
    price: Option<Price>,
    /// `true` if the caller gave the price, so that the catalogue is not asked.
    is_fixed: bool,
    /// The provider, if the caller named it.
    provider: Option<String>,
    /// The model whose price was looked up last.
    looked_up: Option<String>,
    /// The source of the price, if that is the catalogue, which also has prices of service tiers.
    source: Option<ModelInfo>,
}

impl Pricing {
    /// Looks up the price of `model` (`provider/model`), unless the caller gave one.
    pub fn new(given: Option<Price>, model: Option<&str>) -> Pricing {
        let named = model.and_then(|model| model.split_once('/'));
        let found = named.and_then(|(provider, id)| lookup(provider, id));
        // The catalogue's entry must not stay next to a given price, because its service tiers would
        // replace that price.
        let found = found.filter(|_| given.is_none());
        Pricing {
            price: given.or(found.as_ref().map(|info| info.price)),
            source: found,
            is_fixed: given.is_some(),
            provider: named.map(|(provider, _)| provider.to_owned()),
            looked_up: named.map(|(_, id)| id.to_owned()),
        }
    }

    /// Returns the price of the next call, if it is known.
    pub fn price(&self) -> Option<Price> {
        self.price
    }

    /// Returns the provider, if the caller named it.
    pub fn provider(&self) -> Option<&str> {
        self.provider.as_deref()
    }

    /// Returns the catalogue's entry that the price comes from.
    pub(crate) fn source(&self) -> Option<&ModelInfo> {
        self.source.as_ref()
    }

    /// Returns the price that the caller gave, the provider and the model, from which
    /// [`from_parts`](Pricing::from_parts) makes the same price again.
    pub(crate) fn parts(&self) -> (Option<Price>, Option<String>, Option<String>) {
        let given = self.price.filter(|_| self.is_fixed);
        (given, self.provider.clone(), self.looked_up.clone())
    }

    pub(crate) fn from_parts(
        given: Option<Price>,
        provider: Option<&str>,
        model: Option<&str>,
    ) -> Pricing {
        let named = provider.zip(model).map(|(provider, model)| format!("{provider}/{model}"));
        Pricing::new(given, named.as_deref())
    }

    /// Returns the same price for another conversation.
    pub(crate) fn for_another(&self) -> Pricing {
        let Pricing { price, is_fixed, .. } = *self;
        let (provider, looked_up) = (self.provider.clone(), self.looked_up.clone());
        Pricing { price, is_fixed, provider, looked_up, source: self.source.clone() }
    }

    /// Prices a response of another agent: by its own model, unless the caller gave a price. Without a
    /// known price or usage the cost is unknown.
    pub(crate) fn cost_of(&self, found: Detection) -> Spending {
        let Detection { api, mut decoded } = found;
        let mut pricing = self.for_another();
        if let Some(turn) = &decoded.turn {
            let is_another = turn.model.is_some() && turn.model != self.looked_up;
            if is_another && !self.is_fixed {
                pricing.price = None;
                pricing.source = None;
            }
            pricing.follow(api, turn);
        }
        decoded.price_service_tier(pricing.source());
        let Some(turn) = decoded.turn else {
            // A refused request costs nothing; what a broken one cost is not known.
            let cost_unknown = decoded.error.is_none_or(|error| error.may_be_billed());
            return Spending { cost_unknown, calls: 1, ..Spending::default() };
        };
        let is_counted = turn.usage.total_tokens() > 0;
        let cost = turn.cost.or_else(|| Some(pricing.price?.cost(&turn.usage)));
        let cost = cost.filter(|_| is_counted || turn.cost.is_some());
        Spending {
            cost_unknown: cost.is_none(),
            cost: cost.unwrap_or(NanoUsd::ZERO),
            unreported: Some(match cost {
                Some(_) => Unreported::NOTHING,
                None => Unreported { cost: None, tokens: is_counted.then_some(0) },
            }),
            usage: turn.usage,
            turns: 0,
            calls: 1,
            tool_calls: 0,
        }
    }

    /// Looks the price of the model up that answered, if it is another than before.
    pub(crate) fn follow(&mut self, api: &str, turn: &ModelTurn) {
        let Some(model) = turn.model.as_deref().filter(|_| !self.is_fixed) else { return };
        if self.looked_up.as_deref() == Some(model) {
            return;
        }
        self.looked_up = Some(model.to_owned());
        let of_format = || dialect(api).ok().map(|dialect| dialect.family.provider());
        let provider = self.provider.as_deref().or_else(of_format);
        // A model that the catalogue does not know may still be the one that the caller named.
        if let Some(known) = provider.and_then(|provider| lookup(provider, model)) {
            self.price = Some(known.price);
            self.source = Some(known);
        }
    }
}

/// The price of a model, as a program reads it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "StoredQuote", into = "StoredQuote")]
pub struct Quote {
    /// The price.
    pub price: Price,
    /// The catalogue's entry with the name by which it was found; `None` for a price of the caller's.
    entry: Option<(String, ModelInfo)>,
}

/// The JSON form of a [`Quote`].
#[derive(Serialize, Deserialize)]
struct StoredQuote {
    price: Price,
    model: Option<String>,
}

impl From<Quote> for StoredQuote {
    fn from(Quote { price, entry }: Quote) -> StoredQuote {
        StoredQuote { price, model: entry.map(|(model, _)| model) }
    }
}

impl From<StoredQuote> for Quote {
    fn from(StoredQuote { price, model }: StoredQuote) -> Quote {
        // The catalogue of another version may have another price; that of the original stands.
        let found = model.as_deref().and_then(|model| Quote::find(model).ok().flatten());
        found.filter(|found| found.price == price).unwrap_or_else(|| Quote::given(price))
    }
}

/// A name of a model without its provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoProvider(String);

impl fmt::Display for NoProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NoProvider(model) = self;
        write!(f, "invalid model `{model}`: expected provider/model, such as openai/gpt-4o")
    }
}

impl std::error::Error for NoProvider {}

impl Quote {
    /// A price that the caller gave.
    pub fn given(price: Price) -> Quote {
        Quote { price, entry: None }
    }

    /// Looks a model up in the catalogue, by `provider/model`.
    ///
    /// # Errors
    /// The name has no provider.
    pub fn find(model: &str) -> Result<Option<Quote>, NoProvider> {
        // At the first slash only, because the ids of gateways contain others:
        // `openrouter/openai/gpt-4o`.
        let (provider, id) = model.split_once('/').ok_or_else(|| NoProvider(model.to_owned()))?;
        let quote =
            |info: ModelInfo| Quote { price: info.price, entry: Some((model.to_owned(), info)) };
        Ok(lookup(provider, id).map(quote))
    }

    fn info(&self) -> Option<&ModelInfo> {
        self.entry.as_ref().map(|(_, info)| info)
    }

    /// `true` if every call has this price. The caller's price holds for every call.
    pub fn is_exact(&self) -> bool {
        self.info().is_none_or(|info| info.exact)
    }

    /// Returns the tokens of prompt and answer together, if the catalogue knows them.
    pub fn context_window(&self) -> Option<u64> {
        self.info().and_then(|info| info.context_window)
    }

    /// Returns the source of the price.
    pub fn source(&self) -> String {
        self.info().map_or_else(|| "given by the user".to_owned(), |info| info.source.to_string())
    }

    /// Returns the cost in US dollars of this many tokens.
    pub fn cost(&self, input: u64, output: u64, cached: u64) -> f64 {
        let usage = Usage {
            input_tokens: Some(input),
            output_tokens: Some(output),
            cached_input_tokens: Some(cached),
            ..Usage::default()
        };
        self.price.cost(&usage).to_usd()
    }
}

/// A price that is not a number of dollars, 0 or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidPrice;

impl fmt::Display for InvalidPrice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a price must be a number of US dollars per million tokens, 0 or more")
    }
}

impl std::error::Error for InvalidPrice {}

/// Builds a price from US dollars per million tokens: of the prompt, of the output, and of prompt
/// tokens read from a cache and written to one.
///
/// # Errors
/// A price is negative, infinite or not a number.
pub fn read_price(
    input: f64,
    output: f64,
    cached_input: Option<f64>,
    cache_write: Option<f64>,
) -> Result<Price, InvalidPrice> {
    let given = [Some(input), Some(output), cached_input, cache_write];
    // A negative price would lower the cost of a run, and an infinite one could not be added up.
    if given.into_iter().flatten().any(|usd| !usd.is_finite() || usd < 0.0) {
        return Err(InvalidPrice);
    }
    let mut price = Price::usd_per_million_tokens(input, output);
    if let Some(usd) = cached_input {
        price = price.cached_input_usd(usd);
    }
    if let Some(usd) = cache_write {
        price = price.cache_write_usd(usd);
    }
    Ok(price)
}
