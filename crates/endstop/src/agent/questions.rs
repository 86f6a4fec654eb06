//! What is asked of hooks and people: in order, and whose answer counts.
//!
//! ```text
//! let (name, what) = whose(&point); // for one that panics
//! let answer = answer(&hooks, approver.as_deref(), point, &control).await;
//! ```

use super::{Control, Request};
use crate::hook::{Approver, Hook, asks};
use endstop_core::{Answer, ConsultPoint};
use std::sync::Arc;

/// The answer at a point; `None` if the run was stopped before one of them was asked.
pub(super) async fn answer(
    hooks: &[Arc<dyn Hook>],
    approver: Option<&dyn Approver>,
    point: ConsultPoint,
    control: &Control,
) -> Option<Answer> {
    match (point, approver) {
        (ConsultPoint::Approval { call }, Some(approver)) => {
            let asked = async { approver.approve(call).await };
            control.start_future(Request::Cancel, asked).await
        }
        (ConsultPoint::Approval { .. }, None) => {
            Some(Answer::Deny("there is nobody to ask".to_owned()))
        }
        (point, _) => ask_hooks(hooks, &point, control).await,
    }
}

/// Who is asked at a point: by its name, and for a person.
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

/// Asks the hooks in order; the first that does not let the run go on decides.
async fn ask_hooks(
    hooks: &[Arc<dyn Hook>],
    point: &ConsultPoint,
    control: &Control,
) -> Option<Answer> {
    let mut told = Vec::new();
    let mut cap = None;
    for hook in hooks.iter().filter(|hook| asks(hook.points(), point)) {
        let asked = async { hook.consult(point.clone()).await };
        match control.start_future(Request::Cancel, asked).await? {
            Answer::Proceed => {}
            Answer::ProceedWith(text) => told.push(text),
            Answer::OutputCap(tokens) => cap = Some(tokens),
            decided => return Some(decided),
        }
    }
    Some(match (told.is_empty(), cap) {
        // At chat parameters the cap is the answer; words belong to the other points.
        (_, Some(tokens)) => Answer::OutputCap(tokens),
        (false, None) => Answer::ProceedWith(told.join("\n")),
        (true, None) => Answer::Proceed,
    })
}
