//! The origin and the readers of a run's events.
//!
//! ```text
//! if teller.is_read() { teller.send(event); } // to the handle of the run, and to the outermost
//! ```

use crate::event::queue::{EventSink, Nesting};
use crate::event::{AgentEvent, CallId, Origin, RunPlace};
use std::sync::Arc;

/// The origin and the readers of a run's events.
pub(super) struct Teller {
    /// The run and its current turn.
    pub(super) origin: Origin,
    /// The queue of the run's own handle.
    sink: EventSink,
    /// The queue of the outermost run, if this run is nested in it.
    outermost: Option<EventSink>,
    /// The ids of the calls that the model is writing, by position.
    pub(super) calls: Vec<Option<CallId>>,
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
    pub(super) fn is_read(&self) -> bool {
        self.sink.is_open() || self.outermost.as_ref().is_some_and(EventSink::is_open)
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
}
