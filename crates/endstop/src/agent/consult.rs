//! Asks hooks and approvers, in order, and picks the answer that counts.
//!
//! ```text
//! let (name, what) = whose(&point); // names the code if it panics
//! let answer = answer(&hooks, approver.as_deref(), point, &control).await;
//! ```

use crate::control::{Control, Request};
use crate::hook::{Approver, Hook, asks};
use endstop_core::{ConsultPoint, HookDecision};
use std::sync::Arc;

/// Returns the answer at a point, or `None` if the run was stopped before all were asked.
pub(super) async fn answer(
    hooks: &[Arc<dyn Hook>],
    approver: Option<&dyn Approver>,
    point: ConsultPoint,
    control: &Control,
) -> Option<HookDecision> {
    match (point, approver) {
        (ConsultPoint::Approval { call }, Some(approver)) => {
            let asked = async { approver.approve(call).await };
            control.start_future(Request::Cancel, asked).await
        }
        (ConsultPoint::Approval { .. }, None) => {
            Some(HookDecision::Deny("no approver is set".to_owned()))
        }
        (point, _) => ask_hooks(hooks, &point, control).await,
    }
}

/// Returns the code that is asked at a point: its name, and a description for people.
pub(super) fn whose(point: &ConsultPoint) -> (&'static str, &'static str) {
    match point {
        ConsultPoint::Prompt => ("prompt", "a hook"),
        ConsultPoint::PreIteration { .. } => ("pre_iteration", "a hook"),
        ConsultPoint::ChatParams { .. } => ("chat_params", "a hook"),
        ConsultPoint::PreTool { .. } => ("pre_tool", "a hook"),
        ConsultPoint::Approval { .. } => ("approval", "the approver"),
        ConsultPoint::Stop { .. } => ("stop", "a hook"),
        ConsultPoint::Reply => ("reply", "a hook"),
        _ => ("hook", "a hook"),
    }
}

/// Asks the hooks in order. The first answer other than proceeding is final.
async fn ask_hooks(
    hooks: &[Arc<dyn Hook>],
    point: &ConsultPoint,
    control: &Control,
) -> Option<HookDecision> {
    let mut told = Vec::new();
    let mut cap = None;
    for hook in hooks.iter().filter(|hook| asks(hook.points(), point)) {
        let asked = async { hook.consult(point.clone()).await };
        match control.start_future(Request::Cancel, asked).await? {
            HookDecision::Proceed => {}
            HookDecision::ProceedWith(text) => told.push(text),
            HookDecision::OutputCap(tokens) => cap = Some(tokens),
            decided => return Some(decided),
        }
    }
    Some(match (told.is_empty(), cap) {
        // A cap is only valid at `chat_params`, and text only at the other points.
        (_, Some(tokens)) => HookDecision::OutputCap(tokens),
        (false, None) => HookDecision::ProceedWith(told.join("\n")),
        (true, None) => HookDecision::Proceed,
    })
}
