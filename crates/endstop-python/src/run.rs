//! A run of a framework's loop, or of a loop in Python, under the kernel.

use crate::detection::{Detection, read_request};
use crate::ending;
use crate::errors::{Exception, error};
use crate::exit::enter;
use crate::json;
use crate::limits::{limit_values, read_limits};
use crate::members::{Enumeration, member};
use crate::outcome::Outcome;
use crate::policy::read_policy;
use crate::price::read_price;
use crate::python_policy::{not_a_failure, take_raised};
use crate::response::Response;
use crate::run_input::{call_id, failure, is_cancel, read_input, report};
use crate::slot::{Slot, Taken};
use crate::turn::Turn;
use crate::usage::Usage;
use endstop_core::guest::Spending;
use endstop_core::{ErrorClass, GuestMode, Message, ModelError, NanoUsd, RunSpec};
use endstop_guest::choice;
use endstop_guest::park::{CannotResume, Terms};
use endstop_guest::pricing::Pricing;
use endstop_guest::run_state::{Ask, Declared, Handle, InvalidDeclaration, RunState};
use endstop_wire::RequestFacts;
use endstop_wire::redact::secrets_out;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Stops that came while another call used the run.
const CANCEL: u8 = 1;
// The greater number, because `request` replaces a weaker stop by a stronger one with `fetch_max`.
const TERMINATE: u8 = 2;

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
#[pyclass(frozen, subclass, module = "endstop")]
pub(crate) struct Run {
    state: Slot<RunState>,
    /// `CANCEL` or `TERMINATE`, for the call that has the state.
    requested: AtomicU8,
    /// The capabilities of the loop.
    guest: GuestMode,
    began: Instant,
    /// The time for which the run had run when it was parked.
    before: Duration,
    /// A clock in seconds that replaces the real one.
    clock: Option<Py<PyAny>>,
    /// The clock's value at the start.
    clock_began: f64,
    /// `true` once the ending was reported.
    is_reported: AtomicBool,
    /// Ids of the tool calls that responses have asked for; `None`: also unknown ones, of a run that was
    /// parked.
    asked: Option<Mutex<HashSet<String>>>,
}

impl Run {
    /// Time since the start.
    fn now(&self, py: Python<'_>) -> PyResult<Duration> {
        match &self.clock {
            None => Ok(self.before.saturating_add(self.began.elapsed())),
            Some(clock) => {
                // A clock that went back behind the start is at the start, because the kernel has
                // no negative time.
                let seconds: f64 = clock.call0(py)?.extract(py)?;
                if !seconds.is_finite() {
                    let message = format!("the clock returned {seconds}, which is not a time");
                    return Err(error(py, Exception::Config, message));
                }
                let since = Duration::try_from_secs_f64(seconds - self.clock_began);
                Ok(self.before.saturating_add(since.unwrap_or_default()))
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
        not_parked(py, &state)?;
        // Another thread may have requested a stop after the previous call had looked for one.
        self.stop_if_requested(&mut state, at);
        // An exception from before this step must not be reported as one of this step's policies.
        let _ = take_raised();
        let done = work(&mut state, at);
        self.stop_if_requested(&mut state, at);
        self.report_end(py, state);
        // Ctrl-C in a policy has ended the run, and the program expects it as well.
        not_a_failure(py).map_or(Ok(done), Err)
    }

    /// Reports the ending of the run, once.
    fn report_end(&self, py: Python<'_>, state: Taken<'_, RunState>) {
        if state.is_running() || self.is_reported.swap(true, Ordering::AcqRel) {
            return;
        }
        let outcome = state.outcome();
        // Put back first, because a handler of the program's log may use this run.
        drop(state);
        if let Some(outcome) = outcome {
            ending::report(py, &Outcome(outcome));
        }
    }

    /// Performs a stop that another thread requested.
    fn stop_if_requested(&self, state: &mut RunState, at: Duration) {
        match self.requested.swap(0, Ordering::AcqRel) {
            0 => {}
            CANCEL => {
                state.cancel(at);
            }
            _ => {
                state.terminate(at);
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
        not_parked(py, &state)?;
        self.stop_if_requested(&mut state, at);
        let outcome = state.outcome().map(Outcome);
        self.report_end(py, state);
        Ok(outcome)
    }

    fn peek(&self, py: Python<'_>) -> PyResult<Taken<'_, RunState>> {
        let state = self.state.take(py, "run")?;
        not_parked(py, &state)?;
        Ok(state)
    }

    /// `true` if a response has asked for a tool call, or may have.
    fn has_asked(&self, id: &str) -> bool {
        let Some(asked) = &self.asked else { return true };
        asked.lock().unwrap_or_else(PoisonError::into_inner).contains(id)
    }

    /// Puts a state into a run whose clock starts now.
    fn around(
        py: Python<'_>,
        state: RunState,
        guest: GuestMode,
        clock: Option<Py<PyAny>>,
    ) -> PyResult<Run> {
        let clock_began = match &clock {
            Some(clock) => clock.call0(py)?.extract(py)?,
            None => 0.0,
        };
        let before = state.elapsed();
        let is_new = before.is_zero() && state.turns() == 0;
        Ok(Run {
            is_reported: AtomicBool::new(false),
            asked: is_new.then(Mutex::default),
            state: Slot::new(state),
            requested: AtomicU8::new(0),
            guest,
            began: Instant::now(),
            before,
            clock,
            clock_began,
        })
    }

    /// Feeds a response to the call of a handle.
    fn feed(
        &self,
        py: Python<'_>,
        handle: &Handle,
        response: &Bound<'_, PyAny>,
        (api, status): (Option<&str>, Option<u16>),
        request: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Turn> {
        let facts = request.map(read_request).transpose()?;
        let facts = facts.unwrap_or_else(RequestFacts::default);
        // Put back at once, because reading the response runs code of an SDK, which may use this
        // run.
        let last = self.peek(py)?.api();
        let found = Response::of(response)?.decode(py, (api, last), status, &facts)?;
        let Detection { decoded, api } = found;
        let turn = self.step(py, |state, at| state.turn(at, handle, decoded, api))?;
        if let Some(asked) = &self.asked {
            let calls = turn.calls.iter().chain(&turn.held_back);
            let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
            asked.extend(calls.map(|call| call.id.clone()));
        }
        Ok(Turn(turn))
    }

    /// Feeds streamed content of the call of a handle.
    fn feed_delta(
        &self,
        py: Python<'_>,
        handle: &Handle,
        text: String,
        kind: &str,
    ) -> PyResult<bool> {
        let delta = choice::delta(text, kind)
            .map_err(|problem| error(py, Exception::Config, problem.to_string()))?;
        self.step(py, |state, at| {
            state.delta(at, handle, delta);
            state.is_running()
        })
    }

    /// Feeds the failure of the call of a handle.
    fn feed_failure(
        &self,
        py: Python<'_>,
        handle: &Handle,
        problem: &Bound<'_, PyAny>,
        kind: Option<&str>,
    ) -> PyResult<bool> {
        let problem = failure(problem, kind)?;
        self.step(py, |state, at| {
            state.failed(at, handle, problem);
            state.is_running()
        })
    }
}

/// The state of a resumed run, on its way into an object of the class or of a subclass.
#[pyclass(frozen, module = "endstop")]
struct State(Slot<Option<RunState>>);

/// An error for a run that is parked.
fn not_parked(py: Python<'_>, state: &RunState) -> PyResult<()> {
    if !state.is_parked() {
        return Ok(());
    }
    let message = "the run is parked; continue with Run.resume(text), in any process";
    Err(error(py, Exception::Config, message))
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
        variables = None, clock = None, resumed = None, **more,
    ), text_signature = "(*, limits=None, policy=None, task='', model=None, price=None, inject=False, variables=None, clock=None, **more)")]
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
        resumed: Option<&Bound<'_, State>>,
        more: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Run> {
        let state = resumed.and_then(|state| state.get().0.try_take());
        if let Some(state) = state.and_then(|mut state| state.take()) {
            let guest = state.mode();
            return Run::around(py, state, guest, clock);
        }
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
            limits: read_limits(py, &limits.into_iter().chain(more).collect::<Vec<_>>(), guest)?,
            policy: policy.map(read_policy).transpose()?.map(endstop_core::BoxPolicy::into_inner),
            variables: variables.transpose()?.unwrap_or_default(),
            model: model.map(str::to_owned),
            provider: pricing.provider().map(str::to_owned),
            guest: Some(guest),
            ..RunSpec::new(messages)
        };
        Run::around(py, RunState::new(spec, pricing), guest, clock)
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
            state.ask(at, &Handle::default(), ask)
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
        self.step(py, |state, at| state.ask(at, &Handle::default(), ask))
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
        self.feed(py, &Handle::default(), response, (api, status), request)
    }

    /// Feeds streamed text while it arrives. False: stop reading, the run has ended.
    #[pyo3(signature = (text, *, kind = "text"))]
    fn delta(&self, py: Python<'_>, text: String, kind: &str) -> PyResult<bool> {
        self.feed_delta(py, &Handle::default(), text, kind)
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
        self.feed_failure(py, &Handle::default(), problem, kind)
    }

    /// Feeds the result of a tool call. `call` is a Call or its id. An `output` other than text is
    /// written as JSON; an exception is an error. `halt` is a reason to end the run as `error_halted`.
    /// False: the run has ended.
    ///
    /// A second result of a call is ignored, and so is one of a call that was held back. Raises
    /// ConfigError for the id of a call that no response of the run has asked for.
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
        let (found, running) = self.step(py, |state, at| {
            let found = state.result(at, &id, report);
            (found, state.is_running())
        })?;
        if found || !running || self.has_asked(&id) {
            return Ok(running);
        }
        let message = format!(
            "invalid call `{id}`: no response of this run has asked for it; pass the Call of a Turn, or \
             its id"
        );
        Err(error(py, Exception::Config, message))
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
            state.observe(at, variables, metrics);
            state.is_running()
        })
    }

    /// Adds what a nested run, such as a sub-agent, has spent: the response of one of its calls, which is
    /// priced by its model, or numbers. Its turns count towards `max_turns`.
    #[pyo3(signature = (response = None, *, input_tokens = 0, output_tokens = 0, cost_usd = None,
                        turns = 0))]
    fn spent(
        &self,
        py: Python<'_>,
        response: Option<&Bound<'_, PyAny>>,
        input_tokens: u64,
        output_tokens: u64,
        cost_usd: Option<f64>,
        turns: u32,
    ) -> PyResult<bool> {
        if let Some(response) = response {
            if input_tokens > 0 || output_tokens > 0 || cost_usd.is_some() {
                let message =
                    "spent: pass the response or the numbers, because the response has them";
                return Err(error(py, Exception::Config, message));
            }
            let last = self.peek(py)?.api();
            let facts = RequestFacts::default();
            let Detection { decoded, api } =
                Response::of(response)?.decode(py, (None, last), None, &facts)?;
            return self.step(py, |state, at| {
                state.spent_on(at, decoded, api);
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
            cost_unknown: cost_usd.is_none(),
            turns,
            ..Spending::default()
        };
        self.step(py, |state, at| {
            state.spent(at, &spending);
            state.is_running()
        })
    }

    /// Changes limits of the run. What was spent so far counts against the new ones; limits that are
    /// not given have their defaults.
    fn set_limits(&self, py: Python<'_>, limits: &Bound<'_, PyDict>) -> PyResult<bool> {
        let limits = read_limits(py, &[limits], self.guest)?;
        self.step(py, |state, at| {
            state.set_limits(at, &limits);
            state.is_running()
        })
    }

    /// Checks the clock. False: the run has ended.
    fn tick(&self, py: Python<'_>) -> PyResult<bool> {
        self.step(py, |state, at| {
            state.tick(at);
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
        let outcome = self.step(py, |state, at| state.fault(at, name, message))?;
        Ok(Outcome(outcome))
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
        let value = deliverable.map(|value| json::from_python(value, "deliverable")).transpose()?;
        let invalid =
            |problem: InvalidDeclaration| error(py, Exception::Config, problem.to_string());
        let declared = match ended {
            Some(ended) => Some(Declared::read(ended, value, &detail).map_err(invalid)?),
            None if value.is_some() => return Err(invalid(InvalidDeclaration::Deliverable)),
            None => None,
        };
        let outcome = self.step(py, |state, at| state.close(at, ok, &detail, declared))?;
        Ok(Outcome(outcome))
    }

    /// Returns a handle for model calls that may be in flight at the same time as others. `of` names the
    /// conversation that they belong to, such as an agent: repetition is detected in each, and limits
    /// hold for all of them together.
    #[pyo3(signature = (of = ""))]
    fn call(slf: Bound<'_, Self>, of: &str) -> PyResult<ModelCall> {
        let handle = slf.get().step(slf.py(), |state, _| state.handle(of))?;
        Ok(ModelCall { run: slf.unbind(), handle })
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
            self.step(py, |state, at| if keep { state.copy(at) } else { state.park(at) })?;
        parked.map_err(|problem| error(py, Exception::Config, problem.to_string()))
    }

    /// True if the run is parked.
    #[getter]
    fn parked(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.state.take(py, "run")?.is_parked())
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
        let options = PyDict::new(py);
        options.set_item("resumed", Bound::new(py, State(Slot::new(Some(state))))?)?;
        options.set_item("clock", clock)?;
        // Through the class, because it may be a subclass.
        Ok(class.call((), Some(&options))?.unbind())
    }

    /// The outcome; None while the run continues.
    #[getter]
    fn outcome(&self, py: Python<'_>) -> PyResult<Option<Outcome>> {
        let mut state = self.state.take(py, "run")?;
        if state.is_parked() {
            return Ok(None);
        }
        // A stop may come just as a call puts the state back; then this is the first to see it.
        if self.requested.load(Ordering::Acquire) != 0 {
            let at = self.now(py)?;
            self.stop_if_requested(&mut state, at);
        }
        let outcome = state.outcome().map(Outcome);
        self.report_end(py, state);
        Ok(outcome)
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
        let wake = self.peek(py)?.wake_at();
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
        // Without an error, because debuggers print objects while another thread uses them.
        match self.state.try_take() {
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

/// A model call of a run, one at a time: `ask`, then `turn` or `failed`. Made by `Run.call`.
///
/// >>> from openai import OpenAI
/// >>> client, run = OpenAI(), endstop.Run(max_turns=25)
/// >>> with run.call("researcher") as call:
/// ...     if call.ask():
/// ...         turn = call.turn(client.chat.completions.create(model="gpt-4o", messages=[]))
/// >>> run.close().termination
/// <Termination.STOP: 'stop'>
#[pyclass(frozen, module = "endstop")]
pub(crate) struct ModelCall {
    run: Py<Run>,
    handle: Handle,
}

#[pymethods]
impl ModelCall {
    /// Reports that the model is about to be called. False: it must not be, because the run has ended.
    /// A call that has no response yet counts as a failed attempt.
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
        self.run.get().step(py, |state, at| state.ask(at, &self.handle, ask))
    }

    /// Feeds the response of the call, as `Run.turn` does.
    #[pyo3(signature = (response, *, api = None, status = None, request = None))]
    fn turn(
        &self,
        py: Python<'_>,
        response: &Bound<'_, PyAny>,
        api: Option<&str>,
        status: Option<u16>,
        request: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Turn> {
        self.run.get().feed(py, &self.handle, response, (api, status), request)
    }

    /// Feeds streamed text while it arrives. False: stop reading, the run has ended.
    #[pyo3(signature = (text, *, kind = "text"))]
    fn delta(&self, py: Python<'_>, text: String, kind: &str) -> PyResult<bool> {
        self.run.get().feed_delta(py, &self.handle, text, kind)
    }

    /// Feeds the failure of the call, as `Run.failed` does. False: the run has ended.
    #[pyo3(signature = (problem, *, kind = None))]
    fn failed(
        &self,
        py: Python<'_>,
        problem: &Bound<'_, PyAny>,
        kind: Option<&str>,
    ) -> PyResult<bool> {
        self.run.get().feed_failure(py, &self.handle, problem, kind)
    }

    /// True if the call waits for its response.
    #[getter]
    fn open(&self, py: Python<'_>) -> PyResult<bool> {
        self.run.get().step(py, |state, _| state.is_open(&self.handle))
    }

    /// Reports that no response comes. A call that is open has failed, and may have been billed.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        // Of a parked run no call is open.
        if self.run.get().parked(py)? {
            return Ok(());
        }
        self.run.get().step(py, |state, at| {
            if state.is_open(&self.handle) {
                let problem = "the call was closed before its response was fed";
                let problem = ModelError::new(ErrorClass::IncompleteStream, problem);
                state.failed(at, &self.handle, problem);
            }
        })
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Closes the call. The exception is raised again.
    #[pyo3(signature = (kind, problem, traceback))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        problem: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let _ = (kind, problem, traceback);
        self.close(py)?;
        Ok(false)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let open = self.open(py).unwrap_or(false);
        format!("<endstop.ModelCall, {}>", if open { "open" } else { "not open" })
    }
}
