//! Claude Code.
//!
//! Its settings files can set variables, and these override the environment. Only the option
//! `--settings` and the settings of an administrator are stronger. The upstream is that of the
//! option, of the user's settings, or of the environment, in this order.

use super::aws_keys::AwsKeys;
use super::parse::{self, put, text};
use super::plan::Plan;
use super::variables::no_proxy;
use super::wiring::{Source, Unguardable, Warning};
use endstop_wire::WireFormat::{Anthropic, BedrockInvoke};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const BASE_URL: &str = "ANTHROPIC_BASE_URL";
const BEDROCK_URL: &str = "ANTHROPIC_BEDROCK_BASE_URL";

/// Variables that send the calls to another service.
const SWITCHES: [&str; 3] =
    ["CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY"];

/// Settings files of an administrator, on Linux and on macOS.
const MANAGED: [&str; 2] = [
    "/etc/claude-code/managed-settings.json",
    "/Library/Application Support/ClaudeCode/managed-settings.json",
];

const OPTION: &str = "--settings";

pub(super) fn wire(plan: &mut Plan<'_>) {
    let folder = plan.var("CLAUDE_CONFIG_DIR").map(PathBuf::from).or_else(|| plan.home(".claude"));
    let own = folder.map(|folder| folder.join("settings.json"));
    let user = own.as_ref().and_then(|file| plan.user_json(file)).unwrap_or_default();
    let given = given(plan);
    let option = given.as_ref().map(|(_, value)| value.clone()).unwrap_or_default();

    for (settings, source) in [
        (&user, own.clone().map(Source::File)),
        (&option, Some(Source::Argument(OPTION.to_owned()))),
    ] {
        if let (Some(base), Some(source)) = (text(settings, &["env", BASE_URL]), source) {
            plan.upstream(&[Anthropic], base, source);
        }
    }
    for file in MANAGED {
        let managed = plan.user_json(Path::new(file)).unwrap_or_default();
        if text(&managed, &["env", BASE_URL]).is_some() {
            plan.warn(Warning::Unguardable(Unguardable::ManagedSettings));
        }
    }

    let mut settings = option.clone();
    put(&mut settings, &["env", BASE_URL], json!(plan.url("")));
    for name in ["NO_PROXY", "no_proxy"] {
        // A settings file could take the proxy's host out of the list.
        put(&mut settings, &["env", name], json!(no_proxy(plan)));
    }
    let own: Vec<PathBuf> = own.into_iter().collect();
    plan.report_repository(&[".claude/settings.json", ".claude/settings.local.json"], &own, named);
    let on = |plan: &Plan<'_>, name: &str| {
        [&option, &user]
            .iter()
            .find_map(|settings| text(settings, &["env", name]).map(str::to_owned))
            .or_else(|| plan.var(name).map(str::to_owned))
            .is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    };
    for name in SWITCHES {
        // Those that the user has not set, a repository must not set either.
        if !on(plan, name) {
            put(&mut settings, &["env", name], json!("0"));
        }
    }
    if on(plan, SWITCHES[0]) {
        bedrock(plan, &mut settings);
    }
    if on(plan, SWITCHES[1]) || on(plan, SWITCHES[2]) {
        plan.warn(Warning::Unguardable(Unguardable::Vertex));
    }
    // A login that is stored in the system's keychain is not visible here.
    if plan.var("CLAUDE_CODE_OAUTH_TOKEN").is_some() {
        plan.warn(Warning::Subscription { service: "a Claude subscription" });
    }
    place(plan, given.map(|(at, _)| at), &settings);
}

/// Returns the names of the settings of a file that choose a service or its address.
fn named(file: &str) -> Vec<String> {
    let settings = parse::json(file).unwrap_or_default();
    let names = [BASE_URL, BEDROCK_URL, "ANTHROPIC_VERTEX_BASE_URL"].into_iter().chain(SWITCHES);
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

/// Points calls to Bedrock at the proxy if it can sign them again.
fn bedrock(plan: &mut Plan<'_>, settings: &mut Value) {
    let region = plan.var("AWS_REGION").or_else(|| plan.var("AWS_DEFAULT_REGION"));
    let region = region.map(str::to_owned);
    let keys = AwsKeys::of_machine(
        |name| plan.var(name).map(str::to_owned),
        |path| plan.request.files.read(path),
    );
    let (Some(region), true) = (region, keys.is_some_and(|keys| !keys.is_empty())) else {
        plan.warn(Warning::Unguardable(Unguardable::BedrockWithoutKeys));
        return;
    };
    let (base, source) = match plan.var(BEDROCK_URL) {
        Some(base) => (base.to_owned(), Source::Variable(BEDROCK_URL.to_owned())),
        None => (format!("https://bedrock-runtime.{region}.amazonaws.com"), Source::Default),
    };
    plan.upstream(&[BedrockInvoke], &base, source);
    let url = plan.url("");
    plan.set(BEDROCK_URL, url.clone());
    put(settings, &["env", BEDROCK_URL], json!(url));
}
