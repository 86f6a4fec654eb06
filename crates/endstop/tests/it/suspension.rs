//! A process that is suspended during a model call: the clock jumps while nothing can arrive.

use crate::support::agent;
use endstop::testkit::{ScriptedModel, Turn};
use endstop::{Agent, AgentEvent, AgentEventKind, Limits, Outcome, Termination};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// Runs until the model is silent, has the clock jump, and returns the events from then on.
async fn jump(limits: Limits, model: ScriptedModel) -> (Vec<AgentEvent>, Outcome) {
    let agent = Agent::builder(model).limits(limits).build().unwrap();
    let mut handle = agent.run("Go.").unwrap();
    // Until the first content has arrived, so that every clock runs.
    while let Some(event) = handle.next().await {
        if matches!(event.kind, AgentEventKind::TextDelta { .. }) {
            break;
        }
    }
    // Longer than any of the timeouts. No task runs in between.
    tokio::time::advance(HOUR).await;
    let mut events = Vec::new();
    while let Some(event) = handle.next().await {
        events.push(event);
    }
    (events, handle.await)
}

fn stalls_after(pause: Duration) -> ScriptedModel {
    ScriptedModel::new([Turn::pieces(&["It ", "is ", "42."]).pace(pause)])
}

fn suspensions(events: &[AgentEvent]) -> Vec<u64> {
    let times = events.iter().filter_map(|event| match &event.kind {
        AgentEventKind::Suspended { duration_ms, .. } => Some(*duration_ms),
        _ => None,
    });
    times.collect()
}

#[tokio::test(start_paused = true)]
async fn clock_jump_is_no_stall() {
    let limits = Limits { max_retries: Some(0), ..Limits::default() };
    // The rest comes 20 s after the jump: within the stall timeout only if the jump does not count.
    let (events, outcome) = jump(limits, stalls_after(HOUR + Duration::from_secs(20))).await;
    assert_eq!(
        outcome.termination,
        Termination::ErrorDuringExecution,
        "the second pause is a stall"
    );
    assert!(outcome.decided_by.evidence.contains("stall_timeout"), "{outcome:?}");
    let [time] = suspensions(&events)[..] else { panic!("{events:?}") };
    assert!((3_594_000..=3_600_000).contains(&time), "{time}");
    assert_eq!(outcome.suspended.as_millis() as u64, time);
    let turns =
        events.iter().filter(|event| matches!(event.kind, AgentEventKind::TextDelta { .. }));
    assert_eq!(turns.count(), 1, "the text that came after the jump was read");
}

#[tokio::test(start_paused = true)]
async fn silence_after_jump_is_a_stall() {
    let limits = Limits { max_retries: Some(0), ..Limits::default() };
    let (events, outcome) = jump(limits, stalls_after(2 * HOUR)).await;
    assert_eq!(outcome.termination, Termination::ErrorDuringExecution);
    assert!(outcome.decided_by.evidence.contains("stall_timeout"), "{outcome:?}");
    assert_eq!(suspensions(&events).len(), 1);
    let counted = outcome.duration - outcome.suspended;
    assert!(counted >= Duration::from_secs(60) && counted < Duration::from_secs(70), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn clock_jump_counts_against_run_timeout() {
    let limits = Limits { timeout: Some(HOUR / 2), max_retries: Some(0), ..Limits::default() };
    let (_, outcome) = jump(limits, stalls_after(2 * HOUR)).await;
    assert_eq!(outcome.termination, Termination::ErrorTimeout);
    assert_eq!(outcome.last_text.as_deref().map(str::trim), Some("It"), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn run_without_jump_reports_none() {
    let agent = agent([Turn::text("late").after(Duration::from_secs(500))]).build().unwrap();
    let outcome = agent.run("Go.").unwrap().await;
    assert_eq!((outcome.termination, outcome.suspended), (Termination::Stop, Duration::ZERO));
    assert!(!serde_json::to_string(&outcome).unwrap().contains("suspended"));
}
