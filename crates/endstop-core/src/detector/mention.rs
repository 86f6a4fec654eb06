//! `text_mention`: matches a word or a pattern in the text of the model, because some agents end
//! their runs with a keyword (`TERMINATE`).
//!
//! ```
//! use endstop_core::detector::{RuleSet, Rule};
//! use serde_json::json;
//! let rule = Rule::from_spec(&json!({"text_mention": {"text": "TERMINATE"}}))?;
//! let mut rule_set = RuleSet::new([rule]);
//! rule_set.text("All done. TERMINATE");
//! rule_set.end();
//! assert_eq!(rule_set.fired(), [Some(1)]);
//! # Ok::<(), endstop_core::PolicyError>(())
//! ```
//!
//! `text` is searched for literally, anywhere in the text, also within a longer word. `pattern` is
//! a regular expression in Python syntax, which runs in linear time. `pattern`, and
//! `case_sensitive = false`, need the feature `regex`.

use crate::policy::PolicyError;
use crate::policy::config::Config;
#[cfg(feature = "regex")]
use crate::policy::final_pattern::Expression;
use serde_json::{Value, json};
#[cfg(feature = "regex")]
use std::sync::Arc;

/// The string or pattern to search for.
#[derive(Clone, Debug)]
pub struct Mention {
    text: Option<String>,
    pattern: Option<String>,
    case_sensitive: bool,
    /// `None` for a string that is compared as it is.
    #[cfg(feature = "regex")]
    expression: Option<Arc<Expression>>,
}

impl Mention {
    pub(super) fn from_config(config: &Config<'_>) -> Result<Mention, PolicyError> {
        config.only(&["text", "pattern", "case_sensitive"])?;
        let given = |key| config.get(key).map(|_| config.text(key, "")).transpose();
        let (text, pattern) = (given("text")?, given("pattern")?);
        let case_sensitive = config.flag("case_sensitive", true)?;
        match (&text, &pattern) {
            (Some(_), None) | (None, Some(_)) => {}
            (None, None) => return Err(config.bad("text", "a string (or give `pattern`)")),
            (Some(_), Some(_)) => {
                return Err(config.bad("pattern", "absent if `text` is given"));
            }
        }
        #[cfg(feature = "regex")]
        let expression = expression(text.as_deref(), pattern.as_deref(), case_sensitive)?;
        #[cfg(not(feature = "regex"))]
        if let Some(key) =
            pattern.as_ref().map(|_| "pattern").or((!case_sensitive).then_some("case_sensitive"))
        {
            return Err(
                config.bad(key, "absent: this program was built without the feature `regex`")
            );
        }
        Ok(Mention {
            text,
            pattern,
            case_sensitive,
            #[cfg(feature = "regex")]
            expression,
        })
    }

    pub(super) fn config(&self) -> Value {
        match (&self.text, &self.pattern) {
            (Some(text), _) => json!({"text": text, "case_sensitive": self.case_sensitive}),
            (_, pattern) => json!({"pattern": pattern, "case_sensitive": self.case_sensitive}),
        }
    }

    /// Returns the searched string, if nothing else is configured.
    pub(super) fn plain(&self) -> Option<&str> {
        self.text.as_deref().filter(|_| self.case_sensitive)
    }

    pub(super) fn is_in(&self, text: &str) -> bool {
        #[cfg(feature = "regex")]
        if let Some(expression) = &self.expression {
            return expression.is_in(text);
        }
        self.plain().is_some_and(|plain| text.contains(plain))
    }
}

/// Compiles a pattern, or a string whose case does not count.
#[cfg(feature = "regex")]
fn expression(
    text: Option<&str>,
    pattern: Option<&str>,
    case_sensitive: bool,
) -> Result<Option<Arc<Expression>>, PolicyError> {
    let source = match (text, pattern) {
        (Some(_), _) if case_sensitive => return Ok(None),
        (Some(text), _) => Expression::literal(text),
        (None, pattern) => pattern.unwrap_or_default().to_owned(),
    };
    let expression = Expression::new(&source, case_sensitive).map_err(|problem| {
        PolicyError::BadPattern { policy: "text_mention".to_owned(), pattern: source, problem }
    })?;
    Ok(Some(Arc::new(expression)))
}

// Written by hand, because a compiled expression has no equality.
impl PartialEq for Mention {
    fn eq(&self, other: &Mention) -> bool {
        (&self.text, &self.pattern, self.case_sensitive)
            == (&other.text, &other.pattern, other.case_sensitive)
    }
}
