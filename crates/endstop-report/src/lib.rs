//! The reports of backtests and audits, as the command `endstop` and the Python package show them:
//! text for a terminal, JSON, and HTML pages that load nothing.
//!
//! ```
//! use endstop_report::audit::{self, Report};
//! use endstop_report::html::Escaper;
//! assert_eq!(audit::lines(&Report::default())[0], "No sessions found.");
//! assert!(audit::page(&Report::default(), &Escaper::default()).starts_with("<!doctype html>"));
//! ```
//!
//! The crate reads no file, no clock and no environment: it formats what it is given.

pub mod advice;
pub mod amounts;
pub mod audit;
pub mod backtest;
pub mod chart;
pub mod date;
pub mod html;
pub mod visible;
