//! A profile: how a program is started, where its verdict is, and what it can do. The files are in `profiles`.
//!
//! ```
//! use endstop_conform::{Capability, profile::find};
//! let claude = find("claude")?;
//! assert!(claude.capabilities.contains(&Capability::Tools));
//! # Ok::<(), endstop_conform::BadData>(())
//! ```

use crate::vocabulary::{BadData, Capability, Tool, expected};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../profiles/", $name, ".toml")))),*]
    };
}

/// The files of the profiles.
const FILES: &[(&str, &str)] = files![
    "a2a",
    "acp",
    "agent-framework",
    "ai-sdk",
    "ai-sdk-endstop",
    "aider",
    "anthropic-sdk",
    "autogen",
    "claude",
    "codex",
    "copilot",
    "crewai",
    "endstop",
    "endstop-a2a",
    "endstop-acp",
    "endstop-library",
    "gemini",
    "generic",
    "google-adk",
    "langchain",
    "langchain-endstop",
    "llama-index",
    "mini",
    "mini-a2a",
    "mini-acp",
    "mini-swe-agent",
    "openai-agents",
    "openai-agents-endstop",
    "openai-sdk",
    "opencode",
    "pi",
    "pydantic-ai",
    "qwen",
    "smolagents",
    "strands",
];

/// The profile of guard in front of a program.
const GUARD: &str = include_str!("../profiles/front/guard.toml");

/// The name of the profile for programs that are not known.
pub const GENERIC: &str = "generic";

/// The names of the profiles for any program.
pub const ANY: [&str; 3] = ["a2a", "acp", GENERIC];

/// A protocol by which a program gets its task and says its verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Serves {
    /// The Agent Client Protocol, version 1, over standard input and output. The ids of the suite's requests are
    /// `initialize`, `session` and `prompt`.
    Acp,
    /// A2A, version 1.0, in its JSON-RPC binding over HTTP, at the port that the program gets as `{port}`.
    A2a,
}

/// A profile.
///
/// Words of the program's command line may contain `{task}`, `{base}` (the address of the provider), `{key}`, `{private}` (a folder
/// that is removed afterwards), `{n}` and `{usd}` (a limit), `{veto}` (a command that vetoes), `{schema}` (a file) and
/// `{port}` (a free port). The files of the home folder may contain `{n}`, `{usd}` and `{seconds}`: the limits of the case, or large ones.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Name, which is that of the file.
    #[serde(skip_deserializing)]
    pub name: String,
    /// Name for people.
    pub title: String,
    /// Names of the program, by which a command gets this profile without `--profile`.
    #[serde(default)]
    pub programs: Vec<String>,
    /// Version with which the profile was tested; empty if it was not.
    #[serde(default)]
    pub tested: String,
    /// Capabilities of the program.
    pub capabilities: Vec<Capability>,
    /// The protocol that it serves, if it gets its tasks by one.
    #[serde(default)]
    pub serves: Option<Serves>,
    /// The path at which it serves A2A, below which its card is, for example `/a2a/main`.
    #[serde(default)]
    pub at: String,
    /// Arguments after the command, unless a word of the command contains `{task}`.
    #[serde(default)]
    pub args: Vec<String>,
    /// Arguments after the command with which it prints its version.
    #[serde(default)]
    pub version: Vec<String>,
    /// Arguments of guard, if it stands in front of the program: those before the limits of the case.
    #[serde(skip_deserializing)]
    pub front: Vec<String>,
    /// Arguments of guard that make its bound on a response as short as `documented` says.
    #[serde(skip_deserializing)]
    pub front_short: Vec<String>,
    /// Variables.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Files in the home folder, by their path.
    #[serde(default)]
    pub home: BTreeMap<String, String>,
    /// Arguments for the limits and other options of a case.
    #[serde(default)]
    pub options: Options,
    /// Names of the tools. Without them, the schemas of a request decide.
    #[serde(default)]
    pub tools: BTreeMap<Tool, String>,
    /// The call with which the program ends, if a text without a call is not an answer for it.
    #[serde(default)]
    pub answer: Option<AnswerCall>,
    /// The place of the verdict.
    #[serde(default)]
    pub verdict: VerdictPlace,
    /// The times in seconds, and the number of calls, that the program documents for a run without limits of its caller.
    #[serde(default)]
    pub documented: Documented,
}

/// The call that gives an answer. The provider makes it of each whole answer.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerCall {
    /// Name of the tool.
    pub tool: String,
    /// Its argument, in which `{text}` is the answer.
    pub input: String,
}

/// Arguments that a case adds.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// For a cap on turns.
    pub turns: Vec<String>,
    /// For a ceiling in dollars, with the prices of the cases.
    pub budget: Vec<String>,
    /// For a limit on time.
    pub time: Vec<String>,
    /// For a hook that vetoes each stop.
    pub stop_hook: Vec<String>,
    /// For a structured answer.
    pub structured: Vec<String>,
    /// For a summary at the cap on turns.
    pub wrap_up: Vec<String>,
    /// For times that are as short as `documented` says, in the cases that wait for them.
    pub short: Vec<String>,
    /// For a start whose conversation will be continued.
    pub first: Vec<String>,
    /// For a start that continues the conversation. They replace the other arguments if [`again_alone`](Options::again_alone) is set.
    pub again: Vec<String>,
    /// `true` if a start that continues has only the arguments of `again`.
    pub again_alone: bool,
}

/// The place of the verdict in the output.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct VerdictPlace {
    /// A file that has the records, in place of the standard output.
    pub file: Option<String>,
    /// Members of a final record: a pointer, and its values; without values, the member is missing. A record is a line of JSON, or the whole output.
    pub record: BTreeMap<String, Vec<Value>>,
    /// Members of a record that is a success, all of which hold.
    pub success: BTreeMap<String, Vec<Value>>,
    /// Pointers to the reason.
    pub reason: Vec<String>,
    /// Pointers to the usage.
    pub usage: Vec<String>,
    /// Pointers to the cost in dollars.
    pub cost: Vec<String>,
    /// Pointers to the answer.
    pub answer: Vec<String>,
    /// Words of the result of a sub-agent that did not finish, one of which is in it.
    pub unfinished: Vec<String>,
    /// Exit statuses, apart from 0, that the program documents for endings that are not failures.
    pub not_failed: Vec<i32>,
}

/// Times in seconds that a program documents.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Documented {
    /// For a response without content.
    pub content: Option<u64>,
    /// For a whole response, also one that only reasons.
    pub response: Option<u64>,
    /// For a tool.
    pub tool: Option<u64>,
    /// Model calls of a run.
    pub calls: Option<usize>,
}

impl Profile {
    /// Reads a profile. `file` is its name in errors.
    ///
    /// # Errors
    /// The text is not valid; the message names the file, the line and the field.
    pub fn read(file: &str, text: &str) -> Result<Profile, BadData> {
        let bad = |problem: String| BadData::new(file, problem);
        let mut profile: Profile = toml::from_str(text).map_err(|error| bad(error.to_string()))?;
        let name = file.rsplit(['/', '\\']).next().unwrap_or(file);
        name.strip_suffix(".toml").unwrap_or(name).clone_into(&mut profile.name);
        let options = &profile.options;
        // A server has its limits in a file.
        let in_file = |mark: &str| profile.home.values().any(|text| text.contains(mark));
        for (capability, words, field, is_in_file) in [
            (Capability::TurnCap, &options.turns, "turns", in_file("{n}")),
            (Capability::Budget, &options.budget, "budget", in_file("{usd}")),
            (Capability::TimeCap, &options.time, "time", in_file("{seconds}")),
            (Capability::StopHook, &options.stop_hook, "stop_hook", false),
            (Capability::Structured, &options.structured, "structured", false),
            (Capability::WrapUp, &options.wrap_up, "wrap_up", false),
            (Capability::Resume, &options.again, "again", false),
        ] {
            if profile.can(capability) != (is_in_file || !words.is_empty()) {
                let name = capability.name();
                return Err(bad(format!(
                    "`options.{field}`: set it together with the capability `{name}`, or neither"
                )));
            }
        }
        if profile.can(Capability::Protocol) != profile.serves.is_some() {
            return Err(bad(
                "`serves`: set it together with the capability `protocol`, or neither".to_owned(),
            ));
        }
        let has_verdict = profile.can(Capability::Json) || profile.serves.is_some();
        if has_verdict == profile.verdict.success.is_empty() {
            return Err(bad(
                "`verdict.success`: set it together with the capability `json` or with `serves`, or neither"
                    .to_owned(),
            ));
        }
        let places = &profile.verdict;
        let pointers = places.record.keys().chain(places.success.keys());
        let pointers = pointers.chain(&places.reason).chain(&places.usage);
        if let Some(wrong) = pointers.chain(&places.cost).find(|pointer| !pointer.starts_with('/'))
        {
            return Err(bad(format!(
                "`verdict`: `{wrong}` is not a JSON pointer; begin it with `/`"
            )));
        }
        Ok(profile)
    }

    /// Returns the profile of the program with guard in front of it: what guard can is added, the limits and the verdict are
    /// those of guard, and the rest is that of the program.
    ///
    /// # Errors
    /// The profile of guard is not valid, which a test excludes.
    pub fn guarded(mut self) -> Result<Profile, BadData> {
        let guard = Profile::read("profiles/front/guard.toml", GUARD)?;
        if self.serves.is_some() {
            let problem =
                "guard is for programs that are started for one run, and not for a server"
                    .to_owned();
            return Err(BadData::new(&format!("profile `{}`", self.name), problem));
        }
        self.title = format!("{}, under {}", self.title, guard.title);
        for capability in guard.capabilities {
            if !self.can(capability) {
                self.capabilities.push(capability);
            }
        }
        self.options.turns = guard.options.turns;
        self.options.budget = guard.options.budget;
        self.options.time = guard.options.time;
        self.documented.response = guard.documented.response;
        (self.front, self.front_short) = (guard.args, guard.options.short);
        self.verdict = guard.verdict;
        Ok(self)
    }

    /// `true` if the program declares this capability.
    pub fn can(&self, capability: Capability) -> bool {
        self.capabilities.contains(&capability)
    }
}

/// Returns the profile with this name, or that of a file whose name ends in `.toml`.
///
/// # Errors
/// There is no such profile; the message names a similar one. Or the file cannot be read, or is not valid.
pub fn find(name: &str) -> Result<Profile, BadData> {
    if std::path::Path::new(name).extension().is_some_and(|end| end == "toml") {
        let text =
            std::fs::read_to_string(name).map_err(|error| BadData::new(name, error.to_string()))?;
        return Profile::read(name, &text);
    }
    match FILES.iter().find(|(known, _)| *known == name) {
        Some((name, text)) => Profile::read(&format!("profiles/{name}.toml"), text),
        None => Err(BadData::new(
            &format!("profile `{name}`"),
            expected(name, FILES.iter().map(|(name, _)| *name)),
        )),
    }
}

/// Returns the profile of a command, by the name of its program: [`GENERIC`] if there is not one.
///
/// # Errors
/// A file is not valid, which a test excludes.
pub fn of_command(command: &[std::ffi::OsString]) -> Result<Profile, BadData> {
    let file = command.first().map(std::path::Path::new).and_then(std::path::Path::file_stem);
    let stem = file.and_then(std::ffi::OsStr::to_str).unwrap_or_default();
    for (name, _) in FILES {
        let profile = find(name)?;
        if profile.programs.iter().any(|program| program == stem) {
            return Ok(profile);
        }
    }
    find(GENERIC)
}

/// Returns the names of the profiles.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_each_file_of_folder() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("profiles");
        let mut found: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter_map(|name| name.strip_suffix(".toml").map(str::to_owned))
            .collect();
        found.sort();
        assert_eq!(found, names().collect::<Vec<_>>());
        for name in names() {
            let profile = find(name).unwrap();
            assert!(profile.serves.is_some() || profile.guarded().is_ok(), "{name}");
        }
    }

    #[test]
    fn programs_have_their_profiles() {
        let of = |program: &str| of_command(&[program.into()]).unwrap().name;
        assert_eq!(of("/usr/local/bin/claude"), "claude");
        assert_eq!(of("./my-agent"), "generic");
    }

    #[test]
    fn invalid_profiles_name_file_and_field() {
        for (text, says) in [
            ("title = \"x\"", "capabilities"),
            ("title = \"x\"\ncapabilities = [\"wings\"]", "wings"),
            ("title = \"x\"\ncapabilities = [\"turn_cap\"]", "`options.turns`"),
            ("title = \"x\"\ncapabilities = []\n[options]\nagain = [\"-c\"]", "`options.again`"),
            ("title = \"x\"\ncapabilities = [\"json\"]", "`verdict.success`"),
            (
                "title = \"x\"\ncapabilities = [\"json\"]\n[verdict.success]\nstatus = [\"ok\"]",
                "begin it with `/`",
            ),
        ] {
            let error = Profile::read("x.toml", text).unwrap_err().to_string();
            assert!(error.starts_with("invalid x.toml: ") && error.contains(says), "{error}");
        }
        let of_server = find("acp").unwrap().guarded().unwrap_err().to_string();
        assert!(of_server.contains("server"), "{of_server}");
        let missing = find("claud").unwrap_err().to_string();
        assert!(missing.contains("claude"), "{missing}");
    }
}
