//! `POST /v1/runs/{id}/branch`: a run with the beginning of another one.

use crate::support::{Lab, Scripted, Setup, kinds, numbered};
use endstop::Limits;
use endstop::testkit::Turn;
use endstop_serve::ServeOptions;
use serde_json::{Value, json};
use std::sync::Arc;

/// Waits three times, and answers. A branch plays the script from its beginning.
fn waiting() -> Scripted {
    let agent = Scripted::new(|_| {
        let wait = || Turn::call("wait", &json!({}));
        vec![wait(), wait(), wait(), Turn::text("Done.")]
    });
    agent.permits.add_permits(100);
    agent
}

async fn ended_run(lab: &Lab) -> String {
    let id = lab.start("waiting", "Wait three times.").await;
    assert_eq!(lab.ended(&id).await["turns"], 4);
    id
}

async fn branch(lab: &Lab, id: &str, headers: &str, body: Value) -> (u16, Value) {
    let answer = lab.post_with(&format!("/v1/runs/{id}/branch"), headers, &body).await;
    (answer.status, answer.json())
}

#[tokio::test(flavor = "multi_thread")]
async fn branch_is_a_run_of_its_own() {
    let agent = waiting();
    let permits = Arc::clone(&agent.permits);
    let lab = Lab::of("waiting", agent).await;
    let id = ended_run(&lab).await;
    let left = permits.available_permits();
    let body = json!({"turn": 2, "message": "Stop soon.", "limits": {"max_turns": 1}});
    let (status, run) = branch(&lab, &id, "", body).await;
    assert_eq!((status, &run["agent"]), (201, &json!("waiting")), "{run}");
    assert_eq!(run["branched_from"], json!({"run_id": id, "turn": 2}));
    assert_eq!(
        (&run["task"], &run["limits"]),
        (&json!("Wait three times."), &json!({"max_turns": 1}))
    );
    let own = run["run_id"].as_str().unwrap();
    let run = lab.ended(own).await;
    assert_eq!((&run["termination"], &run["turns"]), (&json!("error_max_turns"), &json!(1)));
    let outcome = &run["outcome"];
    assert_eq!(
        (&outcome["branched_from"]["run_id"], &outcome["branched_from"]["turn"]),
        (&json!(id), &json!(2))
    );
    // The task, two turns of the other run, the message, and one turn of its own.
    let messages = outcome["messages"].as_array().unwrap();
    assert_eq!((messages.len(), &messages[5]["parts"][0]["text"]), (8, &json!("Stop soon.")));
    assert_eq!(permits.available_permits(), left - 1, "only its own call ran");
    let events = numbered(&lab.events(own, 0).await);
    assert_eq!((kinds(&events)[0], kinds(&events).last()), ("turn_started", Some(&"finished")));
    // The other run is as it was.
    assert_eq!(lab.get(&format!("/v1/runs/{id}")).await.json()["turns"], 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn branch_with_key_starts_once() {
    let lab = Lab::of("waiting", waiting()).await;
    let id = ended_run(&lab).await;
    let key = "idempotency-key: k-1\r\n";
    let (first, run) = branch(&lab, &id, key, json!({"turn": 1})).await;
    let (again, same) = branch(&lab, &id, key, json!({"turn": 1})).await;
    assert_eq!((first, again, &run["run_id"]), (201, 200, &same["run_id"]));
    let (status, other) = branch(&lab, &id, key, json!({"turn": 2})).await;
    assert_eq!((status, &other["error"]["code"]), (422, &json!("key_reused")));
    // A key that a branch has used does not start another run.
    let start = json!({"agent": "waiting", "task": "Wait three times."});
    assert_eq!(lab.post_with("/v1/runs", key, &start).await.status, 422);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_branches_are_refused() {
    let limits = Limits { max_turns: Some(9), ..Limits::default() };
    let lab = Lab::of("waiting", Scripted { limits, ..waiting() }).await;
    let id = ended_run(&lab).await;
    for (body, says) in [
        (json!({"turn": 5}), "has no complete turn 5; branch at one of its turns 1 to 4"),
        (json!({"turn": 4}), "cannot continue without a message"),
        (json!({"turn": 1, "message": " "}), "`message` is blank"),
        (json!({"turn": 1, "limits": {"max_turns": 10}}), "a request may only lower the limit"),
        (json!({"turn": 1, "limits": {"nonsense": 10}}), "nonsense"),
    ] {
        let (status, error) = branch(&lab, &id, "", body.clone()).await;
        let message = error["error"]["message"].as_str().unwrap();
        assert_eq!(
            (status, &error["error"]["code"]),
            (422, &json!("invalid_run")),
            "{body}: {error}"
        );
        assert!(message.contains(says), "{body}: {message}");
    }
    for body in
        [json!({}), json!({"turn": -1}), json!({"turn": "1"}), json!({"turn": 1, "agent": "x"})]
    {
        assert_eq!(branch(&lab, &id, "", body.clone()).await.0, 400, "{body}");
    }
    let (status, error) = branch(&lab, "none", "", json!({"turn": 1})).await;
    assert_eq!((status, &error["error"]["code"]), (404, &json!("unknown_run")));
    // A start cannot name the run of another client.
    let start = json!({"agent": "waiting", "task": "x", "origin": {"run": id, "turn": 1}});
    assert_eq!(lab.post("/v1/runs", &start).await.status, 400);
    let all = lab.get("/v1/runs").await.json();
    assert_eq!(all["runs"].as_array().unwrap().len(), 1, "nothing was started");
}

#[tokio::test(flavor = "multi_thread")]
async fn queued_branch_survives_restart() {
    let agent = waiting();
    agent.permits.forget_permits(97);
    let options = ServeOptions { max_running: 1, ..ServeOptions::default() };
    let setup = Setup { options, ..Setup::of(vec![("waiting", agent)]) };
    let lab = setup.start().await;
    let id = ended_run(&lab).await;
    // Another run holds the only place, because no permit is left.
    let holds = lab.start("waiting", "Hold.").await;
    lab.event(&holds, "tool_started").await;
    let (_, run) = branch(&lab, &id, "", json!({"turn": 3})).await;
    assert_eq!((&run["state"], &run["queue_position"]), (&json!("queued"), &json!(1)));
    let own = run["run_id"].as_str().unwrap();
    let setup = Setup { dir: lab.stop().await, ..Setup::of(vec![("waiting", waiting())]) };
    let lab = setup.start().await;
    let run = lab.ended(own).await;
    assert_eq!((&run["termination"], &run["branched_from"]["turn"]), (&json!("stop"), &json!(3)));
    assert_eq!(run["outcome"]["branched_from"]["run_id"], json!(id));
}
