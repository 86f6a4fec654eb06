//! The request of a model call: its quote, the reservation of its worst cost, and the call.
//!
//! ```text
//! request_call: budgets (retries only) ─► quote ─► Reserve? ─► CallModel
//! ```

use super::fallback::restart_models;
use crate::kernel::ceilings::hand_over::later_call;
use crate::kernel::ceilings::ledger::{Ceiling, Granted, Quote};
use crate::kernel::ceilings::meter::{self, Meter, Terms};
use crate::kernel::ceilings::precheck::{check_budgets, check_deadline};
use crate::kernel::ceilings::quote::{
    USUAL_SHARED_OUTPUT, ask, does_not_fit, own_cap, usual_output,
};
use crate::kernel::context::RunContext;
use crate::kernel::effect::{Effect, EffectId, RunEvent};
use crate::kernel::event::BudgetAccount;
use crate::kernel::model_call::Call;
use crate::kernel::next::Next;
use crate::kernel::outcome::guard::Flow;
use crate::kernel::phase::Phase;
use crate::kernel::setup::spec::RunSpec;
use crate::streaming::StreamingState;
use crate::usage::NanoUsd;
use crate::visible::{Opening, visible_text};
use std::ops::ControlFlow::{Break, Continue};

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
    if context.settings.guest.is_some_and(|mode| !mode.capped) {
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
        return call_metered(None, context, effects);
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
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    let Terms { quote, meter } = meter::admit(granted.map(|(_, granted)| granted), context)?;
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
    if context.settings.guest.is_some_and(|mode| !mode.capped) {
        let made = call_metered(Some((id, granted)), context, effects);
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
    context.judge.begin_response(visible_text(&context.said.partial))?;
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
    if !context.is_unobserved() {
        effects.push(Effect::Emit(RunEvent::TurnStarted { turn, attempt }));
    }
    effects.push(Effect::CallModel { id, turn, attempt, output_cap: cap });
    Continue(Next::Wait(Phase::Calling(Call {
        id,
        started: context.now,
        last_content: None,
        thinks_since: None,
        text: String::new(),
        opening: Opening::after(&context.said.partial),
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
