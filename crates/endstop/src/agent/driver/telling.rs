//! Builds the events of a run, in this one place, and passes them to the observers and to the
//! handles.
//!
//! ```text
//! driver.tell(|origin| Event::Warning { origin, message }); // built only if it is heard
//! driver.tell_delta(&delta);
//! ```

use super::Driver;
use crate::event::queue::{EventSink, Nesting};
use crate::event::{CallId, Event, Origin, RunPlace};
use endstop_core::{RunEvent, TurnDelta};
use std::sync::Arc;

/// The origin and the readers of a run's events.
pub(super) struct Teller {
    /// The run and its current turn.
    origin: Origin,
    /// The queue of the run's own handle.
    sink: EventSink,
    /// The queue of the outermost run, if this run is nested in it.
    outermost: Option<EventSink>,
    /// The ids of the calls that the model is writing, by position.
    calls: Vec<Option<CallId>>,
}

impl Teller {
    pub(super) fn new(sink: EventSink) -> Teller {
        let origin = Origin::new("", [], None);
        Teller { origin, sink, outermost: None, calls: Vec::new() }
    }

    /// Names the run. `nesting` is that of the tool call that it works for; `turns` is not 0 for a
    /// resumed run.
    pub(super) fn name(&mut self, id: &str, nesting: Option<(&Nesting, &str)>, turns: u32) {
        let mut path = Vec::new();
        if let Some((nesting, call)) = nesting {
            path.clone_from(&nesting.run.path);
            path.push(call.into());
            self.outermost = Some(nesting.sink.clone());
        }
        self.origin = Origin::new(id, path, Some(turns));
    }

    pub(super) fn place(&self) -> &Arc<RunPlace> {
        &self.origin.run
    }

    /// Returns the place of a run that a tool of this run starts; `None` if it would not be heard.
    pub(super) fn nesting(&self) -> Option<Nesting> {
        let sink = self.outermost.as_ref().unwrap_or(&self.sink);
        sink.is_open().then(|| Nesting { sink: sink.clone(), run: Arc::clone(&self.origin.run) })
    }

    /// `true` if a handle takes the events.
    fn is_read(&self) -> bool {
        self.sink.is_open() || self.outermost.as_ref().is_some_and(EventSink::is_open)
    }

    /// Passes an event to the handles.
    pub(super) fn send(&self, event: Event) {
        match self.outermost.as_ref().filter(|outermost| outermost.is_open()) {
            Some(outermost) if self.sink.is_open() => {
                outermost.send(event.clone().nested());
                self.sink.send(event);
            }
            Some(outermost) => outermost.send(event.nested()),
            None => self.sink.send(event),
        }
    }
}

impl Driver {
    /// `true` if an observer or a handle takes the events.
    pub(super) fn is_heard(&self) -> bool {
        self.teller.is_read() || !self.shared.config.observers.is_empty()
    }

    /// Returns the origin of an event that is built now.
    pub(super) fn origin(&self) -> Origin {
        self.teller.origin.clone()
    }

    /// Passes an event to the observers and the handles; it is built only if there are any.
    pub(super) fn tell(&mut self, event: impl FnOnce(Origin) -> Event) {
        if self.is_heard() {
            self.tell_built(event(self.origin()));
        }
    }

    fn tell_built(&mut self, event: Event) {
        if let Err(panicked) = self.shared.tell(&self.control, &event) {
            self.queue.push_back(panicked.into());
        }
        if self.teller.is_read() {
            self.teller.send(event);
        }
    }

    /// Passes on an event of the kernel.
    pub(super) fn tell_of_run(&mut self, event: RunEvent) {
        if let RunEvent::TurnStarted { turn, .. } = event {
            self.teller.origin.turn = turn;
            self.teller.calls.clear();
        }
        if !self.is_heard() {
            return;
        }
        if let Some((first, second)) = Event::of_kernel(self.origin(), event) {
            first.into_iter().for_each(|first| self.tell_built(first));
            self.tell_built(second);
        }
    }

    /// Passes on an increment of the turn.
    pub(super) fn tell_delta(&mut self, delta: &TurnDelta) {
        // An empty delta is a ping, not content.
        if delta.is_empty() {
            return;
        }
        self.tell(|origin| match delta {
            TurnDelta::Text(text) => Event::TextDelta { origin, text: text.clone() },
            TurnDelta::Reasoning(reasoning) => {
                Event::HiddenDelta { origin, reasoning: *reasoning, arguments: 0 }
            }
            TurnDelta::ToolArguments(arguments) => {
                Event::HiddenDelta { origin, reasoning: 0, arguments: *arguments }
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
        self.tell(|origin| Event::ToolCallStarted { origin, index, call_id, name });
    }

    /// Passes on a fragment of a tool call's arguments.
    pub(super) fn tell_arguments(&mut self, index: u32, arguments: String) {
        let call_id = self.teller.calls.get(index as usize).cloned().flatten();
        self.tell(|origin| Event::ToolArgumentsDelta { origin, index, call_id, arguments });
    }
}
