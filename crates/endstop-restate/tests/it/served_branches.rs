//! Branches of durable runs behind a server.

use crate::served::{Lab, events, kind, request};
use crate::support::{Worker, next};
use endstop::Limits;
use endstop_restate::serve::{DurableRuns, RunsOptions};
use endstop_restate::{Attempt, Began, Fork, Past, Task};
use endstop_serve::backend::{AgentInfo, Backend, BranchRequest, ErrorKind, RunState, Started};
use serde_json::{Map, json};
use std::sync::Arc;

fn branch_at(turn: u32, message: Option<&str>) -> BranchRequest {
    let message = message.map(str::to_owned);
    BranchRequest { turn, message, limits: Map::new(), accept_redacted: false, trace_parent: None }
}

#[tokio::test(flavor = "multi_thread")]
async fn branch_is_its_own_run() {
    let lab = Lab::new();
    let (one, other) = (lab.server(), lab.server());
    let id = one.start("ci", None, request()).await.unwrap().id().to_owned();
    let (worker, mut past) = (Worker::new(3), Past::default());
    lab.drive(&worker, &id, &mut past, None).await;
    let Some(limits) = json!({"max_turns": 5}).as_object().cloned() else { panic!() };
    let asked = BranchRequest { limits, ..branch_at(2, Some("Mind the tests.")) };
    let Started::New(branch) = one.branch("ci", Some("k"), &id, asked.clone()).await.unwrap()
    else {
        panic!("it is new")
    };
    // The same key and body, from another server; another body; another token.
    let again = other.branch("ci", Some("k"), &id, asked.clone()).await.unwrap();
    assert_eq!(again, Started::Known(branch.clone()));
    let changed = BranchRequest { turn: 1, ..asked.clone() };
    assert_eq!(kind(other.branch("ci", Some("k"), &id, changed).await), ErrorKind::KeyReused);
    assert_eq!(kind(other.start("ci", Some("k"), request()).await), ErrorKind::KeyReused);
    assert_ne!(other.branch("ops", Some("k"), &id, asked).await.unwrap().id(), branch);
    let sent = lab.engine.got(&format!("/{branch}/start/send"));
    assert_eq!(sent.len(), 1);
    let sent: endstop_restate::RunRequest = serde_json::from_str(&sent[0].body).unwrap();
    let origin = sent.origin.clone().unwrap();
    assert_eq!((origin.run.as_str(), origin.turn), (id.as_str(), 2));
    assert_eq!((sent.agent.as_str(), &sent.limits["max_turns"]), ("a", &json!(5)));
    let shown = other.get(&branch).await.unwrap().unwrap();
    assert_eq!((shown.state, shown.request.task.as_str()), (RunState::Queued, "Work."));
    assert_eq!(shown.request.origin.unwrap().run, id);

    // A worker performs it.
    let fork = Fork { origin, past: Arc::new(lab.catalog().past_of(&id).unwrap()) };
    let task = Task { id: branch.clone(), fork: Some(fork), ..worker.task() };
    lab.catalog().begin(&branch, &Began { invocation: "inv_2".to_owned(), at_ms: 8 }).unwrap();
    let mut past = Past::default();
    let mut attempt = Attempt::begin(task, Arc::default(), None, None);
    while past.outcome().is_none() {
        let step = next(&mut attempt).await;
        lab.put(&branch, &mut past, &step, true);
        attempt.stored();
    }
    let outcome = one.outcome(&branch).await.unwrap().unwrap();
    assert_eq!(outcome["branched_from"]["run_id"], id.as_str());
    let all = events(&other, &branch, 0).await;
    assert!(all.last().unwrap().contains("branched_from"), "{all:?}");
    let named = |name: &str| all.iter().filter(|event| event.contains(name)).count();
    assert_eq!(named("event: tool_finished"), 1, "the calls of the other run are not told again");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_branches_reach_no_engine() {
    let lab = Lab::new();
    let server = lab.server();
    let id = server.start("", None, request()).await.unwrap().id().to_owned();
    let waits = server.branch("", None, &id, branch_at(0, None)).await.unwrap_err();
    assert_eq!(waits.kind, ErrorKind::InvalidRun);
    assert!(waits.message.contains("has not started"), "{waits}");
    let mut past = Past::default();
    lab.drive(&Worker::new(1), &id, &mut past, None).await;
    let starts = lab.engine.got("/start").len();
    let Some(limits) = json!({"max_turns": 11}).as_object().cloned() else { panic!() };
    for (wrong, says) in [
        (branch_at(3, Some("More.")), "no complete turn 3"),
        (branch_at(u32::MAX, None), "no complete turn"),
        (branch_at(2, None), "set `message`"),
        (branch_at(1, Some(" ")), "`message` is blank"),
        (BranchRequest { limits, ..branch_at(1, None) }, "max_turns"),
    ] {
        let error = server.branch("", None, &id, wrong).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidRun);
        assert!(error.message.contains(says), "{error}");
    }
    for other in ["unknown", "..", "../index", "a/b", ""] {
        let refused = server.branch("", None, other, branch_at(0, None)).await;
        assert_eq!(kind(refused), ErrorKind::UnknownRun, "{other:?}");
    }
    // A step of the other run is damaged.
    let step =
        |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("000001-");
    let mut steps = std::fs::read_dir(lab.store.folder().join("runs").join(&id)).unwrap();
    let step = steps.find_map(|entry| entry.ok().filter(step)).unwrap();
    std::fs::write(step.path(), b"{}").unwrap();
    let damaged = server.branch("", None, &id, branch_at(1, None)).await.unwrap_err();
    assert_eq!(
        (damaged.kind, damaged.message.as_str()),
        (ErrorKind::InvalidRun, "the run cannot be read")
    );
    assert!(lab.reported.lock().unwrap().iter().any(|problem| problem.contains(&id)));
    assert_eq!(lab.engine.got("/start").len(), starts);
}

#[tokio::test(flavor = "multi_thread")]
async fn branch_without_secrets_needs_consent() {
    let lab = Lab::new();
    let server = lab.server();
    let id = server.start("", None, request()).await.unwrap().id().to_owned();
    let (worker, mut past) =
        (Worker { secret: "s3cret-0123456789".to_owned(), ..Worker::new(1) }, Past::default());
    lab.drive(&worker, &id, &mut past, None).await;
    let refused = server.branch("", None, &id, branch_at(1, None)).await.unwrap_err();
    assert!(refused.message.contains("accept_redacted"), "{refused}");
    let accepts = BranchRequest { accept_redacted: true, ..branch_at(1, None) };
    assert!(server.branch("", None, &id, accepts).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn full_queue_refuses_branches() {
    let lab = Lab::new();
    let id = lab.server().start("", None, request()).await.unwrap().id().to_owned();
    lab.drive(&Worker::new(1), &id, &mut Past::default(), None).await;
    let mut options = RunsOptions::new(lab.engine.url());
    options.max_queued = 1;
    let agent = AgentInfo { name: "a".to_owned(), model: None, limits: Limits::default() };
    let server = DurableRuns::open(lab.store.clone(), vec![agent], &options, |_| {}).unwrap();
    let branch = server.branch("", Some("k"), &id, branch_at(1, None)).await.unwrap();
    assert_eq!(kind(server.branch("", None, &id, branch_at(1, None)).await), ErrorKind::Full);
    // A repeated request finds its run, also if the other run is gone by now.
    std::fs::remove_file(lab.store.folder().join("runs").join(&id).join("head.json")).unwrap();
    let again = server.branch("", Some("k"), &id, branch_at(1, None)).await.unwrap();
    assert_eq!(again, Started::Known(branch.id().to_owned()));
}
