//! The report of an audit as JSON.

use super::report::Report;
use endstop_trajectory::backtest::Examples;
use serde_json::{Map, Value, json};

/// Returns the report as JSON.
pub fn json(report: &Report) -> Value {
    let finding = |one: &Examples| json!({"count": one.count, "first": one.first});
    let by_kind = |all: &[(String, Examples)]| -> Map<String, Value> {
        all.iter().map(|(kind, one)| (kind.clone(), finding(one))).collect()
    };
    let mut value = json!({
        "type": "audit",
        "looked_at": report.looked,
        "files": report.files,
        "skipped": report.skipped,
        "skipped_for": by_kind(&report.skipped_for),
        "too_old": report.too_old,
        "twice": report.twice,
        "problems": by_kind(&report.problems),
        "notes": by_kind(&report.notes),
    });
    // The totals are members of this object, because programs read them at the top level.
    if let (Some(all), Ok(Value::Object(audit))) =
        (value.as_object_mut(), serde_json::to_value(&report.audit))
    {
        all.extend(audit);
    }
    value
}
