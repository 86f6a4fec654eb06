//! Messages and changes of limits while a run works, through its handle.

use crate::journal::{Place, agent as journalled};
use crate::support::agent;
use endstop::testkit::{ScriptedModel, Turn};
use endstop::tool::{ToolOutput, tool_fn};
use endstop::{
    Agent, AgentEventKind, LimitChanges, Limits, Message, Outcome, RunHandle, SteerError,
    Termination,
};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// A tool whose calls wait until the gate is opened.
fn look(gate: &Arc<Semaphore>) -> impl endstop::tool::Tool + 'static {
    let gate = Arc::clone(gate);
    tool_fn("look", "Looks.", move |_: Value, _| {
        let gate = Arc::clone(&gate);
        async move {
            drop(gate.acquire().await.unwrap());
            ToolOutput::ok("a.txt")
        }
    })
}

fn closed() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(0))
}

fn changes(name: &str, value: Value) -> LimitChanges {
    LimitChanges::new().set(name, value).unwrap()
}

fn texts(outcome: &Outcome) -> Vec<String> {
    outcome.messages.iter().map(Message::plain_text).collect()
}

/// Reads events until a tool has started.
async fn until_tool(handle: &mut RunHandle) {
    while let Some(event) = handle.next().await {
        if matches!(event.kind, AgentEventKind::ToolStarted { .. }) {
            return;
        }
    }
    panic!("no tool was started");
}

#[tokio::test]
async fn message_is_journalled_and_replayed() {
    let place = Place::new();
    let journal = place.journal();
    let gate = closed();
    let turns = [Turn::call("look", &json!({})), Turn::text("Done.")];
    let agent = journalled(turns, &journal).tool(look(&gate)).build().unwrap();
    let mut handle = agent.run("Go.").unwrap();
    until_tool(&mut handle).await;
    handle.say("Leave the database alone.").unwrap();
    handle.set_limits(changes("max_turns", json!(80))).unwrap();
    gate.add_permits(1);
    let outcome = handle.await;
    assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
    assert!(texts(&outcome).contains(&"Leave the database alone.".to_owned()), "{outcome:?}");
    let run = journal.load(outcome.run_id.as_deref().unwrap()).unwrap();
    assert_eq!(run.limits().max_turns, Some(80));
    let names: Vec<&str> = run.events.iter().map(|event| event.kind.name()).collect();
    assert!(names.contains(&"said") && names.contains(&"limits_changed"), "{names:?}");
    let replay = run.replay(None).unwrap();
    assert_eq!(
        serde_json::to_string(replay.outcome().unwrap()).unwrap(),
        serde_json::to_string(&outcome).unwrap()
    );
}

#[tokio::test]
async fn wrong_messages_are_refused() {
    let agent = agent([Turn::text("late").after(Duration::from_secs(600))]).build().unwrap();
    let handle = agent.run("Go.").unwrap();
    assert_eq!(handle.say(" \n"), Err(SteerError::Blank));
    let long = "x".repeat((64 << 10) + 1);
    assert_eq!(handle.say(&long), Err(SteerError::TooLong { bytes: long.len() }));
    let most = "x".repeat(64 << 10);
    for _ in 0..64 {
        handle.say(&most).unwrap();
    }
    assert_eq!(handle.say("x"), Err(SteerError::TooMuch));
    let steering = handle.steering();
    agent.cancel();
    let outcome = handle.await;
    assert_eq!(steering.say("x"), Err(SteerError::Ended));
    assert_eq!(steering.set_limits(changes("max_turns", json!(1))), Err(SteerError::Ended));
    assert_eq!(texts(&outcome).iter().filter(|text| **text == most).count(), 64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepted_message_is_never_lost() {
    let place = Place::new();
    let journal = place.journal();
    let mut late = 0;
    for round in 0..300_u32 {
        let agent = journalled(vec![Turn::text("Done."); 12], &journal).build().unwrap();
        let handle = agent.run("Go.").unwrap();
        let steering = handle.steering();
        let sender = std::thread::spawn(move || {
            let mut accepted = Vec::new();
            for nth in 0_u32.. {
                // Until the run has ended, which the messages themselves delay.
                let text = format!("message {round} {nth}");
                match steering.say(&text) {
                    Ok(()) => accepted.push(text),
                    Err(error) => {
                        assert_eq!(error, SteerError::Ended);
                        break;
                    }
                }
                if nth >= round % 7 {
                    break;
                }
            }
            accepted
        });
        let outcome = handle.await;
        let accepted = sender.join().unwrap();
        let all = texts(&outcome);
        let said: Vec<&String> = all.iter().filter(|text| text.starts_with("message")).collect();
        assert_eq!(said, accepted.iter().collect::<Vec<_>>(), "{round}");
        late += u32::from(all.last().is_some_and(|text| text.starts_with("message")));
        let run = journal.load(outcome.run_id.as_deref().unwrap()).unwrap();
        let replay = run.replay(None).unwrap();
        let again = serde_json::to_string(replay.outcome().unwrap()).unwrap();
        assert_eq!(again, serde_json::to_string(&outcome).unwrap(), "{round}: replayed");
    }
    assert!(late < 300, "messages also came before the end");
}

#[tokio::test]
async fn limits_change_a_run_that_works() {
    let endless = || ScriptedModel::new([Turn::call("look", &json!({}))]).repeat_last();
    let limits = Limits { max_turns: Some(4), max_unproductive_turns: None, ..Limits::default() };
    for (max, expected) in [(2, 2), (9, 9)] {
        let gate = closed();
        let agent =
            Agent::builder(endless()).tool(look(&gate)).limits(limits.clone()).build().unwrap();
        let mut handle = agent.run("Go.").unwrap();
        until_tool(&mut handle).await;
        handle.set_limits(changes("max_turns", json!(max))).unwrap();
        assert_eq!(handle.steering().limits().max_turns, Some(max));
        gate.add_permits(1);
        let outcome = handle.await;
        assert_eq!(outcome.termination, Termination::ErrorMaxTurns);
        assert_eq!(outcome.turns, expected, "{outcome:?}");
    }
}

#[tokio::test]
async fn untrusted_sender_may_only_tighten() {
    let agent = agent([Turn::text("late").after(Duration::from_secs(600))])
        .limits(Limits { max_turns: Some(10), ..Limits::default() })
        .build()
        .unwrap();
    let handle = agent.run("Go.").unwrap();
    let steering = handle.steering();
    steering.tighten_limits(changes("max_turns", json!(5))).unwrap();
    // Compared with the limits after the first change.
    for (name, value) in [("max_turns", json!(6)), ("stall_timeout", json!("off"))] {
        let refused = steering.tighten_limits(changes(name, value)).unwrap_err();
        assert!(matches!(&refused, SteerError::Loosens(names) if names == &[name]), "{refused}");
    }
    for (name, value, problem) in [
        ("max_budget_usd", json!(1), "no price"),
        ("verify_rounds", json!(2), "no verifier"),
        ("wrap_up", json!(true), "switched off"),
    ] {
        let refused = steering.set_limits(changes(name, value)).unwrap_err().to_string();
        assert!(refused.contains(name) && refused.contains(problem), "{refused}");
    }
    assert_eq!(steering.limits().max_turns, Some(5));
    // Ends the run although the model never answers.
    steering.tighten_limits(changes("timeout", json!("1ms"))).unwrap();
    assert_eq!(handle.await.termination, Termination::ErrorTimeout);
}

#[tokio::test]
async fn secret_in_message_is_not_journalled() {
    let place = Place::new();
    let journal = place.journal();
    let gate = closed();
    let turns = [Turn::call("look", &json!({})), Turn::text("Done.")];
    let agent = journalled(turns, &journal).tool(look(&gate)).build().unwrap();
    let mut handle = agent.run("Go.").unwrap();
    until_tool(&mut handle).await;
    let key = format!("sk-ant-api03-{}", "Zq7".repeat(31));
    handle.say(format!("Use the key {key}.")).unwrap();
    gate.add_permits(1);
    let outcome = handle.await;
    assert!(outcome.messages.iter().any(|message| message.plain_text().contains(&key)));
    let run = journal.load(outcome.run_id.as_deref().unwrap()).unwrap();
    assert!(!serde_json::to_string(&run.events).unwrap().contains(&key));
    assert!(run.redacted > 0, "a resumed run must know that a message was changed");
}
