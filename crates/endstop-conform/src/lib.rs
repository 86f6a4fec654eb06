//! A conformance suite that judges how the run of any LLM agent ends. It starts a program against a scripted provider on
//! loopback, observes it from outside, and gives each check of the text "How a run ends" (`docs/src/spec` of the repository) a
//! verdict.
//!
//! ```
//! use endstop_conform::{CHECKS, case, profile};
//! let case = case::find("cut-text").unwrap();
//! assert_eq!(case.checks, ["T-01", "P-01"]);
//! assert!(CHECKS.iter().any(|check| check.id == "T-01" && check.must));
//! assert!(profile::find("generic").is_ok());
//! ```
//!
//! - [`case`]: the scenarios, as data: what the provider answers, and what the user does.
//! - [`profile`]: the programs, as data: their arguments, the place of their verdict, their capabilities.
//! - [`provider`]: the scripted provider, in the wire format that the client speaks.
//! - [`program`]: a run of a program in a fresh folder, its signals, and its processes.
//! - [`evidence`]: what was observed.
//! - [`checks`]: the table of checks, and the function of each.
//! - [`suite`]: all cases of a program, and its level.
//! - [`report`]: the result as text, JSON, JUnit, Markdown, a page and a badge.

pub mod case;
pub mod checks;
pub mod evidence;
pub mod profile;
pub mod program;
pub mod provider;
pub mod report;
pub mod suite;
mod vocabulary;

pub use checks::{CHECKS, Check, Level, Severity, Verdict};
pub use vocabulary::{BadData, Capability, Tool};
