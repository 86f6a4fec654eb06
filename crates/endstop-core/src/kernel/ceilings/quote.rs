//! Quotes for the next model call: the requested prompt and output, and the message if it does not
//! fit.
//!
//! ```text
//! ask: prompt at most 1021 tokens, the caller's cap 4096
//! cap: min(4096, the model's maximum output, the rest of the context window)
//! ```
//!
//! The ledger computes the quote; a ceiling lowers the cap only if the remaining budget does not
//! pay for it.
//! The request for a hand-over has a quote too, and other calls leave room for it.

use super::ledger::{Ask, Ceiling, Granted, LEAST_OUTPUT, LaterCall, Ledger, Short};
use crate::kernel::context::RunContext;
use crate::kernel::event::BudgetAccount;
use crate::kernel::outcome::WouldFit;
use crate::kernel::outcome::decided_by::Layer;
use crate::kernel::outcome::ending::Ending;
use crate::kernel::setup::guest_mode::Capability;
use crate::limits::TokensCounted;
use crate::media::{Attachment, Document, Image};
use crate::message::Part;
use crate::termination::Termination;
use crate::usage::NanoUsd;

/// Default output cap under the run's own ceilings if neither the caller nor the model sets one.
/// Not the whole remaining budget, because an aborted call counts with its full reservation.
const USUAL_OUTPUT: u64 = 32_768;
/// The same under a shared budget. Smaller, because other runs need a part of the budget at the
/// same time.
pub(crate) const USUAL_SHARED_OUTPUT: u64 = 8192;
/// Tokens that a provider may add to a prompt for its message framing, on top of the estimate.
const FRAME: u64 = 64;

/// The default output cap for a ceiling, if neither the caller nor the model sets one; `None`
/// if no ceiling applies to the next call.
pub(crate) fn usual_output(context: &RunContext) -> Option<u64> {
    let Ledger { max_usd, max_tokens, price, .. } = &context.ledger;
    let ceiling = max_tokens.is_some() || (max_usd.is_some() && price.is_some());
    match (context.settings.reserve, context.settings.shared_budget) {
        (true, true) => Some(USUAL_SHARED_OUTPUT),
        (true, false) if ceiling => Some(USUAL_OUTPUT),
        _ => None,
    }
}

/// Builds the quote request for the next call.
pub(crate) fn ask(usual: u64, context: &mut RunContext) -> Ask {
    let prompt = context.prompt_bound();
    // Leave room for an answer after the reasoning.
    let usual = usual.max(context.settings.thinking_budget.saturating_add(LEAST_OUTPUT));
    let cap = context.output_cap.or(context.settings.max_output).unwrap_or(usual);
    Ask { prompt, cap: clamped(cap, context), thinking_budget: context.settings.thinking_budget }
}

/// The caller's output cap, limited to what the model can generate.
pub(crate) fn own_cap(context: &mut RunContext) -> Option<u64> {
    let cap = context.output_cap?;
    Some(clamped(cap, context))
}

/// Limits a cap to the model's maximum output and to the free part of the context window. This
/// is not reported as a lowered cap, because the model could not generate more anyway.
fn clamped(cap: u64, context: &mut RunContext) -> u64 {
    // A guest's client has chosen its cap for its own window, and knows that better.
    if !context.may(Capability::Loop) {
        return cap;
    }
    let room = room(context).unwrap_or(u64::MAX);
    cap.min(context.settings.max_output.unwrap_or(u64::MAX)).min(room)
}

/// The free part of the context window, from the provider's last count and an estimate of the
/// text added since. Counting bytes as tokens here would overestimate about four times, and
/// leave no room for the answer.
pub(crate) fn room(context: &mut RunContext) -> Option<u64> {
    let window = context.settings.context_window?;
    let (counted, new) = match context.prompt.known() {
        Some((tokens, _)) => (tokens, context.prompt_bound().saturating_sub(tokens)),
        None => (0, context.prompt_bound()),
    };
    let left = |new: u64| window.saturating_sub(counted).saturating_sub(new);
    // Assume one token for three bytes, which is more than usual. If that takes most of what
    // one token for four bytes would leave, the estimate is too coarse to shorten the answer by
    // it.
    let careful = left((new / 3).saturating_add(FRAME));
    // Never below the smallest useful cap: a prompt that really does not fit is the provider's
    // to refuse.
    let least = LEAST_OUTPUT.max(context.settings.thinking_budget).min(window);
    Some(careful.max(left(new / 4) / 2).max(least))
}

/// Builds the ending for a call that does not fit: its bounds and the remaining amount, as a
/// sum that the reader can check. `refused_by` is the account of a shared budget that refused.
pub(crate) fn does_not_fit(
    short: Short,
    refused_by: Option<BudgetAccount>,
    context: &RunContext,
) -> Box<Ending> {
    let Short { ceiling, prompt, output, left, kept } = short;
    let by = if context.prompt.known().is_some() { "with new text by bytes" } else { "by bytes" };
    let shared = matches!(ceiling, Ceiling::SharedUsd | Ceiling::SharedTokens);
    let price = context.ledger.price.unwrap_or_default();
    let mut fits = WouldFit::default();
    let (sum, more) = match ceiling {
        Ceiling::Usd | Ceiling::SharedUsd => {
            let need = price.worst(prompt, output) + kept.usd;
            if shared {
                let ceiling = refused_by.as_ref().and_then(|account| account.ceiling);
                fits.shared_budget = ceiling.map(|all| shown(all.saturating_sub(left.usd) + need));
            } else {
                fits.max_budget = Some(shown(context.ledger.committed() + need));
            }
            let alone = left.usd.saturating_sub(kept.usd);
            fits.max_output_tokens = price.affordable(prompt, alone);
            // The size of the prompt may select the price of the output, too.
            let part = price.up_to_prompt(prompt);
            let (of_prompt, of_output) = (part.worst(prompt, 0), part.worst(0, output));
            let sum = format!(
                "prompt at most {prompt} tokens {by} {of_prompt} + {output} tokens of output {of_output}{} > {} left",
                for_hand_over(kept.usd > NanoUsd::ZERO, &kept.usd),
                left.usd
            );
            (sum, context.ledger.more_spent())
        }
        Ceiling::Tokens | Ceiling::SharedTokens => {
            let left = left.tokens.unwrap_or_default();
            let kept = kept.tokens.unwrap_or_default();
            let counts = if shared { TokensCounted::All } else { context.ledger.counts };
            let of_prompt = counts.of_prompt(prompt);
            let need = of_prompt.saturating_add(output).saturating_add(kept);
            if shared {
                let ceiling = refused_by.as_ref().and_then(|account| account.ceiling_tokens);
                let used = ceiling.map(|all| all.saturating_sub(left));
                fits.shared_tokens = used.map(|used| used.saturating_add(need));
            } else {
                fits.max_tokens = Some(context.ledger.committed_tokens().saturating_add(need));
            }
            fits.max_output_tokens = left.checked_sub(of_prompt.saturating_add(kept));
            let counted = match counts {
                TokensCounted::Output => String::new(),
                TokensCounted::All | TokensCounted::Uncached => {
                    format!("prompt at most {prompt} tokens {by} + ")
                }
            };
            let sum = format!(
                "{counted}{output} tokens of output{} > {left} {}tokens left",
                for_hand_over(kept > 0, &kept),
                counts.qualifier()
            );
            (sum, context.ledger.more_used())
        }
    };
    // A cap below the thinking budget would leave no room for an answer.
    let enough = |cap: &u64| *cap > context.settings.thinking_budget && *cap < output;
    fits.max_output_tokens = fits.max_output_tokens.filter(enough);
    let mut evidence = format!("the next call does not fit: {sum}");
    if shared {
        evidence += &in_shared(ceiling, left, refused_by);
    }
    evidence += &media(context);
    if let Some(more) = more {
        evidence = format!("{evidence} ({more})");
    }
    let mut ending = Ending::new(ceiling.termination(), Layer::Limit, ceiling.decision(), evidence);
    ending.would_fit = Some(fits);
    ending
}

/// Describes the amount that is kept for the hand-over, if there is any.
fn for_hand_over(kept: bool, amount: &dyn std::fmt::Display) -> String {
    if kept { format!(" + {amount} for the hand-over") } else { String::new() }
}

/// Rounds an amount up to the next micro-dollar, because messages show six decimals and the shown
/// number must be enough.
fn shown(amount: NanoUsd) -> NanoUsd {
    NanoUsd(amount.0.div_ceil(1_000).saturating_mul(1_000))
}

/// Describes the ceiling of a shared budget, and what other runs have reserved of it. It is not this
/// run's spending, so the reader could not check the sum without it.
pub(super) fn in_shared(ceiling: Ceiling, left: Granted, account: Option<BudgetAccount>) -> String {
    let account = account.unwrap_or_default();
    let (of, used, reserved) = match ceiling {
        Ceiling::Tokens | Ceiling::SharedTokens => {
            let (reserved, left) = (account.reserved_tokens, left.tokens.unwrap_or_default());
            let used = |all: u64| all.saturating_sub(left).saturating_sub(reserved);
            (
                account.ceiling_tokens.map(|all| all.to_string()),
                account.ceiling_tokens.map(|all| format!("{} tokens are", used(all))),
                (reserved > 0).then(|| format!("{reserved} tokens are")),
            )
        }
        Ceiling::Usd | Ceiling::SharedUsd => {
            let reserved = account.reserved;
            let used = |all: NanoUsd| all.saturating_sub(left.usd).saturating_sub(reserved);
            (
                account.ceiling.map(|all| all.to_string()),
                account.ceiling.map(|all| format!("{} is", used(all))),
                (reserved > NanoUsd::ZERO).then(|| format!("{reserved} is")),
            )
        }
    };
    let of = of.map_or(String::new(), |all| format!(" of {all}"));
    let reserved = reserved
        .map_or(String::new(), |part| format!("; {part} reserved by other calls in flight"));
    let Some(name) = account.name else { return format!("{of} in the shared budget{reserved}") };
    let used = used.map_or(String::new(), |part| format!("; {part} used"));
    let resets = account.resets.map_or(String::new(), |time| format!("; it resets at {time}"));
    format!("{of} in {name}{used}{reserved}{resets}")
}

/// Describes the images and documents that the bound on the prompt includes, because they may be most
/// of it. The provider has counted those of earlier prompts.
fn media(context: &RunContext) -> String {
    let rule = context.settings.image_tokens;
    let covered = context.prompt.known().map_or(0, |(_, covered)| covered);
    let (mut images, mut documents, mut tokens) = (0_u64, 0_u64, 0_u64);
    let mut add = |attachment: AttachmentRef<'_>| {
        let (count, bound) = match attachment {
            AttachmentRef::Image(image) => (&mut images, rule.of_image(image)),
            AttachmentRef::Document(document) => (&mut documents, rule.of_document(document)),
        };
        *count += 1;
        tokens = tokens.saturating_add(bound);
    };
    let new = context.state.messages.get(covered..).unwrap_or_default();
    for part in new.iter().flat_map(|message| &message.parts) {
        match part {
            Part::Image(image) => add(AttachmentRef::Image(image)),
            Part::Document(document) => add(AttachmentRef::Document(document)),
            Part::ToolResult(result) => {
                for attachment in &result.attachments {
                    match attachment {
                        Attachment::Image(image) => add(AttachmentRef::Image(image)),
                        Attachment::Document(document) => add(AttachmentRef::Document(document)),
                    }
                }
            }
            _ => {}
        }
    }
    let counted = |count: u64, what: &str| {
        let plural = if count == 1 { "" } else { "s" };
        (count > 0).then(|| format!("{count} {what}{plural}"))
    };
    let of: Vec<String> =
        counted(images, "image").into_iter().chain(counted(documents, "document")).collect();
    if of.is_empty() {
        return String::new();
    }
    format!("; the prompt includes at most {tokens} tokens for {}", of.join(" and "))
}

/// An image or a document of a message or of a tool's result.
enum AttachmentRef<'a> {
    Image(&'a Image),
    Document(&'a Document),
}

/// Maximum visible output of the hand-over, in tokens.
const OUTPUT: u64 = 1024;
/// Upper bound on the tokens of the request.
const REQUEST: u64 = 512;

/// Returns the message that asks for the hand-over.
pub(crate) fn hand_over_request(termination: Termination) -> String {
    let limit = match termination {
        Termination::ErrorMaxTurns => "number of turns",
        Termination::ErrorMaxToolCalls => "number of tool calls",
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
pub(crate) fn ask_hand_over(requested: bool, context: &mut RunContext) -> Ask {
    let more = if requested { 0 } else { REQUEST };
    let prompt = context.prompt_bound().saturating_add(more);
    let cap = clamped(output(context), context);
    Ask { prompt, cap, thinking_budget: context.settings.thinking_budget }
}

#[cfg(test)]
mod tests {
    use super::{REQUEST, hand_over_request};
    use crate::message::{Message, MessageId, Role};
    use crate::termination::Termination;

    #[test]
    fn request_is_within_its_bound() {
        for termination in Termination::all() {
            let text = hand_over_request(*termination);
            let message = Message::text(MessageId(u64::MAX), Role::User, text);
            assert!(message.token_bound(crate::media::ImageTokens::default()) <= REQUEST);
        }
    }
}
