//! Structured answers: where the JSON of an answer may be, and which of it counts.
//!
//! An answer is the whole text, or a block fenced with backticks or tildes; the first that
//! satisfies the schema wins.
//!
//! ```
//! use endstop_core::structured::accept;
//! use serde_json::{json, Value};
//! let has_age = |v: &Value| if v["age"].is_u64() { Ok(()) } else { Err("no age".to_owned()) };
//! let text = "Sure:\n~~~json\n{\"name\":\"Ada\"}\n~~~\n~~~json\n{\"age\":36}\n~~~\n";
//! assert_eq!(accept(&json!(text), has_age), Ok(json!({"age": 36})));
//! assert!(accept(&json!("I would rather not."), has_age).unwrap_err().contains("no JSON"));
//! ```

use serde_json::Value;

/// Finds the value of an answer that satisfies `check`.
///
/// `candidate` is the answer: text to look for JSON in, or a value that was delivered as such.
///
/// # Errors
/// What is wrong with the first JSON there is, or that there is none; meant for the model.
pub fn accept(
    candidate: &Value,
    check: impl Fn(&Value) -> Result<(), String>,
) -> Result<Value, String> {
    let Value::String(text) = candidate else {
        return check(candidate).map(|()| candidate.clone());
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
                if block.trim_start().starts_with(['{', '[']) {
                    first_syntax.get_or_insert(format!("the JSON does not parse: {e}"));
                }
            }
        }
    }
    // A schema of type string is satisfied by the text itself.
    if first_problem.is_none() && check(candidate).is_ok() {
        return Ok(candidate.clone());
    }
    Err(first_problem
        .or(first_syntax)
        .unwrap_or_else(|| "there is no JSON in the answer".to_owned()))
}

/// The texts that may be the JSON: the whole, then each fenced block in order.
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
    // A block that is never closed was cut, or its closing fence forgotten: it may still parse.
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
    fn whole_texts_fences_and_delivered_values_are_answers() {
        for text in [
            "{\"a\":1}",
            "  {\"a\":1}\n",
            "here\n```json\n{\"a\":1}\n```\nbye",
            "~~~\n{\"a\":1}\n~~~",
            "````\n{\"a\":1}\n````",
            "```json\n{\"a\":1}",
            "```\nnot json\n```\n```\n{\"a\":1}\n```",
        ] {
            assert_eq!(accept(&json!(text), object), Ok(json!({"a": 1})), "{text}");
        }
        assert_eq!(accept(&json!({"a": 1}), object), Ok(json!({"a": 1})));
    }

    #[test]
    fn the_problem_names_what_is_wrong() {
        assert_eq!(accept(&json!("[1]"), object), Err("not an object".into()));
        assert!(accept(&json!("{\"a\":"), object).unwrap_err().contains("does not parse"));
        assert!(accept(&json!(""), object).unwrap_err().contains("no JSON"));
        assert!(accept(&json!(null), object).is_err());
    }
}
