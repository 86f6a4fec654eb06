//! Everything that the user reads: the card of an ending, advice, live output, and the reports of
//! `explain` and `assert`. Those of `audit` and `backtest` are in `endstop-report`.

pub(crate) mod advice;
pub(crate) mod assertion;
pub(crate) mod branches;
pub(crate) mod card;
pub(crate) mod compare;
pub(crate) mod compare_runs;
pub(crate) mod date;
pub(crate) mod explain;
pub(crate) mod html;
pub(crate) mod junit;
pub(crate) mod parked;
pub(crate) mod screen;
pub(crate) mod spend;

pub(crate) use endstop_report::amounts;
