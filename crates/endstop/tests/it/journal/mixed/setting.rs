//! A random agent: its scripts, limits, tools and ceilings. The processes of a run build the same one.

use super::super::replayed::Dice;
use super::super::resumed::Dies;
use super::super::{Note, echo, price};
use super::code::{Meddles, Ran, Undecided, act};
use endstop::agent::AgentTool;
use endstop::compaction::CompactionConfig;
use endstop::journal::{Period, SpendBudget, SqliteJournal};
use endstop::policy::Registry;
use endstop::testkit::{ScriptedModel, Turn};
use endstop::tool::{ToolContext, ToolOutput, tool_fn};
use endstop::verifier::Verification;
use endstop::{
    Agent, AgentBuilder, Limits, Message, MessageId, NanoUsd, Permission, Role, core::Usage,
};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The choices that all processes of a run share.
pub(super) struct Setting {
    pub(super) seed: u64,
    /// The conversation before the run.
    pub(super) earlier: Vec<Message>,
    /// The arguments of the calls of `act` that ran.
    pub(super) ran: Ran,
    limits: Limits,
    /// The agent's own model and its fallbacks. Their scripts continue over all processes, as those of
    /// real servers would.
    models: Vec<ScriptedModel>,
    meddles: Meddles,
    undecided: Undecided,
    /// The verdicts so far.
    verdicts: Option<Arc<AtomicU64>>,
    policy: bool,
    schema: bool,
    /// The ceiling of the run's project.
    day: Option<NanoUsd>,
}

impl Setting {
    pub(super) fn new(seed: u64, dice: &mut Dice) -> Setting {
        let verifies = dice.percent(40);
        let fallbacks = if dice.percent(40) { 1 + dice.below(2) } else { 0 };
        let window = dice.percent(20).then(|| 150 + dice.below(500));
        let mut calls = 0;
        let models = (0..=fallbacks).map(|_| model(seed, dice, &mut calls, fallbacks > 0, window));
        let models = models.collect();
        let mut earlier = Vec::new();
        if window.is_some() {
            for (id, role) in [(1, Role::User), (2, Role::Assistant)] {
                earlier.push(Message::text(MessageId(id), role, "much was said ".repeat(20)));
            }
        }
        Setting {
            seed,
            earlier,
            ran: Ran::default(),
            limits: limits(dice, verifies),
            models,
            meddles: Meddles::new(dice),
            undecided: Undecided::new(dice),
            verdicts: verifies.then(|| Arc::new(AtomicU64::new(seed))),
            policy: dice.percent(40),
            schema: dice.percent(10),
            day: dice.percent(30).then(|| NanoUsd((4 + dice.below(30)) * 1_000_000)),
        }
    }

    /// Raises limits, as a caller does who resumes a run that has ended by one.
    pub(super) fn loosen(&mut self, dice: &mut Dice) {
        let turns = self.limits.max_turns.unwrap_or_default();
        self.limits.max_turns = Some(turns + 1 + dice.below(5) as u32);
        self.limits.max_budget_usd = None;
        self.limits.max_tokens = None;
        self.limits.timeout = self.limits.timeout.map(|time| time * 4);
    }

    /// Builds the agent of one process. If `dies` is set, the journal gets no more records than that.
    pub(super) fn agent(&self, journal: &SqliteJournal, dies: Option<u32>) -> Agent {
        let (own, others) = self.models.split_first().unwrap();
        let mut builder = Agent::builder(own.clone())
            .compaction(&CompactionConfig::default())
            .limits(self.limits.clone())
            .max_output_tokens(200)
            .seed(self.seed)
            .permission("act", Permission::Ask)
            .approver(self.undecided.clone())
            .approval_events(true)
            .hook(self.meddles.clone());
        for other in others {
            builder = builder.fallback(other.clone());
        }
        builder = self.tools(builder);
        builder = match dies {
            Some(after) => builder.journal(Dies { inner: journal.clone(), after }),
            None => builder.journal(journal.clone()),
        };
        if self.policy {
            builder = builder.policy(Registry::new().build(&json!("final_pattern")).unwrap());
        }
        if self.schema {
            builder = builder.output_schema(json!({"type": "object", "required": ["answer"]}));
        }
        if let Some(ceiling) = self.day {
            let project = format!("project {}", self.seed);
            let budget = SpendBudget::new().project(project).project_max_usd(Period::Day, ceiling);
            builder = builder.shared_budget(budget.open(journal).unwrap());
        }
        if let Some(verdicts) = &self.verdicts {
            let verdicts = Arc::clone(verdicts);
            builder = builder.verifier(move |_| {
                let nth = verdicts.fetch_add(1, Ordering::SeqCst);
                async move {
                    match nth % 5 {
                        0 => Verification::accepted(),
                        1 => {
                            // Until `verify_timeout`.
                            tokio::time::sleep(Duration::from_secs(3600)).await;
                            Verification::accepted()
                        }
                        2 => Verification::rejected("it failed\n".repeat(9_000)),
                        _ => Verification::rejected("it failed"),
                    }
                }
            });
        }
        builder.build().unwrap()
    }

    fn tools(&self, builder: AgentBuilder) -> AgentBuilder {
        let slow = tool_fn("slow", "Takes its time.", |note: Note, _| async move {
            tokio::time::sleep(Duration::from_secs(note.text.len() as u64)).await;
            ToolOutput::ok(note.text)
        });
        let build = tool_fn("build", "Builds.", |note: Note, _| async move {
            tokio::time::sleep(Duration::from_secs(note.text.len() as u64)).await;
            ToolOutput::ok(format!("built {}", note.text))
        });
        let spends = |note: Note, context: ToolContext| async move {
            let usage = Usage { input_tokens: Some(9), output_tokens: Some(3), ..Usage::default() };
            context.spend(&usage, NanoUsd(50_000), note.text.len() == 3);
            context.set_variable("noted", note.text.as_str());
            context.set_metric("confidence", 0.5);
            if note.text == "aaaa" { ToolOutput::error("no") } else { ToolOutput::ok(note.text) }
        };
        let inner = ScriptedModel::new([
            Turn::call("echo", &json!({"text": "inner"})).usage(9, 3),
            Turn::text("The inner answer.").usage(9, 3),
        ]);
        let inner = Agent::builder(inner.price(price())).tool(echo()).build().unwrap();
        builder
            .tool(act(&self.ran))
            .tool(echo())
            .tool(slow.repeatable().parallel_safe())
            .tool(build.background())
            .tool(tool_fn("spend", "Spends.", spends))
            .tool(AgentTool::new("ask", "Asks another.", inner))
    }
}

fn seconds(dice: &mut Dice, least: u64, most: u64) -> Duration {
    Duration::from_secs(least + dice.below(most - least + 1))
}

fn limits(dice: &mut Dice, verifies: bool) -> Limits {
    let mut at_times = |share: u64, most: u64| dice.percent(share).then(|| 1 + dice.below(most));
    let (rounds, turns, cents, tokens) =
        (at_times(75, 3), at_times(100, 11), at_times(20, 20), at_times(12, 9));
    let (timeout, thinking) = (at_times(25, 300), at_times(20, 20));
    Limits {
        max_turns: turns.map(|turns| 1 + turns as u32),
        max_budget_usd: cents.map(|cents| 0.003 + cents as f64 / 1_000.0),
        max_tokens: tokens.map(|tokens| 500 * tokens),
        timeout: timeout.map(Duration::from_secs),
        turn_timeout: dice.percent(50).then(|| seconds(dice, 20, 120)),
        first_content_timeout: Some(seconds(dice, 10, 80)),
        stall_timeout: Some(seconds(dice, 5, 40)),
        thinking_timeout: thinking.map(Duration::from_secs),
        tool_timeout: Some(seconds(dice, 2, 30)),
        cancel_grace: Duration::from_millis(5),
        max_consecutive_mistakes: Some(2 + dice.below(4) as u32),
        max_retries: Some(dice.below(3) as u32),
        max_continuations: dice.below(2) as u32,
        verify_rounds: rounds.filter(|_| verifies).map(|rounds| rounds as u32),
        verify_timeout: Some(Duration::from_secs(5)),
        wrap_up: dice.percent(50),
        tell_remaining: dice.percent(20),
        tool_concurrency: 1 + dice.below(4) as u32,
        warn_model: dice.percent(30),
        max_rate: dice.percent(20).then(|| "150 tokens/m".parse().unwrap()),
        ..Limits::default()
    }
}

/// A model with a random script, and a text for ever after.
fn model(
    seed: u64,
    dice: &mut Dice,
    calls: &mut u32,
    fails: bool,
    window: Option<u64>,
) -> ScriptedModel {
    let length = 4 + dice.below(12);
    let mut script: Vec<Turn> = (0..length).map(|_| turn(seed, dice, calls, fails)).collect();
    script.push(Turn::text("All is done.").usage(40, 8));
    let model = ScriptedModel::new(script).repeat_last().price(price());
    match window {
        Some(window) => model.context_window(window),
        None => model,
    }
}

/// A random turn. `calls` numbers the calls of `act`, so that each has other arguments.
fn turn(seed: u64, dice: &mut Dice, calls: &mut u32, fails: bool) -> Turn {
    let note = |dice: &mut Dice| match dice.below(4) {
        0 => json!({"text": "a".repeat(4 + dice.below(60) as usize)}),
        _ => json!({"text": "a".repeat(1 + dice.below(4) as usize)}),
    };
    let mut acts = |turn: Turn| {
        *calls += 1;
        turn.and_call("act", &json!({"text": format!("{seed}-{calls}")}))
    };
    let error = |status: u16| Turn::error(status, r#"{"error":{"message":"not now"}}"#);
    let turn = match dice.below(24) {
        0..=3 => acts(Turn::default()),
        4 => {
            let first = acts(Turn::text("Both."));
            acts(first)
        }
        5 => acts(Turn::call("echo", &note(dice)).and_call("slow", &note(dice))),
        6 => Turn::call("echo", &note(dice)),
        7 => Turn::call("slow", &note(dice)).and_call("slow", &note(dice)),
        8 | 9 => Turn::call("build", &note(dice)).and_text("I build."),
        10 => Turn::call("build", &note(dice)).and_call("echo", &note(dice)),
        11 => Turn::call("spend", &note(dice)),
        12 => Turn::call("ask", &json!({"task": "Look it up."})),
        13 => Turn::call("nothing_of_that_name", &json!({})),
        14 if fails => error(404),
        15 if fails => error(529),
        14..=16 => error(500),
        17 => Turn::text("I think FINAL(the answer) is it"),
        18 => Turn::pieces(&["let me ", "think a ", "while"]).finish("length"),
        19 => Turn::text(""),
        20 => Turn::call("finish", &json!({"deliverable": "the answer"})),
        21 => Turn::text(r#"{"answer": 42}"#),
        _ => Turn::pieces(&["All ", "is ", "well."]),
    };
    let turn = turn.usage(20 + dice.below(50), 5 + dice.below(30));
    let turn = if dice.percent(15) { turn.reasoning("hm ".repeat(20)) } else { turn };
    let turn = if dice.percent(15) { turn.pace(seconds(dice, 1, 15)) } else { turn };
    if dice.percent(20) { turn.after(seconds(dice, 1, 90)) } else { turn }
}

/// Returns the changes of a limit that a user may make at any moment.
pub(super) fn change(dice: &mut Dice) -> (&'static str, Value) {
    match dice.below(9) {
        0 | 1 => ("max_turns", json!(1 + dice.below(12))),
        2 => ("timeout", json!(format!("{}s", 5 + dice.below(400)))),
        3 => ("max_tokens", json!(500 + dice.below(5_000))),
        4 => ("max_budget_usd", json!((3 + dice.below(20)) as f64 / 1_000.0)),
        5 => ("stall_timeout", json!("off")),
        6 => ("verify_rounds", json!(1 + dice.below(4))),
        7 => ("wrap_up", json!(false)),
        _ => ("tell_remaining", json!(dice.percent(50))),
    }
}
