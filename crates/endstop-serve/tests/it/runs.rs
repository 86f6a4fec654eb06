//! Starting, listing and reading runs.

use crate::support::{Lab, Scripted, Setup, in_time, kinds, numbered};
use endstop::testkit::Turn;
use endstop::{Limits, Termination};
use endstop_serve::ServeOptions;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn run_ends_with_its_outcome() {
    let lab = Lab::of("echo", Scripted::echo()).await;
    let created = lab.post("/v1/runs", &json!({"agent": "echo", "task": "Hello."})).await;
    assert_eq!(created.status, 201, "{created:?}");
    let id = created.json()["run_id"].as_str().unwrap().to_owned();
    assert!(created.head.contains(&format!("location: /v1/runs/{id}")), "{created:?}");
    let events = lab.events(&id, 0).await;
    assert_eq!(kinds(&numbered(&events)), ["turn_started", "usage", "turn_finished", "finished"]);
    let run = lab.get(&format!("/v1/runs/{id}")).await.json();
    assert_eq!(run["state"], "ended");
    assert_eq!((&run["termination"], &run["category"]), (&json!("stop"), &json!("success")));
    assert_eq!(run["outcome"]["last_text"], "Hello.");
    assert_eq!(run["outcome"]["run_id"], json!(id));
    assert_eq!(run["turns"], 1);
    // The event and the journal have the same outcome.
    assert_eq!(events.last().unwrap().data["outcome"], run["outcome"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn idempotency_key_starts_one_run() {
    let lab = Lab::of("echo", Scripted::echo()).await;
    let body = json!({"agent": "echo", "task": "Hello."});
    let key = "idempotency-key: k-1\r\n";
    // At the same time, so that both may look the key up before either has stored it.
    let (one, two) =
        tokio::join!(lab.post_with("/v1/runs", key, &body), lab.post_with("/v1/runs", key, &body));
    let mut statuses = [one.status, two.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 201], "{one:?} {two:?}");
    assert_eq!(one.json()["run_id"], two.json()["run_id"]);
    let other = json!({"agent": "echo", "task": "Another task."});
    let reused = lab.post_with("/v1/runs", key, &other).await;
    assert_eq!((reused.status, reused.code().as_str()), (422, "key_reused"));
    let next = lab.post_with("/v1/runs", "idempotency-key: k-2\r\n", &body).await;
    assert_eq!(next.status, 201);
    let all = lab.get("/v1/runs").await.json();
    assert_eq!(all["runs"].as_array().unwrap().len(), 2, "{all}");
}

#[tokio::test(flavor = "multi_thread")]
async fn request_lowers_limits_only() {
    let agent = Scripted::new(|_| vec![Turn::call("wait", &json!({})); 10]);
    agent.permits.add_permits(100);
    let limits = Limits { max_turns: Some(5), ..Limits::default() };
    let advice = |ending: Termination| format!("about {ending}");
    let options = ServeOptions { advice: Some(advice), ..ServeOptions::default() };
    let agents = vec![("loop", Scripted { limits, ..agent })];
    let lab = Setup { options, ..Setup::of(agents) }.start().await;
    let with = |limits| json!({"agent": "loop", "task": "Go.", "limits": limits});
    for limits in [json!({"max_turns": 6}), json!({"max_turns": "off"}), json!({"nonsense": 1})] {
        let refused = lab.post("/v1/runs", &with(limits)).await;
        assert_eq!((refused.status, refused.code().as_str()), (422, "invalid_run"), "{refused:?}");
    }
    let created = lab.post("/v1/runs", &with(json!({"max_turns": 2}))).await.json();
    let run = lab.ended(created["run_id"].as_str().unwrap()).await;
    assert_eq!((&run["termination"], &run["turns"]), (&json!("error_max_turns"), &json!(2)));
    assert_eq!(run["limits"], json!({"max_turns": 2}));
    assert_eq!(run["next"], "about error_max_turns");
}

#[tokio::test(flavor = "multi_thread")]
async fn list_filters_and_pages() {
    let lab = Lab::of(
        "echo",
        Scripted::new(|task| match task {
            "cut" => vec![Turn::text("Half an ans").finish("length")],
            _ => vec![Turn::text("Done.")],
        }),
    )
    .await;
    let mut ids = Vec::new();
    for task in ["a", "cut", "b", "cut", "c"] {
        let id = lab.start("echo", task).await;
        lab.ended(&id).await;
        ids.push(id);
    }
    ids.reverse();
    let list = async |query: &str| {
        let answer = lab.get(&format!("/v1/runs{query}")).await.json();
        let id = |run: &serde_json::Value| run["run_id"].as_str().unwrap().to_owned();
        let page: Vec<String> = answer["runs"].as_array().unwrap().iter().map(id).collect();
        (page, answer["next"].clone())
    };
    assert_eq!(list("").await, (ids.clone(), json!(null)));
    let (first, next) = list("?limit=2").await;
    assert_eq!(first, ids[..2]);
    let (second, next) = list(&format!("?limit=2&before={}", next.as_str().unwrap())).await;
    assert_eq!(second, ids[2..4]);
    let (third, next) = list(&format!("?limit=2&before={}", next.as_str().unwrap())).await;
    assert_eq!((third.as_slice(), next), (&ids[4..], json!(null)));
    assert_eq!(list("?category=capacity").await.0, [ids[1].clone(), ids[3].clone()]);
    assert_eq!(
        list("?category=success&limit=3").await,
        (vec![ids[0].clone(), ids[2].clone(), ids[4].clone()], json!(null))
    );
    assert!(list("?state=running").await.0.is_empty());
    assert_eq!(list("?agent=other").await.0.len(), 0);
    for query in ["?category=x", "?limit=0", "?limit=201", "?before=x", "?nonsense=1", "?state=x"] {
        let answer = lab.get(&format!("/v1/runs{query}")).await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"), "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn approvals_are_answered_once() {
    let lab = Lab::of("asking", Scripted::asking()).await;
    let id = lab.start("asking", "Go.").await;
    let asked = lab.event(&id, "approval_requested").await;
    let run = lab.get(&format!("/v1/runs/{id}")).await.json();
    assert_eq!((&run["state"], &run["approvals"]), (&json!("running"), &json!(1)));
    let request = asked.data["request_id"].clone();
    let path = format!("/v1/runs/{id}/answer");
    let unknown = json!({"request_id": 1, "decision": "allow"});
    assert_eq!(lab.post(&path, &unknown).await.status, 404);
    for wrong in [
        json!({"request_id": request, "decision": "maybe"}),
        json!({"request_id": request, "decision": "allow", "reason": "x"}),
        json!({"request_id": request, "decision": "deny", "arguments": {}}),
        json!({"request_id": request}),
    ] {
        assert_eq!(lab.post(&path, &wrong).await.status, 400, "{wrong}");
    }
    let allow = json!({"request_id": request, "decision": "allow", "arguments": {"path": "y"}});
    assert_eq!(lab.post(&path, &allow).await.status, 200);
    let again = lab.post(&path, &allow).await;
    assert_eq!((again.status, again.code().as_str()), (409, "not_open"));
    let events = lab.events(&id, 0).await;
    let finished = events.iter().find(|event| event.kind == "tool_finished").unwrap();
    assert_eq!(finished.data["content"], r#"asked {"path":"y"}"#);
    assert_eq!(lab.ended(&id).await["termination"], "stop");
}

#[tokio::test(flavor = "multi_thread")]
async fn denial_reaches_the_model() {
    let lab = Lab::of("asking", Scripted::asking()).await;
    let id = lab.start("asking", "Go.").await;
    let asked = lab.event(&id, "approval_requested").await;
    let answer =
        json!({"request_id": asked.data["request_id"], "decision": "deny", "reason": "not today"});
    assert_eq!(lab.post(&format!("/v1/runs/{id}/answer"), &answer).await.status, 200);
    let events = lab.events(&id, 0).await;
    let finished = events.iter().find(|event| event.kind == "tool_finished").unwrap();
    assert_eq!(finished.data["status"], "denied");
    assert!(finished.data["content"].as_str().unwrap().contains("not today"), "{finished:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn document_describes_every_operation() {
    let lab = Lab::of("echo", Scripted::echo()).await;
    let document = lab.get("/v1/openapi.json").await.json();
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().unwrap();
    for (path, methods) in paths {
        for method in methods.as_object().unwrap().keys() {
            let line = format!("{} {}", method.to_uppercase(), path.replace("{id}", "none"));
            let answer = lab.ask(&line, "content-type: application/json\r\n", "{}").await;
            // The operation exists: it knows no such run, or refuses the empty body.
            let known = answer.status != 404 || answer.code() == "unknown_run";
            assert!(known && answer.status != 405, "{line}: {answer:?}");
        }
    }
    assert_eq!(paths.len(), 13, "{:?}", paths.keys());
    let schemas = &document["components"]["schemas"];
    let named = document.to_string();
    for reference in named.split("#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(schemas[name].is_object(), "{name} is not defined");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_runs_and_refusals() {
    let lab = Setup::of(vec![("echo", Scripted::echo())]).start().await;
    let id = lab.start("echo", "Hi.").await;
    lab.ended(&id).await;
    lab.get("/nonsense").await;
    let text = in_time(lab.get("/metrics")).await.body;
    for line in [
        "endstop_serve_runs_started_total{agent=\"echo\"} 1",
        "endstop_serve_runs_ended_total{agent=\"echo\",termination=\"stop\"} 1",
        "endstop_serve_refused_total{code=\"unknown_path\"} 1",
        "endstop_serve_runs_running 0",
        "endstop_serve_draining 0",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    assert_eq!(lab.get("/healthz").await.body, "ok\n");
    assert_eq!(lab.get("/readyz").await.status, 200);
}
