//! Candidates of a backtest: detectors, policies and limits, each with a name.
//!
//! ```
//! use endstop_trajectory::backtest::Candidate;
//! let file = r#"[
//!     {"name": "three", "policy": {"repeat_call": {"times": 3}}},
//!     {"name": "tight", "limits": {"max_turns": 20, "max_unproductive_turns": 2}}
//! ]"#;
//! let candidates = Candidate::read(&serde_json::from_str(file)?)?;
//! assert_eq!(candidates[1].name, "tight");
//! assert_eq!(Candidate::reference()?.len(), 55);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::replay::Setting;
use endstop_core::detector::Rule;
use endstop_core::{Limits, PolicyError, Registry};
use serde_json::{Value, json};

/// A setting that is evaluated on recorded runs.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The name, as reports spell it.
    pub name: String,
    /// The setting.
    pub trial: Trial,
}

/// The setting of a candidate.
#[derive(Clone, Debug)]
pub enum Trial {
    /// A rule, evaluated over steps.
    Rule(Rule),
    /// Limits, a policy and rules, evaluated by the kernel.
    Kernel(Box<Setting>),
}

impl Candidate {
    /// Creates a candidate from a rule, with the rule's short name.
    pub fn rule(rule: Rule) -> Candidate {
        Candidate { name: rule.to_string(), trial: Trial::Rule(rule) }
    }

    /// Creates a candidate for the default limits, evaluated by the kernel.
    pub fn default_limits() -> Candidate {
        let setting = Setting::default();
        Candidate { name: "default limits".to_owned(), trial: Trial::Kernel(Box::new(setting)) }
    }

    /// Reads a list of `{name, policy}` and `{name, limits}`. A policy is a rule or any policy of
    /// the registry. Limits are those of a run; limits that are not given are off. The name is
    /// optional for a rule.
    ///
    /// # Errors
    /// Describes the first invalid candidate.
    pub fn read(list: &Value) -> Result<Vec<Candidate>, PolicyError> {
        let spec = |problem: String| PolicyError::BadSpec { problem };
        let list = list.as_array().ok_or_else(|| {
            spec(
                "expected a list of candidates, each an object of `name` and `policy` or `limits`"
                    .to_owned(),
            )
        })?;
        let mut read: Vec<Candidate> = Vec::with_capacity(list.len());
        for (nth, item) in list.iter().enumerate() {
            let place = |problem: String| spec(format!("candidate {}: {problem}", nth + 1));
            let candidate = Candidate::one(item).map_err(place)?;
            // Names identify candidates in reports, so they must be unique.
            if read.iter().any(|other| other.name == candidate.name) {
                return Err(place(format!("duplicate name `{}`", candidate.name)));
            }
            read.push(candidate);
        }
        Ok(read)
    }

    fn one(item: &Value) -> Result<Candidate, String> {
        // A rule without the surrounding object.
        let Some(fields) = item
            .as_object()
            .filter(|fields| fields.contains_key("policy") || fields.contains_key("limits"))
        else {
            return Candidate::of_policy(item, None);
        };
        if let Some(key) =
            fields.keys().find(|key| !["name", "policy", "limits"].contains(&key.as_str()))
        {
            return Err(format!("unknown key `{key}`; expected one of name, policy, limits"));
        }
        let name = match fields.get("name") {
            None => None,
            Some(Value::String(name)) if !name.is_empty() => Some(name.clone()),
            Some(other) => {
                return Err(format!("invalid `name` {other}: expected a string that is not empty"));
            }
        };
        let Some(limits) = fields.get("limits") else {
            return Candidate::of_policy(&fields["policy"], name);
        };
        let limits = limits.as_object().ok_or("invalid `limits`: expected an object")?;
        // Limits that are not given are off, so that the candidate evaluates only those that are.
        let mut setting = Setting { limits: Limits::none(), ..Setting::default() };
        for (key, value) in limits {
            setting.limits.set(key, value).map_err(|error| error.to_string())?;
        }
        if let Some(policy) = fields.get("policy") {
            // Built here only to report an error now; each run builds its own policy.
            Registry::new().build(policy).map_err(|error| error.to_string())?;
            setting.policy = Some(policy.clone());
        }
        let name = name.ok_or("missing `name`: limits require a name")?;
        Ok(Candidate { name, trial: Trial::Kernel(Box::new(setting)) })
    }

    /// Creates a candidate from a policy: as a rule if it is one, otherwise for the kernel.
    fn of_policy(spec: &Value, name: Option<String>) -> Result<Candidate, String> {
        // A rule needs no kernel, which makes the evaluation of many runs much faster.
        if let Ok(rule) = Rule::from_spec(spec) {
            let name = name.unwrap_or_else(|| rule.to_string());
            return Ok(Candidate { name, trial: Trial::Rule(rule) });
        }
        let policy = Registry::new().build(spec).map_err(|error| error.to_string())?;
        let name =
            name.unwrap_or_else(|| endstop_core::TerminationPolicy::name(&policy).to_owned());
        let setting =
            Setting { limits: Limits::none(), policy: Some(spec.clone()), watches: Vec::new() };
        Ok(Candidate { name, trial: Trial::Kernel(Box::new(setting)) })
    }

    /// Parses a policy in command-line syntax: `repeat_call={"times": 3}`, `final_pattern`, or a rule
    /// by the name that reports show, `stuck(3,4,-,7)`.
    ///
    /// # Errors
    /// The policy is unknown, or its configuration is invalid.
    pub fn parse(text: &str) -> Result<Candidate, PolicyError> {
        let spec = Registry::parse_text(text)?;
        Candidate::of_policy(&spec, None).map_err(|problem| PolicyError::BadSpec { problem })
    }

    /// Returns the candidates that a backtest uses unless others are requested.
    ///
    /// # Errors
    /// None in practice; the candidates are parsed like any others.
    pub fn defaults() -> Result<Vec<Candidate>, PolicyError> {
        let stuck = |repeats: u32| json!({"stuck": {"repeats": repeats, "same_errors": repeats + 2, "stale": repeats + 1}});
        let times = |rule: &str, times: u32| json!({rule: {"times": times}});
        let mut list = vec![
            stuck(1),
            stuck(2),
            stuck(4),
            times("repeat_call", 3),
            times("total_repeat", 3),
            times("same_error", 3),
            times("no_new", 2),
            json!({"any": [times("total_repeat", 3), times("same_error", 3)]}),
        ];
        // Plain turn caps, because a detector that does not beat them is not needed.
        list.extend([10, 20, 30, 50].map(|steps| json!({"max_steps": {"steps": steps}})));
        let mut all = Candidate::read(&Value::Array(list))?;
        all.push(Candidate::default_limits());
        Ok(all)
    }

    /// Returns the 55 policies of the reference implementation, under its names.
    ///
    /// # Errors
    /// None in practice; the candidates are parsed like any others.
    pub fn reference() -> Result<Vec<Candidate>, PolicyError> {
        let mut list = Vec::new();
        let mut add =
            |name: String, policy: Value| list.push(json!({"name": name, "policy": policy}));
        let mut times = |rule: &str, most: std::ops::RangeInclusive<u32>| {
            for n in most {
                add(format!("{rule}({n})"), json!({rule: {"times": n}}));
            }
        };
        times("repeat_call", 2..=6);
        times("repeat_call_res", 2..=4);
        times("total_repeat", 2..=5);
        times("alternate", 2..=3);
        times("same_error", 2..=5);
        times("any_error", 2..=5);
        times("same_text", 2..=3);
        times("no_new", 1..=3);
        for period in [3, 4] {
            add(format!("cycle({period},2)"), json!({"cycle": {"period": period, "times": 2}}));
        }
        for n in [3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 25, 30, 40] {
            add(format!("max_steps({n})"), json!({"max_steps": {"steps": n}}));
        }
        // The same pattern as the reference implementation, so that the figures can be compared.
        let pattern = r"(?m)^[ \t]*\**FINAL(?: ANSWER)?\**[ \t]*:";
        add("final_pattern".to_owned(), json!({"text_mention": {"pattern": pattern}}));
        for r in ["0.5", "0.9", "1.0"] {
            add(
                format!("reward_ge({r})"),
                json!({"reward": {"at_least": r.parse::<f64>().unwrap_or(1.0)}}),
            );
        }
        for usd in [0.05, 0.1, 0.2, 0.3] {
            add(format!("cost_usd({usd})"), json!({"cost": {"usd": usd}}));
        }
        let n = |rule: &str, times: u32| json!({rule: {"times": times}});
        let mut any =
            |name: &str, rules: Vec<Value>| add(format!("any[{name}]"), json!({"any": rules}));
        any(
            "repeat_call(3),alternate(2),same_error(3)",
            vec![n("repeat_call", 3), n("alternate", 2), n("same_error", 3)],
        );
        any(
            "repeat_call(3),alternate(3),same_error(4),no_new(3)",
            vec![n("repeat_call", 3), n("alternate", 3), n("same_error", 4), n("no_new", 3)],
        );
        any(
            "repeat_call(4),same_error(5),max_steps(30)",
            vec![n("repeat_call", 4), n("same_error", 5), json!({"max_steps": {"steps": 30}})],
        );
        any("total_repeat(3),same_error(3)", vec![n("total_repeat", 3), n("same_error", 3)]);
        Candidate::read(&Value::Array(list))
    }

    /// Returns the grid of a sweep: each detector with several thresholds, and caps on turns.
    ///
    /// # Errors
    /// None in practice; the candidates are parsed like any others.
    pub fn grid() -> Result<Vec<Candidate>, PolicyError> {
        let mut list: Vec<Value> = Vec::new();
        for rule in
            ["repeat_call", "repeat_call_res", "total_repeat", "same_error", "any_error", "no_new"]
        {
            for times in 2..=8 {
                list.push(json!({rule: {"times": times}}));
            }
        }
        for times in 2..=4 {
            list.push(json!({"alternate": {"times": times}}));
            list.push(json!({"same_text": {"times": times}}));
        }
        for steps in [4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 75, 100] {
            list.push(json!({"max_steps": {"steps": steps}}));
        }
        for (repeats, same_errors, stale, failures) in [
            (1, 3, 2, 5),
            (2, 3, 3, 6),
            (2, 4, 3, 7),
            (2, 5, 4, 8),
            (3, 5, 4, 8),
            (3, 6, 5, 10),
            (4, 6, 6, 12),
            (6, 8, 8, 15),
        ] {
            let config = json!({
                "repeats": repeats,
                "same_errors": same_errors,
                "stale": stale,
                "failures": failures,
            });
            list.push(json!({"stuck": config}));
        }
        Candidate::read(&Value::Array(list))
    }
}
