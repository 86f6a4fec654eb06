//! Messages and lower limits for a run that works.

use crate::support::{Answer, Lab, Scripted};
use serde_json::{Value, json};

async fn post(lab: &Lab, id: &str, what: &str, body: Value) -> Answer {
    lab.post(&format!("/v1/runs/{id}/{what}"), &body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn message_enters_before_next_call() {
    let agent = Scripted::waiting();
    let permits = agent.permits.clone();
    let lab = Lab::of("waiting", agent).await;
    let id = lab.start("waiting", "Go.").await;
    lab.event(&id, "tool_started").await;
    assert_eq!(post(&lab, &id, "say", json!({"text": "Leave b alone."})).await.status, 202);
    permits.add_permits(1);
    let messages = lab.ended(&id).await["outcome"]["messages"].to_string();
    assert!(messages.contains("Leave b alone."), "{messages}");
    let late = post(&lab, &id, "say", json!({"text": "Thanks."})).await;
    assert_eq!((late.status, late.code()), (409, "not_open".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn lower_limit_ends_the_run() {
    let agent = Scripted::waiting();
    let permits = agent.permits.clone();
    let lab = Lab::of("waiting", agent).await;
    let id = lab.start("waiting", "Go.").await;
    lab.event(&id, "tool_started").await;
    for looser in [json!({"max_turns": 51}), json!({"max_turns": "off"}), json!({"nonsense": 1})] {
        let refused = post(&lab, &id, "limits", json!({"limits": looser})).await;
        assert_eq!(refused.status, 422, "{refused:?}");
    }
    assert_eq!(post(&lab, &id, "limits", json!({"limits": {"max_turns": 1}})).await.status, 202);
    permits.add_permits(1);
    let run = lab.ended(&id).await;
    assert_eq!((&run["termination"], &run["turns"]), (&json!("error_max_turns"), &json!(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_messages_are_refused() {
    let agent = Scripted::waiting();
    let permits = agent.permits.clone();
    let lab = Lab::of("waiting", agent).await;
    let id = lab.start("waiting", "Go.").await;
    lab.event(&id, "tool_started").await;
    let long = "x".repeat(70_000);
    for (body, status) in [
        (json!({"text": " "}), 422),
        (json!({"text": long}), 413),
        (json!({"text": 5}), 400),
        (json!({}), 400),
    ] {
        assert_eq!(
            post(&lab, &id, "say", body.clone()).await.status,
            status,
            "{:.40}",
            body.to_string()
        );
    }
    assert_eq!(post(&lab, "none", "say", json!({"text": "x"})).await.status, 404);
    permits.add_permits(1);
    assert_eq!(lab.ended(&id).await["termination"], "stop");
}
