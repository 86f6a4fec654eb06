//! Prices of models: the table `[prices]`.
//!
//! ```toml
//! [prices]
//! "openai/gpt-6.2-sol" = { in = 2, out = 12, cached = 0.2 }
//! "acme/in-house" = "in=0.2,out=0.8"
//! ```

use super::kind::{Kind, Members, Problem, Spelled, json_value};
use super::kinds::PriceText;
use endstop::core::Price;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The table as a setting.
pub(crate) struct PricesTable;

impl Kind for PricesTable {
    type Own = BTreeMap<String, Price>;
    type Flag = ();

    fn take(own: &mut Self::Own, member: &str, value: &Value) -> Result<(), Problem> {
        let wrong = |problem: &str| Problem::Table(format!("`{member}`: {problem}"));
        check_name(member).map_err(|problem| wrong(&problem))?;
        let other = own.keys().find(|name| *name != member && name.eq_ignore_ascii_case(member));
        if let Some(other) = other {
            return Err(wrong(&format!("`{other}` is the same model; remove one of them")));
        }
        let price = PriceText::in_file(value).map_err(|problem| match problem {
            Problem::Key(problem) | Problem::Table(problem) | Problem::Whole(problem) => {
                wrong(&problem)
            }
        })?;
        own.insert(member.to_owned(), price);
        Ok(())
    }

    json_value!();
}

/// Returns the rows for display.
pub(crate) fn shown_rows(own: &BTreeMap<String, Price>) -> Members {
    own.iter().map(|(name, price)| (format!(".{name}"), json!(price))).collect()
}

/// Checks the name of a model.
///
/// # Errors
/// Says what is expected.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let parts = name.split_once('/');
    if parts
        .is_some_and(|(provider, model)| !provider.trim().is_empty() && !model.trim().is_empty())
    {
        return Ok(());
    }
    Err("expected a model as PROVIDER/MODEL, for example \"openai/gpt-5\"".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_rows_name_the_model() {
        for (member, value, says) in [
            ("gpt-5", json!("in=1,out=2"), "`gpt-5`: expected a model as PROVIDER/MODEL"),
            ("a/", json!("in=1,out=2"), "expected a model"),
            ("a/b", json!({"in": -1, "out": 2}), "`a/b`: price: `in`: `-1` is not an amount"),
            ("a/b", json!("in=NaN,out=2"), "`a/b`: price: `in`: `NaN` is not an amount"),
            ("a/b", json!("in=1"), "`a/b`: price: `out` is missing"),
            ("a/b", json!(3), "`a/b`: expected a string"),
            ("A/x", json!("in=1,out=2"), "`a/x` is the same model"),
        ] {
            let mut own = BTreeMap::from([("a/x".to_owned(), Price::default())]);
            let Err(Problem::Table(problem)) = PricesTable::take(&mut own, member, &value) else {
                panic!("{member}: {value}");
            };
            assert!(problem.contains(says), "{problem}");
        }
    }
}
