//! The decision of a policy about a step.

use crate::errors::{Exception, error};
use crate::json;
use crate::members::{Enumeration, member};
use endstop_core::{Stop, Termination, closed};
use endstop_guest::choice::policy_end;
use pyo3::prelude::*;
use serde::{Deserialize, Serialize};

/// The decision of a policy about a step: continue, continue with a message for the model, or stop.
///
/// True in a condition if it stops.
#[pyclass(frozen, eq, module = "endstop")]
#[derive(Clone, PartialEq)]
pub(crate) struct Verdict(pub(crate) endstop_core::Verdict);

/// The JSON form of a verdict, for pickling.
#[derive(Serialize, Deserialize)]
enum Stored {
    Proceed,
    Tell(String),
    Stop(Stop),
}

impl Verdict {
    fn stopping(&self) -> Option<&Stop> {
        self.0.stop()
    }
}

#[pymethods]
impl Verdict {
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
        let deliverable = deliverable.map(|v| json::from_python(v, "deliverable")).transpose()?;
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

    /// True if the run stops.
    #[getter]
    fn stops(&self) -> bool {
        self.stopping().is_some()
    }

    /// The termination of the run, if it stops.
    #[getter]
    fn ends_as<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let name = self.stopping().map(|stop| Termination::from(stop.ends_as).as_str());
        name.map(|name| member(py, Enumeration::Termination, name)).transpose()
    }

    /// The answer as text, if the verdict has one.
    #[getter]
    fn answer(&self) -> Option<&str> {
        self.stopping().and_then(|stop| stop.answer.as_deref())
    }

    /// The answer as a value of JSON, if the verdict has one.
    #[getter]
    fn deliverable<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &self.stopping().and_then(Stop::deliverable))
    }

    /// Name of the policy that decided.
    #[getter]
    fn policy(&self) -> Option<&str> {
        self.stopping().map(|stop| stop.policy.as_str())
    }

    /// The reason, for a person to read; empty if the run continues.
    #[getter]
    fn evidence(&self) -> &str {
        self.stopping().map_or("", |stop| stop.evidence.as_str())
    }

    /// The message for the model, if the policy has one.
    #[getter]
    fn message(&self) -> Option<&str> {
        self.0.message()
    }

    /// Reads what pickling wrote.
    #[staticmethod]
    fn _from_json(py: Python<'_>, text: &str) -> PyResult<Verdict> {
        json::from_json(py, text, "verdict").map(|stored| {
            Verdict(match stored {
                Stored::Proceed => endstop_core::Verdict::Continue,
                Stored::Tell(message) => endstop_core::Verdict::Tell(message),
                Stored::Stop(stop) => endstop_core::Verdict::Stop(stop),
            })
        })
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        let py = slf.py();
        let stored = match slf.get().0.closed() {
            closed::Verdict::Continue => Stored::Proceed,
            closed::Verdict::Tell(message) => Stored::Tell(message.to_owned()),
            closed::Verdict::Stop(stop) => Stored::Stop(stop.clone()),
        };
        let make = py.get_type::<Verdict>().getattr("_from_json")?;
        Ok((make, (json::to_json(py, &stored)?,)))
    }

    fn __bool__(&self) -> bool {
        self.stops()
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
}
