//! Runs the tool calls of a turn: in call order, one question at a time, with bounded concurrency. If
//! every call is answered, the judge decides what follows.
//!
//! Each call is answered exactly once. `finish` is the kernel's own tool: it declares the answer.

use super::background;
use super::finish::judge_finish;
use super::open_calls::{CallState, GIVE_UP, OpenCalls, Progress, Running};
use super::results::{emit_ended, record_results};
use crate::kernel::answer::success::end_or_succeed;
use crate::kernel::ceilings::tool_calls::{Starting, count, exhausted};
use crate::kernel::context::RunContext;
use crate::kernel::effect::{ConsultPoint, Effect, EffectId, InjectionReason, RunEvent, ToolStart};
use crate::kernel::event::ToolReport;
use crate::kernel::judge::{Facts, Judgement, Step};
use crate::kernel::outcome::decided_by::{Decision, Layer};
use crate::kernel::outcome::ending::{Ending, Flow, excerpt};
use crate::kernel::phase::{Next, Phase};
use crate::kernel::setup::guest_mode::Capability;
use crate::kernel::setup::spec::{Permission, RunSpec, ToolPolicy};
use crate::limits::Limit;
use crate::message::{ToolCall, ToolResult, ToolStatus};
use crate::streaming::StreamingState;
use crate::termination::Termination;
use serde_json::{Map, Value};
use std::ops::ControlFlow::Continue;
use std::sync::Arc;
use std::time::Duration;

/// Starts what may start, and asks what must be asked. Ends the step if every call is answered.
pub(crate) fn advance(
    mut open: OpenCalls,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    let mut starts = Vec::new();
    let mut at = open.next;
    if !context.may(Capability::Loop) {
        // The client runs all calls of its turn or none, so that the run ends before them.
        if let Some(ending) = too_many(&open, context) {
            return Continue(Next::Stop { ending, calls: open });
        }
        at = start_all(&mut open, &mut starts, context, effects);
    }
    while at < open.calls.len() {
        match advance_call(&mut open, at, &mut starts, context, effects) {
            Progress::Again => {}
            Progress::Past => at += 1,
            Progress::Held => break,
        }
    }
    // Only a prefix is settled: a call in the middle that still waits may not be skipped.
    let settled = open.calls[open.next..].iter().take_while(|call| call.is_settled()).count();
    open.next += settled;
    // One effect for all starts, so that the driver starts concurrent calls together.
    if !starts.is_empty() {
        effects.push(Effect::StartTools { calls: starts });
    }
    if open.next == open.calls.len() && open.running.is_empty() {
        return tools_done(open, context, effects);
    }
    Continue(Next::Wait(Phase::Tools(open)))
}

/// Releases all calls of a guest's turn at once, because its client decides about order, permission
/// and arguments. Returns the number of calls.
fn start_all(
    open: &mut OpenCalls,
    starts: &mut Vec<ToolStart>,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> usize {
    for at in open.next..open.calls.len() {
        if !matches!(open.calls[at].state, CallState::Waiting) {
            continue;
        }
        // The client parses the arguments. The run needs them only for the time limit of a tool that has
        // a policy.
        let call = &open.calls[at].call;
        let known = tool(&call.name, &context.settings).is_some();
        let arguments = if known { call.parsed_arguments().ok() } else { None };
        open.calls[at].state = CallState::Ready(arguments.unwrap_or_default());
        starts.push(start(open, at, true, context, effects));
    }
    open.calls.len()
}

/// Advances a call by one step.
///
/// While the approver decides about a parallel-safe call, or a hook about its result, later
/// parallel-safe calls continue. A call that runs alone is never overtaken and overtakes nothing,
/// because the model may have relied on the order of its calls.
fn advance_call(
    open: &mut OpenCalls,
    at: usize,
    starts: &mut Vec<ToolStart>,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Progress {
    let name = &Arc::clone(&open.calls[at].call).name;
    let parallel_safe = tool(name, &context.settings).is_some_and(|tool| tool.parallel_safe);
    if !parallel_safe && !open.calls[at].is_settled() && open.is_overtaking(at) {
        return Progress::Held;
    }
    if matches!(open.calls[at].state, CallState::Ready(_)) && over_limit(open, at, context) {
        emit_ended(open, at, Duration::ZERO, effects);
        return Progress::Past;
    }
    match &open.calls[at].state {
        CallState::Waiting => {
            admit(open, at, context, effects);
            if matches!(open.calls[at].state, CallState::Done(..)) {
                emit_ended(open, at, Duration::ZERO, effects);
            }
            Progress::Again
        }
        CallState::Unapproved if !open.asks_for_approval() => {
            approve(open, at, None, context, effects);
            Progress::Again
        }
        CallState::Unapproved | CallState::Approval(_) | CallState::Review(_) if parallel_safe => {
            Progress::Past
        }
        CallState::Unapproved
        | CallState::Approval(_)
        | CallState::Review(_)
        | CallState::Hook(_) => Progress::Held,
        CallState::Ready(arguments) if is_finish(name, &context.settings) => {
            open.calls[at].state = CallState::Finish(arguments.clone());
            Progress::Past
        }
        CallState::Ready(_) => {
            if let Some(policy) = background(name, &context.settings) {
                // In order with the calls that run alone, which it does not wait for.
                if !open.running.iter().all(|running| running.parallel_safe) {
                    return Progress::Held;
                }
                let started = background::start(open, at, &policy, context, effects);
                if let Some(started) = &started {
                    count(&started.call.name, context);
                }
                starts.extend(started);
                return Progress::Past;
            }
            let limits = &context.settings.limits;
            // At least 1, because a limit of 0 would block the run forever.
            let room = if parallel_safe {
                open.running.len() < limits.tool_concurrency.max(1) as usize
                    && open.running.iter().all(|running| running.parallel_safe)
            } else {
                open.running.is_empty()
            };
            if !room {
                return Progress::Held;
            }
            starts.push(start(open, at, parallel_safe, context, effects));
            Progress::Past
        }
        CallState::Running | CallState::Finish(_) | CallState::Done(..) => Progress::Past,
    }
}

/// Answers a call without running it if a limit on calls is reached. The run then ends before its next turn.
fn over_limit(open: &mut OpenCalls, at: usize, context: &mut RunContext) -> bool {
    let call = &open.calls[at].call;
    if is_finish(&call.name, &context.settings) {
        return false;
    }
    let Some(evidence) = exhausted(&call.name, context) else { return false };
    let answer = format!("not run: {evidence}");
    let name = call.name.clone();
    context.counts.over_calls.get_or_insert(name);
    open.finished(at, ToolStatus::Skipped, answer, false);
    true
}

/// Returns the ending of a guest's turn that has a call too many.
fn too_many(open: &OpenCalls, context: &RunContext) -> Option<Box<Ending>> {
    let waiting = open.calls[open.next..].iter();
    let waiting = waiting.filter(|one| matches!(one.state, CallState::Waiting));
    let mut starting = Starting::default();
    let names = waiting.map(|one| one.call.name.as_str());
    let evidence = names
        .filter(|name| !is_finish(name, &context.settings))
        .find_map(|name| starting.add(name, context).err())?;
    Some(Ending::at_limit(Limit::MaxToolCalls, Termination::ErrorMaxToolCalls, evidence))
}

/// Starts a call that may start.
fn start(
    open: &mut OpenCalls,
    at: usize,
    parallel_safe: bool,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> ToolStart {
    let id = context.effect_id();
    let state = std::mem::replace(&mut open.calls[at].state, CallState::Running);
    let arguments = if let CallState::Ready(map) = state { map } else { Map::new() };
    let call = Arc::clone(&open.calls[at].call);
    count(&call.name, context);
    let limits = &context.settings.limits;
    let limit = match tool(&call.name, &context.settings) {
        Some(tool) => tool.time_limit(&arguments, limits),
        None => limits.tool_timeout,
    };
    effects.push(Effect::Emit(RunEvent::ToolStarted {
        call_id: call.id.clone(),
        name: call.name.clone(),
        arguments: call.arguments.clone(),
    }));
    open.running.push(Running {
        id,
        at,
        started: context.now,
        // Saturating, because a caller may set an arbitrarily large limit.
        deadline: limit.map(|limit| context.now.saturating_add(limit)),
        parallel_safe,
        timed_out: None,
    });
    ToolStart { id, call, arguments }
}

fn tool<'a>(name: &str, settings: &'a RunSpec) -> Option<&'a ToolPolicy> {
    settings.tools.iter().find(|tool| tool.name == name)
}

/// Returns the policy of a tool whose calls run in the background.
fn background(name: &str, settings: &RunSpec) -> Option<ToolPolicy> {
    tool(name, settings).filter(|tool| tool.background).cloned()
}

/// `true` for the kernel's own tool. Permissions and hooks apply to it like to any other tool.
fn is_finish(name: &str, settings: &RunSpec) -> bool {
    settings.finish_tool && name == "finish"
}

/// Returns the reason for which a call may not run at all: no such tool, or no permission.
pub(crate) fn refusal(call: &ToolCall, context: &RunContext) -> Option<(ToolStatus, String)> {
    let tool = tool(&call.name, &context.settings);
    if tool.is_none() && !is_finish(&call.name, &context.settings) {
        let mut names: Vec<&str> =
            context.settings.tools.iter().map(|tool| tool.name.as_str()).collect();
        if context.settings.finish_tool {
            names.push("finish");
        }
        // The model chose the name, so it may be arbitrarily long.
        let name = excerpt(&call.name);
        let problem = if names.is_empty() {
            format!("unknown tool `{name}`: no tool is given, answer in text")
        } else {
            format!("unknown tool `{name}`; there are: {}", names.join(", "))
        };
        return Some((ToolStatus::Error, problem));
    }
    let denied = tool.is_some_and(|tool| tool.permission == Permission::Deny);
    denied
        .then(|| (ToolStatus::Denied, format!("permission denied: `{}` may not be run", call.name)))
}

/// Decides about a new call: refuse it, ask, or let it start.
fn admit(open: &mut OpenCalls, at: usize, context: &mut RunContext, effects: &mut Vec<Effect>) {
    let call = &Arc::clone(&open.calls[at].call);
    let arguments = call.parsed_arguments();
    if let Some((status, problem)) = refusal(call, context) {
        open.finished(at, status, problem, false);
        return;
    }
    // Checked before the hook and the approver, because neither should decide about a call that
    // cannot run.
    let arguments = match arguments {
        Ok(arguments) => arguments,
        Err(problem) => {
            open.finished(at, ToolStatus::Error, problem.to_string(), false);
            return;
        }
    };
    // Again before the start, because other calls may start meanwhile.
    if over_limit(open, at, context) {
        return;
    }
    if context.settings.hooks.pre_tool {
        let point = ConsultPoint::PreTool { call: ToolCall::clone(call) };
        let id = context.effect_id();
        effects.push(Effect::Consult { id, point });
        open.calls[at].state = CallState::Hook(id);
        return;
    }
    approve(open, at, Some(arguments), context, effects);
}

/// Lets a call start, after a person has approved it if the tool requires that. `arguments` are
/// those of the call, if the caller has parsed them.
pub(crate) fn approve(
    open: &mut OpenCalls,
    at: usize,
    arguments: Option<Map<String, Value>>,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) {
    let call = &open.calls[at].call;
    let asks =
        tool(&call.name, &context.settings).is_some_and(|tool| tool.permission == Permission::Ask);
    if asks && open.asks_for_approval() {
        open.calls[at].state = CallState::Unapproved;
    } else if asks {
        let point = ConsultPoint::Approval { call: ToolCall::clone(call) };
        let id = context.effect_id();
        effects.push(Effect::Consult { id, point });
        open.calls[at].state = CallState::Approval(id);
    } else {
        let arguments = arguments.or_else(|| call.parsed_arguments().ok());
        open.calls[at].state = CallState::Ready(arguments.unwrap_or_default());
    }
}

/// Handles the report of a call that has ended.
pub(crate) fn tool_ended(
    mut open: OpenCalls,
    tool: EffectId,
    mut report: ToolReport,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Next {
    let Some((at, started)) = open.report(tool, &mut report) else {
        return Next::Wait(Phase::Tools(open));
    };
    let ran = context.now.saturating_sub(started);
    open.ran(at, ran);
    // Before the halt, so that no part of the report is lost.
    context.observe(report.variables, report.metrics);
    let reviewed = context.settings.hooks.post_tool && report.started;
    if let Some(result) = open.result(at).filter(|_| reviewed) {
        let (call, result) = (ToolCall::clone(&open.calls[at].call), result.clone());
        let id = context.effect_id();
        effects.push(Effect::Consult { id, point: ConsultPoint::PostTool { call, result } });
        open.review(at, id, report.halt);
        return Next::Tools(open);
    }
    emit_ended(&open, at, ran, effects);
    tool_halted(open, at, report.halt)
}

/// Stops the run if the tool requested a halt.
pub(super) fn tool_halted(open: OpenCalls, at: usize, halt: Option<String>) -> Next {
    let Some(reason) = halt else { return Next::Tools(open) };
    let decision = Decision::of(Layer::Tool, &open.calls[at].call.name);
    Next::Stop { ending: Ending::halted(Layer::Tool, decision, reason), calls: open }
}

/// Stops the tools whose time is up; abandons those that were asked to stop and did not end.
pub(crate) fn tools_timed_out(
    mut open: OpenCalls,
    context: &RunContext,
    effects: &mut Vec<Effect>,
) -> Next {
    let grace = context.settings.limits.cancel_grace;
    let mut stopped = Vec::new();
    let mut given_up = Vec::new();
    for running in &mut open.running {
        let Some(deadline) = running.deadline.filter(|deadline| *deadline <= context.now) else {
            continue;
        };
        if running.timed_out.is_some() {
            given_up.push(running.id);
        } else {
            running.timed_out = Some(deadline.saturating_sub(running.started));
            running.deadline = Some(context.now.saturating_add(grace).saturating_add(GIVE_UP));
            stopped.push(running.id);
        }
    }
    if !stopped.is_empty() {
        effects.push(Effect::AbortTools { ids: stopped, grace });
    }
    let mut gone = Vec::new();
    for id in given_up {
        let mut silent = ToolReport::new(ToolStatus::Aborted, "");
        gone.extend(open.report(id, &mut silent));
    }
    if gone.is_empty() {
        return Next::Wait(Phase::Tools(open));
    }
    for (at, started) in gone {
        emit_ended(&open, at, context.now.saturating_sub(started), effects);
    }
    Next::Tools(open)
}

/// Duration from which a call does not count as repetition, because it was waiting for something.
const WAITING: Duration = Duration::from_secs(1);

/// All calls are answered: count, judge, and continue or end.
pub(crate) fn tools_done(
    mut open: OpenCalls,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    context.stream(StreamingState::Resuming);
    let finishes = open.pending_finishes();
    let text = context.turn_text();
    let answer = judge_finish(&mut open, &text, &mut context.counts);
    for (at, _) in finishes {
        emit_ended(&open, at, Duration::ZERO, effects);
    }
    let (calls, counted) = answered_calls(&open, &context.settings);
    context.counts.count_results(&calls);
    let limits = &context.settings.limits;
    let step = Step {
        turn: context.counts.turns,
        said: context.said.at(&text),
        calls: &calls,
        counted: &counted,
        answer,
        fault: None,
        tools: &context.settings.tools,
        cost: context.known_cost(),
        warn_before: limits.max_unproductive_turns.filter(|_| context.settings.nudge),
    };
    let judgement = context.judge.step(Facts::Step(step), effects);
    let Judgement { ending, told, nudges, warning, .. } = judgement;

    let notes = std::mem::take(&mut open.notes);
    record_results(open, context);
    // Messages to the model come after the results, because a result must follow its call.
    for note in notes {
        context.inject_message(InjectionReason::Hook, note, effects);
    }
    if let Some(ending) = ending {
        return end_or_succeed(ending, OpenCalls::default(), context);
    }
    context.inject_nudges(nudges, effects);
    if let Some(told) = told {
        context.inject_message(InjectionReason::Policy, told, effects);
    }
    if let Some(warning) = warning {
        context.inject_message(InjectionReason::NoProgress, warning, effects);
    }
    Continue(Next::Boundary)
}

type Answered<'a> = Vec<(&'a ToolCall, &'a ToolResult)>;

/// Returns the calls with their results, and those among them that count as progress or repetition.
fn answered_calls<'a>(open: &'a OpenCalls, settings: &RunSpec) -> (Answered<'a>, Answered<'a>) {
    let polls = |name: &str| {
        settings.tools.iter().any(|tool| tool.name == name && tool.exempt_from_no_progress)
    };
    let mut calls = Vec::with_capacity(open.calls.len());
    let mut counted = Vec::with_capacity(open.calls.len());
    for open in &open.calls {
        if let CallState::Done(result, ran) = &open.state {
            calls.push((&*open.call, result));
            // A guest's call without a result is unknown, and so may have had another result.
            let unknown = !settings.may(Capability::Loop) && result.status == ToolStatus::Aborted;
            // A call that was not started says nothing about progress.
            let unknown = unknown || result.status == ToolStatus::Skipped;
            if *ran < WAITING && !unknown && !polls(&open.call.name) {
                counted.push((&*open.call, result));
            }
        }
    }
    (calls, counted)
}
