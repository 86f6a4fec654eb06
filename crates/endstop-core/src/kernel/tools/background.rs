//! Calls of background tools: each is answered with a handle at once, and its result follows in a
//! message before the next model call.
//!
//! ```text
//! starts ─► answered with its handle ─► … ─► ends ─► post_tool? ─► a message ─► the model
//! ```
//!
//! An answer in text waits for the work that is open, because the model has not seen its result.

use super::open_calls::{CallState, Ended, GIVE_UP, LOST, OpenCalls, Work, reported};
use super::results::{MOST_CHANGED, bounded, emit_ended};
use crate::kernel::context::RunContext;
use crate::kernel::effect::{ConsultPoint, Effect, EffectId, InjectionReason, RunEvent, ToolStart};
use crate::kernel::event::{HookDecision, ToolReport};
use crate::kernel::outcome::StoppedWork;
use crate::kernel::outcome::decided_by::{Decision, Layer};
use crate::kernel::outcome::ending::{Ending, Flow, misplaced};
use crate::kernel::phase::{Next, Point};
use crate::kernel::setup::spec::ToolPolicy;
use crate::limits::Limits;
use crate::media::Attachment;
use crate::message::{Role, ToolCall, ToolResult, ToolStatus};
use crate::termination::Termination;
use serde_json::{Map, Value};
use std::mem::{replace, take};
use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

/// Records the end of a call, and reports it to observers.
fn end(
    work: Work,
    (status, content, attachments): (ToolStatus, String, Vec<Attachment>),
    started: bool,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) {
    let Work { handle, call, started: began, .. } = work;
    let ran = context.now.saturating_sub(began);
    effects.push(Effect::Emit(RunEvent::ToolFinished {
        call_id: call.id.clone(),
        name: call.name.clone(),
        status,
        duration_ms: ran.as_millis() as u64,
        content: content.clone(),
    }));
    let result = ToolResult {
        call_id: call.id.clone(),
        name: call.name.clone(),
        status,
        content,
        attachments,
        started,
        pinned: false,
    };
    let passed = !(context.settings.hooks.post_tool && started);
    context.background.ended.push(Ended { handle, call, result, ran, passed });
}

/// Starts a call in the background and answers it with its handle, or refuses it if too many run.
pub(crate) fn start(
    open: &mut OpenCalls,
    at: usize,
    policy: &ToolPolicy,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Option<ToolStart> {
    let limits = &context.settings.limits;
    let most = limits.tool_concurrency.max(1) as usize;
    let running = context.background.open.len();
    if running >= most {
        let problem = format!(
            "not started: {running} background calls are running, and at most {most} may; wait until one has ended"
        );
        open.finished(at, ToolStatus::Error, problem, false);
        emit_ended(open, at, Duration::ZERO, effects);
        return None;
    }
    let state = replace(&mut open.calls[at].state, CallState::Running);
    let arguments = if let CallState::Ready(map) = state { map } else { Map::new() };
    let limit = time_limit(policy, &arguments, limits);
    let id = context.effect_id();
    let call = open.calls[at].call.clone();
    effects.push(Effect::Emit(RunEvent::ToolStarted {
        call_id: call.id.clone(),
        name: call.name.clone(),
        arguments: call.arguments.clone(),
    }));
    context.background.handles += 1;
    let handle = format!("h{}", context.background.handles);
    let answer = format!(
        "started in the background, handle {handle}. Its result follows in a message when it has ended. Continue with other work; if you answer in text, the run waits for it first."
    );
    open.finished(at, ToolStatus::Ok, answer, true);
    context.background.open.push(Work {
        id,
        handle,
        call: ToolCall::clone(&call),
        started: context.now,
        deadline: limit.map(|limit| context.now.saturating_add(limit)),
        timed_out: None,
    });
    Some(ToolStart { id, call, arguments })
}

/// Returns the time limit of a call. Without one of its own, a background call may run for the longest
/// time that a model may request, because the default limit is for calls that the run waits for.
fn time_limit(
    policy: &ToolPolicy,
    arguments: &Map<String, Value>,
    limits: &Limits,
) -> Option<Duration> {
    let limits = Limits { tool_timeout: limits.max_tool_timeout, ..limits.clone() };
    policy.time_limit(arguments, &limits)
}

/// Handles the report of a background call. Returns the ending if the tool requested a halt.
pub(crate) fn ended(
    id: EffectId,
    mut report: ToolReport,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Option<Box<Ending>> {
    let at = context.background.open.iter().position(|work| work.id == id)?;
    let work = context.background.open.remove(at);
    let decision = Decision::of(Layer::Tool, &work.call.name);
    let result = reported(work.timed_out, &mut report);
    end(work, result, report.started, context, effects);
    if let Some(ended) = context.background.ended.last_mut() {
        ended.result.pinned = report.pinned;
    }
    context.observe(report.variables, report.metrics);
    report.halt.map(|reason| Ending::halted(Layer::Tool, decision, reason))
}

/// Stops the calls whose time is up, and abandons those that were asked to stop and did not end.
/// `true` if any was abandoned.
pub(crate) fn time_out(context: &mut RunContext, effects: &mut Vec<Effect>) -> bool {
    let (now, grace) = (context.now, context.settings.limits.cancel_grace);
    let (mut stopped, mut gone) = (Vec::new(), Vec::new());
    for work in &mut context.background.open {
        let Some(deadline) = work.deadline.filter(|deadline| *deadline <= now) else { continue };
        if work.timed_out.is_some() {
            gone.push(work.id);
        } else {
            work.timed_out = Some(deadline.saturating_sub(work.started));
            work.deadline = Some(now.saturating_add(grace).saturating_add(GIVE_UP));
            stopped.push(work.id);
        }
    }
    if !stopped.is_empty() {
        effects.push(Effect::AbortTools { ids: stopped, grace });
    }
    let silent = ToolReport::new(ToolStatus::Aborted, "");
    for id in &gone {
        ended(*id, silent.clone(), context, effects);
    }
    !gone.is_empty()
}

/// Ends the calls whose process died: no process knows their results.
pub(crate) fn mark_lost(lost: &[EffectId], context: &mut RunContext, effects: &mut Vec<Effect>) {
    let open = take(&mut context.background.open);
    let (gone, kept) = open.into_iter().partition(|work| lost.contains(&work.id));
    context.background.open = kept;
    for work in gone {
        let result = (ToolStatus::Aborted, LOST.to_owned(), Vec::new());
        end(work, result, true, context, effects);
    }
}

/// Asks the hook about the next result that it has not seen; `None` if it has seen all.
pub(crate) fn review(context: &RunContext) -> Option<Next> {
    let waiting = context.background.ended.iter().find(|ended| !ended.passed)?;
    let (call, result) = (waiting.call.clone(), waiting.result.clone());
    let ask = ConsultPoint::PostTool { call, result };
    Some(Next::Consult { point: Point::Background, ask })
}

/// Handles the hook's answer about a result.
pub(crate) fn reviewed(
    answer: HookDecision,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    let Some(waiting) = context.background.ended.iter_mut().find(|ended| !ended.passed) else {
        return Continue(Next::PreCall);
    };
    let result = &mut waiting.result;
    match answer {
        HookDecision::Halt(reason) => {
            return Break(Ending::halted(Layer::Hook, Decision::PostToolHook, reason));
        }
        HookDecision::ChangeCall(_) | HookDecision::Park(_) => {
            return Break(misplaced(&Decision::PostToolHook, answer.name()));
        }
        HookDecision::Deny(reason) => {
            result.status = ToolStatus::Denied;
            result.content = bounded(format!("the result is withheld: {reason}"), MOST_CHANGED);
            result.attachments.clear();
        }
        HookDecision::ChangeResult(changed) => {
            result.status = if changed.is_error { ToolStatus::Error } else { ToolStatus::Ok };
            let most = result.content.len().max(MOST_CHANGED);
            result.content = bounded(changed.content, most);
            result.attachments = changed.attachments;
        }
        HookDecision::ProceedWith(note) => {
            waiting.passed = true;
            context.inject_message(InjectionReason::Hook, note, effects);
            return Continue(Next::PreCall);
        }
        HookDecision::Proceed | HookDecision::OutputCap(_) | HookDecision::WithNote { .. } => {}
    }
    waiting.passed = true;
    Continue(Next::PreCall)
}

/// Moves the results into the conversation, before a model call.
pub(crate) fn enter_results(context: &mut RunContext, effects: &mut Vec<Effect>) {
    for ended in take(&mut context.background.ended) {
        let pinned = ended.result.pinned;
        let (text, parts) = ended.into_message();
        effects.push(Effect::Emit(RunEvent::MessageInjected {
            why: InjectionReason::Background,
            text,
        }));
        // The call that started the work may be made again now, and may have another result.
        context.judge.context.message_arrived = true;
        context.state.push(Role::User, parts);
        if let Some(message) = context.state.messages.last_mut() {
            message.pinned |= pinned;
        }
    }
}

/// Stops the work of a run that ends, and returns it. Its fate, and the results that no model call has
/// read, are appended to the conversation, so that a run that continues it knows them.
pub(crate) fn close(
    termination: Termination,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Vec<StoppedWork> {
    let open = take(&mut context.background.open);
    if !open.is_empty() {
        let ids = open.iter().map(|work| work.id).collect();
        effects.push(Effect::AbortTools { ids, grace: Duration::ZERO });
    }
    let mut stopped = Vec::new();
    for work in open {
        stopped.push(StoppedWork {
            handle: work.handle.clone(),
            call_id: work.call.id.clone(),
            name: work.call.name.clone(),
        });
        let content = format!(
            "aborted: the run ended as {termination}. It had started and may have done part of its work."
        );
        end(work, (ToolStatus::Aborted, content, Vec::new()), true, context, effects);
        // The text is the kernel's own, which no hook needs to see.
        if let Some(ended) = context.background.ended.last_mut() {
            ended.passed = true;
        }
    }
    for mut ended in take(&mut context.background.ended) {
        if !ended.passed {
            ended.withhold();
        }
        context.state.push(Role::User, ended.into_message().1);
    }
    stopped
}
