//! Determines which parts of a rule or a setting can be evaluated on a run whose recording lacks
//! data.
//!
//! ```text
//! let has = AvailableData::of(&run);
//! if has.setting(&setting) == Coverage::None { return Err("it cannot fire") }
//! let rule = without_results(&rule);   // any[repeat_call(3),same_error(3)] as any[repeat_call(3)]
//! ```
//!
//! `any`: members that need missing data are dropped; the rest still apply. `all` and `not` cannot
//! be evaluated if a member needs missing data.

use crate::model::Trajectory;
use crate::setting::Setting;
use crate::time::unix_ms;
use endstop_core::detector::Rule;
use endstop_core::limits::{LimitValue, Needs, TABLE, Unit};
use endstop_core::{Registry, RunData, TerminationPolicy as _};
use serde_json::{Map, Value};

/// The kinds of data that a recording contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AvailableData {
    cost: bool,
    reward: bool,
    tokens: bool,
    times: bool,
    results: bool,
}

/// The extent to which required data is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coverage {
    /// All required data is available.
    Whole,
    /// Some of it is available; the members that need the rest are dropped.
    Part,
    /// None of it is available, so the rule or setting cannot fire.
    None,
}

impl Coverage {
    /// Combines the members of an `any`.
    fn any(sights: impl IntoIterator<Item = Coverage>) -> Coverage {
        let joined =
            sights.into_iter().reduce(|all, one| if all == one { all } else { Coverage::Part });
        joined.unwrap_or(Coverage::Whole)
    }
}

impl AvailableData {
    pub(crate) fn of(run: &Trajectory<'_>) -> AvailableData {
        AvailableData {
            cost: run.turns().any(|step| step.cost_usd.is_some()),
            reward: run.turns().any(|step| step.reward.is_some()),
            tokens: run.turns().any(|step| step.tokens().is_some()),
            // A time that cannot be parsed is not one.
            times: run.turns().any(|step| step.at.as_deref().and_then(unix_ms).is_some()),
            results: !run.lacks_results(),
        }
    }

    /// Returns the data of a recording that lacks only the cost of its steps.
    pub(crate) fn all_but_cost() -> AvailableData {
        AvailableData { cost: false, reward: true, tokens: true, times: true, results: true }
    }

    /// `true` if the recording lacks any of this data.
    fn lacks(self, data: &[RunData]) -> bool {
        data.iter().any(|data| match data {
            RunData::Cost => !self.cost,
            RunData::Tokens => !self.tokens,
            RunData::Times => !self.times,
            RunData::Results => !self.results,
            RunData::Reward => !self.reward,
            // No format records a confidence for each step.
            RunData::Confidence => true,
        })
    }

    /// Returns the data available to a rule.
    pub(crate) fn rule(self, rule: &Rule) -> Coverage {
        if let Rule::Any(rules) = rule {
            return Coverage::any(rules.iter().map(|rule| self.rule(rule)));
        }
        if self.lacks(&rule.needs()) { Coverage::None } else { Coverage::Whole }
    }

    /// Returns the data available to limits, a policy and rules.
    pub(crate) fn setting(self, setting: &Setting) -> Coverage {
        // A choice of the tokens that count limits nothing by itself.
        let rows = TABLE.iter().filter(|row| row.unit != Unit::TokensCounted);
        let limits = rows.filter_map(|row| match row.needs {
            Needs::Data(data) if row.value(&setting.limits) != LimitValue::Off => {
                Some(if self.lacks(data) { Coverage::None } else { Coverage::Whole })
            }
            _ => None,
        });
        let policy = setting.policy.iter().map(|spec| self.policy(spec));
        let watches = setting.watches.iter().map(|watch| self.rule(&watch.rule));
        Coverage::any(limits.chain(policy).chain(watches))
    }

    fn policy(self, spec: &Value) -> Coverage {
        match reduced(spec, &|policy| self.lacks(&needs(policy))) {
            None => Coverage::None,
            Some(rest) if rest == *spec => Coverage::Whole,
            Some(_) => Coverage::Part,
        }
    }
}

/// Reduces a rule to the members that do not read tool results; `None` if nothing remains.
pub(crate) fn without_results(rule: &Rule) -> Option<Rule> {
    match rule {
        Rule::Any(rules) => {
            let rest: Vec<Rule> = rules.iter().filter_map(without_results).collect();
            (!rest.is_empty()).then_some(Rule::Any(rest))
        }
        rule => (!rule.needs_results()).then(|| rule.clone()),
    }
}

/// As [`without_results`], for a policy as configuration spells it.
pub(crate) fn policy_without_results(spec: &Value) -> Option<Value> {
    reduced(spec, &|policy| needs(policy).contains(&RunData::Results))
}

/// Returns the data that a policy requires; none if it cannot be built, which is reported
/// elsewhere.
fn needs(spec: &Value) -> Vec<RunData> {
    Registry::new().build(spec).map_or(Vec::new(), |policy| policy.needs())
}

/// Removes from a policy's configuration the members that lack data; `None` if nothing remains.
fn reduced(spec: &Value, lacks: &dyn Fn(&Value) -> bool) -> Option<Value> {
    let Value::Object(map) = spec else {
        return (!lacks(spec)).then(|| spec.clone());
    };
    let members = |specs: &[Value], all: bool| -> Option<Value> {
        let rest: Vec<Value> = specs.iter().filter_map(|spec| reduced(spec, lacks)).collect();
        // An `all` with a member that cannot be evaluated would fire too early without it.
        let judges = if all { rest.len() == specs.len() } else { !rest.is_empty() };
        judges.then_some(Value::Array(rest))
    };
    // Either `{"name", "config"}` or a single member with the policy's name.
    let (name, config) = match (map.get("name"), map.iter().next()) {
        (Some(Value::String(name)), _) => (name, map.get("config").unwrap_or(&Value::Null)),
        (_, Some((name, config))) => (name, config),
        (_, None) => return Some(spec.clone()),
    };
    match (name.as_str(), config) {
        (key @ ("any" | "all"), Value::Array(specs)) => {
            let rest = members(specs, key == "all")?;
            Some(Value::Object(Map::from_iter([(key.to_owned(), rest)])))
        }
        // A `not` of a reduced policy would fire when the dropped member should have fired.
        ("not", inner) => (reduced(inner, lacks)? == *inner).then(|| spec.clone()),
        ("composite", config) => {
            let all = config["require_all"] == Value::Bool(true);
            // If no policies are given, the default ones apply, and they lack nothing.
            let Some(specs) = config["policies"].as_array() else { return Some(spec.clone()) };
            let rest = members(specs, all)?;
            if rest == config["policies"] {
                return Some(spec.clone());
            }
            let mut config = config.clone();
            config["policies"] = rest;
            Some(Value::Object(Map::from_iter([("composite".to_owned(), config)])))
        }
        _ => (!lacks(spec)).then(|| spec.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reduced_policy_can_be_built() {
        for (spec, left) in [
            (json!("final_pattern"), Some(json!("final_pattern"))),
            (json!("stuck"), None),
            (json!({"same_error": {"times": 2}}), None),
            (json!({"name": "no_new", "config": {"times": 2}}), None),
            // Only the results tell if a call has succeeded.
            (json!({"tool_called": {"name": "x"}}), None),
            (json!({"text_mention": {"text": "x"}}), Some(json!({"text_mention": {"text": "x"}}))),
            (json!({"any": ["final_pattern", "stuck"]}), Some(json!({"any": ["final_pattern"]}))),
            (json!({"any": ["no_new", "stuck"]}), None),
            (json!({"all": ["final_pattern", "stuck"]}), None),
            (
                json!({"all": ["final_pattern", {"any": ["stuck", "same_text"]}]}),
                Some(json!({"all": ["final_pattern", {"any": ["same_text"]}]})),
            ),
            // The opposite of a detector would fire whenever the detector cannot.
            (json!({"not": "stuck"}), None),
            (json!({"not": {"any": ["stuck", "same_text"]}}), None),
            (json!({"not": "same_text"}), Some(json!({"not": "same_text"}))),
            (
                json!({"composite": {"policies": ["final_pattern", "stuck"]}}),
                Some(json!({"composite": {"policies": ["final_pattern"]}})),
            ),
            (
                json!({"name": "composite", "config": {"policies": ["final_pattern", "stuck"], "require_all": true}}),
                None,
            ),
        ] {
            let registry = Registry::new();
            assert!(registry.build(&spec).is_ok(), "{spec}");
            assert_eq!(policy_without_results(&spec), left, "{spec}");
            assert!(left.is_none_or(|left| registry.build(&left).is_ok()), "{spec}");
        }
    }

    #[test]
    fn any_members_have_partial_data() {
        let has = AvailableData {
            cost: false,
            reward: true,
            tokens: false,
            times: false,
            results: false,
        };
        let sight = |spec: Value| has.rule(&Rule::from_spec(&spec).unwrap());
        assert_eq!(sight(json!("repeat_call")), Coverage::Whole);
        assert_eq!(sight(json!({"cost": {"usd": 1}})), Coverage::None);
        assert_eq!(sight(json!({"any": ["cost", "stuck"]})), Coverage::None);
        assert_eq!(sight(json!({"any": ["cost", "reward"]})), Coverage::Part);
        assert_eq!(
            sight(json!({"any": ["repeat_call", {"any": ["stuck", "reward"]}]})),
            Coverage::Part
        );
        assert_eq!(has.setting(&Setting::default()), Coverage::Part);
        assert_eq!(has.policy(&json!({"any": ["final_pattern", "confidence"]})), Coverage::Part);
        assert_eq!(has.policy(&json!("reward_threshold")), Coverage::Whole);
        let both = json!({"name": "composite", "config": {"policies": ["final_pattern"]}});
        assert_eq!(has.policy(&both), Coverage::Whole);
        let blind = AvailableData { reward: false, ..has };
        assert_eq!(blind.policy(&json!("reward_threshold")), Coverage::None);
    }
}
