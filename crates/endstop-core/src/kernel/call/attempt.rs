//! A failed attempt at a model call: retry after a wait, compact, switch to a fallback model, or end the
//! run.
//!
//! ```text
//! TurnFailed ─► retries used up ─► SwitchModel, ModelSwitched ─► compact? ─► pre_call? ─► CallModel
//! ```
//!
//! The run stays with the fallback, because a model that has failed for as long as all retries take is
//! likely to fail again at the next turn. If the run has ended and is resumed, it begins with its own
//! model again. The conversation loses the parts that only the earlier model can read.

use crate::error_class::{ErrorClass, ModelError};
use crate::history::says_something;
use crate::kernel::ceilings::booking::book_failure;
use crate::kernel::ceilings::pause::pause;
use crate::kernel::ceilings::precheck::{check_budgets, check_window};
use crate::kernel::ceilings::prompt::PromptSize;
use crate::kernel::context::RunContext;
use crate::kernel::effect::{Effect, RunEvent};
use crate::kernel::event::Resumption;
use crate::kernel::outcome::decided_by::{Decision, Layer};
use crate::kernel::outcome::ending::{Ending, Flow};
use crate::kernel::phase::{Call, Idle, Next, Phase};
use crate::kernel::records::{Asked, LONGEST_RETRY_AFTER, MOST_LOST};
use crate::kernel::setup::guest_mode::Capability;
use crate::kernel::setup::models::{FallbackModel, ModelSwitch};
use crate::kernel::tools::open_calls::OpenCalls;
use crate::limits::{Limit, Limits};
use crate::message::{Message, ModelTurn, Part, Role};
use crate::termination::Termination;
use crate::visible::is_blank;
use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

/// Number of retries that are made even if the attempts themselves took longer than `retry_for`: a
/// model call that stalls takes a minute to fail, which would use up the window before the first
/// retry.
const SLOW_RETRIES: u32 = 2;

/// The decision after a failed attempt.
enum Retry {
    /// Retry after this wait.
    After(Duration),
    /// Do not retry, because the run's deadline comes before the end of the wait.
    PastDeadline { wait: Duration, deadline: Duration },
    /// Do not retry.
    Never,
}

/// Decides whether a failed attempt is retried, and after what wait.
fn retry_after(error: &ModelError, context: &mut RunContext) -> Retry {
    let Limits { retry_for, max_retries, .. } = context.settings.limits;
    let lost = (error.class == ErrorClass::IncompleteStream).then_some(MOST_LOST);
    // Off if both limits are off, or if `retry_for` is zero, or if `max_retries` is used up.
    if !error.class.is_retryable()
        || retry_for.or(max_retries.map(|_| Duration::MAX)).is_none_or(|window| window.is_zero())
        || max_retries.or(lost).is_some_and(|max| context.attempts.retries >= max)
        // Before the first response nothing is lost, and the address is probably wrong. Later a server may restart.
        || (error.is_no_server()
            && context.counts.turns == 0
            && context.attempts.retries >= SLOW_RETRIES)
    {
        return Retry::Never;
    }
    let since = *context.attempts.failed_since.get_or_insert(context.now);
    let asked = error.retry_after_ms.map(Duration::from_millis);
    // A longer wait is not worth holding the run open; the outcome reports it as `retry_after`.
    if asked.is_some_and(|wait| wait > LONGEST_RETRY_AFTER) {
        return Retry::Never;
    }
    let mut wait = match asked {
        // The first waits follow the server. Later ones are never shorter than the backoff,
        // because a server that asks to return at once would otherwise be called in a tight
        // loop.
        Some(asked) if context.attempts.retries < SLOW_RETRIES => asked,
        asked => {
            context.jitter.backoff(context.attempts.retries + 1).max(asked.unwrap_or_default())
        }
    };
    if let Some(window) = retry_for {
        let left = window.saturating_sub(context.attempts.waited);
        let over =
            context.now.saturating_sub(since) >= window && context.attempts.retries >= SLOW_RETRIES;
        // A server that asks for more time than the window has left would refuse an earlier
        // attempt.
        if left.is_zero() || over || asked.is_some_and(|wait| wait > left) {
            return Retry::Never;
        }
        // The last attempt comes at the end of the window, so that it reaches a server that is
        // back by then.
        wait = wait.min(left);
    }
    match context.deadline() {
        Some(deadline) if context.now.saturating_add(wait) >= deadline && asked.is_some() => {
            Retry::PastDeadline { wait, deadline }
        }
        _ => Retry::After(wait),
    }
}

/// The cause of a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailedBy {
    /// The provider or the network, or a response that did not arrive in time.
    Provider,
    /// The response only reasoned for longer than `thinking_timeout`.
    Thinking,
}

/// Handles a failed attempt: books its usage, then retries, compacts or ends the run.
pub(crate) fn attempt_failed(
    call: &Call,
    error: &ModelError,
    partial: Option<&ModelTurn>,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    attempt_failed_by(FailedBy::Provider, call, error, partial, context, effects)
}

/// Handles an attempt that failed for this cause.
pub(crate) fn attempt_failed_by(
    by: FailedBy,
    call: &Call,
    error: &ModelError,
    partial: Option<&ModelTurn>,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    let text = record_failure(call, error, partial, context, effects);
    context.attempts.failure = Some(Box::new(error.clone()));
    // After a resume: the failure that ended the run before is replayed, and the call repeated
    // once.
    if std::mem::take(&mut context.attempts.call_again) {
        emit_failed(error, Some(Duration::ZERO), context, effects);
        return Continue(Next::Retry { wait: Duration::ZERO });
    }
    // The provider refuses everything until the window begins anew.
    if error.class == ErrorClass::RateLimit && context.may(Capability::Loop) {
        let pause = pause(context, context.now);
        // Once for each turn, because a server may report any reset.
        let pause = pause.filter(|_| !context.attempts.paused_this_turn);
        if let Some(pause) = pause {
            context.attempts.paused_this_turn = true;
            if let Break(ending) = check_budgets(context) {
                emit_failed(error, None, context, effects);
                return Break(ending);
            }
            let wait = pause.until.saturating_sub(context.now);
            emit_failed(error, Some(wait), context, effects);
            return Continue(Next::Call);
        }
        if let Break(ending) = check_window(context) {
            emit_failed(error, None, context, effects);
            return Break(ending.diagnostic(error.to_string()));
        }
    }
    // A model that reasons without an end usually does so again, so one retry is all it gets. It is
    // the same retry that a turn without visible output gets.
    let starved_again = by == FailedBy::Thinking
        && std::mem::replace(&mut context.attempts.starved_this_turn, true);
    let retry = if starved_again { Retry::Never } else { retry_after(error, context) };
    let fallback = match retry {
        Retry::PastDeadline { .. } | Retry::Never if by == FailedBy::Provider => {
            next_fallback(error.class, context)
        }
        _ => None,
    };
    if fallback.is_some() || !matches!(retry, Retry::Never) {
        // Do not wait for an attempt that the budget cannot pay for.
        if let Break(ending) = check_budgets(context) {
            emit_failed(error, None, context, effects);
            return Break(ending);
        }
    }
    if let Some(to) = fallback {
        emit_failed(error, Some(Duration::ZERO), context, effects);
        return Continue(switch_model(to, error.class, context, effects));
    }
    match retry {
        Retry::After(wait) => {
            emit_failed(error, Some(wait), context, effects);
            context.attempts.retries += 1;
            context.attempts.waited = context.attempts.waited.saturating_add(wait);
            return Continue(Next::Retry { wait });
        }
        // The deadline comes before the end of the wait: end now instead of after an idle wait.
        Retry::PastDeadline { wait, deadline } => {
            emit_failed(error, None, context, effects);
            return Break(too_late(wait, deadline, error, context));
        }
        Retry::Never => {}
    }
    // A forced compaction is tried once per turn: if the shortened prompt is refused too, another
    // one would not help.
    let too_long = error.class.termination() == Termination::ErrorPromptTooLong;
    if too_long && context.settings.compaction.reactive && !context.compactions.forced_this_turn {
        context.compactions.forced_this_turn = true;
        emit_failed(error, Some(Duration::ZERO), context, effects);
        return Continue(Next::Compact { forced: true });
    }
    emit_failed(error, None, context, effects);
    if !context.may(Capability::Loop) {
        let mut ending = failure(by, error, context);
        let (model, bytes) = (context.settings.model.clone(), context.prompt.request_bytes());
        let is_last = context.guest.failed.add(error, Asked { model, bytes }, context.now);
        if is_last && by == FailedBy::Provider {
            let evidence = &mut ending.decided_by.evidence;
            *evidence = format!("{} calls in a row failed: {evidence}", context.guest.failed.all);
        }
        // A client repeats its call as often as it likes, and the model reasons again.
        if is_last || by == FailedBy::Thinking {
            return Continue(Next::Stop { ending, calls: OpenCalls::default() });
        }
        // The client may retry, so the text is not appended yet.
        let provisional = Some(ending);
        let idle = Idle { provisional, partial: text, ..Idle::default() };
        return Continue(Next::Wait(Phase::Guest(idle)));
    }
    // The partial text becomes the last message, so that a resumed conversation contains it.
    if let Some(text) = text {
        context.state.push(Role::Assistant, vec![Part::Text { text }]);
    }
    Break(failure(by, error, context))
}

/// Books the usage of a failed attempt. Returns the text that it had streamed.
fn record_failure(
    call: &Call,
    error: &ModelError,
    partial: Option<&ModelTurn>,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Option<String> {
    context.state.streaming.abort();
    book_failure(call, error, partial, context, effects);
    // Keep whichever text exists: the decoder's partial turn is better than the raw deltas.
    let text = partial
        .map(ModelTurn::text)
        .filter(|text| !is_blank(text))
        .or_else(|| Some(call.text.clone()).filter(|text| !is_blank(text)));
    if let Some(text) = &text {
        context.said.cut_off(text);
    }
    if let Some(turn) = partial {
        turn.signal.keep_in(&mut context.state.last_signal);
    }
    text
}

/// Handles a call that a guest's client abandoned: it called the model again before the response was
/// complete.
pub(crate) fn abandoned(call: &Call, context: &mut RunContext, effects: &mut Vec<Effect>) {
    let problem = "the client called the model again before the response was complete";
    let error = ModelError::new(ErrorClass::IncompleteStream, problem);
    record_failure(call, &error, None, context, effects);
    emit_failed(&error, None, context, effects);
}

/// Reports to observers that an attempt has failed, and when the next one comes.
fn emit_failed(
    error: &ModelError,
    retry_in: Option<Duration>,
    context: &RunContext,
    effects: &mut Vec<Effect>,
) {
    effects.push(Effect::Emit(RunEvent::AttemptFailed {
        turn: context.counts.turns + 1,
        attempt: context.attempts.attempt,
        error: error.clone(),
        retry_in_ms: retry_in.map(|wait| wait.as_millis() as u64),
    }));
}

/// Builds the ending of a run whose deadline comes before the end of the wait that a server asks for.
fn too_late(
    wait: Duration,
    deadline: Duration,
    error: &ModelError,
    context: &RunContext,
) -> Box<Ending> {
    let left = deadline.saturating_sub(context.now);
    let evidence = format!(
        "the next attempt must wait {wait:?}, and {left:?} of {deadline:?} are left: {error}"
    );
    let ending = Ending::at_limit(Limit::Timeout, Termination::ErrorTimeout, evidence);
    caused_by(ending, error, context)
}

/// Adds the failure that used up the time of a run to the ending by its deadline.
pub(crate) fn blame_failure(mut ending: Box<Ending>, context: &RunContext) -> Box<Ending> {
    let Some(error) = &context.attempts.failure else { return ending };
    let evidence = &mut ending.decided_by.evidence;
    *evidence = format!("{evidence}; the last attempt at the model call failed: {error}");
    caused_by(ending, error, context)
}

fn caused_by(ending: Box<Ending>, error: &ModelError, context: &RunContext) -> Box<Ending> {
    let mut ending = with_error(ending, error);
    ending.outranked.push(*failure(FailedBy::Provider, error, context));
    ending
}

/// Builds the ending of a run whose model call failed for good.
fn failure(by: FailedBy, error: &ModelError, context: &RunContext) -> Box<Ending> {
    let (termination, layer, decision) = match by {
        FailedBy::Provider => {
            (error.class.termination(), Layer::Provider, Decision::CallFailed(error.class))
        }
        FailedBy::Thinking => (
            Termination::ErrorThinkingStarved,
            Layer::Limit,
            Decision::Limit(Limit::ThinkingTimeout),
        ),
    };
    let mut evidence = error.to_string();
    if context.attempts.attempt > 1 {
        evidence = format!("{evidence} (attempt {})", context.attempts.attempt);
    }
    if termination == Termination::ErrorPromptTooLong && context.compactions.any() {
        evidence = format!("{evidence}; {}", context.compactions.told());
    }
    with_error(Ending::new(termination, layer, decision, evidence), error)
}

fn with_error(ending: Box<Ending>, error: &ModelError) -> Box<Ending> {
    let mut ending = ending.diagnostic(error.to_string());
    ending.retry_after = error.retry_after_ms.map(Duration::from_millis);
    ending
}

/// `true` if another model may succeed after an error of this class: the model or its server is at
/// fault, and not the request.
fn may_help(class: ErrorClass) -> bool {
    matches!(
        class,
        ErrorClass::Overloaded
            | ErrorClass::RateLimit
            | ErrorClass::ServerError
            | ErrorClass::NotFound
    )
}

/// Returns the number of the next fallback after an error of this class, if there is one.
fn next_fallback(class: ErrorClass, context: &RunContext) -> Option<u32> {
    let next = context.models.current.saturating_add(1);
    let exists = next as usize <= context.settings.fallbacks.len();
    (may_help(class) && exists && !context.models.restarts).then_some(next)
}

/// Switches to a fallback, and continues the turn with it.
fn switch_model(
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
pub(super) fn restart_models(context: &mut RunContext, effects: &mut Vec<Effect>) {
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
