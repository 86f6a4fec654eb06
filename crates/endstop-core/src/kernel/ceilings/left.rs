//! What is left of the limits, as the model is informed: before each turn (`tell_remaining`), or once when a limit is nearly
//! used up (`warn_model`).

use crate::kernel::ceilings::precheck::{CheckState, PRE_TURN};
use crate::kernel::context::RunContext;
use crate::kernel::setup::guest_mode::Capability;
use crate::limits::Limit;
use crate::usage::NanoUsd;
use std::time::Duration;

/// The shares of a limit at which the model is warned, in percent.
const WARNED_AT: [u8; 2] = [80, 95];

/// A limit of which the model can be informed, and what is left of it.
type Told = (Limit, fn(&RunContext) -> Option<String>);

const TOLD: [Told; 5] = [
    (Limit::MaxTurns, |context| {
        let most = context.settings.limits.max_turns?;
        Some(format!("{} of {most} turns", most.saturating_sub(context.counts.turns)))
    }),
    (Limit::MaxToolCalls, |context| {
        let most = context.settings.limits.max_tool_calls?;
        Some(format!("{} of {most} tool calls", most.saturating_sub(context.counts.started)))
    }),
    (Limit::MaxBudgetUsd, |context| {
        let most = context.ledger.max_usd?;
        let left = most.saturating_sub(context.ledger.committed());
        Some(format!("{} of {most}", cents(left)))
    }),
    (Limit::MaxTokens, |context| {
        let most = context.ledger.max_tokens?;
        let left = most.saturating_sub(context.ledger.committed_tokens());
        Some(format!("{left} of {most} {}tokens", context.ledger.counts.qualifier()))
    }),
    (Limit::Timeout, |context| {
        let most = context.settings.limits.timeout?;
        Some(format!("{} of {}", shown(most.saturating_sub(context.now)), shown(most)))
    }),
];

/// Returns the message before the next turn; `None` if there is nothing to tell.
pub(crate) fn remaining(context: &RunContext) -> Option<String> {
    // A paused turn must be sent back unchanged.
    if !context.settings.limits.tell_remaining || context.counts.pauses > 0 {
        return None;
    }
    let left: Vec<String> = TOLD.iter().filter_map(|(_, left)| left(context)).collect();
    (!left.is_empty()).then(|| format!("Left in this run: {}.", left.join(", ")))
}

/// Returns the warning before the next call, if a limit has passed a share for the first time.
pub(crate) fn warning(context: &mut RunContext) -> Option<String> {
    let is_asked = context.settings.limits.warn_model && context.may(Capability::Warn);
    if !is_asked || context.counts.pauses > 0 {
        return None;
    }
    let told = |limit| TOLD.iter().find(|(told, _)| *told == limit);
    let states = PRE_TURN.iter().filter(|check| told(check.limit).is_some());
    let states: Vec<_> = states.map(|check| check.state(context)).collect();
    let amounts = states.iter().filter_map(|state| Some((state.limit, used(state), state.max?)));
    let crossed = context.near.crossed(amounts, &WARNED_AT);
    let left = crossed.iter().filter_map(|one| told(one.limit)?.1(context));
    let left = left.collect::<Vec<_>>().join(", ");
    let percent = crossed.iter().map(|one| one.percent).max()?;
    let advice = if percent == WARNED_AT[0] {
        "Plan the rest so that you finish before the limit ends the run."
    } else {
        "The limit will end the run: finish now, and state what is not done."
    };
    Some(format!("This run is near a limit. Left: {left}. {advice}"))
}

/// The used part of a limit. Before its last turn or call it counts as used up, because no share of a small number is passed
/// earlier: 3 of 4 are 75 %.
fn used(state: &CheckState) -> f64 {
    let is_count = matches!(state.unit, "turns" | "times");
    match state.max {
        Some(max) if is_count && state.value >= 1.0 && state.value + 1.0 >= max => max,
        _ => state.value,
    }
}

/// Rounds down to a tenth of a cent, because more digits tell the model nothing.
fn cents(amount: NanoUsd) -> NanoUsd {
    NanoUsd(amount.0 / 1_000_000 * 1_000_000)
}

/// Rounds down to whole seconds, or to whole minutes from ten minutes on.
fn shown(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds >= 600 => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}
