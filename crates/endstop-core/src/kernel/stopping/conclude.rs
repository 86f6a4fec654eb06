//! The end of a run: stop what still runs, complete the conversation, and assemble the outcome.

use super::abort;
use crate::kernel::call::attempt::remove_opaque;
use crate::kernel::call::boundary::keep_unread;
use crate::kernel::ceilings::precheck::also_true;
use crate::kernel::context::RunContext;
use crate::kernel::effect::Effect;
use crate::kernel::outcome::decided_by::DecidedBy;
use crate::kernel::outcome::ending::{Ending, NestedEnding};
use crate::kernel::outcome::{NoProgressSnapshot, Outcome};
use crate::kernel::phase::Phase;
use crate::kernel::setup::guest_mode::Capability;
use crate::kernel::tools::background;
use crate::streaming::StreamingState;
use crate::termination::Termination;

const UNPRICED: &str =
    " (the cost of at least one call is unknown, so `max_budget_usd` was not enforced for it)";

/// Assembles the outcome, and aborts what still runs.
pub(crate) fn conclude(
    mut ending: Ending,
    phase: Phase,
    mut context: RunContext,
    effects: &mut Vec<Effect>,
) -> Outcome {
    let termination = ending.termination;
    abort(phase, termination, &mut context, effects);
    if context.state.streaming != StreamingState::Idle {
        context.state.streaming.abort();
    }
    let background = background::close(termination, &mut context, effects);
    keep_unread(&mut context);
    context.state.end(termination);
    // A rejected answer is still the work of the run, so that the caller gets it with the failure.
    if !termination.is_success() {
        if let Some(answer) = context.verdicts.rejected.take() {
            ending.complete(&answer);
        }
    }
    // Computed after the last call was booked, so that its cost counts.
    let also = also(&ending, &context);
    // Fall back to an outranked failure's details: they are lost otherwise.
    let diagnostic = ending
        .diagnostic
        .or_else(|| ending.outranked.into_iter().find_map(|outranked| outranked.diagnostic));
    let (last_text, snapshot) = answer_and_proof(termination, ending.nested, &mut context);
    // The savings of calls with different prices cannot be computed from their sum.
    let prices_differ = context.guest.prices_differ || context.models.changed;
    let one_price = context.ledger.price.filter(|_| !prices_differ);
    if context.models.current > 0 {
        // The next run of the conversation begins with another model.
        remove_opaque(&mut context);
    }
    let names_models = context.models.changed || !context.settings.fallbacks.is_empty();
    let cache = context.ledger.cache_use(one_price);
    let decided_by = with_unpriced(ending.decided_by, &context);
    let (cost_upper, tokens_upper) = (context.ledger.cost_upper(), context.ledger.tokens_upper());
    // What others spent for a guest is known when they report it, and has no quote.
    let is_guest = !context.may(Capability::Loop);
    let overrun = context.ledger.overrun;
    let beyond = context.ledger.beyond_ceiling();
    Outcome {
        termination,
        decided_by,
        also,
        last_text,
        deliverable: ending.deliverable,
        summary: ending.summary,
        structured: ending.structured,
        messages: context.state.messages,
        epoch: context.state.epoch,
        signal: context.state.last_signal,
        usage: context.ledger.usage,
        cache,
        cost: context.ledger.spent,
        cost_upper,
        cost_unknown: context.ledger.cost_unknown,
        tokens_upper,
        overrun: if is_guest { overrun.max(beyond) } else { overrun },
        duration: context.now,
        suspended: context.suspended,
        turns: context.counts.turns,
        model_calls: context.counts.model_calls,
        tool_calls: context.counts.tool_calls,
        compactions: context.compactions.tried,
        fired: context.judge.into_rule_hits(),
        retry_after: ending.retry_after,
        no_progress_snapshot: snapshot,
        error_diagnostic: diagnostic,
        would_fit: ending.would_fit,
        halted_reason: ending.halted_reason,
        model: context.said.model.or(context.settings.model),
        provider: context.settings.provider,
        models: if names_models { context.models.used } else { Vec::new() },
        run_id: context.settings.run_id,
        verified: context.verdicts.last(),
        verify_rounds: context.verdicts.rounds,
        hand_over: context.hand_over.text,
        branched_from: context.settings.branched_from.map(|point| *point),
        background,
    }
}

/// Returns the last text and the proof of missing progress. Those of a nested run are of the
/// conversation that decided.
fn answer_and_proof(
    termination: Termination,
    nested: Option<Box<NestedEnding>>,
    context: &mut RunContext,
) -> (Option<String>, Option<NoProgressSnapshot>) {
    let last_text = context.said.take_last_text();
    match nested {
        Some(nested) => (nested.last_text.or(last_text), nested.no_progress_snapshot),
        None if termination == Termination::ErrorNoProgress => {
            (last_text, context.judge.no_progress_snapshot().cloned())
        }
        None => (last_text, None),
    }
}

/// Adds to the evidence that a cost ceiling did not cover all calls of a guest. A driver that owns
/// the loop refuses a ceiling without a price; a guest learns the model only with each call.
fn with_unpriced(mut decided_by: DecidedBy, context: &RunContext) -> DecidedBy {
    let ledger = &context.ledger;
    let unpriced = ledger.max_usd.is_some() && ledger.cost_upper().is_none();
    // The evidence of a nested run may state it already.
    if !context.may(Capability::Loop) && unpriced && !decided_by.evidence.ends_with(UNPRICED) {
        decided_by.evidence.push_str(UNPRICED);
    }
    decided_by
}

/// Returns the other terminations that are true of the run, each once.
fn also(ending: &Ending, context: &RunContext) -> Vec<Termination> {
    let termination = ending.termination;
    let mut also: Vec<Termination> = Vec::new();
    for other in also_true(context).into_iter().chain(ending.outranked_terminations()) {
        // A success in the last allowed turn has not exceeded the turn limit.
        let crossed = other != Termination::ErrorMaxTurns || !termination.is_success();
        if crossed && other != termination && !also.contains(&other) {
            also.push(other);
        }
    }
    also
}
