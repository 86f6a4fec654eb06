//! Misbehaving user code, which refuses, panics, hangs, blocks or is slow: hooks, an approver, a
//! compactor, a policy, an observer and a tool.
//!
//! ```text
//! let rough = Rough::new(&mut dice, &at_work, &tally);
//! builder = rough.stand_in(builder);
//! ```

use crate::dice::Dice;
use crate::tally::Tally;
use crate::tools::AtWork;
use endstop::compaction::CompactionRequest;
use endstop::core::history;
use endstop::hook::{Approver, CompactionFuture, Compactor, Hook, HookFuture};
use endstop::policy::PolicyEnd;
use endstop::tool::{Tool, ToolContext, ToolFuture, ToolOutput};
use endstop::{
    AgentBuilder, Message, NanoUsd, Permission, ToolCall,
    compaction::{Compaction, ProactiveCompaction},
    hook::{ConsultPoint, HookDecision, Hooks},
    policy::{StepContext, StepResult, Stop, TerminationPolicy, Verdict},
};
use serde_json::{Map, Value, json};
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Message of a deliberate panic.
pub(crate) const WORDS: &str = "the chaos panics";

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Well,
    Says,
    No,
    Halt,
    Panics,
    Hangs,
    Slow,
    Blocks,
}

/// The ways with their shares in percent; the rest behaves well.
const WAYS: [(u64, Way); 7] = [
    (6, Way::Says),
    (6, Way::No),
    (3, Way::Halt),
    (5, Way::Panics),
    (4, Way::Hangs),
    (10, Way::Slow),
    (4, Way::Blocks),
];

/// Misbehaving code that implements all extension points.
#[derive(Clone)]
pub(crate) struct Rough(Arc<Inner>);

struct Inner {
    dice: Mutex<Dice>,
    at_work: AtWork,
    tally: Arc<Tally>,
    hooks: Hooks,
    /// `true` if it is installed as approver, compactor, policy, observer.
    places: [bool; 4],
    /// Cost of a compaction; zero for runs with a budget.
    // The cost of a compaction is known only afterwards, so it could exceed a ceiling legitimately.
    cost: NanoUsd,
}

impl Rough {
    pub(crate) fn new(
        dice: &mut Dice,
        budget: bool,
        at_work: &AtWork,
        tally: &Arc<Tally>,
    ) -> Rough {
        let mut here = |share: u64| dice.percent(share);
        let hooks = Hooks {
            prompt: here(25),
            pre_iteration: here(25),
            chat_params: here(25),
            pre_tool: here(25),
            stop: here(25),
            ..Hooks::default()
        };
        let places = [here(30), here(20), here(40), here(20)];
        Rough(Arc::new(Inner {
            dice: Mutex::new(Dice::new(dice.below(u64::MAX), &[])),
            at_work: at_work.clone(),
            tally: Arc::clone(tally),
            hooks,
            places,
            cost: if budget { NanoUsd::ZERO } else { NanoUsd(1_000) },
        }))
    }

    /// `true` if the code decides about calls.
    pub(crate) fn is_approver(&self) -> bool {
        self.0.places[0]
    }

    /// `true` if the code is a policy, which a journal cannot rebuild.
    pub(crate) fn is_policy(&self) -> bool {
        self.0.places[2]
    }

    /// Installs the code in a loop.
    pub(crate) fn stand_in(&self, mut builder: AgentBuilder) -> AgentBuilder {
        let [approver, compactor, policy, observer] = self.0.places;
        builder = builder.hook(self.clone()).tool(self.clone());
        if approver {
            builder = builder.permission("act", Permission::Ask).approver(self.clone());
        }
        if compactor {
            builder =
                builder.compactor(self.clone()).proactive_compaction(ProactiveCompaction::Ask);
        }
        if policy {
            builder = builder.policy(self.clone());
        }
        if observer {
            let rough = self.clone();
            builder = builder.on_event(move |_| {
                rough.within("observer");
            });
        }
        builder
    }

    fn way(&self, place: &str, share: u64) -> (Way, Duration) {
        let mut dice = self.0.dice.lock().unwrap_or_else(PoisonError::into_inner);
        let rough = dice.percent(share);
        let way = if rough { dice.weighed(Way::Well, &WAYS) } else { Way::Well };
        if way != Way::Well {
            self.0.tally.code(&format!("{place}: {way:?}"));
        }
        (way, dice.millis(1, 8))
    }

    /// Misbehaves on the run's own task; called many times per run, so it is rarely rough.
    fn within(&self, place: &str) -> Way {
        let (way, time) = self.way(place, 10);
        match way {
            // Unlike `panic!`, this does not call the panic hook, which would print a message.
            Way::Panics => resume_unwind(Box::new(WORDS)),
            // Code on the run's own task cannot be bounded by a limit, so hanging is only a pause
            // here.
            Way::Hangs | Way::Slow | Way::Blocks => std::thread::sleep(time),
            _ => {}
        }
        way
    }

    /// Misbehaves on a separate task.
    async fn apart(&self, place: &str) -> Way {
        let _under_way = self.0.at_work.begin();
        let (way, time) = self.way(place, 100);
        match way {
            Way::Panics => resume_unwind(Box::new(WORDS)),
            Way::Hangs => std::future::pending().await,
            Way::Slow => tokio::time::sleep(time).await,
            Way::Blocks => std::thread::sleep(time),
            _ => {}
        }
        way
    }
}

impl Hook for Rough {
    fn points(&self) -> Hooks {
        self.0.hooks
    }
    fn consult(&self, point: ConsultPoint) -> HookFuture<'_> {
        Box::pin(async move {
            let place = match &point {
                ConsultPoint::Prompt => "prompt",
                ConsultPoint::PreIteration { .. } => "pre_iteration",
                ConsultPoint::ChatParams { .. } => "chat_params",
                ConsultPoint::PreTool { .. } => "pre_tool",
                ConsultPoint::Stop { .. } => "stop",
                _ => "approval",
            };
            match self.apart(place).await {
                Way::Says if place == "chat_params" => HookDecision::OutputCap(200),
                Way::Says => HookDecision::ProceedWith("By the way.".to_owned()),
                Way::No => HookDecision::Deny("no".to_owned()),
                Way::Halt => HookDecision::Halt("halt".to_owned()),
                _ => HookDecision::Proceed,
            }
        })
    }
}

impl Approver for Rough {
    fn approve(&self, call: ToolCall) -> HookFuture<'_> {
        self.consult(ConsultPoint::Approval { call })
    }
}

impl Compactor for Rough {
    fn compact(&self, request: CompactionRequest) -> CompactionFuture<'_> {
        Box::pin(async move {
            match self.apart("compaction").await {
                Way::No | Way::Halt => Compaction::Failed("no".to_owned()),
                Way::Says => self.shortened(request),
                _ => Compaction::NotNeeded,
            }
        })
    }
}

impl Rough {
    /// Returns only the task and the unanswered messages if that is shorter. The kernel decides if
    /// it accepts the result.
    fn shortened(&self, request: CompactionRequest) -> Compaction {
        let (open, before) = (history::open_from(&request.messages), request.messages.len());
        let stays =
            |(at, message): &(usize, Message)| *at >= open || request.task == Some(message.id);
        let kept = request.messages.into_iter().enumerate().filter(stays);
        let messages: Vec<Message> = kept.map(|(_, message)| message).collect();
        if messages.len() == before {
            return Compaction::NotNeeded;
        }
        Compaction::Done { messages, cost: self.0.cost, strategy: "rough".to_owned() }
    }

    fn verdict(&self, place: &str) -> (Way, Option<Stop>) {
        let way = self.within(place);
        // The deciding policy and its answer must appear in the outcome unchanged.
        let mut stop = Stop::submitted("rough", "it was enough").answer("enough");
        if way == Way::Halt {
            stop.ends_as = PolicyEnd::Halted;
        }
        (way, matches!(way, Way::No | Way::Halt).then_some(stop))
    }
}

impl TerminationPolicy for Rough {
    fn name(&self) -> &'static str {
        "rough"
    }
    fn should_terminate(&mut self, _: &StepResult, _: &StepContext) -> Verdict {
        match self.verdict("step") {
            (_, Some(stop)) => Verdict::Stop(stop),
            (Way::Says, None) => Verdict::Tell("Mind the time.".to_owned()),
            _ => Verdict::Continue,
        }
    }
    fn begin_turn(&mut self) {
        self.within("begin_turn");
    }
    fn on_delta(&mut self, _: &str, _: &StepContext) -> Option<Stop> {
        self.verdict("look").1
    }
    fn on_text_complete(&mut self, _: &str, _: &StepContext) -> Option<Stop> {
        self.verdict("on_text_complete").1
    }
    fn reset(&mut self) {
        self.within("reset");
    }
}

impl Tool for Rough {
    fn name(&self) -> &'static str {
        "rough"
    }
    fn description(&self) -> &'static str {
        "Acts."
    }
    fn schema(&self) -> Value {
        json!({"type": "object"})
    }
    fn call(&self, _: Map<String, Value>, _: ToolContext) -> ToolFuture<'_> {
        Box::pin(async move {
            match self.apart("tool").await {
                Way::No => ToolOutput::error("no"),
                Way::Halt => ToolOutput::halt("halt"),
                _ => ToolOutput::ok("done"),
            }
        })
    }
    fn parallel_safe(&self) -> bool {
        true
    }
}
