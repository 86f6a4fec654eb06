//! The badge: the JSON that shields.io reads from an endpoint.

use super::summary::passed;
use crate::suite::SuiteResult;
use serde_json::{Value, json};

/// Returns the badge, for example `endings | level 2 · 44/52 · edition 2027-01`.
pub fn badge(result: &SuiteResult) -> Value {
    let (passed, applicable) = passed(result);
    let color = match result.level {
        // Single checks say nothing about the level.
        None => "lightgrey",
        Some(0) => "red",
        Some(1) => "orange",
        Some(2) => "yellow",
        Some(3) => "green",
        Some(_) => "brightgreen",
    };
    let level = result.level.map(|level| format!("level {level} · ")).unwrap_or_default();
    let message = format!("{level}{passed}/{applicable} · edition {}", result.edition);
    json!({"schemaVersion": 1, "label": "endings", "message": message, "color": color})
}
