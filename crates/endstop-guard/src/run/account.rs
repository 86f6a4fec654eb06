//! The spending of a run's conversations together, so that each counts all of it against the limits that they share,
//! and the budget that bounds it.
//!
//! ```text
//! sum of all conversations    turns 5, $0.07
//! counted by conversation 0   turns 3, $0.04    its own calls, and those of others that it has counted
//! counted by it next          turns 2, $0.03
//! ```
//!
//! Totals instead of single entries, because a conversation may be idle for a whole run, and what it has not counted
//! must not grow meanwhile.

use super::meter::Meter;
use super::settings::Settings;
use endstop::budget::{Amount, SharedBudget};
use endstop_core::guest::Spending;
use endstop_core::usage::Unreported;
use endstop_core::{Limits, NanoUsd, TokensCounted, Window};
use std::sync::Arc;

/// The spending of a run, and its budget.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) ledger: Ledger,
    /// The budget of the run, of a day or of both.
    pub(super) budget: Option<SharedBudget>,
    /// The windows of the subscription, as the lead knows them, and the number of their reports.
    pub(super) windows: (Vec<Window>, u64),
}

impl Account {
    /// Opens the account of a run with these settings.
    pub(super) fn open(settings: &Settings) -> Account {
        let (usd, tokens) = ceilings(&settings.limits);
        settings.meter.started();
        Account {
            ledger: Ledger::new(Arc::clone(&settings.meter)),
            budget: SharedBudget::within(settings.budget.as_ref(), usd, tokens),
            windows: (Vec::new(), 0),
        }
    }

    /// `true` if a ceiling or a rate on money holds, so that every call needs a price.
    pub(super) fn needs_price(&self, limits: &Limits) -> bool {
        let by_rate = limits.max_rate.is_some_and(|rates| rates.bounds_cost());
        by_rate || self.budget.as_ref().is_some_and(SharedBudget::bounds_cost)
    }

    /// Books what a provider reported after its call had ended.
    pub(super) fn book_late(&mut self, spending: &Spending) {
        self.ledger.book(spending);
        if let Some(budget) = &self.budget {
            let tokens = spending.usage.total_tokens();
            budget.settle_amount(Amount::ZERO, Amount { usd: spending.cost, tokens });
        }
    }

    /// Changes the ceilings of the run's own budget.
    pub(super) fn set_limits(&mut self, old: &Limits, new: &Limits) {
        // A run without a ceiling of its own has no account of its own: the kernel enforces a new
        // ceiling alone, as it does for a single conversation.
        if (old.max_budget_usd.is_some() || old.max_tokens.is_some())
            && let Some(budget) = &self.budget
        {
            let (usd, tokens) = ceilings(new);
            budget.set_ceiling(usd, tokens);
        }
    }
}

/// The ceilings that a budget enforces. It counts all tokens; another ceiling is enforced by the kernel alone.
fn ceilings(limits: &Limits) -> (Option<NanoUsd>, Option<u64>) {
    let counts_all = limits.max_tokens_counts == TokensCounted::All;
    (limits.max_budget_usd.map(NanoUsd::from_usd), limits.max_tokens.filter(|_| counts_all))
}

/// The spending of all conversations.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    sum: Spending,
    /// Turns that were admitted and have not ended.
    in_flight: u32,
    /// Number of times that the turns were forgotten.
    forgotten: u32,
    meter: Arc<Meter>,
}

impl Ledger {
    /// Creates an empty ledger whose spending also counts in a meter.
    pub(super) fn new(meter: Arc<Meter>) -> Ledger {
        Ledger { meter, ..Ledger::default() }
    }

    /// Adds what a conversation spent, which it has counted itself.
    pub(super) fn add(&mut self, counted: &mut Spending, spending: &Spending) {
        if !spending.is_nothing() {
            self.sum.add(spending);
            self.meter.spent(spending);
            counted.add(spending);
        }
    }

    /// Adds what no conversation has counted: each counts it with its next call, or at its end.
    pub(super) fn book(&mut self, spending: &Spending) {
        self.add(&mut Spending::default(), spending);
    }

    /// Adds a call whose cost is not known, as [`book`](Ledger::book) does.
    pub(super) fn book_unknown(&mut self) {
        self.book(&Spending {
            cost_unknown: true,
            unreported: Some(Unreported { cost: None, tokens: None }),
            ..Spending::default()
        });
    }

    /// Admits a turn, which is added when it ends.
    pub(super) fn admit_turn(&mut self) -> OpenTurn {
        self.in_flight = self.in_flight.saturating_add(1);
        OpenTurn { forgotten: self.forgotten }
    }

    /// Ends an admitted turn. Returns `false` if it was forgotten in the meantime.
    pub(super) fn end_turn(&mut self, open: &OpenTurn) -> bool {
        let is_known = open.forgotten == self.forgotten;
        if is_known {
            self.in_flight = self.in_flight.saturating_sub(1);
        }
        is_known
    }

    /// Turns that were admitted and have not ended.
    pub(super) fn turns_in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Forgets the turns so far, also those in flight. Conversations that exist have counted them, and those to
    /// come will not.
    pub(super) fn forget_turns(&mut self) {
        self.sum.turns = 0;
        self.in_flight = 0;
        self.forgotten += 1;
    }

    /// Returns what a conversation has not counted yet, if there is anything. From now on it counts as
    /// counted.
    pub(super) fn take_uncounted(&self, counted: &mut Spending) -> Option<Spending> {
        let news = self.sum.since(counted);
        counted.clone_from(&self.sum);
        Some(news).filter(|news| !news.is_nothing())
    }

    /// The spending of all conversations.
    pub(super) fn sum(&self) -> &Spending {
        &self.sum
    }
}

/// A turn that was admitted and has not ended.
#[derive(Debug)]
pub(super) struct OpenTurn {
    forgotten: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use endstop_core::{NanoUsd, Unreported, Usage};
    use proptest::prelude::*;

    fn spending() -> impl Strategy<Value = Spending> {
        let unreported = prop_oneof![
            3 => Just(None),
            2 => (0_u64..50, 0_u64..50).prop_map(|(cost, tokens)| Some((Some(cost), Some(tokens)))),
            1 => Just(Some((None, Some(3)))),
        ];
        (0_u64..100, 0_u64..100, 0_u64..100, 0_u32..3, any::<bool>(), unreported).prop_map(
            |(input, output, cost, turns, apart, unreported)| {
                let unreported =
                    unreported.map(|(cost, tokens)| Unreported { cost: cost.map(NanoUsd), tokens });
                Spending {
                    usage: Usage {
                        input_tokens: Some(input),
                        output_tokens: Some(output),
                        cached_input_tokens: Some(input / 2),
                        cache_apart: apart,
                        ..Usage::default()
                    },
                    cost: NanoUsd(cost),
                    cost_unknown: unreported.is_some_and(|more| more.cost != Some(NanoUsd::ZERO)),
                    unreported,
                    turns,
                    calls: turns,
                    tool_calls: turns,
                }
            },
        )
    }

    #[derive(Clone, Debug)]
    enum Act {
        Spend(usize, Spending),
        Count(usize),
    }

    fn act() -> impl Strategy<Value = Act> {
        // Conversations begin at their first act, at any time.
        prop_oneof![
            (0_usize..6, spending())
                .prop_map(|(conversation, spending)| Act::Spend(conversation, spending)),
            (0_usize..6).prop_map(Act::Count),
        ]
    }

    /// The totals that a ceiling uses.
    fn totals(spending: &Spending) -> (u64, u64, [u32; 2], bool, Unreported) {
        (
            spending.usage.total_tokens(),
            spending.cost.0,
            [spending.turns, spending.tool_calls],
            spending.cost_unknown,
            spending.unreported(),
        )
    }

    proptest! {
        /// Each conversation counts its own spending, and that of every other one exactly once.
        #[test]
        fn every_conversation_counts_everything_once(acts in proptest::collection::vec(act(), 0..60)) {
            let mut ledger = Ledger::default();
            let mut counted: Vec<Spending> = vec![Spending::default(); 6];
            // A model: the guest of each conversation, and a plain list of all spending.
            let mut guests: Vec<Spending> = vec![Spending::default(); 6];
            let mut all = Spending::default();
            for act in acts {
                match act {
                    Act::Spend(conversation, spending) => {
                        all.add(&spending);
                        guests[conversation].add(&spending);
                        ledger.add(&mut counted[conversation], &spending);
                    }
                    Act::Count(conversation) => {
                        if let Some(news) = ledger.take_uncounted(&mut counted[conversation]) {
                            guests[conversation].add(&news);
                        }
                        prop_assert_eq!(totals(&guests[conversation]), totals(&all));
                        prop_assert_eq!(ledger.take_uncounted(&mut counted[conversation]), None, "counted twice");
                    }
                }
                prop_assert_eq!(totals(ledger.sum()), totals(&all));
            }
        }
    }
}
