//! Background calls with real tools and processes.

use crate::journal::{Place, agent as journalled};
use crate::support::agent;
use endstop::testkit::Turn;
use endstop::tool::{Shell, ToolOutput, tool_fn};
use endstop::{AgentEventKind, BuildError, Limits, Message, NanoUsd, Outcome, Termination};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// A background tool whose calls wait until the gate is opened.
fn build(gate: &Arc<Semaphore>) -> impl endstop::tool::Tool + 'static {
    let gate = Arc::clone(gate);
    let build = tool_fn("build", "Builds.", move |_: Value, _| {
        let gate = Arc::clone(&gate);
        async move {
            drop(gate.acquire().await.unwrap());
            ToolOutput::ok("built")
        }
    });
    build.background()
}

fn texts(outcome: &Outcome) -> Vec<String> {
    outcome.messages.iter().map(Message::plain_text).collect()
}

#[tokio::test]
async fn answer_waits_for_background_result() {
    let place = Place::new();
    let journal = place.journal();
    let gate = Arc::new(Semaphore::new(0));
    let turns = [Turn::call("build", &json!({})), Turn::text("It builds."), Turn::text("Done.")];
    let agent = journalled(turns, &journal).tool(build(&gate)).build().unwrap();
    let mut handle = agent.run("Go.").unwrap();
    let mut turns = 0;
    while let Some(event) = handle.next().await {
        turns += u32::from(matches!(event.kind, AgentEventKind::TurnFinished { .. }));
        if turns == 2 {
            // The model has answered, and the call still runs.
            gate.add_permits(1);
            break;
        }
    }
    let outcome = handle.await;
    assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
    assert_eq!((outcome.last_text.as_deref(), outcome.turns), (Some("Done."), 3));
    let texts = texts(&outcome);
    let told = texts.iter().find(|text| text.starts_with("Background call h1 (`build`)"));
    assert!(told.is_some_and(|text| text.ends_with("\n\nbuilt")), "{texts:?}");
    let run = journal.load(outcome.run_id.as_deref().unwrap()).unwrap();
    let replay = run.replay(None).unwrap();
    assert_eq!(
        serde_json::to_string(replay.outcome().unwrap()).unwrap(),
        serde_json::to_string(&outcome).unwrap()
    );
}

#[cfg(unix)]
#[tokio::test]
async fn open_process_ends_with_its_run() {
    for (last, termination) in [
        (Turn::call("finish", &json!({"deliverable": "42"})), Termination::Submitted),
        (Turn::text("").after(Duration::from_secs(600)), Termination::Cancelled),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let command = format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 600", file.display());
        let waiting = file.clone();
        let wait = tool_fn("wait", "Waits for the process.", move |_: Value, _| {
            let file = waiting.clone();
            async move {
                let began = Instant::now();
                while !file.exists() && began.elapsed() < Duration::from_secs(60) {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                ToolOutput::ok("it runs")
            }
        });
        let turns = [
            Turn::call("shell", &json!({"command": command})),
            Turn::call("wait", &json!({})),
            last,
        ];
        let builder = agent(turns).tool(Shell::default()).background("shell").tool(wait);
        let agent = builder.build().unwrap();
        let mut handle = agent.run("Go.").unwrap();
        if termination == Termination::Cancelled {
            let mut turns = 0;
            while let Some(event) = handle.next().await {
                turns += u32::from(matches!(event.kind, AgentEventKind::TurnStarted { .. }));
                if turns == 3 {
                    handle.cancel();
                    break;
                }
            }
        }
        let outcome = handle.await;
        assert_eq!(outcome.termination, termination, "{outcome:?}");
        let work: Vec<&str> = outcome.background.iter().map(|work| work.name.as_str()).collect();
        assert_eq!(work, ["shell"]);
        assert!(texts(&outcome).last().unwrap().contains("may have done part of its work"));
        agent.settled().await;
        let pid: i32 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        assert!(rustix::process::test_kill_process(pid).is_err(), "the process is still there");
    }
}

#[tokio::test]
async fn background_call_spends_none_of_the_ceiling() {
    let spend = |background: bool| async move {
        let tool = tool_fn(
            "ask",
            "Asks another model.",
            |_: Value, context: endstop::tool::ToolContext| async move {
                let budget = context.budget().expect("the run has a ceiling");
                let held = budget.reserve(NanoUsd(1_000), NanoUsd(1));
                budget.settle(held, NanoUsd::ZERO);
                ToolOutput::ok(format!("granted {}", held.0))
            },
        );
        let tool = if background { tool.background() } else { tool };
        let limits = Limits { max_budget_usd: Some(1.0), ..Limits::default() };
        let turns = [Turn::call("ask", &json!({})), Turn::text("Done."), Turn::text("Done.")];
        let agent =
            agent(turns).limits(limits).price(crate::journal::price()).max_output_tokens(99);
        let outcome = agent.tool(tool).build().unwrap().run("Go.").unwrap().await;
        serde_json::to_string(&outcome.messages).unwrap()
    };
    assert!(spend(false).await.contains("granted 1000"));
    // The model is called while it runs, and both would spend what is left.
    assert!(spend(true).await.contains("granted 0"));
}

#[test]
fn unknown_background_tool_is_refused() {
    let error = agent([]).tool(Shell::default()).background("shel").build().unwrap_err();
    assert!(matches!(error, BuildError::UnknownToolOf { setting: "background", .. }));
    assert!(error.to_string().contains("expected one of shell"), "{error}");
}
