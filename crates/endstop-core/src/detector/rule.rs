//! A rule as configuration spells it: a name, and a number or two.
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
use crate::policy::{PolicyEnd, PolicyError, config::Config};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};
use std::fmt;

/// Nested deeper than this a specification is refused.
const MAX_DEPTH: u32 = 32;

/// When a step is a sign that the run should stop.
///
/// *Times* are steps in a row, this one included. A *step* is a turn with what its tools answered, its
/// *calls* their names and arguments in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Rule {
    /// The same calls so many times in a row.
    RepeatCall {
        /// How often.
        times: u32,
    },
    /// The same calls, with the same results, so many times in a row.
    RepeatCallRes {
        /// How often.
        times: u32,
    },
    /// Some call was made so often in the run, whatever came between.
    TotalRepeat {
        /// How often.
        times: u32,
    },
    /// The last steps' calls go round in a cycle of this many steps, so many times; not all equal.
    Cycle {
        /// Steps in the cycle.
        period: u32,
        /// How often.
        times: u32,
    },
    /// Two steps' calls take turns so many times: a cycle of two.
    Alternate {
        /// How often both were made.
        times: u32,
    },
    /// A failure, the same text each time, so many times in a row.
    SameError {
        /// How often.
        times: u32,
    },
    /// Some failure so many times in a row.
    AnyError {
        /// How often.
        times: u32,
    },
    /// The same text so many times in a row; case and white space do not count.
    SameText {
        /// How often.
        times: u32,
    },
    /// Nothing new so many times in a row: no call, no text, no result that was not there before.
    NoNew {
        /// How often.
        times: u32,
    },
    /// The model talks without a call so many times in a row, while nobody else speaks.
    Monologue {
        /// How often.
        times: u32,
    },
    /// So many steps were made.
    MaxSteps {
        /// How many.
        steps: u32,
    },
    /// The run has cost so much.
    Cost {
        /// US dollars.
        usd: f64,
    },
    /// A step's reward is at least this.
    Reward {
        /// The reward.
        at_least: f64,
    },
    /// The text mentions something.
    TextMention(Mention),
    /// A tool was called.
    ToolCalled {
        /// Its name.
        name: String,
    },
    /// One response repeats itself in its text: the same stretch again and again.
    Chanting {
        /// How often in a row.
        times: u32,
        /// The least that all repetitions together have, in characters.
        min_chars: u32,
    },
    /// What is made of several signs: [`Stuck`].
    Stuck(Stuck),
    /// Any of these.
    Any(Vec<Rule>),
}

/// What is known of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleInfo {
    /// Its name.
    pub name: &'static str,
    /// One line for a person.
    pub description: &'static str,
}

/// The rules that configuration can name.
const RULES: [RuleInfo; 17] = [
    info("repeat_call", "The same calls several times in a row"),
    info("repeat_call_res", "The same calls with the same results several times in a row"),
    info("total_repeat", "Some call was made several times in the run, whatever came between"),
    info("cycle", "The calls of the last steps go round in a cycle"),
    info("alternate", "Two steps' calls take turns"),
    info("same_error", "The same failure several times in a row"),
    info("any_error", "Some failure several times in a row"),
    info("same_text", "The same text several times in a row"),
    info("no_new", "Several steps in a row without a new call, text or result"),
    info("monologue", "Several steps in a row without a call, while nobody else speaks"),
    info("max_steps", "So many steps were made"),
    info("cost", "The run has cost so much"),
    info("reward", "A step's reward is at least this"),
    info("text_mention", "The text mentions something"),
    info("tool_called", "A tool was called"),
    info("chanting", "One response repeats the same stretch of text again and again"),
    info("stuck", Stuck::DESCRIPTION),
];

const fn info(name: &'static str, description: &'static str) -> RuleInfo {
    RuleInfo { name, description }
}

impl Rule {
    /// What configuration can name.
    pub fn known() -> &'static [RuleInfo] {
        &RULES
    }

    /// Whether a rule has this name.
    pub fn is_known(name: &str) -> bool {
        RULES.iter().any(|rule| rule.name == name)
    }

    /// Reads a rule: a name; `{NAME: config}`; `{"name", "config"}`; `{"any": [rule, …]}`.
    ///
    /// # Errors
    /// What is wrong with it, with the choices.
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

    /// The rule of this name.
    ///
    /// # Errors
    /// There is none, or its configuration is wrong; the choices are named.
    pub fn from_config(name: &str, config: &Value) -> Result<Rule, PolicyError> {
        let config = Config::new(name, config)?;
        let times =
            |default| config.only(&["times"]).and_then(|()| whole(&config, "times", default));
        Ok(match name {
            "repeat_call" => Rule::RepeatCall { times: times(3)? },
            "repeat_call_res" => Rule::RepeatCallRes { times: times(3)? },
            "total_repeat" => Rule::TotalRepeat { times: times(3)? },
            "cycle" => {
                config.only(&["period", "times"])?;
                let (period, times) = (whole(&config, "period", 2)?, whole(&config, "times", 2)?);
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
            "max_steps" => {
                config.only(&["steps"])?;
                Rule::MaxSteps { steps: whole(&config, "steps", 25)? }
            }
            "cost" => {
                config.only(&["usd"])?;
                let usd = config.number("usd", 1.0)?;
                if usd <= 0.0 {
                    return Err(config.bad("usd", "more than 0"));
                }
                Rule::Cost { usd }
            }
            "reward" => {
                config.only(&["at_least"])?;
                Rule::Reward { at_least: config.number("at_least", 1.0)? }
            }
            "text_mention" => Rule::TextMention(Mention::from_config(&config)?),
            "tool_called" => {
                config.only(&["name"])?;
                if config.get("name").is_none() {
                    return Err(config.bad("name", "the name of a tool"));
                }
                Rule::ToolCalled { name: config.text("name", "")? }
            }
            "chanting" => {
                config.only(&["times", "min_chars"])?;
                let times = whole(&config, "times", 10)?;
                if times < 2 {
                    return Err(config.bad("times", "at least 2"));
                }
                Rule::Chanting { times, min_chars: whole(&config, "min_chars", 400)? }
            }
            "stuck" => Rule::Stuck(Stuck::from_config(&config)?),
            _ => {
                let known: Vec<&str> = RULES.iter().map(|rule| rule.name).collect();
                return Err(PolicyError::spec(format!(
                    "there is no rule `{name}`; known are {}",
                    known.join(", ")
                )));
            }
        })
    }

    /// The rule as configuration spells it, every number written out.
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
            Rule::ToolCalled { name } => json!({ "name": name }),
            Rule::Chanting { times, min_chars } => json!({"times": times, "min_chars": min_chars}),
            Rule::Stuck(stuck) => stuck.config(),
        };
        json!({ self.name(): config })
    }

    /// Its name, as configuration spells it.
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

    /// How a run ends that it stops.
    pub fn ends_as(&self) -> PolicyEnd {
        match self {
            Rule::MaxSteps { .. } | Rule::Cost { .. } => PolicyEnd::Halted,
            Rule::AnyError { .. } => PolicyEnd::ConsecutiveMistakes,
            Rule::Reward { .. } | Rule::TextMention(_) | Rule::ToolCalled { .. } => {
                PolicyEnd::Submitted
            }
            Rule::Any(rules) => rules.first().map_or(PolicyEnd::NoProgress, Rule::ends_as),
            _ => PolicyEnd::NoProgress,
        }
    }

    /// Returns whether the rule reads a response while it is streamed.
    pub(crate) fn reads_stream(&self) -> bool {
        match self {
            Rule::TextMention(_) | Rule::Chanting { .. } => true,
            Rule::Any(rules) => rules.iter().any(Rule::reads_stream),
            _ => false,
        }
    }

    /// Returns whether the rule, or one of its alternatives, waits for this tool to be called.
    pub(crate) fn waits_for(&self, tool: &str) -> bool {
        match self {
            Rule::ToolCalled { name } => name == tool,
            Rule::Any(rules) => rules.iter().any(|rule| rule.waits_for(tool)),
            _ => false,
        }
    }

    /// Whether it reads the cost of a run, which a recording may not have.
    pub fn needs_cost(&self) -> bool {
        match self {
            Rule::Cost { .. } => true,
            Rule::Any(rules) => rules.iter().any(Rule::needs_cost),
            _ => false,
        }
    }

    /// Whether it reads what tools gave, which a recording may not have.
    pub fn needs_results(&self) -> bool {
        match self {
            Rule::RepeatCallRes { .. }
            | Rule::SameError { .. }
            | Rule::AnyError { .. }
            | Rule::NoNew { .. }
            | Rule::Stuck(_) => true,
            Rule::Any(rules) => rules.iter().any(Rule::needs_results),
            _ => false,
        }
    }

    /// Whether it reads rewards, which a recording may not have.
    pub fn needs_reward(&self) -> bool {
        match self {
            Rule::Reward { .. } => true,
            Rule::Any(rules) => rules.iter().any(Rule::needs_reward),
            _ => false,
        }
    }
}

/// A whole number of at least 1.
fn whole(config: &Config<'_>, key: &str, default: u32) -> Result<u32, PolicyError> {
    let number = config.count(key, u64::from(default))?;
    number
        .and_then(|number| u32::try_from(number).ok())
        .ok_or_else(|| config.bad(key, "a whole number from 1 to 4294967295"))
}

/// Short, for tables: `repeat_call(3)`.
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
            Rule::TextMention(mention) => write!(f, "{name}({mention})"),
            Rule::ToolCalled { name: tool } => write!(f, "{name}({tool})"),
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
