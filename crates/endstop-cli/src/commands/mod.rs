//! The commands, one file or folder for each.

#[cfg(feature = "acp")]
pub(crate) mod acp;
pub(crate) mod assert;
pub(crate) mod audit;
pub(crate) mod backtest;
pub(crate) mod branch;
pub(crate) mod compare;
pub(crate) mod config;
pub(crate) mod conform;
pub(crate) mod decide;
pub(crate) mod demo;
pub(crate) mod detect;
pub(crate) mod explain;
pub(crate) mod guard;
mod one_run;
pub(crate) mod pages;
pub(crate) mod policies;
pub(crate) mod prices;
pub(crate) mod providers;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod serve;
pub(crate) mod simulate;
pub(crate) mod spend;
pub(crate) mod trust;
#[cfg(feature = "restate")]
pub(crate) mod worker;
