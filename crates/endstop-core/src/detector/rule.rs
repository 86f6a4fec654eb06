//! Detector rules and their configuration: parsing, validation, and the two written forms.
//!
//! ```
//! use endstop_core::detector::Rule;
//! use serde_json::json;
//! let rule = Rule::from_spec(&json!({"any": [{"repeat_call": {"times": 3}}, "same_error"]}))?;
//! assert_eq!(rule.to_string(), "any[repeat_call(3),same_error(3)]");
//! let error = Rule::from_spec(&json!({"repeat_call": {"time": 3}})).unwrap_err().to_string();
//! assert_eq!(error, "policy `repeat_call`: unknown key `time`; known are times");
//! # Ok::<(), endstop_core::PolicyError>(())
//! ```

use super::mention::Mention;
use super::stuck::Stuck;
use crate::nearest::did_you_mean;
use crate::policy::config::Config;
use crate::policy::{PolicyEnd, PolicyError, Stop};
use crate::run_data::RunData;
use crate::visible::is_blank;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};
use std::fmt;

/// Maximum nesting depth of a specification.
// Parsing, running and dropping a rule recurse once per level of `any`.
pub(super) const MAX_DEPTH: u32 = 32;

/// Characters that separate or end a value of the short form.
pub(super) const MARKS: [char; 9] = ['(', ')', '[', ']', ',', '=', '{', '}', '"'];

/// A condition on the steps of a run that shows that the run should stop.
///
/// `times` counts steps in a row, including the current one. A *step* is a turn with the results of
/// its tools; its *calls* are their names and arguments, in order.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Rule {
    /// The same calls `times` times in a row.
    RepeatCall {
        /// Number of steps in a row.
        times: u32,
    },
    /// The same calls, with the same results, `times` times in a row.
    RepeatCallRes {
        /// Number of steps in a row.
        times: u32,
    },
    /// One call was made `times` times in the run, whatever came between.
    TotalRepeat {
        /// Number of times in the run.
        times: u32,
    },
    /// The calls of the last steps repeat with a period, and are not all equal.
    Cycle {
        /// Steps in one cycle.
        period: u32,
        /// Number of cycles in a row.
        times: u32,
    },
    /// Two steps with different calls alternate: a cycle of two.
    Alternate {
        /// Number of times that both were made.
        times: u32,
    },
    /// A failure with the same text `times` times in a row.
    SameError {
        /// Number of steps in a row.
        times: u32,
    },
    /// Any failure `times` times in a row.
    AnyError {
        /// Number of steps in a row.
        times: u32,
    },
    /// The same text `times` times in a row; case and white space are ignored.
    SameText {
        /// Number of steps in a row.
        times: u32,
    },
    /// Nothing new `times` times in a row: every call, text and result was in an earlier step.
    NoNew {
        /// Number of steps in a row.
        times: u32,
    },
    /// The model makes no call `times` times in a row, and no other message arrives in between.
    Monologue {
        /// Number of steps in a row.
        times: u32,
    },
    /// The run has made this many steps.
    MaxSteps {
        /// Number of steps.
        steps: u32,
    },
    /// The run has cost this much.
    Cost {
        /// Cost in US dollars.
        usd: f64,
    },
    /// The reward of a step is high enough.
    Reward {
        /// Least reward.
        at_least: f64,
    },
    /// The text contains a string or matches a pattern.
    TextMention(Mention),
    /// A call of a tool succeeded.
    ToolCalled {
        /// Name of the tool.
        name: String,
        /// The tool's result is the answer of the run, which then ends as `submitted`.
        result: bool,
    },
    /// One response repeats the same section of text again and again.
    Chanting {
        /// Number of repetitions in a row.
        times: u32,
        /// Least total length of the repetitions, in characters.
        min_chars: u32,
    },
    /// A combination of several signs; see [`Stuck`].
    Stuck(Stuck),
    /// Any of these rules.
    Any(Vec<Rule>),
}

/// The description of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleInfo {
    /// Name of the rule.
    pub name: &'static str,
    /// One-line description.
    pub description: &'static str,
    /// Keys of the values in its short form, in order: `cycle(2,3)` is a `period` of 2 and 3 `times`. The
    /// short form of `stuck` may lack the last one, which then has its default.
    pub keys: &'static [&'static str],
}

const TIMES: &[&str] = &["times"];

/// The rules that configuration can name.
const RULES: [RuleInfo; 17] = [
    info("repeat_call", "The same calls several times in a row", TIMES),
    info("repeat_call_res", "The same calls with the same results several times in a row", TIMES),
    info(
        "total_repeat",
        "One call was made several times in the run, whatever came between",
        TIMES,
    ),
    info("cycle", "The calls of the last steps repeat in a cycle", &["period", "times"]),
    info("alternate", "Two steps with different calls alternate", TIMES),
    info("same_error", "The same failure several times in a row", TIMES),
    info("any_error", "Any failure several times in a row", TIMES),
    info("same_text", "The same text several times in a row", TIMES),
    info("no_new", "Several steps in a row without a new call, text or result", TIMES),
    info("monologue", "Several steps in a row without a call or another message", TIMES),
    info("max_steps", "The run has made a number of steps", &["steps"]),
    info("cost", "The run has cost a number of US dollars", &["usd"]),
    info("reward", "The reward of a step has reached a threshold", &["at_least"]),
    info("text_mention", "The text contains a string or matches a pattern", &["text"]),
    info("tool_called", "A call of a tool succeeded", &["name"]),
    info(
        "chanting",
        "One response repeats the same section of text again and again",
        &["times", "min_chars"],
    ),
    info("stuck", Stuck::DESCRIPTION, &Stuck::KEYS),
];

const fn info(
    name: &'static str,
    description: &'static str,
    keys: &'static [&'static str],
) -> RuleInfo {
    RuleInfo { name, description, keys }
}

impl Rule {
    /// Returns the rules that configuration can name.
    pub fn known() -> &'static [RuleInfo] {
        &RULES
    }

    /// `true` if a rule has this name.
    pub fn is_known(name: &str) -> bool {
        RULES.iter().any(|rule| rule.name == name)
    }

    /// Reads a rule: a name; `{NAME: config}`; `{"name", "config"}`; `{"any": [rule, …]}`.
    ///
    /// # Errors
    /// The mistake in the specification, with the accepted values.
    pub fn from_spec(spec: &Value) -> Result<Rule, PolicyError> {
        Rule::nested(spec, 0)
    }

    fn nested(spec: &Value, depth: u32) -> Result<Rule, PolicyError> {
        if depth > MAX_DEPTH {
            return Err(PolicyError::spec(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        match spec {
            Value::String(name) => Rule::from_config(name, &Value::Null),
            Value::Object(map) => match (map.get("name"), map.iter().next()) {
                // An object with `name` and an unknown key must reach the last arm, which lists the
                // valid forms.
                (Some(Value::String(name)), _)
                    if map.keys().all(|k| k == "name" || k == "config") =>
                {
                    Rule::from_config(name, map.get("config").unwrap_or(&Value::Null))
                }
                (None, Some((name, Value::Array(rules)))) if map.len() == 1 && name == "any" => {
                    if rules.is_empty() {
                        return Err(PolicyError::spec("`any` needs at least one rule"));
                    }
                    let rules = rules.iter().map(|rule| Rule::nested(rule, depth + 1));
                    Ok(Rule::Any(rules.collect::<Result<_, _>>()?))
                }
                (None, Some((name, config))) if map.len() == 1 => Rule::from_config(name, config),
                _ => Err(PolicyError::spec(
                    "a rule is a name, an object of one key (its name, or `any`), or of `name` and `config`",
                )),
            },
            other => Err(PolicyError::spec(format!("a rule is a name or an object, not {other}"))),
        }
    }

    /// Builds the rule of this name from its configuration.
    ///
    /// # Errors
    /// The name is unknown or the configuration is not valid; the error lists the accepted values.
    pub fn from_config(name: &str, config: &Value) -> Result<Rule, PolicyError> {
        let config = Config::new(name, config)?;
        let info = RULES.iter().find(|rule| rule.name == name);
        // The keys of the short forms of these are not all of their keys: they check them themselves.
        if let Some(info) = info.filter(|_| !matches!(name, "text_mention" | "tool_called")) {
            config.only(info.keys)?;
        }
        // A test compares these defaults with the book's chapter on detectors.
        let times = |default| whole(&config, "times", default);
        Ok(match name {
            "repeat_call" => Rule::RepeatCall { times: times(3)? },
            "repeat_call_res" => Rule::RepeatCallRes { times: times(3)? },
            "total_repeat" => Rule::TotalRepeat { times: times(3)? },
            "cycle" => {
                let (period, times) = (whole(&config, "period", 2)?, whole(&config, "times", 2)?);
                // A detector stores one period of steps, so that without a bound a configuration
                // could claim memory at will.
                if period > 64 {
                    return Err(config.bad("period", "at most 64"));
                }
                Rule::Cycle { period, times }
            }
            "alternate" => Rule::Alternate { times: times(2)? },
            "same_error" => Rule::SameError { times: times(3)? },
            "any_error" => Rule::AnyError { times: times(3)? },
            "same_text" => Rule::SameText { times: times(3)? },
            "no_new" => Rule::NoNew { times: times(3)? },
            "monologue" => Rule::Monologue { times: times(3)? },
            "max_steps" => Rule::MaxSteps { steps: whole(&config, "steps", 25)? },
            "cost" => {
                let usd = config.number("usd", 1.0)?;
                if usd <= 0.0 {
                    return Err(config.bad("usd", "more than 0"));
                }
                Rule::Cost { usd }
            }
            "reward" => Rule::Reward { at_least: config.number("at_least", 1.0)? },
            "text_mention" => Rule::TextMention(Mention::from_config(&config)?),
            "tool_called" => {
                // Without this check a missing name would be the empty string, which no tool has.
                if config.get("name").is_none() {
                    return Err(config.bad("name", "the name of a tool"));
                }
                config.only(&["name", "answer"])?;
                let result = config.choice("answer", &["result"])?.is_some();
                Rule::ToolCalled { name: config.text("name", "")?, result }
            }
            "chanting" => {
                let times = whole(&config, "times", 10)?;
                // Any text is one repetition of itself.
                if times < 2 {
                    return Err(config.bad("times", "at least 2"));
                }
                Rule::Chanting { times, min_chars: whole(&config, "min_chars", 400)? }
            }
            "stuck" => Rule::Stuck(Stuck::from_config(&config)?),
            _ => {
                let known: Vec<&str> = RULES.iter().map(|rule| rule.name).collect();
                return Err(PolicyError::spec(format!(
                    "unknown rule `{name}`{}; known are {}",
                    did_you_mean(name, known.iter().copied()),
                    known.join(", ")
                )));
            }
        })
    }

    /// Returns the rule as a specification, with every number written out.
    pub fn spec(&self) -> Value {
        let times = |times: &u32| json!({ "times": times });
        let config = match self {
            Rule::Any(rules) => {
                return json!({"any": rules.iter().map(Rule::spec).collect::<Vec<_>>()});
            }
            Rule::RepeatCall { times: n }
            | Rule::RepeatCallRes { times: n }
            | Rule::TotalRepeat { times: n }
            | Rule::Alternate { times: n }
            | Rule::SameError { times: n }
            | Rule::AnyError { times: n }
            | Rule::SameText { times: n }
            | Rule::NoNew { times: n }
            | Rule::Monologue { times: n } => times(n),
            Rule::Cycle { period, times } => json!({"period": period, "times": times}),
            Rule::MaxSteps { steps } => json!({ "steps": steps }),
            Rule::Cost { usd } => json!({ "usd": usd }),
            Rule::Reward { at_least } => json!({ "at_least": at_least }),
            Rule::TextMention(mention) => mention.config(),
            Rule::ToolCalled { name, result: false } => json!({ "name": name }),
            Rule::ToolCalled { name, result: true } => json!({ "name": name, "answer": "result" }),
            Rule::Chanting { times, min_chars } => json!({"times": times, "min_chars": min_chars}),
            Rule::Stuck(stuck) => stuck.config(),
        };
        json!({ self.name(): config })
    }

    /// Returns the name that configuration uses.
    pub fn name(&self) -> &'static str {
        match self {
            Rule::RepeatCall { .. } => "repeat_call",
            Rule::RepeatCallRes { .. } => "repeat_call_res",
            Rule::TotalRepeat { .. } => "total_repeat",
            Rule::Cycle { .. } => "cycle",
            Rule::Alternate { .. } => "alternate",
            Rule::SameError { .. } => "same_error",
            Rule::AnyError { .. } => "any_error",
            Rule::SameText { .. } => "same_text",
            Rule::NoNew { .. } => "no_new",
            Rule::Monologue { .. } => "monologue",
            Rule::MaxSteps { .. } => "max_steps",
            Rule::Cost { .. } => "cost",
            Rule::Reward { .. } => "reward",
            Rule::TextMention(_) => "text_mention",
            Rule::ToolCalled { .. } => "tool_called",
            Rule::Chanting { .. } => "chanting",
            Rule::Stuck(_) => "stuck",
            Rule::Any(_) => "any",
        }
    }

    /// Returns the termination of a run that this rule stops.
    pub fn ends_as(&self) -> PolicyEnd {
        match self {
            // Limits, not loops: a run that reaches one may have made progress until then.
            // A call is not an answer.
            Rule::MaxSteps { .. } | Rule::Cost { .. } | Rule::ToolCalled { result: false, .. } => {
                PolicyEnd::Halted
            }
            Rule::AnyError { .. } => PolicyEnd::ConsecutiveMistakes,
            Rule::Reward { .. } | Rule::TextMention(_) | Rule::ToolCalled { result: true, .. } => {
                PolicyEnd::Submitted
            }
            // The termination is fixed before the run, so it cannot depend on the member that
            // fires.
            Rule::Any(rules) => rules.first().map_or(PolicyEnd::NoProgress, Rule::ends_as),
            _ => PolicyEnd::NoProgress,
        }
    }

    /// Returns the stop of a run by this rule. `text` is the text of the step, and `results` are the
    /// results of its successful calls by tool.
    pub(crate) fn stop<'a>(
        &self,
        evidence: String,
        text: &str,
        results: impl DoubleEndedIterator<Item = (&'a str, &'a str)>,
    ) -> Stop {
        let stop = Stop { ends_as: self.ends_as(), ..Stop::submitted(self.name(), evidence) };
        if stop.ends_as != PolicyEnd::Submitted {
            return stop;
        }
        // Of several successful calls the last one counts.
        let result =
            results.rev().find(|(tool, result)| self.answers_with(tool) && !is_blank(result));
        match (self, result) {
            (_, Some((_, result))) => stop.answer(result),
            // The text before a call is not an answer.
            (Rule::ToolCalled { .. }, None) => Stop { ends_as: PolicyEnd::Halted, ..stop },
            (_, None) => stop.answer(text),
        }
    }

    /// `true` if the rule reads a response while it is streamed.
    pub(crate) fn reads_stream(&self) -> bool {
        match self {
            Rule::TextMention(_) | Rule::Chanting { .. } => true,
            Rule::Any(rules) => rules.iter().any(Rule::reads_stream),
            _ => false,
        }
    }

    /// `true` if the result of this tool is the answer of the run that the rule, or one of its
    /// alternatives, stops.
    pub(crate) fn answers_with(&self, tool: &str) -> bool {
        match self {
            Rule::ToolCalled { name, result } => *result && name == tool,
            Rule::Any(rules) => rules.iter().any(|rule| rule.answers_with(tool)),
            _ => false,
        }
    }

    /// Returns the data that the rule reads and that a recording may not contain.
    pub fn needs(&self) -> Vec<RunData> {
        let needs = [
            (RunData::Cost, self.needs_cost()),
            (RunData::Results, self.needs_results()),
            (RunData::Reward, self.needs_reward()),
        ];
        needs.into_iter().filter(|(_, needed)| *needed).map(|(data, _)| data).collect()
    }

    /// `true` if the rule reads the cost of a run, which a recording may not contain.
    pub fn needs_cost(&self) -> bool {
        match self {
            Rule::Cost { .. } => true,
            Rule::Any(rules) => rules.iter().any(Rule::needs_cost),
            Rule::RepeatCall { .. }
            | Rule::RepeatCallRes { .. }
            | Rule::TotalRepeat { .. }
            | Rule::Cycle { .. }
            | Rule::Alternate { .. }
            | Rule::SameError { .. }
            | Rule::AnyError { .. }
            | Rule::SameText { .. }
            | Rule::NoNew { .. }
            | Rule::Monologue { .. }
            | Rule::MaxSteps { .. }
            | Rule::Reward { .. }
            | Rule::TextMention(_)
            | Rule::ToolCalled { .. }
            | Rule::Chanting { .. }
            | Rule::Stuck(_) => false,
        }
    }

    /// `true` if the rule reads tool results, which a recording may not contain.
    pub fn needs_results(&self) -> bool {
        match self {
            Rule::RepeatCallRes { .. }
            | Rule::SameError { .. }
            | Rule::AnyError { .. }
            | Rule::NoNew { .. }
            | Rule::ToolCalled { .. }
            | Rule::Stuck(_) => true,
            Rule::Any(rules) => rules.iter().any(Rule::needs_results),
            // `RepeatCall` and `TotalRepeat` compare calls only.
            Rule::RepeatCall { .. }
            | Rule::TotalRepeat { .. }
            | Rule::Cycle { .. }
            | Rule::Alternate { .. }
            | Rule::SameText { .. }
            | Rule::Monologue { .. }
            | Rule::MaxSteps { .. }
            | Rule::Cost { .. }
            | Rule::Reward { .. }
            | Rule::TextMention(_)
            | Rule::Chanting { .. } => false,
        }
    }

    /// `true` if the rule compares steps that need not be equal.
    pub(super) fn reads_alike(&self) -> bool {
        match self {
            Rule::Stuck(stuck) => stuck.similar.is_some(),
            Rule::Any(rules) => rules.iter().any(Rule::reads_alike),
            _ => false,
        }
    }

    /// `true` if the rule reads rewards, which a recording may not contain.
    pub fn needs_reward(&self) -> bool {
        match self {
            Rule::Reward { .. } => true,
            Rule::Any(rules) => rules.iter().any(Rule::needs_reward),
            Rule::RepeatCall { .. }
            | Rule::RepeatCallRes { .. }
            | Rule::TotalRepeat { .. }
            | Rule::Cycle { .. }
            | Rule::Alternate { .. }
            | Rule::SameError { .. }
            | Rule::AnyError { .. }
            | Rule::SameText { .. }
            | Rule::NoNew { .. }
            | Rule::Monologue { .. }
            | Rule::MaxSteps { .. }
            | Rule::Cost { .. }
            | Rule::TextMention(_)
            | Rule::ToolCalled { .. }
            | Rule::Chanting { .. }
            | Rule::Stuck(_) => false,
        }
    }

    /// `true` if the rule contains text that its author chose. A nudge quotes the rule that fired, so
    /// this text would reach the model as instructions.
    pub fn has_chosen_text(&self) -> bool {
        // Each rule is listed, because one that is forgotten would let a file instruct the model.
        match self {
            Rule::TextMention(_) | Rule::ToolCalled { .. } => true,
            Rule::Any(rules) => rules.iter().any(Rule::has_chosen_text),
            Rule::RepeatCall { .. }
            | Rule::RepeatCallRes { .. }
            | Rule::TotalRepeat { .. }
            | Rule::Cycle { .. }
            | Rule::Alternate { .. }
            | Rule::SameError { .. }
            | Rule::AnyError { .. }
            | Rule::SameText { .. }
            | Rule::NoNew { .. }
            | Rule::Monologue { .. }
            | Rule::MaxSteps { .. }
            | Rule::Cost { .. }
            | Rule::Reward { .. }
            | Rule::Chanting { .. }
            | Rule::Stuck(_) => false,
        }
    }
}

impl Rule {
    /// Writes a string in parentheses, or as JSON if the short form could not be read back.
    fn write_text(&self, f: &mut fmt::Formatter<'_>, plain: Option<&str>) -> fmt::Result {
        let name = self.name();
        match plain {
            Some(text) if !text.contains(MARKS) && text.trim() == text => {
                write!(f, "{name}({text})")
            }
            _ => write!(f, "{name}={}", self.spec()[name]),
        }
    }
}

/// Reads a whole number from 1 to 4294967295.
fn whole(config: &Config<'_>, key: &str, default: u32) -> Result<u32, PolicyError> {
    let number = config.count(key, u64::from(default))?;
    number
        .and_then(|number| u32::try_from(number).ok())
        .ok_or_else(|| config.bad(key, "a whole number from 1 to 4294967295"))
}

/// Writes the short form that tables and evidence use, for example `repeat_call(3)`, which
/// [`Registry::parse_text`](crate::Registry::parse_text) reads.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match self {
            Rule::RepeatCall { times: n }
            | Rule::RepeatCallRes { times: n }
            | Rule::TotalRepeat { times: n }
            | Rule::Alternate { times: n }
            | Rule::SameError { times: n }
            | Rule::AnyError { times: n }
            | Rule::SameText { times: n }
            | Rule::NoNew { times: n }
            | Rule::Monologue { times: n }
            | Rule::MaxSteps { steps: n } => write!(f, "{name}({n})"),
            Rule::Cycle { period, times } => write!(f, "{name}({period},{times})"),
            Rule::Cost { usd } => write!(f, "{name}({usd})"),
            Rule::Reward { at_least } => write!(f, "{name}({at_least:?})"),
            Rule::TextMention(mention) => self.write_text(f, mention.plain()),
            Rule::ToolCalled { name: tool, result } => {
                self.write_text(f, Some(tool.as_str()).filter(|_| !result))
            }
            Rule::Chanting { times, min_chars } => write!(f, "{name}({times},{min_chars})"),
            Rule::Stuck(stuck) => write!(f, "{name}({stuck})"),
            Rule::Any(rules) => {
                f.write_str("any[")?;
                for (nth, rule) in rules.iter().enumerate() {
                    let comma = if nth > 0 { "," } else { "" };
                    write!(f, "{comma}{rule}")?;
                }
                f.write_str("]")
            }
        }
    }
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.spec().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Rule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Rule, D::Error> {
        let spec = Value::deserialize(deserializer)?;
        Rule::from_spec(&spec).map_err(serde::de::Error::custom)
    }
}
