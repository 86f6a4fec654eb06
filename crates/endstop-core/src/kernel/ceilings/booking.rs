//! The cost of a model call: what it used, as far as the provider reports it, and what it may have
//! used beyond that.

use crate::error_class::ModelError;
use crate::kernel::context::RunContext;
use crate::kernel::effect::Effect;
use crate::kernel::phase::Call;
use crate::kernel::setup::guest_mode::Capability;
use crate::message::{ModelTurn, Part};
use crate::signal::SignalReason;
use crate::usage::{Billing, NanoUsd, Unreported, Usage};
use crate::visible::is_blank;

/// Books the usage of a call. Settles its reservation with the same amount plus the possible
/// unreported usage, because a shared budget must never assume less than what may be billed.
fn settle(
    call: &Call,
    usage: &Usage,
    cost: Option<NanoUsd>,
    unreported: Unreported,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) {
    let bounds = (call.quote, most_output(call, context));
    let spent = context.book(|ledger| ledger.settle(usage, cost, unreported, bounds));
    // A bill below the list price is bounded by it, but not known.
    let bill_unknown = usage.billing != Billing::ByTokens;
    context.ledger.cost_unknown |= bill_unknown;
    let unknown = bill_unknown || unreported.cost != Some(NanoUsd::ZERO);
    context.models.settled(usage, spent, unknown);
    if let Some(id) = call.reservation {
        let spent = spent + unreported.cost.unwrap_or_default();
        let tokens = usage.total_tokens().saturating_add(unreported.tokens.unwrap_or(0));
        effects.push(Effect::Settle { id, spent, tokens });
    }
}

/// Books a response. Returns its usage, which is estimated as far as the provider did not report
/// it.
pub(crate) fn book_response(
    call: &Call,
    turn: &ModelTurn,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Usage {
    let complete = is_complete(&turn.usage);
    // Only runs that reserve need an estimate; a recorded run keeps the recorded usage.
    let usage = if complete || !context.settings.reserve {
        turn.usage.clone()
    } else {
        estimate(call, Some(turn), context)
    };
    let more = if complete {
        all_reported(&usage, turn.cost, context)
    } else {
        // Upper bound on the output: a token has at least one byte. A response that was cut at
        // a limit, or that shows nothing, may have generated everything it was allowed to.
        let cut = turn.signal.reason == SignalReason::TokenLimitReached;
        let empty = is_blank(&turn.text()) && turn.tool_calls().next().is_none();
        let shown = turn.parts.iter().map(Part::byte_len).sum::<u64>();
        let shown = shown.saturating_add(call.hidden.saturating_mul(4));
        let most = most_output(call, context);
        // A guest with a strict ceiling: its client may use a model whose reasoning is billed, and
        // neither shown nor counted.
        let strict = !context.may(Capability::Loop) && context.may(Capability::Cap);
        let most = if cut || empty || strict {
            most
        } else {
            Some(most.map_or(shown, |most| most.min(shown)))
        };
        unreported(call, (&turn.usage, &usage), turn.cost, most, context)
    };
    settle(call, &usage, turn.cost, more, context, effects);
    // The cost of a response without a usage report is unknown, however tight its bound is.
    let not_counted = !complete && turn.cost.is_none();
    context.ledger.cost_unknown |= not_counted;
    context.models.settled(&Usage::default(), NanoUsd::ZERO, not_counted);
    turn.signal.keep_in(&mut context.state.last_signal);
    if turn.model.is_some() {
        context.said.model.clone_from(&turn.model);
    }
    usage
}

/// Upper bound on the usage of a call beyond `known`. `reported` is the part that the provider
/// reported, `output` the maximum number of tokens that the call generated.
fn unreported(
    call: &Call,
    (reported, known): (&Usage, &Usage),
    cost: Option<NanoUsd>,
    output: Option<u64>,
    context: &RunContext,
) -> Unreported {
    let counted = reported.input_tokens.is_some();
    let prompt = if counted { reported.prompt_tokens() } else { call.prompt_bound };
    let tokens = output.map(|output| prompt.saturating_add(output));
    let upper = context.ledger.price.and_then(|price| {
        // Free output needs no bound: its cost is zero however long it was.
        let output = output.or((price.output == NanoUsd::ZERO).then_some(0))?;
        Some(if counted {
            let (output_tokens, reasoning_tokens) = (Some(output), None);
            price.cost(&Usage { output_tokens, reasoning_tokens, ..reported.clone() })
        } else {
            price.worst(call.prompt_bound, output)
        })
    });
    let booked = context.ledger.price.map(|price| price.cost(known)).unwrap_or_default();
    Unreported {
        // A cost reported by the provider is final.
        cost: match cost {
            _ if reported.billing == Billing::More => None,
            Some(_) => Some(NanoUsd::ZERO),
            None => upper.map(|upper| upper.saturating_sub(booked)),
        },
        tokens: tokens.map(|tokens| tokens.saturating_sub(known.total_tokens())),
    }
}

/// The most tokens that a call can have generated: its cap, else the model's maximum, else the
/// context window.
fn most_output(call: &Call, context: &RunContext) -> Option<u64> {
    call.cap.or(context.settings.max_output).or(context.settings.context_window)
}

/// Unreported usage of a call whose usage was reported in full: no tokens, but the cost remains
/// unknown without a price, or if the bill has parts that the price does not cover.
fn all_reported(usage: &Usage, cost: Option<NanoUsd>, context: &RunContext) -> Unreported {
    let priced = cost.is_some() || context.ledger.price.is_some() || usage.total_tokens() == 0;
    Unreported::of_unknown(!priced || usage.billing == Billing::More)
}

/// Estimates the usage of a call that ended before the provider counted: one token for every
/// four characters, at most the prompt bound and the output cap.
fn estimate(call: &Call, response: Option<&ModelTurn>, context: &RunContext) -> Usage {
    let streamed = (call.text.chars().count() as u64).saturating_add(call.hidden);
    // A response that was not streamed has no deltas, so take the larger of both counts.
    let whole = response.map_or(0, |turn| turn.parts.iter().map(chars).sum());
    let generated = streamed.max(whole).div_ceil(4);
    let reported = response.map(|turn| &turn.usage);
    let request = context.prompt.request_usage();
    let prompt = match context.prompt.known() {
        _ if request.is_some() => request.map_or(0, |usage| usage.prompt_tokens()),
        Some((tokens, covered)) => {
            let rest = context.state.messages.get(covered..).unwrap_or_default();
            let rest: u64 =
                rest.iter().map(|message| message.token_bound(context.settings.image_tokens)).sum();
            tokens.saturating_add(rest.div_ceil(4))
        }
        None => call.prompt_bound.div_ceil(4),
    };
    let mut usage = reported.cloned().unwrap_or_default();
    if usage.input_tokens.is_none() {
        usage.input_tokens = Some(prompt.min(call.prompt_bound));
        usage.estimated = true;
    }
    if usage.generated_tokens().unwrap_or(0) < generated {
        usage.reasoning_apart = false;
        usage.output_tokens = Some(generated.min(call.cap.unwrap_or(u64::MAX)));
        usage.estimated = true;
    }
    usage
}

/// Books an attempt that the kernel aborted. Only the visible output is known; the rest of the
/// reservation is booked as unreported, because hidden reasoning may have been generated and
/// billed.
pub(crate) fn settle_aborted(call: &Call, context: &mut RunContext, effects: &mut Vec<Effect>) {
    let usage = estimate(call, None, context);
    let most = most_output(call, context);
    let more = unreported(call, (&Usage::default(), &usage), None, most, context);
    settle(call, &usage, None, more, context, effects);
}

/// Books a failed attempt: as the provider reported it or, if it did not, by an estimate.
pub(crate) fn book_failure(
    call: &Call,
    error: &ModelError,
    partial: Option<&ModelTurn>,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) {
    let reported = partial.map(|turn| &turn.usage);
    let cost = partial.and_then(|turn| turn.cost);
    // A rejected request is not billed; a request that was cut is billed for what it generated.
    // A timeout or a cut stream can also come after output that was never delivered, and a response that
    // cannot be read may have any length.
    let began = !call.text.is_empty()
        || call.hidden > 0
        || error.may_be_billed()
        || partial.is_some_and(|turn| !turn.parts.is_empty());
    let usage = match reported {
        Some(usage) if is_complete(usage) => usage.clone(),
        _ if began => estimate(call, partial, context),
        reported => reported.cloned().unwrap_or_default(),
    };
    let blank = Usage::default();
    let reported = reported.unwrap_or(&blank);
    let more = if began && !is_complete(reported) {
        unreported(call, (reported, &usage), cost, most_output(call, context), context)
    } else {
        all_reported(&usage, cost, context)
    };
    settle(call, &usage, cost, more, context, effects);
}

/// Number of characters that the model generated for a part.
fn chars(part: &Part) -> u64 {
    let chars = match part {
        Part::Text { text } | Part::Reasoning { text } | Part::Refusal { text } => {
            text.chars().count()
        }
        Part::ToolCall(call) => call.name.chars().count() + call.arguments.chars().count(),
        Part::ToolResult(_) | Part::Image(_) | Part::Document(_) | Part::Opaque { .. } => 0,
    };
    chars as u64
}

/// `true` if the provider counted both the prompt and the output.
fn is_complete(usage: &Usage) -> bool {
    usage.input_tokens.is_some() && usage.generated_tokens().is_some()
}
