//! Detectors: small rules that tell from what a run's steps did that it goes nowhere. Each sees a step
//! once, at its end; one looks at the text while it is generated.
//!
//! ```
//! use endstop_core::detector::{Panel, Rule};
//! use serde_json::json;
//! let rules = [json!({"repeat_call": {"times": 2}}), json!("no_new")];
//! let rules = rules.iter().map(Rule::from_spec).collect::<Result<Vec<_>, _>>()?;
//! let mut panel = Panel::new(rules);
//! for _ in 0..2 {
//!     panel.call("read", r#"{"path": "a.txt"}"#);
//!     panel.result("12 lines", false);
//!     panel.end();
//! }
//! // The first rule fired at the second step, the other has not yet.
//! assert_eq!(panel.fired(), [Some(2), None]);
//! # Ok::<(), endstop_core::PolicyError>(())
//! ```
//!
//! A rule is data: a name and numbers, as configuration spells it. In a live run it is watched in one
//! of four modes ([`Watch`](crate::Watch)), or is a termination policy like any other; over recorded
//! runs the same rules are looked at all at once ([`Panel`]), since what a step did is computed once for
//! all of them ([`Facts`]).
//!
//! Source: `repeat_call` to `cost`, and what fires when, as in the reference implementation that the
//! backtest's figures are compared with; names and meaning are its own.

mod chanting;
mod facts;
mod mention;
mod panel;
mod policy;
mod rule;
mod state;
mod stuck;

pub use facts::{FactBook, Facts};
pub use panel::Panel;
pub use policy::DetectorPolicy;
pub use rule::{Rule, RuleInfo};
pub use stuck::Stuck;
