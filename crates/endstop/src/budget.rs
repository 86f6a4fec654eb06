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
//! ```

use endstop_core::NanoUsd;
use std::sync::{Arc, Mutex, PoisonError};

/// A ceiling on what several runs spend together.
#[derive(Clone, Debug)]
pub struct SharedBudget(Arc<Mutex<Books>>);

#[derive(Debug)]
struct Books {
    ceiling: NanoUsd,
    spent: NanoUsd,
    reserved: NanoUsd,
}

impl SharedBudget {
    /// A budget with nothing spent.
    pub fn new(ceiling: NanoUsd) -> SharedBudget {
        SharedBudget(Arc::new(Mutex::new(Books {
            ceiling,
            spent: NanoUsd::ZERO,
            reserved: NanoUsd::ZERO,
        })))
    }

    /// Reserves `want`, or what is left where that is at least `least`; zero is a refusal.
    pub fn reserve(&self, want: NanoUsd, least: NanoUsd) -> NanoUsd {
        let mut books = self.books();
        let left = books.ceiling.saturating_sub(books.spent + books.reserved);
        let granted = want.min(left);
        if granted < least || granted == NanoUsd::ZERO {
            return NanoUsd::ZERO;
        }
        books.reserved += granted;
        granted
    }

    /// Gives back a reservation, and books what was spent of it.
    pub fn settle(&self, reserved: NanoUsd, spent: NanoUsd) {
        let mut books = self.books();
        books.reserved = books.reserved.saturating_sub(reserved);
        books.spent += spent;
    }

    /// What was spent.
    pub fn spent(&self) -> NanoUsd {
        self.books().spent
    }

    /// What is reserved by calls under way.
    pub fn reserved(&self) -> NanoUsd {
        self.books().reserved
    }

    fn books(&self) -> std::sync::MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
