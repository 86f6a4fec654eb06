//! The request for a hand-over: its message, its output cap and the room that other calls leave for it.
//!
//! ```text
//! ask: prompt at most 3021 tokens with the request, 1024 tokens of output
//! ```

use super::ledger::{Ask, LaterCall};
use super::quote::clamped;
use crate::kernel::context::RunContext;
use crate::termination::Termination;

/// Maximum visible output of the hand-over, in tokens.
const OUTPUT: u64 = 1024;
/// Upper bound on the tokens of the request.
const REQUEST: u64 = 512;

/// Returns the message that asks for the hand-over.
pub(crate) fn request(termination: Termination) -> String {
    let limit = match termination {
        Termination::ErrorMaxTurns => "number of turns",
        Termination::ErrorMaxBudgetUsd => "cost",
        Termination::ErrorMaxTokens => "number of tokens",
        _ => "time",
    };
    format!(
        "This run ends now, because its limit on the {limit} is reached. Do not call tools. Write a short hand-over, from which another person or program can continue: what is done, what is open, and what to do next. Do not claim more than the results above show."
    )
}

/// Returns the largest output of the hand-over: a short text after the reasoning.
fn output(context: &RunContext) -> u64 {
    let most = OUTPUT.saturating_add(context.settings.thinking_budget);
    most.min(context.output_cap.unwrap_or(u64::MAX))
}

/// Returns the room that another call must leave for the hand-over, if the run asks for one.
pub(crate) fn later_call(context: &RunContext) -> Option<LaterCall> {
    context.wraps_up().then(|| LaterCall { more: REQUEST, output: output(context) })
}

/// Builds the quote request. `requested`: the conversation contains the request already.
pub(crate) fn ask(requested: bool, context: &mut RunContext) -> Ask {
    let more = if requested { 0 } else { REQUEST };
    let prompt = context.prompt_bound().saturating_add(more);
    let cap = clamped(output(context), context);
    Ask { prompt, cap, thinking_budget: context.settings.thinking_budget }
}

#[cfg(test)]
mod tests {
    use super::{REQUEST, request};
    use crate::message::{Message, MessageId, Role};
    use crate::termination::Termination;

    #[test]
    fn request_is_within_its_bound() {
        for termination in Termination::all() {
            let text = request(*termination);
            let message = Message::text(MessageId(u64::MAX), Role::User, text);
            assert!(message.token_bound(crate::media::ImageTokens::default()) <= REQUEST);
        }
    }
}
