//! `final_pattern`: stops when the model declares its answer in text: `FINAL('42')`,
//! `FINAL_VAR(name)`, `SUBMIT(answer="42")`.
//!
//! ```
//! use endstop_core::{policy::FinalPattern, StepContext, StepResult, TerminationPolicy};
//! let mut policy = FinalPattern::default();
//! let context = StepContext::default();
//! assert!(policy.on_delta("The capital is FINAL('Pa", &context).is_none());
//! let stop = policy.on_delta("ris').", &context).unwrap();
//! assert_eq!(stop.answer.as_deref(), Some("Paris"));
//! ```
//!
//! There are two modes. `matching = "call"`, the default, reads calls with their brackets and
//! strings ([`Scanner`]). `matching = "regex"` searches for patterns like Python's `re`, in
//! linear time (module `regex`, with the feature `regex`). A step of the action type `final` stops with its whole output.
//!
//! Source: RLM Code's `final_pattern`.

mod argument;
mod brackets;
mod call;
mod declaration;
mod opening;
#[cfg(feature = "regex")]
mod pattern;
#[cfg(feature = "regex")]
mod python;
#[cfg(feature = "regex")]
pub mod regex;

pub use call::Scanner;

use declaration::NAME;
pub use declaration::{Callee, Declaration, Pick, ScannerOptions};
#[cfg(feature = "regex")]
pub(crate) use regex::Expression;
#[cfg(feature = "regex")]
pub use regex::Patterns;

use crate::policy::config::{Config, PolicyError};
use crate::policy::verdict::{StepContext, StepResult, Stop, TerminationPolicy, Verdict};
use serde_json::{Value, json};

#[derive(Clone, Debug)]
enum Matching {
    Call {
        case_sensitive: bool,
        anywhere: bool,
        pick: Pick,
    },
    #[cfg(feature = "regex")]
    Regex(Patterns),
}

/// Stops when the model declares its answer in text; see the module's documentation.
#[derive(Clone, Debug)]
pub struct FinalPattern {
    matching: Matching,
    extract_answer: bool,
    /// Scanner over the part of the message that was received.
    scanner: Option<Scanner>,
    /// `true` if the message declares an unknown variable, so that the end of the turn decides.
    undecided: bool,
}

impl Default for FinalPattern {
    fn default() -> Self {
        FinalPattern {
            matching: Matching::Call { case_sensitive: true, anywhere: false, pick: Pick::First },
            extract_answer: true,
            scanner: None,
            undecided: false,
        }
    }
}

/// The result of searching one text.
enum Found {
    Nothing,
    /// A declaration of an unknown variable.
    Unknown(String),
    /// A declaration. `passed_over` is `true` if an unknown variable was declared before it.
    Stop {
        stop: Stop,
        passed_over: bool,
    },
}

impl FinalPattern {
    /// Description in one line.
    pub const DESCRIPTION: &'static str =
        "Stop when the answer is declared: FINAL(…), FINAL_VAR(…), SUBMIT(…)";

    /// Returns the default configuration. With `matching = "regex"` there are also
    /// `final_patterns` (default: the three documented ones) and `lenient`, `case_sensitive` is
    /// false, and there is no `scope` and no `pick`.
    pub fn defaults() -> Value {
        json!({
            "matching": "call",
            "case_sensitive": true,
            "extract_answer": true,
            "scope": "prose",
            "pick": "first"
        })
    }

    /// Builds the policy from its configuration.
    ///
    /// # Errors
    /// An unknown key, an invalid value, an invalid pattern, or `matching = "regex"` without the
    /// feature `regex`.
    pub fn from_config(config: &Value) -> Result<FinalPattern, PolicyError> {
        let config = Config::new(NAME, config)?;
        let implied = if config.get("final_patterns").is_some() { "regex" } else { "call" };
        let matching = config.choice("matching", &["call", "regex"])?.unwrap_or(implied);
        if matching == "regex" {
            return FinalPattern::with_patterns(&config);
        }
        config.only(&["matching", "case_sensitive", "extract_answer", "scope", "pick"])?;
        Ok(FinalPattern {
            matching: Matching::Call {
                case_sensitive: config.flag("case_sensitive", true)?,
                anywhere: config.choice("scope", &["prose", "anywhere"])? == Some("anywhere"),
                pick: match config.choice("pick", &["first", "last"])? {
                    Some("last") => Pick::Last,
                    _ => Pick::First,
                },
            },
            extract_answer: config.flag("extract_answer", true)?,
            scanner: None,
            undecided: false,
        })
    }

    #[cfg(feature = "regex")]
    fn with_patterns(config: &Config<'_>) -> Result<FinalPattern, PolicyError> {
        let (patterns, extract_answer) = Patterns::from_config(config)?;
        let matching = Matching::Regex(patterns);
        Ok(FinalPattern { matching, extract_answer, ..FinalPattern::default() })
    }

    #[cfg(not(feature = "regex"))]
    fn with_patterns(config: &Config<'_>) -> Result<FinalPattern, PolicyError> {
        Err(config.bad("matching", "`call`: this program was built without the feature `regex`"))
    }

    #[cfg_attr(
        not(feature = "regex"),
        expect(clippy::unnecessary_wraps, reason = "a search for patterns has no scanner")
    )]
    fn scanner(&self, message: bool) -> Option<Scanner> {
        match self.matching {
            #[cfg(feature = "regex")]
            Matching::Regex(_) => None,
            Matching::Call { case_sensitive, anywhere, pick } => {
                Some(Scanner::new(ScannerOptions {
                    prose: message && !anywhere,
                    case_sensitive,
                    pick,
                }))
            }
        }
    }

    fn find(&self, text: &str, action_type: &str, context: &StepContext) -> Found {
        let Some(mut scanner) = self.scanner(action_type == "message") else {
            return match &self.matching {
                #[cfg(feature = "regex")]
                Matching::Regex(patterns) => patterns
                    .find(text, self.extract_answer, context)
                    .map_or(Found::Nothing, |stop| Found::Stop { stop, passed_over: false }),
                Matching::Call { .. } => Found::Nothing,
            };
        };
        scanner.push(text);
        scanner.finish();
        let mut unknown = None;
        for declaration in scanner.declarations() {
            match resolve(&declaration, context) {
                Ok(mut stop) => {
                    if !self.extract_answer {
                        stop.answer = Some(text.to_owned());
                        stop.deliverable = None;
                    }
                    return Found::Stop { stop, passed_over: unknown.is_some() };
                }
                Err(name) => unknown = unknown.or(Some(name)),
            }
        }
        unknown.map_or(Found::Nothing, Found::Unknown)
    }
}

/// Returns the stop that a declaration demands, or the name of an unknown variable as an error.
fn resolve(declaration: &Declaration<'_>, context: &StepContext) -> Result<Stop, String> {
    let evidence = format!("{}(…) at byte {}", declaration.callee().as_str(), declaration.at());
    let mut stop = Stop::submitted(NAME, evidence);
    match declaration.callee() {
        Callee::Final => stop.answer = Some(argument::content(declaration.argument())),
        Callee::FinalVar => {
            let name = argument::name(declaration.argument());
            let value = context.variables.get(name).ok_or_else(|| name.to_owned())?;
            stop.answer = Some(as_text(value));
            if !value.is_string() {
                stop.deliverable = Some(value.clone());
            }
        }
        Callee::Submit => {
            let object = argument::keywords(declaration.argument());
            let answer = object.get("answer").map(as_text);
            let object = Value::Object(object);
            stop.answer = Some(answer.unwrap_or_else(|| object.to_string()));
            stop.deliverable = Some(object);
        }
    }
    Ok(stop)
}

/// Returns a string unchanged, and any other value as compact JSON.
fn as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn tell(name: &str, context: &StepContext) -> Verdict {
    let known: Vec<&str> = context.variables.keys().take(20).map(String::as_str).collect();
    let known = if known.is_empty() {
        "there are none".to_owned()
    } else {
        format!("known are {}", known.join(", "))
    };
    Verdict::Tell(format!("FINAL_VAR({name}): there is no variable `{name}`; {known}"))
}

impl TerminationPolicy for FinalPattern {
    fn name(&self) -> &str {
        NAME
    }

    fn description(&self) -> &str {
        Self::DESCRIPTION
    }

    fn default_config(&self) -> Value {
        Self::defaults()
    }

    fn should_terminate(&mut self, step: &StepResult, context: &StepContext) -> Verdict {
        if step.action_type == "final" {
            let mut stop = Stop::submitted(NAME, "a final action");
            stop.answer = step.output.clone().filter(|o| !o.is_empty());
            return Verdict::Stop(stop);
        }
        let message = step.output.as_deref().unwrap_or_default();
        let texts = std::iter::once((message, step.action_type.as_str()))
            .chain(step.outputs.iter().map(|o| (o.output.as_str(), o.action_type.as_str())));
        let mut unknown = None;
        for (text, action_type) in texts {
            match self.find(text, action_type, context) {
                Found::Stop { stop, .. } => return Verdict::Stop(stop),
                Found::Unknown(name) => unknown = unknown.or(Some(name)),
                Found::Nothing => {}
            }
        }
        unknown.map_or(Verdict::Continue, |name| tell(&name, context))
    }

    fn begin_turn(&mut self) {
        self.scanner = None;
        self.undecided = false;
    }

    fn on_delta(&mut self, piece: &str, context: &StepContext) -> Option<Stop> {
        // Later text can change the result: without extraction the whole text is the answer, and
        // after an unknown variable a later declaration may count.
        if !self.extract_answer || self.undecided {
            return None;
        }
        if self.scanner.is_none() {
            self.scanner = self.scanner(true);
        }
        let scanner = self.scanner.as_mut()?;
        if scanner.skip(piece) {
            return None;
        }
        scanner.read(piece);
        // An unknown variable may exist at the end of the turn, so no later declaration is decided.
        let resolved = resolve(&scanner.decided()?, context);
        self.undecided = resolved.is_err();
        resolved.ok()
    }

    fn on_text_complete(&mut self, text: &str, context: &StepContext) -> Option<Stop> {
        match self.find(text, "message", context) {
            // The turn's tools may still set the unknown variable.
            Found::Stop { stop, passed_over: false } => Some(stop),
            _ => None,
        }
    }

    fn reset(&mut self) {
        self.scanner = None;
        self.undecided = false;
    }
}
