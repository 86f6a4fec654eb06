//! A policy that follows marks in the text: stop, tell, halt, panic.
//!
//! ```text
//! let policy = Watch { seen: Arc::default(), at_begin: false };
//! ```

use endstop_core::*;
use std::sync::{Arc, Mutex, PoisonError};

/// The calls that such a policy has seen: its whole state.
#[derive(Debug, Default)]
pub(super) struct Seen {
    text: String,
    begun: u32,
    steps: u32,
}

/// A policy that follows marks in the text.
#[derive(Clone)]
pub(super) struct Watch {
    pub(super) seen: Arc<Mutex<Seen>>,
    pub(super) at_begin: bool,
}

impl Watch {
    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TerminationPolicy for Watch {
    fn name(&self) -> &str {
        "watch"
    }
    fn should_terminate(&mut self, step: &StepResult, _: &StepContext) -> Verdict {
        self.seen().steps += 1;
        let mut text = step.output.clone().unwrap_or_default();
        step.outputs.iter().for_each(|output| text.push_str(&output.output));
        assert!(!text.contains("[late panic]"), "asked to panic");
        let ends = [
            ("[stop]", PolicyEnd::Submitted),
            ("[stuck]", PolicyEnd::NoProgress),
            ("[halt]", PolicyEnd::Halted),
        ];
        match ends.iter().find(|(mark, _)| text.contains(mark)) {
            Some((mark, end)) => {
                Verdict::Stop(Stop { ends_as: *end, ..Stop::submitted("watch", *mark).answer("a") })
            }
            None if text.contains("[tell]") => Verdict::Tell("told".to_owned()),
            None => Verdict::Continue,
        }
    }
    fn begin_turn(&mut self) {
        let begun = {
            let mut seen = self.seen();
            seen.text.clear();
            seen.begun += 1;
            seen.begun
        };
        assert!(!self.at_begin || begun < 2, "asked to panic");
    }
    fn on_delta(&mut self, piece: &str, _: &StepContext) -> Option<Stop> {
        let text = {
            let mut seen = self.seen();
            seen.text.push_str(piece);
            seen.text.clone()
        };
        assert!(!text.contains("[panic]"), "asked to panic");
        text.contains("[stop]").then(|| Stop::submitted("watch", "[stop]").answer("a"))
    }
    fn reset(&mut self) {
        *self.seen() = Seen::default();
    }
}
