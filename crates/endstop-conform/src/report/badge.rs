//! The badge: the JSON that shields.io reads from an endpoint.

use super::summary::passed;
use crate::suite::SuiteResult;
use serde_json::{Value, json};

/// Returns the badge, for example `endings | level 2 · 44/52 · edition 2027-01`.
pub fn badge(result: &SuiteResult) -> Value {
    let (passed, applicable) = passed(result);
    let level = result.level.unwrap_or(0);
    let color = match level {
        0 => "red",
        1 => "orange",
        2 => "yellow",
        3 => "green",
        _ => "brightgreen",
    };
    let message = format!("level {level} · {passed}/{applicable} · edition {}", result.edition);
    json!({"schemaVersion": 1, "label": "endings", "message": message, "color": color})
}
