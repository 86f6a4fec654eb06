//! The rest of the limits, as a message for the model (`tell_remaining`).
//!
//! ```text
//! Left in this run: 3 of 25 turns, $0.412 of $2.00, 4 min of 10 min.
//! ```
//!
//! The text is a new message at the end of the conversation, so that the prompts before it stay as they
//! were, and a provider's cache of them stays valid.

use crate::kernel::context::RunContext;
use crate::usage::NanoUsd;
use std::time::Duration;

/// Returns the message before the next turn; `None` if there is nothing to tell.
pub(crate) fn remaining(context: &RunContext) -> Option<String> {
    let limits = &context.settings.limits;
    // A paused turn must be sent back unchanged.
    if !limits.tell_remaining || context.counts.pauses > 0 {
        return None;
    }
    let ledger = &context.ledger;
    let mut left = Vec::new();
    if let Some(most) = limits.max_turns {
        left.push(format!("{} of {most} turns", most.saturating_sub(context.counts.turns)));
    }
    if let Some(most) = ledger.max_usd {
        left.push(format!("{} of {most}", cents(most.saturating_sub(ledger.committed()))));
    }
    if let Some(most) = ledger.max_tokens {
        let tokens = most.saturating_sub(ledger.committed_tokens());
        left.push(format!("{tokens} of {most} {}tokens", ledger.counts.qualifier()));
    }
    if let Some(most) = limits.timeout {
        left.push(format!("{} of {}", shown(most.saturating_sub(context.now)), shown(most)));
    }
    (!left.is_empty()).then(|| format!("Left in this run: {}.", left.join(", ")))
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
