//! `endstop providers`: prints the supported providers, from the catalogue in the code.

use crate::args::ProvidersArgs;
use crate::failure::{Failure, Result};
use crate::output;
use endstop::core::TerminationSignal;
use endstop::wire::WireFormat;
use endstop::wire::catalog::models;
use endstop::wire::catalog::providers::{PROVIDERS, ProviderInfo, provider};
use endstop::wire::signal::finish::{Finish, known};
use endstop::wire::signal::precedence::{TurnFacts, signal};
use serde_json::{Value, json};

pub(crate) fn run(args: &ProvidersArgs, as_json: bool) -> Result {
    match (&args.name, as_json) {
        (None, true) => {
            let all: Vec<Value> = PROVIDERS.iter().map(as_value).collect();
            output::json(&all);
        }
        (None, false) => list(),
        (Some(name), true) => {
            let found = find(name)?;
            let mut value = as_value(found);
            if args.models {
                value["models"] =
                    models::known(found.id).map(|id| model_value(found, id)).collect();
            }
            output::json(&value);
        }
        (Some(name), false) => {
            let found = find(name)?;
            show_address(found);
            show_credentials(found);
            show_formats(found);
            if !found.notes.is_empty() {
                output::line(&format!("  note       {}", found.notes));
            }
            if args.models {
                show_models(found);
            }
        }
    }
    Ok(0)
}

fn find(name: &str) -> Result<&'static ProviderInfo> {
    provider(name).ok_or_else(|| {
        let names: Vec<&str> = PROVIDERS.iter().map(|provider| provider.id).collect();
        Failure::usage(format!(
            "provider `{name}`: {}",
            endstop::core::limits::unknown_key(name, &names)
        ))
    })
}

/// Prints a line for each provider.
fn list() {
    let rows: Vec<[String; 4]> = PROVIDERS.iter().map(row).collect();
    let wide = |at: usize| rows.iter().map(|row| row[at].len()).max().unwrap_or(0);
    let (id, apis, url) = (wide(0), wide(1), wide(2));
    for row in &rows {
        output::line(&format!("{:<id$}  {:<apis$}  {:<url$}  {}", row[0], row[1], row[2], row[3]));
    }
    output::line(
        "\nUse one as --model PROVIDER/MODEL; any OpenAI-compatible server with --base-url URL.",
    );
}

/// Prints the parts of a provider's URL and the variables that set them.
fn show_address(found: &ProviderInfo) {
    output::line(&format!("{} ({})", found.name, found.id));
    output::line(&format!("  endpoint   {}", found.base_url));
    for variable in [found.base_url_var, found.wider_url_var].into_iter().flatten() {
        output::line(&format!("             {variable} overrides it"));
    }
    for variable in found.region_vars {
        output::line(&format!("  region     {variable}"));
    }
    for vars in found.places {
        output::line(&format!("  {}…", vars.models));
        output::line(&format!("    endpoint {} overrides it", vars.base_url));
        output::line(&format!("    project  {}", vars.project.join(" or ")));
        output::line(&format!("    location {}", vars.location.join(" or ")));
    }
    if let Some(variable) = found.version_var {
        output::line(&format!("  version    {variable}, else the newest"));
    }
}

fn show_credentials(found: &ProviderInfo) {
    for key in found.key_vars {
        output::line(&format!("  key        {}", key.name));
    }
    if let Some(pair) = found.signing {
        output::line(&format!("             or, to sign, {} and {}", pair.id, pair.secret));
        output::line(&format!("             with {} for temporary keys", pair.session));
    }
    if let Some(login) = found.login {
        output::line(&format!("             or the file that {} names", login.file));
        output::line(&format!("             or what `{}` left", login.command));
    }
}

/// Prints the wire formats, each with its finish values. Those belong to the format: several providers
/// use it, and each sends some of them.
fn show_formats(found: &ProviderInfo) {
    for endpoint in found.endpoints {
        output::line(&format!("  api        {} at {}", endpoint.api, endpoint.path));
        output::line(&format!(
            "    {:<32} {:<22} {:<10} the run ends as",
            "finish value of the format", "reason", "confidence"
        ));
        for (raw, signal) in finish_values(endpoint.api) {
            output::line(&format!(
                "    {raw:<32} {:<22} {:<10} {}",
                signal.reason.as_str(),
                signal.confidence.as_str(),
                signal.reason.ends_as().map_or("(continues)", |ending| ending.as_str()),
            ));
        }
    }
    output::line(
        "  A provider may send only some values of its format. Unless a policy, a hook or a limit decides.\n  \
         A tool call outranks a natural end; errors are retried first if that may help.",
    );
}

fn show_models(found: &ProviderInfo) {
    let tokens = |n: Option<u64>| n.map_or_else(|| "?".to_owned(), |n| n.to_string());
    output::line(&format!("\n{:>14} {:>11}  model", "context window", "output cap"));
    for id in models::known(found.id) {
        let limits = models::limits(found.id, id);
        output::line(&format!(
            "{:>14} {:>11}  {id}",
            tokens(limits.context_window),
            tokens(limits.max_output)
        ));
    }
}

fn model_value(found: &ProviderInfo, id: &str) -> Value {
    let limits = models::limits(found.id, id);
    json!({
        "id": id,
        "context_window": limits.context_window,
        "max_output": limits.max_output,
    })
}

/// Returns a row of the list: name, formats, address, variables.
fn row(provider: &ProviderInfo) -> [String; 4] {
    let mut keys: Vec<String> = provider.key_vars.iter().map(|key| key.name.to_owned()).collect();
    keys.extend(provider.signing.map(|pair| format!("{} and {}", pair.id, pair.secret)));
    keys.extend(provider.login.map(|login| login.file.to_owned()));
    let keys = if keys.is_empty() { "no key".to_owned() } else { keys.join(" or ") };
    let apis: Vec<&str> = provider.endpoints.iter().map(|e| e.api.as_str()).collect();
    [provider.id.to_owned(), apis.join(", "), provider.base_url.to_owned(), keys]
}

/// Returns the finish values of a format, each with the signal that it leads to by itself.
fn finish_values(api: WireFormat) -> Vec<(&'static str, TerminationSignal)> {
    known(api)
        .iter()
        .map(|(raw, finish)| {
            let facts = TurnFacts {
                finish: *finish,
                raw,
                // A finish value for tools needs a call, because without one the signal is a lost call.
                calls: usize::from(*finish == Finish::ToolUse),
                text_blank: false,
                terminated: true,
                ..TurnFacts::default()
            };
            (*raw, signal(&facts))
        })
        .collect()
}

fn as_value(provider: &ProviderInfo) -> Value {
    json!({
        "id": provider.id,
        "name": provider.name,
        "base_url": provider.base_url,
        "base_url_var": provider.base_url_var,
        "key_vars": provider.key_vars.iter().map(|key| key.name).collect::<Vec<_>>(),
        "wider_url_var": provider.wider_url_var,
        "region_vars": provider.region_vars,
        "signing_vars": provider.signing.map(|pair| [pair.id, pair.secret, pair.session]),
        "login": provider.login.map(|login| json!({
            "file_var": login.file,
            "command": login.command,
            "scope": login.scope,
        })),
        "places": provider.places.iter().map(|vars| json!({
            "models": vars.models,
            "api": vars.api.as_str(),
            "publisher": vars.publisher,
            "base_url_var": vars.base_url,
            "project_vars": vars.project,
            "location_vars": vars.location,
        })).collect::<Vec<_>>(),
        "version_var": provider.version_var,
        "key_required": provider.key_required,
        "endpoints": provider.endpoints.iter().map(|endpoint| json!({
            "api": endpoint.api.as_str(),
            "path": endpoint.path,
            "finish_values": finish_values(endpoint.api).into_iter().map(|(raw, signal)| json!({
                "value": raw,
                "reason": signal.reason,
                "confidence": signal.confidence,
                "should_terminate": signal.should_terminate,
                "ends_as": signal.reason.ends_as(),
            })).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "notes": provider.notes,
    })
}
