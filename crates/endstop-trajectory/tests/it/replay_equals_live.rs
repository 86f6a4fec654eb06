//! Replays journalled runs: a replay ends as the live run did, and under tighter limits as a live
//! run under these limits does.

use endstop::journal::SqliteJournal;
use endstop::testkit::{ScriptedModel, Turn};
use endstop::tool::{ToolOutput, tool_fn};
use endstop::{Agent, Limits, NanoUsd, Outcome, Price, core::RunSpec, policy::Registry};
use endstop_trajectory::replay::replay_events;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

const SCENARIOS: u32 = 300;

/// The SplitMix64 generator.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

fn turn(dice: &mut Dice) -> Turn {
    let said = |n: u64| json!({"text": n.to_string()});
    let turn = match dice.below(16) {
        0..=4 => Turn::call("echo", &said(dice.below(2))),
        5..=6 => Turn::call("echo", &said(dice.below(2))).and_text("I look at it once more."),
        7..=8 => Turn::call("fail", &said(dice.below(2))),
        9 => Turn::call("echo", &said(1)).and_call("fail", &said(2)),
        10 => Turn::call("nothing_of_that_name", &json!({})),
        11 => Turn::call("finish", &json!({"summary": "all of it"})),
        12 => Turn::text("I think FINAL(the answer) is it"),
        13 => Turn::pieces(&["let me ", "think a ", "while"]).finish("length"),
        14 => Turn::text(""),
        _ => Turn::pieces(&["All ", "is ", "well."]),
    };
    turn.usage(20 + dice.below(50), 5 + dice.below(30))
}

/// A generated run without its limits.
struct Scenario {
    turns: Vec<Turn>,
    policy: Option<Value>,
    limits: Limits,
}

impl Scenario {
    fn of(seed: u64) -> Scenario {
        let mut dice = Dice(seed);
        let turns = (0..6 + dice.below(12)).map(|_| turn(&mut dice)).collect();
        let policy = match dice.below(4) {
            0 => Some(json!("final_pattern")),
            1 => Some(json!({"any": ["final_pattern", {"repeat_call_res": {"times": 4}}]})),
            _ => None,
        };
        let limits = Limits {
            max_turns: Some(10 + dice.below(8) as u32),
            max_continuations: dice.below(3) as u32,
            max_consecutive_mistakes: Some(4),
            max_unproductive_turns: (dice.below(3) > 0).then_some(4),
            max_empty_turns: Some(2),
            max_tokens: (dice.below(2) == 0).then_some(50_000),
            max_budget_usd: (dice.below(2) == 0).then_some(5.0),
            ..Limits::default()
        };
        Scenario { turns, policy, limits }
    }

    /// Returns the limits with one or two of them tightened.
    fn tighter(&self, dice: &mut Dice) -> Limits {
        let mut limits = self.limits.clone();
        for _ in 0..1 + dice.below(2) {
            match dice.below(6) {
                0 | 1 => limits.max_turns = Some(1 + dice.below(8) as u32),
                2 => limits.max_consecutive_mistakes = Some(1 + dice.below(3) as u32),
                3 => limits.max_unproductive_turns = Some(1 + dice.below(3) as u32),
                4 => limits.max_empty_turns = Some(dice.below(2) as u32),
                _ => limits.max_continuations = 0,
            }
        }
        limits
    }

    async fn live(&self, limits: &Limits, journal: &SqliteJournal) -> Outcome {
        let price = Price {
            input: NanoUsd::from_usd(3.0),
            output: NanoUsd::from_usd(15.0),
            ..Price::default()
        };
        let echo = tool_fn("echo", "Says it again.", |said: Map<String, Value>, _| async move {
            ToolOutput::ok(said["text"].to_string())
        });
        let fail = tool_fn("fail", "Fails.", |said: Map<String, Value>, _| async move {
            ToolOutput::error(format!("no such thing as {}", said["text"]))
        });
        let mut builder = Agent::builder(ScriptedModel::new(self.turns.clone()).price(price))
            .limits(limits.clone())
            .journal(journal.clone())
            .seed(7)
            .tool(echo)
            .tool(fail);
        if let Some(policy) = &self.policy {
            builder = builder.policy(Registry::new().build(policy).unwrap());
        }
        let agent = builder.build().unwrap();
        let outcome = agent.run("do it").unwrap().outcome().await;
        agent.settled().await;
        outcome
    }
}

/// Serializes an outcome without its id and duration, which differ between runs.
fn told(outcome: &Outcome) -> Value {
    let mut told = serde_json::to_value(outcome).unwrap();
    told["run_id"] = Value::Null;
    told["duration_ms"] = Value::Null;
    told
}

#[tokio::test]
async fn replay_under_tighter_limits_equals_live() {
    let place = tempfile::tempdir().unwrap();
    let journal = SqliteJournal::open(place.path().join("journal.db")).unwrap();
    let mut endings = BTreeMap::<String, u32>::new();
    let mut sooner = 0;
    for seed in 0..u64::from(SCENARIOS) {
        let scenario = Scenario::of(seed);
        let outcome = scenario.live(&scenario.limits, &journal).await;
        let run = journal.load(outcome.run_id.as_deref().unwrap()).unwrap();
        let again = replay_events(run.spec(None).unwrap(), &run.events).unwrap();
        assert_eq!(
            serde_json::to_string(&again).unwrap(),
            serde_json::to_string(&outcome).unwrap()
        );

        let mut dice = Dice(!seed);
        let tighter = scenario.tighter(&mut dice);
        let live = scenario.live(&tighter, &journal).await;
        let spec = RunSpec { limits: tighter.clone(), ..run.spec(None).unwrap() };
        let replayed = replay_events(spec, &run.events).unwrap_or_else(|| {
            panic!(
                "{seed}: the replay continues under {tighter:?}, the live run ended as {}",
                live.termination
            )
        });
        assert_eq!(told(&replayed), told(&live), "{seed}: under {tighter:?}");
        sooner += u32::from(live.turns < outcome.turns);
        *endings.entry(live.termination.to_string()).or_default() += 1;
    }
    // Check that the scenarios are varied, and that the limits have an effect.
    assert!(endings.len() >= 7, "{endings:?}");
    let sooner_in_percent = 100 * sooner / SCENARIOS;
    assert!(sooner_in_percent >= 20, "{sooner} of {SCENARIOS} ended sooner");
}
