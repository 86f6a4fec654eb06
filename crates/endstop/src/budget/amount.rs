//! Amounts of money and tokens, and refusals to reserve them.
//!
//! ```
//! use endstop::budget::Amount;
//! use endstop::NanoUsd;
//! let amount = Amount { usd: NanoUsd::from_usd(0.5), tokens: 1_000 };
//! assert_ne!(amount, Amount::ZERO);
//! ```

use endstop_core::{BudgetAccount, NanoUsd};

/// An amount of money and tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Money.
    pub usd: NanoUsd,
    /// Prompt and generated tokens together.
    pub tokens: u64,
}

impl Amount {
    /// No money and no tokens.
    pub const ZERO: Amount = Amount { usd: NanoUsd::ZERO, tokens: 0 };

    pub(crate) fn saturating_sub(self, other: Amount) -> Amount {
        let tokens = self.tokens.saturating_sub(other.tokens);
        Amount { usd: self.usd.saturating_sub(other.usd), tokens }
    }

    pub(crate) fn add(self, other: Amount) -> Amount {
        let tokens = self.tokens.saturating_add(other.tokens);
        Amount { usd: self.usd + other.usd, tokens }
    }

    pub(crate) fn min(self, other: Amount) -> Amount {
        Amount { usd: self.usd.min(other.usd), tokens: self.tokens.min(other.tokens) }
    }

    /// `true` if this is at least as much of both.
    pub(crate) fn covers(self, other: Amount) -> bool {
        self.usd >= other.usd && self.tokens >= other.tokens
    }
}

impl From<NanoUsd> for Amount {
    fn from(usd: NanoUsd) -> Amount {
        Amount { usd, tokens: 0 }
    }
}

/// A refused reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The part of the wanted amount that is left.
    pub left: Amount,
    /// The account that refused.
    pub account: BudgetAccount,
    /// The reason why the store of the budget could not be asked. Then it is not known how much is
    /// left, and a run must not continue without a limit.
    pub failure: Option<Box<StoreFailure>>,
}

/// The store of a budget cannot be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct StoreFailure {
    /// Description of the problem and of how to fix it.
    pub problem: String,
}

/// The value of a ceiling that is not set.
pub(crate) const NO_CEILING: Amount = Amount { usd: NanoUsd(u64::MAX), tokens: u64::MAX };
