//! The decision of a policy about a step.

use crate::errors::{Exception, error};
use crate::fields::class;
use crate::json;
use endstop_core::{Stop, Termination, closed};
use endstop_guest::choice::policy_end;
use endstop_guest::verdict_fields;
use pyo3::prelude::*;

/// The decision of a policy about a step: continue, continue with a message for the model, or stop.
///
/// True in a condition if it stops.
#[pyclass(frozen, eq, module = "endstop")]
#[derive(Clone, PartialEq)]
pub(crate) struct Verdict(pub(crate) endstop_core::Verdict);

verdict_fields! { class Verdict, "verdict", {
    /// A verdict that stops the run. `ends_as` is `submitted`, `error_no_progress`,
    /// `error_consecutive_mistakes` or `error_halted`.
    #[staticmethod]
    #[pyo3(signature = (answer = None, *, evidence = "", ends_as = "submitted", deliverable = None))]
    fn stop(
        py: Python<'_>,
        answer: Option<String>,
        evidence: &str,
        ends_as: &str,
        deliverable: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Verdict> {
        let end = policy_end("ends_as", ends_as)
            .map_err(|problem| error(py, Exception::Config, problem.to_string()))?;
        let deliverable = deliverable.map(|v| json::exact_from_python(v, "deliverable")).transpose()?;
        let stop = Stop::submitted("", evidence);
        let stop = Stop { ends_as: end, answer, deliverable, ..stop };
        Ok(Verdict(endstop_core::Verdict::Stop(stop)))
    }

    /// A verdict that continues the run.
    #[staticmethod]
    fn proceed() -> Verdict {
        Verdict(endstop_core::Verdict::Continue)
    }

    /// A verdict that continues, and sends the model a message. The message is dropped if the
    /// framework cannot add one.
    #[staticmethod]
    fn tell(message: String) -> Verdict {
        Verdict(endstop_core::Verdict::Tell(message))
    }

    fn __bool__(&self) -> bool {
        self.0.stop().is_some()
    }

    fn __repr__(&self) -> String {
        match self.0.closed() {
            closed::Verdict::Continue => "Verdict.proceed()".to_owned(),
            closed::Verdict::Tell(message) => format!("Verdict.tell({message:?})"),
            closed::Verdict::Stop(stop) => {
                let end = Termination::from(stop.ends_as);
                format!(
                    "Verdict.stop({:?}, ends_as={end}, evidence={:?})",
                    stop.answer, stop.evidence
                )
            }
        }
    }
} }
