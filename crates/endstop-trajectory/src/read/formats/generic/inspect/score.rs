//! Derives success and reward from the scores of a sample.
//!
//! ```text
//! let recorded = score::recorded(&json!({"match": {"value": "C"}}));   // success, reward 1
//! ```

use crate::model::Recorded;
use serde_json::Value;

/// Tolerance for a score that is a mean and only approximately 0 or 1.
const NEAR: f64 = 1e-6;

/// Evaluates the scores. Several scores that agree determine the success, but not a reward.
pub(super) fn recorded(scores: &Value) -> Recorded {
    let Some(scores) = scores.as_object() else { return Recorded::default() };
    let mut values = scores.values().map(|score| score.get("value").unwrap_or(score));
    let Some(first) = values.next() else { return Recorded::default() };
    let others: Vec<_> = values.map(success).collect();
    // A single disagreement makes the outcome unknown.
    let agreed = others.iter().all(|other| *other == success(first));
    Recorded {
        // Several scores have no common scale, so they give no single reward.
        reward: if others.is_empty() { reward(first) } else { None },
        success: if agreed { success(first) } else { None },
    }
}

fn success(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(value) => Some(*value),
        Value::String(value) => match value.as_str() {
            // Inspect's constants for correct and incorrect.
            "C" => Some(true),
            "I" => Some(false),
            _ => None,
        },
        Value::Number(value) => {
            let value = value.as_f64()?;
            if (value - 1.0).abs() <= NEAR {
                Some(true)
            } else if value.abs() <= NEAR {
                Some(false)
            } else {
                None
            }
        }
        _ => None,
    }
}

fn reward(value: &Value) -> Option<f64> {
    match value {
        Value::Bool(value) => Some(f64::from(u8::from(*value))),
        Value::String(value) => match value.as_str() {
            "C" => Some(1.0),
            // Partial credit counts half, as in Inspect.
            "P" => Some(0.5),
            "I" | "N" => Some(0.0),
            _ => None,
        },
        other => other.as_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn score_maps_to_success_or_failure() {
        for (scores, success, reward) in [
            (json!({"m": {"value": "C"}}), Some(true), Some(1.0)),
            (json!({"m": {"value": "I"}}), Some(false), Some(0.0)),
            (json!({"m": {"value": "P"}}), None, Some(0.5)),
            (json!({"m": {"value": "N"}}), None, Some(0.0)),
            (json!({"m": {"value": 1}}), Some(true), Some(1.0)),
            (json!({"m": {"value": 0.0}}), Some(false), Some(0.0)),
            (json!({"m": {"value": 0.7}}), None, Some(0.7)),
            (json!({"m": {"value": 10}}), None, Some(10.0)),
            (json!({"m": {"value": true}}), Some(true), Some(1.0)),
            (json!({"m": {"value": {"side": "I"}}}), None, None),
            (json!({"m": {"value": null}}), None, None),
            (json!({"m": {"value": "A"}}), None, None),
            (json!({"a": {"value": "C"}, "b": {"value": 1.0}}), Some(true), None),
            (json!({"a": {"value": "C"}, "b": {"value": "I"}}), None, None),
            (json!({"a": {"value": "C"}, "b": {"value": 3}}), None, None),
            (json!({}), None, None),
            (json!(null), None, None),
        ] {
            assert_eq!(recorded(&scores), Recorded { reward, success }, "{scores}");
        }
    }
}
