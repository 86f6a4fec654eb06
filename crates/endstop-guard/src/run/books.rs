//! The spending of a run's threads together, so that each thread counts all of it against the limits
//! that they share.
//!
//! ```text
//! sum of all threads    turns 5, $0.07
//! counted by thread 0   turns 3, $0.04    its own calls, and what it was told
//! told to it next       turns 2, $0.03
//! ```
//!
//! Totals instead of single entries, because a thread may be idle for a whole run, and what it has
//! not heard must not grow meanwhile.

use super::meter::Meter;
use endstop_core::guest::Spending;
use std::sync::Arc;

/// The spending of all threads.
#[derive(Debug, Default)]
pub(super) struct Books {
    sum: Spending,
    /// Turns that were admitted and have not ended.
    in_flight: u32,
    /// Number of times that the turns were forgotten.
    forgotten: u32,
    meter: Arc<Meter>,
}

impl Books {
    /// Creates empty books whose spending also counts in a meter.
    pub(super) fn new(meter: Arc<Meter>) -> Books {
        Books { meter, ..Books::default() }
    }

    /// Enters what a thread spent, which that thread has counted itself.
    pub(super) fn add(&mut self, counted: &mut Spending, spending: &Spending) {
        if !spending.is_nothing() {
            self.sum.add(spending);
            self.meter.spent(spending);
            counted.add(spending);
        }
    }

    /// Enters what no thread has counted: each hears of it with its next call, or at its end.
    pub(super) fn book(&mut self, spending: &Spending) {
        self.add(&mut Spending::default(), spending);
    }

    /// Admits a turn, which is entered when it ends.
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

    /// Forgets the turns so far, also those in flight. Threads that exist have counted them, and those to
    /// come will not.
    pub(super) fn forget_turns(&mut self) {
        self.sum.turns = 0;
        self.in_flight = 0;
        self.forgotten += 1;
    }

    /// Returns what a thread has not counted yet, if there is anything. From now on it counts as
    /// told.
    pub(super) fn tell(&self, counted: &mut Spending) -> Option<Spending> {
        let news = self.sum.since(counted);
        counted.clone_from(&self.sum);
        Some(news).filter(|news| !news.is_nothing())
    }

    /// The spending of all threads.
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
                }
            },
        )
    }

    #[derive(Clone, Debug)]
    enum Act {
        Spend(usize, Spending),
        Hear(usize),
    }

    fn act() -> impl Strategy<Value = Act> {
        // Threads begin at their first act, at any time.
        prop_oneof![
            (0_usize..6, spending()).prop_map(|(thread, spending)| Act::Spend(thread, spending)),
            (0_usize..6).prop_map(Act::Hear),
        ]
    }

    /// The totals that a ceiling uses.
    fn totals(spending: &Spending) -> (u64, u64, u32, bool, Unreported) {
        (
            spending.usage.total_tokens(),
            spending.cost.0,
            spending.turns,
            spending.cost_unknown,
            spending.unreported(),
        )
    }

    proptest! {
        /// Each thread counts its own spending, and that of every other thread exactly once.
        #[test]
        fn every_thread_counts_everything_once(acts in proptest::collection::vec(act(), 0..60)) {
            let mut books = Books::default();
            let mut counted: Vec<Spending> = vec![Spending::default(); 6];
            // A model: the guest of each thread, and a plain list of all spending.
            let mut guests: Vec<Spending> = vec![Spending::default(); 6];
            let mut all = Spending::default();
            for act in acts {
                match act {
                    Act::Spend(thread, spending) => {
                        all.add(&spending);
                        guests[thread].add(&spending);
                        books.add(&mut counted[thread], &spending);
                    }
                    Act::Hear(thread) => {
                        if let Some(news) = books.tell(&mut counted[thread]) {
                            guests[thread].add(&news);
                        }
                        prop_assert_eq!(totals(&guests[thread]), totals(&all));
                        prop_assert_eq!(books.tell(&mut counted[thread]), None, "heard twice");
                    }
                }
                prop_assert_eq!(totals(books.sum()), totals(&all));
            }
        }
    }
}
