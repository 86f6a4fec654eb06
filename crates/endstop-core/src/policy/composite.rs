//! `composite`: stops when any of its members stops, or when all of them do.
//!
//! ```
//! use endstop_core::Registry;
//! let registry = Registry::new();
//! registry.build(&serde_json::json!({"composite": {
//!     "policies": ["final_pattern", {"name": "confidence", "config": {"confidence_threshold": 0.9}}],
//!     "require_all": true,
//! }}))?;
//! // The same, shorter:
//! registry.build(&serde_json::json!({"all": ["final_pattern", {"confidence": {"confidence_threshold": 0.9}}]}))?;
//! # Ok::<(), endstop_core::policy::PolicyError>(())
//! ```
//!
//! An OR answers with the first member that stops, in list order. An AND answers with the first
//! answer that is not blank; a member that gives up (a negative streak) counts as agreeing.
//!
//! Source: `composite` of RLM Code. Differences: members may be nested and configured, and an
//! unknown name or an empty list is an error.

use super::config::{Config, PolicyError};
use super::verdict::{BoxPolicy, StepContext, StepResult, Stop, TerminationPolicy, Verdict};
use crate::run_data::RunData;
use crate::visible::is_blank;
use serde_json::{Value, json};

const NAME: &str = "composite";

/// Several policies that decide together. Configuration builds it as `composite`, `any` or `all`.
#[derive(Clone, Debug)]
pub struct Composite {
    members: Vec<BoxPolicy>,
    /// Number of members that must stop.
    quorum: usize,
    /// `true` if one member decides alone, which it may also do while the text is streamed.
    any: bool,
}

impl Composite {
    /// One-line description.
    pub const DESCRIPTION: &'static str =
        "Combine policies: stop when any of them does, or when all do";

    /// Returns the configuration that applies if nothing is configured: `policies` `final_pattern`
    /// and `reward_threshold`, `require_all` false.
    pub fn defaults() -> Value {
        json!({"policies": ["final_pattern", "reward_threshold"], "require_all": false})
    }

    /// Builds the policy from its configuration. `build` builds a member from its specification, and
    /// `names` are the policies that it knows.
    ///
    /// # Errors
    /// The configuration or a member's specification is not valid.
    pub fn from_config(
        config: &Value,
        names: &[&str],
        build: impl Fn(&Value) -> Result<BoxPolicy, PolicyError>,
    ) -> Result<Composite, PolicyError> {
        let config = Config::new(NAME, config).map_err(|error| match config {
            Value::Array(_) => PolicyError::spec(
                "`composite` needs an object, for example {\"policies\": [\"final_pattern\"]}; a list belongs to `any` or `all`",
            ),
            _ => error,
        })?;
        config.only(&["policies", "require_all"])?;
        let defaults = Self::defaults();
        let list = config.get("policies").or_else(|| defaults.get("policies"));
        let specs = match list {
            Some(Value::Array(specs)) if !specs.is_empty() => specs,
            // An empty list is an error, because such a policy would never stop a run.
            _ => {
                let known = names.join(", ");
                let expected =
                    format!("a list of at least one policy (name or {{name, config}}; {known})");
                return Err(config.bad("policies", &expected));
            }
        };
        let members = specs.iter().map(build).collect::<Result<Vec<_>, _>>()?;
        Ok(if config.flag("require_all", false)? {
            Composite::all(members)
        } else {
            Composite::any(members)
        })
    }

    /// Creates a policy that stops when any member stops. An empty list never stops.
    pub fn any(members: Vec<BoxPolicy>) -> Composite {
        Composite { members, quorum: 1, any: true }
    }

    /// Creates a policy that stops when all members stop. An empty list never stops.
    pub fn all(members: Vec<BoxPolicy>) -> Composite {
        let n = members.len();
        Composite::joined(n, members)
    }

    /// Creates a policy that stops when at least `n` members stop (0 counts as 1).
    pub fn at_least(n: usize, members: Vec<BoxPolicy>) -> Composite {
        if n <= 1 {
            return Composite::any(members);
        }
        Composite::joined(n, members)
    }

    fn joined(quorum: usize, mut members: Vec<BoxPolicy>) -> Composite {
        for member in &mut members {
            member.join_all();
        }
        // An empty list has a quorum of 0, which every step would reach; 1 is never reached.
        Composite { members, quorum: quorum.max(1), any: false }
    }

    /// Returns the answer of an AND: the first stop with an answer that is not blank, else the stop
    /// of the first member. The evidence lists all members.
    fn agreement(stops: Vec<Stop>) -> Option<Stop> {
        let evidence: Vec<String> =
            stops.iter().map(|s| format!("{}: {}", s.policy, s.evidence)).collect();
        let answered = stops.iter().position(|s| s.answer.as_deref().is_some_and(|a| !is_blank(a)));
        let mut chosen = stops.into_iter().nth(answered.unwrap_or(0))?;
        chosen.evidence = evidence.join("; ");
        Some(chosen)
    }
}

impl TerminationPolicy for Composite {
    fn name(&self) -> &str {
        NAME
    }

    fn description(&self) -> &str {
        Self::DESCRIPTION
    }

    fn default_config(&self) -> Value {
        Self::defaults()
    }

    fn needs(&self) -> Vec<RunData> {
        let mut needs: Vec<RunData> = self.members.iter().flat_map(BoxPolicy::needs).collect();
        needs.sort_unstable();
        needs.dedup();
        needs
    }

    fn should_terminate(&mut self, step: &StepResult, context: &StepContext) -> Verdict {
        let mut stops = Vec::new();
        let mut told = Vec::new();
        // Every member sees every step, even after one has stopped, because the state of a member
        // (a streak, a sum) must not depend on its position in the list.
        for member in &mut self.members {
            match member.should_terminate(step, context) {
                Verdict::Continue => {}
                Verdict::Tell(text) => {
                    if !told.contains(&text) {
                        told.push(text);
                    }
                }
                Verdict::Stop(stop) => stops.push(stop),
            }
        }
        // For an AND all stops are collected: its evidence lists the reason of each member.
        let decided = if stops.len() < self.quorum {
            None
        } else if self.any {
            stops.into_iter().next()
        } else {
            Composite::agreement(stops)
        };
        match decided {
            Some(stop) => Verdict::Stop(stop),
            // A message is sent only if the run continues; after a stop the model does not read it.
            None if told.is_empty() => Verdict::Continue,
            None => Verdict::Tell(told.join("\n")),
        }
    }

    fn begin_turn(&mut self) {
        for member in &mut self.members {
            member.begin_turn();
        }
    }

    fn on_delta(&mut self, piece: &str, context: &StepContext) -> Option<Stop> {
        // An AND needs the whole step: aborting for one member would hide the text from the others.
        if !self.any {
            return None;
        }
        // No early return: the other members must read the chunk, too.
        let mut first = None;
        for member in &mut self.members {
            let stop = member.on_delta(piece, context);
            first = first.or(stop);
        }
        first
    }

    fn on_text_complete(&mut self, text: &str, context: &StepContext) -> Option<Stop> {
        if !self.any {
            return None;
        }
        self.members.iter_mut().find_map(|member| member.on_text_complete(text, context))
    }

    fn join_all(&mut self) {
        for member in &mut self.members {
            member.join_all();
        }
    }

    fn reset(&mut self) {
        for member in &mut self.members {
            member.reset();
        }
    }
}
