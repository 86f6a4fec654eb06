//! The pause until a window of the subscription begins anew, and the ending if the run does not wait for it.

use super::windows::Reached;
use crate::kernel::context::RunContext;
use crate::kernel::effect::{Effect, RunEvent};
use crate::kernel::phase::{Before, Phase};
use crate::kernel::setup::guest_mode::Capability;
use std::time::Duration;

/// A wait for a window that begins anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// The time at which it ends, since the run began.
    pub until: Duration,
    /// Description of the window.
    pub evidence: String,
}

fn reached(context: &RunContext, now: Duration) -> Option<Reached<'_>> {
    context.windows.reached(&context.settings.limits.max_window?, now)
}

/// Returns the pause that the run makes before its next call, if it makes one. None if the run's deadline comes before
/// the reset: it ends at once instead of after an idle wait.
pub(crate) fn pause(context: &RunContext, now: Duration) -> Option<Pause> {
    if !context.settings.limits.wait_for_window || !context.may(Capability::Wait) {
        return None;
    }
    let reached = reached(context, now)?;
    let until = now.checked_add(reached.left?)?;
    let is_in_time = context.deadline().is_none_or(|deadline| until < deadline);
    is_in_time.then(|| Pause { until, evidence: reached.evidence() })
}

/// Begins the pause of a run.
pub(crate) fn begin_pause(
    pause: Pause,
    before: Before,
    context: &RunContext,
    effects: &mut Vec<Effect>,
) -> Phase {
    let Pause { until, evidence } = pause;
    let wait = until.saturating_sub(context.now);
    let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    effects.push(Effect::Emit(RunEvent::Paused { wait_ms, evidence }));
    Phase::Backoff { until, before }
}

/// Describes the window, if the share that may be used of it is reached.
pub(crate) fn window_used(context: &RunContext) -> Option<String> {
    reached(context, context.now).map(|reached| reached.evidence())
}

/// Returns the time until the window begins anew.
pub(crate) fn window_left(context: &RunContext) -> Option<Duration> {
    reached(context, context.now)?.left
}
