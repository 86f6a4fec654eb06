//! The queue: its order and its bound.

use crate::support::{Scripted, Setup};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn full_queue_refuses_with_429() {
    let agent = Scripted::waiting();
    let permits = agent.permits.clone();
    let mut setup = Setup::of(vec![("waiting", agent)]);
    setup.options.max_running = 2;
    setup.options.max_queued = 3;
    let lab = setup.start().await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(lab.start("waiting", "Go.").await);
    }
    let refused = lab.post("/v1/runs", &json!({"agent": "waiting", "task": "Go."})).await;
    assert_eq!((refused.status, refused.code().as_str()), (429, "queue_full"));
    assert!(refused.head.contains("retry-after: 5"), "{refused:?}");
    let text = lab.get("/metrics").await.body;
    assert!(text.contains("runs_running 2\n") && text.contains("runs_queued 3\n"), "{text}");
    for (at, id) in ids[2..].iter().enumerate() {
        let run = lab.get(&format!("/v1/runs/{id}")).await.json();
        assert_eq!(run["queue_position"], json!(at + 1));
    }
    permits.add_permits(5);
    for id in &ids {
        assert_eq!(lab.ended(id).await["termination"], "stop");
    }
    // A place is free again.
    permits.add_permits(1);
    lab.start("waiting", "Go.").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_start_in_order() {
    let agent = Scripted::waiting();
    let permits = agent.permits.clone();
    let mut setup = Setup::of(vec![("waiting", agent)]);
    setup.options.max_running = 1;
    let lab = setup.start().await;
    let mut ids = Vec::new();
    for _ in 0..6 {
        ids.push(lab.start("waiting", "Go.").await);
    }
    for (at, id) in ids.iter().enumerate() {
        lab.event(id, "tool_started").await;
        // No later run has started.
        for later in &ids[at + 1..] {
            let run = lab.get(&format!("/v1/runs/{later}")).await.json();
            assert_eq!(run["state"], "queued", "{later} of {ids:?}");
        }
        permits.add_permits(1);
        lab.ended(id).await;
    }
}
