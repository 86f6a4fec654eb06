//! The price of a run's calls: given by the caller, or that of the model that answers.

use endstop_core::guest::Spending;
use endstop_core::usage::Unreported;
use endstop_core::{ModelTurn, NanoUsd, Price};
use endstop_wire::Decoded;
use endstop_wire::catalog::prices::{ModelInfo, lookup};
use endstop_wire::dialect::dialect;
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
    pub(crate) fn again(&self) -> Pricing {
        let Pricing { price, is_fixed, .. } = *self;
        let (provider, looked_up) = (self.provider.clone(), self.looked_up.clone());
        Pricing { price, is_fixed, provider, looked_up, source: self.source.clone() }
    }

    /// Prices a response of another agent: by its own model, unless the caller gave a price. Without a
    /// known price or usage the cost is unknown.
    pub(crate) fn cost_of(&self, mut decoded: Decoded, api: &str) -> Spending {
        let mut pricing = self.again();
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
