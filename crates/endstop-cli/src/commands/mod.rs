//! The commands, one file for each.

#[cfg(feature = "acp")]
pub(crate) mod acp;
pub(crate) mod assert;
pub(crate) mod audit;
pub(crate) mod backtest;
pub(crate) mod branch;
pub(crate) mod compare;
mod compare_runs;
pub(crate) mod config;
pub(crate) mod decide;
pub(crate) mod demo;
pub(crate) mod detect;
pub(crate) mod explain;
pub(crate) mod guard;
mod guard_listen;
pub(crate) mod live;
mod meaning;
mod one_run;
pub(crate) mod pages;
pub(crate) mod pending;
pub(crate) mod policies;
mod print_env;
pub(crate) mod providers;
pub(crate) mod prune;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod serve;
mod serve_demo;
#[cfg(feature = "restate")]
mod serve_durable;
pub(crate) mod simulate;
pub(crate) mod spend;
mod surroundings;
pub(crate) mod trust;
#[cfg(feature = "restate")]
pub(crate) mod worker;
