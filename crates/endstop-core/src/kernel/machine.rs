//! The state machine: dispatches an event to the handler of the phase, and performs the step that
//! the handler returns until the run waits or ends.

use super::answer::response::accept_text;
use super::answer::success::{consulted, judged, request_verdict, validated, verdict_timed_out};
use super::answer::turn::turn_ended;
use super::call::attempt::{attempt_failed, attempt_failed_by, blame_failure};
use super::call::boundary::{
    change_limits, chat_params, pre_call, pre_iteration, said, start, start_turn,
};
use super::call::compaction::{book_compaction, compacted, request_compaction};
use super::call::request::{delta, request_call, reserved, skip_suspension, timed_out};
use super::ceilings::ledger::Granted;
use super::ceilings::pause::{begin_pause, check_rate, pause};
use super::ceilings::precheck::{check_limits, check_window, time_used};
use super::context::RunContext;
use super::effect::{Effect, EffectId};
use super::event::{Compaction, EventKind, HookDecision, ToolReport, TurnDelta};
use super::guest::{asked, closed};
use super::outcome::ending::{Ending, Flow};
use super::phase::{Before, CallClock, Idle, Next, Phase, Point, Stage};
use super::resume::resumed;
use super::setup::guest_mode::Capability;
use super::setup::spec::RunSpec;
use super::stopping::wrap_up::{self, end_or_wrap_up};
use super::stopping::{cancelled, faulted, stop, stopping, terminated};
use super::tools::approval::{decided, parked, tool_answered};
use super::tools::background;
use super::tools::open_calls::{GIVE_UP, OpenCalls, earliest};
use super::tools::step::{advance, tool_ended, tools_timed_out};
use crate::error_class::ModelError;
use crate::limits::Limit;
use crate::message::ModelTurn;
use crate::termination::Termination;
use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

/// The state of a run. Boxed in [`Run`](super::Run), so that passing the run by value moves one
/// pointer.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) context: RunContext,
    pub(super) phase: Phase,
    /// The tick that the driver was last asked for, on the run's own clock.
    armed: Option<Duration>,
}

impl Machine {
    pub(super) fn new(spec: RunSpec) -> Machine {
        Machine { context: RunContext::new(spec), phase: Phase::New, armed: None }
    }

    /// Handles an event. An ending by a ceiling may ask for a hand-over first.
    pub(super) fn handle_event(
        &mut self,
        at: Duration,
        event: EventKind,
        effects: &mut Vec<Effect>,
    ) -> Flow {
        let Break(ending) = self.decide(at, event, effects) else { return Continue(()) };
        end_or_wrap_up(ending, &mut self.phase, &mut self.context, effects)?;
        // The tick that was requested is for the work that is over now.
        self.armed = None;
        Continue(())
    }

    /// Handles an event. The order of the checks here is the order of precedence.
    fn decide(&mut self, at: Duration, mut event: EventKind, effects: &mut Vec<Effect>) -> Flow {
        let Machine { context, phase, .. } = self;
        // Clamp instead of failing: events from several threads can arrive slightly out of order,
        // and time inside a run must not go backwards.
        context.now = context.now.max(at);
        match event {
            // The caller's commands come first, because they must work in every phase.
            EventKind::Terminate => return Break(terminated(phase, context)),
            EventKind::Cancel => return self.cancel(effects),
            EventKind::Fault { name, message } => {
                let next = faulted(phase, name, message, context, effects)?;
                return self.perform(next, effects);
            }
            // Booked in every phase, because the money is spent even if the run is ending.
            EventKind::Spent(spent) => {
                let counts = &mut context.counts;
                counts.turns = counts.turns.saturating_add(spent.turns);
                counts.model_calls = counts.model_calls.saturating_add(spent.calls);
                counts.started = counts.started.saturating_add(spent.tool_calls);
                let more = spent.unreported();
                context.book(|ledger| {
                    ledger.book(&spent.usage, spent.cost, spent.cost_unknown, more);
                });
                return Continue(());
            }
            // Before the deadline check, because it decides whether a provisional answer stands.
            EventKind::Closed { ok, detail, ended_as } => {
                let late = self.deadline_passed(&EventKind::Tick);
                return Break(closed(&mut self.phase, ok, &detail, ended_as, late, &self.context));
            }
            // Before the deadline check, because the new limits decide about it.
            EventKind::LimitsChanged { ref limits } => {
                change_limits(limits, context, effects);
                // The requested tick was computed with the old limits.
                self.armed = None;
            }
            // In every phase: a message is never lost.
            EventKind::Said { ref mut text } => said(std::mem::take(text), context),
            // In every phase, because the next call may be another one's.
            EventKind::Windows { ref mut windows } => {
                context.windows.report(std::mem::take(windows), context.now);
            }
            // Before the deadline check, because the resumption may bring new limits.
            EventKind::Resumed(with) => {
                // The timer was in the old driver.
                self.armed = None;
                let next = resumed(phase.take(), *with, context, effects)?;
                self.perform(next, effects)?;
                return match self.answer_again()? {
                    Some(next) => self.perform(next, effects),
                    None => Continue(()),
                };
            }
            _ => {}
        }
        // A compaction's cost is also booked if its result comes too late to be used.
        if let EventKind::Compacted { id, result: Compaction::Done { cost, .. } } = &event {
            if matches!(phase, Phase::Compacting { id: waited, .. } if waited == id) {
                book_compaction(*id, *cost, context, effects);
            }
        }
        if let Some(ending) = self.deadline_passed(&event) {
            self.stop(ending, effects)?;
            // The tools still have to end, and this event may be the result of one of them.
            let next = stopping(self.phase.take(), &event, &mut self.context, effects)?;
            return self.perform(next, effects);
        }
        if self.hand_over_is_late(&event) {
            if let Phase::WrappingUp(wrap_up) = self.phase.take() {
                return Break(wrap_up::given_up(wrap_up, &mut self.context, effects));
            }
        }
        match self.dispatch(event, effects) {
            Continue(Some(next)) => self.perform(next, effects),
            Continue(None) => Continue(()),
            // A guest's run may wait instead of ending.
            Break(ending) => {
                self.perform(Next::End { ending, calls: OpenCalls::default() }, effects)
            }
        }
    }

    /// Returns the ending of a run whose deadline has passed.
    ///
    /// Deadlines pre-empt. A result that arrives exactly at the deadline is still in time, and an
    /// answer that arrived in time is evaluated to the end: validation may finish after the
    /// deadline.
    fn deadline_passed(&self, event: &EventKind) -> Option<Box<Ending>> {
        let deadline = self.deadline()?;
        let now = self.context.now;
        let late = match event {
            // A guest that asks continues its loop, so its last answer was none; the limits are
            // checked when the call is admitted.
            EventKind::Start { .. } | EventKind::Validated { .. } | EventKind::Asked { .. } => {
                false
            }
            EventKind::TurnEnded { .. }
            | EventKind::ToolEnded { .. }
            | EventKind::Verified { .. }
            | EventKind::Windows { .. }
            | EventKind::Observe { .. } => now > deadline,
            // In time at the deadline itself, unless the answer leads to a new model call, because
            // that call could not finish in time.
            EventKind::Answered { .. } if !self.phase.leads_to_a_call() => now > deadline,
            _ => now >= deadline,
        };
        let over = matches!(self.phase, Phase::Stopping { .. } | Phase::WrappingUp(_));
        if late && !over && !matches!(self.phase, Phase::New) {
            let evidence = time_used(&self.context, deadline);
            let ending = Ending::at_limit(Limit::Timeout, Termination::ErrorTimeout, evidence);
            return Some(blame_failure(ending, &self.context));
        }
        None
    }

    /// `true` if the run's `timeout` ends a hand-over. One that arrives exactly then is in time.
    fn hand_over_is_late(&self, event: &EventKind) -> bool {
        let Some(timeout) = self.context.settings.limits.timeout else { return false };
        let now = self.context.now;
        let late = match event {
            EventKind::TurnEnded { .. } | EventKind::TurnFailed { .. } => now > timeout,
            _ => now >= timeout,
        };
        late && matches!(self.phase, Phase::WrappingUp(_))
    }

    /// Hands an event to the handler of the phase. `None` if the run continues to wait, also for an
    /// event that does not fit the phase.
    fn dispatch(&mut self, event: EventKind, effects: &mut Vec<Effect>) -> Flow<Option<Next>> {
        let Machine { context, phase, armed } = self;
        let next = match event {
            // A second `Start` would reset the budget and the jitter of a running run.
            EventKind::Start { .. } if !matches!(phase, Phase::New) => return Continue(None),
            EventKind::Start { seed, price, wall_ms } => start(seed, price, wall_ms, context)?,
            EventKind::Delta { call, delta } => return self.streamed(call, delta, effects),
            EventKind::Asked { call } => match phase {
                Phase::New => return Continue(None),
                _ if context.may(Capability::Loop) => return Continue(None),
                phase => asked(phase.take(), *call, context, effects)?,
            },
            EventKind::TurnEnded { call: id, turn } => match phase.take_call(id) {
                Some(call) => turn_ended(&call, *turn, context, effects)?,
                None => return self.handed_over(id, Ok(&turn), effects),
            },
            EventKind::TurnFailed { call: id, error, partial } => match phase.take_call(id) {
                Some(call) => attempt_failed(&call, &error, partial.as_deref(), context, effects)?,
                None => return self.handed_over(id, Err((&error, partial.as_deref())), effects),
            },
            EventKind::ToolEnded { tool, report } => {
                return self.tool_reported(tool, report, effects);
            }
            EventKind::Answered { id, answer } => return self.answered(id, answer, effects),
            EventKind::Parked { request } => {
                parked(phase, request, effects);
                return Continue(None);
            }
            EventKind::Decided { id, decision, wall_ms, .. } => {
                decided(phase, id, decision, wall_ms, effects);
                return Continue(None);
            }
            EventKind::Compacted { id, result } => match phase {
                Phase::Compacting { id: waited, forced, before } if *waited == id => {
                    compacted(*forced, *before, result, context, effects)?
                }
                _ => return Continue(None),
            },
            EventKind::Validated { id, result } => match phase.take() {
                Phase::Validating { id: waited, success } if waited == id => {
                    validated(success, result, context, effects)?
                }
                other => Next::Wait(other),
            },
            EventKind::Verified { id, passed, output } => match phase.take() {
                Phase::Verifying { id: waited, success, .. } if waited == id => {
                    judged(success, passed, &output, context, effects)?
                }
                other => Next::Wait(other),
            },
            EventKind::Reserved { id, granted, granted_tokens, refused_by } => {
                let granted = Granted { usd: granted, tokens: granted_tokens };
                match phase {
                    Phase::WrappingUp(wrap_up) if wrap_up.waits_for_budget(id) => {
                        let Phase::WrappingUp(wrap_up) = phase.take() else {
                            return Continue(None);
                        };
                        let ending = wrap_up.ending;
                        Next::Wait(wrap_up::reserved(id, ending, granted, context, effects)?)
                    }
                    Phase::Reserving { id: waited } if *waited == id => {
                        reserved(id, granted, refused_by, context, effects)?
                    }
                    // A grant for an abandoned reservation is the driver's to return; see
                    // `Effect::Abandon`.
                    _ => return Continue(None),
                }
            }
            EventKind::Observe { variables, metrics } => {
                context.observe(variables, metrics);
                return Continue(None);
            }
            EventKind::Suspended { time } => {
                if skip_suspension(phase, time, context, effects) {
                    // The requested tick comes too early now, or has been missed.
                    *armed = None;
                }
                return Continue(None);
            }
            EventKind::Tick => return self.tick(effects),
            // Other limits or windows may end the pause.
            EventKind::LimitsChanged { .. } | EventKind::Windows { .. }
                if phase.pauses_before().is_some() =>
            {
                check_limits(context)?;
                *armed = None;
                return Continue(phase.pauses_before().map(Before::next));
            }
            // A message or other limits may end the wait for background work.
            EventKind::Said { .. } | EventKind::LimitsChanged { .. } => return self.answer_again(),
            // All handled above; listed so that a new event kind does not compile until it is
            // handled.
            EventKind::Windows { .. }
            | EventKind::Cancel
            | EventKind::Terminate
            | EventKind::Fault { .. }
            | EventKind::Spent(_)
            | EventKind::Closed { .. }
            | EventKind::Resumed(_) => return Continue(None),
        };
        Continue(Some(next))
    }

    /// Judges an answer in text again that waits for background work; otherwise the run continues to
    /// wait for what its phase waits for.
    fn answer_again(&mut self) -> Flow<Option<Next>> {
        match self.phase.take() {
            Phase::Waiting { answer, text } => {
                accept_text(answer, text, &mut self.context).map_continue(Some)
            }
            other => {
                self.phase = other;
                Continue(None)
            }
        }
    }

    /// Hands streamed content to the call that it belongs to.
    fn streamed(
        &mut self,
        id: EffectId,
        piece: TurnDelta,
        effects: &mut Vec<Effect>,
    ) -> Flow<Option<Next>> {
        let thought = self.phase.thinks();
        match &mut self.phase {
            Phase::Calling(call) if call.id == id => {
                delta(call, piece, &mut self.context, effects)?;
            }
            Phase::WrappingUp(wrap_up) => {
                if let Stage::Calling(call) = &mut wrap_up.stage {
                    if call.id == id {
                        wrap_up::delta(call, piece, &self.context);
                    }
                }
            }
            // A delta of an aborted call may still be in the driver's queue; it is dropped.
            _ => {}
        }
        // A journal merges deltas that request nothing, and would lose the time at which the
        // reasoning began. The request for a tick gives this delta its own record.
        if !thought && self.phase.thinks() && self.limits_thinking() {
            self.armed = None;
        }
        // The driver of such a guest need not have timers, but reasoning without an end is an event.
        match self.phase {
            Phase::Calling(_) if !self.context.may(Capability::Clocks) => {
                self.call_timed_out(effects)
            }
            _ => Continue(None),
        }
    }

    /// `true` if the limit on reasoning ends before that on the whole call.
    fn limits_thinking(&self) -> bool {
        let settings = &self.context.settings;
        let Some(call) = self.phase.call() else { return false };
        let clocks = call.clocks(&settings.limits, settings.streaming);
        let [whole, thinks, _] = clocks.map(|clock| clock.map(CallClock::deadline));
        thinks.is_some_and(|thinks| whole.is_none_or(|whole| thinks < whole))
    }

    /// Hands the result of a tool to the calls that wait for it.
    fn tool_reported(
        &mut self,
        tool: EffectId,
        report: ToolReport,
        effects: &mut Vec<Effect>,
    ) -> Flow<Option<Next>> {
        let Machine { context, phase, .. } = self;
        if context.background.runs(tool) {
            let ending = background::ended(tool, report, context, effects);
            return match ending {
                Some(ending) if !matches!(phase, Phase::Stopping { .. } | Phase::WrappingUp(_)) => {
                    self.stop(ending, effects).map_continue(|()| None)
                }
                _ => self.answer_again(),
            };
        }
        Continue(Some(match phase.take() {
            Phase::Tools(calls) => tool_ended(calls, tool, report, context, effects),
            ending @ Phase::Stopping { .. } => {
                stopping(ending, &EventKind::ToolEnded { tool, report }, context, effects)?
            }
            other => Next::Wait(other),
        }))
    }

    /// Ends the run with the response to its hand-over. A response to another call is ignored.
    fn handed_over(
        &mut self,
        id: EffectId,
        response: Result<&ModelTurn, (&ModelError, Option<&ModelTurn>)>,
        effects: &mut Vec<Effect>,
    ) -> Flow<Option<Next>> {
        let Some((ending, call)) = self.phase.take_hand_over(id) else { return Continue(None) };
        let context = &mut self.context;
        match response {
            Ok(turn) => wrap_up::answered(&call, turn, context, effects),
            Err((error, partial)) => wrap_up::failed(&call, error, partial, context, effects),
        }
        Break(ending)
    }

    /// Hands the answer of a hook or a person to the phase that asked. An answer to another
    /// question than the current one is ignored.
    fn answered(
        &mut self,
        id: EffectId,
        answer: HookDecision,
        effects: &mut Vec<Effect>,
    ) -> Flow<Option<Next>> {
        let next = match self.phase.take() {
            Phase::Tools(calls) => tool_answered(calls, id, answer, &mut self.context, effects),
            Phase::Consulting { id: waited, point } if waited == id => {
                consulted(point, answer, &mut self.context, effects)?
            }
            Phase::WrappingUp(wrap_up) if wrap_up.waits_for_hook(id) => {
                let ending = wrap_up.ending;
                Next::Wait(wrap_up::consulted(ending, answer, &mut self.context, effects)?)
            }
            other => Next::Wait(other),
        };
        Continue(Some(next))
    }

    /// Fails the attempt in progress if one of its timeouts has passed.
    fn call_timed_out(&mut self, effects: &mut Vec<Effect>) -> Flow<Option<Next>> {
        let Machine { context, phase, .. } = self;
        let Phase::Calling(call) = phase else { return Continue(None) };
        let id = call.id;
        let Some((error, by)) = timed_out(call, context, effects) else { return Continue(None) };
        let Some(call) = phase.take_call(id) else { return Continue(None) };
        Continue(Some(attempt_failed_by(by, &call, &error, None, context, effects)?))
    }

    /// Acts on the deadline that has passed, if any: of the call, the retry wait, a tool, or the
    /// grace period.
    fn tick(&mut self, effects: &mut Vec<Effect>) -> Flow<Option<Next>> {
        let Machine { context, phase, armed } = self;
        let now = context.now;
        if armed.is_some_and(|at| at <= now) {
            *armed = None;
        }
        let abandoned = background::time_out(context, effects);
        match phase {
            Phase::Waiting { .. } if abandoned => self.answer_again(),
            Phase::Calling(_) => self.call_timed_out(effects),
            Phase::Backoff { until, before } if *until <= now => Continue(Some(before.next())),
            Phase::Tools(_) => {
                let calls = phase.take_calls();
                Continue(calls.map(|calls| tools_timed_out(calls, context, effects)))
            }
            Phase::Verifying { .. } => {
                let next = verdict_timed_out(phase.take(), context, effects)?;
                Continue(Some(next))
            }
            Phase::WrappingUp(_) => {
                let phase = wrap_up::timed_out(phase.take(), context, effects)?;
                Continue(Some(Next::Wait(phase)))
            }
            Phase::Stopping { until, .. } if *until <= now => {
                Continue(Some(stopping(phase.take(), &EventKind::Tick, context, effects)?))
            }
            _ => Continue(None),
        }
    }

    /// Performs steps until the run waits for an event or ends.
    fn perform(&mut self, mut next: Next, effects: &mut Vec<Effect>) -> Flow {
        loop {
            let context = &mut self.context;
            next = match next {
                Next::Wait(phase) => {
                    self.phase = phase;
                    return Continue(());
                }
                // The client of a guest decides when the next turn begins.
                Next::Boundary if !context.may(Capability::Loop) => {
                    Next::Wait(Phase::Guest(Idle::default()))
                }
                Next::Boundary => start_turn(context, effects)?,
                Next::Again(ending) if !context.may(Capability::Loop) => {
                    let idle = Idle { provisional: Some(ending), ..Idle::default() };
                    Next::Wait(Phase::Guest(idle))
                }
                Next::Again(_) => Next::Boundary,
                Next::Iteration => pre_iteration(context),
                Next::Params => chat_params(context),
                Next::PreCall => pre_call(context, effects),
                // A message that came after the last question of a hook.
                Next::Call if context.has_news() => Next::PreCall,
                // The client of a guest has asked before.
                Next::Call if !context.may(Capability::Loop) => request_call(context, effects)?,
                Next::Call => {
                    // Again, because a retry or the answer of a hook may have come much later.
                    check_window(context)?;
                    check_rate(context)?;
                    match pause(context, context.now) {
                        Some(pause) => {
                            Next::Wait(begin_pause(pause, Before::Call, context, effects))
                        }
                        None => request_call(context, effects)?,
                    }
                }
                Next::Retry { wait } => {
                    let until = context.now.saturating_add(wait);
                    Next::Wait(Phase::Backoff { until, before: Before::Retry })
                }
                Next::Tools(calls) => advance(calls, context, effects)?,
                Next::Compact { forced } => request_compaction(forced, context, effects),
                Next::Consult { point, ask } => {
                    let id = context.effect_id();
                    effects.push(Effect::Consult { id, point: ask });
                    Next::Wait(Phase::Consulting { id, point })
                }
                Next::Validate { success, candidate } => {
                    let id = context.effect_id();
                    effects.push(Effect::Validate { id, candidate });
                    Next::Wait(Phase::Validating { id, success })
                }
                Next::Verify { success } => request_verdict(success, context, effects),
                Next::Stop { ending, calls } => {
                    self.phase = Phase::Tools(calls);
                    return self.stop(ending, effects);
                }
                Next::End { ending, calls }
                    if !context.may(Capability::Loop) && ending.is_provisional() =>
                {
                    context.state.streaming.abort();
                    let idle = Idle { provisional: Some(ending), calls, partial: None };
                    Next::Wait(Phase::Guest(idle))
                }
                Next::End { ending, calls } => {
                    // Concluding the run answers the calls of this phase.
                    if !calls.is_empty() {
                        self.phase = Phase::Tools(calls);
                    }
                    return Break(ending);
                }
            };
        }
    }

    /// Cancels the run.
    fn cancel(&mut self, effects: &mut Vec<Effect>) -> Flow {
        // The run is already being stopped; the first cause stands.
        if matches!(self.phase, Phase::Stopping { .. }) {
            return Continue(());
        }
        if let Phase::WrappingUp(_) = self.phase {
            let Phase::WrappingUp(wrap_up) = self.phase.take() else { return Continue(()) };
            let mut ending = wrap_up::given_up(wrap_up, &mut self.context, effects);
            ending.outranked.push(*cancelled());
            return Break(ending);
        }
        self.stop(cancelled(), effects)
    }

    /// Ends the run with this ending as soon as its running tools have ended.
    fn stop(&mut self, ending: Box<Ending>, effects: &mut Vec<Effect>) -> Flow {
        let next = stop(&mut self.phase, ending, &mut self.context, effects)?;
        // The old tick is void: during a stop only the grace period counts, and it may end later
        // than the armed tick.
        self.armed = None;
        self.perform(next, effects)
    }

    /// The time at which the run stops. A stop hook that is asked about an answer which outranks the ending
    /// of the run has the time of a tool that is stopped to say so.
    fn deadline(&self) -> Option<Duration> {
        let deadline = self.context.deadline();
        match &self.phase {
            Phase::Consulting { point: Point::Stop { success, asked }, .. }
                if !success.outranked.is_empty() =>
            {
                let grace = self.context.settings.limits.cancel_grace.saturating_add(GIVE_UP);
                deadline.map(|deadline| deadline.max(asked.saturating_add(grace)))
            }
            _ => deadline,
        }
    }

    /// Requests a tick for the next deadline, if it is earlier than the one already requested.
    pub(super) fn arm(&mut self, effects: &mut Vec<Effect>) {
        let settings = &self.context.settings;
        let phase = match &self.phase {
            Phase::Calling(_) | Phase::WrappingUp(_) => self.phase.call().and_then(|call| {
                let clocks = call.clocks(&settings.limits, settings.streaming);
                clocks.into_iter().flatten().map(CallClock::deadline).min()
            }),
            Phase::Backoff { until, .. } | Phase::Stopping { until, .. } => Some(*until),
            Phase::Tools(calls) => calls.next_deadline(),
            Phase::Verifying { since, .. } => {
                settings.limits.verify_timeout.map(|limit| since.saturating_add(limit))
            }
            _ => None,
        };
        let next = match &self.phase {
            Phase::New => None,
            // While tools are stopped, the run deadline no longer matters: the ending is already
            // decided.
            Phase::Stopping { .. } => phase,
            // The hand-over may use the time that was kept for it.
            Phase::WrappingUp(_) => earliest(settings.limits.timeout, phase),
            _ => earliest(self.deadline(), phase),
        };
        let next = match &self.phase {
            Phase::New | Phase::Stopping { .. } => next,
            _ => earliest(next, self.context.background.next_deadline()),
        };
        // Later deadlines need no new request: the driver's tick at the earlier time re-arms the
        // timer.
        let sooner = next.filter(|at| self.armed.is_none_or(|armed| *at < armed));
        if let Some(at) = sooner {
            self.armed = Some(at);
            effects.push(Effect::WakeAt { at });
        }
    }
}
