//! Calls the hooks and approvers of a run: at the points of the kernel, and with each event.
//!
//! ```text
//! Effect::Consult { id, point } ─► a separate task ─► EventKind::Answered { id, answer }
//! ```

use super::Driver;
use crate::agent::approvals::{Reply, needs_approval};
use crate::agent::consult::{FixedRequest, Question, whose};
use crate::agent::handle::AgentEvent;
use crate::agent::user_code::{self, Panicked};
use crate::control::Request;
use crate::hook::Hook;
use endstop_core::{ConsultPoint, EffectId, EventKind, Run};
use std::sync::Arc;

/// The hooks of a run that need more than the points of the kernel.
#[derive(Default)]
pub(crate) struct RunHooks {
    /// The hooks that receive the events.
    pub(crate) on_event: Vec<Arc<dyn Hook>>,
    /// The fixed part of the requests, if there is a `pre_call` hook.
    pub(crate) fixed: Option<Arc<FixedRequest>>,
}

impl Driver {
    /// Asks the hooks or the approver at a point.
    pub(super) fn consult(&mut self, id: EffectId, point: ConsultPoint) {
        let reply = self.request_approval(id, &point);
        let config = &self.shared.config;
        let (mut messages, mut fixed) = (Vec::new(), None);
        if matches!(point, ConsultPoint::PreCall { .. }) {
            // A copy, because the hook runs on another task.
            messages = self.run.as_ref().map(Run::messages).unwrap_or_default().to_vec();
            fixed = self.hooks.as_ref().and_then(|hooks| hooks.fixed.clone());
        }
        let (hooks, approver) = (config.hooks.clone(), config.approver.clone());
        let question = Question { hooks, approver, reply, messages, fixed };
        let (name, what) = whose(&point);
        let control = self.control.clone();
        self.ask(id, name, what, async move {
            match question.answer(point, &control).await {
                Some(answer) => EventKind::Answered { id, answer },
                // The question was not asked because the run was stopped. The driver sees the
                // request before this event, which does nothing.
                None => EventKind::Tick,
            }
        });
    }

    /// Reports a call that needs approval, if the caller answers by events. After a stop nothing is
    /// reported, because nothing would wait for the answer.
    fn request_approval(&mut self, id: EffectId, point: &ConsultPoint) -> Option<Reply> {
        let config = &self.shared.config;
        // The handle of an inner run belongs to the tool that started it.
        let by_events = config.approval_events && self.outer.is_none();
        let call = needs_approval(point).filter(|_| by_events)?.clone();
        if self.control.pending(None).is_some() {
            return None;
        }
        let (event, reply) = self.sink.approvals.open(id, call);
        self.tell(AgentEvent::ApprovalRequested(event));
        Some(reply)
    }

    /// Passes an event to the hooks that asked for events, unless the run was terminated.
    ///
    /// # Errors
    /// A hook panicked; the remaining hooks still receive the event.
    pub(super) fn tell_hooks(&self, event: &AgentEvent) -> Result<(), Panicked> {
        let Some(hooks) = &self.hooks else { return Ok(()) };
        let provider = &*self.shared.config.provider;
        let mut told = Ok(());
        for hook in &hooks.on_event {
            let heard = self.control.start(Request::Terminate, || {
                user_code::guard(provider, "on_event", "a hook", || hook.on_event(event))
            });
            let Some(heard) = heard else { break };
            told = told.and(heard);
        }
        told
    }

    /// `true` if a hook receives the events.
    pub(super) fn hooks_hear(&self) -> bool {
        self.hooks.as_ref().is_some_and(|hooks| !hooks.on_event.is_empty())
    }
}
