//! The settings file of a standing proxy (`guard.toml`).
//!
//! ```
//! use endstop_guard::standing::StandingFile;
//! let text = r#"
//!     idle_after = "10m"
//!     [tokens]
//!     ci = "$GUARD_TOKEN"
//!     [upstream]
//!     openai = "https://api.openai.com/v1"
//!     [profile.nightly]
//!     runs = ["nightly-*"]
//!     tokens = ["ci"]
//!     limits = { max_turns = 50, max_budget_usd = 2.0 }
//!     spend = { max_usd_per_day = 100.0 }
//! "#;
//! let file = StandingFile::parse(text, |name| Some(format!("{name}-0123456789abcdef")))?;
//! assert_eq!(file.profiles[0].settings.limits.max_turns, Some(50));
//! let error = StandingFile::parse("idle = 1", |_| None).unwrap_err();
//! assert!(error.starts_with("line 1: `idle`: unknown name"), "{error}");
//! # Ok::<(), String>(())
//! ```

use super::profile::Profile;
use super::tokens::Tokens;
use super::toml::{Entry, Node, parse};
use crate::exchange::RunName;
use crate::proxy::{Upstream, UpstreamMap};
use crate::run::{OnLimit, OtherCalls, Settings};
use endstop_core::limits::{parse_duration, unknown_key};
use endstop_core::{Limits, Registry, TerminationPolicy, ToolPolicy, Watch};
use endstop_wire::WireFormat::{
    self, Anthropic, BedrockConverse, BedrockInvoke, CohereV1, CohereV2, Gemini, Ollama,
    OpenAiChat, OpenAiResponses,
};
use endstop_wire::catalog::prices::parse_price;
use endstop_wire::catalog::providers::public_base_url;
use endstop_wire::redact::KnownKeys;
use http::Uri;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const TOP: [&str; 5] = ["allow_http", "idle_after", "profile", "tokens", "upstream"];
const OF_PROFILE: [&str; 11] = [
    "cap_output",
    "limits",
    "max_calls",
    "on_limit",
    "other",
    "policy",
    "price",
    "runs",
    "spend",
    "tokens",
    "watch",
];

/// Names of upstreams, and their formats.
const UPSTREAMS: [(&str, &[WireFormat]); 6] = [
    ("anthropic", &[Anthropic]),
    ("bedrock", &[BedrockConverse, BedrockInvoke]),
    ("cohere", &[CohereV1, CohereV2]),
    ("gemini", &[Gemini]),
    ("ollama", &[Ollama]),
    ("openai", &[OpenAiChat, OpenAiResponses]),
];

/// The most profiles. Each is a label of the metrics.
const MOST_PROFILES: usize = 100;

/// The settings of a standing proxy.
#[derive(Debug)]
pub struct StandingFile {
    /// The tokens that admit clients to the proxy.
    pub tokens: Tokens,
    /// The same, to be redacted from everything that is written.
    pub secrets: KnownKeys,
    /// `true` if a token is written in the file itself, and not in a variable of the environment.
    pub has_literal_token: bool,
    /// The upstream of each format.
    pub upstreams: UpstreamMap,
    /// The profiles, by name. There is at least one.
    pub profiles: Vec<Profile>,
    /// The time after which a run without calls ends. Ten minutes unless the file has another.
    pub idle_after: Duration,
}

impl Default for StandingFile {
    /// Observes every run, in front of the providers' own addresses.
    fn default() -> StandingFile {
        let mut upstreams = UpstreamMap::empty();
        for &format in WireFormat::ALL {
            // The constants are valid, which a test checks.
            let Some(Ok(base)) = public_base_url(format).map(Upstream::parse) else { continue };
            upstreams = upstreams.with(format, base);
        }
        StandingFile {
            tokens: Tokens::default(),
            secrets: KnownKeys::default(),
            has_literal_token: false,
            upstreams,
            profiles: vec![profile("default")],
            idle_after: Duration::from_secs(600),
        }
    }
}

fn profile(name: &str) -> Profile {
    let mut profile = Profile::new(name, ["*"]);
    // The agents of a standing proxy run unattended, so no user would read a final text.
    profile.settings.on_limit = OnLimit::Refuse;
    profile
}

impl StandingFile {
    /// Reads a file. `variable` returns the value of an environment variable.
    ///
    /// # Errors
    /// The text is not valid. The message has the line, the key and the choices, and no token.
    pub fn parse(
        text: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<StandingFile, String> {
        let entries = parse(text)?;
        let mut file = StandingFile::default();
        let mut names = Vec::new();
        // Read first, because `[upstream]` may come before it.
        let allow_http = entries
            .iter()
            .any(|entry| entry.key == "allow_http" && entry.value.json() == Value::Bool(true));
        for entry in &entries {
            let at = Place::top(entry);
            match entry.key.as_str() {
                "allow_http" => drop(at.switch(entry)?),
                "idle_after" => file.idle_after = at.time(entry)?,
                "tokens" => {
                    let (tokens, has_literal) = tokens(&at, entry, &variable)?;
                    file.has_literal_token = has_literal;
                    names = tokens.iter().map(|(name, _)| name.clone()).collect();
                    file.secrets = KnownKeys::new(tokens.iter().map(|(_, token)| token));
                    file.tokens =
                        Tokens::new(tokens).map_err(|error| at.wrong(&error.to_string()))?;
                }
                "upstream" => file.upstreams = upstreams(&at, entry, allow_http)?,
                "profile" => file.profiles = profiles(&at, entry)?,
                _ => return Err(at.wrong(&unknown_key(&entry.key, &TOP))),
            }
        }
        // After the loop, because `[tokens]` may come after the profiles.
        for profile in &file.profiles {
            if let Some(name) = profile.tokens.iter().find(|name| !names.contains(name)) {
                return Err(format!(
                    "`profile.{}.tokens`: unknown token `{name}`; name it under [tokens]",
                    profile.name
                ));
            }
        }
        Ok(file)
    }
}

/// The line and the full name of an entry, for errors.
struct Place {
    line: usize,
    name: String,
}

impl Place {
    fn top(entry: &Entry) -> Place {
        Place { line: entry.line, name: entry.key.clone() }
    }

    fn of(&self, entry: &Entry) -> Place {
        Place { line: entry.line, name: format!("{}.{}", self.name, entry.key) }
    }

    fn wrong(&self, problem: &str) -> String {
        format!("line {}: `{}`: {problem}", self.line, self.name)
    }

    fn text(&self, entry: &Entry) -> Result<String, String> {
        let value = entry.value.json();
        value.as_str().map(str::to_owned).ok_or_else(|| self.wrong("expected a string"))
    }

    fn switch(&self, entry: &Entry) -> Result<bool, String> {
        entry.value.json().as_bool().ok_or_else(|| self.wrong("expected true or false"))
    }

    fn time(&self, entry: &Entry) -> Result<Duration, String> {
        parse_duration(&self.text(entry)?)
            .filter(|time| !time.is_zero())
            .ok_or_else(|| self.wrong("expected a time such as \"10m\""))
    }

    fn texts(&self, entry: &Entry) -> Result<Vec<String>, String> {
        let value = entry.value.json();
        let texts = value
            .as_array()
            .and_then(|items| items.iter().map(|item| item.as_str().map(str::to_owned)).collect());
        texts.ok_or_else(|| self.wrong("expected a list of strings"))
    }

    fn table<'a>(&self, entry: &'a Entry) -> Result<&'a [Entry], String> {
        match &entry.value {
            Node::Table(entries) => Ok(entries),
            Node::Plain(_) => Err(self.wrong("expected a table")),
        }
    }
}

/// Returns the tokens with their names, and `true` if one is written in the file itself.
fn tokens(
    at: &Place,
    entry: &Entry,
    variable: &impl Fn(&str) -> Option<String>,
) -> Result<(Vec<(String, String)>, bool), String> {
    let (mut tokens, mut has_literal) = (Vec::new(), false);
    for entry in at.table(entry)? {
        let at = at.of(entry);
        RunName::new(&entry.key).map_err(|_| at.wrong("expected a name such as `ci`"))?;
        let mut token = at.text(entry)?;
        if let Some(name) = token.strip_prefix('$') {
            token = variable(name)
                .ok_or_else(|| at.wrong(&format!("the environment has no variable {name}")))?;
        } else {
            has_literal = true;
        }
        tokens.push((entry.key.clone(), token));
    }
    Ok((tokens, has_literal))
}

fn upstreams(at: &Place, entry: &Entry, allow_http: bool) -> Result<UpstreamMap, String> {
    // Only what the file names: a key must not reach a provider that the file leaves out.
    let mut map = UpstreamMap::empty();
    for entry in at.table(entry)? {
        let at = at.of(entry);
        let Some((_, formats)) = UPSTREAMS.iter().find(|(name, _)| *name == entry.key) else {
            return Err(at.wrong(&unknown_key(&entry.key, &UPSTREAMS.map(|(name, _)| name))));
        };
        let base = at.text(entry)?;
        let upstream = Upstream::parse(&base).map_err(|error| at.wrong(&error.to_string()))?;
        if !allow_http && is_plain(&base) {
            return Err(at.wrong(
                "http:// sends keys without encryption; use https://, or set allow_http = true",
            ));
        }
        for format in *formats {
            map = map.with(*format, upstream.clone());
        }
    }
    Ok(map)
}

/// Returns whether an address is not encrypted and on another machine.
fn is_plain(base: &str) -> bool {
    let Ok(url) = base.parse::<Uri>() else { return true };
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let local = host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    url.scheme_str() != Some("https") && !local
}

fn profiles(at: &Place, entry: &Entry) -> Result<Vec<Profile>, String> {
    let entries = at.table(entry)?;
    if entries.is_empty() || entries.len() > MOST_PROFILES {
        return Err(at.wrong(&format!("expected 1 to {MOST_PROFILES} profiles")));
    }
    let mut profiles = Vec::new();
    for entry in entries {
        profiles.push(read_profile(&at.of(entry), entry)?);
    }
    profiles.sort_by(|one, other| one.name.cmp(&other.name));
    // Otherwise the order of their names would decide about a run.
    let mut seen: BTreeMap<(BTreeSet<&String>, &String), &str> = BTreeMap::new();
    for profile in &profiles {
        for pattern in &profile.runs {
            let tokens = profile.tokens.iter().collect();
            if let Some(other) = seen.insert((tokens, pattern), &profile.name) {
                return Err(at.wrong(&format!(
                    "the profiles `{other}` and `{}` have the same run `{pattern}` with the same tokens",
                    profile.name
                )));
            }
        }
    }
    Ok(profiles)
}

fn read_profile(at: &Place, entry: &Entry) -> Result<Profile, String> {
    RunName::new(&entry.key)
        .map_err(|_| at.wrong("expected a name of letters, digits, `-`, `_` and `.`"))?;
    let mut profile = profile(&entry.key);
    let mut runs = None;
    for entry in at.table(entry)? {
        let at = at.of(entry);
        let settings = &mut profile.settings;
        match entry.key.as_str() {
            "runs" => runs = Some(at.texts(entry)?),
            "tokens" => profile.tokens = at.texts(entry)?,
            "on_limit" => settings.on_limit = on_limit(&at, entry)?,
            "cap_output" => settings.cap_output = at.switch(entry)?,
            "other" => {
                let other = at.text(entry)?.parse::<OtherCalls>();
                settings.other = Some(other.map_err(|error| at.wrong(&error))?);
            }
            "limits" => settings.limits = limits(&at, entry)?,
            "price" => {
                let price = parse_price(&at.text(entry)?);
                settings.price = Some(price.map_err(|error| at.wrong(&error.to_string()))?);
            }
            "watch" => {
                let rules = Watch::read(&entry.value.json());
                settings.watches = rules.map_err(|error| at.wrong(&error.to_string()))?;
            }
            "policy" => policy(&at, entry, settings)?,
            "max_calls" => {
                let limits = ToolPolicy::read_max_calls(&entry.value.json());
                let limits = limits.map_err(|problem| at.wrong(&problem))?;
                settings.tools = Arc::new(ToolPolicy::of_max_calls(&limits));
            }
            "spend" => {
                for entry in at.table(entry)? {
                    let set = profile.spend.set(&entry.key, &entry.value.json());
                    set.map_err(|problem| at.of(entry).wrong(&problem))?;
                }
            }
            _ => return Err(at.wrong(&unknown_key(&entry.key, &OF_PROFILE))),
        }
    }
    profile.runs = match runs {
        Some(runs) if runs.is_empty() => return Err(at.wrong("`runs` is empty")),
        Some(runs) => runs,
        None if profile.name == "default" || !profile.tokens.is_empty() => vec!["*".to_owned()],
        None => {
            return Err(at.wrong(
                "set `runs` to the names of its runs, for example [\"nightly-*\"], or `tokens`",
            ));
        }
    };
    Ok(profile)
}

fn on_limit(at: &Place, entry: &Entry) -> Result<OnLimit, String> {
    match at.text(entry)?.parse() {
        // There is no program to kill: the agents are the clients'.
        Ok(OnLimit::Kill) => Err(at.wrong("expected `final` or `refuse`")),
        Ok(how) => Ok(how),
        Err(_) => Err(at.wrong("unknown value; expected `final` or `refuse`")),
    }
}

fn limits(at: &Place, entry: &Entry) -> Result<Limits, String> {
    let mut limits = Settings::default_limits();
    for entry in at.table(entry)? {
        let at = at.of(entry);
        let set = limits.set(&entry.key, &entry.value.json());
        // Checked after each value, so that the error names the line.
        set.and_then(|()| Settings::default().mode().check(&limits))
            .map_err(|error| at.wrong(&error.problem))?;
    }
    Ok(limits)
}

fn policy(at: &Place, entry: &Entry, settings: &mut Settings) -> Result<(), String> {
    let policy = Registry::default().build(&entry.value.json());
    let policy = policy.map_err(|error| at.wrong(&error.to_string()))?;
    // Each conversation gets a copy of its own.
    let template = Mutex::new(policy);
    settings.policy = Some(Arc::new(move || -> Box<dyn TerminationPolicy> {
        Box::new(template.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }));
    Ok(())
}
