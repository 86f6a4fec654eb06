//! A budget shared by several runs: reserve before a call, settle after it. `spent + reserved`
//! never exceeds the ceiling.
//!
//! ```
//! use endstop::budget::SharedBudget;
//! use endstop::NanoUsd;
//! let budget = SharedBudget::new(NanoUsd::from_usd(1.0));
//! let held = budget.reserve(NanoUsd::from_usd(0.7), NanoUsd::from_usd(0.1));
//! assert_eq!(held, NanoUsd::from_usd(0.7));
//! // The second gets what is left, or nothing if that is less than its minimum.
//! assert_eq!(budget.reserve(NanoUsd::from_usd(0.7), NanoUsd::from_usd(0.1)), NanoUsd::from_usd(0.3));
//! budget.settle(held, NanoUsd::from_usd(0.2));
//! assert_eq!(budget.spent(), NanoUsd::from_usd(0.2));
//!
//! // A part with its own ceiling; its spending counts in the whole as well.
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

mod amount;
pub(crate) mod store;

pub(crate) use amount::NO_CEILING;
pub use amount::{Amount, Refusal, StoreFailure};

use endstop_core::{BudgetAccount, NanoUsd};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::Store;

/// A ceiling on the total spending of several runs. Budgets form a tree: a [`part`](Self::part) is
/// bounded by its own ceiling and by all above it. Cheap to clone; clones share the same budget.
#[derive(Clone, Debug)]
pub struct SharedBudget {
    /// All accounts that bound this budget, its own first. Each appears once, even if it is
    /// reachable on several paths, so that nothing is booked twice.
    bounds: Arc<[Arc<Mutex<Books>>]>,
    /// The accounts that other processes share, in the same way.
    stored: Arc<[Arc<dyn Store>]>,
}

#[derive(Debug)]
struct Books {
    ceiling: Amount,
    spent: Amount,
    reserved: Amount,
    /// Journalled runs whose spending is already included here, and that may be resumed.
    runs: HashSet<String>,
}

/// Maximum number of remembered runs. Beyond it all are forgotten, and a resumed run is charged a
/// second time. That is the safe direction: the ceiling still holds.
const MOST_RUNS: usize = 1 << 16;

impl SharedBudget {
    /// Creates a budget with a ceiling on money.
    pub fn new(ceiling: NanoUsd) -> SharedBudget {
        SharedBudget::below(Amount { usd: ceiling, ..NO_CEILING }, &[])
    }

    /// Creates a budget with a ceiling on tokens. It needs no price.
    pub fn tokens(ceiling: u64) -> SharedBudget {
        SharedBudget::below(Amount { tokens: ceiling, ..NO_CEILING }, &[])
    }

    /// Creates a budget with its own ceiling on money within this one.
    #[must_use]
    pub fn part(&self, ceiling: NanoUsd) -> SharedBudget {
        SharedBudget::below(Amount { usd: ceiling, ..NO_CEILING }, &[self])
    }

    /// Creates a budget with its own ceiling on tokens within this one.
    #[must_use]
    pub fn part_of_tokens(&self, ceiling: u64) -> SharedBudget {
        SharedBudget::below(Amount { tokens: ceiling, ..NO_CEILING }, &[self])
    }

    /// Creates a budget that both others bound. They may have parents in common, or be the same.
    pub(crate) fn both(one: &SharedBudget, other: &SharedBudget) -> SharedBudget {
        SharedBudget::below(NO_CEILING, &[one, other])
    }

    /// Creates a budget with these ceilings within another. Returns `None` if nothing bounds it.
    pub fn within(
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

    /// Creates a budget that an account outside this process bounds.
    #[cfg_attr(not(feature = "journal"), expect(dead_code, reason = "only the journal stores one"))]
    pub(crate) fn of_store(store: Arc<dyn Store>) -> SharedBudget {
        let own = SharedBudget::below(NO_CEILING, &[]);
        SharedBudget { stored: [store].into(), ..own }
    }

    fn below(ceiling: Amount, above: &[&SharedBudget]) -> SharedBudget {
        let (spent, reserved) = (Amount::ZERO, Amount::ZERO);
        let books = Books { ceiling, spent, reserved, runs: HashSet::new() };
        let mut bounds = vec![Arc::new(Mutex::new(books))];
        for books in above.iter().flat_map(|budget| budget.bounds.iter()) {
            // Compare by identity: two accounts with equal amounts are still different accounts.
            if !bounds.iter().any(|known| Arc::ptr_eq(known, books)) {
                bounds.push(Arc::clone(books));
            }
        }
        let mut stored: Vec<Arc<dyn Store>> = Vec::new();
        for store in above.iter().flat_map(|budget| budget.stored.iter()) {
            if !stored.iter().any(|known| Arc::ptr_eq(known, store)) {
                stored.push(Arc::clone(store));
            }
        }
        SharedBudget { bounds: bounds.into(), stored: stored.into() }
    }

    /// Replaces this budget's own ceilings; those above it stay. What was spent and reserved so far
    /// counts against the new ones, and `None` removes a ceiling.
    pub fn set_ceiling(&self, usd: Option<NanoUsd>, tokens: Option<u64>) {
        self.books().ceiling = Amount {
            usd: usd.unwrap_or(NO_CEILING.usd),
            tokens: tokens.unwrap_or(NO_CEILING.tokens),
        };
    }

    /// Books spending that happened before this process, for example earlier on the same day.
    pub fn book_earlier(&self, spent: Amount) {
        self.settle_amount(Amount::ZERO, spent);
    }

    /// `true` if a ceiling on cost bounds this budget, so that calls within it need a price.
    pub fn bounds_cost(&self) -> bool {
        self.bounds.iter().any(|books| lock(books).ceiling.usd != NO_CEILING.usd)
            || self.stored.iter().any(|store| store.bounds_cost())
    }

    /// `true` if a ceiling on tokens bounds this budget.
    pub fn bounds_tokens(&self) -> bool {
        self.bounds.iter().any(|books| lock(books).ceiling.tokens != NO_CEILING.tokens)
            || self.stored.iter().any(|store| store.bounds_tokens())
    }

    /// `true` if other processes share this budget or one above it. Reserving and settling may then
    /// wait for them.
    pub(crate) fn is_stored(&self) -> bool {
        !self.stored.is_empty()
    }

    /// Reserves `want`, or what is left here and above if that is at least `least`. Zero means that
    /// the reservation was refused.
    pub fn reserve(&self, want: NanoUsd, least: NanoUsd) -> NanoUsd {
        let granted = self.reserve_amount(want.into(), least.into());
        granted.map_or(NanoUsd::ZERO, |granted| granted.usd)
    }

    /// Reserves `want`, or what is left here and above if that is at least `least`.
    ///
    /// # Errors
    /// Less than `least` is left, and nothing is reserved. The error is the part of `want` that is
    /// left.
    pub fn reserve_amount(&self, want: Amount, least: Amount) -> Result<Amount, Amount> {
        self.reserve_or_explain(want, least).map_err(|refusal| refusal.left)
    }

    /// Reserves as [`reserve_amount`](Self::reserve_amount) does.
    ///
    /// # Errors
    /// Less than `least` is left, and nothing is reserved. The error also has the account that
    /// refused.
    pub fn reserve_or_explain(&self, want: Amount, least: Amount) -> Result<Amount, Refusal> {
        let mut granted = want;
        // Only one account is locked at a time, so there is no lock order to respect. A sibling may
        // be refused because of an amount that is returned a moment later, but no ceiling is
        // exceeded.
        for (at, books) in self.bounds.iter().enumerate() {
            let here = lock(books).take(granted, least);
            // If an account grants less, return the difference to the accounts that granted more.
            let back = granted.saturating_sub(*here.as_ref().unwrap_or(&Amount::ZERO));
            for earlier in &self.bounds[..at] {
                lock(earlier).settle(back, Amount::ZERO);
            }
            granted = here?;
        }
        // Last, because they cost a transaction, which a refusal in memory saves.
        for (at, store) in self.stored.iter().enumerate() {
            let here = store.take(granted, least);
            let back = granted.saturating_sub(*here.as_ref().unwrap_or(&Amount::ZERO));
            for earlier in self.bounds.iter() {
                lock(earlier).settle(back, Amount::ZERO);
            }
            for earlier in &self.stored[..at] {
                earlier.settle(back, Amount::ZERO);
            }
            granted = here?;
        }
        Ok(granted)
    }

    /// Returns a reservation and books what was spent of it, here and above.
    pub fn settle(&self, reserved: NanoUsd, spent: NanoUsd) {
        self.settle_amount(reserved.into(), spent.into());
    }

    /// Returns a reservation and books the money and tokens spent of it, here and above. For a call
    /// that the provider did not count, `spent` is the maximum that it can have used.
    pub fn settle_amount(&self, reserved: Amount, spent: Amount) {
        for books in self.bounds.iter() {
            lock(books).settle(reserved, spent);
        }
        for store in self.stored.iter() {
            store.settle(reserved, spent);
        }
    }

    /// Remembers a journalled run, so that it is not charged again if it is resumed.
    pub fn saw_run(&self, id: &str) {
        for books in self.bounds.iter() {
            let mut books = lock(books);
            if books.runs.len() >= MOST_RUNS {
                books.runs.clear();
            }
            books.runs.insert(id.to_owned());
        }
        for store in self.stored.iter() {
            store.saw_run(id);
        }
    }

    /// Forgets a run that can no longer be resumed.
    pub(crate) fn forget_run(&self, id: &str) {
        for books in self.bounds.iter() {
            lock(books).runs.remove(id);
        }
    }

    /// Books the earlier spending of a resumed run, unless it is already included, because the run
    /// was settled with this budget in the same process.
    pub(crate) fn resume_run(&self, id: &str, spent: Amount) {
        for books in self.bounds.iter() {
            let mut books = lock(books);
            if !books.runs.contains(id) {
                books.settle(Amount::ZERO, spent);
            }
        }
        for store in self.stored.iter() {
            store.resume_run(id, spent);
        }
    }

    /// Returns the money spent. A call that was cut off before the provider counted it counts with
    /// its reservation.
    pub fn spent(&self) -> NanoUsd {
        self.books().spent.usd
    }

    /// Returns the money reserved by calls in progress.
    pub fn reserved(&self) -> NanoUsd {
        self.books().reserved.usd
    }

    /// Returns the sum of money spent and reserved, read at one moment. It never exceeds the
    /// ceiling, unless a provider billed more than was reserved.
    pub fn committed(&self) -> NanoUsd {
        self.books().committed().usd
    }

    /// Returns this budget's own ceiling on money; `None`: it has none.
    pub fn ceiling(&self) -> Option<NanoUsd> {
        Some(self.books().ceiling.usd).filter(|usd| *usd != NO_CEILING.usd)
    }

    /// Returns this budget's own ceiling on tokens; `None`: it has none.
    pub fn ceiling_tokens(&self) -> Option<u64> {
        Some(self.books().ceiling.tokens).filter(|tokens| *tokens != NO_CEILING.tokens)
    }

    /// Returns the money that is neither spent nor reserved, here and in the budgets above; `None`: no
    /// ceiling bounds it. Ceilings that other processes share are not asked, so a reservation may be
    /// refused although something is left.
    pub fn left(&self) -> Option<NanoUsd> {
        let left = |books: &Arc<Mutex<Books>>| {
            let books = lock(books);
            let usd = Some(books.ceiling.usd).filter(|usd| *usd != NO_CEILING.usd)?;
            Some(usd.saturating_sub(books.committed().usd))
        };
        self.bounds.iter().filter_map(left).min()
    }

    /// Returns the tokens that are neither used nor reserved, like [`left`](Self::left).
    pub fn left_tokens(&self) -> Option<u64> {
        let left = |books: &Arc<Mutex<Books>>| {
            let books = lock(books);
            let tokens =
                Some(books.ceiling.tokens).filter(|tokens| *tokens != NO_CEILING.tokens)?;
            Some(tokens.saturating_sub(books.committed().tokens))
        };
        self.bounds.iter().filter_map(left).min()
    }

    /// Returns the tokens used, counted like [`spent`](Self::spent).
    pub fn spent_tokens(&self) -> u64 {
        self.books().spent.tokens
    }

    /// Returns the tokens used or reserved, like [`committed`](Self::committed).
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

    /// Reserves an amount. Returns `Err` with what is left if that is less than `least`.
    fn take(&mut self, want: Amount, least: Amount) -> Result<Amount, Refusal> {
        let granted = want.min(self.ceiling.saturating_sub(self.committed()));
        if !granted.covers(least) {
            return Err(Refusal { left: granted, account: self.account(), failure: None });
        }
        self.reserved = self.reserved.add(granted);
        Ok(granted)
    }

    fn account(&self) -> BudgetAccount {
        let Amount { usd, tokens } = self.ceiling;
        BudgetAccount {
            ceiling: Some(usd).filter(|usd| *usd != NO_CEILING.usd),
            ceiling_tokens: Some(tokens).filter(|tokens| *tokens != NO_CEILING.tokens),
            reserved: self.reserved.usd,
            reserved_tokens: self.reserved.tokens,
            ..BudgetAccount::default()
        }
    }

    fn settle(&mut self, reserved: Amount, spent: Amount) {
        // Saturating because this is public API: a caller that settles more than it reserved must
        // not make the total wrap around.
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
    fn left_is_that_of_the_tightest_ceiling() {
        let whole = SharedBudget::new(usd(100));
        let part = whole.part(usd(80));
        assert_eq!((whole.ceiling(), part.ceiling()), (Some(usd(100)), Some(usd(80))));
        assert_eq!((part.ceiling_tokens(), part.left_tokens()), (None, None));
        assert_eq!(whole.part(usd(50)).reserve(usd(50), usd(1)), usd(50));
        assert_eq!(part.left(), Some(usd(50)));
        part.settle(NanoUsd::ZERO, usd(10));
        assert_eq!((part.left(), whole.left()), (Some(usd(40)), Some(usd(40))));
        let tokens = SharedBudget::tokens(9);
        assert_eq!((tokens.left_tokens(), tokens.left()), (Some(9), None));
    }

    #[test]
    fn part_is_limited_by_its_parent() {
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
    fn refusal_leaves_nothing_reserved() {
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
    fn shared_ancestor_is_booked_once() {
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
    fn concurrent_reservations_never_exceed_ceiling() {
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
