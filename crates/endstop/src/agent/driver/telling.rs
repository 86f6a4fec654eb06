//! Builds the events of a run, in this one place, and passes them to the observers and to the
//! handles.
//!
//! ```text
//! driver.tell(|| AgentEventKind::Warning { message }); // built only if it is heard
//! driver.tell_delta(&delta);
//! ```

use super::Driver;
use crate::agent::handle::approvals::canonical;
use crate::agent::user_code::Panicked;
use crate::event::{AgentEvent, AgentEventKind, CallId, Origin, RequestId, turn_of};
use endstop_core::{RunEvent, ToolCall, TurnDelta, closed};

impl Driver {
    /// `true` if an observer or a handle takes the events.
    pub(super) fn is_heard(&self) -> bool {
        self.teller.is_read()
            || !self.shared.config.observers.is_empty()
            || self.hooks.as_ref().is_some_and(|hooks| !hooks.on_event.is_empty())
    }

    /// Returns the origin of an event that is built now.
    pub(super) fn event_origin(&self) -> Origin {
        self.teller.origin.clone()
    }

    /// Passes an event to the observers and the handles; it is built only if there are any.
    pub(super) fn tell(&mut self, kind: impl FnOnce() -> AgentEventKind) {
        if self.is_heard() {
            self.tell_built(AgentEvent::new(self.event_origin(), kind()));
        }
    }

    fn tell_built(&mut self, event: AgentEvent) {
        for panicked in self.tell_observers(&event).into_iter().flatten() {
            self.queue.push_back(panicked.into());
        }
        if self.teller.is_read() {
            self.teller.send(event);
        }
    }

    /// Passes an event to the observers, then to the hooks. Returns the panics of both.
    pub(super) fn tell_observers(&self, event: &AgentEvent) -> [Option<Panicked>; 2] {
        let observers = self.shared.tell(&self.control, event);
        let hooks = self.hooks.as_ref().map_or(Ok(()), |hooks| {
            hooks.tell(&self.control, &*self.shared.config.provider, event)
        });
        [observers.err(), hooks.err()]
    }

    /// Passes on an event of the kernel.
    pub(super) fn tell_of_run(&mut self, event: RunEvent) {
        self.teller.origin.turn = turn_of(&event).unwrap_or(self.teller.origin.turn);
        if matches!(event, RunEvent::TurnStarted { .. }) {
            self.teller.calls.clear();
        }
        if !self.is_heard() {
            return;
        }
        for kind in AgentEventKind::of_kernel(event).into_iter().flatten() {
            self.tell_built(AgentEvent::new(self.event_origin(), kind));
        }
    }

    /// Passes on an increment of the turn.
    pub(super) fn tell_delta(&mut self, delta: &TurnDelta) {
        // An empty delta is a ping, not content.
        if delta.is_empty() {
            return;
        }
        self.tell(|| match delta.closed() {
            closed::TurnDelta::Text(text) => AgentEventKind::TextDelta { text: text.to_owned() },
            closed::TurnDelta::Reasoning(reasoning) => {
                AgentEventKind::HiddenDelta { reasoning, arguments: 0 }
            }
            closed::TurnDelta::ToolArguments(arguments) => {
                AgentEventKind::HiddenDelta { reasoning: 0, arguments }
            }
        });
    }

    /// Passes on the start of a tool call that the model is writing. An empty id is not known yet.
    pub(super) fn tell_call(&mut self, index: u32, id: &str, name: String) {
        let call_id = Some(id).filter(|id| !id.is_empty()).map(CallId::from);
        let calls = &mut self.teller.calls;
        // Positions are consecutive, so another one is an error of the provider and has no id.
        if calls.len() == index as usize {
            calls.push(call_id.clone());
        }
        self.tell(|| AgentEventKind::ToolCallStarted { index, call_id, name });
    }

    /// Passes on that a call waits for approval.
    pub(super) fn tell_approval(&mut self, request_id: RequestId, call: ToolCall) {
        self.tell(|| AgentEventKind::ApprovalRequested {
            request_id,
            canonical: canonical(&call).into(),
            call_id: call.id.into(),
            name: call.name,
            arguments: call.arguments.into(),
        });
    }

    /// Passes on a fragment of a tool call's arguments.
    pub(super) fn tell_arguments(&mut self, index: u32, arguments: String) {
        let call_id = self.teller.calls.get(index as usize).cloned().flatten();
        self.tell(|| AgentEventKind::ToolArgumentsDelta { index, call_id, arguments });
    }
}
