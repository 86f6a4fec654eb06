//! opencode.
//!
//! Its base URLs have the version (`/v1`). The variable `OPENCODE_CONFIG_CONTENT` is stronger than all
//! of its files, so each provider gets the proxy's address there.

use super::parse::{self, put, text};
use super::plan::Plan;
use super::wiring::{Source, Warning};
use endstop_wire::WireFormat::{self, Anthropic, Gemini, OpenAiChat, OpenAiResponses};
use serde_json::{Value, json};
use std::path::PathBuf;

const CONTENT: &str = "OPENCODE_CONFIG_CONTENT";

/// Built-in providers: their formats, and the path of the proxy's address.
const BUILT_IN: [(&str, &[WireFormat], &str); 3] = [
    ("anthropic", &[Anthropic], "/v1"),
    ("openai", &[OpenAiChat, OpenAiResponses], "/v1"),
    ("google", &[Gemini], "/v1beta"),
];

/// Formats of a provider of the user, by the name of its package.
const PACKAGES: [(&str, &[WireFormat], &str); 4] = [
    ("@ai-sdk/anthropic", &[Anthropic], "/v1"),
    ("@ai-sdk/openai-compatible", &[OpenAiChat], "/v1"),
    ("@ai-sdk/openai", &[OpenAiChat, OpenAiResponses], "/v1"),
    ("@ai-sdk/google", &[Gemini], "/v1beta"),
];

pub(super) fn wire(plan: &mut Plan<'_>) {
    let config = plan.var("XDG_CONFIG_HOME").map(PathBuf::from).or_else(|| plan.home(".config"));
    let mut files: Vec<PathBuf> = Vec::new();
    for name in ["config.json", "opencode.json", "opencode.jsonc"] {
        files.extend(config.iter().map(|folder| folder.join("opencode").join(name)));
    }
    files.extend(plan.var("OPENCODE_CONFIG").map(PathBuf::from));
    let names =
        ["opencode.json", "opencode.jsonc", ".opencode/opencode.json", ".opencode/opencode.jsonc"];
    plan.report_repository(&names, &files, named);

    // The weakest first, so that a stronger one replaces its upstream.
    let mut layers: Vec<(Value, Source)> = Vec::new();
    for file in files {
        layers.extend(plan.user_json(&file).map(|value| (value, Source::File(file))));
    }
    let mut content = Value::Null;
    if let Some(given) = plan.var(CONTENT).map(str::to_owned) {
        let source = Source::Variable(CONTENT.to_owned());
        match parse::json(&given) {
            Ok(value) => {
                content = value.clone();
                layers.push((value, source));
            }
            Err(_) => plan.warn(Warning::InvalidUpstream { source }),
        }
    }
    // Several providers can have one format, and only one of them can have the upstream.
    let chosen = chosen(plan, &layers);
    for (name, formats, path) in BUILT_IN {
        for (layer, source) in &layers {
            if let Some(base) = base(layer, name) {
                plan.upstream(formats, base, source.clone());
            }
        }
        put(&mut content, &["provider", name, "options", "baseURL"], json!(plan.url(path)));
    }
    custom(plan, &layers, chosen.as_deref(), &mut content);
    plan.set(CONTENT, content.to_string());
}

/// Points the user's provider of the chosen model at the proxy. Others of the same format keep their
/// address, because a format has one upstream.
fn custom(
    plan: &mut Plan<'_>,
    layers: &[(Value, Source)],
    chosen: Option<&str>,
    content: &mut Value,
) {
    let mut names: Vec<&String> = layers
        .iter()
        .flat_map(|(layer, _)| layer["provider"].as_object().into_iter().flatten())
        .map(|(name, _)| name)
        .filter(|name| BUILT_IN.iter().all(|(known, ..)| known != name))
        .collect();
    names.sort_unstable();
    names.dedup();
    for name in &names {
        let found = layers.iter().rev().find_map(|(l, source)| Some((base(l, name)?, source)));
        let package = layers.iter().rev().find_map(|(l, _)| text(l, &["provider", name, "npm"]));
        // opencode itself takes this package if none is named.
        let package = package.unwrap_or("@ai-sdk/openai-compatible");
        let known = PACKAGES.iter().find(|(known, ..)| *known == package);
        match (found, known) {
            (Some((base, source)), Some((_, formats, path))) if chosen == Some(name.as_str()) => {
                plan.upstream(formats, base, source.clone());
                put(content, &["provider", name, "options", "baseURL"], json!(plan.url(path)));
            }
            (found, known) => {
                let problem = match (found, known) {
                    (None, _) => "its configuration has no base URL",
                    (_, None) => "its package is not known",
                    _ => "it is not the provider of the model; choose it with --model",
                };
                let is_chosen = chosen == Some(name.as_str());
                plan.warn(Warning::ProviderOutside {
                    provider: (*name).clone(),
                    problem,
                    is_chosen,
                });
            }
        }
    }
    let is_wired = |name: &str| BUILT_IN.iter().any(|(known, ..)| *known == name);
    if let Some(name) = chosen.filter(|name| !is_wired(name) && !names.iter().any(|n| n == name)) {
        let problem = "its address is built in, and guard does not know it";
        plan.warn(Warning::ProviderOutside { provider: name.to_owned(), problem, is_chosen: true });
    }
}

fn base<'a>(layer: &'a Value, provider: &str) -> Option<&'a str> {
    text(layer, &["provider", provider, "options", "baseURL"])
}

/// Returns the provider of the model that the command line or the configuration names.
fn chosen(plan: &Plan<'_>, layers: &[(Value, Source)]) -> Option<String> {
    let words = &plan.command.words;
    let mut model = None;
    for at in plan.command.after..words.len() {
        let word = words[at].to_string_lossy();
        if matches!(&*word, "-m" | "--model") {
            model = words.get(at + 1).map(|model| model.to_string_lossy().into_owned());
        } else if let Some(value) = word.strip_prefix("--model=") {
            model = Some(value.to_owned());
        }
    }
    let model = model.or_else(|| {
        layers.iter().rev().find_map(|(l, _)| text(l, &["model"]).map(str::to_owned))
    })?;
    model.split_once('/').map(|(provider, _)| provider.to_owned())
}

/// Returns the names of the settings of a file that choose an address.
fn named(file: &str) -> Vec<String> {
    let config = parse::json(file).unwrap_or_default();
    let providers = config["provider"].as_object().into_iter().flatten();
    providers
        .filter(|(name, _)| base(&config, name).is_some())
        .map(|(name, _)| format!("provider.{name}.options.baseURL"))
        .collect()
}
