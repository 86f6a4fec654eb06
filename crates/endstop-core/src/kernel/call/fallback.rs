//! The switch to a fallback model, after the model in use has failed for good.
//!
//! ```text
//! TurnFailed ─► retries used up ─► SwitchModel, ModelSwitched ─► compact? ─► pre_call? ─► CallModel
//! ```
//!
//! The run stays with the fallback, because a model that has failed for as long as all retries take is
//! likely to fail again at the next turn. If the run has ended and is resumed, it begins with its own
//! model again. The conversation loses the parts that only the earlier model can read.

use crate::error_class::ErrorClass;
use crate::history::says_something;
use crate::kernel::ceilings::prompt::PromptSize;
use crate::kernel::context::RunContext;
use crate::kernel::effect::{Effect, RunEvent};
use crate::kernel::event::Resumption;
use crate::kernel::next::Next;
use crate::kernel::setup::fallback_model::{FallbackModel, ModelSwitch};
use crate::message::{Message, Part};

/// `true` if another model may succeed after an error of this class: the model or its server is at
/// fault, and not the request.
pub(crate) fn may_help(class: ErrorClass) -> bool {
    matches!(
        class,
        ErrorClass::Overloaded
            | ErrorClass::RateLimit
            | ErrorClass::ServerError
            | ErrorClass::NotFound
    )
}

/// Returns the number of the next fallback after an error of this class, if there is one.
pub(crate) fn next_fallback(class: ErrorClass, context: &RunContext) -> Option<u32> {
    let next = context.models.current.saturating_add(1);
    let exists = next as usize <= context.settings.fallbacks.len();
    (may_help(class) && exists && !context.models.restarts).then_some(next)
}

/// Switches to a fallback, and continues the turn with it.
pub(crate) fn switch_model(
    to: u32,
    because: ErrorClass,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Next {
    use_model(to, Some(because), context, effects);
    // The fallback gets all retries again. The attempts of the turn are counted on.
    let attempts = &mut context.attempts;
    attempts.retries = 0;
    attempts.failed_since = None;
    attempts.waited = std::time::Duration::ZERO;
    // A prompt that is larger than the window would be refused, or silently cut.
    let too_long =
        context.settings.context_window.is_some_and(|window| context.prompt_estimate() >= window);
    let compaction = context.settings.compaction;
    if too_long && compaction.reactive && !context.compactions.forced_this_turn {
        context.compactions.forced_this_turn = true;
        return Next::Compact { forced: true };
    }
    // The hook has seen the request to another model.
    Next::PreCall
}

/// Returns to the run's own model before a call, if the run was resumed with it.
pub(crate) fn restart_models(context: &mut RunContext, effects: &mut Vec<Effect>) {
    if std::mem::take(&mut context.models.restarts) && context.models.current > 0 {
        use_model(0, None, context, effects);
    }
}

/// Uses another model from the next call on: 0 is the run's own.
fn use_model(
    to: u32,
    because: Option<ErrorClass>,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) {
    let before = in_use(context);
    let next = match to.checked_sub(1) {
        None => context.models.own.take().map(|own| *own),
        Some(at) => context.settings.fallbacks.get(at as usize).cloned(),
    };
    let next = next.unwrap_or_else(|| before.clone());
    let removed = remove_opaque(context);
    if context.models.current == 0 {
        context.models.own = Some(Box::new(before.clone()));
    }
    context.models.current = to;
    context.models.changed = true;
    // The answer is that of the next model, which may not name itself.
    context.said.model = None;
    // Models count tokens differently.
    context.prompt = PromptSize::default();
    let settings = &mut context.settings;
    settings.provider.clone_from(&next.provider);
    settings.model.clone_from(&next.model);
    settings.context_window = next.context_window;
    settings.max_output = next.max_output;
    settings.image_tokens = next.image_tokens;
    context.ledger.price = next.price;
    effects.push(Effect::SwitchModel { fallback: to });
    let switch = Box::new(ModelSwitch {
        fallback: to,
        from_provider: before.provider,
        from_model: before.model,
        provider: next.provider,
        model: next.model,
        because,
        removed_parts: removed,
    });
    let turn = context.counts.turns + 1;
    effects.push(Effect::Emit(RunEvent::ModelSwitched { turn, switch }));
}

/// The model in use.
fn in_use(context: &RunContext) -> FallbackModel {
    let settings = &context.settings;
    FallbackModel {
        provider: settings.provider.clone(),
        model: settings.model.clone(),
        price: context.ledger.price,
        context_window: settings.context_window,
        max_output: settings.max_output,
        image_tokens: settings.image_tokens,
    }
}

/// Applies a resumption to the models of the run.
pub(crate) fn resume_models(with: &mut Resumption, context: &mut RunContext) {
    let (model, provider, price) = (with.model.take(), with.provider.take(), with.price.take());
    let mut renamed = model.is_some() || provider.is_some();
    if let Some(new) = with.fallbacks.take() {
        let old = &context.settings.fallbacks;
        renamed |= old.len() != new.len()
            || old.iter().zip(&new).any(|(one, other)| !one.is_same_model(other));
        context.settings.fallbacks = new;
    }
    // Each value of the resumption replaces the old one only if it is set.
    match &mut context.models.own {
        None => {
            context.settings.model = model.or(context.settings.model.take());
            context.settings.provider = provider.or(context.settings.provider.take());
            context.ledger.price = price.or(context.ledger.price);
        }
        Some(own) => {
            own.model = model.or(own.model.take());
            own.provider = provider.or(own.provider.take());
            own.price = price.or(own.price);
            // A run that had ended gets another chance with all of its models. Not before the next
            // call, because the last response of the fallback may be evaluated again.
            context.models.restarts |= renamed || with.call_again;
        }
    }
}

/// Removes the parts of the conversation that only the model that wrote them can read, such as signed
/// or encrypted reasoning. Returns their number.
pub(crate) fn remove_opaque(context: &mut RunContext) -> u32 {
    let is_opaque = |part: &Part| matches!(part, Part::Opaque { .. });
    let count = |message: &Message| message.parts.iter().filter(|part| is_opaque(part)).count();
    let removed: usize = context.state.messages.iter().map(count).sum();
    if removed == 0 {
        return 0;
    }
    let mut messages = std::mem::take(&mut context.state.messages);
    messages.retain_mut(|message| {
        if count(message) == 0 {
            return true;
        }
        message.parts.retain(|part| !is_opaque(part));
        // No provider accepts a message without content.
        says_something(message)
    });
    context.state.replace(messages);
    u32::try_from(removed).unwrap_or(u32::MAX)
}
