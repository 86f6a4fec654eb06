//! Claude Code.
//!
//! Its settings files can set variables, and these override the environment. Only the option
//! `--settings` and the settings of an administrator are stronger. A base URL is that of the
//! administrator, of the option, of the user's settings, or of the environment, in this order.
//!
//! It calls Anthropic, or another service that a switch selects. Each service has a base URL of its
//! own. Calls to Foundry and Vertex have the format of Anthropic, but not its keys, so each has an
//! upstream of its own below a prefix of the proxy's path.

use super::aws_keys::AwsKeys;
use super::parse::{self, put, text};
use super::plan::Plan;
use super::variables::no_proxy;
use super::wiring::{Source, Unguardable, Warning};
use endstop_wire::WireFormat::{Anthropic, BedrockConverse, BedrockInvoke};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const BASE_URL: &str = "ANTHROPIC_BASE_URL";
const BEDROCK_URL: &str = "ANTHROPIC_BEDROCK_BASE_URL";
const VERTEX_URL: &str = "ANTHROPIC_VERTEX_BASE_URL";
const FOUNDRY_URL: &str = "ANTHROPIC_FOUNDRY_BASE_URL";
const FOUNDRY_RESOURCE: &str = "ANTHROPIC_FOUNDRY_RESOURCE";

/// The key of Bedrock that a request carries as it is, so that it needs no signature.
const BEDROCK_KEY: &str = "AWS_BEARER_TOKEN_BEDROCK";

/// Variables of regions for single models.
const VERTEX_REGIONS: &str = "VERTEX_REGION_";

/// Points the calls to a service at the proxy, or returns the reason why it cannot.
type WireService = fn(&mut Plan<'_>, &mut Settings) -> Result<(), Unguardable>;

/// Variables that send the calls to another service. Several may be on.
const SERVICES: [(&str, WireService); 5] = [
    ("CLAUDE_CODE_USE_BEDROCK", bedrock),
    ("CLAUDE_CODE_USE_VERTEX", vertex),
    ("CLAUDE_CODE_USE_FOUNDRY", foundry),
    ("CLAUDE_CODE_USE_MANTLE", |_, _| Err(Unguardable::Mantle)),
    ("CLAUDE_CODE_USE_ANTHROPIC_AWS", |_, _| Err(Unguardable::ClaudeOnAws)),
];

/// Settings files of an administrator, on Linux and on macOS.
const MANAGED: [&str; 2] = [
    "/etc/claude-code/managed-settings.json",
    "/Library/Application Support/ClaudeCode/managed-settings.json",
];

const OPTION: &str = "--settings";

/// The settings that can set variables, the strongest first, and those to be passed.
struct Settings {
    layers: Vec<(Value, Source)>,
    passed: Value,
}

impl Settings {
    /// Returns the value of a variable, and the place that sets it.
    fn find(&self, plan: &Plan<'_>, name: &str) -> Option<(String, Source)> {
        let in_layer = |(layer, source): &(Value, Source)| {
            Some((text(layer, &["env", name])?.to_owned(), source.clone()))
        };
        let variable = || Some((plan.var(name)?.to_owned(), Source::Variable(name.to_owned())));
        self.layers.iter().find_map(in_layer).or_else(variable)
    }

    fn value(&self, plan: &Plan<'_>, name: &str) -> Option<String> {
        self.find(plan, name).map(|(value, _)| value)
    }

    /// `true` if a variable has a value that Claude Code takes for a yes.
    fn is_on(&self, plan: &Plan<'_>, name: &str) -> bool {
        let yes = ["1", "true", "yes", "on"];
        self.value(plan, name)
            .is_some_and(|v| yes.contains(&v.trim().to_ascii_lowercase().as_str()))
    }

    /// `true` if an administrator sets a variable, which no option overrides.
    fn is_managed(&self, name: &str) -> bool {
        let managed = |source: &Source| matches!(source, Source::File(file) if MANAGED.iter().any(|known| Path::new(known) == file));
        self.layers
            .iter()
            .any(|(layer, source)| managed(source) && text(layer, &["env", name]).is_some())
    }

    /// Sets a variable of the program, so that no settings file can change it.
    fn set(&mut self, plan: &mut Plan<'_>, name: &str, value: &str) -> Result<(), Unguardable> {
        if self.is_managed(name) {
            return Err(Unguardable::ManagedSettings);
        }
        plan.set(name, value);
        put(&mut self.passed, &["env", name], json!(value));
        Ok(())
    }
}

pub(super) fn wire(plan: &mut Plan<'_>) {
    let folder = plan.var("CLAUDE_CONFIG_DIR").map(PathBuf::from).or_else(|| plan.home(".claude"));
    let own = folder.as_ref().map(|folder| folder.join("settings.json"));
    let given = given(plan);
    let option = given.as_ref().map(|(_, value)| value.clone()).unwrap_or_default();
    let mut layers = Vec::new();
    for file in MANAGED.iter().map(PathBuf::from) {
        layers.extend(plan.user_json(&file).map(|value| (value, Source::File(file))));
    }
    layers.push((option.clone(), Source::Argument(OPTION.to_owned())));
    if let Some(file) = &own {
        layers.extend(plan.user_json(file).map(|value| (value, Source::File(file.clone()))));
    }
    let mut settings = Settings { layers, passed: option.clone() };
    let base = settings.find(plan, BASE_URL);
    if let Some((base, source)) = base.filter(|(_, source)| !matches!(source, Source::Variable(_)))
    {
        plan.upstream(&[Anthropic], &base, source);
    }
    let url = plan.url("");
    if let Err(problem) = settings.set(plan, BASE_URL, &url) {
        plan.warn(Warning::Unguardable(problem));
    }
    for name in ["NO_PROXY", "no_proxy"] {
        // A settings file could take the proxy's host out of the list.
        put(&mut settings.passed, &["env", name], json!(no_proxy(plan)));
    }
    let own: Vec<PathBuf> = own.into_iter().collect();
    plan.report_repository(&[".claude/settings.json", ".claude/settings.local.json"], &own, named);
    let mut calls_anthropic = true;
    for (name, service) in SERVICES {
        if !settings.is_on(plan, name) {
            // Those that the user has not set, a repository must not set either.
            put(&mut settings.passed, &["env", name], json!("0"));
            continue;
        }
        calls_anthropic = false;
        if let Err(problem) = service(plan, &mut settings) {
            plan.warn(Warning::Unguardable(problem));
        }
    }
    if calls_anthropic && has_subscription(plan, folder.as_deref()) {
        plan.warn(Warning::Subscription { service: "a Claude subscription" });
    }
    let passed = std::mem::take(&mut settings.passed);
    place(plan, given.map(|(at, _)| at), &passed);
}

/// `true` if Claude Code uses the login of a subscription, as far as it can be seen here: a login that is stored in the
/// system's keychain cannot. A key is stronger than a login.
fn has_subscription(plan: &mut Plan<'_>, folder: Option<&Path>) -> bool {
    if ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"].iter().any(|name| plan.var(name).is_some()) {
        return false;
    }
    if plan.var("CLAUDE_CODE_OAUTH_TOKEN").is_some() {
        return true;
    }
    let login = folder.and_then(|folder| plan.user_json(&folder.join(".credentials.json")));
    let login = login.unwrap_or_default();
    text(&login, &["claudeAiOauth", "accessToken"]).is_some()
}

/// Returns the names of the settings of a file that choose a service or its address.
fn named(file: &str) -> Vec<String> {
    let settings = parse::json(file).unwrap_or_default();
    let names = [BASE_URL, BEDROCK_URL, VERTEX_URL, FOUNDRY_URL, FOUNDRY_RESOURCE];
    let names = names.into_iter().chain(SERVICES.map(|(name, _)| name));
    names.filter(|name| settings["env"].get(name).is_some()).map(|n| format!("env.{n}")).collect()
}

/// Returns the value of `--settings`, and the indices of its words.
fn given(plan: &mut Plan<'_>) -> Option<(std::ops::Range<usize>, Value)> {
    let (range, value) = plan.command.option(OPTION)?;
    // Claude Code decides by the first character, too.
    let settings = if value.trim_start().starts_with('{') {
        parse::json(&value).ok()
    } else {
        let file = plan.request.folder.join(value);
        plan.user_json(&file)
    };
    Some((range, settings?))
}

/// Names a private file with the settings in the command line. They contain the address of the proxy,
/// and can contain keys of the user, and other users can see the command line.
fn place(plan: &mut Plan<'_>, given: Option<std::ops::Range<usize>>, settings: &Value) {
    if given.is_none() && plan.command.changes_user() {
        // The other user cannot read the file.
        return plan.insert(&[OPTION, &settings.to_string()]);
    }
    let path = plan.file("claude-settings.json", settings.to_string());
    match given {
        Some(range) => drop(plan.command.words.splice(range, [OPTION.into(), path.into()])),
        None => plan.insert(&[OPTION, &path]),
    }
}

/// Points calls to Bedrock at the proxy, if they carry a key or the proxy can sign them again.
fn bedrock(plan: &mut Plan<'_>, settings: &mut Settings) -> Result<(), Unguardable> {
    let keys = AwsKeys::of_machine(
        |name| settings.value(plan, name),
        |path| plan.request.files.read(path),
    );
    let has_key = settings.value(plan, BEDROCK_KEY).is_some();
    if !has_key && keys.is_none_or(|keys| keys.is_empty()) {
        return Err(Unguardable::BedrockWithoutKeys);
    }
    let (base, source) = if let Some(found) = settings.find(plan, BEDROCK_URL) {
        found
    } else {
        let region = settings.value(plan, "AWS_REGION");
        let region = region.or_else(|| settings.value(plan, "AWS_DEFAULT_REGION"));
        let region = region.ok_or(Unguardable::BedrockWithoutRegion)?;
        (format!("https://bedrock-runtime.{region}.amazonaws.com"), Source::Default)
    };
    plan.upstream(&[BedrockInvoke, BedrockConverse], &base, source);
    let url = plan.url("");
    settings.set(plan, BEDROCK_URL, &url)
}

/// Points calls to Vertex at the proxy.
fn vertex(plan: &mut Plan<'_>, settings: &mut Settings) -> Result<(), Unguardable> {
    let (base, source) = if let Some(found) = settings.find(plan, VERTEX_URL) {
        found
    } else {
        let region = settings.value(plan, "CLOUD_ML_REGION");
        let region = region.ok_or(Unguardable::VertexWithoutRegion)?;
        // The region is a part of the host, and one base URL has one host.
        if other_regions(plan, settings, &region) {
            return Err(Unguardable::VertexRegions);
        }
        let host = match region.as_str() {
            "global" => "aiplatform.googleapis.com".to_owned(),
            "us" | "eu" => format!("aiplatform.{region}.rep.googleapis.com"),
            region => format!("{region}-aiplatform.googleapis.com"),
        };
        (format!("https://{host}/v1"), Source::Default)
    };
    let url = plan.service("/vertex", &base, source);
    settings.set(plan, VERTEX_URL, &url)
}

/// `true` if a model has a region of its own.
fn other_regions(plan: &Plan<'_>, settings: &Settings, region: &str) -> bool {
    let in_settings =
        settings.layers.iter().filter_map(|(layer, _)| layer["env"].as_object()).flatten();
    let names = in_settings.map(|(name, _)| name).chain(plan.request.environment.keys());
    names
        .filter(|name| name.starts_with(VERTEX_REGIONS))
        .any(|name| settings.value(plan, name).is_some_and(|other| other != region))
}

/// Points calls to Foundry at the proxy.
fn foundry(plan: &mut Plan<'_>, settings: &mut Settings) -> Result<(), Unguardable> {
    let (base, source) = if let Some(found) = settings.find(plan, FOUNDRY_URL) {
        found
    } else {
        let resource = settings.value(plan, FOUNDRY_RESOURCE);
        let resource = resource.ok_or(Unguardable::FoundryWithoutAddress)?;
        (format!("https://{resource}.services.ai.azure.com/anthropic"), Source::Default)
    };
    let url = plan.service("/foundry", &base, source);
    // Its client accepts one of the two.
    if settings.value(plan, FOUNDRY_RESOURCE).is_some() {
        settings.set(plan, FOUNDRY_RESOURCE, "")?;
        plan.wiring.env.retain(|(name, _)| name != FOUNDRY_RESOURCE);
        plan.wiring.cleared.push(FOUNDRY_RESOURCE.to_owned());
    }
    settings.set(plan, FOUNDRY_URL, &url)
}
