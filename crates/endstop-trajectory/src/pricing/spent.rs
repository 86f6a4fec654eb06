//! Usage of turns, and its cost.
//!
//! ```
//! use endstop_trajectory::Spent;
//! let turns = [Spent { turns: 1, input_tokens: 900, ..Spent::default() }; 2];
//! let all: Spent = turns.iter().sum();
//! assert_eq!((all.turns, all.tokens()), (2, 1800));
//! ```

use super::list::Prices;
use crate::model::{ModelCall, Step, Trajectory, Usage};
use endstop_core::{NanoUsd, Price};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::iter::Sum;
use std::ops::AddAssign;

/// The usage and cost of turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// Number of turns.
    pub turns: u64,
    /// Input tokens, including cached ones.
    pub input_tokens: u64,
    /// The input tokens that were read from a cache.
    pub cached_tokens: u64,
    /// Generated tokens.
    pub output_tokens: u64,
    /// US dollars of the part that has a recorded cost or a price.
    #[serde(serialize_with = "dollars", deserialize_with = "from_dollars")]
    pub usd: NanoUsd,
    /// `true` if a price in it is the highest of several possible ones.
    pub at_most: bool,
    /// Tokens without a known price.
    pub unpriced_tokens: u64,
    /// Number of turns without usage, with only half of it, or with a usage of zero.
    pub silent_turns: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn dollars<S: Serializer>(usd: &NanoUsd, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(usd.to_usd())
}

/// Reads dollars. The amount is exact up to two million dollars, because a float has 53 bits.
fn from_dollars<'de, D: Deserializer<'de>>(deserializer: D) -> Result<NanoUsd, D::Error> {
    f64::deserialize(deserializer).map(NanoUsd::from_usd)
}

impl Spent {
    /// Returns input plus generated tokens.
    pub fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// Computes the usage of one turn.
    pub(crate) fn of_step(step: &Step<'_>, run: &Trajectory<'_>, prices: &Prices) -> Spent {
        let unknown = Usage::default();
        let usage = step.usage.as_deref().unwrap_or(&unknown);
        let mut spent = Spent::of_usage(usage, model_of(step, run), provider_of(run), prices);
        spent.turns = 1;
        // A usage with only one of the two counts is incomplete, and no model call uses zero
        // tokens, so both count as missing.
        let silent = step.tokens().is_none_or(|tokens| tokens == 0) && step.cost_usd.is_none();
        spent.silent_turns = u64::from(silent);
        if let Some(usd) = step.cost_usd {
            spent.recorded(usd);
        }
        spent
    }

    /// Computes the usage of a model call that is not a turn.
    pub(crate) fn of_call(call: &ModelCall, run: &Trajectory<'_>, prices: &Prices) -> Spent {
        let model = call.model.as_deref().or(run.model.as_deref());
        let mut spent = Spent::of_usage(&call.usage, model, provider_of(run), prices);
        if let Some(usd) = call.cost_usd {
            spent.recorded(usd);
        }
        spent
    }

    pub(crate) fn of_usage(
        usage: &Usage,
        model: Option<&str>,
        provider: Option<&str>,
        prices: &Prices,
    ) -> Spent {
        let mut spent = Spent {
            input_tokens: usage.prompt_tokens.unwrap_or(0),
            cached_tokens: usage.cached_tokens.unwrap_or(0),
            output_tokens: usage.completion_tokens.unwrap_or(0),
            ..Spent::default()
        };
        match model.and_then(|model| prices.of(model, provider)) {
            Some(listed) => {
                spent.usd = listed.price.cost(&endstop_core::Usage {
                    input_tokens: usage.prompt_tokens,
                    output_tokens: usage.completion_tokens,
                    cached_input_tokens: usage.cached_tokens,
                    cache_write_tokens: usage.cache_write_tokens,
                    cache_write_1h_tokens: usage.cache_write_1h_tokens(),
                    ..endstop_core::Usage::default()
                });
                spent.at_most = listed.at_most && spent.usd.0 > 0;
            }
            None => spent.unpriced_tokens = spent.tokens(),
        }
        spent
    }

    /// Computes the usage of several turns from their sum, of which the turns are not known.
    pub(crate) fn of_total(
        usage: &Usage,
        model: Option<&str>,
        provider: Option<&str>,
        prices: &Prices,
    ) -> Spent {
        let mut spent = Spent::of_usage(usage, model, provider, prices);
        let price = model.and_then(|model| prices.of(model, provider)).map(|listed| listed.price);
        // The price of a long prompt applies to a turn, but the sum is that of several prompts.
        let long = |price: Price| price.for_prompt(spent.input_tokens) != price.for_prompt(0);
        spent.at_most |= price.is_some_and(long);
        spent
    }

    /// Sets the recorded cost, which takes precedence over any price.
    pub(crate) fn recorded(&mut self, usd: f64) {
        self.usd = NanoUsd::from_usd(usd);
        self.at_most = false;
        self.unpriced_tokens = 0;
    }
}

impl Prices {
    /// Returns the cost of a turn in US dollars: as recorded, otherwise from the price list; `None`
    /// if neither is known.
    pub fn usd(&self, step: &Step<'_>, run: &Trajectory<'_>) -> Option<f64> {
        // At least 0, so that the sum of the turns is the cost that `Spent` counts.
        step.cost_usd.map(|usd| usd.max(0.0)).or_else(|| {
            step.tokens()?;
            let spent = Spent::of_step(step, run, self);
            (spent.unpriced_tokens == 0).then(|| spent.usd.to_usd())
        })
    }
}

/// Returns the model of a turn.
pub(crate) fn model_of<'s>(step: &'s Step<'_>, run: &'s Trajectory<'_>) -> Option<&'s str> {
    step.model.as_deref().or(run.model.as_deref())
}

/// Returns the provider of the run's models, if it is recorded.
pub(crate) fn provider_of<'r>(run: &'r Trajectory<'_>) -> Option<&'r str> {
    run.extra.get("model_provider").and_then(serde_json::Value::as_str)
}

impl AddAssign for Spent {
    fn add_assign(&mut self, other: Spent) {
        // Saturating, because the counts come from files and may be arbitrarily large.
        self.turns = self.turns.saturating_add(other.turns);
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(other.cached_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.usd += other.usd;
        self.at_most |= other.at_most;
        self.unpriced_tokens = self.unpriced_tokens.saturating_add(other.unpriced_tokens);
        self.silent_turns = self.silent_turns.saturating_add(other.silent_turns);
    }
}

impl<'s> Sum<&'s Spent> for Spent {
    fn sum<I: Iterator<Item = &'s Spent>>(all: I) -> Spent {
        all.fold(Spent::default(), |mut sum, one| {
            sum += *one;
            sum
        })
    }
}
