//! The verifier: judges an answer before the run ends as a success.
//!
//! ```text
//! success ─► Verify ─► accepted ─► end as the success
//!               ▲         rejected ─► message to the model ─► Boundary, at most `verify_rounds` times
//! ```
//!
//! With `verify_rounds`, only an accepted answer is a success: every other ending carries the answer.
//! Without, the verdict is stored in the outcome and does not change the ending.

use crate::kernel::ceilings::precheck::check_deadline;
use crate::kernel::context::RunContext;
use crate::kernel::effect::{Effect, InjectionReason, RunEvent};
use crate::kernel::next::Next;
use crate::kernel::outcome::VerifyRound;
use crate::kernel::outcome::ending::Ending;
use crate::kernel::outcome::excerpt::without_middle;
use crate::kernel::outcome::guard::Flow;
use crate::kernel::phase::Phase;
use crate::limits::Limit;
use crate::termination::Termination;
use std::ops::ControlFlow::{Break, Continue};

/// Maximum length in bytes of the verifier's output as the model reads it. The output comes from a
/// program that runs the model's work, so it may be of any size.
const MOST_OUTPUT: usize = 16 * 1024;

/// Asks the verifier about a success, or ends the run with it if there is none.
pub(crate) fn ask_verifier(mut success: Box<Ending>, context: &RunContext) -> Flow<Next> {
    if !context.settings.verifier {
        return Break(success);
    }
    // The verifier may take minutes, so it does not start after the deadline.
    if let Break(mut timeout) = check_deadline(context) {
        if context.needs_verdict() {
            timeout.carry(&success);
            return Break(timeout);
        }
        success.outranked.push(*timeout);
        return Break(success);
    }
    Continue(Next::Verify { success })
}

/// Requests a verdict on a success.
pub(crate) fn request_verdict(
    success: Box<Ending>,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Next {
    let id = context.effect_id();
    let answer = success.answer(context.said.visible());
    let round = context.verdicts.count().saturating_add(1);
    effects.push(Effect::Verify { id, round, answer });
    Next::Wait(Phase::Verifying { id, success, since: context.now })
}

/// Handles a tick: a verifier that took too long has rejected the answer.
pub(crate) fn verdict_timed_out(
    phase: Phase,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    let (id, success, since) = match phase {
        Phase::Verifying { id, success, since } => (id, success, since),
        other => return Continue(Next::Wait(other)),
    };
    let limit = context.settings.limits.verify_timeout;
    let Some(limit) = limit.filter(|limit| since.saturating_add(*limit) <= context.now) else {
        return Continue(Next::Wait(Phase::Verifying { id, success, since }));
    };
    effects.push(Effect::Abandon { id });
    let output = format!("the verifier did not end within {limit:?} and was stopped");
    judged(success, false, &output, context, effects)
}

/// Handles a verdict: the success stands, or the model receives the reason, or the run ends.
pub(crate) fn judged(
    mut success: Box<Ending>,
    passed: bool,
    output: &str,
    context: &mut RunContext,
    effects: &mut Vec<Effect>,
) -> Flow<Next> {
    let output = without_middle(output.trim(), MOST_OUTPUT);
    let turn = context.counts.turns;
    context.verdicts.rounds.push(VerifyRound { turn, passed, output: output.clone() });
    let (round, rounds) = (context.verdicts.count(), context.settings.limits.verify_rounds);
    effects.push(Effect::Emit(RunEvent::Verified {
        round,
        rounds,
        passed,
        output: output.clone(),
    }));
    let Some(most) = rounds.filter(|_| !passed) else { return Break(success) };
    context.verdicts.rejected = Some(success.clone());
    // The answer is withdrawn, so an ending that it outranked takes its place.
    if let Some(ending) = success.next_in_rank() {
        return Break(ending);
    }
    if round >= most {
        let evidence = match most {
            1 => "the verifier rejected the answer".to_owned(),
            _ => format!("the verifier rejected the answer in each of {most} rounds"),
        };
        let termination = Termination::ErrorNotVerified;
        let ending = Ending::at_limit(Limit::VerifyRounds, termination, evidence);
        return Break(ending.diagnostic(output));
    }
    let shown = if output.is_empty() { "It printed nothing." } else { &output };
    let message = format!(
        "The result was verified and rejected (round {round} of {most}). Output of the verifier:\n\n{shown}\n\nFix the cause, then give your answer again."
    );
    context.inject_message(InjectionReason::Verification, message, effects);
    Continue(Next::Boundary)
}
