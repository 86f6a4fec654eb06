//! The ledger of a run: spent and reserved amounts, and the output cap that the remaining budget
//! allows.
//!
//! Ceilings hold because every call is *quoted* before it is made: its worst case is computed from
//! an upper bound on the prompt and its output cap, and a call whose worst case does not fit gets a
//! lower cap or is refused. A call that the provider counted is booked at its real cost; a call
//! that was aborted counts with its full reservation.

use crate::kernel::outcome::decided_by::{Decision, Layer};
use crate::limits::{Limits, TokensCounted};
use crate::price::Price;
use crate::price::cache_use::{CacheUse, NanoUsdChange};
use crate::termination::Termination;
use crate::usage::{NanoUsd, Unreported, Usage};

/// The smallest useful output cap, in tokens. Less would truncate almost every answer or tool call.
pub(super) const LEAST_OUTPUT: u64 = 256;

/// An amount of a budget: money, and tokens if those are limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) usd: NanoUsd,
    pub(crate) tokens: Option<u64>,
}

/// The ceiling that lowered a cap or refused a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ceiling {
    Usd,
    Tokens,
    SharedUsd,
    SharedTokens,
}

impl Ceiling {
    /// Returns the termination of a run that this ceiling ends.
    pub(crate) const fn termination(self) -> Termination {
        match self {
            Ceiling::Usd | Ceiling::SharedUsd => Termination::ErrorMaxBudgetUsd,
            Ceiling::Tokens | Ceiling::SharedTokens => Termination::ErrorMaxTokens,
        }
    }

    /// The name of the limit as `decided_by` reports it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Ceiling::Usd => "max_budget_usd",
            Ceiling::Tokens => "max_tokens",
            Ceiling::SharedUsd | Ceiling::SharedTokens => "shared_budget",
        }
    }

    /// Returns the decision to end a run because of this ceiling.
    pub(crate) fn decision(self) -> Decision {
        Decision::of(Layer::Limit, self.name())
    }
}

/// The amounts of one run, and its ceilings.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) price: Option<Price>,
    pub(crate) max_usd: Option<NanoUsd>,
    pub(crate) max_tokens: Option<u64>,
    /// The tokens that count against `max_tokens`.
    pub(crate) counts: TokensCounted,
    /// Known cost: reported, priced or estimated.
    pub(crate) spent: NanoUsd,
    pub(crate) usage: Usage,
    /// Usage of the run's own calls, which alone have the run's price.
    pub(crate) own_usage: Usage,
    pub(crate) tokens: u64,
    /// The part of `tokens` that was not read from a cache. A sum of the attempts, because one that
    /// reports more cached tokens than its prompt has must not hide those of another.
    pub(crate) uncached: u64,
    /// Upper bound on the usage of attempts that the provider did not count, on top of the known
    /// usage.
    pub(crate) unreported: Unreported,
    /// Sum of the bounded parts of `unreported`. It still counts against the ceilings if another part
    /// has no bound, which makes `unreported` itself unknown.
    pub(crate) bounded: (NanoUsd, u64),
    /// The part of the bounded tokens that can have been generated.
    bounded_output: u64,
    /// `true` if unreported usage counts against the ceilings. Only if calls are reserved before
    /// they are made: without reservations the bound is too coarse to end a run on it.
    pub(crate) reserves: bool,
    /// Amount billed beyond the worst case of the quotes.
    pub(crate) overrun: NanoUsd,
    /// `true` if the cost of some call is unknown.
    pub(crate) cost_unknown: bool,
    /// Savings by prompt caches in calls whose price depends on the size of their prompt, because
    /// they cannot be computed from the sum of the calls.
    saved_by_size: NanoUsdChange,
}

/// The request for a quote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    /// Upper bound on the prompt tokens.
    pub(crate) prompt: u64,
    /// The caller's output cap; a ceiling may lower it.
    pub(crate) cap: u64,
    /// Tokens that the model may spend on reasoning. A cap below this leaves no room for an answer.
    pub(crate) thinking_budget: u64,
}

impl Ask {
    /// The smallest output cap with which the call is useful.
    fn floor(self) -> u64 {
        LEAST_OUTPUT.max(self.thinking_budget).min(self.cap)
    }
}

/// A call after the quoted one, which must still fit under the run's own ceilings: its prompt is the
/// quoted prompt with the output, and more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaterCall {
    /// Upper bound on the tokens that its prompt has in addition.
    pub(crate) more: u64,
    /// The output cap of the later call, in tokens.
    pub(crate) output: u64,
}

impl LaterCall {
    /// The cost of both calls.
    fn with(self, price: &Price, prompt: u64, output: u64) -> NanoUsd {
        let then = prompt.saturating_add(output).saturating_add(self.more);
        price.worst(prompt, output) + price.worst(then, self.output)
    }

    /// The tokens that only the later call needs.
    fn tokens(self, prompt: u64, output: u64) -> u64 {
        let then = prompt.saturating_add(output).saturating_add(self.more);
        then.saturating_add(self.output)
    }

    /// The tokens that count of only the later call.
    fn counted_tokens(self, counts: TokensCounted, prompt: u64, output: u64) -> u64 {
        match counts {
            TokensCounted::All | TokensCounted::Uncached => self.tokens(prompt, output),
            TokensCounted::Output => self.output,
        }
    }

    /// Returns the largest output up to `most` of a call that leaves enough for this one. `None`: not
    /// even no output does.
    fn most_output(self, price: &Price, prompt: u64, most: u64, left: NanoUsd) -> Option<u64> {
        let fits = |output: u64| self.with(price, prompt, output) <= left;
        if !fits(0) {
            return None;
        }
        // The cost grows with the output, also over the thresholds of a price.
        let (mut low, mut high) = (0, most);
        while low < high {
            let middle = high - (high - low) / 2;
            if fits(middle) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        Some(low)
    }

    /// The same for tokens.
    fn most_tokens(self, counts: TokensCounted, prompt: u64, left: u64) -> Option<u64> {
        if counts == TokensCounted::Output {
            return left.checked_sub(self.output);
        }
        // The output is also a part of the later prompt, so each token of it counts twice.
        let both = self.tokens(prompt, 0).saturating_add(prompt);
        Some(left.checked_sub(both)? / 2)
    }
}

/// The terms of a call that fits under the ceilings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quote {
    /// The output cap to send.
    pub(crate) output_cap: u64,
    /// The ceiling that lowered the cap below the caller's.
    pub(crate) lowered_by: Option<Ceiling>,
    /// The most that the call can cost and use.
    pub(crate) worst: Granted,
    /// The least that must be left for the call to be useful.
    pub(crate) least: Granted,
}

/// The reason why a call does not fit under a ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Short {
    /// The ceiling.
    pub(crate) ceiling: Ceiling,
    /// Upper bound on the prompt tokens of the call.
    pub(crate) prompt: u64,
    /// The smallest output cap that the call needs.
    pub(crate) output: u64,
    /// The remaining amount below the ceiling, in the ceiling's unit.
    pub(crate) left: Granted,
    /// The part of it that a later call needs.
    pub(crate) kept: Granted,
}

impl Ledger {
    /// Creates the ledger of a run that has spent nothing.
    pub(crate) fn new(limits: &Limits, reserves: bool) -> Ledger {
        let mut ledger = Ledger { reserves, ..Ledger::default() };
        ledger.set_ceilings(limits);
        ledger
    }

    /// Sets the ceilings. What was spent so far counts against them.
    pub(crate) fn set_ceilings(&mut self, limits: &Limits) {
        self.max_usd = limits.max_budget_usd.map(NanoUsd::from_usd);
        self.max_tokens = limits.max_tokens;
        self.counts = limits.max_tokens_counts;
    }

    /// The use of prompt caches by the run's own calls. `price` is that of all of them.
    pub(crate) fn cache_use(&self, price: Option<Price>) -> Option<CacheUse> {
        let mut cache = CacheUse::of(&self.own_usage, price)?;
        if price.is_some_and(|price| !price.long_prompts.is_empty()) {
            cache.saved = Some(self.saved_by_size);
        }
        Some(cache)
    }

    /// The amount that counts against the cost ceiling: the known cost, plus what may have been
    /// billed without a report.
    pub(crate) fn committed(&self) -> NanoUsd {
        if self.reserves { self.spent + self.bounded.0 } else { self.spent }
    }

    /// The number of tokens that counts against the token ceiling.
    pub(crate) fn committed_tokens(&self) -> u64 {
        let known = self.counted_tokens();
        if self.reserves { known.saturating_add(self.bounded_tokens()) } else { known }
    }

    /// The number of tokens of all kinds that are used, or may have been used without a report.
    pub(crate) fn all_tokens(&self) -> u64 {
        if self.reserves { self.tokens.saturating_add(self.bounded.1) } else { self.tokens }
    }

    /// The known part of [`committed_tokens`](Ledger::committed_tokens).
    pub(super) fn counted_tokens(&self) -> u64 {
        match self.counts {
            TokensCounted::All => self.tokens,
            TokensCounted::Uncached => self.uncached,
            TokensCounted::Output => TokensCounted::Output.of(&self.usage),
        }
    }

    /// The tokens that may count, of attempts that the provider did not count.
    fn bounded_tokens(&self) -> u64 {
        match self.counts {
            TokensCounted::All | TokensCounted::Uncached => self.bounded.1,
            TokensCounted::Output => self.bounded_output,
        }
    }

    /// Describes the possible cost of attempts that the provider did not count, if there are any.
    pub(super) fn more_spent(&self) -> Option<String> {
        let spent = self.spent;
        let more = self.committed().saturating_sub(spent);
        (more > NanoUsd::ZERO)
            .then(|| format!("{spent} known, up to {more} more may have been billed"))
    }

    /// The same in tokens.
    pub(super) fn more_used(&self) -> Option<String> {
        let used = self.counted_tokens();
        let more = self.committed_tokens().saturating_sub(used);
        let which = self.counts.qualifier();
        let known = || format!("{used} {which}tokens known, up to {more} more may have been used");
        (more > 0).then(known)
    }

    /// Upper bound on the cost of the run; `None` if no bound is known.
    pub(crate) fn cost_upper(&self) -> Option<NanoUsd> {
        self.unreported.cost.map(|more| self.spent + more)
    }

    /// Upper bound on the tokens of the run; `None` if no bound is known.
    pub(crate) fn tokens_upper(&self) -> Option<u64> {
        self.unreported.tokens.map(|more| self.tokens.saturating_add(more))
    }

    /// The cost so far for display; `None` if no price is known, because a displayed zero would be
    /// a claim.
    pub(crate) fn known_cost(&self) -> Option<NanoUsd> {
        let priced = self.price.is_some() && !self.cost_unknown;
        (priced || self.spent > NanoUsd::ZERO).then_some(self.spent)
    }

    pub(super) fn usd_exceeded(&self) -> bool {
        self.max_usd.is_some_and(|max| self.committed() >= max)
    }

    pub(super) fn tokens_exceeded(&self) -> bool {
        self.max_tokens.is_some_and(|max| self.committed_tokens() >= max)
    }

    /// `true` if a ceiling bounds the output of a call, so that the call needs a cap.
    pub(crate) fn bounds_output(&self) -> bool {
        let priced = self.price.is_some_and(|price| price.output > NanoUsd::ZERO);
        self.max_tokens.is_some() || (self.max_usd.is_some() && priced)
    }

    /// Returns the output cap and worst case of a call under the run's own ceilings and, if a
    /// shared budget has answered, under its grant. The cap is the caller's whenever that fits. With a
    /// later call, the run's own ceilings must have room for both.
    ///
    /// # Errors
    /// Not even the smallest useful cap fits under a ceiling.
    pub(crate) fn quote(
        &self,
        ask: Ask,
        granted: Option<Granted>,
        later: Option<LaterCall>,
    ) -> Result<Quote, Short> {
        let left_usd = self.max_usd.map(|max| max.saturating_sub(self.committed()));
        let left_tokens = self.max_tokens.map(|max| max.saturating_sub(self.committed_tokens()));
        let granted_usd = granted.map(|granted| granted.usd);
        let granted_tokens = granted.and_then(|granted| granted.tokens);
        let floor = ask.floor();
        // Each ceiling lowers the cap further, so the result fits under all of them, and
        // `lowered_by` names the tightest.
        let mut cap = ask.cap;
        let mut lowered_by = None;
        let mut lower = |affordable: Option<u64>, ceiling: Ceiling, left: Granted, kept| {
            let Some(affordable) = affordable.filter(|most| *most >= floor) else {
                return Err(Short { ceiling, prompt: ask.prompt, output: floor, left, kept });
            };
            if affordable < cap {
                (cap, lowered_by) = (affordable, Some(ceiling));
            }
            Ok(())
        };
        let price = self.price.unwrap_or_default();
        // Without a price no worst case can be computed, so a cost ceiling is enforced after the
        // fact by the billed cost that the provider reports.
        let of_usd = |left: Option<NanoUsd>| left.filter(|_| self.price.is_some());
        let own = (of_usd(left_usd), left_tokens, Ceiling::Usd, Ceiling::Tokens);
        let shared =
            (of_usd(granted_usd), granted_tokens, Ceiling::SharedUsd, Ceiling::SharedTokens);
        // The run's own ceilings come first, so that the evidence names them and not the shared
        // budget.
        for (usd, tokens, by_usd, by_tokens) in [own, shared] {
            let later = later.filter(|_| by_usd == Ceiling::Usd);
            // A shared budget counts all tokens.
            let counts = if by_usd == Ceiling::Usd { self.counts } else { TokensCounted::All };
            if let Some(usd) = usd {
                let left = Granted { usd, tokens: None };
                let alone = price.affordable(ask.prompt, usd);
                let (affordable, kept) = match later {
                    Some(later) => {
                        let most = alone.unwrap_or_default().min(ask.cap);
                        let both = later.with(&price, ask.prompt, floor);
                        let kept = both.saturating_sub(price.worst(ask.prompt, floor));
                        (later.most_output(&price, ask.prompt, most, usd), kept)
                    }
                    None => (alone, NanoUsd::ZERO),
                };
                lower(affordable, by_usd, left, Granted { usd: kept, tokens: None })?;
            }
            if let Some(tokens) = tokens {
                let left = Granted { usd: NanoUsd::ZERO, tokens: Some(tokens) };
                let (affordable, kept) = match later {
                    Some(later) => {
                        let kept = later.counted_tokens(counts, ask.prompt, floor);
                        (later.most_tokens(counts, ask.prompt, tokens), kept)
                    }
                    None => (tokens.checked_sub(counts.of_prompt(ask.prompt)), 0),
                };
                let kept = Granted { usd: NanoUsd::ZERO, tokens: Some(kept) };
                lower(affordable, by_tokens, left, kept)?;
            }
        }
        let of = |output: u64| Granted {
            usd: price.worst(ask.prompt, output),
            tokens: Some(ask.prompt.saturating_add(output)),
        };
        Ok(Quote { output_cap: cap, lowered_by, worst: of(cap), least: of(floor) })
    }

    /// Books an attempt and returns its cost: the cost that the provider reported, or else the
    /// priced usage. `unreported` is the possible usage beyond that, and `most_output` the bound of
    /// the output, if one is known.
    pub(crate) fn settle(
        &mut self,
        usage: &Usage,
        cost: Option<NanoUsd>,
        unreported: Unreported,
        (quote, most_output): (Option<NanoUsd>, Option<u64>),
    ) -> NanoUsd {
        // The provider's own bill wins over the price table, because it includes discounts and
        // surcharges.
        let cost = match (cost, self.price) {
            (Some(cost), _) => cost,
            (None, Some(price)) => price.cost(usage),
            (None, None) => NanoUsd::ZERO,
        };
        self.usage.add(usage);
        self.own_usage.add(usage);
        if let Some(price) = self.price.filter(|price| !price.long_prompts.is_empty()) {
            let saved = price.saved_by_cache(usage).0;
            self.saved_by_size.0 = self.saved_by_size.0.saturating_add(saved);
        }
        self.tokens = self.tokens.saturating_add(usage.total_tokens());
        self.uncached = self.uncached.saturating_add(TokensCounted::Uncached.of(usage));
        self.spent += cost;
        self.cost_unknown |= unreported.cost != Some(NanoUsd::ZERO);
        // The output that is known already counts in the usage.
        let known_output = usage.generated_tokens().unwrap_or(0);
        let more_output = most_output.map(|most| most.saturating_sub(known_output));
        self.add_unreported(unreported, more_output);
        // More than the worst case can only mean a wrong price or bound, so it is reported
        // separately.
        if let Some(quote) = quote {
            self.overrun += cost.saturating_sub(quote);
        }
        cost
    }

    /// Books spending by others on the run's behalf: nested agents and compactions.
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
        self.uncached = self.uncached.saturating_add(TokensCounted::Uncached.of(usage));
        self.spent += cost;
        self.add_unreported(unreported, None);
    }

    /// The spending above the ceiling.
    pub(crate) fn beyond_ceiling(&self) -> NanoUsd {
        self.max_usd.map_or(NanoUsd::ZERO, |max| self.spent.saturating_sub(max))
    }

    /// Adds unreported usage, of which at most `more_output` tokens were generated.
    fn add_unreported(&mut self, more: Unreported, more_output: Option<u64>) {
        let output = more.tokens.unwrap_or_default().min(more_output.unwrap_or(u64::MAX));
        self.bounded_output = self.bounded_output.saturating_add(output);
        self.unreported += more;
        self.bounded.0 += more.cost.unwrap_or_default();
        self.bounded.1 = self.bounded.1.saturating_add(more.tokens.unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_spending_hides_no_reservation() {
        let mut ledger =
            Ledger { max_usd: Some(NanoUsd(100)), reserves: true, ..Ledger::default() };
        let aborted = Unreported { cost: Some(NanoUsd(90)), tokens: Some(9) };
        ledger.settle(&Usage::default(), None, aborted, (None, None));
        assert_eq!(ledger.committed(), NanoUsd(90));
        // A tool reports that it spent, and cannot say how much.
        ledger.book(&Usage::default(), NanoUsd(5), true, Unreported::of_unknown(true));
        assert_eq!((ledger.committed(), ledger.committed_tokens()), (NanoUsd(95), 9));
        assert_eq!(ledger.cost_upper(), None, "no bound is known for the whole run");
        ledger.book(&Usage::default(), NanoUsd(5), false, Unreported::NOTHING);
        assert!(ledger.usd_exceeded());
    }
}
