//! Structured answers: finds the JSON in an answer that satisfies the schema.
//!
//! The JSON may be the whole text, or a block fenced with backticks or tildes. The first candidate
//! that satisfies the schema wins, because models often show an example before the answer.
//!
//! ```
//! use endstop_core::structured::accept;
//! use serde_json::{json, Value};
//! let has_age = |v: &Value| if v["age"].is_u64() { Ok(()) } else { Err("no age".to_owned()) };
//! let text = "Sure:\n~~~json\n{\"name\":\"Ada\"}\n~~~\n~~~json\n{\"age\":36}\n~~~\n";
//! assert_eq!(accept(&json!(text), has_age).unwrap(), json!({"age": 36}));
//! let refused = accept(&json!("I would rather not."), has_age).unwrap_err();
//! assert_eq!(refused.to_string(), "there is no JSON in the answer");
//! ```

use serde_json::Value;
use std::error::Error;
use std::fmt;

/// The reason why no value in an answer is accepted. The message is for the model.
#[derive(Debug)]
#[non_exhaustive]
pub enum AcceptError<E> {
    /// The check refused the first JSON value.
    Refused(E),
    /// The JSON does not parse.
    Syntax(serde_json::Error),
    /// The answer contains no JSON.
    NoJson,
}

impl<E: fmt::Display> fmt::Display for AcceptError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AcceptError::Refused(problem) => problem.fmt(f),
            AcceptError::Syntax(error) => write!(f, "the JSON does not parse: {error}"),
            AcceptError::NoJson => f.write_str("there is no JSON in the answer"),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> Error for AcceptError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            AcceptError::Syntax(error) => Some(error),
            AcceptError::Refused(_) | AcceptError::NoJson => None,
        }
    }
}

/// Returns the value in an answer that satisfies `check`.
///
/// `candidate` is the answer: text that may contain JSON, or a value that was delivered as JSON.
///
/// # Errors
/// Returns the problem that `check` found in the first JSON that parses. If none parses, the error
/// is that of the parser, or [`AcceptError::NoJson`] if nothing in the answer looks like JSON.
pub fn accept<E>(
    candidate: &Value,
    check: impl Fn(&Value) -> Result<(), E>,
) -> Result<Value, AcceptError<E>> {
    let Value::String(text) = candidate else {
        return check(candidate).map(|()| candidate.clone()).map_err(AcceptError::Refused);
    };
    let mut first_problem = None;
    let mut first_syntax = None;
    for block in blocks(text) {
        match serde_json::from_str::<Value>(block) {
            Ok(value) => match check(&value) {
                Ok(()) => return Ok(value),
                Err(problem) => {
                    first_problem.get_or_insert(problem);
                }
            },
            Err(e) => {
                // Text that does not look like JSON is prose, so its parse error would only mislead
                // the model.
                if block.trim_start().starts_with(['{', '[']) {
                    first_syntax.get_or_insert(e);
                }
            }
        }
    }
    // A schema of type string accepts the text itself.
    if first_problem.is_none() && check(candidate).is_ok() {
        return Ok(candidate.clone());
    }
    Err(match (first_problem, first_syntax) {
        (Some(problem), _) => AcceptError::Refused(problem),
        (None, Some(error)) => AcceptError::Syntax(error),
        (None, None) => AcceptError::NoJson,
    })
}

/// Returns the texts that may be the JSON: the whole text, then each fenced block in order.
fn blocks(text: &str) -> impl Iterator<Item = &str> {
    let mut found = vec![text.trim()];
    let mut open: Option<(char, usize, usize)> = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim();
        let fence = trimmed.chars().next().filter(|c| matches!(c, '`' | '~'));
        let length = fence.map_or(0, |c| trimmed.chars().take_while(|x| *x == c).count());
        match (open, fence) {
            (None, Some(mark)) if length >= 3 => open = Some((mark, length, at + line.len())),
            // As in CommonMark: the closing fence has the same character, at least the same length,
            // and no text.
            (Some((mark, opened, start)), Some(c))
                if c == mark && length >= opened && trimmed.chars().count() == length =>
            {
                found.push(text[start..at].trim());
                open = None;
            }
            _ => {}
        }
        at += line.len();
    }
    // An unclosed block was truncated, or its closing fence was forgotten. It may still parse.
    if let Some((_, _, start)) = open {
        found.push(text[start..].trim());
    }
    found.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(v: &Value) -> Result<(), String> {
        if v.is_object() { Ok(()) } else { Err("not an object".to_owned()) }
    }

    #[test]
    fn text_fence_and_value_are_accepted() {
        for text in [
            "{\"a\":1}",
            "  {\"a\":1}\n",
            "here\n```json\n{\"a\":1}\n```\nbye",
            "~~~\n{\"a\":1}\n~~~",
            "````\n{\"a\":1}\n````",
            "```json\n{\"a\":1}",
            "```\nnot json\n```\n```\n{\"a\":1}\n```",
        ] {
            assert_eq!(accept(&json!(text), object).unwrap(), json!({"a": 1}), "{text}");
        }
        assert_eq!(accept(&json!({"a": 1}), object).unwrap(), json!({"a": 1}));
    }

    #[test]
    fn error_names_the_problem() {
        let problem = |answer: &str| accept(&json!(answer), object).unwrap_err().to_string();
        assert_eq!(problem("[1]"), "not an object");
        assert!(problem("{\"a\":").contains("does not parse"));
        assert!(problem("").contains("no JSON"));
        assert!(accept(&json!(null), object).is_err());
    }
}
