//! The log line and the trace attributes of a run's ending.

use crate::outcome::Outcome;
use pyo3::prelude::*;

/// Reports an ending to the logger `endstop` and to the current span of OpenTelemetry, if the program uses
/// either: without their modules no reader exists.
pub(crate) fn report(py: Python<'_>, outcome: &Outcome) {
    let reported = || -> PyResult<()> {
        let modules = py.import("sys")?.getattr("modules")?;
        if !modules.contains("logging")? && !modules.contains("opentelemetry.trace")? {
            return Ok(());
        }
        py.import("endstop._ending")?.call_method1("report", (outcome.clone(),))?;
        Ok(())
    };
    // The run has ended, and must have its outcome although a handler failed.
    if let Err(problem) = reported() {
        problem.write_unraisable(py, None);
    }
}
