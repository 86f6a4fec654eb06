//! The run's ledger: what was spent, what is reserved, and the cap that what is left allows.

use crate::usage::{NanoUsd, Price, Usage};

/// The least output cap with which a call makes sense.
pub(crate) const LEAST_OUTPUT: u64 = 256;

/// Which ceiling lowered a cap or refused a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ceiling {
    Usd,
    Tokens,
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) price: Option<Price>,
    pub(crate) max_usd: Option<NanoUsd>,
    pub(crate) max_tokens: Option<u64>,
    pub(crate) spent: NanoUsd,
    pub(crate) usage: Usage,
    pub(crate) tokens: u64,
    pub(crate) overrun: NanoUsd,
    /// A call was made whose cost nobody knows.
    pub(crate) cost_unknown: bool,
}

/// A call that fits under the ceilings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quote {
    /// The cap to send.
    pub(crate) output_cap: Option<u64>,
    /// The ceiling that lowered it.
    pub(crate) lowered_by: Option<Ceiling>,
    /// The worst cost of the call.
    pub(crate) worst: NanoUsd,
    /// The least that must be left for the call to be made.
    pub(crate) least: NanoUsd,
}

impl Ledger {
    pub(crate) fn usd_exceeded(&self) -> bool {
        self.max_usd.is_some_and(|max| self.spent >= max)
    }

    pub(crate) fn tokens_exceeded(&self) -> bool {
        self.max_tokens.is_some_and(|max| self.tokens >= max)
    }

    /// What a call of at most `prompt` tokens may generate and cost.
    ///
    /// `Err`: not even the least cap fits under that ceiling.
    pub(crate) fn quote(
        &self,
        prompt: u64,
        own_cap: Option<u64>,
        thinking_budget: u64,
    ) -> Result<Quote, Ceiling> {
        let floor = LEAST_OUTPUT.max(thinking_budget).min(own_cap.unwrap_or(u64::MAX));
        let mut cap = own_cap;
        let mut lowered_by = None;
        let mut lower = |to: u64, by: Ceiling| {
            if cap.is_none_or(|cap| to < cap) {
                cap = Some(to);
                lowered_by = Some(by);
            }
        };
        if let Some(max) = self.max_tokens {
            let left = max.saturating_sub(self.tokens).saturating_sub(prompt);
            if left < floor {
                return Err(Ceiling::Tokens);
            }
            lower(left, Ceiling::Tokens);
        }
        if let (Some(max), Some(price)) = (self.max_usd, self.price) {
            let left = max.saturating_sub(self.spent).saturating_sub(price.worst(prompt, 0));
            if price.output.0 > 0 {
                // One token less, so that the rounding up of the two parts stays below.
                let affordable = u128::from(left.0) * 1_000_000 / u128::from(price.output.0);
                let affordable = u64::try_from(affordable).unwrap_or(u64::MAX).saturating_sub(1);
                if affordable < floor {
                    return Err(Ceiling::Usd);
                }
                lower(affordable, Ceiling::Usd);
            } else if price.worst(prompt, 0) > max.saturating_sub(self.spent) {
                return Err(Ceiling::Usd);
            }
        }
        let price = self.price.unwrap_or_default();
        Ok(Quote {
            output_cap: cap,
            lowered_by,
            worst: price.worst(prompt, cap.unwrap_or(0)),
            // With the token that is taken off what can be afforded: granted this, the call fits.
            least: price.worst(prompt, 0) + price.worst(0, floor.saturating_add(1)),
        })
    }

    /// Books an attempt; `cost` is what the provider says, else the usage is priced.
    pub(crate) fn settle(
        &mut self,
        usage: &Usage,
        cost: Option<NanoUsd>,
        quote: Option<NanoUsd>,
    ) -> NanoUsd {
        let cost = match (cost, self.price) {
            (Some(cost), _) => cost,
            (None, Some(price)) => price.cost(usage),
            (None, None) => {
                self.cost_unknown |= usage.total_tokens() > 0;
                NanoUsd::ZERO
            }
        };
        self.usage.add(usage);
        self.tokens = self.tokens.saturating_add(usage.total_tokens());
        self.spent += cost;
        if let Some(quote) = quote {
            self.overrun += cost.saturating_sub(quote);
        }
        cost
    }

    /// Books what something else spent on the run's behalf.
    pub(crate) fn book(&mut self, usage: &Usage, cost: NanoUsd, cost_unknown: bool) {
        self.cost_unknown |= cost_unknown;
        self.usage.add(usage);
        self.tokens = self.tokens.saturating_add(usage.total_tokens());
        self.spent += cost;
    }
}
