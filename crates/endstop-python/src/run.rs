//! A run of a framework's loop, or of a loop in Python, under the kernel.

use crate::detection::{Detection, read_request};
use crate::errors::{Exception, error};
use crate::exit::enter;
use crate::json;
use crate::limits::read_limits;
use crate::members::{Enumeration, member};
use crate::outcome::Outcome;
use crate::policy::read_policy;
use crate::price::read_price;
use crate::python_policy::{not_a_failure, take_raised};
use crate::run_input::{Response, call_id, failure, is_cancel, read_input, report};
use crate::slot::{Slot, Taken};
use crate::turn::Turn;
use crate::usage::Usage;
use endstop_core::guest::Spending;
use endstop_core::{GuestMode, Message, NanoUsd, RunSpec};
use endstop_guest::choice;
use endstop_guest::pricing::Pricing;
use endstop_guest::run_state::{Ask, RunState};
use endstop_wire::RequestFacts;
use endstop_wire::redact::secrets_out;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// Stops that came while another call used the run.
const CANCEL: u8 = 1;
// The greater number, because `request` replaces a weaker stop by a stronger one with `fetch_max`.
const TERMINATE: u8 = 2;

/// A run of an agent's loop under the kernel: it observes the model's responses and the results of
/// tools, and says when to stop, and why.
///
/// >>> with endstop.Run(limits={"max_turns": 25}, policy="final_pattern") as run:
/// ...     while run.go():
/// ...         for call in run.turn(client.chat.completions.create(...)).calls:
/// ...             run.result(call, do(call))
/// >>> run.outcome
///
/// Leaving the block ends the run if nothing else has: with the last answer, with the exception that
/// left the block, or as cancelled. Use a run from one thread at a time; `cancel` and `terminate` may
/// come from any.
#[pyclass(frozen, subclass, module = "endstop")]
pub(crate) struct Run {
    state: Slot<RunState>,
    /// `CANCEL` or `TERMINATE`, for the call that has the state.
    requested: AtomicU8,
    /// The capabilities of the loop.
    guest: GuestMode,
    began: Instant,
    /// A clock in seconds that replaces the real one.
    clock: Option<Py<PyAny>>,
    /// The clock's value at the start.
    clock_began: f64,
}

impl Run {
    /// Time since the start.
    fn now(&self, py: Python<'_>) -> PyResult<Duration> {
        match &self.clock {
            None => Ok(self.began.elapsed()),
            Some(clock) => {
                // A clock that went back behind the start is at the start, because the kernel has
                // no negative time.
                let seconds: f64 = clock.call0(py)?.extract(py)?;
                Ok(Duration::try_from_secs_f64(seconds - self.clock_began).unwrap_or_default())
            }
        }
    }

    /// Runs a step of the run. Python code that the step calls finds the run in use.
    fn step<T>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut RunState, Duration) -> T,
    ) -> PyResult<T> {
        let _inside = enter(py);
        // Before the state is taken, because a clock in Python may use this run.
        let at = self.now(py)?;
        let mut state = self.state.take(py, "run")?;
        // Another thread may have requested a stop after the previous call had looked for one.
        self.stop_if_requested(&mut state, at);
        // An exception from before this step must not be reported as one of this step's policies.
        let _ = take_raised();
        let state = &mut *state;
        let done = work(state, at);
        self.stop_if_requested(state, at);
        // Ctrl-C in a policy has ended the run, and the program expects it as well.
        not_a_failure(py).map_or(Ok(done), Err)
    }

    /// Performs a stop that another thread requested.
    fn stop_if_requested(&self, state: &mut RunState, at: Duration) {
        match self.requested.swap(0, Ordering::AcqRel) {
            0 => {}
            CANCEL => {
                let _ = state.guest.cancel(at);
            }
            _ => {
                state.guest.terminate(at);
            }
        }
    }

    /// Requests a stop, and performs it unless another call uses the run; that call does so then.
    fn request(&self, py: Python<'_>, stop: u8) -> PyResult<Option<Outcome>> {
        let at = self.now(py)?;
        // First the request, then the attempt: if the attempt fails, the call that has the state
        // still sees the request, or the next call or `outcome` does.
        self.requested.fetch_max(stop, Ordering::AcqRel);
        let Some(mut state) = self.state.try_take() else { return Ok(None) };
        self.stop_if_requested(&mut state, at);
        Ok(state.outcome().map(Outcome))
    }

    fn peek(&self, py: Python<'_>) -> PyResult<Taken<'_, RunState>> {
        self.state.take(py, "run")
    }
}

#[pymethods]
impl Run {
    /// Starts a run.
    ///
    /// `limits` are limits by name (`endstop.limit_names()`); None switches one off. `policy` is a
    /// Policy, a name, or a specification. `model` is `provider/model`, whose price is looked up;
    /// `price` is a Price or text such as `in=3,out=15` and takes precedence. `inject` is True if the
    /// loop adds the messages of `notes()` to its next request. `variables` are values for policies.
    /// `clock` returns seconds and replaces the real clock.
    #[new]
    #[pyo3(signature = (
        *, limits = None, policy = None, task = "", model = None, price = None, inject = false,
        variables = None, clock = None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords of a Python function")]
    fn new(
        py: Python<'_>,
        limits: Option<&Bound<'_, PyDict>>,
        policy: Option<&Bound<'_, PyAny>>,
        task: &str,
        model: Option<&str>,
        price: Option<&Bound<'_, PyAny>>,
        inject: bool,
        variables: Option<&Bound<'_, PyDict>>,
        clock: Option<Py<PyAny>>,
    ) -> PyResult<Run> {
        let given = price.map(read_price).transpose()?;
        let pricing = Pricing::new(given, model);
        // A run without a task has no message, because an empty one would be part of the
        // conversation.
        let messages = if task.is_empty() { Vec::new() } else { vec![Message::user(task)] };
        let variables = variables.map(|given| json::from_python(given.as_any(), "variables"));
        // Without `inject` the kernel has no messages for the model, because no request would carry
        // them.
        let guest = GuestMode { inject, ..GuestMode::default() };
        let spec = RunSpec {
            limits: read_limits(limits, guest)?,
            policy: policy.map(read_policy).transpose()?.map(endstop_core::BoxPolicy::into_inner),
            variables: variables.transpose()?.unwrap_or_default(),
            model: model.map(str::to_owned),
            provider: pricing.provider().map(str::to_owned),
            guest: Some(guest),
            ..RunSpec::new(messages)
        };
        let clock_began = match &clock {
            Some(clock) => clock.call0(py)?.extract(py)?,
            None => 0.0,
        };
        let state = RunState::new(spec, pricing);
        Ok(Run {
            state: Slot::new(state),
            requested: AtomicU8::new(0),
            guest,
            began: Instant::now(),
            clock,
            clock_began,
        })
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
        self.step(py, |state, at| {
            if ask.input.is_empty() && !ask.retry {
                state.end_if_answered(at);
            }
            state.ask(at, ask)
        })
    }

    /// Reports that a framework is about to call the model. False: it must not, because the run has
    /// ended. Unlike `go`, this continues after an answer, because the framework decides about that.
    #[pyo3(signature = (input = None, *, retry = false, prompt_bytes = None, output_cap = None,
                        streaming = false))]
    fn ask(
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
        self.step(py, |state, at| state.ask(at, ask))
    }

    /// Feeds the model's response, and returns the calls that may run.
    ///
    /// `response` is anything that `detect` reads, a Detection, or a StreamDecoder, which is then
    /// finished. `request` is the request that was sent.
    #[pyo3(signature = (response, *, api = None, status = None, request = None))]
    fn turn(
        &self,
        py: Python<'_>,
        response: &Bound<'_, PyAny>,
        api: Option<&str>,
        status: Option<u16>,
        request: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Turn> {
        let facts = request.map(read_request).transpose()?;
        let facts = facts.unwrap_or_else(RequestFacts::default);
        // Put back at once, because reading the response runs code of an SDK, which may use this
        // run.
        let last = self.peek(py)?.api();
        let found = Response::of(response)?.decode(py, (api, last), status, &facts)?;
        let Detection { decoded, api } = found;
        self.step(py, |state, at| Turn(state.turn(at, decoded, api)))
    }

    /// Feeds streamed text while it arrives. False: stop reading, the run has ended.
    #[pyo3(signature = (text, *, kind = "text"))]
    fn delta(&self, py: Python<'_>, text: String, kind: &str) -> PyResult<bool> {
        let delta = choice::delta(text, kind)
            .map_err(|problem| error(py, Exception::Config, problem.to_string()))?;
        self.step(py, |state, at| {
            state.delta(at, delta);
            state.is_running()
        })
    }

    /// Feeds the failure of a model call: an exception of the SDK, a ModelError, or a message with
    /// its `kind`, an ErrorClass. The loop may retry it. False: the run has ended.
    #[pyo3(signature = (problem, *, kind = None))]
    fn failed(
        &self,
        py: Python<'_>,
        problem: &Bound<'_, PyAny>,
        kind: Option<&str>,
    ) -> PyResult<bool> {
        let problem = failure(problem, kind)?;
        self.step(py, |state, at| {
            state.failed(at, problem);
            state.is_running()
        })
    }

    /// Feeds the result of a tool call. `call` is a Call or its id. An `output` other than text is
    /// written as JSON; an exception is an error. The result of a call that is not open is ignored.
    /// `halt` is a reason to end the run as `error_halted`. False: the run has ended.
    #[pyo3(signature = (call, output, *, status = "ok", variables = None, metrics = None,
                        halt = None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of a Python function")]
    fn result(
        &self,
        py: Python<'_>,
        call: &Bound<'_, PyAny>,
        output: &Bound<'_, PyAny>,
        status: &str,
        variables: Option<&Bound<'_, PyDict>>,
        metrics: Option<&Bound<'_, PyDict>>,
        halt: Option<String>,
    ) -> PyResult<bool> {
        let id = call_id(call)?;
        let report = report(output, status, variables, metrics, halt)?;
        self.step(py, |state, at| {
            state.result(at, &id, report);
            state.is_running()
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
        self.step(py, |state, at| {
            let _ = state.guest.observe(at, variables, metrics);
            state.is_running()
        })
    }

    /// Adds what a nested run, such as a sub-agent, has spent. Its turns count towards `max_turns`.
    #[pyo3(signature = (*, input_tokens = 0, output_tokens = 0, cost_usd = None, turns = 0))]
    fn spent(
        &self,
        py: Python<'_>,
        input_tokens: u64,
        output_tokens: u64,
        cost_usd: Option<f64>,
        turns: u32,
    ) -> PyResult<bool> {
        let usage = endstop_core::Usage {
            input_tokens: Some(input_tokens),
            output_tokens: Some(output_tokens),
            ..endstop_core::Usage::default()
        };
        let spending = Spending {
            usage,
            cost: cost_usd.map(NanoUsd::from_usd).unwrap_or_default(),
            cost_unknown: cost_usd.is_none(),
            turns,
            ..Spending::default()
        };
        self.step(py, |state, at| {
            let _ = state.guest.spent(at, spending);
            state.is_running()
        })
    }

    /// Changes limits of the run. What was spent so far counts against the new ones; limits that are
    /// not given have their defaults.
    fn set_limits(&self, py: Python<'_>, limits: &Bound<'_, PyDict>) -> PyResult<bool> {
        let limits = read_limits(Some(limits), self.guest)?;
        self.step(py, |state, at| {
            let _ = state.guest.limits(at, limits);
            state.is_running()
        })
    }

    /// Checks the clock. False: the run has ended.
    fn tick(&self, py: Python<'_>) -> PyResult<bool> {
        self.step(py, |state, at| {
            let _ = state.guest.tick(at);
            state.is_running()
        })
    }

    /// Returns the messages of Endstop that belong into the next request, and forgets them. Empty
    /// unless the run was created with `inject=True`.
    fn notes(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.step(py, |state, _| state.take_notes())
    }

    /// Cancels the run, from any thread. Returns the outcome, or None if another call uses the run
    /// at this moment; that call then performs it.
    fn cancel(&self, py: Python<'_>) -> PyResult<Option<Outcome>> {
        self.request(py, CANCEL)
    }

    /// Terminates the run, from any thread. Returns as `cancel` does.
    fn terminate(&self, py: Python<'_>) -> PyResult<Option<Outcome>> {
        self.request(py, TERMINATE)
    }

    /// Reports that code around the run failed, for example a hook of the framework. Ends the run as
    /// `error_during_execution`.
    fn fault(&self, py: Python<'_>, name: &str, message: &str) -> PyResult<Outcome> {
        let (name, message) = (secrets_out(name), secrets_out(message));
        let outcome = self.step(py, |state, at| state.guest.fault(at, name, message))?;
        Ok(Outcome(outcome))
    }

    /// Reports that the loop is gone, and returns the outcome. The ending of the last response
    /// becomes final if `ok`. A loop that ends with an error, described by `detail`, or with an open
    /// call is never a success. A run that has ended keeps its outcome.
    #[pyo3(signature = (ok = true, detail = ""))]
    fn close(&self, py: Python<'_>, ok: bool, detail: &str) -> PyResult<Outcome> {
        let detail = secrets_out(detail);
        let outcome = self.step(py, |state, at| state.guest.close(at, ok, detail))?;
        Ok(Outcome(outcome))
    }

    /// The outcome; None while the run continues.
    #[getter]
    fn outcome(&self, py: Python<'_>) -> PyResult<Option<Outcome>> {
        let mut state = self.peek(py)?;
        // A stop may come just as a call puts the state back; then this is the first to see it.
        if self.requested.load(Ordering::Acquire) != 0 {
            let at = self.now(py)?;
            self.stop_if_requested(&mut state, at);
        }
        Ok(state.outcome().map(Outcome))
    }

    /// Returns the outcome, and raises ConfigError if the run has not ended.
    fn finished(&self, py: Python<'_>) -> PyResult<Outcome> {
        self.outcome(py)?.ok_or_else(|| Outcome::missing(py))
    }

    /// True while the run continues.
    #[getter]
    fn running(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.outcome(py)?.is_none())
    }

    /// The ending that the run has if its loop ends now: that of the last response, if it was an
    /// answer or failed.
    #[getter]
    fn ending<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let ending = self.peek(py)?.ending();
        ending.map(|one| member(py, Enumeration::Termination, one.as_str())).transpose()
    }

    /// Number of responses that became part of the conversation.
    #[getter]
    fn turns(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(self.peek(py)?.turns())
    }

    /// Token usage so far.
    #[getter]
    fn usage(&self, py: Python<'_>) -> PyResult<Usage> {
        Ok(Usage(self.peek(py)?.usage()))
    }

    /// Known cost so far in US dollars.
    #[getter]
    fn cost_usd(&self, py: Python<'_>) -> PyResult<f64> {
        Ok(self.peek(py)?.cost().to_usd())
    }

    /// Seconds until `tick` must be called, because a deadline comes then; None if there is none.
    #[getter]
    fn wake_in(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        // Before the state is taken, because a clock in Python may use this run.
        let now = self.now(py)?;
        let wake = self.peek(py)?.guest.wake_at();
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
        if problem.is_none() {
            self.close(py, true, "")?;
        } else if is_cancel(problem)? {
            self.cancel(py)?;
        } else {
            let message = problem.str().map(|text| text.to_string_lossy().into_owned());
            let class = problem.get_type().name()?;
            let detail = format!("{class}: {}", message.unwrap_or_default());
            // An exception without a message would leave the colon at the end.
            self.close(py, false, detail.trim_end_matches([':', ' ']))?;
        }
        Ok(false)
    }

    #[expect(clippy::unused_self, reason = "a method of Python")]
    fn __reduce__(&self, py: Python<'_>) -> PyResult<()> {
        let message = "a Run cannot be pickled; pickle its outcome";
        Err(error(py, Exception::Config, message))
    }

    fn __repr__(&self) -> String {
        // Without an error, because debuggers print objects while another thread uses them.
        match self.state.try_take() {
            None => "<endstop.Run, in use>".to_owned(),
            Some(state) => match (state.guest.run(), state.guest.outcome()) {
                (Some(run), _) => {
                    format!("<endstop.Run {}, {} turns, {}>", run.phase(), run.turns(), run.spent())
                }
                (_, Some(outcome)) => format!("<endstop.Run ended as {}>", outcome.termination),
                (None, None) => "<endstop.Run>".to_owned(),
            },
        }
    }
}
