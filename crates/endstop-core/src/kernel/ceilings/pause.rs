//! The pause until a window of the subscription begins anew or the spending is below a rate, and the ending if the run does not
//! wait for it.

use super::rates::ReachedRate;
use super::windows::Reached;
use crate::kernel::context::RunContext;
use crate::kernel::effect::{Effect, RunEvent};
use crate::kernel::outcome::ending::{Ending, Flow};
use crate::kernel::phase::{Before, Phase};
use crate::kernel::setup::guest_mode::Capability;
use crate::limits::Limit;
use crate::termination::Termination;
use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

/// A wait before a model call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// The time at which it ends, since the run began.
    pub until: Duration,
    /// `max_window` or `max_rate`.
    pub limit: Limit,
    /// Description of the window or the rate.
    pub evidence: String,
}

fn reached(context: &RunContext, now: Duration) -> Option<Reached<'_>> {
    context.windows.reached(&context.settings.limits.max_window?, now)
}

/// Returns the pause that the run makes before its next call, if it makes one. None if the run's deadline comes before
/// its end: the run ends at once instead of after an idle wait.
pub(crate) fn pause(context: &RunContext, now: Duration) -> Option<Pause> {
    let (window, rate) = (window_pause(context, now), rate_pause(context, now));
    window.into_iter().chain(rate).max_by_key(|pause| pause.until)
}

/// The same, for a window of the subscription only.
pub(crate) fn window_pause(context: &RunContext, now: Duration) -> Option<Pause> {
    if !context.settings.limits.wait_for_window {
        return None;
    }
    let reached = reached(context, now)?;
    let until = now.checked_add(reached.left?)?;
    may_wait(context, until).then(|| Pause {
        until,
        limit: Limit::MaxWindow,
        evidence: reached.evidence(),
    })
}

fn rate_pause(context: &RunContext, now: Duration) -> Option<Pause> {
    let ReachedRate { until, evidence } = reached_rate(context, now)?;
    may_wait(context, until).then_some(Pause { until, limit: Limit::MaxRate, evidence })
}

/// `true` if the run can wait until then.
fn may_wait(context: &RunContext, until: Duration) -> bool {
    context.may(Capability::Wait) && context.deadline().is_none_or(|deadline| until < deadline)
}

/// Begins the pause of a run.
pub(crate) fn begin_pause(
    pause: Pause,
    before: Before,
    context: &RunContext,
    effects: &mut Vec<Effect>,
) -> Phase {
    let Pause { until, evidence, .. } = pause;
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

/// Returns the rate that a call at this time must wait for.
fn reached_rate(context: &RunContext, now: Duration) -> Option<ReachedRate> {
    context.recent.reached(&context.settings.limits.max_rate?, now)
}

/// Ends the run if its deadline comes before its next call: an idle wait would end there as well.
pub(crate) fn check_rate(context: &RunContext) -> Flow {
    let Some(deadline) = context.deadline() else { return Continue(()) };
    let reached = reached_rate(context, context.now).filter(|reached| reached.until >= deadline);
    let Some(ReachedRate { until, evidence }) = reached else { return Continue(()) };
    let wait = until.saturating_sub(context.now);
    let left = deadline.saturating_sub(context.now);
    let evidence = format!(
        "the next call must wait {wait:?} ({evidence}), and {left:?} of {deadline:?} are left"
    );
    let mut ending = Ending::at_limit(Limit::Timeout, Termination::ErrorTimeout, evidence);
    ending.retry_after = Some(wait);
    Break(ending)
}
