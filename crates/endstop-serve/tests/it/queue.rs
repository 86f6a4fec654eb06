//! The queue: its order and its bound.

use crate::support::{Lab, Scripted, Setup};
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
async fn token_fills_only_its_share_of_the_queue() {
    let agent = Scripted::waiting();
    let permits = agent.permits.clone();
    let mut setup = Setup::of(vec![("waiting", agent)]);
    setup.options.max_running = 1;
    setup.options.max_queued = 5;
    let tokens = ["one-token-one-token", "two-token-two-token"];
    for token in tokens {
        setup.tokens = setup.tokens.with(&token[..3], token).unwrap();
    }
    let dir = std::sync::Arc::clone(&setup.dir);
    let (kept, options) = (setup.tokens.clone(), setup.options.clone());
    let lab = setup.start().await;
    let start = async |lab: &Lab, token: &str| {
        let headers = format!("authorization: Bearer {token}\r\n");
        let answer =
            lab.post_with("/v1/runs", &headers, &json!({"agent": "waiting", "task": "Go."})).await;
        let share = answer.body.contains("its share of the queue");
        assert_eq!(share, answer.status == 429 && !answer.body.contains("runs work"), "{answer:?}");
        answer.status
    };
    // The first run works; half of the queue, rounded up, is one token's.
    for status in [201, 201, 201, 201, 429, 429] {
        assert_eq!(start(&lab, tokens[0]).await, status);
    }
    for status in [201, 201, 429] {
        assert_eq!(start(&lab, tokens[1]).await, status);
    }
    // The share holds for the runs that the next process finds, of which one takes the place.
    lab.stop().await;
    let agent = Scripted { permits: permits.clone(), ..Scripted::waiting() };
    let next = Setup { dir, tokens: kept, options, ..Setup::of(vec![("waiting", agent)]) };
    let lab = next.start().await;
    for status in [201, 429] {
        assert_eq!(start(&lab, tokens[0]).await, status);
    }
    permits.add_permits(9);
}

#[tokio::test(flavor = "multi_thread")]
async fn single_token_has_the_whole_queue() {
    let agent = Scripted::waiting();
    let permits = agent.permits.clone();
    let mut setup = Setup::of(vec![("waiting", agent)]);
    setup.options.max_running = 1;
    setup.options.max_queued = 4;
    setup.tokens = setup.tokens.with("one", "one-token-one-token").unwrap();
    let lab = setup.start().await;
    for status in [201, 201, 201, 201, 201, 429] {
        let headers = "authorization: Bearer one-token-one-token\r\n";
        let body = json!({"agent": "waiting", "task": "Go."});
        assert_eq!(lab.post_with("/v1/runs", headers, &body).await.status, status);
    }
    permits.add_permits(5);
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
