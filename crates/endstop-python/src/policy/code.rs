//! A termination policy that is a Python function, or an instance of a Python class.

use super::step::{Context, Step};
use super::verdict::Verdict as PyVerdict;
use crate::errors::{Exception, error};
use endstop_core::policy::PolicyFault;
use endstop_core::{StepContext, StepResult, Stop, TerminationPolicy, Verdict};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyType;
use std::cell::RefCell;
use std::sync::Arc;

/// Bytes of a traceback that an outcome contains at most.
const MOST_TRACEBACK: usize = 16 * 1024;

thread_local! {
    /// The exception that the policy last raised on this thread, for the caller that ran it.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Takes the exception that a policy raised on this thread since the last call of this function.
pub(crate) fn take_raised() -> Option<PyErr> {
    RAISED.with(|raised| raised.borrow_mut().take())
}

/// A policy in Python: `code(step, context)`.
#[derive(Clone)]
pub(crate) struct PythonPolicy {
    source: Arc<Source>,
    /// The instance of a class that this copy of the policy uses. Created at the first step, so
    /// that each run has its own.
    instance: Option<Arc<Py<PyAny>>>,
}

struct Source {
    name: String,
    description: String,
    /// A function, or a class whose instances are callable.
    code: Py<PyAny>,
    is_class: bool,
}

impl PythonPolicy {
    pub(crate) fn new(
        name: String,
        description: String,
        code: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        if !code.is_callable() {
            let message = format!("the policy `{name}` must be callable as policy(step, context)");
            return Err(error(code.py(), Exception::Config, message));
        }
        // Here and not at the first step, because there it would end the run.
        code.py().import("endstop._policies")?.call_method1("check_code", (&name, code))?;
        let is_class = code.is_instance_of::<PyType>();
        let source = Source { name, description, code: code.clone().unbind(), is_class };
        Ok(PythonPolicy { source: Arc::new(source), instance: None })
    }

    fn evaluate(
        &mut self,
        py: Python<'_>,
        step: &StepResult,
        context: &StepContext,
    ) -> PyResult<Verdict> {
        let given = (Step(step.clone()), Context(context.clone()));
        if !self.source.is_class {
            return self.read(&self.source.code.bind(py).call1(given)?);
        }
        let instance = if let Some(instance) = &self.instance {
            Arc::clone(instance)
        } else {
            let made = Arc::new(self.source.code.call0(py)?);
            self.instance = Some(Arc::clone(&made));
            made
        };
        self.read(&instance.bind(py).call1(given)?)
    }

    /// Reads what the Python code returned.
    fn read(&self, returned: &Bound<'_, PyAny>) -> PyResult<Verdict> {
        let py = returned.py();
        let name = self.source.name.as_str();
        let stop = |answer: Option<String>| {
            let evidence = format!("`{name}` stopped the run");
            Verdict::Stop(Stop { answer, ..Stop::submitted(name, evidence) })
        };
        if let Ok(verdict) = returned.cast::<PyVerdict>() {
            let mut verdict = verdict.get().0.clone();
            if let Verdict::Stop(stop) = &mut verdict {
                // `Verdict.stop` does not know the name of the policy that returns it.
                name.clone_into(&mut stop.policy);
                if stop.evidence.is_empty() {
                    stop.evidence = format!("`{name}` stopped the run");
                }
            }
            return Ok(verdict);
        }
        if returned.is_none() {
            return Ok(Verdict::Continue);
        }
        // Not the truth of any value, because a number or a list would then stop runs by accident.
        if let Ok(stops) = returned.extract::<bool>() {
            return Ok(if stops { stop(None) } else { Verdict::Continue });
        }
        if let Ok(answer) = returned.extract::<String>() {
            return Ok(stop(Some(answer)));
        }
        // The form of RLM Code's policies.
        if let Ok((stops, answer)) = returned.extract::<(bool, Option<String>)>() {
            return Ok(if stops { stop(answer) } else { Verdict::Continue });
        }
        let class = returned.get_type().fully_qualified_name()?;
        let message = format!(
            "the policy `{name}` returned `{class}`; expected None, a bool, the answer as str, or \
             endstop.Verdict"
        );
        Err(error(py, Exception::Config, message))
    }
}

impl TerminationPolicy for PythonPolicy {
    fn name(&self) -> &str {
        &self.source.name
    }

    fn description(&self) -> &str {
        &self.source.description
    }

    fn should_terminate(&mut self, step: &StepResult, context: &StepContext) -> Verdict {
        // `None` while the interpreter shuts down: no policy can be called any more.
        let evaluated = Python::try_attach(|py| {
            self.evaluate(py, step, context).map_err(|raised| fault_of(py, raised))
        });
        match evaluated {
            Some(Ok(verdict)) => verdict,
            Some(Err(fault)) => fault.raise(),
            None => Verdict::Continue,
        }
    }

    fn reset(&mut self) {
        // The next step creates an instance, because its attributes are the state.
        self.instance = None;
    }
}

/// Describes an exception with its traceback, and stores it for the caller.
fn fault_of(py: Python<'_>, raised: PyErr) -> PolicyFault {
    let evidence = raised.to_string();
    let format = || -> PyResult<String> {
        let parts = (raised.get_type(py), raised.value(py), raised.traceback(py));
        let lines = py.import("traceback")?.call_method1("format_exception", parts)?;
        Ok(lines.extract::<Vec<String>>()?.concat())
    };
    let mut diagnostic = format().unwrap_or_else(|_| evidence.clone());
    if diagnostic.len() > MOST_TRACEBACK {
        // The end of a traceback has the failing line and the message.
        let mut from = diagnostic.len() - MOST_TRACEBACK;
        while !diagnostic.is_char_boundary(from) {
            from += 1;
        }
        diagnostic = format!("…{}", &diagnostic[from..]);
    }
    // A traceback shows source lines and messages, either of which may contain a key.
    let clean = endstop_wire::redact::secrets_out;
    let fault = PolicyFault { evidence: clean(&evidence), diagnostic: clean(&diagnostic) };
    RAISED.with(|place| *place.borrow_mut() = Some(raised));
    fault
}

/// Returns the exception that a policy raised if it must reach the caller: Ctrl-C and an exit are
/// not failures of the policy, and the run that they ended is not the only thing to stop.
pub(crate) fn not_a_failure(py: Python<'_>) -> Option<PyErr> {
    take_raised().filter(|raised| !raised.is_instance_of::<PyException>(py))
}
