//! A budget that several runs share: reserve, then settle; `spent + reserved` never passes the
//! ceiling.
//!
//! ```
//! use endstop::budget::SharedBudget;
//! use endstop::NanoUsd;
//! let budget = SharedBudget::new(NanoUsd::from_usd(1.0));
//! let held = budget.reserve(NanoUsd::from_usd(0.7), NanoUsd::from_usd(0.1));
//! assert_eq!(held, NanoUsd::from_usd(0.7));
//! // The second gets what is left, or nothing where that is less than its least.
//! assert_eq!(budget.reserve(NanoUsd::from_usd(0.7), NanoUsd::from_usd(0.1)), NanoUsd::from_usd(0.3));
//! budget.settle(held, NanoUsd::from_usd(0.2));
//! assert_eq!(budget.spent(), NanoUsd::from_usd(0.2));
//!
//! // A part of it, with a ceiling of its own: what is spent there is spent here.
//! let part = budget.part(NanoUsd::from_usd(0.5));
//! let held = part.reserve(NanoUsd::from_usd(0.7), NanoUsd::from_usd(0.1));
//! assert_eq!((held, budget.committed()), (NanoUsd::from_usd(0.5), NanoUsd::from_usd(1.0)));
//!
//! // A ceiling on tokens, alone or within another budget.
//! let tokens = SharedBudget::tokens(5_000);
//! assert_eq!(tokens.committed_tokens(), 0);
//! let both = budget.part_of_tokens(5_000);
//! # let _ = both;
//! ```

use endstop_core::NanoUsd;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Money and tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Money.
    pub usd: NanoUsd,
    /// Prompt and generated tokens together.
    pub tokens: u64,
}

impl Amount {
    /// Nothing.
    pub const ZERO: Amount = Amount { usd: NanoUsd::ZERO, tokens: 0 };

    fn saturating_sub(self, other: Amount) -> Amount {
        let tokens = self.tokens.saturating_sub(other.tokens);
        Amount { usd: self.usd.saturating_sub(other.usd), tokens }
    }

    fn add(self, other: Amount) -> Amount {
        let tokens = self.tokens.saturating_add(other.tokens);
        Amount { usd: self.usd + other.usd, tokens }
    }

    fn min(self, other: Amount) -> Amount {
        Amount { usd: self.usd.min(other.usd), tokens: self.tokens.min(other.tokens) }
    }

    /// Whether it has as much of both.
    fn covers(self, other: Amount) -> bool {
        self.usd >= other.usd && self.tokens >= other.tokens
    }
}

impl From<NanoUsd> for Amount {
    fn from(usd: NanoUsd) -> Amount {
        Amount { usd, tokens: 0 }
    }
}

/// The ceiling of a budget that has none of this kind.
const NO_CEILING: Amount = Amount { usd: NanoUsd(u64::MAX), tokens: u64::MAX };

/// A ceiling on what several runs spend together. Budgets are a tree: a [`part`](Self::part) is
/// bounded by its own ceiling and by all above it. Cheap to clone; clones are the same budget.
#[derive(Clone, Debug)]
pub struct SharedBudget {
    /// All books that bound it, its own first; none of them is there twice, by whatever ways it is
    /// reached, so that nothing is booked twice.
    bounds: Arc<[Arc<Mutex<Books>>]>,
}

#[derive(Debug)]
struct Books {
    ceiling: Amount,
    spent: Amount,
    reserved: Amount,
    /// Journalled runs whose spending these books have seen, and that may be resumed.
    runs: HashSet<String>,
}

/// How many runs the books remember. If there are more, all are forgotten, and a run that is resumed
/// then counts once more: the ceiling holds.
const MOST_RUNS: usize = 1 << 16;

impl SharedBudget {
    /// A budget of money with nothing spent.
    pub fn new(ceiling: NanoUsd) -> SharedBudget {
        SharedBudget::below(Amount { usd: ceiling, ..NO_CEILING }, &[])
    }

    /// A budget of tokens with nothing used; it needs no price.
    pub fn tokens(ceiling: u64) -> SharedBudget {
        SharedBudget::below(Amount { tokens: ceiling, ..NO_CEILING }, &[])
    }

    /// A budget with a ceiling of its own within this one.
    #[must_use]
    pub fn part(&self, ceiling: NanoUsd) -> SharedBudget {
        SharedBudget::below(Amount { usd: ceiling, ..NO_CEILING }, &[self])
    }

    /// A budget with a ceiling on tokens of its own within this one.
    #[must_use]
    pub fn part_of_tokens(&self, ceiling: u64) -> SharedBudget {
        SharedBudget::below(Amount { tokens: ceiling, ..NO_CEILING }, &[self])
    }

    /// A budget that both bound; they may share what is above them, or be the same.
    pub(crate) fn both(one: &SharedBudget, other: &SharedBudget) -> SharedBudget {
        SharedBudget::below(NO_CEILING, &[one, other])
    }

    /// A budget with these ceilings within another; `None`: nothing bounds it.
    pub(crate) fn within(
        above: Option<&SharedBudget>,
        usd: Option<NanoUsd>,
        tokens: Option<u64>,
    ) -> Option<SharedBudget> {
        if usd.is_none() && tokens.is_none() {
            return above.cloned();
        }
        let ceiling = Amount {
            usd: usd.unwrap_or(NO_CEILING.usd),
            tokens: tokens.unwrap_or(NO_CEILING.tokens),
        };
        let above: Vec<&SharedBudget> = above.into_iter().collect();
        Some(SharedBudget::below(ceiling, &above))
    }

    fn below(ceiling: Amount, above: &[&SharedBudget]) -> SharedBudget {
        let (spent, reserved) = (Amount::ZERO, Amount::ZERO);
        let books = Books { ceiling, spent, reserved, runs: HashSet::new() };
        let mut bounds = vec![Arc::new(Mutex::new(books))];
        for books in above.iter().flat_map(|budget| budget.bounds.iter()) {
            if !bounds.iter().any(|known| Arc::ptr_eq(known, books)) {
                bounds.push(Arc::clone(books));
            }
        }
        SharedBudget { bounds: bounds.into() }
    }

    /// Whether a ceiling on cost bounds it: a call within it needs a price.
    pub(crate) fn bounds_cost(&self) -> bool {
        self.bounds.iter().any(|books| lock(books).ceiling.usd != NO_CEILING.usd)
    }

    /// Whether a ceiling on tokens bounds it.
    pub(crate) fn bounds_tokens(&self) -> bool {
        self.bounds.iter().any(|books| lock(books).ceiling.tokens != NO_CEILING.tokens)
    }

    /// Reserves `want`, or what is left here and above where that is at least `least`; zero is a
    /// refusal.
    pub fn reserve(&self, want: NanoUsd, least: NanoUsd) -> NanoUsd {
        let granted = self.reserve_amount(want.into(), least.into());
        granted.map_or(NanoUsd::ZERO, |granted| granted.usd)
    }

    /// Reserves `want`, or what is left here and above where that is at least `least`.
    ///
    /// # Errors
    /// It is less: nothing is reserved. The error is what is left of what was asked for.
    pub fn reserve_amount(&self, want: Amount, least: Amount) -> Result<Amount, Amount> {
        let mut granted = want;
        // No two books are held at once. A sibling may be refused for what is given back a moment
        // later; no ceiling is passed.
        for (at, books) in self.bounds.iter().enumerate() {
            let here = lock(books).take(granted, least);
            let back = granted.saturating_sub(here.unwrap_or(Amount::ZERO));
            for earlier in &self.bounds[..at] {
                lock(earlier).settle(back, Amount::ZERO);
            }
            granted = here?;
        }
        Ok(granted)
    }

    /// Gives back a reservation, and books what was spent of it, here and above.
    pub fn settle(&self, reserved: NanoUsd, spent: NanoUsd) {
        self.settle_amount(reserved.into(), spent.into());
    }

    /// Gives back a reservation, and books what was spent and used of it, here and above. Of a call
    /// that the provider did not count, that is the most that it can have been.
    pub fn settle_amount(&self, reserved: Amount, spent: Amount) {
        for books in self.bounds.iter() {
            lock(books).settle(reserved, spent);
        }
    }

    /// A journalled run spends from here on, and is not booked again if it is resumed.
    pub(crate) fn saw_run(&self, id: &str) {
        for books in self.bounds.iter() {
            let mut books = lock(books);
            if books.runs.len() >= MOST_RUNS {
                books.runs.clear();
            }
            books.runs.insert(id.to_owned());
        }
    }

    /// The run cannot be resumed any more.
    pub(crate) fn forget_run(&self, id: &str) {
        for books in self.bounds.iter() {
            lock(books).runs.remove(id);
        }
    }

    /// Books what a resumed run has spent before, unless these books saw it: a run of this process
    /// has settled with them already.
    pub(crate) fn resume_run(&self, id: &str, spent: Amount) {
        for books in self.bounds.iter() {
            let mut books = lock(books);
            if !books.runs.contains(id) {
                books.settle(Amount::ZERO, spent);
            }
        }
    }

    /// What was spent. A call that the provider did not count, because it was cut, counts by its
    /// reservation.
    pub fn spent(&self) -> NanoUsd {
        self.books().spent.usd
    }

    /// What is reserved by calls under way.
    pub fn reserved(&self) -> NanoUsd {
        self.books().reserved.usd
    }

    /// What was spent and what is reserved, together and at one moment: never beyond the ceiling,
    /// unless a provider billed more than was reserved.
    pub fn committed(&self) -> NanoUsd {
        self.books().committed().usd
    }

    /// Tokens that were used, counted as [`spent`](Self::spent) is.
    pub fn spent_tokens(&self) -> u64 {
        self.books().spent.tokens
    }

    /// Tokens that are used or reserved, as [`committed`](Self::committed).
    pub fn committed_tokens(&self) -> u64 {
        self.books().committed().tokens
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        lock(&self.bounds[0])
    }
}

fn lock(books: &Mutex<Books>) -> MutexGuard<'_, Books> {
    books.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Books {
    fn committed(&self) -> Amount {
        self.spent.add(self.reserved)
    }

    /// `Err`: what is left is less than `least`.
    fn take(&mut self, want: Amount, least: Amount) -> Result<Amount, Amount> {
        let granted = want.min(self.ceiling.saturating_sub(self.committed()));
        if !granted.covers(least) {
            return Err(granted);
        }
        self.reserved = self.reserved.add(granted);
        Ok(granted)
    }

    fn settle(&mut self, reserved: Amount, spent: Amount) {
        self.reserved = self.reserved.saturating_sub(reserved);
        self.spent = self.spent.add(spent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn usd(cents: u64) -> NanoUsd {
        NanoUsd(cents * 10_000_000)
    }

    fn left(budget: &SharedBudget, ceiling: NanoUsd) -> NanoUsd {
        ceiling.saturating_sub(budget.committed())
    }

    #[test]
    fn a_part_gets_what_is_left_above_it_and_gives_all_back() {
        let whole = SharedBudget::new(usd(100));
        let (one, two) = (whole.part(usd(80)), whole.part(usd(80)));
        assert_eq!(one.reserve(usd(90), usd(1)), usd(80));
        assert_eq!(two.reserve(usd(90), usd(1)), usd(20));
        assert_eq!(two.reserve(usd(1), usd(1)), NanoUsd::ZERO);
        assert_eq!((two.reserved(), whole.reserved()), (usd(20), usd(100)));
        one.settle(usd(80), usd(30));
        two.settle(usd(20), NanoUsd::ZERO);
        assert_eq!((whole.spent(), whole.reserved()), (usd(30), NanoUsd::ZERO));
        assert_eq!(left(&whole, usd(100)), usd(70));
    }

    #[test]
    fn a_refusal_anywhere_leaves_nothing_reserved() {
        let (one, other) = (SharedBudget::new(usd(100)), SharedBudget::new(usd(5)));
        let both = SharedBudget::both(&one, &other);
        assert_eq!(both.reserve(usd(50), usd(10)), NanoUsd::ZERO);
        for budget in [&both, &one, &other] {
            assert_eq!(budget.reserved(), NanoUsd::ZERO);
        }
        assert_eq!(both.reserve(usd(50), usd(1)), usd(5));
        assert_eq!((one.reserved(), other.reserved()), (usd(5), usd(5)));
    }

    #[test]
    fn a_budget_that_bounds_by_two_ways_is_booked_once() {
        let whole = SharedBudget::new(usd(100));
        for both in [
            SharedBudget::both(&whole, &whole),
            SharedBudget::both(&whole, &whole.part(usd(90))),
            SharedBudget::both(&whole.part(usd(90)), &whole.part(usd(80)).part(usd(70))),
        ] {
            let before = whole.spent();
            let held = both.reserve(usd(10), usd(10));
            assert_eq!((held, whole.reserved()), (usd(10), usd(10)));
            both.settle(held, usd(4));
            assert_eq!((whole.spent(), whole.reserved()), (before + usd(4), NanoUsd::ZERO));
        }
    }

    #[test]
    fn token_ceiling_refuses_what_money_allows() {
        let whole = SharedBudget::new(usd(100));
        let part = whole.part_of_tokens(1_000);
        let want = Amount { usd: usd(10), tokens: 800 };
        let least = Amount { usd: usd(1), tokens: 300 };
        assert_eq!(part.reserve_amount(want, least), Ok(want));
        let left = Amount { tokens: 200, ..want };
        assert_eq!(part.reserve_amount(want, least), Err(left), "nothing more is reserved");
        assert_eq!((whole.reserved(), whole.committed_tokens()), (usd(10), 800));
        part.settle_amount(want, Amount { usd: usd(2), tokens: 100 });
        assert_eq!((whole.spent(), whole.spent_tokens(), whole.reserved()), (usd(2), 100, usd(0)));
        assert!(whole.bounds_cost() && !whole.bounds_tokens() && part.bounds_tokens());
        assert!(!SharedBudget::tokens(5).bounds_cost());
    }

    #[test]
    fn no_ceiling_is_passed_by_many_at_once() {
        let whole = SharedBudget::new(usd(1_000));
        let parts: Vec<SharedBudget> = (0..4).map(|_| whole.part(usd(400))).collect();
        std::thread::scope(|scope| {
            for part in &parts {
                let whole = &whole;
                scope.spawn(move || {
                    for n in 0..2_000_u64 {
                        let held = part.reserve(usd(n % 7 + 1), usd(1));
                        assert!(whole.committed() <= usd(1_000));
                        part.settle(held, NanoUsd(held.0 / 2));
                    }
                });
            }
        });
        assert!(whole.spent() <= usd(1_000));
        assert_eq!(whole.reserved(), NanoUsd::ZERO);
        let spent = parts.iter().map(SharedBudget::spent).fold(NanoUsd::ZERO, |a, b| a + b);
        assert_eq!(spent, whole.spent());
        assert!(parts.iter().all(|part| part.spent() <= usd(400)));
    }
}
