//! Model prices: the user's own prices take precedence over a compiled-in catalogue.
//!
//! ```
//! use endstop_wire::catalog::prices::{PriceBook, PriceSource, parse_price};
//!
//! let book = PriceBook::new().with("vllm/my-model", parse_price("in=0.2,out=0.8").unwrap());
//! assert_eq!(book.lookup("vllm", "my-model").unwrap().source, PriceSource::User);
//! assert!(book.lookup("anthropic", "claude-3-haiku").unwrap().price.output.to_usd() > 0.0);
//! assert!(book.lookup("vllm", "unheard-of").is_none());
//! ```
//!
//! Prices keep a budget within its ceiling, so each must be an **upper bound**:
//!
//! - A price that depends on the size of the prompt has its thresholds, see
//!   [`Price::long_prompts`].
//! - If a price depends on the hour, the highest one is used, and [`ModelInfo::exact`] is `false`.
//! - There is no clock here. A price that changed on a date is the newest one; if a change is only
//!   announced, the higher of the current and the announced price is used.
//! - A model has no entry if its price has a component that [`Price`] cannot express, such as a fee
//!   per request, or if it is not billed by text tokens (images, speech, embeddings).
//! - A provider is found by its exact id, because a similar name may be another company. An unknown
//!   provider has no price.
//!
//! Prices are for ordinary synchronous calls. [`ModelInfo::tier`] has those of the service tiers whose
//! prices the provider publishes. Not covered are searches and other tools that the provider runs and
//! bills, and tokens of audio. Cache writes have the price of the provider's default lifetime; for a
//! lifetime of an hour see [`Price::hour_write`].
//!
//! The catalogue is a plain-text table compiled into the program. The first lookup builds an index of
//! its lines; a line is parsed when it was found. The data comes from the `genai-prices` project
//! (MIT, see `data/LICENSE-genai-prices`). The test `catalogue` writes and checks it.

mod argument;
mod index;
mod variant;

pub use argument::{AmountProblem, PriceError, parse_price};

use endstop_core::Price;
use index::{Found, section};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// Alternative names of the catalogue's providers.
const ALIASES: &[(&str, &str)] = &[
    ("xai", "x-ai"),
    ("moonshot", "moonshotai"),
    ("together_ai", "together"),
    ("together-ai", "together"),
    ("gemini", "google"),
    ("bedrock", "aws"),
    ("vertex", "google"),
    ("copilot", "github-copilot"),
];

/// Price and limits of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelInfo {
    /// Upper bound of the model's price.
    pub price: Price,
    /// `true` if every ordinary call has this price, `false` if `price` is the highest of several.
    pub exact: bool,
    /// Tokens of prompt and answer together; see also [`crate::catalog::models`].
    pub context_window: Option<u64>,
    /// Source of the price.
    pub source: PriceSource,
    /// The catalogue's column of variants.
    variants: &'static str,
}

impl ModelInfo {
    /// Returns the price of a service tier, such as `flex` or `priority`, if the provider publishes
    /// it. The name is that of the provider's API, in lower case.
    ///
    /// ```
    /// use endstop_wire::catalog::prices::lookup;
    /// let info = lookup("openai", "gpt-5").unwrap();
    /// assert_eq!(info.tier("priority").unwrap().output, info.price.output + info.price.output);
    /// assert_eq!(info.tier("unheard-of"), None);
    /// ```
    pub fn tier(&self, name: &str) -> Option<Price> {
        variant::price(self.variants, name)
    }
}

/// Source of a price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PriceSource {
    /// Set by the user.
    User,
    /// The compiled-in catalogue.
    Catalogue {
        /// Id of the provider in the catalogue.
        provider: &'static str,
        /// Id of the model in the catalogue.
        model: &'static str,
    },
}

impl fmt::Display for PriceSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PriceSource::User => f.write_str("given by the user"),
            PriceSource::Catalogue { provider, model } => {
                write!(f, "catalogue: {provider}/{model}")
            }
        }
    }
}

/// Lookup of prices: the user's own first, then the catalogue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriceBook {
    own: BTreeMap<String, Price>,
    unknown: Option<Price>,
}

impl PriceBook {
    /// Creates a book with the catalogue only.
    pub fn new() -> PriceBook {
        PriceBook::default()
    }

    /// Adds a price for `"provider/model"` that takes precedence over the catalogue. Names are
    /// case-insensitive, and a provider may have any of its names.
    #[must_use]
    pub fn with(mut self, provider_and_model: &str, price: Price) -> PriceBook {
        let (provider, model) = provider_and_model.split_once('/').unwrap_or_default();
        self.own.insert(key(provider, model), price);
        self
    }

    /// Sets the price of models that have none: an upper bound, so it is not exact.
    #[must_use]
    pub fn with_unknown(mut self, price: Price) -> PriceBook {
        self.unknown = Some(price);
        self
    }

    /// Returns the user's own price of a model.
    pub fn own(&self, provider: &str, model: &str) -> Option<Price> {
        self.own.get(&key(provider, model)).copied()
    }

    /// Returns the model's price together with its known limits.
    pub fn lookup(&self, provider: &str, model: &str) -> Option<ModelInfo> {
        let users = |price, exact| ModelInfo {
            price,
            exact,
            context_window: find(provider, model).and_then(|found| found.context_window()),
            source: PriceSource::User,
            variants: "",
        };
        // A user's price applies to every call, whatever its size or hour is.
        let own = self.own(provider, model).map(|price| users(price, true));
        let listed = own.or_else(|| lookup(provider, model));
        listed.or_else(|| self.unknown.map(|price| users(price, false)))
    }
}

/// Returns the catalogue's entry for a model, if it has a price.
///
/// Model ids may have a date or suffix, if the provider accepts one (`claude-3-haiku-20240307`).
pub fn lookup(provider: &str, model: &str) -> Option<ModelInfo> {
    let found = find(provider, model)?;
    let input = found.price(1)?;
    Some(ModelInfo {
        price: Price {
            input,
            output: found.price(2)?,
            cached_input: found.price(3),
            cache_write: found.price(4),
            // The catalogue has no column for it; the rule of `Price::hour_write` applies.
            cache_write_1h: None,
            long_prompts: variant::long_prompts(found.field(7), ""),
        },
        exact: found.field(6).is_empty(),
        context_window: found.context_window(),
        source: PriceSource::Catalogue { provider: found.provider, model: found.field(0) },
        // A provider that serves another's models may have other tiers, or none.
        variants: if canonical(&fold(provider)) == found.provider { found.field(7) } else { "" },
    })
}

/// Returns the catalogue's entry for a model if `price` is the catalogue's price. The prices of its
/// service tiers then apply, too.
pub fn catalogue_price(provider: &str, model: &str, price: Option<Price>) -> Option<ModelInfo> {
    lookup(provider, model).filter(|info| Some(info.price) == price)
}

/// Returns the context window in tokens if the catalogue has it, including for models without a
/// price.
pub(crate) fn context_window(provider: &str, model: &str) -> Option<u64> {
    find(provider, model)?.context_window()
}

/// Finds a model's line at the provider or at a provider whose models it also serves.
fn find(provider: &str, model: &str) -> Option<Found> {
    let (provider, model) = (fold(provider), fold(model));
    let id = canonical(&provider);
    let at_provider = |model: &str| {
        let own = section(id)?;
        own.find(model).or_else(|| {
            let mut fallbacks = own.fallbacks.split(' ');
            fallbacks.find_map(|fallback| section(fallback)?.find(model))
        })
    };
    // Retry with a dashed date only after an exact miss, because some ids really have dates without
    // dashes.
    at_provider(&model).or_else(|| match dashed_date(&model) {
        Cow::Owned(dashed) => at_provider(&dashed),
        Cow::Borrowed(_) => None,
    })
}

/// Returns the catalogue's id of a provider.
fn canonical(provider: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == provider).map_or(provider, |(_, id)| id)
}

/// Returns `model-2025-12-11` for `model-20251211`, because some gateways write dates without
/// dashes.
fn dashed_date(model: &str) -> Cow<'_, str> {
    fn date(part: &str) -> Option<String> {
        let (date, rest) = part.split_at_checked(8)?;
        let number = |digits: &str| digits.parse::<u32>().ok();
        let good = date.bytes().all(|b| b.is_ascii_digit())
            && date.starts_with("20")
            && (rest.is_empty() || rest.starts_with(':'))
            && (1..=12).contains(&number(&date[4..6])?)
            && (1..=31).contains(&number(&date[6..8])?);
        good.then(|| format!("{}-{}-{}{rest}", &date[..4], &date[4..6], &date[6..8]))
    }
    let mut parts: Vec<Cow<'_, str>> = model.split('-').map(Cow::Borrowed).collect();
    let mut found = false;
    // The first part is the model's name and never a date.
    for part in parts.iter_mut().skip(1) {
        if let Some(dashed) = date(part) {
            *part = Cow::Owned(dashed);
            found = true;
        }
    }
    if found { Cow::Owned(parts.join("-")) } else { Cow::Borrowed(model) }
}

/// Returns the key of a model among the user's own prices.
fn key(provider: &str, model: &str) -> String {
    format!("{}/{}", canonical(&fold(provider)), fold(model))
}

/// Returns the date of the catalogue.
pub fn catalogue_date() -> &'static str {
    index::date()
}

fn fold(name: &str) -> String {
    name.trim().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use endstop_core::NanoUsd;

    fn usd(price: Option<NanoUsd>) -> f64 {
        price.map_or(-1.0, NanoUsd::to_usd)
    }

    #[test]
    fn catalogue_finds_model_by_any_name() {
        let haiku = lookup("anthropic", "claude-3-haiku-20240307").unwrap();
        assert_eq!(haiku.price.input, NanoUsd(250_000_000));
        assert_eq!(usd(haiku.price.cached_input), 0.03);
        assert_eq!(haiku.context_window, Some(200_000));
        assert!(haiku.exact);
        assert_eq!(
            haiku.source,
            PriceSource::Catalogue { provider: "anthropic", model: "claude-3-haiku" }
        );
        assert_eq!(lookup(" Anthropic", "Claude-3-Haiku"), lookup("anthropic", "claude-3-haiku"));
        assert_eq!(lookup("xai", "grok-4.3"), lookup("x-ai", "grok-4.3"));
        assert!(lookup("xai", "grok-4.3").is_some());
        // A gateway that serves other providers' models at their prices.
        assert_eq!(
            lookup("azure", "deepseek-chat").unwrap().price,
            lookup("deepseek", "deepseek-chat").unwrap().price
        );
    }

    #[test]
    fn unknown_model_has_no_price() {
        for (provider, model) in [
            ("anthropic", "gpt-4o"),
            ("", ""),
            ("openai", ""),
            ("ollama", "llama3"),
            ("my-openai-proxy", "gpt-4o"),
            ("openai\topenai", "gpt-4o"),
            ("openai", "text-embedding-3-small"),
            ("perplexity", "sonar"),
        ] {
            assert_eq!(lookup(provider, model), None, "{provider}/{model}");
        }
    }

    #[test]
    fn long_prompts_have_their_price() {
        let pro = lookup("google", "gemini-2.5-pro").unwrap();
        assert_eq!(pro.price.input, NanoUsd(1_250_000_000));
        assert_eq!(pro.price.for_prompt(200_001).input, NanoUsd(2_500_000_000));
        assert!(pro.exact);
    }

    #[test]
    fn price_that_varies_by_hour_is_inexact() {
        assert!(!lookup("deepseek", "deepseek-chat").unwrap().exact);
    }

    #[test]
    fn service_tiers_are_of_own_provider_only() {
        let flex = |provider| lookup(provider, "gpt-5.4").unwrap().tier("flex");
        let price = flex("openai").unwrap();
        assert_eq!(price.input, NanoUsd(1_250_000_000));
        assert_eq!(price.for_prompt(272_001).input, NanoUsd(2_500_000_000));
        assert_eq!(flex("azure"), None);
        let own = PriceBook::new().with("openai/gpt-5.4", Price::default());
        assert_eq!(own.lookup("openai", "gpt-5.4").unwrap().tier("flex"), None);
    }

    #[test]
    fn user_price_overrides_catalogue() {
        let own = parse_price("in=1,out=2").unwrap();
        let book = PriceBook::new()
            .with("Anthropic/claude-3-haiku", own)
            .with("openrouter/acme/model", own);
        let haiku = book.lookup("anthropic", "claude-3-haiku").unwrap();
        assert_eq!((haiku.price, haiku.source), (own, PriceSource::User));
        assert_eq!(haiku.context_window, Some(200_000));
        let acme = book.lookup("openrouter", "acme/model").unwrap();
        assert_eq!((acme.price, acme.context_window), (own, None));
        assert_eq!(book.lookup("anthropic", "claude-3-opus"), lookup("anthropic", "claude-3-opus"));
    }

    #[test]
    fn own_price_has_any_name_of_its_provider() {
        let price = parse_price("in=1,out=2").unwrap();
        let book = PriceBook::new().with("google/g-new", price).with("gemini/g-newer", price);
        for provider in ["gemini", "google", "vertex"] {
            for model in ["g-new", "G-newer"] {
                assert_eq!(book.own(provider, model), Some(price), "{provider}/{model}");
            }
        }
        assert_eq!(book.own("openai", "g-new"), None);
    }

    #[test]
    fn model_without_price_has_the_bound() {
        let bound = parse_price("in=30,out=150").unwrap();
        let book = PriceBook::new().with_unknown(bound);
        let unknown = book.lookup("openai", "gpt-of-tomorrow").unwrap();
        assert_eq!(
            (unknown.price, unknown.exact, unknown.source),
            (bound, false, PriceSource::User)
        );
        assert_eq!(
            book.lookup("anthropic", "claude-3-haiku"),
            lookup("anthropic", "claude-3-haiku")
        );
        assert_eq!(catalogue_date().len(), "2026-11-21".len());
    }

    #[test]
    fn undashed_date_gets_dashes() {
        assert_eq!(dashed_date("gpt-5.2-20251211"), "gpt-5.2-2025-12-11");
        assert_eq!(dashed_date("model-20251211:free"), "model-2025-12-11:free");
        for plain in ["model-20251301", "model-202512110", "20251211", "m-é0251211", "model"] {
            assert_eq!(dashed_date(plain), plain);
        }
    }
}
