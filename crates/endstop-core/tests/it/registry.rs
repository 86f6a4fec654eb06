//! The policy registry, checked with the conformance vectors, and the errors of configuration.

use crate::vectors::{assert_differences, cases, id};
use endstop_core::TerminationPolicy;
use endstop_core::detector::Rule;
use endstop_core::registry::PolicyInfo;
use endstop_core::{BoxPolicy, PolicyError, Registry, StepContext, StepResult, Stop, Verdict};
use serde_json::{Value, json};

/// A policy that only has a name.
#[derive(Clone)]
struct Named(String);

impl TerminationPolicy for Named {
    fn name(&self) -> &str {
        &self.0
    }
    fn should_terminate(&mut self, _: &StepResult, _: &StepContext) -> Verdict {
        Verdict::Stop(Stop::submitted(self.0.clone(), ""))
    }
    fn reset(&mut self) {}
}

/// Cases in which Endstop differs from the original, and the reason.
const DIFFERS: &[(&str, &str)] = &[
    ("rg-001-list", "the descriptions are worded otherwise"),
    // The original ignores these mistakes; here they are errors.
    ("rg-005-empty-name", "an empty name is unknown"),
    ("rg-014-register-override-builtin", "a name twice is an error"),
    ("rg-016-override-default-shadow", "a name twice is an error"),
    ("rg-021-create-unknown-section", "an unknown section is an error"),
    ("rg-022-create-null-section", "a null section is an error in Endstop"),
    ("rg-023-create-string-section", "a name alone is a specification"),
    ("rg-03-defaults-final_pattern", "the default matches calls, not patterns"),
    // Rewards are functions of the caller; the registry holds termination policies only.
    ("rg-040-all-sections", "there is no reward section"),
];

/// Policies that the original does not have. They are left out of the lists that are compared, so
/// that a new policy needs a line here and no known difference in [`DIFFERS`].
const ADDED: &[&str] = &[];

fn is_original(name: &str) -> bool {
    !ADDED.contains(&name)
}

fn raises(error: &PolicyError) -> Value {
    // The wording may differ; the names that the error must contain are compared.
    match error {
        PolicyError::UnknownPolicy { name, known, .. } => {
            let known: Vec<&String> = known.iter().filter(|known| is_original(known)).collect();
            json!({"unknown": name, "known": known})
        }
        other => json!({"error": other.to_string()}),
    }
}

fn expected(value: &Value, known: &[String]) -> Value {
    let Some(message) = value.get("message").and_then(Value::as_str) else {
        return value.clone();
    };
    let name = message
        .strip_prefix("Unknown termination policy '")
        .and_then(|m| m.split_once("'. Available: "));
    if let Some((name, available)) = name {
        return json!({"unknown": name, "known": available.split(", ").collect::<Vec<_>>()});
    }
    match message.strip_prefix("Unknown termination policy: ") {
        Some(name) => json!({"unknown": name, "known": known}),
        None => value.clone(),
    }
}

fn built(result: Result<BoxPolicy, PolicyError>, config: &Value) -> Value {
    match result {
        Ok(policy) => json!({"class_name": policy.name(), "config": config}),
        Err(error) => raises(&error),
    }
}

fn operate(registry: &mut Registry, op: &Value) -> Value {
    let name = op.get("name").and_then(Value::as_str);
    let config = op.get("config").cloned().unwrap_or_else(|| json!({}));
    match op["op"].as_str().unwrap() {
        "list" => json!({"list": registry.policies().filter(|p| is_original(&p.name)).map(|p|
            json!({"name": p.name, "description": p.description})).collect::<Vec<_>>()}),
        "list_names" => {
            json!({"names": registry.names().filter(|name| is_original(name)).collect::<Vec<_>>()})
        }
        "get" => {
            let spec = match name {
                Some(name) => json!({"name": name, "config": config}),
                None => json!({}),
            };
            built(registry.build(&spec), &config)
        }
        "set_default" => match registry.set_default(name.unwrap()) {
            Ok(()) => json!({"default": registry.default_name()}),
            Err(error) => raises(&error),
        },
        "register" => {
            let class = op["class_name"].as_str().unwrap().to_owned();
            let info = PolicyInfo {
                name: name.unwrap_or(&class).to_owned(),
                description: String::new(),
                default_config: json!({}),
            };
            let registered = info.name.clone();
            match registry.register(info, move |_| Ok(BoxPolicy::new(Named(class.clone())))) {
                Ok(()) => json!({"registered": registered}),
                Err(error) => raises(&error),
            }
        }
        "defaults" => match registry.get(name.unwrap()) {
            Ok(info) => json!({"default_config": info.default_config}),
            Err(error) => raises(&error),
        },
        "create_from_config" => {
            let sections = config.as_object().unwrap();
            if let Some(section) = sections.keys().find(|k| *k != "termination") {
                return json!({"error": format!("no section {section}")});
            }
            let Some(spec) = sections.get("termination") else {
                return json!({"created": {}});
            };
            match registry.build(spec) {
                Ok(policy) => json!({"created": {"termination": {
                    "name": policy.name(),
                    "config": spec.get("config").cloned().unwrap_or_else(|| json!({})),
                }}}),
                Err(error) => raises(&error),
            }
        }
        other => panic!("unknown operation {other}"),
    }
}

#[test]
fn vectors() {
    let mut found = Vec::new();
    for case in cases("policies_registry.json", 29) {
        let mut registry = Registry::new();
        let ops = case["input"].as_array().unwrap();
        for (op, expect) in ops.iter().zip(case["expect"].as_array().unwrap()) {
            let ours = operate(&mut registry, op);
            let known = registry.names().filter(|name| is_original(name));
            let known: Vec<String> = known.map(str::to_owned).collect();
            let expect = expected(expect, &known);
            if ours != expect {
                found.push((id(&case).to_owned(), format!("{ours} for {expect}")));
            }
        }
    }
    found.dedup_by(|a, b| a.0 == b.0);
    assert_differences(&found, DIFFERS);
}

fn error(spec: &Value) -> String {
    Registry::new().build(spec).unwrap_err().to_string()
}

#[test]
fn configuration_error_names_key_and_choices() {
    let names = Registry::new().names().collect::<Vec<_>>().join(", ");
    for (spec, expected) in [
        (
            json!("final"),
            "unknown termination policy `final` (did you mean `final_pattern`?); known are NAMES",
        ),
        (
            json!({"final_pattern": {"match": "call"}}),
            "policy `final_pattern`: unknown key `match`; known are matching, case_sensitive, \
             extract_answer, scope, pick",
        ),
        (
            json!({"final_pattern": {"matching": "glob"}}),
            "policy `final_pattern`: `matching` must be \"call\" or \"regex\", not \"glob\"",
        ),
        (
            json!({"final_pattern": {"pick": 1}}),
            "policy `final_pattern`: `pick` must be \"first\" or \"last\", not 1",
        ),
        (
            json!({"final_pattern": {"matching": "call", "final_patterns": ["a"]}}),
            "policy `final_pattern`: unknown key `final_patterns`; known are matching, \
             case_sensitive, extract_answer, scope, pick",
        ),
        (
            json!({"final_pattern": {"final_patterns": []}}),
            "policy `final_pattern`: `final_patterns` must be a list of at least one pattern, \
             not []",
        ),
        (
            json!({"final_pattern": {"final_patterns": ["a(?=b)(c)"]}}),
            "policy `final_pattern`: pattern `a(?=b)(c)`: look-around cannot run in linear time",
        ),
        (
            json!({"reward_threshold": {"max_negative_streak": 0}}),
            "policy `reward_threshold`: `max_negative_streak` must be a whole number of at least \
             1, or null for off, not 0",
        ),
        (
            json!({"confidence": {"confidence_threshold": "0.9"}}),
            "policy `confidence`: `confidence_threshold` must be a number, not \"0.9\"",
        ),
        (json!({"confidence": 1}), "policy `confidence`: `config` must be an object, not 1"),
        (
            json!("confidense"),
            "unknown termination policy `confidense` (did you mean `confidence`?); known are \
             NAMES",
        ),
        (
            json!({"composite": ["confidence"]}),
            "policy specification: `composite` needs an object, for example \
             {\"policies\": [\"final_pattern\"]}; a list belongs to `any` or `all`",
        ),
        (
            json!({"name": "composite", "policies": ["confidence"]}),
            "policy specification: next to `name` only `config` is allowed, not policies; write \
             {\"name\":\"composite\",\"config\":{\"policies\":[\"confidence\"]}}",
        ),
        (
            json!({"composite": {"policies": []}}),
            "policy `composite`: `policies` must be a list of at least one policy (name or \
             {name, config}; NAMES), not []",
        ),
        (json!({"any": []}), "policy specification: `any` needs at least one policy"),
        (
            json!({"composite": {"policies": ["bogus"]}}),
            "unknown termination policy `bogus`; known are NAMES",
        ),
    ] {
        let error = error(&spec);
        // The error for an unknown name lists the detectors too; they are not compared here.
        let error = error.split(", and the detectors repeat_call, ").next().unwrap();
        assert_eq!(error.replace(&names, "NAMES"), expected, "{spec}");
    }
    assert!(error(&json!(1)).contains("a policy is a name or an object"));
    assert!(error(&json!({"any": ["confidence"], "all": []})).contains("one key"));
    let mut deep = json!("confidence");
    for _ in 0..100 {
        deep = json!({"not": deep});
    }
    assert!(error(&deep).contains("nested deeper"));
}

#[test]
fn lenient_applies_to_patterns_only() {
    let build = |config: Value| Registry::new().build(&json!({"final_pattern": config})).is_ok();
    assert!(build(json!({"matching": "regex", "lenient": true, "bogus": 1, "case_sensitive": 1})));
    assert!(!build(json!({"matching": "regex", "bogus": 1})));
    assert!(!build(json!({"lenient": true})));
    assert!(!build(json!({"matching": "regex", "final_patterns": ["DONE"]})));
    assert!(build(json!({"matching": "regex", "lenient": true, "final_patterns": ["DONE"]})));
}

#[test]
fn replace_is_explicit_and_keeps_order() {
    let mut registry = Registry::new();
    let info = |name: &str| PolicyInfo {
        name: name.into(),
        description: "mine".into(),
        default_config: json!({}),
    };
    let factory = |_: &Value| Ok(BoxPolicy::new(Named("mine".into())));
    assert_eq!(
        registry.register(info("confidence"), factory),
        Err(PolicyError::Duplicate { name: "confidence".into() })
    );
    assert!(registry.replace(info("nope"), factory).is_err());
    assert!(registry.register(info("any"), factory).is_err());
    registry.replace(info("confidence"), factory).unwrap();
    assert_eq!(registry.names().nth(2), Some("confidence"));
    assert_eq!(registry.build(&json!("confidence")).unwrap().name(), "mine");
    // Members of a composite come from the same registry.
    let mut any = registry.build(&json!({"any": ["confidence"]})).unwrap();
    let verdict = any.should_terminate(&StepResult::default(), &StepContext::default());
    assert_eq!(verdict.stop().unwrap().policy, "mine");
    assert_eq!(registry.build_default().unwrap().name(), "final_pattern");
}

#[test]
fn command_line_argument_names_policy() {
    let registry = Registry::new();
    for (text, name) in [
        ("confidence", Some("confidence")),
        (" reward_threshold={\"min_reward_threshold\": 1} ", Some("reward_threshold")),
        ("{\"any\": [\"confidence\"]}", Some("composite")),
        ("final_pattern={\"final_patterns\": [\"A=(.)\"]}", Some("final_pattern")),
        ("confidence={", None),
        ("confidence=1", None),
        ("", None),
    ] {
        let policy = registry.build_text(text).ok();
        assert_eq!(policy.as_ref().map(TerminationPolicy::name), name, "{text}");
    }
}

#[test]
fn policies_declare_the_data_they_need() {
    use endstop_core::RunData::{Confidence, Cost, Results, Reward};
    let registry = Registry::new();
    for (spec, needs) in [
        (json!("final_pattern"), vec![]),
        (json!("repeat_call"), vec![]),
        (json!("confidence"), vec![Confidence]),
        (json!("reward_threshold"), vec![Reward]),
        (json!("stuck"), vec![Results]),
        (json!({"cost": {"usd": 1}}), vec![Cost]),
        (json!({"not": "confidence"}), vec![Confidence]),
        (
            json!({"any": ["stuck", "reward", "reward_threshold", "cost"]}),
            vec![Cost, Results, Reward],
        ),
    ] {
        assert_eq!(registry.build(&spec).unwrap().needs(), needs, "{spec}");
        let policy = registry.build(&spec).unwrap().after_steps(2).sustained(2);
        assert_eq!(policy.needs(), needs, "{spec}");
    }
}

/// Returns the default of a key as the book's tables print it.
fn in_the_book(default: &Value) -> String {
    match default {
        Value::String(text) => format!("`{text}`"),
        other => other.to_string(),
    }
}

#[test]
fn book_documents_each_policy() {
    let book = include_str!("../../../../docs/src/choosing-a-policy.md");
    for policy in Registry::new().policies() {
        let name = &policy.name;
        // `composite` belongs to the section on combining policies, which has no table of keys.
        let heading = if name == "composite" { "Combining policies" } else { name.as_str() };
        let section = book.split("\n## ").find(|section| section.lines().next() == Some(heading));
        let section = section.unwrap_or_else(|| panic!("choosing-a-policy.md: no `## {name}`"));
        let choice = book.split("\n## ").next().unwrap();
        assert!(choice.contains(&format!("`{name}`")), "choosing-a-policy.md, first table: {name}");
        for (key, default) in policy.default_config.as_object().unwrap() {
            let row = if heading == name {
                format!("\n| `{key}` | {} |", in_the_book(default))
            } else {
                format!("`{key}`")
            };
            assert!(section.contains(&row), "choosing-a-policy.md, `{name}`: no {row}");
        }
    }
}

#[test]
fn book_documents_each_rule() {
    let book = include_str!("../../../../docs/src/detectors.md");
    for rule in Rule::known() {
        let row = format!("\n| `{}` ", rule.name);
        let row = book.split_once(&row).and_then(|(_, row)| row.lines().next());
        let row = row.unwrap_or_else(|| panic!("detectors.md: no `{}`", rule.name));
        let built = match Rule::from_config(rule.name, &Value::Null) {
            Ok(built) => built,
            // A rule without defaults needs a key, which its row describes in words.
            Err(PolicyError::BadValue { .. }) => continue,
            Err(error) => panic!("{error}"),
        };
        for (key, default) in built.spec()[rule.name].as_object().into_iter().flatten() {
            // The signs of `stuck` have a table with a row for each.
            let own_row = format!("\n| `{key}` | {default} |");
            let found = row.contains(&format!("{key} = {default}")) || book.contains(&own_row);
            assert!(found, "detectors.md, `{}`: no {key} = {default}", rule.name);
        }
    }
}
