//! Termination policies, built in and written in Python.

pub(crate) mod code;
pub(crate) mod step;
pub(crate) mod verdict;

use crate::errors::{Exception, error};
use crate::exit::enter;
use crate::json;
use crate::slot::Slot;
use code::{PythonPolicy, take_raised};
use endstop_core::policy::PolicyFault;
use endstop_core::{BoxPolicy, Registry, StepContext, StepResult, TerminationPolicy};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use step::{Context, Step};
use verdict::Verdict;

/// A rule that decides after each step if the run stops.
///
/// `a | b` stops when one of them does, `a & b` when both do for the same step, `~a` when it does
/// not. A run works on its own copy, so one policy can serve many runs.
///
/// >>> endstop.Policy("final_pattern").should_stop("FINAL('42')").answer
/// '42'
#[pyclass(frozen, module = "endstop")]
pub(crate) struct Policy {
    rule: Slot<BoxPolicy>,
    #[pyo3(get)]
    name: String,
    #[pyo3(get)]
    description: String,
    specification: Option<Value>,
    origin: Origin,
}

/// The way to make a policy again, for pickling.
enum Origin {
    /// From its specification.
    Specification,
    /// From the function or the class that was given to `of`.
    Code(Py<PyAny>),
    /// By a call with these arguments, of which one is a policy.
    Call(Py<PyAny>, Py<PyTuple>),
}

impl Policy {
    fn wrap(policy: BoxPolicy, origin: Origin) -> Policy {
        Policy {
            origin,
            name: policy.name().to_owned(),
            description: policy.description().to_owned(),
            specification: policy.specification(),
            rule: Slot::new(policy),
        }
    }

    /// Wraps a policy that a method of this class has made of others.
    fn made_by<'py>(
        py: Python<'py>,
        policy: BoxPolicy,
        method: &str,
        arguments: impl IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>, Error = PyErr>,
    ) -> PyResult<Policy> {
        let method = py.get_type::<Policy>().getattr(method)?.unbind();
        let arguments = arguments.into_pyobject(py)?.unbind();
        Ok(Policy::wrap(policy, Origin::Call(method, arguments)))
    }

    /// Returns a copy without state.
    pub(crate) fn copy(&self, py: Python<'_>) -> PyResult<BoxPolicy> {
        let mut copy = self.rule.take(py, "policy")?.clone();
        // The original may have judged steps by hand, which no run should inherit.
        copy.reset();
        Ok(copy)
    }
}

/// Reads a policy: an object, code, or a specification as configuration spells it.
pub(crate) fn read_policy(value: &Bound<'_, PyAny>) -> PyResult<BoxPolicy> {
    let py = value.py();
    if let Some(policy) = given_policy(value)? {
        return policy.get().copy(py);
    }
    let config =
        |problem: endstop_core::PolicyError| error(py, Exception::Config, problem.to_string());
    if let Ok(text) = value.cast::<PyString>() {
        return Registry::new().build_text(&text.to_cow()?).map_err(config);
    }
    if value.is_instance_of::<PyDict>() {
        let spec: Value = json::from_python(value, "policy")?;
        return Registry::new().build(&spec).map_err(config);
    }
    let class = value.get_type().fully_qualified_name()?;
    let message = format!(
        "invalid `policy` of type `{class}`: expected endstop.Policy, a name, a specification, or \
         a function"
    );
    Err(error(py, Exception::Config, message))
}

/// Returns a policy that was given as an object, or as code, whose name it then has.
fn given_policy<'py>(value: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, Policy>>> {
    if let Ok(policy) = value.cast::<Policy>() {
        return Ok(Some(policy.clone()));
    }
    if !value.is_callable() {
        return Ok(None);
    }
    // The decorator, which refuses code that cannot be a policy.
    let made = value.py().import("endstop._policies")?.call_method1("policy", (value,))?;
    Ok(Some(made.cast_into::<Policy>()?))
}

#[pymethods]
impl Policy {
    /// Builds a policy from a specification: a name, `name={json}`, or a dict such as
    /// `{"any": ["final_pattern", {"confidence": {"confidence_threshold": 0.9}}]}`.
    #[new]
    fn new(specification: &Bound<'_, PyAny>) -> PyResult<Policy> {
        let py = specification.py();
        let Some(given) = given_policy(specification)? else {
            let policy = read_policy(specification)?;
            return Ok(Policy::wrap(policy, Origin::Specification));
        };
        let make = py.get_type::<Policy>().into_any().unbind();
        let policy = given.get().copy(py)?;
        Ok(Policy::wrap(policy, Origin::Call(make, PyTuple::new(py, [given])?.unbind())))
    }

    /// Makes a policy of a function `(step, context)`, or of a class whose instances are called so;
    /// each run then has its own instance.
    #[staticmethod]
    #[pyo3(signature = (name, code, description = ""))]
    fn of(name: String, code: &Bound<'_, PyAny>, description: &str) -> PyResult<Policy> {
        let policy = PythonPolicy::new(name, description.to_owned(), code)?;
        Ok(Policy::wrap(BoxPolicy::new(policy), Origin::Code(code.clone().unbind())))
    }

    /// The specification that the policy was built from; None for code.
    #[getter]
    fn specification<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &self.specification)
    }

    /// Judges a step: a `Step`, or the text of a message. The policy keeps its state between calls,
    /// until `reset`. An exception of the policy is raised here.
    #[pyo3(signature = (step, context = None))]
    fn should_stop(
        &self,
        py: Python<'_>,
        step: &Bound<'_, PyAny>,
        context: Option<&Bound<'_, Context>>,
    ) -> PyResult<Verdict> {
        let step = read_step(step)?;
        let context = context.map_or_else(StepContext::default, |given| given.get().0.clone());
        let _inside = enter(py);
        let mut policy = self.rule.take(py, "policy")?;
        // A policy reports its failure by a panic, because the kernel's trait has no error. A
        // policy in Python attaches to the interpreter again; a built-in one needs no lock.
        let judged = py
            .detach(|| catch_unwind(AssertUnwindSafe(|| policy.should_terminate(&step, &context))));
        match judged {
            Ok(verdict) => Ok(Verdict(verdict)),
            Err(payload) if payload.is::<PolicyFault>() => {
                // The exception itself is raised, because it has the type and the traceback.
                let unknown = || error(py, Exception::Config, "the policy failed");
                Err(take_raised().unwrap_or_else(unknown))
            }
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Discards the state.
    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        self.rule.take(py, "policy")?.reset();
        Ok(())
    }

    /// Returns a policy that stops as this one does, but not before `steps` turns are completed.
    fn after_steps(slf: &Bound<'_, Self>, steps: i64) -> PyResult<Policy> {
        let policy = slf.get().copy(slf.py())?.after_steps(steps);
        Policy::made_by(slf.py(), policy, "after_steps", (slf, steps))
    }

    /// Returns a policy that stops when this one does for the `steps`-th step in a row.
    fn sustained(slf: &Bound<'_, Self>, steps: u32) -> PyResult<Policy> {
        let policy = slf.get().copy(slf.py())?.sustained(steps);
        Policy::made_by(slf.py(), policy, "sustained", (slf, steps))
    }

    fn __or__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Combined<'py>> {
        combine(slf, other, "__or__", |own, other| own | other)
    }

    fn __ror__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Combined<'py>> {
        combine(slf, other, "__ror__", |own, other| other | own)
    }

    fn __and__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Combined<'py>> {
        combine(slf, other, "__and__", |own, other| own & other)
    }

    fn __rand__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Combined<'py>> {
        combine(slf, other, "__rand__", |own, other| other & own)
    }

    fn __invert__(slf: &Bound<'_, Self>) -> PyResult<Policy> {
        let policy = !slf.get().copy(slf.py())?;
        Policy::made_by(slf.py(), policy, "__invert__", (slf,))
    }

    /// A pickled policy has no state, as the copy that a run makes. Code is pickled as pickle does with
    /// functions and classes: by its name.
    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let (py, this) = (slf.py(), slf.get());
        if this.specification.is_some() {
            let make = py.get_type::<Policy>().into_any();
            return Ok((make, PyTuple::new(py, [this.specification(py)?])?));
        }
        match &this.origin {
            Origin::Call(call, arguments) => {
                Ok((call.bind(py).clone(), arguments.bind(py).clone()))
            }
            Origin::Code(code) => {
                let reduce = py.import("endstop._policies")?.getattr("reduce_code")?;
                reduce.call1((slf, code))?.extract()
            }
            Origin::Specification => {
                let message = format!(
                    "the policy `{}` has no specification, and cannot be pickled",
                    this.name
                );
                Err(error(py, Exception::Config, message))
            }
        }
    }

    fn __repr__(&self) -> String {
        match &self.specification {
            Some(spec) => format!("Policy({spec})"),
            None => format!("<endstop.Policy {}>", self.name),
        }
    }
}

/// A policy, or `NotImplemented`, so that Python asks the other object.
type Combined<'py> = Bound<'py, PyAny>;

fn combine<'py>(
    own: &Bound<'py, Policy>,
    other: &Bound<'py, PyAny>,
    method: &str,
    combined: impl FnOnce(BoxPolicy, BoxPolicy) -> BoxPolicy,
) -> PyResult<Combined<'py>> {
    let py = own.py();
    let is_policy = other.is_instance_of::<Policy>()
        || other.is_instance_of::<PyString>()
        || other.is_instance_of::<PyDict>();
    if !is_policy {
        return Ok(py.NotImplemented().into_bound(py));
    }
    let policy = combined(own.get().copy(py)?, read_policy(other)?);
    let policy = Policy::made_by(py, policy, method, (own, other))?;
    Ok(Bound::new(py, policy)?.into_any())
}

fn read_step(step: &Bound<'_, PyAny>) -> PyResult<StepResult> {
    if let Ok(step) = step.cast::<Step>() {
        return Ok(step.get().0.clone());
    }
    let text = step.cast::<PyString>()?;
    let output = Some(text.to_cow()?.into_owned());
    let action_type = "message".to_owned();
    Ok(StepResult { action_type, success: true, output, ..StepResult::default() })
}

/// Returns a policy that stops when at least `n` of these do.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "Python's values are converted")]
pub(crate) fn k_of(py: Python<'_>, n: usize, policies: Vec<Bound<'_, PyAny>>) -> PyResult<Policy> {
    if n == 0 || n > policies.len() {
        let message = format!("invalid `n` {n}: expected 1 to {}", policies.len());
        return Err(error(py, Exception::Config, message));
    }
    let members = policies.iter().map(read_policy).collect::<PyResult<Vec<_>>>()?;
    let policy = endstop_core::policy::k_of(n, members);
    let again = py.import("endstop._endstop")?.getattr("k_of")?.unbind();
    let arguments = (n, &policies).into_pyobject(py)?.unbind();
    Ok(Policy::wrap(policy, Origin::Call(again, arguments)))
}

/// Returns the names of the built-in policies.
#[pyfunction]
pub(crate) fn policy_names() -> Vec<String> {
    Registry::new().names().map(str::to_owned).collect()
}
