//! `matching = "regex"`: the documented patterns, or others in Python's syntax, in linear time.
//!
//! ```
//! use endstop_core::{policy::FinalPattern, StepContext, StepResult, TerminationPolicy};
//! let config = serde_json::json!({"final_patterns": [r"ANSWER:\s*(.+?)$"]});
//! let mut policy = FinalPattern::from_config(&config)?;
//! let step = StepResult { output: Some("ANSWER: 42\n".into()), ..StepResult::default() };
//! let verdict = policy.should_terminate(&step, &StepContext::default());
//! assert_eq!(verdict.stop().unwrap().answer.as_deref(), Some("42"));
//! # Ok::<(), endstop_core::policy::PolicyError>(())
//! ```
//!
//! The patterns are tried in order, each over the whole text; the first group is the answer. If a
//! pattern's source contains `FINAL_VAR` and the group names a variable, the answer is the
//! variable's value in Python's form. This mode does not decide in mid-stream.

use super::declaration::NAME;
use super::{pattern, python};
use crate::policy::config::{Config, PolicyError};
use crate::policy::{StepContext, Stop};
use regex_automata::meta::Regex;
use serde_json::Value;

/// The documented patterns.
pub const DEFAULT_PATTERNS: [&str; 3] = [
    r#"FINAL\s*\(\s*['\"](.+?)['\"]\s*\)"#,
    r"FINAL\s*\(\s*(.+?)\s*\)",
    r#"FINAL_VAR\s*\(\s*['\"](\w+)['\"]\s*\)"#,
];

/// Maximum size of a pattern's automaton in bytes, because a short pattern can compile to a large
/// automaton.
const SIZE_LIMIT: usize = 16 << 20;

/// Compiled patterns.
#[derive(Clone, Debug)]
pub struct Patterns {
    patterns: Vec<Pattern>,
}

#[derive(Clone, Debug)]
struct Pattern {
    source: String,
    regex: Regex,
}

impl Patterns {
    /// Compiles patterns in Python's syntax; with `extract` each needs a group.
    ///
    /// # Errors
    /// [`PolicyError::BadPattern`] for a pattern that is invalid or cannot run in linear time.
    pub fn new<S: AsRef<str>>(
        patterns: &[S],
        case_sensitive: bool,
        extract: bool,
    ) -> Result<Patterns, PolicyError> {
        let patterns = patterns
            .iter()
            .map(|source| {
                let source = source.as_ref();
                Pattern::new(source, case_sensitive, extract).map_err(|problem| {
                    PolicyError::BadPattern {
                        policy: NAME.to_owned(),
                        pattern: source.to_owned(),
                        problem,
                    }
                })
            })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Patterns { patterns })
    }

    /// Reads the configuration. Returns the patterns and `extract_answer`.
    pub(super) fn from_config(config: &Config<'_>) -> Result<(Patterns, bool), PolicyError> {
        let lenient = config.flag("lenient", false)?;
        if !lenient {
            config.only(&[
                "matching",
                "final_patterns",
                "case_sensitive",
                "extract_answer",
                "lenient",
            ])?;
        }
        let flag = |key, default| match config.get(key) {
            Some(value) if lenient => Ok(truthy(value)),
            _ => config.flag(key, default),
        };
        let case_sensitive = flag("case_sensitive", false)?;
        let extract = flag("extract_answer", true)?;
        let sources: Vec<&str> = match config.get("final_patterns") {
            None => DEFAULT_PATTERNS.to_vec(),
            Some(Value::Array(list)) if lenient || !list.is_empty() => list
                .iter()
                .map(|v| v.as_str())
                .collect::<Option<_>>()
                .ok_or_else(|| config.bad("final_patterns", "a list of patterns"))?,
            Some(_) => return Err(config.bad("final_patterns", "a list of at least one pattern")),
        };
        let patterns = Patterns::new(&sources, case_sensitive, extract && !lenient)?;
        Ok((patterns, extract))
    }

    /// Returns the stop of the first pattern that matches.
    pub(super) fn find(&self, text: &str, extract: bool, context: &StepContext) -> Option<Stop> {
        self.patterns.iter().find_map(|pattern| pattern.find(text, extract, context))
    }
}

impl Pattern {
    fn new(source: &str, case_sensitive: bool, extract: bool) -> Result<Pattern, String> {
        let parsed = pattern::parse(source, !case_sensitive)?;
        if extract && parsed.groups == 0 {
            return Err(
                "it has no group, so there is no answer to extract; `extract_answer = false` \
                 answers with the whole output"
                    .to_owned(),
            );
        }
        let regex = Regex::builder()
            .configure(Regex::config().nfa_size_limit(Some(SIZE_LIMIT)))
            .build_from_hir(&parsed.hir)
            .map_err(|e| e.to_string())?;
        Ok(Pattern { source: source.to_owned(), regex })
    }

    fn find(&self, text: &str, extract: bool, context: &StepContext) -> Option<Stop> {
        let mut captures = self.regex.create_captures();
        self.regex.captures(text, &mut captures);
        let whole = captures.get_match()?;
        let evidence = format!("pattern `{}` at byte {}", self.source, whole.start());
        let mut stop = Stop::submitted(NAME, evidence);
        if !extract {
            stop.answer = Some(text.to_owned());
            return Some(stop);
        }
        let Some(group) = captures.get_group(1) else {
            // The group did not participate in the match, so there is no answer.
            return Some(stop);
        };
        let answer = python::strip(text.get(group.range()).unwrap_or_default());
        let variable =
            self.source.contains("FINAL_VAR").then(|| context.variables.get(answer)).flatten();
        stop.answer = Some(variable.map_or_else(|| answer.to_owned(), python::str));
        stop.deliverable = variable.filter(|v| !v.is_string()).cloned();
        Some(stop)
    }
}

/// One pattern in Python's syntax that is only tested for a match.
#[derive(Clone, Debug)]
pub(crate) struct Expression(Regex);

impl Expression {
    /// Compiles the pattern.
    pub(crate) fn new(source: &str, case_sensitive: bool) -> Result<Expression, String> {
        Pattern::new(source, case_sensitive, false).map(|pattern| Expression(pattern.regex))
    }

    /// Returns the pattern that matches this text literally.
    pub(crate) fn literal(text: &str) -> String {
        let mut pattern = String::with_capacity(text.len());
        for c in text.chars() {
            // Letters and digits are left alone, because a backslash would give them a meaning.
            if c.is_ascii() && !c.is_ascii_alphanumeric() {
                pattern.push('\\');
            }
            pattern.push(c);
        }
        pattern
    }

    pub(crate) fn is_in(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

/// `true` if Python treats the value as true.
fn truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(b) => *b,
        Value::Number(n) => n.as_f64() != Some(0.0),
        Value::String(s) => !s.is_empty(),
        Value::Array(a) => !a.is_empty(),
        Value::Object(o) => !o.is_empty(),
    }
}
