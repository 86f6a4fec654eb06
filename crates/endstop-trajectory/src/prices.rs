//! What a recorded model call costs: by the catalogue of the model's maker, or by nobody.
//!
//! ```
//! use endstop_trajectory::Prices;
//! let prices = Prices::new();
//! assert!(prices.of("claude-opus-4-5-20251101", None).is_some());
//! assert!(prices.of("openai/gpt-5", None).is_some());
//! assert!(prices.of("unheard-of", None).is_none());
//! ```
//!
//! A recording seldom says who served a model. Where it does not, the price is its maker's, found by the
//! family that the name begins with, and only where the maker's list has that very model.

use crate::model::{Step, Trajectory};
use crate::spent::Spent;
use endstop_core::Price;
use endstop_wire::catalog::prices::PriceBook;
use std::cell::RefCell;
use std::collections::HashMap;

/// Whose models have names that begin so.
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

/// Names whose prices are remembered: as many as a file likes would be as much memory.
const REMEMBERED: usize = 1000;

/// Prices of models by their recorded names.
#[derive(Clone, Debug, Default)]
pub struct Prices {
    book: PriceBook,
    /// By provider and model: the catalogue is long, and each step asks.
    known: RefCell<HashMap<String, HashMap<String, Option<Listed>>>>,
}

/// A price.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Listed {
    /// What it is.
    pub price: Price,
    /// It depends on more than is recorded, and this is the highest.
    pub at_most: bool,
}

impl Prices {
    /// The catalogue alone.
    pub fn new() -> Prices {
        Prices::default()
    }

    /// The price of a model; `provider` as the recording names it.
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

    /// What a turn cost, in US dollars: as recorded, else by the list; `None`: nobody knows.
    pub fn usd(&self, step: &Step<'_>, run: &Trajectory<'_>) -> Option<f64> {
        step.cost_usd.or_else(|| {
            step.tokens()?;
            let spent = Spent::of_step(step, run, self);
            (spent.unpriced_tokens == 0).then(|| spent.usd.to_usd())
        })
    }

    fn find(&self, model: &str, provider: Option<&str>) -> Option<Listed> {
        let served = provider.and_then(|provider| self.book.lookup(provider, model));
        let named = || {
            let (provider, model) = model.split_once('/')?;
            self.book.lookup(provider, model)
        };
        let made = || {
            let lower = model.to_lowercase();
            let (_, maker) = MAKERS.iter().find(|(begins, _)| lower.starts_with(begins))?;
            // `[1m]` says how much a session of Claude Code may hold, not which model it is.
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
    fn a_model_is_priced_by_whoever_served_or_made_it() {
        let prices = Prices::new();
        let input = |model, provider| prices.of(model, provider).map(|it| it.price.input.to_usd());
        assert_eq!(input("claude-opus-4-5-20251101", None), Some(5.0));
        assert_eq!(input("claude-opus-4-6[1m]", None), Some(5.0));
        assert_eq!(input("anthropic/claude-opus-4-5", None), Some(5.0));
        assert_eq!(input("gpt-5-codex", Some("openai")), Some(1.25));
        assert_eq!(input("gpt-5-codex", Some("a-proxy")), Some(1.25), "its maker's");
        assert_eq!(input("claude-fx-1", None), None, "a name of the family is no model");
        assert_eq!(input("<synthetic>", None), None);
        assert!(prices.of("claude-sonnet-4-5-20250929", None).unwrap().at_most);
        assert!(!prices.of("claude-opus-4-5", None).unwrap().at_most);
    }
}
