//! pi.
//!
//! It has no variable for a base URL. A temporary extension changes the addresses of its providers,
//! the built-in ones and those of the user's `models.json`.

use super::parse::text;
use super::plan::Plan;
use super::wiring::{Source, Warning};
use endstop_wire::WireFormat::{self, Anthropic, Gemini, OpenAiChat, OpenAiResponses};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Built-in providers, with the path of the proxy's address.
const BUILT_IN: [(&str, &[WireFormat], &str); 3] = [
    ("anthropic", &[Anthropic], ""),
    ("openai", &[OpenAiChat, OpenAiResponses], "/v1"),
    ("google", &[Gemini], "/v1beta"),
];

/// Formats of the providers in `models.json`, by their `api`.
const APIS: [(&str, &[WireFormat], &str); 4] = [
    ("anthropic-messages", &[Anthropic], ""),
    ("openai-completions", &[OpenAiChat], "/v1"),
    ("openai-responses", &[OpenAiResponses], "/v1"),
    ("google-generative-ai", &[Gemini], "/v1beta"),
];

pub(super) fn wire(plan: &mut Plan<'_>) {
    let folder = plan.var("PI_CODING_AGENT_DIR").map(PathBuf::from);
    let folder = folder.or_else(|| plan.home(".pi/agent"));
    let file = folder.map(|folder| folder.join("models.json"));
    let models = file.as_ref().and_then(|file| plan.user_json(file)).unwrap_or_default();
    let chosen = plan.command.option("--provider").map(|(_, name)| name).or_else(|| {
        let (_, model) = plan.command.option("--model")?;
        model.split_once('/').map(|(provider, _)| provider.to_owned())
    });
    let mut wired: Vec<(String, String)> = Vec::new();
    for (name, formats, path) in BUILT_IN {
        if let (Some(base), Some(file)) = (text(&models, &["providers", name, "baseUrl"]), &file) {
            plan.upstream(formats, base, Source::File(file.clone()));
        }
        wired.push((name.to_owned(), plan.url(path)));
    }
    for (name, provider) in models["providers"].as_object().into_iter().flatten() {
        if BUILT_IN.iter().any(|(known, ..)| known == name) {
            continue;
        }
        // Without an address, the entry only adds models to a provider.
        let Some(base) = text(provider, &["baseUrl"]) else { continue };
        let api = APIS.iter().find(|(api, ..)| Some(*api) == text(provider, &["api"]));
        match (api, &file) {
            (Some((_, formats, path)), Some(file)) if chosen.as_ref() == Some(name) => {
                plan.upstream(formats, base, Source::File(file.clone()));
                wired.push((name.clone(), plan.url(path)));
            }
            (api, _) => {
                let problem = match api {
                    None => "its api is not known",
                    Some(_) => "it is not the provider of the model; choose it with --provider",
                };
                let is_chosen = chosen.as_ref() == Some(name);
                plan.warn(Warning::ProviderOutside { provider: name.clone(), problem, is_chosen });
            }
        }
    }
    let is_known = |name: &str| {
        BUILT_IN.iter().any(|(known, ..)| *known == name)
            || models["providers"].get(name).is_some_and(|one| text(one, &["baseUrl"]).is_some())
    };
    if let Some(name) = chosen.filter(|name| !is_known(name)) {
        let problem = "its address is built in, and guard does not know it";
        plan.warn(Warning::ProviderOutside { provider: name, problem, is_chosen: true });
    }
    // JavaScript, because pi loads it without a compiler and without its types.
    let path = plan.file("endstop-pi.js", extension(&wired));
    // Behind those of the user, because of two addresses of a provider the last one counts.
    plan.insert_after(&["--extension", "-e"], &["--extension", &path]);
}

/// Returns an extension that changes the addresses of providers.
fn extension(wired: &[(String, String)]) -> String {
    let calls = wired.iter().map(|(name, url)| {
        // JSON strings are strings of JavaScript too.
        let (name, url) = (Value::from(name.as_str()), json!({ "baseUrl": url }));
        format!("  pi.registerProvider({name}, {url});\n")
    });
    format!("export default function (pi) {{\n{}}}\n", calls.collect::<String>())
}
