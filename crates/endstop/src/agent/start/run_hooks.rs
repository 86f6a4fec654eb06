//! The hooks of one run that need more than the points of the kernel: those that receive the events,
//! and those that see the requests.
//!
//! ```text
//! let hooks = RunHooks { on_event, fixed };
//! hooks.tell(&control, provider, &event)?;
//! ```

use super::consult::FixedRequest;
use crate::agent::user_code::{self, Panicked};
use crate::control::{Control, Request};
use crate::event::AgentEvent;
use crate::hook::Hook;
use crate::provider::Provider;
use std::sync::Arc;

/// The hooks of a run that need more than the points of the kernel.
#[derive(Default)]
pub(in crate::agent) struct RunHooks {
    /// The hooks that receive the events.
    pub(in crate::agent) on_event: Vec<Arc<dyn Hook>>,
    /// The fixed part of the requests, if there is a `pre_call` hook.
    pub(in crate::agent) fixed: Option<Arc<FixedRequest>>,
}

impl RunHooks {
    /// Passes an event to the hooks that receive events, unless the run was terminated.
    ///
    /// # Errors
    /// A hook panicked; the remaining hooks still receive the event.
    pub(in crate::agent) fn tell(
        &self,
        control: &Control,
        provider: &dyn Provider,
        event: &AgentEvent,
    ) -> Result<(), Panicked> {
        let mut told = Ok(());
        for hook in &self.on_event {
            let heard = control.start(Request::Terminate, || {
                user_code::guard(provider, "on_event", "a hook", || hook.on_event(event))
            });
            let Some(heard) = heard else { break };
            told = told.and(heard);
        }
        told
    }
}
