//! A run of a framework's loop, or of a loop in JavaScript, under the kernel.
//!
//! The time since the start comes in with each call, in milliseconds.

use crate::code_policy::with_policies;
use crate::detection::{NativeDetection, ResponseFacts, bytes_of, decode};
use crate::errors::{Result, config, from_json};
use crate::limits::{read_changes, read_limits};
use crate::outcome::{OutcomeFields, TurnFields};
use crate::policy::NativePolicy;
use crate::price::PriceFields;
use crate::response::{ModelError, Usage, count, read_class};
use crate::run_input::{AskFields, Report, read_map, read_time};
use crate::slot::Slot;
use endstop_core::guest::Spending;
use endstop_core::{GuestMode, Message, NanoUsd, RunSpec, ToolPolicy};
use endstop_guest::choice;
use endstop_guest::park::Terms;
use endstop_guest::pricing::Pricing;
use endstop_guest::response::Detection;
use endstop_guest::run_state::{Declared, Handle, InvalidDeclaration, Reported, RunState, wall_ms};
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
    /// True if the loop waits for the run's pauses before each model call.
    pub waits: Option<bool>,
    /// Limits on the calls of single tools, as JSON.
    pub max_calls: Option<String>,
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
    /// The known part of the cost in US dollars; missing: none is known.
    pub cost_usd: Option<f64>,
    /// True if there may be more cost than that.
    pub cost_unknown: Option<bool>,
    /// Turns, which count towards `max_turns`.
    pub turns: Option<f64>,
    /// Model calls, for the outcome.
    pub model_calls: Option<f64>,
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
    /// Known cost so far in US dollars; null if no part of it is known.
    pub cost_usd: Option<f64>,
    /// Milliseconds since the start at which `tick` must be called; null if there is no deadline.
    pub wake_at: Option<f64>,
}

/// A run under the kernel.
#[napi]
pub struct NativeRun {
    state: Slot<RunState>,
    /// A stop for the call that has the state.
    requested: Cell<Requested>,
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
        let mut state = self.take()?;
        // A call that panicked had no chance to perform the stop that its policy requested.
        self.stop_if_requested(&mut state, at);
        let state = &mut *state;
        let done = with_policies(env, || work(state, at));
        self.stop_if_requested(state, at);
        Ok(done)
    }

    /// Takes the state, unless the run is parked.
    fn take(&self) -> Result<endstop_guest::slot::Taken<'_, RunState>> {
        let state = self.state.take("run")?;
        refuse_parked(&state)?;
        Ok(state)
    }

    fn around(state: RunState) -> NativeRun {
        NativeRun { state: Slot::new(state), requested: Cell::new(Requested::Nothing) }
    }

    /// Performs a stop that a policy requested.
    fn stop_if_requested(&self, state: &mut RunState, at: Duration) {
        match self.requested.replace(Requested::Nothing) {
            Requested::Nothing => {}
            Requested::Cancel => {
                state.cancel(at);
            }
            Requested::Terminate => {
                state.terminate(at);
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
        refuse_parked(&state)?;
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
        let waits = options.waits.unwrap_or(false);
        // Without `inject` the kernel has no messages for the model, because no request would carry
        // them.
        let guest = GuestMode { inject, waits, ..GuestMode::default() };
        let max_calls = options.max_calls.map(|json| {
            ToolPolicy::read_max_calls(&from_json(&json, "maxCalls")?)
                .map_err(|problem| config(format!("invalid `maxCalls`: {problem}")))
        });
        let spec = RunSpec {
            tools: ToolPolicy::of_max_calls(&max_calls.transpose()?.unwrap_or_default()).into(),
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
        Ok(NativeRun::around(RunState::new(spec, pricing, wall_ms())))
    }

    /// Asks if the model may be called. With `ends`, an answer ends the run unless input or a retry
    /// continues it.
    #[napi(catch_unwind)]
    pub fn ask(
        &self,
        env: Env,
        at: f64,
        ends: bool,
        call: Option<AskFields>,
        handle: Option<&NativeHandle>,
    ) -> Result<bool> {
        let ask = call.unwrap_or_default().read();
        self.step(env, at, |state, at| {
            if ends && ask.input.is_empty() && !ask.retry {
                state.end_if_answered(at);
            }
            state.ask(at, &own(handle), ask)
        })
    }

    /// Returns a handle for model calls of the conversation with this name.
    #[napi(catch_unwind)]
    pub fn call(&self, of: String) -> Result<NativeHandle> {
        Ok(NativeHandle(self.take()?.handle(of)))
    }

    /// True if the handle's call waits for its response.
    #[napi(catch_unwind)]
    pub fn is_open(&self, handle: Option<&NativeHandle>) -> Result<bool> {
        Ok(self.take()?.is_open(&own(handle)))
    }

    /// Feeds a response that was decoded.
    #[napi(catch_unwind)]
    pub fn turn(
        &self,
        env: Env,
        at: f64,
        response: &NativeDetection,
        handle: Option<&NativeHandle>,
    ) -> Result<TurnFields> {
        // A copy, because JavaScript has the object and may feed it to another run as well.
        self.feed(env, at, response.0.clone(), handle)
    }

    /// Decodes a response, and feeds it.
    #[napi(catch_unwind)]
    pub fn body(
        &self,
        env: Env,
        at: f64,
        body: Either<&[u8], String>,
        facts: Option<ResponseFacts>,
        handle: Option<&NativeHandle>,
    ) -> Result<TurnFields> {
        // The format of the last response is tried before the format is recognised anew.
        let last = self.take()?.api();
        let found = decode(bytes_of(&body), &facts.unwrap_or_default(), last)?;
        self.feed(env, at, found.0, handle)
    }

    /// Feeds streamed content while it arrives. False: stop reading, the run has ended.
    #[napi(catch_unwind)]
    pub fn delta(
        &self,
        env: Env,
        at: f64,
        text: String,
        kind: String,
        handle: Option<&NativeHandle>,
    ) -> Result<bool> {
        let delta = choice::delta(text, &kind).map_err(config)?;
        self.continues(env, at, |state, at| state.delta(at, &own(handle), delta))
    }

    /// Feeds the failure of a model call. False: the run has ended.
    #[napi(catch_unwind)]
    pub fn failed(
        &self,
        env: Env,
        at: f64,
        problem: ModelError,
        handle: Option<&NativeHandle>,
    ) -> Result<bool> {
        let mut problem = problem.read()?;
        // SDKs may quote the request in their messages, with its headers and the key.
        problem.message = secrets_out(&problem.message);
        self.continues(env, at, |state, at| state.failed(at, &own(handle), problem))
    }

    /// Feeds the result of a tool call. False: the run has ended.
    #[napi(catch_unwind)]
    pub fn result(
        &self,
        env: Env,
        at: f64,
        call: String,
        report: Report,
        handle: Option<&NativeHandle>,
    ) -> Result<bool> {
        let report = report.read()?;
        let (reported, running) = self.step(env, at, |state, at| {
            (state.result(at, &own(handle), &call, report), state.is_running())
        })?;
        let problem = match reported {
            Reported::Taken | Reported::Ignored => return Ok(running),
            Reported::Unknown => {
                "no response here has asked for it; pass the Call of a Turn, or its id"
            }
        };
        Err(config(format!("invalid call `{call}`: {problem}")))
    }

    /// True if a response of the run has asked for a tool call.
    #[napi(catch_unwind)]
    pub fn has_asked(&self, call: String) -> Result<bool> {
        Ok(self.take()?.has_asked(&call))
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
            state.observe(at, variables, metrics);
        })
    }

    /// Adds what a nested run has spent.
    #[napi(catch_unwind)]
    pub fn spent(&self, env: Env, at: f64, spent: SpentFields) -> Result<bool> {
        let SpentFields { input_tokens, output_tokens, cost_usd, cost_unknown, turns, model_calls } =
            spent;
        let counts = [
            ("inputTokens", input_tokens),
            ("outputTokens", output_tokens),
            ("turns", turns),
            ("modelCalls", model_calls),
        ];
        for (name, number) in counts {
            if number.is_some_and(|number| number < 0.0 || number.fract() != 0.0) {
                return Err(config(format!(
                    "invalid `{name}`: expected a whole number, 0 or more"
                )));
            }
        }
        if cost_usd.is_some_and(|usd| !usd.is_finite() || usd < 0.0) {
            return Err(config("invalid `costUsd`: expected a number of US dollars, 0 or more"));
        }
        let small =
            |number: Option<f64>| u32::try_from(count(number.unwrap_or(0.0))).unwrap_or(u32::MAX);
        let spending = Spending {
            usage: endstop_core::Usage {
                // Missing counts are 0 and not unknown, because the caller states all that was
                // spent.
                input_tokens: Some(input_tokens.map_or(0, count)),
                output_tokens: Some(output_tokens.map_or(0, count)),
                ..endstop_core::Usage::default()
            },
            cost: cost_usd.map(NanoUsd::from_usd).unwrap_or_default(),
            cost_unknown: cost_unknown.unwrap_or(false) || cost_usd.is_none(),
            turns: small(turns),
            calls: small(model_calls),
            ..Spending::default()
        };
        self.continues(env, at, |state, at| {
            state.spent(at, &spending);
        })
    }

    /// Adds what a response of another agent has cost, which is not a turn of this run.
    #[napi(catch_unwind)]
    pub fn spent_on(&self, env: Env, at: f64, response: &NativeDetection) -> Result<bool> {
        let found = response.0.clone();
        self.continues(env, at, |state, at| state.spent_on(at, found))
    }

    /// Adds what another run has spent since it was last added.
    #[napi(catch_unwind)]
    pub fn spent_by(&self, env: Env, at: f64, run: &NativeRun) -> Result<bool> {
        self.step(env, at, |state, at| {
            // Of a parked run, too.
            let more = run.state.take("run")?.take_uncharged();
            if let Some(more) = &more {
                state.spent(at, more);
            }
            Ok(state.is_running())
        })?
    }

    /// Asks if the model may be called again, before it is known that it will be.
    #[napi(catch_unwind)]
    pub fn may(&self, env: Env, at: f64) -> Result<bool> {
        self.step(env, at, RunState::may)
    }

    /// Asks if a run that this one pays for may call a model.
    #[napi(catch_unwind)]
    pub fn may_spend(&self, env: Env, at: f64) -> Result<bool> {
        self.step(env, at, RunState::may_spend)
    }

    /// Changes limits of the run, and leaves the others. What was spent so far counts against the new ones.
    #[napi(catch_unwind)]
    pub fn set_limits(&self, env: Env, at: f64, limits: String) -> Result<bool> {
        let changes = read_changes(&limits)?;
        self.step(env, at, |state, at| {
            state.change_limits(at, &changes).map(|()| state.is_running())
        })?
        .map_err(config)
    }

    /// Checks the clock. False: the run has ended.
    #[napi(catch_unwind)]
    pub fn tick(&self, env: Env, at: f64) -> Result<bool> {
        self.continues(env, at, |state, at| {
            state.tick(at);
        })
    }

    /// Milliseconds for which the next model call must wait; null if it may start now.
    #[napi(catch_unwind)]
    pub fn pause(&self, env: Env, at: f64) -> Result<Option<f64>> {
        let pause = self.step(env, at, RunState::pause)?;
        Ok(pause.map(|pause| pause.as_secs_f64() * 1e3))
    }

    /// Returns the messages of Endstop for the next request, and forgets them.
    #[napi(catch_unwind)]
    pub fn notes(&self) -> Result<Vec<String>> {
        Ok(self.take()?.take_notes())
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
        let outcome = self.step(env, at, |state, at| state.fault(at, name, message))?;
        OutcomeFields::of(&outcome)
    }

    /// Reports that the loop is gone, and returns the outcome. `ended` is an ending that only the
    /// framework knows, and `deliverable` its answer as JSON.
    #[napi(catch_unwind)]
    pub fn close(
        &self,
        env: Env,
        at: f64,
        ok: bool,
        detail: String,
        ended: Option<String>,
        deliverable: Option<String>,
    ) -> Result<OutcomeFields> {
        let detail = secrets_out(&detail);
        let value = deliverable.map(|json| from_json(&json, "deliverable")).transpose()?;
        let declared = match ended {
            Some(ended) => Some(Declared::read(&ended, value, &detail).map_err(config)?),
            None if value.is_some() => return Err(config(InvalidDeclaration::Deliverable)),
            None => None,
        };
        let outcome = self.step(env, at, |state, at| state.close(at, ok, &detail, declared))?;
        OutcomeFields::of(&outcome)
    }

    /// Parks the run, and returns its text.
    #[napi(catch_unwind)]
    pub fn park(&self, env: Env, at: f64) -> Result<String> {
        self.step(env, at, RunState::park)?.map_err(config)
    }

    /// Continues a parked run. `limits` are changes by name, as JSON, and `allow` the names of those that
    /// may be looser.
    #[napi(factory, catch_unwind)]
    pub fn resume(
        text: String,
        limits: Option<String>,
        allow: Option<Vec<String>>,
        policy: Option<&NativePolicy>,
    ) -> Result<NativeRun> {
        let allow = allow.unwrap_or_default();
        let policy = policy.map(NativePolicy::copy).transpose()?;
        let terms = Terms {
            limits: read_changes(limits.as_deref().unwrap_or("{}"))?,
            allow: &allow,
            policy: policy.map(endstop_core::BoxPolicy::into_inner),
        };
        Ok(NativeRun::around(RunState::resume(&text, terms).map_err(config)?))
    }

    /// Gives the text of a resumed run back, because the JavaScript half could not use the run.
    #[napi(catch_unwind)]
    pub fn give_back(&self) -> Result<()> {
        self.take()?.give_back();
        Ok(())
    }

    /// True if the run is parked.
    #[napi(catch_unwind)]
    pub fn is_parked(&self) -> Result<bool> {
        Ok(self.state.take("run")?.is_parked())
    }

    /// Milliseconds for which the run has run, as of its last event.
    #[napi(catch_unwind)]
    pub fn elapsed(&self) -> Result<f64> {
        Ok(self.take()?.elapsed().as_secs_f64() * 1e3)
    }

    /// Returns the progress of the run.
    #[napi(catch_unwind)]
    pub fn progress(&self) -> Result<Progress> {
        let state = self.take()?;
        let outcome = state.outcome();
        Ok(Progress {
            outcome: outcome.map(|outcome| OutcomeFields::of(&outcome)).transpose()?,
            ending: state.ending().map(|one| one.as_str().to_owned()),
            turns: state.turns(),
            usage: Usage::of(&state.usage())?,
            cost_usd: state.cost().map(NanoUsd::to_usd),
            wake_at: state.wake_at().map(|at| at.as_secs_f64() * 1e3),
        })
    }
}

impl NativeRun {
    fn feed(
        &self,
        env: Env,
        at: f64,
        found: Detection,
        handle: Option<&NativeHandle>,
    ) -> Result<TurnFields> {
        let turn = self.step(env, at, |state, at| state.turn(at, &own(handle), found))?;
        TurnFields::of(&turn)
    }
}

/// Refuses to change a run whose state is somewhere else.
fn refuse_parked(state: &RunState) -> Result<()> {
    if state.is_parked() {
        return Err(config("the run is parked; continue with Run.resume(text), in any process"));
    }
    Ok(())
}

/// A handle for one model call at a time.
#[napi]
pub struct NativeHandle(Handle);

/// The handle of a call, or that of the run itself.
fn own(handle: Option<&NativeHandle>) -> Handle {
    handle.map(|handle| handle.0.clone()).unwrap_or_default()
}

/// Builds the error of a model call from a message, with a class by name.
#[napi(catch_unwind)]
pub fn model_error(kind: String, message: String) -> Result<ModelError> {
    let class = read_class(&kind)?;
    ModelError::of(&endstop_core::ModelError::new(class, secrets_out(&message)))
}
