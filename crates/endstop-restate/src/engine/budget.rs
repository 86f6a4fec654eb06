//! A budget that runs of all workers share, as a virtual object: each run reserves its ceiling when
//! it begins, and settles what it has spent when it has ended.

use endstop::NanoUsd;
use restate_sdk::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The state of a budget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Books {
    /// The cost of the runs that have ended.
    pub(crate) spent: NanoUsd,
    /// The ceilings of the runs that have not.
    pub(crate) reserved: BTreeMap<String, NanoUsd>,
}

impl Books {
    fn committed(&self) -> NanoUsd {
        self.reserved.values().fold(self.spent, |sum, reserved| sum + *reserved)
    }

    /// Reserves what a run wants, or what is left. A run that asks again gets the same.
    fn reserve(&mut self, run: String, want: NanoUsd, ceiling: NanoUsd) -> NanoUsd {
        let left = ceiling.saturating_sub(self.committed());
        *self.reserved.entry(run).or_insert(want.min(left))
    }

    /// Returns the reservation of a run, and books what it has spent. A second time does nothing.
    fn settle(&mut self, run: &str, spent: Option<NanoUsd>) {
        if let Some(reserved) = self.reserved.remove(run) {
            // Of an unknown cost the reservation is the most that the run's own ceiling let it spend.
            self.spent += spent.unwrap_or(reserved);
        }
    }
}

/// A request for a part of a budget.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Reserve {
    pub(crate) run: String,
    pub(crate) want: NanoUsd,
    pub(crate) ceiling: NanoUsd,
}

/// The cost of a run that has ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Settle {
    pub(crate) run: String,
    /// `None` if it is unknown; then the whole reservation counts.
    pub(crate) spent: Option<NanoUsd>,
}

const BOOKS: &str = "books";

/// The virtual object of a budget.
pub(crate) struct EndstopBudget;

#[restate_sdk::object]
impl EndstopBudget {
    /// Reserves the ceiling of a run, or what is left of the budget.
    #[handler]
    async fn reserve(
        &self,
        ctx: ObjectContext<'_>,
        request: Json<Reserve>,
    ) -> HandlerResult<Json<NanoUsd>> {
        let Json(Reserve { run, want, ceiling }) = request;
        let mut books = ctx.get::<Json<Books>>(BOOKS).await?.unwrap_or_default().into_inner();
        let granted = books.reserve(run, want, ceiling);
        ctx.set(BOOKS, Json(books));
        Ok(Json(granted))
    }

    /// Books the cost of a run that has ended, and returns the rest of its reservation.
    #[handler]
    async fn settle(&self, ctx: ObjectContext<'_>, request: Json<Settle>) -> HandlerResult<()> {
        let Json(Settle { run, spent }) = request;
        let mut books = ctx.get::<Json<Books>>(BOOKS).await?.unwrap_or_default().into_inner();
        books.settle(&run, spent);
        ctx.set(BOOKS, Json(books));
        Ok(())
    }

    /// Returns the state of the budget.
    #[handler]
    async fn balance(&self, ctx: SharedObjectContext<'_>) -> HandlerResult<Json<Books>> {
        Ok(ctx.get::<Json<Books>>(BOOKS).await?.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_never_exceed_the_ceiling() {
        let mut books = Books::default();
        let ceiling = NanoUsd(100);
        assert_eq!(books.reserve("a".to_owned(), NanoUsd(60), ceiling), NanoUsd(60));
        assert_eq!(books.reserve("b".to_owned(), NanoUsd(60), ceiling), NanoUsd(40));
        assert_eq!(books.reserve("c".to_owned(), NanoUsd(60), ceiling), NanoUsd(0));
        // The second request of a run is the same reservation.
        assert_eq!(books.reserve("a".to_owned(), NanoUsd(60), ceiling), NanoUsd(60));
        books.settle("a", Some(NanoUsd(10)));
        books.settle("a", Some(NanoUsd(10)));
        assert_eq!((books.spent, books.committed()), (NanoUsd(10), NanoUsd(50)));
        assert_eq!(books.reserve("d".to_owned(), NanoUsd(90), ceiling), NanoUsd(50));
        // The grant was less than was asked for, and no more than the grant is booked.
        books.settle("b", None);
        books.settle("d", None);
        assert_eq!((books.spent, books.committed()), (NanoUsd(100), NanoUsd(100)));
    }
}
