//! Detectors: rules that recognise from the steps of a run that it makes no progress, for example
//! because it repeats a call. Most rules see each step once, at its end; `chanting` also reads the
//! text while it is streamed.
//!
//! ```
//! use endstop_core::detector::{RuleSet, Rule};
//! use serde_json::json;
//! let rules = [json!({"repeat_call": {"times": 2}}), json!("no_new")];
//! let rules = rules.iter().map(Rule::from_spec).collect::<Result<Vec<_>, _>>()?;
//! let mut rule_set = RuleSet::new(rules);
//! for _ in 0..2 {
//!     rule_set.call("read", r#"{"path": "a.txt"}"#);
//!     rule_set.result("read", "12 lines", false);
//!     rule_set.end();
//! }
//! // The first rule fired at the second step; the other has not fired yet.
//! assert_eq!(rule_set.fired(), [Some(2), None]);
//! # Ok::<(), endstop_core::PolicyError>(())
//! ```
//!
//! A rule is data: a name and numbers, as in a configuration file. A live run watches it in one of
//! four modes ([`Watch`](crate::Watch)) or uses it as its termination policy. A backtest evaluates
//! many rules over a recorded run at once ([`RuleSet`]); all of them share the facts of a step
//! ([`Facts`]), which are computed once.
//!
//! Source: the rules from `repeat_call` to `cost` fire at the same steps as in the reference
//! implementation that the figures of the backtest are compared with. Names and definitions are
//! those of the reference.

mod chanting;
mod facts;
mod mention;
mod policy;
mod rule;
mod rule_set;
mod sentence;
pub(crate) mod short_form;
mod state;
mod stuck;

pub use facts::{Facts, StepFacts};
pub use policy::DetectorPolicy;
pub use rule::{Rule, RuleInfo};
pub use rule_set::RuleSet;
pub(crate) use sentence::sentence;
pub use stuck::Stuck;
