//! What a token of a recorded run costs, by the name of its model alone.
//!
//! ```ignore
//! let test = Backtest::new(&candidates)?.priced(prices::per_million);
//! ```

use endstop::NanoUsd;
use endstop::wire::prices::{ModelInfo, lookup};
use std::cell::RefCell;
use std::collections::HashMap;

/// Dollars for a million tokens of input, cached input and output.
type PerMillion = Option<(f64, f64, f64)>;

thread_local! {
    /// The table is long, and a step asks each time.
    static KNOWN: RefCell<HashMap<String, PerMillion>> = RefCell::default();
}

/// Who makes the models whose names begin so; recordings mostly leave their provider out.
const MAKERS: [(&str, &str); 12] = [
    ("gpt-", "openai"),
    ("chatgpt-", "openai"),
    ("o1", "openai"),
    ("o3", "openai"),
    ("o4", "openai"),
    ("claude-", "anthropic"),
    ("gemini-", "google"),
    ("mistral-", "mistral"),
    ("codestral-", "mistral"),
    ("deepseek-", "deepseek"),
    ("grok-", "x-ai"),
    ("command-", "cohere"),
];

/// The list price of a model, where its name says which it is: `openai/gpt-4o`, `gpt-4o`.
pub(super) fn per_million(model: &str) -> PerMillion {
    KNOWN.with_borrow_mut(|known| {
        if let Some(price) = known.get(model) {
            return *price;
        }
        let price = find(model).map(|info| {
            let price = info.price;
            let cached = price.cached_input.unwrap_or(price.input);
            (price.input.to_usd(), NanoUsd::to_usd(cached), price.output.to_usd())
        });
        // As many names as a file likes would be as much memory.
        if known.len() < 1000 {
            known.insert(model.to_owned(), price);
        }
        price
    })
}

fn find(model: &str) -> Option<ModelInfo> {
    if let Some((provider, name)) = model.split_once('/')
        && let Some(info) = lookup(provider, name)
    {
        return Some(info);
    }
    let name = model.rsplit('/').next()?.to_lowercase();
    let (_, maker) = MAKERS.iter().find(|(begins, _)| name.starts_with(begins))?;
    lookup(maker, &name)
}

#[cfg(test)]
mod tests {
    use super::per_million;

    #[test]
    fn a_model_has_the_price_of_its_maker() {
        let (input, cached, output) = per_million("gpt-4o").unwrap();
        assert!(0.0 < cached && cached <= input && input < output);
        assert_eq!(per_million("openai/gpt-4o"), per_million("gpt-4o"));
        assert!(per_million("anthropic/claude-sonnet-4-5").is_some());
        assert_eq!(per_million("a-model-nobody-knows"), None);
        assert_eq!(per_million(""), None);
    }
}
