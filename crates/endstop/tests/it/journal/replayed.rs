//! Replaying a journal gives the outcome that was written, byte for byte.

use super::{Place, agent, echo, price};
use endstop::budget::SharedBudget;
use endstop::compaction::CompactionConfig;
use endstop::journal::{SqliteJournal, brief};
use endstop::testkit::{ScriptedModel, Turn};
use endstop::tool::{ToolOutput, tool_fn};
use endstop::verifier::Verification;
use endstop::{
    Agent, Limits, Message, MessageId, NanoUsd, Outcome, Role, core::Replay, policy::Registry,
};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// SplitMix64.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

fn turn(dice: &mut Dice) -> Turn {
    let turn = match dice.below(12) {
        0..=3 => Turn::call("echo", &json!({"text": format!("{}", dice.below(3))})),
        4 => Turn::call("echo", &json!({"text": "a"})).and_call("slow", &json!({"text": "b"})),
        5 => Turn::call("slow", &json!({"text": "c"})),
        6 => Turn::call("nothing_of_that_name", &json!({})),
        7 => Turn::error(500, "{\"error\":{\"message\":\"oops\"}}"),
        8 => Turn::text("I think FINAL(the answer) is it").pace(Duration::from_micros(200)),
        9 => Turn::pieces(&["let me ", "think a ", "while"]).finish("length"),
        10 => Turn::text(""),
        _ => Turn::pieces(&["All ", "is ", "well."]),
    };
    turn.usage(20 + dice.below(50), 5 + dice.below(30))
}

async fn play(seed: u64, journal: &SqliteJournal) -> Outcome {
    let mut dice = Dice(seed);
    let turns: Vec<Turn> = (0..3 + dice.below(8)).map(|_| turn(&mut dice)).collect();
    let slow = tool_fn("slow", "Takes its time.", |note: super::Note, _| async move {
        tokio::time::sleep(Duration::from_millis(2)).await;
        ToolOutput::ok(note.text)
    });
    let verifies = dice.below(4) == 0;
    let limits = Limits {
        verify_rounds: (verifies && dice.below(4) > 0).then(|| 1 + dice.below(3) as u32),
        wrap_up: dice.below(3) == 0,
        tell_remaining: dice.below(5) == 0,
        max_turns: Some(2 + dice.below(6) as u32),
        max_retries: Some(dice.below(2) as u32),
        max_continuations: dice.below(2) as u32,
        max_budget_usd: (dice.below(4) == 0).then_some(0.006),
        timeout: (dice.below(6) == 0).then(|| Duration::from_millis(1 + dice.below(6))),
        tool_timeout: Some(Duration::from_millis(if dice.below(5) == 0 { 1 } else { 500 })),
        cancel_grace: Duration::from_millis(5),
        warn_model: dice.below(3) == 0,
        ..Limits::default()
    };
    let mut model = ScriptedModel::new(turns).price(price());
    let mut said = Vec::new();
    if seed.is_multiple_of(3) {
        // Soon full, so that the conversation is shortened, or cannot be.
        model = model.context_window(60);
        for (id, role) in [(1, Role::User), (2, Role::Assistant)] {
            said.push(Message::text(MessageId(id), role, "much was said ".repeat(10)));
        }
    }
    let mut builder = Agent::builder(model)
        .compaction(&CompactionConfig::default())
        .limits(limits)
        .journal(journal.clone())
        .tool(echo())
        .tool(slow);
    if dice.below(2) == 0 {
        builder = builder.policy(Registry::new().build(&json!("final_pattern")).unwrap());
    }
    if dice.below(5) == 0 {
        builder = builder.shared_budget(SharedBudget::new(NanoUsd::from_usd(0.02)));
    }
    if verifies {
        let judged = AtomicU64::new(seed);
        builder = builder.verifier(move |_| {
            // Every third verdict accepts.
            let nth = judged.fetch_add(1, Ordering::SeqCst);
            async move {
                if nth.is_multiple_of(3) {
                    Verification::accepted()
                } else {
                    Verification::rejected("no")
                }
            }
        });
    }
    let agent = builder.build().unwrap();
    let handle = agent.session_from(said).unwrap().run(format!("run {seed}")).unwrap();
    match dice.below(8) {
        0 => {
            tokio::time::sleep(Duration::from_micros(dice.below(4_000))).await;
            agent.cancel();
        }
        1 => {
            tokio::time::sleep(Duration::from_micros(dice.below(4_000))).await;
            agent.terminate();
        }
        _ => {}
    }
    let outcome = handle.outcome().await;
    agent.settled().await;
    outcome
}

#[tokio::test]
async fn random_runs_replay_to_their_outcomes() {
    let place = Place::new();
    let journal = place.journal();
    let mut endings = std::collections::BTreeMap::<String, u32>::new();
    let (mut compacted, mut rounds, mut handed_over) = ([0; 2], 0, 0);
    for seed in 0..1_000 {
        let outcome = play(seed, &journal).await;
        *endings.entry(outcome.termination.to_string()).or_default() += 1;
        for tried in &outcome.compactions {
            compacted[usize::from(tried.failed.is_some())] += 1;
        }
        rounds += outcome.verify_rounds.len();
        handed_over += u32::from(outcome.hand_over.is_some());
        let run = journal.load(outcome.run_id.as_deref().unwrap()).unwrap();
        assert_eq!(run.damage, None);
        let written = run.outcome.clone().unwrap().to_string();
        assert_eq!(written, serde_json::to_string(&outcome).unwrap(), "{seed}");
        let replay = run.replay(None).unwrap();
        let again = serde_json::to_string(replay.outcome().expect("it has ended")).unwrap();
        assert_eq!(again, written, "{seed}: replayed");
        // And what it asked for was what it asks for again.
        let mut replay = Replay::new(run.spec(None).unwrap());
        for (event, asked) in run.events.iter().zip(&run.effects) {
            let effects: Vec<Value> = replay.feed(event.clone()).iter().filter_map(brief).collect();
            assert_eq!(effects, *asked, "{seed}");
        }
    }
    assert!(endings.len() > 8 && endings.contains_key("error_not_verified"), "{endings:?}");
    assert!(rounds > 50, "{rounds} rounds of verification");
    assert!(handed_over > 0, "no hand-over");
    assert!(compacted.iter().all(|count| *count > 20), "shortened and not: {compacted:?}");
}

#[tokio::test]
async fn custom_policy_is_required_for_replay() {
    #[derive(Clone)]
    struct Never;
    impl endstop::policy::TerminationPolicy for Never {
        fn name(&self) -> &str {
            "never"
        }
        fn should_terminate(
            &mut self,
            _: &endstop::policy::StepResult,
            _: &endstop::policy::StepContext,
        ) -> endstop::policy::Verdict {
            endstop::policy::Verdict::Continue
        }
        fn reset(&mut self) {}
    }
    let place = Place::new();
    let journal = place.journal();
    let agent = agent([Turn::text("a")], &journal).policy(Never).build().unwrap();
    let outcome = agent.run("q").unwrap().outcome().await;
    let run = journal.load(outcome.run_id.as_deref().unwrap()).unwrap();
    let error = run.replay(None).unwrap_err().to_string();
    assert!(error.contains("never") && error.contains("code"), "{error}");
    assert!(run.replay(Some(Box::new(Never))).unwrap().outcome().is_some());
}
