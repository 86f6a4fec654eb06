//! A run of a framework's loop, or of a loop in JavaScript, under the kernel.
//!
//! The time since the start comes in with each call, in milliseconds.

use crate::call::Call;
use crate::code_policy::with_policies;
use crate::detection::{NativeDetection, ResponseFacts, bytes_of, decode};
use crate::errors::{Result, config};
use crate::limits::read_limits;
use crate::outcome::OutcomeFields;
use crate::policy::NativePolicy;
use crate::price::PriceFields;
use crate::run_input::{AskFields, Report, read_map, read_time};
use crate::signal::{ModelError, Signal, read_class};
use crate::slot::Slot;
use crate::turn::TurnFields;
use crate::usage::{Usage, count};
use endstop_core::guest::Spending;
use endstop_core::{GuestMode, Message, NanoUsd, RunSpec};
use endstop_guest::choice;
use endstop_guest::pricing::Pricing;
use endstop_guest::run_state::RunState;
use endstop_wire::redact::secrets_out;
use napi::{Either, Env};
use napi_derive::napi;
use std::cell::Cell;
use std::time::Duration;

/// A stop that came while another call used the run.
// In the order of their strength, because `request` only ever replaces a weaker one.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Requested {
    Nothing,
    Cancel,
    Terminate,
}

/// The options of a run.
#[napi(object)]
pub struct RunOptions {
    /// Limits by name, as JSON.
    pub limits: Option<String>,
    /// The task, which policies see.
    pub task: Option<String>,
    /// The model, `provider/model`, whose price is looked up.
    pub model: Option<String>,
    /// The price, which takes precedence.
    pub price: Option<PriceFields>,
    /// True if the loop adds the run's notes to its next request.
    pub inject: Option<bool>,
    /// Named values for policies, as JSON.
    pub variables: Option<String>,
}

/// The spending of a nested run.
#[napi(object)]
pub struct SpentFields {
    /// Prompt tokens.
    pub input_tokens: Option<f64>,
    /// Generated tokens.
    pub output_tokens: Option<f64>,
    /// Cost in US dollars; missing: unknown.
    pub cost_usd: Option<f64>,
    /// Turns, which count towards `max_turns`.
    pub turns: Option<u32>,
}

/// The progress of a run.
#[napi(object, use_nullable = true)]
pub struct Progress {
    /// The outcome; null while the run continues.
    pub outcome: Option<OutcomeFields>,
    /// The ending that the run has if its loop ends now.
    #[napi(ts_type = "Termination | null")]
    pub ending: Option<String>,
    /// Number of responses that became part of the conversation.
    pub turns: u32,
    /// Token usage so far.
    pub usage: Usage,
    /// Known cost so far in US dollars.
    pub cost_usd: f64,
    /// Milliseconds since the start at which `tick` must be called; null if there is no deadline.
    pub wake_at: Option<f64>,
}

/// A run under the kernel.
#[napi]
pub struct NativeRun {
    state: Slot<RunState>,
    /// A stop for the call that has the state.
    requested: Cell<Requested>,
    /// The capabilities of the loop.
    guest: GuestMode,
}

impl NativeRun {
    /// Runs a step of the run. JavaScript that the step calls finds the run in use.
    fn step<T>(
        &self,
        env: Env,
        at: f64,
        work: impl FnOnce(&mut RunState, Duration) -> T,
    ) -> Result<T> {
        let at = read_time(at);
        let mut state = self.state.take("run")?;
        // A call that panicked had no chance to perform the stop that its policy requested.
        self.stop_if_requested(&mut state, at);
        let state = &mut *state;
        let done = with_policies(env, || work(state, at));
        self.stop_if_requested(state, at);
        Ok(done)
    }

    /// Performs a stop that a policy requested.
    fn stop_if_requested(&self, state: &mut RunState, at: Duration) {
        match self.requested.replace(Requested::Nothing) {
            Requested::Nothing => {}
            Requested::Cancel => {
                // The caller reads the outcome from the state, because both stops have the same
                // one.
                let _ = state.guest.cancel(at);
            }
            Requested::Terminate => {
                state.guest.terminate(at);
            }
        }
    }

    /// Runs a step, and reports if the run continues.
    fn continues(
        &self,
        env: Env,
        at: f64,
        work: impl FnOnce(&mut RunState, Duration),
    ) -> Result<bool> {
        self.step(env, at, |state, at| {
            work(state, at);
            state.is_running()
        })
    }

    fn request(&self, env: Env, at: f64, stop: Requested) -> Result<Option<OutcomeFields>> {
        // A stop only becomes stronger, because a cancellation must not undo a termination.
        if self.requested.get() < stop {
            self.requested.set(stop);
        }
        // A policy stops its own run: the call that asked the policy performs the stop when it
        // returns.
        let Some(mut state) = self.state.try_take() else { return Ok(None) };
        with_policies(env, || self.stop_if_requested(&mut state, read_time(at)));
        state.outcome().map(|outcome| OutcomeFields::of(&outcome)).transpose()
    }
}

#[napi]
impl NativeRun {
    /// Starts a run.
    #[napi(constructor, catch_unwind)]
    pub fn new(options: RunOptions, policy: Option<&NativePolicy>) -> Result<NativeRun> {
        let given = options.price.as_ref().map(PriceFields::read).transpose()?;
        let pricing = Pricing::new(given, options.model.as_deref());
        let task = options.task.unwrap_or_default();
        // A run without a task has no message, because an empty one would be part of the
        // conversation.
        let messages = if task.is_empty() { Vec::new() } else { vec![Message::user(task)] };
        let inject = options.inject.unwrap_or(false);
        // Without `inject` the kernel has no messages for the model, because no request would carry
        // them.
        let guest = GuestMode { inject, ..GuestMode::default() };
        let spec = RunSpec {
            limits: read_limits(options.limits.as_deref().unwrap_or("{}"), guest)?,
            policy: policy
                .map(NativePolicy::copy)
                .transpose()?
                .map(endstop_core::BoxPolicy::into_inner),
            variables: read_map(options.variables.as_deref(), "variables")?,
            model: options.model.clone(),
            provider: pricing.provider().map(str::to_owned),
            guest: Some(guest),
            ..RunSpec::new(messages)
        };
        let state = RunState::new(spec, pricing);
        Ok(NativeRun { state: Slot::new(state), requested: Cell::new(Requested::Nothing), guest })
    }

    /// Asks if the model may be called. With `ends`, an answer ends the run unless input or a retry
    /// continues it.
    #[napi(catch_unwind)]
    pub fn ask(&self, env: Env, at: f64, ends: bool, call: Option<AskFields>) -> Result<bool> {
        let ask = call.unwrap_or_default().read();
        self.step(env, at, |state, at| {
            if ends && ask.input.is_empty() && !ask.retry {
                state.end_if_answered(at);
            }
            state.ask(at, ask)
        })
    }

    /// Feeds a response that was decoded.
    #[napi(catch_unwind)]
    pub fn turn(&self, env: Env, at: f64, response: &NativeDetection) -> Result<TurnFields> {
        // A copy, because JavaScript has the object and may feed it to another run as well.
        self.feed(env, at, response.clone())
    }

    /// Decodes a response, and feeds it.
    #[napi(catch_unwind)]
    pub fn body(
        &self,
        env: Env,
        at: f64,
        body: Either<&[u8], String>,
        facts: Option<ResponseFacts>,
    ) -> Result<TurnFields> {
        // The format of the last response is tried before the format is recognised anew.
        let last = self.state.take("run")?.api();
        let found = decode(bytes_of(&body), &facts.unwrap_or_default(), last)?;
        self.feed(env, at, found)
    }

    /// Feeds streamed content while it arrives. False: stop reading, the run has ended.
    #[napi(catch_unwind)]
    pub fn delta(&self, env: Env, at: f64, text: String, kind: String) -> Result<bool> {
        let delta = choice::delta(text, &kind).map_err(config)?;
        self.continues(env, at, |state, at| state.delta(at, delta))
    }

    /// Feeds the failure of a model call. False: the run has ended.
    #[napi(catch_unwind)]
    pub fn failed(&self, env: Env, at: f64, problem: ModelError) -> Result<bool> {
        let mut problem = problem.read()?;
        // SDKs may quote the request in their messages, with its headers and the key.
        problem.message = secrets_out(&problem.message);
        self.continues(env, at, |state, at| state.failed(at, problem))
    }

    /// Feeds the result of a tool call. False: the run has ended.
    #[napi(catch_unwind)]
    pub fn result(&self, env: Env, at: f64, call: String, report: Report) -> Result<bool> {
        let report = report.read()?;
        self.continues(env, at, |state, at| state.result(at, &call, report))
    }

    /// Feeds named values and measurements for policies, as JSON.
    #[napi(catch_unwind)]
    pub fn observe(
        &self,
        env: Env,
        at: f64,
        variables: Option<String>,
        metrics: Option<String>,
    ) -> Result<bool> {
        let variables = read_map(variables.as_deref(), "variables")?;
        let metrics = read_map(metrics.as_deref(), "metrics")?;
        self.continues(env, at, |state, at| {
            let _ = state.guest.observe(at, variables, metrics);
        })
    }

    /// Adds what a nested run has spent.
    #[napi(catch_unwind)]
    pub fn spent(&self, env: Env, at: f64, spent: SpentFields) -> Result<bool> {
        let spending = Spending {
            usage: endstop_core::Usage {
                // Missing counts are 0 and not unknown, because the caller states all that was
                // spent.
                input_tokens: Some(spent.input_tokens.map_or(0, count)),
                output_tokens: Some(spent.output_tokens.map_or(0, count)),
                ..endstop_core::Usage::default()
            },
            cost: spent.cost_usd.map(NanoUsd::from_usd).unwrap_or_default(),
            cost_unknown: spent.cost_usd.is_none(),
            turns: spent.turns.unwrap_or(0),
            ..Spending::default()
        };
        self.continues(env, at, |state, at| {
            let _ = state.guest.spent(at, spending);
        })
    }

    /// Changes the limits of the run. What was spent so far counts against the new ones.
    #[napi(catch_unwind)]
    pub fn set_limits(&self, env: Env, at: f64, limits: String) -> Result<bool> {
        let limits = read_limits(&limits, self.guest)?;
        self.continues(env, at, |state, at| {
            let _ = state.guest.limits(at, limits);
        })
    }

    /// Checks the clock. False: the run has ended.
    #[napi(catch_unwind)]
    pub fn tick(&self, env: Env, at: f64) -> Result<bool> {
        self.continues(env, at, |state, at| {
            let _ = state.guest.tick(at);
        })
    }

    /// Returns the messages of Endstop for the next request, and forgets them.
    #[napi(catch_unwind)]
    pub fn notes(&self) -> Result<Vec<String>> {
        Ok(self.state.take("run")?.take_notes())
    }

    /// Cancels the run. Null if another call uses it; that call then performs it.
    #[napi(catch_unwind)]
    pub fn cancel(&self, env: Env, at: f64) -> Result<Option<OutcomeFields>> {
        self.request(env, at, Requested::Cancel)
    }

    /// Terminates the run. Returns as `cancel` does.
    #[napi(catch_unwind)]
    pub fn terminate(&self, env: Env, at: f64) -> Result<Option<OutcomeFields>> {
        self.request(env, at, Requested::Terminate)
    }

    /// Reports that code around the run failed. Ends the run as `error_during_execution`.
    #[napi(catch_unwind)]
    pub fn fault(&self, env: Env, at: f64, name: String, message: String) -> Result<OutcomeFields> {
        let (name, message) = (secrets_out(&name), secrets_out(&message));
        let outcome = self.step(env, at, |state, at| state.guest.fault(at, name, message))?;
        OutcomeFields::of(&outcome)
    }

    /// Reports that the loop is gone, and returns the outcome.
    #[napi(catch_unwind)]
    pub fn close(&self, env: Env, at: f64, ok: bool, detail: String) -> Result<OutcomeFields> {
        let detail = secrets_out(&detail);
        let outcome = self.step(env, at, |state, at| state.guest.close(at, ok, detail))?;
        OutcomeFields::of(&outcome)
    }

    /// Returns the progress of the run.
    #[napi(catch_unwind)]
    pub fn progress(&self) -> Result<Progress> {
        let state = self.state.take("run")?;
        let outcome = state.outcome();
        Ok(Progress {
            outcome: outcome.map(|outcome| OutcomeFields::of(&outcome)).transpose()?,
            ending: state.ending().map(|one| one.as_str().to_owned()),
            turns: state.turns(),
            usage: Usage::from(&state.usage()),
            cost_usd: state.cost().to_usd(),
            wake_at: state.guest.wake_at().map(|at| at.as_secs_f64() * 1e3),
        })
    }
}

impl NativeRun {
    fn feed(&self, env: Env, at: f64, found: NativeDetection) -> Result<TurnFields> {
        let NativeDetection { decoded, api } = found;
        let turn = self.step(env, at, |state, at| state.turn(at, decoded, api))?;
        let ending = turn.ending_or_end();
        Ok(TurnFields {
            text: turn.text,
            calls: turn.calls.iter().map(|call| Call::of(call)).collect(),
            held_back: turn.held_back.iter().map(|call| Call::of(call)).collect(),
            signal: Signal::of(&turn.signal)?,
            usage: Usage::from(&turn.usage),
            error: turn.error.as_ref().map(ModelError::from),
            ending: ending.map(|one| one.as_str().to_owned()),
            stopped: turn.outcome.is_some(),
            outcome: turn.outcome.map(|outcome| OutcomeFields::of(&outcome)).transpose()?,
        })
    }
}

/// Builds the error of a model call from a message, with a class by name.
#[napi(catch_unwind)]
pub fn model_error(kind: String, message: String) -> Result<ModelError> {
    let class = read_class(&kind)?;
    Ok(ModelError::from(&endstop_core::ModelError::new(class, secrets_out(&message))))
}
