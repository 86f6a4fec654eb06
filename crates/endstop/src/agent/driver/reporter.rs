//! Builds the events of a run, in this one place, and passes them to the observers, the hooks and the
//! handles.
//!
//! ```text
//! reporter.report(&mut queue, || AgentEventKind::Warning { message }); // built only if it is read
//! reporter.report_delta(&mut queue, &delta);
//! ```
//!
//! The panic of an observer or of a hook is a fault of the run, so it is queued for the kernel.

use crate::agent::handle::approvals::canonical;
use crate::agent::shared::Shared;
use crate::agent::start::run_hooks::RunHooks;
use crate::agent::user_code::Panicked;
use crate::control::Control;
use crate::event::queue::{EventSink, Nesting};
use crate::event::{AgentEvent, AgentEventKind, CallId, Origin, RequestId, RunPlace, turn_of};
use crate::tool::ToolContext;
use endstop_core::{EventKind, RunEvent, ToolCall, TurnDelta, closed};
use std::collections::VecDeque;
use std::sync::Arc;

/// Events that the kernel has not got yet.
pub(super) type Queue = VecDeque<EventKind>;

/// The name of a run in its events.
pub(super) struct Named {
    pub(super) id: String,
    /// Not 0 for a resumed run.
    pub(super) turns: u32,
}

/// The origin of a run's events, and all that take them.
pub(super) struct Reporter {
    /// The run and its current turn.
    origin: Origin,
    /// The queue of the run's own handle.
    sink: EventSink,
    /// The queue of the outermost run, if this run is nested in it.
    outermost: Option<EventSink>,
    /// Boxed, and only there if a hook needs it, so that a waiting run uses less memory.
    hooks: Option<Box<RunHooks>>,
    /// The agent, which has the observers.
    agent: Arc<Shared>,
    control: Control,
    /// The ids of the calls that the model is writing, by position.
    calls: Vec<Option<CallId>>,
}

impl Reporter {
    /// Creates the reporter of a run; `outer` is the tool call that it works for.
    pub(super) fn new(
        named: &Named,
        outer: Option<&ToolContext>,
        sink: EventSink,
        hooks: Option<Box<RunHooks>>,
        agent: Arc<Shared>,
        control: Control,
    ) -> Reporter {
        let nesting = outer.and_then(|outer| Some((outer.nesting()?, outer.call_id())));
        let (mut path, mut outermost) = (Vec::new(), None);
        if let Some((nesting, call)) = nesting {
            path.clone_from(&nesting.run.path);
            path.push(call.into());
            outermost = Some(nesting.sink.clone());
        }
        let origin = Origin::new(&*named.id, path, Some(named.turns));
        Reporter { origin, sink, outermost, hooks, agent, control, calls: Vec::new() }
    }

    pub(super) fn place(&self) -> &Arc<RunPlace> {
        &self.origin.run
    }

    pub(super) fn run_id(&self) -> &str {
        self.origin.run_id()
    }

    pub(super) fn hooks(&self) -> Option<&RunHooks> {
        self.hooks.as_deref()
    }

    /// Returns the place of a run that a tool of this run starts; `None` if no handle would get its events.
    pub(super) fn nesting(&self) -> Option<Nesting> {
        let sink = self.outermost.as_ref().unwrap_or(&self.sink);
        sink.is_open().then(|| Nesting { sink: sink.clone(), run: Arc::clone(&self.origin.run) })
    }

    /// `true` if a handle takes the events.
    fn has_handle(&self) -> bool {
        self.sink.is_open() || self.outermost.as_ref().is_some_and(EventSink::is_open)
    }

    /// `true` if an observer, a hook or a handle takes the events.
    pub(super) fn is_read(&self) -> bool {
        self.has_handle()
            || !self.agent.config.observers.is_empty()
            || self.hooks().is_some_and(|hooks| !hooks.on_event.is_empty())
    }

    /// Passes an event to all that take it; it is built only if there are any.
    pub(super) fn report(&mut self, queue: &mut Queue, kind: impl FnOnce() -> AgentEventKind) {
        if self.is_read() {
            self.report_built(queue, kind());
        }
    }

    fn report_built(&mut self, queue: &mut Queue, kind: AgentEventKind) {
        let event = AgentEvent::new(self.origin.clone(), kind);
        for panicked in self.observe(&event).into_iter().flatten() {
            queue.push_back(panicked.into());
        }
        if self.has_handle() {
            self.send(event);
        }
    }

    /// Passes the last event of the run to the observers and the hooks. Their panics can no longer change the ending.
    /// Returns the event for the handles, which get it when the ending is written.
    pub(super) fn report_last(&self, kind: impl FnOnce() -> AgentEventKind) -> Option<AgentEvent> {
        let event = self.is_read().then(|| AgentEvent::new(self.origin.clone(), kind()))?;
        let _ = self.observe(&event);
        Some(event)
    }

    /// Passes an event to the observers, then to the hooks. Returns the panics of both.
    fn observe(&self, event: &AgentEvent) -> [Option<Panicked>; 2] {
        let observers = self.agent.tell(&self.control, event);
        let provider = &*self.agent.config.provider;
        let hooks = self.hooks().map_or(Ok(()), |hooks| hooks.tell(&self.control, provider, event));
        [observers.err(), hooks.err()]
    }

    /// Passes an event to the handles.
    pub(super) fn send(&self, event: AgentEvent) {
        match self.outermost.as_ref().filter(|outermost| outermost.is_open()) {
            Some(outermost) if self.sink.is_open() => {
                outermost.send(event.clone().nested());
                self.sink.send(event);
            }
            Some(outermost) => outermost.send(event.nested()),
            None => self.sink.send(event),
        }
    }

    /// Passes on an event of the kernel.
    pub(super) fn report_of_kernel(&mut self, queue: &mut Queue, event: RunEvent) {
        self.origin.turn = turn_of(&event).unwrap_or(self.origin.turn);
        if matches!(event, RunEvent::TurnStarted { .. }) {
            self.calls.clear();
        }
        if !self.is_read() {
            return;
        }
        for kind in AgentEventKind::of_kernel(event).into_iter().flatten() {
            self.report_built(queue, kind);
        }
    }

    /// Passes on an increment of the turn.
    pub(super) fn report_delta(&mut self, queue: &mut Queue, delta: &TurnDelta) {
        // An empty delta is a ping, not content.
        if delta.is_empty() {
            return;
        }
        self.report(queue, || match delta.closed() {
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
    pub(super) fn report_call(&mut self, queue: &mut Queue, index: u32, id: &str, name: String) {
        let call_id = Some(id).filter(|id| !id.is_empty()).map(CallId::from);
        // Positions are consecutive, so another one is an error of the provider and has no id.
        if self.calls.len() == index as usize {
            self.calls.push(call_id.clone());
        }
        self.report(queue, || AgentEventKind::ToolCallStarted { index, call_id, name });
    }

    /// Passes on a fragment of a tool call's arguments.
    pub(super) fn report_arguments(&mut self, queue: &mut Queue, index: u32, arguments: String) {
        let call_id = self.calls.get(index as usize).cloned().flatten();
        self.report(queue, || AgentEventKind::ToolArgumentsDelta { index, call_id, arguments });
    }

    /// Passes on that a call waits for approval.
    pub(super) fn report_approval(
        &mut self,
        queue: &mut Queue,
        request_id: RequestId,
        call: ToolCall,
    ) {
        self.report(queue, || AgentEventKind::ApprovalRequested {
            request_id,
            canonical: canonical(&call).into(),
            call_id: call.id.into(),
            name: call.name,
            arguments: call.arguments.into(),
        });
    }
}
