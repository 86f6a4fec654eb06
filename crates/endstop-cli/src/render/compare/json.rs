//! The JSON of a comparison.

use super::format::verdict;
use crate::recorded::compare::Compared;
use serde_json::{Map, Value, json};

/// Returns the comparison as one object.
pub(crate) fn json(compared: &Compared) -> Value {
    let problems: Map<String, Value> = compared
        .stats
        .problems
        .iter()
        .map(|(kind, found)| {
            (kind.as_str().to_owned(), json!({"count": found.count, "first": found.first}))
        })
        .collect();
    let mut value = json!({
        "type": "comparison",
        "verdict": verdict(&compared.comparison).as_str(),
        "problems": problems,
    });
    if let (Some(all), Ok(Value::Object(comparison))) =
        (value.as_object_mut(), serde_json::to_value(&compared.comparison))
    {
        all.extend(comparison);
    }
    value
}
