//! A model call: its quote, the reservation of its worst cost, the request, and the response while it is
//! streamed.
//!
//! ```text
//! request_call: budgets (retries only) ─► quote ─► Reserve? ─► CallModel
//! ```

use super::attempt::{FailedBy, restart_models};
use crate::error_class::{ErrorClass, ModelError};
use crate::kernel::ceilings::ledger::{Ceiling, Granted, Quote};
use crate::kernel::ceilings::meter::{self, Meter, Terms};
use crate::kernel::ceilings::precheck::{check_budgets, check_deadline};
use crate::kernel::ceilings::quote::{
    USUAL_SHARED_OUTPUT, ask, does_not_fit, later_call, own_cap, usual_output,
};
use crate::kernel::context::RunContext;
use crate::kernel::effect::{Effect, EffectId, RunEvent};
use crate::kernel::event::{BudgetAccount, TurnDelta};
use crate::kernel::judge::Facts;
use crate::kernel::outcome::ending::Flow;
use crate::kernel::phase::{Call, CallClock, Next, Phase, THINKING};
use crate::kernel::setup::guest_mode::Capability;
use crate::kernel::setup::spec::RunSpec;
use crate::streaming::StreamingState;
use crate::usage::NanoUsd;
use crate::visible::{Opening, is_blank, visible_text};
use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

/// Prepares a model call: reserve its worst cost, then make it. Retries also come through here, so
/// that the cost of the failed attempt is checked first.
pub(crate) fn request_call(context: &mut RunContext, effects: &mut Vec<Effect>) -> Flow<Next> {
    restart_models(context, effects);
    // A run that is resumed after its deadline comes here without the check that other events have.
    check_deadline(context)?;
    // Before the first attempt, `check_limits` has done this already.
    if context.attempts.attempt > 0 {
        check_budgets(context)?;
    }
    if !context.may(Capability::Cap) {
        return request_metered(context, effects);
    }
    let own = own_cap(context);
    // No ceiling applies to the call: send the caller's own cap, and compute the worst cost for
    // display only.
    let Some(usual) = usual_output(context) else {
        let prompt = context.prompt_bound();
        let worst = context.ledger.price.filter(|_| context.settings.reserve).zip(own);
        let worst = worst.map(|(price, cap)| price.worst(prompt, cap));
        return call((own, own), None, worst, (None, None), context, effects);
    };
    let ask = ask(usual, context);
    let later = later_call(context);
    let quote = match context.ledger.quote(ask, None, later) {
        Ok(quote) => quote,
        Err(short) => return Break(does_not_fit(short, None, context)),
    };
    if context.settings.shared_budget {
        let id = context.effect_id();
        context.asked_under_other_limits = false;
        let Quote { worst, least, .. } = quote;
        effects.push(Effect::Reserve {
            id,
            want: worst.usd,
            least: least.usd,
            want_tokens: worst.tokens.unwrap_or_default(),
            least_tokens: least.tokens.unwrap_or_default(),
        });
        return Continue(Next::Wait(Phase::Reserving { id }));
    }
    call_as_quoted(ask.cap, quote, None, context, effects)
}

/// Prepares the call of a guest that cannot lower its output cap.
fn request_metered(context: &mut RunContext, effects: &mut Vec<Effect>) -> Flow<Next> {
    if !(context.settings.reserve && context.settings.shared_budget) {
        return call_metered(None, None, context, effects);
    }
    let (want, least) = meter::reservation(context);
    let id = context.effect_id();
    context.asked_under_other_limits = false;
    effects.push(Effect::Reserve {
        id,
        want: want.usd,
        least: least.usd,
        want_tokens: want.tokens.unwrap_or_default(),
        least_tokens: least.tokens.unwrap_or_default(),
    });
    Continue(Next::Wait(Phase::Reserving { id }))
}

/// Makes the call of a guest with the client's own cap, and counts its output.
fn call_metered(
    granted: Option<(EffectId, Granted)>,
    refused_by: Option<BudgetAccount>,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    let amount = granted.map(|(_, granted)| granted);
    let Terms { quote, meter } = meter::admit(amount, refused_by, context)?;
    let (cap, reservation) = (context.output_cap, granted.map(|(id, _)| id));
    call((cap, cap), None, quote, (reservation, meter), context, effects)
}

/// Handles the shared budget's answer: makes the call under the grant, or ends the run.
pub(crate) fn reserved(
    id: EffectId,
    granted: Granted,
    refused_by: Option<BudgetAccount>,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    // The amount was computed from the old limits: under looser ones it would lower the cap of this
    // call, and a refusal may be wrong under tighter ones.
    if context.asked_under_other_limits {
        effects.push(Effect::Settle { id, spent: NanoUsd::ZERO, tokens: 0 });
        return request_call(context, effects);
    }
    if !context.may(Capability::Cap) {
        let made = call_metered(Some((id, granted)), refused_by, context, effects);
        if made.is_break() {
            effects.push(Effect::Settle { id, spent: NanoUsd::ZERO, tokens: 0 });
        }
        return made;
    }
    let ask = ask(USUAL_SHARED_OUTPUT, context);
    // The grant acts as one more ceiling, for this call only.
    let later = later_call(context);
    match context.ledger.quote(ask, Some(granted), later) {
        Ok(quote) => call_as_quoted(ask.cap, quote, Some(id), context, effects),
        // Refused: settle with zero, so that the budget releases what it granted.
        Err(short) => {
            effects.push(Effect::Settle { id, spent: NanoUsd::ZERO, tokens: 0 });
            Break(does_not_fit(short, refused_by, context))
        }
    }
}

/// Makes the call under its quote, and with the cap that the quote allows.
fn call_as_quoted(
    own: u64,
    quote: Quote,
    reservation: Option<EffectId>,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    let worst = context.ledger.price.map(|_| quote.worst.usd);
    // A call without cost needs no cap, and an unnecessary cap could truncate the answer.
    let bounded = context.settings.shared_budget || context.ledger.bounds_output();
    let caps = if bounded {
        (Some(own), Some(quote.output_cap))
    } else {
        (own_cap(context), own_cap(context))
    };
    call(caps, quote.lowered_by, worst, (reservation, None), context, effects)
}

/// Makes the model call: the only place that requests one.
fn call(
    (own_cap, cap): (Option<u64>, Option<u64>),
    lowered_by: Option<Ceiling>,
    quote: Option<NanoUsd>,
    (reservation, meter): (Option<EffectId>, Option<Box<Meter>>),
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    // Before the call is counted, because a policy that panics here prevents the call.
    context.judge.begin_response(context.said.visible_partial())?;
    let id = context.effect_id();
    let prompt_bound = context.prompt_bound();
    context.attempts.attempt += 1;
    context.counts.model_calls = context.counts.model_calls.saturating_add(1);
    let RunSpec { provider, model, .. } = &context.settings;
    context.models.called(provider.as_ref(), model.as_ref());
    // The turn is counted when it ends, so the current one is `turns + 1`.
    let turn = context.counts.turns + 1;
    let attempt = context.attempts.attempt;
    // A retry is the same iteration: observers count iterations, not attempts.
    if attempt == 1 {
        context.state.iteration = turn;
        context.state.last_iteration_at = Some(context.now);
    }
    context.stream(StreamingState::Streaming);
    // Observers learn of the attempt before the driver starts it.
    effects.push(Effect::Emit(RunEvent::TurnStarted { turn, attempt }));
    effects.push(Effect::CallModel { id, turn, attempt, output_cap: cap });
    Continue(Next::Wait(Phase::Calling(Call {
        id,
        started: context.now,
        last_content: None,
        thinks_since: None,
        text: String::new(),
        opening: Opening::after(context.said.partial()),
        shown: false,
        deferred_stop: false,
        hidden: 0,
        own_cap,
        cap,
        lowered_by,
        quote,
        reservation,
        prompt_bound,
        meter,
    })))
}

/// Handles streamed content. A policy or watch rule may end the run mid-stream.
pub(crate) fn delta(
    call: &mut Call,
    delta: TurnDelta,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow {
    if delta.is_empty() {
        return Continue(());
    }
    let used_up = call.meter.as_mut().and_then(|meter| meter.add(delta.size()));
    let new = call.add(delta, context.now);
    if new == call.text.len() {
        return used_up.map_or(Continue(()), Break);
    }
    let said = &context.said;
    let facts = Facts::Delta {
        piece: &call.text[new..],
        turn: context.counts.turns + 1,
        answer: &|| said.at(visible_text(&said.with(&call.text))).answer(),
        // With a schema, a stop hook or a verifier the answer can still be rejected, and they need
        // the whole turn.
        may_stop: !context.settings.output_schema
            && !context.settings.hooks.stop
            && !context.settings.verifier,
    };
    let judgement = context.judge.step(facts, effects);
    call.deferred_stop |= judgement.deferred;
    // The text streamed so far becomes the last text, unless a policy panicked on it.
    if judgement.ending.is_some() && !is_blank(&call.text) {
        context.said.cut_off(&call.text);
    }
    // A policy's decision comes first: an answer that is complete stands.
    match judgement.any_ending().or(used_up) {
        Some(ending) => Break(ending),
        None => Continue(()),
    }
}

/// Excludes a time in which the process was suspended from the timeouts of the model call. Returns
/// `true` if there is such a call: no other wait ends when content arrives.
pub(crate) fn skip_suspension(
    phase: &mut Phase,
    time: Duration,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> bool {
    let Some(call) = phase.call_mut() else { return false };
    // At most the time of the call, whatever the driver has measured.
    let time = time.min(context.now.saturating_sub(call.started));
    if time.is_zero() {
        return false;
    }
    call.skip_suspension(time, context.now);
    context.suspended = context.suspended.saturating_add(time);
    let duration_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    effects.push(Effect::Emit(RunEvent::Suspended { duration_ms }));
    true
}

/// Aborts a call whose timeout has passed. Returns the error of the attempt and its cause; `None` if
/// there is time left.
pub(crate) fn timed_out(
    call: &Call,
    context: &RunContext,
    effects: &mut Vec<Effect>,
) -> Option<(ModelError, FailedBy)> {
    let settings = &context.settings;
    let clocks = call.clocks(&settings.limits, settings.streaming);
    let clock = clocks.into_iter().flatten().find(|clock| clock.deadline() <= context.now)?;
    let CallClock { name, limit, .. } = clock;
    effects.push(Effect::AbortModel { id: call.id });
    let (problem, by) = match name {
        "turn_timeout" => ("did not end", FailedBy::Provider),
        THINKING => ("sent only reasoning and no text or tool call", FailedBy::Thinking),
        _ => ("sent no content", FailedBy::Provider),
    };
    let message = format!("{name}: the model call {problem} within {limit:?}");
    Some((ModelError::new(ErrorClass::Timeout, message), by))
}
