//! Compactions: the request, which result is accepted, and what happens after failures. `boundary.rs`
//! decides when one is due.
//!
//! ```text
//! before a turn ── due? ──► Compact ──► accept? shorter by `least_gain`, valid, nothing lost
//! refused prompt ─────────► Compact ──►   yes: a new epoch    no: a failed attempt
//! ```
//!
//! A run never compacts without end: at most twice per turn (once before its call, once after a
//! refusal), and after `max_failures` consecutive failures only if the provider has refused the
//! prompt.

use crate::error_class::ErrorClass;
use crate::history::shortened_problem;
use crate::kernel::ceilings::prompt::PromptSize;
use crate::kernel::context::RunContext;
use crate::kernel::effect::{ConversationSize, Effect, EffectId, RunEvent};
use crate::kernel::event::Compaction;
use crate::kernel::outcome::CompactionAttempt;
use crate::kernel::outcome::decided_by::{Decision, Layer};
use crate::kernel::outcome::ending::{Ending, Flow};
use crate::kernel::phase::{Next, Phase};
use crate::kernel::setup::spec::ProactiveCompaction;
use crate::message::Message;
use crate::termination::Termination;
use crate::usage::{NanoUsd, Unreported, Usage};
use std::ops::ControlFlow::{Break, Continue};

/// Requests a compaction.
pub(crate) fn request_compaction(
    forced: bool,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Next {
    let id = context.effect_id();
    let before = size(context);
    let (task, target) = (context.task_message, target(before, context));
    effects.push(Effect::Compact { id, forced, task, before, target });
    Next::Wait(Phase::Compacting { id, forced, before })
}

/// The current size of the conversation.
fn size(context: &mut RunContext) -> ConversationSize {
    let messages = &context.state.messages;
    let bytes = bytes(messages);
    let messages = u32::try_from(messages.len()).unwrap_or(u32::MAX);
    ConversationSize { messages, bytes, tokens: context.prompt_estimate() }
}

/// The target size in bytes: half of the current size, or half of the share of the window at
/// which a compaction is due, whichever is smaller. Half, so that the next compaction is not
/// due right away.
fn target(before: ConversationSize, context: &RunContext) -> u64 {
    let half = before.bytes / 2;
    let wanted = match (context.settings.compaction.proactive, context.settings.context_window) {
        (ProactiveCompaction::AtShare(share), Some(window)) => share * window as f64 / 2.0,
        _ => return half,
    };
    // Bytes per token vary by content, so scale by this conversation's own ratio.
    let share = wanted / before.tokens.max(1) as f64;
    half.min((before.bytes as f64 * share) as u64)
}

/// Books the cost of a compaction, also with the shared budget, because nothing was reserved
/// for it.
pub(crate) fn book_compaction(
    id: EffectId,
    cost: NanoUsd,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) {
    context.book(|ledger| ledger.book(&Usage::default(), cost, false, Unreported::NOTHING));
    if context.settings.shared_budget && cost > NanoUsd::ZERO {
        effects.push(Effect::Settle { id, spent: cost, tokens: 0 });
    }
}

/// Handles the result of a compaction: accepts or discards it, and continues the turn.
pub(crate) fn compacted(
    forced: bool,
    before: ConversationSize,
    result: Compaction,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    let mut attempt = CompactionAttempt {
        turn: context.counts.turns + 1,
        forced,
        strategy: String::new(),
        before,
        after: None,
        failed: None,
    };
    // A proactive compaction may find nothing to do; a forced one must not, since the prompt
    // was refused.
    let taken = match result {
        Compaction::NotNeeded if forced => {
            Err("the compactor reported that no compaction is needed, but the provider refused the prompt".to_owned())
        }
        Compaction::NotNeeded => return Continue(Next::Iteration),
        Compaction::Failed(why) => Err(why),
        Compaction::Done { messages, strategy, .. } => {
            attempt.strategy = strategy;
            accepted(before, &messages, context).map(|()| messages)
        }
    };
    match taken {
        Ok(messages) => {
            context.state.replace(messages);
            // The provider's count was for the old conversation.
            context.prompt = PromptSize::default();
            let after = size(context);
            effects.push(Effect::Emit(RunEvent::Compacted {
                before: before.messages,
                after: after.messages,
                bytes_before: before.bytes,
                bytes_after: after.bytes,
                tokens_before: before.tokens,
                tokens_after: after.tokens,
                strategy: attempt.strategy.clone(),
                forced,
            }));
            attempt.after = Some(after);
            context.compactions.tried.push(attempt);
            context.compactions.failed_in_a_row = 0;
        }
        Err(why) => {
            context.compactions.failed_in_a_row += 1;
            effects.push(Effect::Emit(RunEvent::CompactionFailed {
                why: why.clone(),
                forced,
                in_a_row: context.compactions.failed_in_a_row,
            }));
            attempt.failed = Some(why.clone());
            context.compactions.tried.push(attempt);
            ending_of_failure(forced, why, context)?;
        }
    }
    // A forced compaction happens within a turn whose hooks have already run, but the request is a
    // new one.
    Continue(if forced { Next::PreCall } else { Next::Iteration })
}

/// Checks that the result of a compaction is valid, contains what must be kept, and is short
/// enough.
fn accepted(
    before: ConversationSize,
    messages: &[Message],
    context: &RunContext,
) -> Result<(), String> {
    if let Some(problem) =
        shortened_problem(&context.state.messages, messages, context.task_message)
    {
        return Err(problem.to_string());
    }
    let after = bytes(messages);
    let gain = context.settings.compaction.least_gain;
    // Written as a positive condition so that a NaN share rejects everything instead of
    // accepting it.
    let enough = after as f64 <= before.bytes as f64 * (1.0 - gain) && after <= before.bytes;
    if enough {
        return Ok(());
    }
    let percent = gain * 100.0;
    let from = before.bytes;
    Err(format!("not_smaller: {from} bytes became {after}; at least {percent} % less is required"))
}

/// Ends the run after a failed compaction if it cannot continue: the prompt was refused, or it
/// is not known to fit and a refusal could not be answered by another compaction.
fn ending_of_failure(forced: bool, why: String, context: &RunContext) -> Flow {
    let told = context.compactions.told();
    if forced {
        return Break(
            Ending::new(
                Termination::ErrorPromptTooLong,
                Layer::Provider,
                Decision::CallFailed(ErrorClass::ContextLengthExceeded),
                format!("the prompt does not fit, and compaction failed: {told}"),
            )
            .diagnostic(why),
        );
    }
    let fits =
        context.settings.context_window.is_some_and(|window| last_estimate(context) < window);
    let may_be_refused =
        context.settings.context_window.is_some() && context.settings.compaction.reactive;
    if fits || may_be_refused {
        return Continue(());
    }
    Break(
        Ending::new(
            Termination::ErrorCompactionFailed,
            Layer::Limit,
            Decision::Compaction,
            format!("{why} ({told})"),
        )
        .diagnostic(why),
    )
}

/// Estimated prompt size at the last compaction attempt; still valid, because no message came
/// since.
fn last_estimate(context: &RunContext) -> u64 {
    context.compactions.tried.last().map_or(0, |attempt| attempt.before.tokens)
}

fn bytes(messages: &[Message]) -> u64 {
    messages.iter().map(Message::byte_len).sum()
}
