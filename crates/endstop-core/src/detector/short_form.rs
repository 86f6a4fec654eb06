//! Reads the short form of rules that reports and evidence show, so that a name can be copied from a
//! table into a command.
//!
//! ```
//! use endstop_core::Registry;
//! use serde_json::json;
//! let spec = Registry::parse_text("any[same_error(3),stuck(3,4,-,7)]")?;
//! assert_eq!(spec["any"][0], json!({"same_error": {"times": 3}}));
//! assert!(spec["any"][1]["stuck"]["stale"].is_null());
//! # Ok::<(), endstop_core::PolicyError>(())
//! ```
//!
//! The values are those of [`RuleInfo::keys`](super::RuleInfo::keys), in this order. A dash is a sign that is
//! switched off. A string that could end the form early is written as JSON, as
//! `tool_called={"name": "a,b"}`.

use super::rule::{MARKS, MAX_DEPTH, Rule};
use crate::policy::PolicyError;
use serde_json::{Map, Value};
use std::fmt;

/// Reads the short form of a rule; `None` if the text has another form.
pub(crate) fn read(text: &str) -> Result<Option<Rule>, PolicyError> {
    let text = text.trim();
    let name = text.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
    if name.len() == text.len() || !name.starts_with(['(', '[']) {
        return Ok(None);
    }
    let mut reader = Reader { text, rest: text };
    let rule = reader.rule(0)?;
    if reader.rest.trim().is_empty() { Ok(Some(rule)) } else { Err(reader.expected("its end")) }
}

struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
}

impl<'a> Reader<'a> {
    /// Reads a rule, which is `depth` levels within others.
    fn rule(&mut self, depth: u32) -> Result<Rule, PolicyError> {
        if depth > MAX_DEPTH {
            return Err(PolicyError::spec(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        let name = self.until_mark();
        if name == "any" && self.take('[') {
            let mut rules = vec![self.rule(depth + 1)?];
            while self.take(',') {
                rules.push(self.rule(depth + 1)?);
            }
            return if self.take(']') { Ok(Rule::Any(rules)) } else { Err(self.expected("`]`")) };
        }
        if self.take('=') {
            return Rule::from_config(name, &self.json(name)?);
        }
        // Within `any[…]`, a rule can be its name alone.
        if depth > 0 && (self.rest.is_empty() || self.rest.starts_with([',', ']'])) {
            return Rule::from_config(name, &Value::Null);
        }
        if !self.take('(') {
            return Err(self.expected("`(`"));
        }
        let mut values = vec![self.until_mark()];
        while self.take(',') {
            values.push(self.until_mark());
        }
        if !self.take(')') {
            return Err(self.expected("`)`"));
        }
        Rule::from_config(name, &config(name, &values)?)
    }

    /// Reads the JSON value after `name=`.
    fn json(&mut self, name: &str) -> Result<Value, PolicyError> {
        let mut values = serde_json::Deserializer::from_str(self.rest).into_iter();
        let problem = |why: &dyn fmt::Display| {
            PolicyError::spec(format!("the configuration of `{name}` is not valid JSON: {why}"))
        };
        let value = match values.next() {
            Some(value) => value.map_err(|error| problem(&error))?,
            None => return Err(problem(&"it is empty")),
        };
        self.rest = self.rest.get(values.byte_offset()..).unwrap_or_default();
        Ok(value)
    }

    fn until_mark(&mut self) -> &'a str {
        let end = self.rest.find(MARKS).unwrap_or(self.rest.len());
        let (value, rest) = self.rest.split_at(end);
        self.rest = rest;
        value.trim()
    }

    fn take(&mut self, mark: char) -> bool {
        let rest = self.rest.trim_start().strip_prefix(mark);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expected(&self, what: &str) -> PolicyError {
        let at = match self.rest.trim_start() {
            "" => "at the end".to_owned(),
            rest => format!("at `{}`", rest.chars().take(20).collect::<String>()),
        };
        let start: String = self.text.chars().take(40).collect();
        PolicyError::spec(format!(
            "the rule `{start}`: expected {what} {at}; write for example any[same_error(3),stuck(2,4,3,7)]"
        ))
    }
}

/// Returns the configuration for the values of a short form.
fn config(name: &str, values: &[&str]) -> Result<Value, PolicyError> {
    // The error for an unknown name lists the known ones.
    let Some(info) = Rule::known().iter().find(|rule| rule.name == name) else {
        return Ok(Value::Null);
    };
    // The name that reports show lacks the last value of `stuck` if it has its default.
    let least = if name == "stuck" { info.keys.len() - 1 } else { info.keys.len() };
    if !(least..=info.keys.len()).contains(&values.len()) {
        let count = match info.keys.len() {
            1 => "1 value".to_owned(),
            most if least < most => format!("{least} or {most} values"),
            most => format!("{most} values"),
        };
        return Err(PolicyError::spec(format!(
            "`{name}({})`: expected {count} in parentheses: {}",
            values.join(","),
            info.keys.join(", ")
        )));
    }
    let mut config = Map::new();
    for (&key, &value) in info.keys.iter().zip(values) {
        let number = || serde_json::from_str(value).ok().map(Value::Number);
        let value = match (key, value) {
            ("text" | "name", text) => Value::String(text.to_owned()),
            (_, "-") => Value::Null,
            (_, value) => number().unwrap_or_else(|| Value::String(value.to_owned())),
        };
        config.insert(key.to_owned(), value);
    }
    Ok(Value::Object(config))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn problem(text: &str) -> String {
        read(text).unwrap_err().to_string()
    }

    #[test]
    fn every_rule_is_read_back() {
        let mut rules: Vec<Rule> = Vec::new();
        for info in Rule::known() {
            let needed = match info.name {
                "text_mention" => json!({"text": "TASK DONE"}),
                "tool_called" => json!({"name": "submit"}),
                _ => Value::Null,
            };
            let rule = Rule::from_config(info.name, &needed).unwrap();
            let written = rule.to_string();
            let values = written.strip_prefix(info.name).unwrap();
            // The last number of `stuck` is left out if it is the default.
            let left_out = usize::from(info.name == "stuck");
            assert_eq!(values.split(',').count(), info.keys.len() - left_out, "{written}");
            rules.push(rule);
        }
        let more = [
            json!({"stuck": {"stale": null}}),
            json!({"cost": {"usd": 0.25}}),
            json!({"text_mention": {"pattern": r"a[,)]=\d+"}}),
            json!({"text_mention": {"text": "done", "case_sensitive": false}}),
            json!({"text_mention": {"text": " done, (\"ok\")] "}}),
            json!({"tool_called": {"name": "a,b)"}}),
        ];
        rules.extend(more.iter().map(|spec| Rule::from_spec(spec).unwrap()));
        rules.push(Rule::Any(vec![Rule::Any(rules.clone()), Rule::MaxSteps { steps: 9 }]));
        for rule in rules {
            // A top level `NAME={…}` is read by the caller.
            let text = format!("any[{rule}]");
            assert_eq!(read(&text).unwrap(), Some(Rule::Any(vec![rule])), "{text}");
        }
        assert_eq!(
            read(" stuck( 3, 4, - ,7 ) ").unwrap().map(|rule| rule.to_string()).as_deref(),
            Some("stuck(3,4,-,7)")
        );
    }

    #[test]
    fn other_forms_are_left_alone() {
        for text in ["stuck", "stuck={\"repeats\": 3}", "{\"any\": []}", "", "(3)", "[]"] {
            assert_eq!(read(text).unwrap(), None, "{text}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        let cases = [
            (
                "stuck(3)",
                "expected 4 or 5 values in parentheses: repeats, same_errors, stale, failures, similar",
            ),
            ("same_error(x)", "`times` must be a whole number"),
            ("same_error(3", "expected `)` at the end"),
            ("same_error(3)x", "expected its end at `x`"),
            ("same_eror(3)", "did you mean `same_error`"),
            ("any[same_error(3)", "expected `]` at the end"),
            ("any[]", "unknown rule ``"),
            ("any[x={]", "`x` is not valid JSON"),
            ("any[x=", "`x` is not valid JSON"),
        ];
        for (text, expected) in cases {
            assert!(problem(text).contains(expected), "{text}: {}", problem(text));
        }
    }

    #[test]
    fn deep_nesting_is_an_error() {
        // A recursion without a bound would exhaust the stack.
        let deep = format!("{}same_error(3){}", "any[".repeat(100_000), "]".repeat(100_000));
        assert!(problem(&deep).contains("nested deeper than 32 levels"));
        let most = format!("{}same_error(3){}", "any[".repeat(32), "]".repeat(32));
        assert!(read(&most).unwrap().is_some());
    }
}
