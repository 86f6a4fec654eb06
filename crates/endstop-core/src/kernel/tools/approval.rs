//! Answers of hooks and persons to questions about a tool call: before it runs, and about its result.
//!
//! ```text
//! pre_tool ─► a changed call is parsed again ─► approval ─► starts ─► post_tool ─► the model
//! ```
//!
//! A parked run waits for such an answer without its driver; an approved call is checked again before it
//! starts.
//!
//! ```text
//! parked ─► the call may run only once ─► decided ─► answered ─► checked again ─► starts
//! ```

use super::open_calls::{CallState, OpenCalls};
use super::results::{MOST_CHANGED, bounded, emit_ended};
use super::step::{approve, refusal, tool_halted};
use crate::kernel::ceilings::precheck::{check_budgets, check_deadline};
use crate::kernel::context::RunContext;
use crate::kernel::effect::{Effect, EffectId, RunEvent};
use crate::kernel::event::{ChangedResult, HookDecision};
use crate::kernel::outcome::decided_by::{Decision, Layer};
use crate::kernel::outcome::ending::{Ending, Flow, fault, misplaced};
use crate::kernel::park::{ParkDecision, ParkRequest, RequestKind};
use crate::kernel::phase::{Next, Phase, Point};
use crate::message::{ToolCall, ToolStatus};
use std::ops::ControlFlow::{Break, Continue};
use std::sync::Arc;
use std::time::Duration;

/// Handles the answer of a hook or a person to a question about a call.
pub(crate) fn tool_answered(
    mut open: OpenCalls,
    id: EffectId,
    answer: HookDecision,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Next {
    let asked = open.calls.iter().enumerate().find_map(|(at, open)| match &open.state {
        CallState::Hook(waited) if *waited == id => Some((at, Decision::PreToolHook)),
        CallState::Approval(waited) if *waited == id => Some((at, Decision::Approval)),
        CallState::Review(review) if review.id == id => Some((at, Decision::PostToolHook)),
        _ => None,
    });
    let Some((at, point)) = asked else {
        return Next::Wait(Phase::Tools(open));
    };
    let (notes, answer) = answer.split_notes();
    open.notes.extend(notes);
    if point == Decision::PostToolHook {
        return reviewed(open, at, answer, effects);
    }
    match answer {
        HookDecision::Halt(reason) => {
            // The question is answered, so stopping the run must not withdraw it.
            open.calls[at].state = CallState::Waiting;
            let ending = Ending::halted(Layer::Hook, point, reason);
            return Next::Stop { ending, calls: open };
        }
        HookDecision::Deny(reason) => {
            open.finished(at, ToolStatus::Denied, format!("denied: {reason}"), false);
            emit_ended(&open, at, Duration::ZERO, effects);
            return Next::Tools(open);
        }
        HookDecision::ChangeResult(_) | HookDecision::Park(_) => {
            open.calls[at].state = CallState::Waiting;
            return Next::Stop { ending: misplaced(&point, answer.name()), calls: open };
        }
        HookDecision::ChangeCall(changed) => {
            if let Err(problem) = change_call(&mut open, at, changed, &point, effects) {
                open.calls[at].state = CallState::Waiting;
                let ending = fault(point.as_str().to_owned(), problem);
                return Next::Stop { ending, calls: open };
            }
        }
        HookDecision::ProceedWith(note) => open.notes.push(note),
        HookDecision::Proceed | HookDecision::OutputCap(_) | HookDecision::WithNote { .. } => {}
    }
    match open.calls[at].call.parsed_arguments() {
        Err(problem) => {
            open.finished(at, ToolStatus::Error, problem.to_string(), false);
            emit_ended(&open, at, Duration::ZERO, effects);
        }
        Ok(_) if point == Decision::PreToolHook => approve(&mut open, at, None, context, effects),
        Ok(arguments) => {
            if open.calls[at].parked {
                match check_again(&mut open, at, context) {
                    Break(ending) => {
                        open.calls[at].state = CallState::Waiting;
                        return Next::Stop { ending, calls: open };
                    }
                    Continue(false) => {
                        emit_ended(&open, at, Duration::ZERO, effects);
                        return Next::Tools(open);
                    }
                    Continue(true) => {}
                }
            }
            open.calls[at].state = CallState::Ready(arguments);
        }
    }
    Next::Tools(open)
}

/// Replaces the arguments of a call. Everything after that reads the changed call: the approval,
/// the tool, the policies, no-progress detection. The conversation keeps the model's call.
///
/// # Errors
/// The id or the name differs. A permission is given to a name, so another name could run a tool
/// that is denied.
fn change_call(
    open: &mut OpenCalls,
    at: usize,
    changed: ToolCall,
    by: &Decision,
    effects: &mut Vec<Effect>,
) -> Result<(), String> {
    let call = &mut open.calls[at].call;
    let different = |what: &str, is: &str, was: &str| {
        format!(
            "a changed call has the {what} `{is}` instead of `{was}`: only its arguments may change"
        )
    };
    if changed.name != call.name {
        return Err(different("name", &changed.name, &call.name));
    }
    if changed.id != call.id {
        return Err(different("id", &changed.id, &call.id));
    }
    if changed.arguments != call.arguments {
        let before = std::mem::replace(&mut Arc::make_mut(call).arguments, changed.arguments);
        effects.push(Effect::Emit(RunEvent::ToolCallChanged {
            call_id: call.id.clone(),
            name: call.name.clone(),
            before,
            after: call.arguments.clone(),
            by: by.as_str().to_owned(),
        }));
    }
    Ok(())
}

/// Handles the answer of the hook that reviews a result.
fn reviewed(
    mut open: OpenCalls,
    at: usize,
    answer: HookDecision,
    effects: &mut Vec<Effect>,
) -> Next {
    let ending = match &answer {
        HookDecision::Halt(reason) => {
            Some(Ending::halted(Layer::Hook, Decision::PostToolHook, reason.clone()))
        }
        HookDecision::ChangeCall(_) | HookDecision::Park(_) => {
            Some(misplaced(&Decision::PostToolHook, answer.name()))
        }
        _ => None,
    };
    if let Some(ending) = ending {
        // The hook has not passed the result, so nothing else may read it.
        let ran = open.withhold(at);
        emit_ended(&open, at, ran, effects);
        return Next::Stop { ending, calls: open };
    }
    let Some((ran, halt)) = open.reviewed(at) else { return Next::Tools(open) };
    match answer {
        HookDecision::ProceedWith(note) => open.notes.push(note),
        HookDecision::Deny(reason) => {
            let content = bounded(format!("the result is withheld: {reason}"), MOST_CHANGED);
            open.replace_result(at, ToolStatus::Denied, content, Vec::new());
        }
        HookDecision::ChangeResult(changed) => change_result(&mut open, at, changed, effects),
        _ => {}
    }
    emit_ended(&open, at, ran, effects);
    tool_halted(open, at, halt)
}

/// Replaces the result of a call that has run.
fn change_result(
    open: &mut OpenCalls,
    at: usize,
    changed: ChangedResult,
    effects: &mut Vec<Effect>,
) {
    let Some(result) = open.result(at) else { return };
    let status = if changed.is_error { ToolStatus::Error } else { ToolStatus::Ok };
    let content = bounded(changed.content, result.content.len().max(MOST_CHANGED));
    let attachments = changed.attachments;
    if (status, &content, &attachments) == (result.status, &result.content, &result.attachments) {
        return;
    }
    effects.push(Effect::Emit(RunEvent::ToolResultChanged {
        call_id: result.call_id.clone(),
        name: result.name.clone(),
        status: result.status,
    }));
    open.replace_result(at, status, content, attachments);
}

impl ParkDecision {
    /// Returns the answer that the decision is to the question of a request.
    ///
    /// ```
    /// use endstop_core::{HookDecision, ParkDecision, ParkRequest, RequestKind, EffectId};
    /// let request = ParkRequest {
    ///     id: EffectId(3), kind: RequestKind::Approval, tool: Some("rm".into()), call_id: None,
    ///     subject: "{}".into(), digest: "00".into(), reason: None, asked_ms: 0, expires_ms: Some(60_000),
    /// };
    /// assert_eq!(ParkDecision::Approve.to_hook_decision(&request), HookDecision::Proceed);
    /// let HookDecision::Deny(why) = ParkDecision::Expired.to_hook_decision(&request) else { panic!() };
    /// assert!(why.contains("a timeout, not a person's decision"));
    /// ```
    pub fn to_hook_decision(&self, request: &ParkRequest) -> HookDecision {
        match self {
            ParkDecision::Approve => HookDecision::Proceed,
            // The kernel refuses a call with another name or id than the one that it asked about.
            ParkDecision::ApproveChanged(arguments) => HookDecision::ChangeCall(ToolCall {
                id: request.call_id.clone().unwrap_or_default(),
                name: request.tool.clone().unwrap_or_default(),
                arguments: arguments.clone(),
            }),
            ParkDecision::Text(text) => HookDecision::ProceedWith(text.clone()),
            // Without a reply the answer of the model stands, and the run ends with it.
            ParkDecision::Deny(_) | ParkDecision::Expired
                if request.kind == RequestKind::Question =>
            {
                HookDecision::Proceed
            }
            ParkDecision::Deny(why) => HookDecision::Deny(why.clone()),
            ParkDecision::Expired => {
                let waited = request.expires_ms.unwrap_or_default();
                let seconds = waited.saturating_sub(request.asked_ms) / 1000;
                HookDecision::Deny(format!(
                    "the request for approval expired after {seconds} s without a decision: a timeout, not a person's decision"
                ))
            }
        }
    }
}

/// Handles a park: the call that waits for the decision may run only once from now on, also if the
/// process that runs it dies.
pub(crate) fn parked(phase: &mut Phase, request: Box<ParkRequest>, effects: &mut Vec<Effect>) {
    let waits = match phase {
        Phase::Tools(calls) => calls.park(request.id),
        Phase::Consulting { id, point: Point::Reply(_) } => *id == request.id,
        _ => false,
    };
    // A request that the run does not wait for is void.
    if waits {
        effects.push(Effect::Emit(RunEvent::Parked(request)));
    }
}

/// Handles a decision, which takes effect with the answer to the question.
pub(crate) fn decided(
    phase: &Phase,
    id: EffectId,
    decision: ParkDecision,
    wall_ms: u64,
    effects: &mut Vec<Effect>,
) {
    let waits = match phase {
        Phase::Tools(calls) => calls.is_parked(id),
        Phase::Consulting { id: waited, point: Point::Reply(_) } => *waited == id,
        _ => false,
    };
    if waits {
        effects.push(Effect::Emit(RunEvent::Decided { id, decision, wall_ms }));
    }
}

/// Checks an approved call again, because the permissions and the limits may have changed while the
/// run was parked. `false` if the call was refused.
fn check_again(open: &mut OpenCalls, at: usize, context: &RunContext) -> Flow<bool> {
    check_deadline(context)?;
    check_budgets(context)?;
    let Some((status, problem)) = refusal(&open.calls[at].call, context) else {
        return Continue(true);
    };
    open.finished(at, status, problem, false);
    Continue(false)
}
