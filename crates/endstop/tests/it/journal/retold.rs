//! The events of a stored run, told again, and runs that are ended without being resumed.

use super::{Place, agent, echo};
use endstop::agent::{end_interrupted, new_run_id};
use endstop::journal::{Journal, SqliteJournal};
use endstop::testkit::Turn;
use endstop::{
    Agent, AgentEvent, AgentEventKind, Approval, Limits, Outcome, Permission, RunInput, StartError,
    Termination,
};
use serde_json::{Value, json};

/// The events of a run that the journal can tell again.
fn told(events: &[AgentEvent]) -> Vec<Value> {
    let lifecycle = |event: &&AgentEvent| {
        !event.kind.is_delta() && !matches!(event.kind, AgentEventKind::Warning { .. })
    };
    events.iter().filter(lifecycle).map(|event| serde_json::to_value(event).unwrap()).collect()
}

/// Runs an agent, allows each call that asks, and returns the events.
async fn events(agent: &Agent, input: &str) -> Vec<AgentEvent> {
    let mut handle = agent.run(input).unwrap();
    let mut events = Vec::new();
    while let Some(event) = handle.next().await {
        if let AgentEventKind::ApprovalRequested { request_id, .. } = &event.kind {
            handle.answer(*request_id, Approval::Allow).unwrap();
        }
        events.push(event);
    }
    events
}

#[tokio::test]
async fn journal_tells_the_same_events() {
    let note = |text: &str| Turn::call("echo", &json!({"text": text})).and_text("I look.");
    let scripts: [Vec<Turn>; 6] = [
        vec![Turn::text("Done.")],
        vec![note("a"), note("b").and_call("echo", &json!({"text": "c"})), Turn::text("Done.")],
        vec![Turn::text("Half an ans").finish("length")],
        vec![Turn::error(500, "{}"), note("a"), Turn::text("Done.")],
        vec![note("same"), note("same"), note("same"), note("same"), note("same"), note("same")],
        vec![Turn::text("I would rather not").finish("content_filter")],
    ];
    for (at, script) in scripts.into_iter().enumerate() {
        let place = Place::new();
        let journal = place.journal();
        let limits = Limits { max_turns: Some(5), ..Limits::default() };
        let agent = agent(script, &journal)
            .tool(echo())
            .permission("echo", Permission::Ask)
            .approval_events(true)
            .limits(limits)
            .build()
            .unwrap();
        let live = events(&agent, "Go.").await;
        let again = journal.load(live[0].run_id()).unwrap().events_again().unwrap();
        assert_eq!(told(&live), told(&again), "script {at}");
    }
}

#[tokio::test]
async fn resumed_run_tells_all_its_events() {
    let place = Place::new();
    let journal = place.journal();
    let limits = |turns| Limits { max_turns: Some(turns), ..Limits::default() };
    let note = Turn::call("echo", &json!({"text": "a"}));
    let script = vec![note.clone(), note];
    let first = agent(script, &journal).tool(echo()).limits(limits(2)).build().unwrap();
    let live = events(&first, "Go.").await;
    let next = agent([Turn::text("Done.")], &journal).tool(echo()).limits(limits(9)).build();
    let mut handle = next.unwrap().resume(live[0].run_id()).unwrap();
    let id = handle.run_id().to_owned();
    let mut rest = Vec::new();
    while let Some(event) = handle.next().await {
        rest.push(event);
    }
    let again = told(&journal.load(&id).unwrap().events_again().unwrap());
    // The new run tells its own events last; before them come those of the run that it continues.
    assert_eq!(again[again.len() - told(&rest).len()..], told(&rest));
    let ids: Vec<&Value> = again.iter().map(|event| &event["run_id"]).collect();
    assert!(ids.iter().all(|of| **of == json!(id)), "{ids:?}");
}

/// Runs an agent until its second call of the model, and leaves the journal as a crash would.
async fn interrupted(place: &Place) -> (SqliteJournal, String) {
    let journal = place.journal();
    let turns = [
        Turn::call("echo", &json!({"text": "a"})),
        Turn::text("never").after(std::time::Duration::from_secs(3600)),
    ];
    let agent = agent(turns, &journal).tool(echo()).build().unwrap();
    let mut handle = agent.run(RunInput::new("Go.").id("left-behind")).unwrap();
    let mut turns = 0;
    while let Some(event) = handle.next().await {
        turns += u32::from(matches!(event.kind, AgentEventKind::TurnStarted { .. }));
        if turns == 2 {
            break;
        }
    }
    // Another file, because this process still drives the run in the first one.
    let copy = place.dir.path().join("copy.db");
    let source = rusqlite::Connection::open(place.file()).unwrap();
    source.execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
    handle.terminate();
    (SqliteJournal::open(copy).unwrap(), "left-behind".to_owned())
}

#[tokio::test]
async fn interrupted_run_ends_with_a_reason() {
    let place = Place::new();
    let (journal, id) = interrupted(&place).await;
    let left = journal.interrupted().unwrap();
    assert_eq!(left.iter().map(|run| &run.id).collect::<Vec<_>>(), [&id]);
    assert_eq!((left[0].turns, left[0].cost), (None, None), "known once it has ended");
    let outcome = end_interrupted(&journal, &id, "its agent is gone").unwrap();
    assert!(journal.interrupted().unwrap().is_empty());
    assert_eq!(outcome.termination, Termination::ErrorDuringExecution);
    assert!(outcome.decided_by.evidence.contains("its agent is gone"), "{outcome:?}");
    assert_eq!((outcome.turns, outcome.tool_calls), (1, 1));
    let stored = journal.load(&id).unwrap();
    // The stored events lead to the stored outcome.
    let replayed = stored.replay(None).unwrap().into_outcome().unwrap();
    let read: Outcome = serde_json::from_value(stored.outcome.clone().unwrap()).unwrap();
    assert_eq!(serde_json::to_value(&*replayed).unwrap(), serde_json::to_value(&read).unwrap());
    let again = stored.events_again().unwrap();
    assert!(matches!(again.last().map(|event| &event.kind), Some(AgentEventKind::Finished { .. })));
    // A run ends only once.
    assert!(end_interrupted(&journal, &id, "again").is_err());
    assert!(end_interrupted(&journal, "unknown", "why").is_err());
    assert!(journal.resume(&id).is_err());
}

#[tokio::test]
async fn live_run_cannot_be_ended() {
    let place = Place::new();
    let journal = place.journal();
    let slow = Turn::text("never").after(std::time::Duration::from_secs(3600));
    let agent = agent([slow], &journal).build().unwrap();
    let mut handle = agent.run("Go.").unwrap();
    handle.next().await;
    let error = end_interrupted(&journal, handle.run_id(), "why").unwrap_err();
    assert!(error.to_string().contains("driven by another process"), "{error}");
    handle.cancel();
    assert_eq!(handle.await.termination, Termination::Cancelled);
}

#[tokio::test]
async fn caller_chooses_the_run_id() {
    let place = Place::new();
    let journal = place.journal();
    let agent = agent([Turn::text("a"), Turn::text("b")], &journal).build().unwrap();
    let id = new_run_id();
    let outcome = agent.run(RunInput::new("Go.").id(&id)).unwrap().await;
    assert_eq!(outcome.run_id.as_deref(), Some(id.as_str()));
    assert!(journal.load(&id).is_ok());
    for wrong in ["", "a b", "../x", "ä", &"x".repeat(65)] {
        let refused = agent.run(RunInput::new("Go.").id(wrong)).unwrap_err();
        assert_eq!(refused, StartError::InvalidId(wrong.to_owned()));
    }
}
