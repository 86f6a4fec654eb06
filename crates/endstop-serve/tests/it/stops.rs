//! Cancel and terminate, of running, waiting and ended runs, and a shutdown.

use crate::support::{Lab, Scripted, Setup, in_time};
use serde_json::json;
use std::time::Duration;

async fn stop(lab: &Lab, id: &str, how: &str) -> u16 {
    lab.post(&format!("/v1/runs/{id}/{how}"), &json!({})).await.status
}

#[tokio::test(flavor = "multi_thread")]
async fn running_run_stops_once() {
    let lab = Lab::of("waiting", Scripted::waiting()).await;
    for (how, ending) in [("cancel", "cancelled"), ("terminate", "terminated")] {
        let id = lab.start("waiting", "Go.").await;
        lab.event(&id, "tool_started").await;
        let (one, two) = tokio::join!(stop(&lab, &id, how), stop(&lab, &id, how));
        assert!([200, 202].contains(&one) && [200, 202].contains(&two), "{one} {two}");
        let run = lab.ended(&id).await;
        assert_eq!(run["termination"], ending);
        assert_eq!(stop(&lab, &id, how).await, 200);
        assert_eq!(lab.ended(&id).await["termination"], ending);
        let finished = lab.events(&id, 0).await;
        let endings = finished.iter().filter(|event| event.kind == "finished").count();
        assert_eq!(endings, 1);
    }
    assert_eq!(stop(&lab, "none", "cancel").await, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_run_stops_without_calls() {
    let agent = Scripted::waiting();
    let permits = agent.permits.clone();
    let mut setup = Setup::of(vec![("waiting", agent)]);
    setup.options.max_running = 1;
    let lab = setup.start().await;
    let first = lab.start("waiting", "Go.").await;
    lab.event(&first, "tool_started").await;
    let (second, third) = (lab.start("waiting", "Go.").await, lab.start("waiting", "Go.").await);
    assert_eq!(stop(&lab, &second, "cancel").await, 202);
    let run = lab.ended(&second).await;
    // The kernel has decided it, and the journal has it: no call was made.
    assert_eq!(run["termination"], "cancelled");
    assert_eq!((&run["outcome"]["model_calls"], &run["turns"]), (&json!(0), &json!(0)));
    // The other runs keep their places.
    let waiting = lab.get(&format!("/v1/runs/{third}")).await.json();
    assert_eq!((&waiting["state"], &waiting["queue_position"]), (&json!("queued"), &json!(1)));
    permits.add_permits(2);
    assert_eq!(lab.ended(&first).await["termination"], "stop");
    assert_eq!(lab.ended(&third).await["termination"], "stop");
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_stops_waiting_for_approval() {
    let lab = Lab::of("asking", Scripted::asking()).await;
    let id = lab.start("asking", "Go.").await;
    let asked = lab.event(&id, "approval_requested").await;
    stop(&lab, &id, "cancel").await;
    assert_eq!(lab.ended(&id).await["termination"], "cancelled");
    let late = json!({"request_id": asked.data["request_id"], "decision": "allow"});
    let answer = lab.post(&format!("/v1/runs/{id}/answer"), &late).await;
    assert_eq!((answer.status, answer.code().as_str()), (409, "not_open"));
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_lets_runs_end() {
    let agent = Scripted::waiting();
    let permits = agent.permits.clone();
    let mut lab = Lab::of("waiting", agent).await;
    let id = lab.start("waiting", "Go.").await;
    lab.event(&id, "tool_started").await;
    let mut reader = lab.reader(&id, 0).await;
    lab.begin_stop();
    let drained = async {
        while lab.get("/readyz").await.status != 503 {
            tokio::task::yield_now().await;
        }
    };
    in_time(drained).await;
    // The process works, so it is not to be restarted.
    assert_eq!(lab.get("/healthz").await.status, 200);
    let refused = lab.post("/v1/runs", &json!({"agent": "waiting", "task": "Go."})).await;
    assert_eq!((refused.status, refused.code().as_str()), (503, "draining"));
    assert!(refused.head.contains("retry-after"), "{refused:?}");
    permits.add_permits(1);
    let mut last = None;
    while let Some(event) = reader.next().await {
        last = Some(event);
    }
    assert_eq!(last.unwrap().data["outcome"]["termination"], "stop");
    lab.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_cancels_after_grace() {
    let mut setup = Setup::of(vec![("waiting", Scripted::waiting())]);
    setup.options.grace = Duration::from_millis(50);
    setup.options.max_running = 1;
    let dir = setup.dir.clone();
    let mut lab = setup.start().await;
    let (id, queued) = (lab.start("waiting", "Go.").await, lab.start("waiting", "Later.").await);
    lab.event(&id, "tool_started").await;
    lab.begin_stop();
    lab.stopped().await;
    // The next process has the ending, and starts the run that waited.
    let next = Scripted::waiting();
    next.permits.add_permits(1);
    let lab = Setup { dir, ..Setup::of(vec![("waiting", next)]) }.start().await;
    let run = lab.get(&format!("/v1/runs/{id}")).await.json();
    assert_eq!((&run["state"], &run["termination"]), (&json!("ended"), &json!("cancelled")));
    assert_eq!(lab.ended(&queued).await["termination"], "stop");
}
