//! `endstop providers`: what is understood, printed from the code.

use crate::args::ProvidersArgs;
use crate::{Failure, Result, output};
use endstop::wire::providers::{Endpoint, PROVIDERS, Provider, provider};
use serde_json::{Value, json};

pub(crate) fn run(args: &ProvidersArgs, as_json: bool) -> Result {
    let Some(name) = &args.name else {
        if as_json {
            let all: Vec<Value> = PROVIDERS.iter().map(as_value).collect();
            let _ = output::json(&all);
            return Ok(0);
        }
        for provider in PROVIDERS {
            let keys: Vec<&str> = provider.key_vars.iter().map(|key| key.name).collect();
            let keys = if keys.is_empty() { "no key".to_owned() } else { keys.join(" or ") };
            let apis: Vec<&str> =
                spoken(provider).iter().map(|endpoint| endpoint.api.as_str()).collect();
            let _ = output::line(&format!(
                "{:<12} {:<34} {:<42} {keys}",
                provider.id,
                apis.join(", "),
                provider.base_url
            ));
        }
        let _ = output::line(
            "\nUse one as --model PROVIDER/MODEL; any OpenAI-compatible server with --base-url URL.",
        );
        return Ok(0);
    };
    let Some(found) = provider(name) else {
        let names: Vec<&str> = PROVIDERS.iter().map(|provider| provider.id).collect();
        return Err(Failure::usage(format!(
            "provider `{name}`: {}",
            endstop::core::limits::unknown_key(name, &names)
        )));
    };
    if as_json {
        let _ = output::json(&as_value(found));
        return Ok(0);
    }
    let _ = output::line(&format!("{} ({})", found.name, found.id));
    let _ = output::line(&format!("  endpoint   {}", found.base_url));
    if let Some(variable) = found.base_url_var {
        let _ = output::line(&format!("             {variable} overrides it"));
    }
    for key in found.key_vars {
        let _ = output::line(&format!("  key        {}", key.name));
    }
    for endpoint in spoken(found) {
        let _ =
            output::line(&format!("  api        {} at {}", endpoint.api.as_str(), endpoint.path));
        let _ = output::line("    a finish value, and what it means in a turn without tool calls:");
        for (raw, leads) in finish_values(endpoint.api.as_str()) {
            let _ = output::line(&format!("    {raw:<32} {leads}"));
        }
    }
    if !found.notes.is_empty() {
        let _ = output::line(&format!("  note       {}", found.notes));
    }
    Ok(0)
}

/// The endpoints whose format can be encoded and decoded: the ones that a run can use.
fn spoken(provider: &Provider) -> Vec<&'static Endpoint> {
    let known = |endpoint: &&Endpoint| endstop::wire::api::dialect(endpoint.api.as_str()).is_ok();
    provider.endpoints.iter().filter(known).collect()
}

/// The finish values of an API, and the signal that each alone leads to.
fn finish_values(api: &str) -> Vec<(&'static str, String)> {
    use endstop::wire::api::dialect;
    use endstop::wire::finish::known;
    use endstop::wire::precedence::{Facts, signal};
    let Ok(dialect) = dialect(api) else { return Vec::new() };
    known(dialect.family)
        .iter()
        .map(|(raw, finish)| {
            let signal = signal(&Facts {
                finish: *finish,
                raw,
                text_blank: false,
                terminated: true,
                ..Facts::default()
            });
            let end = if signal.should_terminate { "ends the model's part" } else { "goes on" };
            (*raw, format!("{} ({end})", signal.reason))
        })
        .collect()
}

fn as_value(provider: &Provider) -> Value {
    json!({
        "id": provider.id,
        "name": provider.name,
        "base_url": provider.base_url,
        "base_url_var": provider.base_url_var,
        "key_vars": provider.key_vars.iter().map(|key| key.name).collect::<Vec<_>>(),
        "key_required": provider.key_required,
        "endpoints": spoken(provider).iter().map(|endpoint| json!({
            "api": endpoint.api.as_str(),
            "path": endpoint.path,
            "finish_values": finish_values(endpoint.api.as_str()).into_iter()
                .map(|(raw, leads)| json!({"value": raw, "leads_to": leads})).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "notes": provider.notes,
    })
}
