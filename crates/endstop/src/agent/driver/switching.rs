//! Switches the run to another of its models: closes the session of one, and opens that of the next.

use super::{Driver, in_provider};
use crate::provider::Provider;
use endstop_core::EventKind;

impl Driver {
    /// Sends later calls to a model of the run: 0 is the agent's own, and n its n-th fallback. Does
    /// nothing if that model is in use, as after a resume in the middle of a switch.
    pub(super) fn switch_model(&mut self, fallback: u32) {
        if self.fallback == fallback {
            return;
        }
        self.close();
        self.fallback = fallback;
        let config = &self.shared.config;
        let provider: &dyn Provider = &**config.provider_of(fallback);
        // Without the settings nothing was opened before either, and the run has a fault.
        let Some(spec) = self.session_spec.as_deref() else { return };
        let mut spec = spec.clone();
        spec.context_window = config.context_window_of(fallback);
        match in_provider(provider, || provider.open(spec)) {
            Ok(session) => self.session = Some(session),
            Err(panicked) => self.queue.push_back(EventKind::from(panicked)),
        }
        self.trace.switched(provider);
    }
}
