//! Handles the events of parked runs: the request, the decision, and the checks before an approved
//! call starts.
//!
//! ```text
//! parked ─► the call may run only once ─► decided ─► answered ─► checked again ─► starts
//! ```

use super::open_calls::OpenCalls;
use super::step::refusal;
use crate::kernel::ceilings::precheck::{check_budgets, check_deadline};
use crate::kernel::context::RunContext;
use crate::kernel::effect::{Effect, RunEvent};
use crate::kernel::effect_id::EffectId;
use crate::kernel::event::HookDecision;
use crate::kernel::outcome::guard::Flow;
use crate::kernel::park::{ParkDecision, ParkRequest, RequestKind};
use crate::kernel::phase::{Phase, Point};
use crate::message::ToolCall;
use std::ops::ControlFlow::Continue;

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
pub(crate) fn check_again(open: &mut OpenCalls, at: usize, context: &RunContext) -> Flow<bool> {
    check_deadline(context)?;
    check_budgets(context)?;
    let Some((status, problem)) = refusal(&open.calls[at].call, context) else {
        return Continue(true);
    };
    open.finished(at, status, problem, false);
    Continue(false)
}
