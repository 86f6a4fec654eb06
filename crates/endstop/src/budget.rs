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
pub struct SharedBudget(Arc<Node>);

#[derive(Debug)]
struct Node {
    books: Mutex<Books>,
    above: Vec<SharedBudget>,
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
        SharedBudget::below(ceiling, Vec::new())
    }

    /// A budget with a ceiling of its own within this one.
    #[must_use]
    pub fn part(&self, ceiling: NanoUsd) -> SharedBudget {
        SharedBudget::below(ceiling, vec![self.clone()])
    }

    /// A budget that both bound.
    pub(crate) fn both(one: SharedBudget, other: SharedBudget) -> SharedBudget {
        SharedBudget::below(NanoUsd(u64::MAX), vec![one, other])
    }

    fn below(ceiling: NanoUsd, above: Vec<SharedBudget>) -> SharedBudget {
        let (spent, reserved) = (NanoUsd::ZERO, NanoUsd::ZERO);
        SharedBudget(Arc::new(Node {
            books: Mutex::new(Books { ceiling, spent, reserved }),
            above,
        }))
    }

    /// Reserves `want`, or what is left here and above where that is at least `least`; zero is a
    /// refusal.
    pub fn reserve(&self, want: NanoUsd, least: NanoUsd) -> NanoUsd {
        let mut granted = {
            let mut books = self.books();
            let left = books.ceiling.saturating_sub(books.spent + books.reserved);
            let granted = want.min(left);
            if granted < least || granted == NanoUsd::ZERO {
                return NanoUsd::ZERO;
            }
            books.reserved += granted;
            granted
        };
        // No two books are held at once. A sibling may be refused for what is given back a moment
        // later; no ceiling is passed.
        for (at, above) in self.0.above.iter().enumerate() {
            let there = above.reserve(granted, least);
            let back = granted.saturating_sub(there);
            if back > NanoUsd::ZERO {
                self.books().settle(back, NanoUsd::ZERO);
                for earlier in &self.0.above[..at] {
                    earlier.settle(back, NanoUsd::ZERO);
                }
                granted = there;
            }
            if granted == NanoUsd::ZERO {
                break;
            }
        }
        granted
    }

    /// Gives back a reservation, and books what was spent of it, here and above.
    pub fn settle(&self, reserved: NanoUsd, spent: NanoUsd) {
        self.books().settle(reserved, spent);
        for above in &self.0.above {
            above.settle(reserved, spent);
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
        self.0.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
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
        let both = SharedBudget::both(one.clone(), other.clone());
        assert_eq!(both.reserve(usd(50), usd(10)), NanoUsd::ZERO);
        for budget in [&both, &one, &other] {
            assert_eq!(budget.reserved(), NanoUsd::ZERO);
        }
        assert_eq!(both.reserve(usd(50), usd(1)), usd(5));
        assert_eq!((one.reserved(), other.reserved()), (usd(5), usd(5)));
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
