//! Messages of the user and changes of limits while a run works.
//!
//! A message waits until the next model call, because before that the conversation may end with tool
//! calls that have no results yet, or may be replaced by a shorter one. It enters in front of the
//! hook that sees the request, so that no message is sent that the hook has not seen.

use crate::kernel::ceilings::precheck::check_limits;
use crate::kernel::context::RunContext;
use crate::kernel::effect::{Effect, InjectionReason, RunEvent};
use crate::kernel::next::Next;
use crate::kernel::outcome::ending::Ending;
use crate::kernel::outcome::guard::Flow;
use crate::kernel::setup::limit_changes::LimitChanges;
use crate::message::{Part, Role};
use crate::visible::is_blank;
use std::mem::take;
use std::ops::ControlFlow::{Break, Continue};

/// Accepts a message of the user.
pub(crate) fn said(text: String, context: &mut RunContext) {
    // The client of a guest owns the conversation.
    if !context.is_guest() && !is_blank(&text) {
        context.unread.push(text);
    }
}

/// Moves the waiting messages into the conversation.
pub(crate) fn enter_messages(context: &mut RunContext, effects: &mut Vec<Effect>) {
    for text in take(&mut context.unread) {
        // The user may ask for exactly the calls that counted as repetition before.
        context.judge.context.message_arrived = true;
        context.inject_message(InjectionReason::Said, text, effects);
    }
}

/// Appends the messages that no model call has read to the conversation of a run that ends, so that
/// a run that continues the conversation reads them.
pub(crate) fn keep_unread(context: &mut RunContext) {
    for text in take(&mut context.unread) {
        context.state.push(Role::User, vec![Part::Text { text }]);
    }
}

/// Continues the run after an answer in text if a message or a result came first, or returns the answer. An
/// answer stands if the limits permit no other turn.
pub(crate) fn continue_with_messages(
    mut answer: Box<Ending>,
    context: &RunContext,
) -> Flow<Result<Next, Box<Ending>>> {
    if !context.has_news() || check_limits(context).is_break() {
        return Continue(Err(answer));
    }
    // A failure that the answer had outranked decides now, as after a reply.
    match answer.next_in_rank() {
        Some(ending) => Break(ending),
        None => Continue(Ok(Next::Boundary)),
    }
}

/// Applies new limits to a run in progress.
pub(crate) fn change_limits(
    changes: &LimitChanges,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) {
    let before = context.settings.limits.clone();
    let mut after = before.clone();
    changes.apply(&mut after);
    if let Some(mode) = context.settings.guest {
        mode.restrict_limits(&mut after);
    }
    let limits = LimitChanges::between(&before, &after);
    if limits.is_empty() {
        return;
    }
    // A new ceiling holds only if each call is reserved, as it is in a run that begins with one.
    let ceiling = after.max_budget_usd.is_some() || after.max_tokens.is_some();
    if ceiling && !context.settings.reserve {
        context.settings.reserve = true;
        context.ledger.reserves = context.settings.guest.is_none_or(|mode| mode.capped);
    }
    context.replace_limits(after);
    context.asked_under_other_limits = true;
    effects.push(Effect::Emit(RunEvent::LimitsChanged { limits }));
}
