//! The run's ledger: what was spent, what is reserved, and the cap that what is left allows.

use crate::termination::Termination;
use crate::usage::{NanoUsd, Price, Unreported, Usage};

/// The least output cap with which a call makes sense.
pub(crate) const LEAST_OUTPUT: u64 = 256;

/// An amount of a budget: money, and tokens if they are bounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) usd: NanoUsd,
    pub(crate) tokens: Option<u64>,
}

/// Which ceiling lowered a cap or refused a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ceiling {
    Usd,
    Tokens,
    SharedUsd,
    SharedTokens,
}

impl Ceiling {
    /// The ending of a run that this ceiling ends.
    pub(crate) const fn termination(self) -> Termination {
        match self {
            Ceiling::Usd | Ceiling::SharedUsd => Termination::ErrorMaxBudgetUsd,
            Ceiling::Tokens | Ceiling::SharedTokens => Termination::ErrorMaxTokens,
        }
    }

    /// The name of the limit, as `decided_by` has it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Ceiling::Usd => "max_budget_usd",
            Ceiling::Tokens => "max_tokens",
            Ceiling::SharedUsd | Ceiling::SharedTokens => "shared_budget",
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) price: Option<Price>,
    pub(crate) max_usd: Option<NanoUsd>,
    pub(crate) max_tokens: Option<u64>,
    pub(crate) spent: NanoUsd,
    pub(crate) usage: Usage,
    pub(crate) tokens: u64,
    /// What may have been used beyond that by attempts that the provider did not count.
    pub(crate) unreported: Unreported,
    /// Whether that counts against the ceilings: only if calls are reserved before they are made.
    pub(crate) reserves: bool,
    pub(crate) overrun: NanoUsd,
    /// A call was made whose cost is not known.
    pub(crate) cost_unknown: bool,
}

/// What a call asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    /// An upper bound on its prompt.
    pub(crate) prompt: u64,
    /// The caller's own output cap; a ceiling may lower it.
    pub(crate) cap: u64,
    /// The least output cap that makes sense because of a thinking budget.
    pub(crate) thinking_budget: u64,
}

impl Ask {
    /// The least output with which the call makes sense.
    fn floor(self) -> u64 {
        LEAST_OUTPUT.max(self.thinking_budget).min(self.cap)
    }
}

/// A call that fits under the ceilings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quote {
    /// The cap to send.
    pub(crate) output_cap: u64,
    /// The ceiling that lowered it below the caller's own.
    pub(crate) lowered_by: Option<Ceiling>,
    /// The most that the call can cost and use.
    pub(crate) worst: Granted,
    /// The least that must be left for the call to be made.
    pub(crate) least: Granted,
}

/// A call that does not fit under a ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Short {
    /// The ceiling.
    pub(crate) ceiling: Ceiling,
    /// An upper bound on the prompt of the call.
    pub(crate) prompt: u64,
    /// The least output that the call needs.
    pub(crate) output: u64,
    /// What is left below the ceiling, in its own unit.
    pub(crate) left: Granted,
}

impl Ledger {
    /// What counts against the ceiling on cost: what is known, and what may have been billed beyond
    /// that.
    pub(crate) fn committed(&self) -> NanoUsd {
        match self.unreported.cost.filter(|_| self.reserves) {
            Some(more) => self.spent + more,
            None => self.spent,
        }
    }

    /// What counts against the ceiling on tokens.
    pub(crate) fn committed_tokens(&self) -> u64 {
        match self.unreported.tokens.filter(|_| self.reserves) {
            Some(more) => self.tokens.saturating_add(more),
            None => self.tokens,
        }
    }

    /// The most that the run can have cost; `None` if no bound is known.
    pub(crate) fn cost_upper(&self) -> Option<NanoUsd> {
        self.unreported.cost.map(|more| self.spent + more)
    }

    /// The most that the run can have used; `None` if no bound is known.
    pub(crate) fn tokens_upper(&self) -> Option<u64> {
        self.unreported.tokens.map(|more| self.tokens.saturating_add(more))
    }

    /// The cost so far, for display; `None` if no price is known, so that zero is never a claim.
    pub(crate) fn known_cost(&self) -> Option<NanoUsd> {
        let priced = self.price.is_some() && !self.cost_unknown;
        (priced || self.spent > NanoUsd::ZERO).then_some(self.spent)
    }

    pub(crate) fn usd_exceeded(&self) -> bool {
        self.max_usd.is_some_and(|max| self.committed() >= max)
    }

    pub(crate) fn tokens_exceeded(&self) -> bool {
        self.max_tokens.is_some_and(|max| self.committed_tokens() >= max)
    }

    /// Whether a ceiling bounds what a call may generate, so that the call needs a cap.
    pub(crate) fn bounds_output(&self) -> bool {
        let priced = self.price.is_some_and(|price| price.output > NanoUsd::ZERO);
        self.max_tokens.is_some() || (self.max_usd.is_some() && priced)
    }

    /// Returns what a call may generate and cost under the run's own ceilings and, if it has been
    /// asked, what a shared budget granted. The cap is the caller's own whenever that fits.
    ///
    /// `Err`: not even the least cap fits under a ceiling.
    pub(crate) fn quote(&self, ask: Ask, granted: Option<Granted>) -> Result<Quote, Short> {
        let left_usd = self.max_usd.map(|max| max.saturating_sub(self.committed()));
        let left_tokens = self.max_tokens.map(|max| max.saturating_sub(self.committed_tokens()));
        let granted_usd = granted.map(|granted| granted.usd);
        let granted_tokens = granted.and_then(|granted| granted.tokens);
        let floor = ask.floor();
        let mut cap = ask.cap;
        let mut lowered_by = None;
        let mut lower = |affordable: Option<u64>, ceiling: Ceiling, left: Granted| {
            let Some(affordable) = affordable.filter(|most| *most >= floor) else {
                return Err(Short { ceiling, prompt: ask.prompt, output: floor, left });
            };
            if affordable < cap {
                (cap, lowered_by) = (affordable, Some(ceiling));
            }
            Ok(())
        };
        let price = self.price.unwrap_or_default();
        // Without a price a ceiling on cost is kept by what the provider says that it billed.
        let of_usd = |left: Option<NanoUsd>| left.filter(|_| self.price.is_some());
        let own = (of_usd(left_usd), left_tokens, Ceiling::Usd, Ceiling::Tokens);
        let shared =
            (of_usd(granted_usd), granted_tokens, Ceiling::SharedUsd, Ceiling::SharedTokens);
        for (usd, tokens, by_usd, by_tokens) in [own, shared] {
            if let Some(usd) = usd {
                let left = Granted { usd, tokens: None };
                lower(price.affordable(ask.prompt, usd), by_usd, left)?;
            }
            if let Some(tokens) = tokens {
                let left = Granted { usd: NanoUsd::ZERO, tokens: Some(tokens) };
                lower(tokens.checked_sub(ask.prompt), by_tokens, left)?;
            }
        }
        let of = |output: u64| Granted {
            usd: price.worst(ask.prompt, output),
            tokens: Some(ask.prompt.saturating_add(output)),
        };
        Ok(Quote { output_cap: cap, lowered_by, worst: of(cap), least: of(floor) })
    }

    /// Books an attempt; `cost` is what the provider says, else the usage is priced. `unreported` is
    /// what it may have used beyond that.
    pub(crate) fn settle(
        &mut self,
        usage: &Usage,
        cost: Option<NanoUsd>,
        unreported: Unreported,
        quote: Option<NanoUsd>,
    ) -> NanoUsd {
        let cost = match (cost, self.price) {
            (Some(cost), _) => cost,
            (None, Some(price)) => price.cost(usage),
            (None, None) => NanoUsd::ZERO,
        };
        self.usage.add(usage);
        self.tokens = self.tokens.saturating_add(usage.total_tokens());
        self.spent += cost;
        self.cost_unknown |= unreported.cost != Some(NanoUsd::ZERO);
        self.unreported += unreported;
        if let Some(quote) = quote {
            self.overrun += cost.saturating_sub(quote);
        }
        cost
    }

    /// Books what something else spent on the run's behalf.
    pub(crate) fn book(
        &mut self,
        usage: &Usage,
        cost: NanoUsd,
        cost_unknown: bool,
        unreported: Unreported,
    ) {
        self.cost_unknown |= cost_unknown;
        self.usage.add(usage);
        self.tokens = self.tokens.saturating_add(usage.total_tokens());
        self.spent += cost;
        self.unreported += unreported;
    }
}
