//! The report of a backtest as JSON.

use super::report::{Report, Strength};
use super::{curve, findings, format};
use endstop_trajectory::backtest::DatasetFigures;
use serde_json::{Value, json};

/// Returns the report as JSON.
pub fn json(report: &Report) -> Value {
    let front = |dataset: &DatasetFigures| (dataset.name.clone(), json!(dataset.pareto()));
    let chosen = |dataset: &DatasetFigures| (dataset.name.clone(), json!(dataset.calibrated));
    let by = |of: &dyn Fn(&DatasetFigures) -> (String, Value)| -> Value {
        Value::Object(report.figures.datasets.iter().map(of).collect())
    };
    json!({
        "results": report.figures.reference_results(),
        "figures": report.figures,
        "census": findings::json(report),
        "pareto": by(&front),
        // `null` without a calibration, because an empty object would mean that no rule kept its
        // promise.
        "calibrated": report.alpha.map(|_| by(&chosen)),
        "recommended": report.recommended(),
        "strength": report.strength().map(Strength::as_str),
        "refused": report.recommended().is_none().then(|| format::refusal(report)),
        "max_harm": report.max_harm,
        "curves": curve::json(report),
    })
}
