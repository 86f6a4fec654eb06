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
//! a regular expression in Python syntax, which runs in linear time.

use crate::policy::PolicyError;
use crate::policy::config::Config;
use crate::policy::final_pattern::Expression;
use serde_json::{Value, json};
use std::sync::Arc;

const NAME: &str = "text_mention";

/// The string or pattern to search for.
#[derive(Clone, Debug)]
pub struct Mention {
    text: Option<String>,
    pattern: Option<String>,
    case_sensitive: bool,
    expression: Arc<Expression>,
}

impl Mention {
    pub(super) fn from_config(config: &Config<'_>) -> Result<Mention, PolicyError> {
        config.only(&["text", "pattern", "case_sensitive"])?;
        let given = |key| config.get(key).map(|_| config.text(key, "")).transpose();
        let (text, pattern) = (given("text")?, given("pattern")?);
        let case_sensitive = config.flag("case_sensitive", true)?;
        // A literal becomes an expression as well, so that there is one search and one rule for
        // case.
        let source = match (&text, &pattern) {
            (Some(text), None) => Expression::literal(text),
            (None, Some(pattern)) => pattern.clone(),
            (None, None) => return Err(config.bad("text", "a string (or give `pattern`)")),
            (Some(_), Some(_)) => {
                return Err(config.bad("pattern", "absent if `text` is given"));
            }
        };
        let expression = Expression::new(&source, case_sensitive).map_err(|problem| {
            PolicyError::BadPattern { policy: NAME.to_owned(), pattern: source, problem }
        })?;
        Ok(Mention { text, pattern, case_sensitive, expression: Arc::new(expression) })
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
        self.expression.is_in(text)
    }
}

// Written by hand, because a compiled expression has no equality.
impl PartialEq for Mention {
    fn eq(&self, other: &Mention) -> bool {
        (&self.text, &self.pattern, self.case_sensitive)
            == (&other.text, &other.pattern, other.case_sensitive)
    }
}
