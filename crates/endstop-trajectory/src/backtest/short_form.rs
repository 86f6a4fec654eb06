//! The short form of rules that reports show, as a specification, so that a name can be copied from a
//! table into a command.
//!
//! ```text
//! spec("stuck(3,4,-,7)") // {"stuck": {"repeats": 3, "same_errors": 4, "stale": null, "failures": 7}}
//! ```

use serde_json::{Map, Value, json};

/// Reads the short form of a rule; `None` if the text has another form.
pub(super) fn spec(text: &str) -> Option<Value> {
    let text = text.trim();
    if let Some(members) = text.strip_prefix("any[").and_then(|rest| rest.strip_suffix(']')) {
        let members: Option<Vec<Value>> = members_of(members).into_iter().map(spec).collect();
        return Some(json!({ "any": members? }));
    }
    let (name, rest) = text.split_once('(')?;
    let values: Vec<&str> = rest.strip_suffix(')')?.split(',').collect();
    let keys: &[&str] = match name {
        "repeat_call" | "repeat_call_res" | "total_repeat" | "alternate" | "same_error"
        | "any_error" | "same_text" | "no_new" | "monologue" => &["times"],
        "max_steps" => &["steps"],
        "cycle" => &["period", "times"],
        "cost" => &["usd"],
        "reward" => &["at_least"],
        "chanting" => &["times", "min_chars"],
        "stuck" => &["repeats", "same_errors", "stale", "failures"],
        _ => return None,
    };
    if keys.len() != values.len() {
        return None;
    }
    let mut config = Map::new();
    for (key, value) in keys.iter().zip(values) {
        // A dash is a sign that is switched off.
        let number = match value.trim() {
            "-" => Value::Null,
            number => Value::Number(serde_json::from_str(number).ok()?),
        };
        config.insert((*key).to_owned(), number);
    }
    Some(json!({ name: config }))
}

/// Splits a list at the commas that are not within a member.
fn members_of(list: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    let comma = |c: char| {
        depth += i32::from(matches!(c, '(' | '[')) - i32::from(matches!(c, ')' | ']'));
        c == ',' && depth == 0
    };
    list.split(comma).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backtest::candidate::{Candidate, Trial};

    #[test]
    fn names_of_rules_are_read_back() {
        let mut known = Candidate::reference().unwrap();
        known.extend(Candidate::grid().unwrap());
        known.extend(Candidate::usual().unwrap());
        let mut read = 0;
        for candidate in known {
            let Trial::Rule(rule) = &candidate.trial else { continue };
            let name = rule.to_string();
            // Its pattern is not a number.
            if name.starts_with("text_mention") {
                continue;
            }
            assert_eq!(spec(&name), Some(rule.spec()), "{name}");
            read += 1;
        }
        assert!(read > 100);
        assert_eq!(spec("stuck(3, 4, -, 7)").unwrap()["stuck"]["stale"], Value::Null);
    }

    #[test]
    fn other_texts_are_not_short_forms() {
        for text in ["stuck", "stuck(3)", "nothing(3)", "same_error(x)", "same_error(3", "any[x]"] {
            assert_eq!(spec(text), None, "{text}");
        }
    }
}
