//! The hand-over: one extra model call when a ceiling ends the run, so that its work is not lost.
//!
//! ```text
//! ceiling ─► work in progress is stopped ─► pre_call? ─► reservation? ─► CallHandOver ─► the ending
//! ```
//!
//! The call is not a turn, and its text is never the answer of the run. It is paid for within the same
//! ceilings: while `wrap_up` is on, every other call leaves room for it, and the run stops working
//! before its `timeout`. If it fails, the run ends without a hand-over.

use super::abort;
use crate::error_class::ModelError;
use crate::kernel::ceilings::booking::{book_failure, book_response};
use crate::kernel::ceilings::ledger::{Granted, Quote};
use crate::kernel::ceilings::pause::window_used;
use crate::kernel::ceilings::quote::{ask_hand_over, hand_over_request, usual_output};
use crate::kernel::context::RunContext;
use crate::kernel::effect::{ConsultPoint, Effect, EffectId, InjectionReason, RunEvent};
use crate::kernel::event::{HookDecision, TurnDelta};
use crate::kernel::outcome::decided_by::{Decision, Layer};
use crate::kernel::outcome::ending::{Ending, Flow};
use crate::kernel::phase::{Call, Phase, Stage, WrapUp};
use crate::kernel::setup::spec::RunSpec;
use crate::message::{ModelTurn, Part, Role};
use crate::streaming::StreamingState;
use crate::termination::Termination;
use crate::usage::NanoUsd;
use crate::visible::{Opening, is_blank};
use std::ops::ControlFlow::{Break, Continue};

/// Ends the run with this ending, or asks for a hand-over first.
pub(crate) fn end_or_wrap_up(
    ending: Box<Ending>,
    phase: &mut Phase,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow {
    if !is_due(&ending, phase, context) {
        return Break(ending);
    }
    context.hand_over.tried = true;
    abort(phase.take(), ending.termination, context, effects);
    context.state.streaming.abort();
    // Checked before the request is appended, so that a hand-over that does not fit leaves no trace.
    if quote(false, None, context).is_none() {
        return Break(ending);
    }
    let text = hand_over_request(ending.termination);
    context.inject_message(InjectionReason::WrapUp, text, effects);
    if context.settings.hooks.pre_call {
        let id = context.effect_id();
        let turn = context.counts.turns + 1;
        let output_cap = Some(ask_hand_over(true, context).cap);
        let point = ConsultPoint::PreCall { turn, output_cap };
        effects.push(Effect::Consult { id, point });
        *phase = waiting(ending, Stage::Consulting(id));
        return Continue(());
    }
    *phase = reserve(ending, context, effects)?;
    Continue(())
}

fn waiting(ending: Box<Ending>, stage: Stage) -> Phase {
    Phase::WrappingUp(Box::new(WrapUp { ending, stage }))
}

/// `true` if a hand-over can help after this ending: a ceiling on turns, calls, cost, tokens or time that the
/// run reached itself.
fn is_due(ending: &Ending, phase: &Phase, context: &RunContext) -> bool {
    let ceiling = matches!(
        ending.termination,
        Termination::ErrorMaxTurns
            | Termination::ErrorMaxToolCalls
            | Termination::ErrorMaxBudgetUsd
            | Termination::ErrorMaxTokens
            | Termination::ErrorTimeout
    );
    // A shared budget has nothing left for this run, and a server that asked to wait would refuse.
    let own = ending.decided_by.layer == Layer::Limit
        && ending.decided_by.decision != Decision::SharedBudget
        && ending.retry_after.is_none();
    // A program whose own code fails while the run is stopped is not asked for more work.
    let faulted = ending.outranked.iter().any(|other| other.decided_by.layer == Layer::Fault);
    let in_time = context.settings.limits.timeout.is_none_or(|timeout| context.now < timeout);
    context.wraps_up()
        && ceiling
        && own
        && !faulted
        && window_used(context).is_none()
        && in_time
        && context.counts.model_calls > 0
        && !matches!(phase, Phase::WrappingUp(_))
}

/// Returns the quote of the hand-over, or `None` if it does not fit. Without a ceiling it always fits.
fn quote(
    requested: bool,
    granted: Option<Granted>,
    context: &mut RunContext,
) -> Option<Result<Quote, u64>> {
    let ask = ask_hand_over(requested, context);
    if usual_output(context).is_none() {
        return Some(Err(ask.cap));
    }
    context.ledger.quote(ask, granted, None).ok().map(Ok)
}

/// Reserves the cost of the hand-over, if the run shares a budget, and else makes the call.
fn reserve(
    ending: Box<Ending>,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Phase> {
    let Some(quoted) = quote(true, None, context) else { return Break(ending) };
    let shared = quoted.as_ref().ok().filter(|_| context.settings.shared_budget);
    if let Some(&Quote { worst, least, .. }) = shared {
        let id = context.effect_id();
        effects.push(Effect::Reserve {
            id,
            want: worst.usd,
            least: least.usd,
            want_tokens: worst.tokens.unwrap_or_default(),
            least_tokens: least.tokens.unwrap_or_default(),
        });
        return Continue(waiting(ending, Stage::Reserving(id)));
    }
    Continue(call(ending, quoted, None, context, effects))
}

/// Makes the call.
fn call(
    ending: Box<Ending>,
    quoted: Result<Quote, u64>,
    reservation: Option<EffectId>,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Phase {
    let (cap, lowered_by) = match quoted {
        Ok(quote) => (quote.output_cap, quote.lowered_by),
        Err(cap) => (cap, None),
    };
    let prompt_bound = context.prompt_bound();
    let price = context.ledger.price.filter(|_| context.settings.reserve);
    let id = context.effect_id();
    context.counts.model_calls = context.counts.model_calls.saturating_add(1);
    let RunSpec { provider, model, .. } = &context.settings;
    context.models.called(provider.as_ref(), model.as_ref());
    context.stream(StreamingState::Streaming);
    effects.push(Effect::CallHandOver { id, output_cap: Some(cap) });
    let call = Call {
        id,
        started: context.now,
        last_content: None,
        thinks_since: None,
        text: String::new(),
        opening: Opening::default(),
        shown: false,
        deferred_stop: false,
        hidden: 0,
        own_cap: Some(cap),
        cap: Some(cap),
        lowered_by,
        quote: price.map(|price| price.worst(prompt_bound, cap)),
        reservation,
        prompt_bound,
        meter: None,
    };
    waiting(ending, Stage::Calling(call))
}

/// Handles the answer of the hook that sees requests. A refusal ends the run without a hand-over.
pub(crate) fn consulted(
    ending: Box<Ending>,
    answer: HookDecision,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Phase> {
    let (notes, answer) = answer.split_notes();
    for note in notes {
        context.inject_message(InjectionReason::Hook, note, effects);
    }
    match answer {
        HookDecision::Proceed | HookDecision::WithNote { .. } => {}
        HookDecision::ProceedWith(text) => {
            context.inject_message(InjectionReason::Hook, text, effects);
        }
        HookDecision::OutputCap(cap) => context.output_cap = Some(cap),
        HookDecision::Deny(_)
        | HookDecision::Halt(_)
        | HookDecision::ChangeCall(_)
        | HookDecision::ChangeResult(_)
        | HookDecision::Park(_) => return Break(ending),
    }
    reserve(ending, context, effects)
}

/// Handles the shared budget's answer.
pub(crate) fn reserved(
    id: EffectId,
    ending: Box<Ending>,
    granted: Granted,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Phase> {
    let Some(quoted) = quote(true, Some(granted), context) else {
        effects.push(Effect::Settle { id, spent: NanoUsd::ZERO, tokens: 0 });
        return Break(ending);
    };
    Continue(call(ending, quoted, Some(id), context, effects))
}

/// Handles streamed content of the hand-over. No policy and no rule reads it.
pub(crate) fn delta(call: &mut Call, delta: TurnDelta, context: &RunContext) {
    if !delta.is_empty() {
        call.add(delta, context.now);
    }
}

/// Handles the hand-over. Calls in it are not run, and not part of the conversation.
pub(crate) fn answered(
    call: &Call,
    turn: &ModelTurn,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) {
    // The outcome's signal is that of the last turn.
    let signal = context.state.last_signal.clone();
    book_response(call, turn, context, effects);
    context.state.last_signal = signal;
    keep(&turn.text(), context, effects);
}

/// Handles a hand-over that failed; what had arrived of it is kept. It is not retried.
pub(crate) fn failed(
    call: &Call,
    error: &ModelError,
    partial: Option<&ModelTurn>,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) {
    book_failure(call, error, partial, context, effects);
    effects.push(Effect::Emit(RunEvent::AttemptFailed {
        turn: context.counts.turns + 1,
        attempt: 1,
        error: error.clone(),
        retry_in_ms: None,
    }));
    let text = partial.map(ModelTurn::text).filter(|text| !is_blank(text));
    keep(&text.unwrap_or_else(|| call.text.clone()), context, effects);
}

/// Appends the hand-over to the conversation and stores it.
fn keep(text: &str, context: &mut RunContext, effects: &mut Vec<Effect>) {
    context.state.streaming.abort();
    context.hand_over.take_text(text);
    if let Some(text) = context.hand_over.text.clone() {
        context.state.push(Role::Assistant, vec![Part::Text { text: text.clone() }]);
        effects.push(Effect::Emit(RunEvent::HandOver { text }));
    }
}

/// Handles a tick: a hand-over that takes too long is aborted, and the run ends.
pub(crate) fn timed_out(
    phase: Phase,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Phase> {
    let Phase::WrappingUp(wrap_up) = phase else { return Continue(phase) };
    let settings = &context.settings;
    let clocks = match &wrap_up.stage {
        Stage::Calling(call) => call.clocks(&settings.limits, settings.streaming),
        Stage::Consulting(_) | Stage::Reserving(_) => [None, None, None],
    };
    if clocks.into_iter().flatten().any(|clock| clock.deadline() <= context.now) {
        return Break(given_up(wrap_up, context, effects));
    }
    Continue(Phase::WrappingUp(wrap_up))
}

/// Aborts the hand-over. Returns the ending of the run.
pub(crate) fn given_up(
    wrap_up: Box<WrapUp>,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Box<Ending> {
    let ending = wrap_up.ending.clone();
    abort(Phase::WrappingUp(wrap_up), ending.termination, context, effects);
    ending
}
