//! Looks up the price of a recorded model call in the catalogue of the model's maker.
//!
//! ```
//! use endstop_trajectory::Prices;
//! let prices = Prices::new();
//! assert!(prices.of("claude-opus-4-5-20251101", None).is_some());
//! assert!(prices.of("openai/gpt-5", None).is_some());
//! assert!(prices.of("unheard-of", None).is_none());
//! ```
//!
//! Recordings seldom contain the provider. If it is missing, the price is that of the model's
//! maker, who is identified by the prefix of the model's name; the maker's list must contain
//! exactly that model.

use endstop_core::Price;
use endstop_wire::catalog::prices::PriceBook;
use std::cell::RefCell;
use std::collections::HashMap;

/// The makers of models, by the prefix of the model's name.
const MAKERS: &[(&str, &str)] = &[
    ("claude", "anthropic"),
    ("gpt-", "openai"),
    ("chatgpt-", "openai"),
    ("codex-", "openai"),
    ("o1", "openai"),
    ("o3", "openai"),
    ("o4", "openai"),
    ("gemini", "google"),
    ("grok", "x-ai"),
    ("deepseek", "deepseek"),
    ("mistral", "mistral"),
    ("codestral", "mistral"),
    ("devstral", "mistral"),
    ("magistral", "mistral"),
    ("kimi", "moonshotai"),
    ("glm", "zai"),
    ("minimax", "minimax"),
    ("command", "cohere"),
    ("us.anthropic.", "aws"),
    ("eu.anthropic.", "aws"),
    ("apac.anthropic.", "aws"),
    ("global.anthropic.", "aws"),
    ("anthropic.", "aws"),
];

/// Maximum number of cached names, because the names come from the files.
const REMEMBERED: usize = 1000;

/// Prices of models by their recorded names.
#[derive(Clone, Debug, Default)]
pub struct Prices {
    book: PriceBook,
    /// Cached prices by provider and model, because the catalogue is long and is consulted for each
    /// step.
    known: RefCell<HashMap<String, HashMap<String, Option<Listed>>>>,
}

/// A price from the catalogue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Listed {
    /// The price.
    pub price: Price,
    /// `true` if the price depends on facts that are not recorded; this is then the highest one.
    pub at_most: bool,
}

impl Prices {
    /// Creates a price list from the catalogue.
    pub fn new() -> Prices {
        Prices::default()
    }

    /// Returns the price of a model. `provider` is the name in the recording.
    pub fn of(&self, model: &str, provider: Option<&str>) -> Option<Listed> {
        let by = provider.unwrap_or_default();
        if let Some(found) = self.known.borrow().get(by).and_then(|models| models.get(model)) {
            return *found;
        }
        let found = self.find(model, provider);
        let mut known = self.known.borrow_mut();
        if known.values().map(HashMap::len).sum::<usize>() < REMEMBERED {
            known.entry(by.to_owned()).or_default().insert(model.to_owned(), found);
        }
        found
    }

    fn find(&self, model: &str, provider: Option<&str>) -> Option<Listed> {
        // The provider that served the model sets the price, so it is tried first.
        let served = provider.and_then(|provider| self.book.lookup(provider, model));
        let named = || {
            let (provider, model) = model.split_once('/')?;
            self.book.lookup(provider, model)
        };
        // The maker's list price is a fallback, because a reseller may charge more or less.
        let made = || {
            let lower = model.to_lowercase();
            let (_, maker) = MAKERS.iter().find(|(begins, _)| lower.starts_with(begins))?;
            // Claude Code appends `[1m]` to a model's name for the size of its context window.
            self.book.lookup(maker, lower.split('[').next().unwrap_or(&lower))
        };
        let found = served.or_else(named).or_else(made)?;
        Some(Listed { price: found.price, at_most: !found.exact })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_price_is_providers_or_makers() {
        let prices = Prices::new();
        let input = |model, provider| prices.of(model, provider).map(|it| it.price.input.to_usd());
        assert_eq!(input("claude-opus-4-5-20251101", None), Some(5.0));
        assert_eq!(input("claude-opus-4-6[1m]", None), Some(5.0));
        assert_eq!(input("anthropic/claude-opus-4-5", None), Some(5.0));
        assert_eq!(input("gpt-5-codex", Some("openai")), Some(1.25));
        assert_eq!(input("gpt-5-codex", Some("a-proxy")), Some(1.25), "its maker's");
        assert_eq!(input("claude-fx-1", None), None, "a family prefix is not a model");
        assert_eq!(input("<synthetic>", None), None);
        assert!(prices.of("deepseek-chat", None).unwrap().at_most, "its price depends on the hour");
        assert!(!prices.of("claude-sonnet-4-5-20250929", None).unwrap().at_most);
        assert!(!prices.of("claude-opus-4-5", None).unwrap().at_most);
    }
}
