//! The interface of an account that outlives the process, for example the ceiling of a day.
//!
//! ```text
//! store.take(want, least)?;      // reserves, or refuses as an account in memory does
//! store.settle(held, spent);     // returns the reservation, books what was spent of it
//! ```

use super::amount::{Amount, Refusal};
use std::fmt::Debug;

/// An account that other processes share. Each method is one transaction.
pub(crate) trait Store: Debug + Send + Sync {
    /// Reserves `want`, or what is left if that is at least `least`.
    fn take(&self, want: Amount, least: Amount) -> Result<Amount, Refusal>;

    /// Returns a reservation and books what was spent of it. If the store cannot be written now, the
    /// amounts are written with the next transaction.
    fn settle(&self, reserved: Amount, spent: Amount);

    /// `true` if the account has a ceiling on money.
    fn bounds_cost(&self) -> bool;

    /// `true` if the account has a ceiling on tokens.
    fn bounds_tokens(&self) -> bool;

    /// Remembers a journalled run whose spending this account includes.
    fn saw_run(&self, id: &str);

    /// Books the earlier spending of a resumed run, unless the account already includes it.
    fn resume_run(&self, id: &str, spent: Amount);
}
