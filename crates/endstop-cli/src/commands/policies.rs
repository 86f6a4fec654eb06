//! `endstop policies`: what is registered, with defaults, printed from the code.

use crate::output;
use endstop::Registry;
use serde_json::json;

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
        let _ = output::json(&policies);
        return 0;
    }
    for policy in registry.policies() {
        let mark = if policy.name == registry.default_name() { " (default)" } else { "" };
        let _ = output::line(&format!("{}{mark}\n  {}", policy.name, policy.description));
        if let Some(config) = policy.default_config.as_object() {
            for (key, value) in config {
                let _ = output::line(&format!("    {key} = {value}"));
            }
        }
    }
    let _ = output::line(
        "\nA run has none of them unless it is given one: --policy NAME. The default is what a specification without a name means.",
    );
    let _ = output::line(
        "Combine them: --policy '{\"any\": [\"final_pattern\", {\"confidence\": {\"confidence_threshold\": 0.9}}]}'",
    );
    0
}
