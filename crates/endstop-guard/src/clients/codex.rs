//! codex.
//!
//! It ignores `OPENAI_BASE_URL`. Its provider is the one that `model_provider` names in its
//! configuration, in a profile, or in an option `-c`; the built-in one is `openai`, whose address is
//! `openai_base_url`. With a ChatGPT login the calls go to another address.

use super::parse::{self, text};
use super::plan::Plan;
use super::wiring::{Source, Warning};
use endstop_wire::WireFormat::{OpenAiChat, OpenAiResponses};
use serde_json::Value;
use std::ffi::OsString;
use std::path::PathBuf;

/// Address of the model for a ChatGPT login.
const CHATGPT: &str = "https://chatgpt.com/backend-api/codex";

/// Built-in providers with a server on this machine.
const LOCAL: [&str; 3] = ["oss", "ollama", "lmstudio"];

const BASE_URL: &str = "openai_base_url";

/// The setting of the web search.
const SEARCH: &str = "web_search";

pub(super) fn wire(plan: &mut Plan<'_>) {
    let folder = plan.var("CODEX_HOME").map(PathBuf::from).or_else(|| plan.home(".codex"));
    let file = folder.as_ref().map(|folder| folder.join("config.toml"));
    let config = file.as_ref().and_then(|file| plan.user_toml(file)).unwrap_or_default();
    let own: Vec<PathBuf> = file.iter().cloned().collect();
    plan.report_repository(&[".codex/config.toml"], &own, named);
    let options = Options::read(plan);
    let profile =
        options.profile.clone().or_else(|| text(&config, &["profile"]).map(str::to_owned));
    let layer = match (&folder, &profile) {
        (Some(folder), Some(name)) if is_bare(name) => {
            plan.user_toml(&folder.join(format!("{name}.config.toml"))).unwrap_or_default()
        }
        _ => Value::Null,
    };
    let in_profile = profile.as_ref().map(|name| config["profiles"][name.as_str()].clone());
    let in_profile = in_profile.unwrap_or_default();
    // The strongest first: an option, the profile in its own file, the profile, the file.
    let setting = |key: &str| {
        let files = [&layer, &in_profile, &config];
        options
            .get(key)
            .map(|value| (value.to_owned(), true))
            .or_else(|| files.iter().find_map(|f| text(f, &[key]).map(|v| (v.to_owned(), false))))
    };
    let source = |by_option: bool, key: &str| match &file {
        Some(file) if !by_option => Source::File(file.clone()),
        _ => Source::Argument(format!("-c {key}")),
    };
    let provider = setting("model_provider").map_or_else(|| "openai".to_owned(), |(name, _)| name);
    let mut add = Vec::new();
    if LOCAL.contains(&provider.as_str()) || options.local {
        // Its calls cost nothing, and its port is not in the configuration.
        let problem = "its server is on this machine and has no cost";
        plan.warn(Warning::ProviderOutside {
            provider: provider.clone(),
            problem,
            is_chosen: true,
        });
    } else if provider == "openai" {
        if let Some((base, by_option)) = setting(BASE_URL) {
            plan.upstream(&[OpenAiResponses], &base, source(by_option, BASE_URL));
        } else {
            built_in(plan, folder.as_ref());
        }
        add.push(format!("{BASE_URL}=\"{}\"", plan.url("/v1")));
    } else if !is_bare(&provider) {
        let problem = "its name has characters that the option -c does not take";
        plan.warn(Warning::ProviderOutside {
            provider: provider.clone(),
            problem,
            is_chosen: true,
        });
    } else {
        let key = format!("model_providers.{provider}.base_url");
        let path = ["model_providers", &provider, "base_url"];
        let base = options.get(&key).map(|base| (base.to_owned(), true)).or_else(|| {
            [&layer, &config]
                .iter()
                .find_map(|f| text(f, &path).map(|base| (base.to_owned(), false)))
        });
        let wire_api = text(&config, &["model_providers", &provider, "wire_api"]);
        let format = if wire_api == Some("chat") { OpenAiChat } else { OpenAiResponses };
        // A provider without an address has that of the environment, or the default.
        if let Some((base, by_option)) = base {
            plan.upstream(&[format], &base, source(by_option, &key));
        }
        add.push(format!("{key}=\"{}\"", plan.url("/v1")));
    }
    if !options.local {
        // Without this option, a repository's file could name another provider.
        add.push(format!("model_provider=\"{provider}\""));
    }
    // codex offers the search of the provider by itself. A user who asks for it gets the refusal with its reason.
    if plan.request.is_strict && !options.searches {
        add.push(format!("{SEARCH}=\"disabled\""));
        plan.warn(Warning::SearchOff { client: "codex" });
    }
    options.place(plan, &add);
}

/// Names the upstream of the built-in provider by the login.
fn built_in(plan: &mut Plan<'_>, folder: Option<&PathBuf>) {
    let login = folder.and_then(|folder| plan.user_json(&folder.join("auth.json")));
    let login = login.unwrap_or_default();
    let by_key = plan.var("CODEX_API_KEY").is_some() || text(&login, &["OPENAI_API_KEY"]).is_some();
    if login["tokens"].is_object() && !by_key {
        let source =
            folder.map_or(Source::Default, |folder| Source::File(folder.join("auth.json")));
        plan.upstream(&[OpenAiResponses], CHATGPT, source);
        plan.warn(Warning::Subscription { service: "a ChatGPT login" });
    }
}

/// Returns the names of the settings of a file that choose a provider or its address.
fn named(file: &str) -> Vec<String> {
    let config = parse::toml(file).unwrap_or_default();
    let mut names = Vec::new();
    let mut look = |prefix: &str, table: &Value| {
        for key in [BASE_URL, "chatgpt_base_url", "model_provider"] {
            if table.get(key).is_some() {
                names.push(format!("{prefix}{key}"));
            }
        }
        // The whole table of a provider, because it also names the variable of the key.
        for (provider, _) in table["model_providers"].as_object().into_iter().flatten() {
            names.push(format!("{prefix}model_providers.{provider}"));
        }
    };
    look("", &config);
    for (profile, table) in config["profiles"].as_object().into_iter().flatten() {
        look(&format!("profiles.{profile}."), table);
    }
    names
}

/// Returns `true` if a name needs no quotes in TOML.
fn is_bare(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// The options of a command line that change the configuration.
#[derive(Default)]
struct Options {
    /// Keys and values, and the index of the word that has both.
    set: Vec<(String, String, usize)>,
    profile: Option<String>,
    local: bool,
    /// `true` if an option says whether the web is searched.
    searches: bool,
}

impl Options {
    fn read(plan: &Plan<'_>) -> Options {
        let mut options = Options::default();
        let words = &plan.command.words;
        let mut at = plan.command.after;
        while let Some(word) = words.get(at) {
            let word = word.to_string_lossy();
            let next = words.get(at + 1).map(|next| next.to_string_lossy().into_owned());
            match (&*word, next) {
                // What follows is the task, which may look like options.
                ("--", _) => break,
                ("-c" | "--config", Some(next)) => {
                    options.take(&next, at + 1);
                    at += 1;
                }
                ("-p" | "--profile", Some(next)) => {
                    options.profile = Some(next);
                    at += 1;
                }
                ("--oss", _) => options.local = true,
                ("--search", _) => options.searches = true,
                (word, _) => {
                    if let Some(pair) = word.strip_prefix("--config=") {
                        options.take(pair, at);
                    } else if let Some(name) = word.strip_prefix("--profile=") {
                        options.profile = Some(name.to_owned());
                    }
                }
            }
            at += 1;
        }
        options
    }

    fn take(&mut self, pair: &str, at: usize) {
        let Some((key, value)) = pair.split_once('=') else { return };
        // As codex does: the value is TOML, or else the text itself.
        let read = parse::toml(&format!("v = {}", value.trim())).ok();
        let value = read.as_ref().and_then(|read| text(read, &["v"])).unwrap_or(value.trim());
        self.searches |= [SEARCH, "tools.web_search"].contains(&key.trim());
        self.set.push((key.trim().to_owned(), value.to_owned(), at));
    }

    /// Returns the value of a key, which its last option sets.
    fn get(&self, key: &str) -> Option<&str> {
        let (_, value, _) = self.set.iter().rev().find(|(known, ..)| known == key)?;
        Some(value.as_str()).filter(|value| !value.is_empty())
    }

    /// Adds options. One that the command line already has is replaced, because the last one counts.
    fn place(&self, plan: &mut Plan<'_>, add: &[String]) {
        let mut new = Vec::new();
        for pair in add {
            let key = pair.split('=').next().unwrap_or_default();
            let mut replaced = false;
            for (_, _, at) in self.set.iter().filter(|(known, ..)| known == key) {
                let prefix = plan.command.words[*at].to_string_lossy().starts_with("--config=");
                let prefix = if prefix { "--config=" } else { "" };
                plan.command.words[*at] = OsString::from(format!("{prefix}{pair}"));
                replaced = true;
            }
            if !replaced {
                new.extend(["-c", pair.as_str()]);
            }
        }
        plan.insert(&new);
    }
}
