//! A case: what the scripted provider answers, what the user does, and the checks that judge it. The files are in
//! `cases`, with a description for other programs that replay them.
//!
//! ```
//! use endstop_conform::case::{Case, Finish};
//! let case = Case::read("mine.toml", r#"
//!     title = "The output limit cuts the text"
//!     checks = ["T-01"]
//!     [[answers]]
//!     text = "Half of an"
//!     finish = "length"
//! "#)?;
//! assert_eq!(case.answers[0].finish, Finish::Length);
//! # Ok::<(), endstop_conform::BadData>(())
//! ```

use crate::vocabulary::{BadData, Capability, Tool, expected};
use serde::{Deserialize, Serialize};

/// Reads the files of the folder `cases`. A test compares the names with the folder.
macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../cases/", $name, ".toml")))),*]
    };
}

/// The files of the cases.
const FILES: &[(&str, &str)] = files![
    "background",
    "bad-arguments",
    "blank",
    "budget",
    "budget-cached",
    "budget-unreported",
    "call-announced",
    "call-in-text",
    "cut-call",
    "cut-call-mislabelled",
    "cut-text",
    "endless-reasoning",
    "endless-sub-agents",
    "error-in-stream",
    "filtered",
    "hanging-tool",
    "interrupt-pause",
    "interrupt-stream",
    "interrupt-tool",
    "invalid-structure",
    "junk-chunk",
    "kill-tool",
    "last-turn",
    "late-answer",
    "lost-arguments",
    "lost-text",
    "no-content",
    "no-finish",
    "open-after-finish",
    "parallel-calls",
    "pause",
    "permission",
    "pings",
    "plain",
    "polls",
    "prompt-too-long",
    "quota",
    "rate-limited",
    "rate-limited-for-ever",
    "reasoning-only",
    "refusal",
    "same-call",
    "same-ids",
    "server-error",
    "silent-sub-agent",
    "stop-hook",
    "sub-agent-cap",
    "terminate-tool",
    "time-limit",
    "turn-cap",
    "two-calls",
    "two-limits",
    "unauthorised",
    "unknown-finish",
    "wrap-up",
];

/// The name of the case that a program must pass before the others say anything about it.
pub const PLAIN: &str = "plain";

/// A case.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Name, which is that of the file.
    #[serde(skip_deserializing)]
    pub name: String,
    /// The situation, in a few words.
    pub title: String,
    /// The ids of the checks that judge a run of this case. Those of every case are not listed.
    pub checks: Vec<String>,
    /// Capabilities that the program needs.
    #[serde(default)]
    pub needs: Vec<Capability>,
    /// The limits that the program is started with.
    #[serde(default)]
    pub limits: Limits,
    /// Number of scripted calls after which the run is stopped, because more say nothing new.
    #[serde(default = "default_calls")]
    pub most_calls: usize,
    /// Time in seconds that the checks allow a run from its first call. A run that has not ended after it has failed; one
    /// that was stopped before it, by the patience of the caller, was not reached.
    #[serde(default = "default_seconds")]
    pub seconds: u64,
    /// A bound that the program documents for this situation, instead of `seconds` or `most_calls`.
    #[serde(default)]
    pub documented: Option<Documented>,
    /// Time in seconds that no patience is below.
    #[serde(default)]
    pub at_least: u64,
    /// Time in seconds that the processes of an ended program have to end.
    #[serde(default = "default_settle")]
    pub settle: u64,
    /// Action of the user.
    #[serde(default)]
    pub act: Option<Act>,
    /// `true` if the program is started again after its end, to continue its conversation.
    #[serde(default)]
    pub resume: bool,
    /// The answers to the calls of the run, in order. After the last one the provider answers that all is done.
    pub answers: Vec<Answer>,
    /// `true` if a call without tools of a program that has tools gets these answers as well, and not a title.
    #[serde(default)]
    pub also_without_tools: bool,
    /// The answers to the calls of each sub-agent.
    #[serde(default)]
    pub sub: Vec<Answer>,
}

fn default_calls() -> usize {
    60
}

fn default_seconds() -> u64 {
    600
}

fn default_settle() -> u64 {
    2
}

/// The limits that a program is started with, by the flags of its profile.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Number of turns.
    #[serde(default)]
    pub turns: Option<u32>,
    /// Cost in US dollars, at the prices of [`PRICES`].
    #[serde(default)]
    pub budget_usd: Option<f64>,
    /// Time in seconds.
    #[serde(default)]
    pub seconds: Option<u32>,
}

/// Prices in US dollars for a million tokens: input, output, read from a cache, written to a cache.
pub const PRICES: [f64; 4] = [3.0, 15.0, 0.3, 3.75];

/// A bound that a program may document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Documented {
    /// Time of a response without content.
    Content,
    /// Time of a whole response.
    Response,
    /// Time of a tool.
    Tool,
    /// Number of calls of a run.
    Calls,
}

/// An action of the user.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Act {
    /// The signal.
    pub signal: Signal,
    /// The event after which it is sent.
    pub when: When,
    /// Delay after the event in milliseconds.
    #[serde(default)]
    pub after_ms: u64,
}

/// A signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Signal {
    /// SIGINT to the process group, as Ctrl-C in a terminal.
    #[serde(rename = "INT")]
    Interrupt,
    /// SIGTERM to the program.
    #[serde(rename = "TERM")]
    Terminate,
    /// SIGKILL to the program.
    #[serde(rename = "KILL")]
    Kill,
}

/// An event that the suite can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// The first call has arrived.
    Call,
    /// The body of a tool has started.
    Tool,
}

/// An answer of the provider.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// Text.
    #[serde(default)]
    pub text: String,
    /// Number of times that the text is written, for long answers.
    #[serde(default)]
    pub times: Option<u32>,
    /// Reasoning before the text.
    #[serde(default)]
    pub reasoning: String,
    /// Tool calls after the text.
    #[serde(default)]
    pub calls: Vec<ScriptedCall>,
    /// The reason of the end.
    #[serde(default)]
    pub finish: Finish,
    /// The reported usage.
    #[serde(default)]
    pub usage: ReportedUsage,
    /// The answer is this error, instead of a response of the model.
    #[serde(default)]
    pub error: Option<ProviderError>,
    /// Seconds in the header `retry-after`.
    #[serde(default)]
    pub retry_after: Option<u32>,
    /// A fault of the transport.
    #[serde(default)]
    pub fault: Option<Fault>,
    /// Seconds without content after the head.
    #[serde(default)]
    pub silence: f64,
    /// Seconds between the text and the calls.
    #[serde(default)]
    pub pause: f64,
    /// `true` if it is repeated for ever, with the other answers at the end that are.
    #[serde(default)]
    pub repeat: bool,
}

/// A tool call of the scripted model.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedCall {
    /// The kind of the tool; the profile or the schemas of the request have its name.
    pub tool: Tool,
    /// The command of a shell, in which `{started NAME}` writes a file for the started body; the prompt of a sub-agent.
    #[serde(default)]
    pub input: String,
    /// `true` if a shell runs the command in the background.
    #[serde(default)]
    pub background: bool,
    /// The arguments as text, in which `{key}` is the name of the argument. For arguments that are not valid.
    #[serde(default)]
    pub raw: Option<String>,
    /// The id, instead of a unique one.
    #[serde(default)]
    pub id: Option<String>,
}

/// The reason of the end of a response, in words that each format has its own value for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The one that fits the content.
    #[default]
    Fitting,
    /// The model called tools, also if there is no call.
    Calls,
    /// The output limit.
    Length,
    /// A content filter.
    Filter,
    /// The model refuses.
    Refusal,
    /// The provider asks to be called again.
    Pause,
    /// A value that no client knows: [`UNKNOWN`].
    Unknown,
    /// There is no finish value; the stream ends cleanly.
    Missing,
}

/// The finish value that no client knows.
pub const UNKNOWN: &str = "quantum_collapse";

/// The usage that a response reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportedUsage {
    /// 1,000 input and 20 output tokens.
    #[default]
    Small,
    /// 20,000 input and 2,000 output tokens.
    Large,
    /// 1,000 input and 20 output tokens, and in addition 400,000 read from a cache and 20,000 written to one.
    Cached,
    /// None.
    Absent,
    /// Zero tokens.
    Zero,
}

/// An error of the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderError {
    /// 401.
    Key,
    /// 429 whose quota is used up, or 402.
    Quota,
    /// 429.
    RateLimit,
    /// 500.
    Server,
    /// The prompt is too long.
    PromptTooLong,
}

/// A fault of the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The connection is lost in the middle of the content.
    Lost,
    /// The connection is lost inside the arguments of a call.
    LostInArguments,
    /// Nothing comes after the head, and the connection stays open.
    Silent,
    /// Only pings come after the head, for ever.
    Pings,
    /// Only reasoning comes, for ever.
    Reasoning,
    /// All comes, and then the connection stays open.
    OpenAfterFinish,
    /// A chunk in the middle is not JSON.
    Junk,
    /// An error event comes in the middle.
    ErrorEvent,
}

impl Case {
    /// Reads a case. `file` is its name in errors.
    ///
    /// # Errors
    /// The text is not valid; the message names the file, the line and the field.
    pub fn read(file: &str, text: &str) -> Result<Case, BadData> {
        let bad = |problem: String| BadData::new(file, problem);
        let mut case: Case = toml::from_str(text).map_err(|error| bad(error.to_string()))?;
        let name = file.rsplit(['/', '\\']).next().unwrap_or(file);
        name.strip_suffix(".toml").unwrap_or(name).clone_into(&mut case.name);
        for id in &case.checks {
            let (kind, number) = id.split_once('-').unwrap_or_default();
            if kind.is_empty() || number.parse::<u8>().is_err() {
                return Err(bad(format!("`checks`: `{id}` is not an id such as T-01")));
            }
        }
        if case.answers.is_empty() {
            return Err(bad("`answers`: expected at least one".to_owned()));
        }
        for (at, answer) in case.answers.iter().chain(&case.sub).enumerate() {
            let place = format!("answer {}", at + 1);
            let is_time = |seconds: f64| (0.0..=600.0).contains(&seconds);
            if !is_time(answer.silence) || !is_time(answer.pause) {
                return Err(bad(format!("{place}: `silence` and `pause` are 0 to 600 seconds")));
            }
            if answer.calls.iter().any(|call| call.raw.is_none() && call.input.is_empty()) {
                return Err(bad(format!("{place}: a call needs `input` or `raw`")));
            }
        }
        Ok(case)
    }

    /// Returns the answer to the call with this number, from 0, or `None` if the script has ended.
    pub fn answer(script: &[Answer], number: usize) -> Option<&Answer> {
        let tail = script.iter().rev().take_while(|answer| answer.repeat).count();
        let first = script.len() - tail;
        let repeated = || (tail > 0).then(|| &script[first + (number - first) % tail]);
        script.get(number).or_else(repeated)
    }

    /// `true` if an answer has a call of a tool of this kind.
    pub fn calls(&self, tool: Tool) -> bool {
        self.answers.iter().flat_map(|answer| &answer.calls).any(|call| call.tool == tool)
    }
}

/// Returns all cases.
///
/// # Errors
/// A file is not valid, which a test excludes.
pub fn all() -> Result<Vec<Case>, BadData> {
    FILES.iter().map(|(name, text)| Case::read(&format!("cases/{name}.toml"), text)).collect()
}

/// Returns a case by its name.
///
/// # Errors
/// There is no such case; the message names a similar one.
pub fn find(name: &str) -> Result<Case, BadData> {
    all()?.into_iter().find(|case| case.name == name).ok_or_else(|| {
        let names = FILES.iter().map(|(name, _)| *name);
        BadData::new(&format!("case `{name}`"), expected(name, names))
    })
}

/// Returns the text of a case's file.
pub fn text(name: &str) -> Option<&'static str> {
    FILES.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_each_file_of_folder() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
        let mut found: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter_map(|name| name.strip_suffix(".toml").map(str::to_owned))
            .collect();
        found.sort();
        let listed: Vec<&str> = FILES.iter().map(|(name, _)| *name).collect();
        assert_eq!(found, listed);
    }

    #[test]
    fn invalid_data_names_file_and_field() {
        for (text, says) in [
            ("title = 1", "title"),
            ("title = \"t\"\nchecks = []\nanswers = []", "`answers`"),
            ("title = \"t\"\nchecks = [\"T99\"]\n[[answers]]", "`T99` is not an id"),
            ("title = \"t\"\nchecks = []\nextra = 1\n[[answers]]", "extra"),
            ("title = \"t\"\nchecks = []\n[[answers]]\nsilence = 1e9", "answer 1: `silence`"),
            (
                "title = \"t\"\nchecks = []\n[[answers]]\ncalls = [{ tool = \"shell\" }]",
                "`input` or `raw`",
            ),
            ("title = \"t\"\nchecks = []\n[[answers]]\nfinish = \"stopp\"", "stopp"),
        ] {
            let error = Case::read("x.toml", text).unwrap_err().to_string();
            assert!(error.starts_with("invalid x.toml: ") && error.contains(says), "{error}");
        }
    }

    #[test]
    fn last_answers_repeat_if_they_say_so() {
        let mut script =
            ["a", "b", "c"].map(|text| Answer { text: text.to_owned(), ..Answer::default() });
        assert!(Case::answer(&script, 3).is_none());
        script[1].repeat = true;
        assert!(Case::answer(&script, 3).is_none());
        script[2].repeat = true;
        let texts =
            [0, 1, 2, 3, 4, 7].map(|number| Case::answer(&script, number).unwrap().text.as_str());
        assert_eq!(texts, ["a", "b", "c", "b", "c", "b"]);
    }
}
