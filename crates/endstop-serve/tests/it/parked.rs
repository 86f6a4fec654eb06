//! Runs that wait for approval: they give up their place, survive a shutdown, and continue when they
//! are decided.

use crate::support::{Event, Lab, Scripted, Setup, in_time, kinds, numbered};
use endstop::journal::SqliteJournal;
use endstop::park::Answer;
use endstop::testkit::Turn;
use endstop_serve::ServeOptions;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// An agent that begins with this turn. A run that continues after a park gets only the last answer.
fn once(first: Turn) -> Scripted {
    let built = AtomicBool::new(false);
    Scripted::new(move |_| {
        let continued = built.swap(true, Ordering::Relaxed);
        let first = Some(first.clone()).filter(|_| !continued);
        first.into_iter().chain([Turn::text("Done.")]).collect()
    })
}

fn asking() -> Scripted {
    once(Turn::call("ask", &json!({"path": "x"})))
}

/// A server with one place, whose runs park at once if they wait.
fn parking(agent: Scripted) -> Setup {
    let options = ServeOptions {
        max_running: 1,
        park_after: Some(Duration::ZERO),
        ..ServeOptions::default()
    };
    Setup { options, ..Setup::of(vec![("agent", agent), ("echo", Scripted::echo())]) }
}

/// Starts a run that parks, and returns its id and the number of its request.
async fn parked(lab: &Lab) -> (String, u64) {
    let id = lab.start("agent", "Go.").await;
    let asked = lab.event(&id, "approval_requested").await;
    lab.event(&id, "parked").await;
    until(lab, &id, "parked").await;
    (id, asked.data["request_id"].as_u64().unwrap())
}

/// Waits until a run has this state.
async fn until(lab: &Lab, id: &str, state: &str) {
    in_time(async {
        while lab.get(&format!("/v1/runs/{id}")).await.json()["state"] != state {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn answer(lab: &Lab, id: &str, body: Value) -> crate::support::Answer {
    lab.post(&format!("/v1/runs/{id}/answer"), &body).await
}

fn allow(request: u64) -> Value {
    json!({"request_id": request, "decision": "allow"})
}

/// Checks that the events of an ended run are numbered without a gap, and are the same again.
async fn whole(lab: &Lab, id: &str, seen: &[Event]) {
    let numbers: Vec<u64> = seen.iter().filter_map(|event| event.number).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<u64>>());
    assert_eq!(numbered(&lab.events(id, 0).await), numbered(seen));
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_run_gives_up_its_place() {
    let lab = parking(asking()).start().await;
    let (id, request) = parked(&lab).await;
    // There is one place only.
    let other = lab.start("echo", "Hello.").await;
    assert_eq!(lab.ended(&other).await["termination"], "stop");
    let run = lab.get(&format!("/v1/runs/{id}")).await.json();
    assert_eq!((&run["state"], &run["approvals"]), (&json!("parked"), &json!(1)), "{run}");
    let list = lab.get("/v1/runs?state=parked").await.json();
    assert_eq!(list["runs"][0]["run_id"], id.as_str(), "{list}");
    assert!(lab.get("/metrics").await.body.contains("endstop_serve_runs_parked 1"));
    let said = lab.post(&format!("/v1/runs/{id}/say"), &json!({"text": "Hurry."})).await;
    assert_eq!((said.status, said.code()), (409, "parked".to_owned()));
    // A reader that was there before the answer sees the whole run.
    let mut reader = lab.reader(&id, 0).await;
    let mut seen = Vec::new();
    while let Some(event) = reader.next().await {
        let parked = event.kind == "parked";
        seen.push(event);
        if parked {
            let answered = answer(&lab, &id, allow(request)).await;
            assert_eq!(answered.status, 200, "{answered:?}");
        }
    }
    let run = lab.ended(&id).await;
    assert_eq!(run["termination"], "stop", "{run}");
    let life = numbered(&seen);
    let life = kinds(&life);
    assert_eq!(life[3..7], ["approval_requested", "parked", "decided", "tool_started"], "{life:?}");
    whole(&lab, &id, &seen).await;
    let again = answer(&lab, &id, allow(request)).await;
    assert_eq!((again.status, again.code()), (409, "not_open".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_parks_waiting_runs() {
    let mut lab = Lab::of("agent", asking()).await;
    let id = lab.start("agent", "Go.").await;
    let asked = lab.event(&id, "approval_requested").await;
    // Without a hurry: nothing else works, so the server ends at once.
    lab.begin_stop();
    lab.stopped().await;
    let setup = Setup::of(vec![("agent", Scripted::new(|_| vec![Turn::text("Done.")]))]);
    let lab = Setup { dir: lab.dir.clone(), ..setup }.start().await;
    let run = lab.get(&format!("/v1/runs/{id}")).await.json();
    assert_eq!((&run["state"], &run["approvals"]), (&json!("parked"), &json!(1)), "{run}");
    let mut reader = lab.reader(&id, 0).await;
    let mut seen = Vec::new();
    while let Some(event) = reader.next().await {
        if event.kind == "parked" {
            let request = asked.data["request_id"].as_u64().unwrap();
            assert_eq!(answer(&lab, &id, allow(request)).await.status, 200);
        }
        seen.push(event);
    }
    let run = lab.ended(&id).await;
    assert_eq!(run["termination"], "stop", "{run}");
    whole(&lab, &id, &seen).await;
    assert_eq!(kinds(&seen).iter().filter(|kind| **kind == "tool_started").count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn decision_of_another_process_continues() {
    let lab = parking(asking()).start().await;
    let (id, _) = parked(&lab).await;
    let journal = SqliteJournal::open(lab.journal()).unwrap();
    journal.answer(&id, &Answer::deny("not on a Friday")).unwrap();
    let seen = lab.events(&id, 0).await;
    let denied = seen.iter().find(|event| event.kind == "tool_finished").unwrap();
    assert!(denied.data["content"].as_str().unwrap().contains("not on a Friday"), "{denied:?}");
    whole(&lab, &id, &seen).await;
    assert_eq!(lab.ended(&id).await["termination"], "stop");
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_request_is_a_timeout() {
    let mut setup = parking(asking());
    setup.options.park_expiry = Some(Duration::ZERO);
    let lab = setup.start().await;
    let id = lab.start("agent", "Go.").await;
    let seen = lab.events(&id, 0).await;
    let denied = seen.iter().find(|event| event.kind == "tool_finished").unwrap();
    assert!(denied.data["content"].as_str().unwrap().contains("a timeout, not a person"));
    whole(&lab, &id, &seen).await;
    assert_eq!(lab.ended(&id).await["termination"], "stop");
}

#[tokio::test(flavor = "multi_thread")]
async fn parked_run_can_be_cancelled() {
    let lab = parking(asking()).start().await;
    let (id, request) = parked(&lab).await;
    let mut reader = lab.reader(&id, 0).await;
    let mut seen = Vec::new();
    while let Some(event) = reader.next().await {
        if event.kind == "parked" {
            assert_eq!(lab.post(&format!("/v1/runs/{id}/cancel"), &json!({})).await.status, 202);
        }
        seen.push(event);
    }
    let run = lab.ended(&id).await;
    assert_eq!(run["termination"], "cancelled", "{run}");
    assert!(!kinds(&seen).contains(&"tool_started"), "{seen:?}");
    whole(&lab, &id, &seen).await;
    assert_eq!(answer(&lab, &id, allow(request)).await.status, 409);
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_arguments_reach_a_parked_run() {
    let lab = parking(asking()).start().await;
    let (id, request) = parked(&lab).await;
    let unknown = answer(&lab, &id, allow(request + 1)).await;
    assert_eq!((unknown.status, unknown.code()), (404, "unknown_request".to_owned()));
    let changed = json!({"request_id": request, "decision": "allow", "arguments": {"path": "y"}});
    // It may park again before the answer reaches it; then the request is repeated.
    let answered = in_time(async {
        loop {
            let answered = answer(&lab, &id, changed.clone()).await;
            if answered.status != 503 {
                return answered;
            }
        }
    });
    let answered = answered.await;
    assert_eq!(answered.status, 200, "{answered:?}");
    let seen = lab.events(&id, 0).await;
    let done = seen.iter().find(|event| event.kind == "tool_finished").unwrap();
    assert!(done.data["content"].as_str().unwrap().contains('y'), "{done:?}");
    whole(&lab, &id, &seen).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parallel_requests_are_decided_in_turn() {
    let two = Turn::call("ask", &json!({"path": "a"})).and_call("ask", &json!({"path": "b"}));
    let lab = parking(once(two)).start().await;
    let id = lab.start("agent", "Go.").await;
    let mut reader = lab.reader(&id, 0).await;
    let mut seen: Vec<Event> = Vec::new();
    while let Some(event) = reader.next().await {
        if event.kind == "parked" {
            let effect = &event.data["request"]["call_id"];
            let asked = seen.iter().rev().find(|asked| asked.data["call_id"] == *effect).unwrap();
            let request = asked.data["request_id"].as_u64().unwrap();
            let answered = answer(&lab, &id, allow(request)).await;
            assert_eq!(answered.status, 200, "{answered:?}");
        }
        seen.push(event);
    }
    let finished = |event: &&Event| event.kind == "tool_finished" && event.data["status"] == "ok";
    assert_eq!(seen.iter().filter(finished).count(), 2, "{seen:?}");
    whole(&lab, &id, &seen).await;
    assert_eq!(lab.ended(&id).await["termination"], "stop");
}
