//! `endstop policies`: prints the registered policies and rules with their defaults.

use crate::output;
use endstop::core::detector::Rule;
use endstop::policy::{PolicyError, Registry};
use serde_json::{Value, json};

pub(crate) fn run(as_json: bool) -> u8 {
    let registry = Registry::default();
    if as_json {
        let policies: Vec<_> = registry
            .policies()
            .map(|policy| {
                json!({
                    "name": policy.name,
                    "description": policy.description,
                    "default": policy.name == registry.default_name(),
                    "default_config": policy.default_config,
                })
            })
            .collect();
        output::json(&policies);
        return 0;
    }
    for policy in registry.policies() {
        let mark = if policy.name == registry.default_name() { " (default)" } else { "" };
        // Printed from the registry and not from a list, so that the output cannot differ from the
        // code.
        output::line(&format!("{}{mark}\n  {}", policy.name, policy.description));
        if let Some(config) = policy.default_config.as_object() {
            for (key, value) in config {
                output::line(&format!("    {key} = {value}"));
            }
        }
    }
    output::line(
        "\nA run has no policy unless you set one with --policy NAME. A specification without a name selects the default.",
    );
    output::line(
        "Combine them: --policy '{\"any\": [\"final_pattern\", {\"confidence\": {\"confidence_threshold\": 0.9}}]}'",
    );
    output::line(
        "\nDetectors: policies like those above, or rules that watch a run, --watch MODE:RULE (observe, warn, nudge, stop). `stuck` observes every run by default.\n",
    );
    for rule in Rule::known() {
        output::line(&format!("{}\n  {}", rule.name, rule.description));
        for (key, value) in defaults_of(rule.name) {
            output::line(&format!("    {key} = {value}"));
        }
    }
    0
}

/// Returns the keys of a rule with their defaults.
pub(super) fn defaults_of(rule: &str) -> Vec<(String, String)> {
    match Rule::from_config(rule, &Value::Null).map(|made| made.spec()) {
        Ok(spec) => {
            let keys = spec[rule].as_object().into_iter().flatten();
            keys.map(|(key, value)| (key.clone(), value.to_string())).collect()
        }
        // A rule without a default names the key that it needs.
        Err(PolicyError::BadValue { key, expected, .. }) => {
            vec![(key.clone(), format!("(required: {expected})"))]
        }
        Err(_) => Vec::new(),
    }
}
