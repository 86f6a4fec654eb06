//! Everything that the user reads: the card of an ending, advice, live output, and the reports of
//! `explain`, `assert`, `audit` and `backtest`.

pub(crate) mod advice;
pub(crate) mod amounts;
pub(crate) mod assertion;
pub(crate) mod audit;
pub(crate) mod backtest;
pub(crate) mod card;
pub(crate) mod date;
pub(crate) mod explain;
pub(crate) mod html;
pub(crate) mod junit;
pub(crate) mod screen;
