//! User code of the random runs: an approver and a hook that decide, park and change, and the tool that
//! needs approval.

use super::super::Note;
use super::super::replayed::Dice;
use endstop::ToolCall;
use endstop::hook::{
    Approver, ChangedResult, ConsultPoint, Hook, HookDecision, HookFuture, Hooks, Park,
};
use endstop::tool::{Tool, ToolOutput, tool_fn};
use std::sync::{Arc, Mutex};

/// The arguments of the calls that ran.
pub(super) type Ran = Arc<Mutex<Vec<String>>>;

/// A tool that notes each of its calls, and that must not run twice.
pub(super) fn act(ran: &Ran) -> impl Tool + 'static {
    let ran = Arc::clone(ran);
    tool_fn("act", "Acts.", move |note: Note, _| {
        ran.lock().unwrap().push(note.text.clone());
        async move { ToolOutput::ok(format!("acted {}", note.text)) }
    })
}

fn expiry(dice: &mut Dice) -> Park {
    let expires_after_ms = match dice.below(4) {
        // Before any process can decide it.
        0 => Some(0),
        1 => Some(3_600_000),
        _ => None,
    };
    Park { reason: None, expires_after_ms }
}

/// An approver that parks the run, or decides at once.
#[derive(Clone)]
pub(super) struct Undecided(Arc<Mutex<Dice>>);

impl Undecided {
    pub(super) fn new(dice: &mut Dice) -> Undecided {
        Undecided(Arc::new(Mutex::new(Dice(dice.below(u64::MAX)))))
    }
}

impl Approver for Undecided {
    fn approve(&self, _: ToolCall) -> HookFuture<'_> {
        Box::pin(async {
            let mut dice = self.0.lock().unwrap();
            match dice.below(10) {
                0 => HookDecision::Proceed,
                1 => HookDecision::Deny("no".to_owned()),
                _ => HookDecision::Park(expiry(&mut dice)),
            }
        })
    }
}

/// A hook that changes, denies, adds messages, and parks the run at an answer in text.
#[derive(Clone)]
pub(super) struct Meddles {
    points: Hooks,
    state: Arc<Mutex<(Dice, u32)>>,
}

/// The most questions of a run, because each would otherwise lead to another one.
const MOST_QUESTIONS: u32 = 3;

impl Meddles {
    pub(super) fn new(dice: &mut Dice) -> Meddles {
        let points = Hooks {
            prompt: dice.percent(20),
            pre_iteration: dice.percent(30),
            chat_params: dice.percent(20),
            pre_call: dice.percent(20),
            pre_tool: dice.percent(30),
            post_tool: dice.percent(30),
            stop: dice.percent(30),
            reply: dice.percent(40),
            ..Hooks::default()
        };
        Meddles { points, state: Arc::new(Mutex::new((Dice(dice.below(u64::MAX)), 0))) }
    }
}

impl Hook for Meddles {
    fn points(&self) -> Hooks {
        self.points
    }

    fn consult(&self, point: ConsultPoint) -> HookFuture<'_> {
        Box::pin(async move {
            let (dice, questions) = &mut *self.state.lock().unwrap();
            match point {
                ConsultPoint::Reply if *questions < MOST_QUESTIONS && dice.percent(60) => {
                    *questions += 1;
                    HookDecision::Park(expiry(dice))
                }
                ConsultPoint::ChatParams { .. } if dice.percent(30) => HookDecision::OutputCap(120),
                ConsultPoint::PreTool { .. } if dice.percent(10) => {
                    HookDecision::Deny("not this one".to_owned())
                }
                ConsultPoint::PostTool { .. } if dice.percent(20) => {
                    HookDecision::ChangeResult(ChangedResult::ok("changed"))
                }
                ConsultPoint::Stop { .. } if dice.percent(30) => {
                    HookDecision::Deny("not yet".to_owned())
                }
                ConsultPoint::Prompt | ConsultPoint::PreIteration { .. } => match dice.below(20) {
                    0 => HookDecision::Halt("halt".to_owned()),
                    1..=3 => HookDecision::ProceedWith("By the way.".to_owned()),
                    _ => HookDecision::Proceed,
                },
                _ => HookDecision::Proceed,
            }
        })
    }
}
