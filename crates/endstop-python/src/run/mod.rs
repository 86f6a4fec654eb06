//! A run of a framework's loop, or of a loop in Python, under the kernel.

pub(crate) mod calls;
mod ending;
mod input;
mod steps;

use crate::errors::{Exception, error};
use crate::fields::Field;
use crate::json;
use crate::limits::{limit_values, read_limits};
use crate::outcome::Outcome;
use crate::policy::read_policy;
use crate::price::read_price;
use crate::response::Response;
use crate::response::detection::Detection;
use crate::slot::Slot;
use crate::turn::Usage;
use calls::{Calls, ModelCall};
use endstop_core::guest::Spending;
use endstop_core::{GuestMode, Message, NanoUsd, RunSpec, ToolPolicy};
use endstop_guest::park::{CannotResume, Terms};
use endstop_guest::pricing::Pricing;
use endstop_guest::run_state::{Ask, Declared, Handle, InvalidDeclaration, RunState, wall_ms};
use endstop_wire::RequestFacts;
use endstop_wire::redact::secrets_out;
use input::{is_cancel, read_input};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use std::sync::Arc;
use steps::{CANCEL, Steps, TERMINATE};

/// A run of an agent's loop under the kernel: it observes the model's responses and the results of
/// tools, and says when to stop, and why.
///
/// >>> from openai import OpenAI
/// >>> client, messages = OpenAI(), [{"role": "user", "content": "Go."}]
/// >>> with endstop.Run(max_turns=25, policy="final_pattern") as run:
/// ...     while run.go():
/// ...         response = client.chat.completions.create(model="gpt-4o", messages=messages)
/// ...         for call in run.turn(response).calls:
/// ...             more = run.result(call, "the tool's result")
/// >>> run.outcome.termination
/// <Termination.STOP: 'stop'>
///
/// Leaving the block ends the run if nothing else has: with the last answer, with the exception that
/// left the block, or as cancelled. Use a run from one thread at a time; `cancel` and `terminate` may
/// come from any.
#[pyclass(frozen, subclass, extends = Calls, module = "endstop")]
pub(crate) struct Run {
    steps: Arc<Steps>,
}

impl Run {
    /// Puts a state into a run whose clock starts now.
    fn around(
        py: Python<'_>,
        state: RunState,
        clock: Option<Py<PyAny>>,
    ) -> PyResult<PyClassInitializer<Run>> {
        let steps = Arc::new(Steps::new(py, state, clock)?);
        Ok(Calls::new(&steps, Handle::default()).add_subclass(Run { steps }))
    }
}

/// The state of a resumed run, on its way into an object of the class or of a subclass.
#[pyclass(frozen, module = "endstop")]
struct State(Slot<Option<RunState>>);

#[pymethods]
impl Run {
    /// Starts a run.
    ///
    /// `limits` are limits by name (`endstop.limit_names()`); None switches one off. `policy` is a
    /// Policy, a name, or a specification. `model` is `provider/model`, whose price is looked up;
    /// `price` is a Price or text such as `in=3,out=15` and takes precedence. `inject` is True if the
    /// loop adds the messages of `notes()` to its next request, and `waits` if it calls `wait()` before each
    /// model call, which `max_rate` and `wait_for_window` need. `max_calls` limits the calls of single tools, for
    /// example `{"shell": 20}`. `variables` are values for policies. `clock` returns seconds and replaces the real
    /// clock.
    #[new]
    #[pyo3(signature = (
        *, limits = None, policy = None, task = "", model = None, price = None, inject = false,
        waits = false, max_calls = None, variables = None, clock = None, resumed = None, **more,
    ), text_signature = "(*, limits=None, policy=None, task='', model=None, price=None, inject=False, waits=False, max_calls=None, variables=None, clock=None, **more)")]
    #[expect(clippy::too_many_arguments, reason = "keywords of a Python function")]
    fn new(
        py: Python<'_>,
        limits: Option<&Bound<'_, PyDict>>,
        policy: Option<&Bound<'_, PyAny>>,
        task: &str,
        model: Option<&str>,
        price: Option<&Bound<'_, PyAny>>,
        inject: bool,
        waits: bool,
        max_calls: Option<&Bound<'_, PyAny>>,
        variables: Option<&Bound<'_, PyDict>>,
        clock: Option<Py<PyAny>>,
        resumed: Option<&Bound<'_, State>>,
        more: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Run>> {
        let state = resumed.and_then(|state| state.get().0.try_take());
        if let Some(state) = state.and_then(|mut state| state.take()) {
            return Run::around(py, state, clock);
        }
        let given = price.map(read_price).transpose()?;
        let pricing = Pricing::new(given, model);
        // A run without a task has no message, because an empty one would be part of the
        // conversation.
        let messages = if task.is_empty() { Vec::new() } else { vec![Message::user(task)] };
        let variables = variables.map(|given| json::from_python(given.as_any(), "variables"));
        // Without `inject` the kernel has no messages for the model, because no request would carry
        // them.
        let guest = GuestMode { inject, waits, ..GuestMode::default() };
        let max_calls = max_calls.map(|given| -> PyResult<_> {
            ToolPolicy::read_max_calls(&json::from_python(given, "max_calls")?).map_err(|problem| {
                error(py, Exception::Config, format!("invalid `max_calls`: {problem}"))
            })
        });
        let spec = RunSpec {
            tools: ToolPolicy::of_max_calls(&max_calls.transpose()?.unwrap_or_default()).into(),
            limits: read_limits(py, &limits.into_iter().chain(more).collect::<Vec<_>>(), guest)?,
            policy: policy.map(read_policy).transpose()?.map(endstop_core::BoxPolicy::into_inner),
            variables: variables.transpose()?.unwrap_or_default(),
            model: model.map(str::to_owned),
            provider: pricing.provider().map(str::to_owned),
            guest: Some(guest),
            ..RunSpec::new(messages)
        };
        Run::around(py, RunState::new(spec, pricing, wall_ms()), clock)
    }

    /// Asks if a plain loop may call the model. False: the run has ended.
    ///
    /// Ends the run if the last response was an answer, or no answer at all (truncated, filtered),
    /// unless `input` continues the conversation with messages of the user, or `retry` repeats the
    /// last call.
    #[pyo3(signature = (input = None, *, retry = false, prompt_bytes = None, output_cap = None,
                        streaming = false))]
    fn go(
        &self,
        py: Python<'_>,
        input: Option<&Bound<'_, PyAny>>,
        retry: bool,
        prompt_bytes: Option<u64>,
        output_cap: Option<u64>,
        streaming: bool,
    ) -> PyResult<bool> {
        let input = read_input(input)?;
        let ask = Ask { input, prompt_bytes, output_cap, streaming, retry };
        self.steps.step(py, |state, at| {
            if ask.input.is_empty() && !ask.retry {
                state.end_if_answered(at);
            }
            state.ask(at, &Handle::default(), ask)
        })
    }

    /// Feeds named values and measurements for policies, such as `last_reward`.
    #[pyo3(signature = (*, variables = None, metrics = None))]
    fn observe(
        &self,
        py: Python<'_>,
        variables: Option<&Bound<'_, PyDict>>,
        metrics: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<bool> {
        let read = |given: Option<&Bound<'_, PyDict>>, name| {
            given.map(|dict| json::from_python(dict.as_any(), name)).transpose()
        };
        let variables = read(variables, "variables")?.unwrap_or_default();
        let metrics = read(metrics, "metrics")?.unwrap_or_default();
        self.steps.step(py, |state, at| {
            state.observe(at, variables, metrics);
            state.is_running()
        })
    }

    /// Adds what a nested run, such as a sub-agent, has spent: the Run itself, of which each part is added once; the
    /// response of one of its calls, which is priced by its model; or numbers. `cost_usd` is what is known of its cost; `cost_unknown` is True if that is
    /// not all, and need not be given without it. Its turns count towards `max_turns`. A ceiling that is reached
    /// ends the run, unless its last response was an answer.
    #[pyo3(signature = (response = None, *, input_tokens = 0, output_tokens = 0, cost_usd = None,
                        cost_unknown = false, turns = 0))]
    #[expect(clippy::too_many_arguments, reason = "keywords of a Python function")]
    fn spent(
        &self,
        py: Python<'_>,
        response: Option<&Bound<'_, PyAny>>,
        input_tokens: u64,
        output_tokens: u64,
        cost_usd: Option<f64>,
        cost_unknown: bool,
        turns: u32,
    ) -> PyResult<bool> {
        if let Some(response) = response {
            if input_tokens > 0 || output_tokens > 0 || cost_usd.is_some() || cost_unknown {
                let message =
                    "spent: pass the response or the numbers, because the response has them";
                return Err(error(py, Exception::Config, message));
            }
            if let Ok(run) = response.cast::<Run>() {
                let inner = &run.get().steps;
                if Arc::ptr_eq(inner, &self.steps) {
                    let message = "spent: pass another run, because this one has counted its own";
                    return Err(error(py, Exception::Config, message));
                }
                // Within the step, so that two threads do not add the same part.
                return self.steps.step(py, |state, at| {
                    let more = inner.spending(py, RunState::take_uncharged)?;
                    let more = Spending { turns, ..more.unwrap_or_default() };
                    if !more.is_nothing() {
                        state.spent(at, &more);
                    }
                    Ok(state.is_running())
                })?;
            }
            let last = self.steps.peek(py)?.api();
            let facts = RequestFacts::default();
            let Detection(found) =
                Response::of(response)?.decode(py, (None, last), None, &facts)?;
            return self.steps.step(py, |state, at| {
                state.spent_on(at, found);
                state.spent(at, &Spending { turns, ..Spending::default() });
                state.is_running()
            });
        }
        if cost_usd.is_some_and(|usd| !usd.is_finite() || usd < 0.0) {
            let message = "invalid `cost_usd`: expected a number of US dollars, 0 or more";
            return Err(error(py, Exception::Config, message));
        }
        let usage = endstop_core::Usage {
            input_tokens: Some(input_tokens),
            output_tokens: Some(output_tokens),
            ..endstop_core::Usage::default()
        };
        let spending = Spending {
            usage,
            cost: cost_usd.map(NanoUsd::from_usd).unwrap_or_default(),
            cost_unknown: cost_unknown || cost_usd.is_none(),
            turns,
            ..Spending::default()
        };
        self.steps.step(py, |state, at| {
            state.spent(at, &spending);
            state.is_running()
        })
    }

    /// Changes limits of the run by name, and leaves the others as they are. What was spent so far counts
    /// against the new ones.
    fn set_limits(&self, py: Python<'_>, limits: &Bound<'_, PyDict>) -> PyResult<bool> {
        let changes = limit_values(py, &[limits])?;
        let (changed, running) = self
            .steps
            .step(py, |state, at| (state.change_limits(at, &changes), state.is_running()))?;
        changed
            .map(|()| running)
            .map_err(|problem| error(py, Exception::Config, problem.to_string()))
    }

    /// Asks if the model may be called again, before it is known that it will be. False: the run has ended, because
    /// a limit is reached.
    fn may(&self, py: Python<'_>) -> PyResult<bool> {
        self.steps.step(py, RunState::may)
    }

    /// Asks if a nested run, or another one that this run pays for, may call a model. False: the run has ended, also
    /// because its money or tokens are spent, or its time is over. Its turns are no limit for others.
    fn may_spend(&self, py: Python<'_>) -> PyResult<bool> {
        self.steps.step(py, RunState::may_spend)
    }

    /// Checks the clock. False: the run has ended.
    fn tick(&self, py: Python<'_>) -> PyResult<bool> {
        self.steps.step(py, |state, at| {
            state.tick(at);
            state.is_running()
        })
    }

    /// Returns the seconds for which the next model call must wait, for `max_rate` or a window of a subscription;
    /// None if it may start now, or the run has ended. `wait` waits.
    fn pause(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        let pause = self.steps.step(py, RunState::pause)?;
        Ok(pause.map(|pause| pause.as_secs_f64()))
    }

    /// Returns the messages of Endstop that belong into the next request, and forgets them. Empty
    /// unless the run was created with `inject=True`.
    fn notes(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.steps.step(py, |state, _| state.take_notes())
    }

    /// Cancels the run, from any thread. Returns the outcome, or None if another call uses the run
    /// at this moment; that call then performs it.
    fn cancel(&self, py: Python<'_>) -> PyResult<Option<Outcome>> {
        self.steps.request(py, CANCEL)
    }

    /// Terminates the run, from any thread. Returns as `cancel` does.
    fn terminate(&self, py: Python<'_>) -> PyResult<Option<Outcome>> {
        self.steps.request(py, TERMINATE)
    }

    /// Reports that code around the run failed, for example a hook of the framework. Ends the run as
    /// `error_during_execution`.
    fn fault(&self, py: Python<'_>, name: &str, message: &str) -> PyResult<Outcome> {
        let (name, message) = (secrets_out(name), secrets_out(message));
        self.steps.step(py, |state, at| state.fault(at, name, message)).map(Outcome)
    }

    /// Reports that the loop is gone, and returns the outcome. The ending of the last response
    /// becomes final if `ok`. A loop that ends with an error, described by `detail`, or with an open
    /// call is never a success. A run that has ended keeps its outcome.
    ///
    /// `ended` names the ending if only the framework knows it: `submitted` with a `deliverable`, for an
    /// answer in a call or a structured one; `error_max_turns`, `error_max_budget_usd` or
    /// `error_max_tokens` for its own limit; `error_halted` for another limit or a guardrail, whose name
    /// is the `detail`. A response that failed, was cut or was filtered is not a success by this.
    #[pyo3(signature = (ok = true, detail = "", *, ended = None, deliverable = None))]
    fn close(
        &self,
        py: Python<'_>,
        ok: bool,
        detail: &str,
        ended: Option<&str>,
        deliverable: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Outcome> {
        let detail = secrets_out(detail);
        let value =
            deliverable.map(|value| json::exact_from_python(value, "deliverable")).transpose()?;
        let invalid =
            |problem: InvalidDeclaration| error(py, Exception::Config, problem.to_string());
        let declared = match ended {
            Some(ended) => Some(Declared::read(ended, value, &detail).map_err(invalid)?),
            None if value.is_some() => return Err(invalid(InvalidDeclaration::Deliverable)),
            None => None,
        };
        self.steps.step(py, |state, at| state.close(at, ok, &detail, declared)).map(Outcome)
    }

    /// Returns a handle for model calls that may be in flight at the same time as others. `of` names the
    /// conversation that they belong to, such as an agent: repetition is detected in each, and limits
    /// hold for all of them together.
    #[pyo3(signature = (of = ""))]
    fn call(&self, py: Python<'_>, of: &str) -> PyResult<Py<ModelCall>> {
        let handle = self.steps.step(py, |state, _| state.handle(of))?;
        ModelCall::new(py, &self.steps, handle)
    }

    /// Parks the run: a person or another process decides, and `Run.resume` continues it. Returns its
    /// text, JSON with the conversation, the spending and the open calls. Nothing can be fed to this
    /// object from now on, and leaving its block does nothing.
    ///
    /// With `keep` the run continues here, and the text is for a checkpoint: another process continues
    /// from it if this one does not.
    #[pyo3(signature = (*, keep = false))]
    fn park(&self, py: Python<'_>, keep: bool) -> PyResult<String> {
        let parked =
            self.steps.step(py, |state, at| if keep { state.copy(at) } else { state.park(at) })?;
        parked.map_err(|problem| error(py, Exception::Config, problem.to_string()))
    }

    /// True if the run is parked.
    #[getter]
    fn parked(&self, py: Python<'_>) -> PyResult<bool> {
        self.steps.is_parked(py)
    }

    /// Continues a parked run, once in each process: the program that stores the text makes sure that it is
    /// used once. `limits` changes limits by name; looser ones are refused unless `allow` names them. The
    /// time for which the run was parked does not count. The policy is code, and is given again.
    #[classmethod]
    #[expect(clippy::needless_pass_by_value, reason = "values from Python")]
    #[pyo3(signature = (text, *, limits = None, allow = Vec::new(), policy = None, clock = None),
           text_signature = "(text, *, limits=None, allow=[], policy=None, clock=None)")]
    fn resume(
        class: &Bound<'_, PyType>,
        text: &str,
        limits: Option<&Bound<'_, PyDict>>,
        allow: Vec<String>,
        policy: Option<&Bound<'_, PyAny>>,
        clock: Option<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let py = class.py();
        let terms = Terms {
            limits: limit_values(py, &limits.into_iter().collect::<Vec<_>>())?,
            allow: &allow,
            policy: policy.map(read_policy).transpose()?.map(endstop_core::BoxPolicy::into_inner),
        };
        let state = RunState::resume(text, terms)
            .map_err(|problem: CannotResume| error(py, Exception::Config, problem.to_string()))?;
        let ticket = state.ticket();
        let options = PyDict::new(py);
        options.set_item("resumed", Bound::new(py, State(Slot::new(Some(state))))?)?;
        options.set_item("clock", clock)?;
        // Through the class, because it may be a subclass.
        let run = class.call((), Some(&options));
        if let (Err(_), Some(ticket)) = (&run, ticket) {
            // A clock or a subclass failed: the text must not be lost.
            ticket.give_back();
        }
        run.map(Bound::unbind)
    }

    /// The outcome; None while the run continues.
    #[getter]
    fn outcome(&self, py: Python<'_>) -> PyResult<Option<Outcome>> {
        self.steps.outcome(py)
    }

    /// Returns the outcome, and raises ConfigError if the run has not ended.
    fn finished(&self, py: Python<'_>) -> PyResult<Outcome> {
        self.outcome(py)?.ok_or_else(|| Outcome::missing(py))
    }

    /// True while the run continues.
    #[getter]
    fn running(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.outcome(py)?.is_none() && !self.parked(py)?)
    }

    /// The ending that the run has if its loop ends now: that of the last response, if it was an
    /// answer or failed.
    #[getter]
    fn ending<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.steps.peek(py)?.ending().show(py)
    }

    /// Number of responses that became part of the conversation.
    #[getter]
    fn turns(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(self.steps.peek(py)?.turns())
    }

    /// Token usage so far.
    #[getter]
    fn usage(&self, py: Python<'_>) -> PyResult<Usage> {
        Ok(Usage(self.steps.peek(py)?.usage()))
    }

    /// Known cost so far in US dollars; None if no part of it is known.
    #[getter]
    fn cost_usd(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        Ok(self.steps.peek(py)?.cost().map(NanoUsd::to_usd))
    }

    /// Seconds until `tick` must be called, because a deadline comes then; None if there is none.
    #[getter]
    fn wake_in(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        // Before the state is taken, because a clock in Python may use this run.
        let now = self.steps.now(py)?;
        let wake = self.steps.peek(py)?.wake_at();
        Ok(wake.map(|at| at.saturating_sub(now).as_secs_f64()))
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Ends the run, if nothing else has. The exception is raised again.
    #[pyo3(signature = (kind, problem, traceback))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        problem: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let _ = (kind, traceback);
        if self.parked(py)? {
            // Its text continues it.
        } else if problem.is_none() {
            self.close(py, true, "", None, None)?;
        } else if is_cancel(problem)? {
            self.cancel(py)?;
        } else {
            let message = problem.str().map(|text| text.to_string_lossy().into_owned());
            let class = problem.get_type().name()?;
            let detail = format!("{class}: {}", message.unwrap_or_default());
            // An exception without a message would leave the colon at the end.
            self.close(py, false, detail.trim_end_matches([':', ' ']), None, None)?;
        }
        Ok(false)
    }

    #[expect(clippy::unused_self, reason = "a method of Python")]
    fn __reduce__(&self, py: Python<'_>) -> PyResult<()> {
        let message = "a Run cannot be pickled; pickle its outcome";
        Err(error(py, Exception::Config, message))
    }

    fn __repr__(&self) -> String {
        match self.steps.try_peek() {
            None => "<endstop.Run, in use>".to_owned(),
            Some(state) if state.is_parked() => "<endstop.Run, parked>".to_owned(),
            Some(state) => match (state.run(), state.outcome()) {
                (Some(run), _) => {
                    format!("<endstop.Run {}, {} turns, {}>", run.phase(), run.turns(), run.spent())
                }
                (_, Some(outcome)) => format!("<endstop.Run ended as {}>", outcome.termination),
                (None, None) => "<endstop.Run>".to_owned(),
            },
        }
    }
}
