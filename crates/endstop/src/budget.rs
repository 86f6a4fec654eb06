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
//! ```

use endstop_core::NanoUsd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    ceiling: NanoUsd,
    spent: NanoUsd,
    reserved: NanoUsd,
}

impl SharedBudget {
    /// A budget with nothing spent.
    pub fn new(ceiling: NanoUsd) -> SharedBudget {
        SharedBudget::below(ceiling, &[])
    }

    /// A budget with a ceiling of its own within this one.
    #[must_use]
    pub fn part(&self, ceiling: NanoUsd) -> SharedBudget {
        SharedBudget::below(ceiling, &[self])
    }

    /// A budget that both bound; they may share what is above them, or be the same.
    pub(crate) fn both(one: &SharedBudget, other: &SharedBudget) -> SharedBudget {
        SharedBudget::below(NanoUsd(u64::MAX), &[one, other])
    }

    fn below(ceiling: NanoUsd, above: &[&SharedBudget]) -> SharedBudget {
        let (spent, reserved) = (NanoUsd::ZERO, NanoUsd::ZERO);
        let mut bounds = vec![Arc::new(Mutex::new(Books { ceiling, spent, reserved }))];
        for books in above.iter().flat_map(|budget| budget.bounds.iter()) {
            if !bounds.iter().any(|known| Arc::ptr_eq(known, books)) {
                bounds.push(Arc::clone(books));
            }
        }
        SharedBudget { bounds: bounds.into() }
    }

    /// Reserves `want`, or what is left here and above where that is at least `least`; zero is a
    /// refusal.
    pub fn reserve(&self, want: NanoUsd, least: NanoUsd) -> NanoUsd {
        let mut granted = want;
        // No two books are held at once. A sibling may be refused for what is given back a moment
        // later; no ceiling is passed.
        for (at, books) in self.bounds.iter().enumerate() {
            let here = lock(books).take(granted, least);
            let back = granted.saturating_sub(here);
            for earlier in &self.bounds[..at] {
                lock(earlier).settle(back, NanoUsd::ZERO);
            }
            granted = here;
            if granted == NanoUsd::ZERO {
                break;
            }
        }
        granted
    }

    /// Gives back a reservation, and books what was spent of it, here and above.
    pub fn settle(&self, reserved: NanoUsd, spent: NanoUsd) {
        for books in self.bounds.iter() {
            lock(books).settle(reserved, spent);
        }
    }

    /// What was spent.
    pub fn spent(&self) -> NanoUsd {
        self.books().spent
    }

    /// What is reserved by calls under way.
    pub fn reserved(&self) -> NanoUsd {
        self.books().reserved
    }

    /// What was spent and what is reserved, together and at one moment: never beyond the ceiling,
    /// unless a provider billed more than was reserved.
    pub fn committed(&self) -> NanoUsd {
        let books = self.books();
        books.spent + books.reserved
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        lock(&self.bounds[0])
    }
}

fn lock(books: &Mutex<Books>) -> MutexGuard<'_, Books> {
    books.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Books {
    fn take(&mut self, want: NanoUsd, least: NanoUsd) -> NanoUsd {
        let granted = want.min(self.ceiling.saturating_sub(self.spent + self.reserved));
        if granted < least {
            return NanoUsd::ZERO;
        }
        self.reserved += granted;
        granted
    }

    fn settle(&mut self, reserved: NanoUsd, spent: NanoUsd) {
        self.reserved = self.reserved.saturating_sub(reserved);
        self.spent += spent;
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
