//! Approvals and questions that park a run, and their answers: in time, late, twice, wrong or none.
//!
//! ```text
//! let builder = builder.permission("act", Permission::Ask).approver(asks.clone()).hook(asks);
//! match answer(&mut dice, &journal, (&run, &request), &tally, &mut refused, false) { Next::Resume(how) => … }
//! ```

use crate::dice::Dice;
use crate::tally::Tally;
use endstop::core::EffectId;
use endstop::hook::{Approver, ConsultPoint, Hook, HookDecision, HookFuture, Hooks, Park};
use endstop::journal::{DecideError, SqliteJournal};
use endstop::park::{Answer, AnswerRefused, ParkRequest, RequestKind};
use endstop::{Resume, ToolCall};
use std::sync::{Arc, Mutex, PoisonError};

/// The most questions of a conversation, because each leads to more turns.
const MOST_QUESTIONS: u32 = 4;

/// An approver and a hook that park runs, or decide at once.
#[derive(Clone)]
pub(crate) struct Asks {
    dice: Arc<Mutex<(Dice, u32)>>,
    tally: Arc<Tally>,
    replies: bool,
}

impl Asks {
    pub(crate) fn new(dice: &mut Dice, tally: &Arc<Tally>) -> Asks {
        let replies = dice.percent(30);
        let dice = Arc::new(Mutex::new((Dice::new(dice.below(u64::MAX), &[]), 0)));
        Asks { dice, tally: Arc::clone(tally), replies }
    }
}

fn park(dice: &mut Dice) -> HookDecision {
    let expires_after_ms = match dice.below(4) {
        // Before anyone can decide it.
        0 => Some(0),
        // Longer than a round takes, so that only the answer of a day later finds it expired.
        1 => Some(3_600_000),
        _ => None,
    };
    HookDecision::Park(Park { expires_after_ms, ..Park::default() })
}

impl Approver for Asks {
    fn approve(&self, _: ToolCall) -> HookFuture<'_> {
        Box::pin(async {
            let (dice, _) = &mut *self.dice.lock().unwrap_or_else(PoisonError::into_inner);
            match dice.below(10) {
                0..=2 => HookDecision::Proceed,
                3 => HookDecision::Deny("no".to_owned()),
                _ => park(dice),
            }
        })
    }
}

impl Hook for Asks {
    fn points(&self) -> Hooks {
        Hooks { reply: self.replies, ..Hooks::default() }
    }

    fn consult(&self, _: ConsultPoint) -> HookFuture<'_> {
        Box::pin(async {
            let (dice, asked) = &mut *self.dice.lock().unwrap_or_else(PoisonError::into_inner);
            if *asked == MOST_QUESTIONS || dice.percent(40) {
                return HookDecision::Proceed;
            }
            *asked += 1;
            self.tally.acted("asks the user");
            park(dice)
        })
    }
}

/// The step that follows a park.
#[expect(clippy::large_enum_variant, reason = "one value at a time")]
pub(crate) enum Next {
    Resume(Resume),
    /// The run was cancelled while it was parked.
    Cancel,
}

/// Decides the request of a parked run, or not, and adds it to `barred` if its call must not run. If
/// `fault` is set, approves each call and adds it.
pub(crate) fn answer(
    dice: &mut Dice,
    journal: &SqliteJournal,
    (run, request): (&str, &ParkRequest),
    tally: &Tally,
    barred: &mut Vec<EffectId>,
    fault: bool,
) -> Next {
    let how = Resume::new(run);
    let question = request.kind == RequestKind::Question;
    let deny = dice.percent(40);
    let answer = match (deny, question) {
        (true, _) => Answer::deny("not this one"),
        (false, true) => Answer::text("And another thing."),
        (false, false) => Answer::approve(),
    };
    let refused =
        |what: &str, answered: Result<_, DecideError>, right: fn(&AnswerRefused) -> bool| {
            match answered {
                Err(DecideError::Refused(refused)) if right(&refused) => tally.acted(what),
                Err(other) => tally.broken(&format!("{what}: {other}")),
                Ok(_) => tally.broken(&format!("{what}: it was accepted")),
            }
        };
    let expired = |refused: &AnswerRefused| matches!(refused, AnswerRefused::Expired { .. });
    if request.expires_ms == Some(request.asked_ms) {
        barred.push(request.id);
        refused("answers an expired request", journal.answer(run, &answer), expired);
        return Next::Resume(how);
    }
    match (dice.below(12), request.expires_ms) {
        _ if fault && !question => {
            // The planted fault: the journal has an approval, and the checks expect a denial.
            barred.push(request.id);
            let _ = journal.answer(run, &Answer::approve());
        }
        (0, _) => tally.acted("resumes without an answer"),
        (1, _) => {
            tally.acted("cancels a parked run");
            return Next::Cancel;
        }
        (2, _) => {
            let wrong = |refused: &AnswerRefused| matches!(refused, AnswerRefused::Digest { .. });
            let answered = journal.answer(run, &answer.digest("00000000"));
            refused("answers another request", answered, wrong);
        }
        (3, _) => {
            let other = if question { Answer::approve() } else { Answer::text("yes") };
            let wrong = |refused: &AnswerRefused| matches!(refused, AnswerRefused::Kind { .. });
            refused("answers in the wrong way", journal.answer(run, &other), wrong);
        }
        (4, Some(expires)) => {
            let late = journal.answer_at(run, &answer, expires + 86_400_000);
            barred.push(request.id);
            refused("answers a day late", late, expired);
        }
        (5 | 6, _) => {
            barred.extend(deny.then_some(request.id));
            tally.acted(if deny { "denies with the resume" } else { "answers with the resume" });
            return Next::Resume(how.answer(answer));
        }
        _ => {
            barred.extend(deny.then_some(request.id));
            if let Err(problem) = journal.answer(run, &answer) {
                tally.broken(&format!("an answer in time: {problem}"));
            }
            tally.acted(if deny { "denies" } else { "answers" });
            let twice =
                |refused: &AnswerRefused| matches!(refused, AnswerRefused::AlreadyDecided { .. });
            refused("answers twice", journal.answer(run, &Answer::deny("no")), twice);
        }
    }
    Next::Resume(how)
}
