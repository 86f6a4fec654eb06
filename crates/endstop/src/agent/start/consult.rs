//! Asks hooks and approvers, in order, and picks the answer that counts.
//!
//! ```text
//! let (name, what) = whose(&point); // names the code if it panics
//! let answer = question.answer(point, &control).await;
//! ```

use crate::agent::handle::approvals::Reply;
use crate::agent::setup::config::Config;
use crate::control::{Control, Request};
use crate::hook::{Approver, Hook, ModelRequest, asks};
use crate::provider::{ModelParams, ToolDefinition};
use endstop_core::{ChangedResult, ConsultPoint, HookDecision, Message, ToolCall, ToolStatus};
use std::sync::Arc;

/// The code that is asked, and what it needs in addition to the point.
pub(in crate::agent) struct Question {
    pub(in crate::agent) hooks: Vec<Arc<dyn Hook>>,
    pub(in crate::agent) approver: Option<Arc<dyn Approver>>,
    /// The reply to an event that requests approval.
    pub(in crate::agent) reply: Option<Reply>,
    /// The messages of the request, for `pre_call` hooks.
    pub(in crate::agent) messages: Vec<Message>,
    pub(in crate::agent) fixed: Option<Arc<FixedRequest>>,
}

/// The parts of a run's requests that stay the same.
pub(in crate::agent) struct FixedRequest {
    pub(in crate::agent) system: Option<String>,
    pub(in crate::agent) tools: Vec<ToolDefinition>,
    pub(in crate::agent) params: ModelParams,
}

impl Question {
    pub(in crate::agent) fn new(config: &Config) -> Question {
        let (hooks, approver) = (config.hooks.clone(), config.approver.clone());
        Question { hooks, approver, reply: None, messages: Vec::new(), fixed: None }
    }

    /// Returns the answer at a point, or `None` if the run was stopped before all were asked.
    pub(in crate::agent) async fn answer(
        self,
        point: ConsultPoint,
        control: &Control,
    ) -> Option<HookDecision> {
        let ConsultPoint::Approval { call } = point else {
            return self.ask_hooks(point, control).await;
        };
        let approver = self.approver.as_deref();
        let approve = approver.map(|approver| async move { approver.approve(call).await });
        match (self.reply, approve) {
            (Some(reply), approve) => {
                control.start_future(Request::Cancel, reply.wait(approve)).await
            }
            (None, Some(approve)) => control.start_future(Request::Cancel, approve).await,
            (None, None) => Some(HookDecision::Deny("no approver is set".to_owned())),
        }
    }

    /// Asks the hooks in order. Each sees the changes of those before it. The first answer other
    /// than proceeding and changing is final.
    async fn ask_hooks(&self, mut point: ConsultPoint, control: &Control) -> Option<HookDecision> {
        let (mut told, mut rest) = (Vec::new(), HookDecision::Proceed);
        for hook in &self.hooks {
            if !asks(hook.points(), &point) {
                continue;
            }
            let mut answer = self.ask(&**hook, &point, control).await?;
            while let HookDecision::WithNote { note, answer: inner } = answer {
                told.push(note);
                answer = *inner;
            }
            match answer {
                HookDecision::Proceed => {}
                HookDecision::ProceedWith(text) => told.push(text),
                HookDecision::OutputCap(_) => rest = answer,
                HookDecision::ChangeCall(_) | HookDecision::ChangeResult(_) => {
                    if !apply(&mut point, &answer) {
                        // The kernel refuses the answer.
                        return Some(answer);
                    }
                    rest = answer;
                }
                decided => return Some(decided),
            }
        }
        Some(match (told.is_empty(), rest) {
            (true, rest) => rest,
            (false, HookDecision::Proceed) => HookDecision::ProceedWith(told.join("\n")),
            (false, rest) => {
                HookDecision::WithNote { note: told.join("\n"), answer: Box::new(rest) }
            }
        })
    }

    async fn ask(
        &self,
        hook: &dyn Hook,
        point: &ConsultPoint,
        control: &Control,
    ) -> Option<HookDecision> {
        let (ConsultPoint::PreCall { turn, output_cap }, Some(fixed)) = (point, &self.fixed) else {
            let asked = async { hook.consult(point.clone()).await };
            return control.start_future(Request::Cancel, asked).await;
        };
        let request = ModelRequest {
            turn: *turn,
            output_cap: *output_cap,
            system: fixed.system.as_deref(),
            messages: &self.messages,
            tools: &fixed.tools,
            params: &fixed.params,
        };
        let asked = async { hook.pre_call(request).await };
        control.start_future(Request::Cancel, asked).await
    }
}

/// Applies a change, so that the next hook sees it. `false` if the answer is not valid at the point.
fn apply(point: &mut ConsultPoint, answer: &HookDecision) -> bool {
    match (point, answer) {
        (ConsultPoint::PreTool { call }, HookDecision::ChangeCall(changed)) => {
            let ToolCall { id, name, .. } = changed;
            let same = (id, name) == (&call.id, &call.name);
            if same {
                call.arguments.clone_from(&changed.arguments);
            }
            same
        }
        (ConsultPoint::PostTool { result, .. }, HookDecision::ChangeResult(changed)) => {
            let ChangedResult { content, is_error, attachments, .. } = changed;
            result.content.clone_from(content);
            result.attachments.clone_from(attachments);
            result.status = if *is_error { ToolStatus::Error } else { ToolStatus::Ok };
            true
        }
        _ => false,
    }
}

/// Returns the code that is asked at a point: its name, and a description for people.
pub(in crate::agent) fn whose(point: &ConsultPoint) -> (&'static str, &'static str) {
    match point {
        ConsultPoint::Prompt => ("prompt", "a hook"),
        ConsultPoint::PreIteration { .. } => ("pre_iteration", "a hook"),
        ConsultPoint::ChatParams { .. } => ("chat_params", "a hook"),
        ConsultPoint::PreCall { .. } => ("pre_call", "a hook"),
        ConsultPoint::PreTool { .. } => ("pre_tool", "a hook"),
        ConsultPoint::Approval { .. } => ("approval", "the approver"),
        ConsultPoint::PostTool { .. } => ("post_tool", "a hook"),
        ConsultPoint::Stop { .. } => ("stop", "a hook"),
        ConsultPoint::Reply => ("reply", "a hook"),
        _ => ("hook", "a hook"),
    }
}
