//! A restart: what an earlier process left is resumed, starts, or ends with its type.

use crate::support::{Event, Lab, Scripted, Setup, numbered};
use endstop::testkit::Turn;
use endstop_serve::ServeOptions;
use serde_json::json;
use std::sync::Arc;
use tempfile::TempDir;

/// Copies the files of a server that still works, as a crash would leave them.
fn crashed(lab: &Lab) -> Arc<TempDir> {
    let dir = TempDir::new().unwrap();
    for entry in std::fs::read_dir(lab.dir.path()).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        // The folder of the live processes stays behind, so that none of them lives, and so does the
        // memory that SQLite shares between processes.
        if entry.file_type().unwrap().is_file() && !name.ends_with("-shm") {
            std::fs::copy(entry.path(), dir.path().join(name)).unwrap();
        }
    }
    Arc::new(dir)
}

fn two_steps() -> Scripted {
    Scripted::new(|_| {
        vec![
            Turn::call("wait", &json!({"step": 1})),
            Turn::call("wait", &json!({"step": 2})),
            Turn::text("Done."),
        ]
    })
}

/// The rest of the script after the first call.
fn after_first() -> Scripted {
    let agent =
        Scripted::new(|_| vec![Turn::call("wait", &json!({"step": 3})), Turn::text("Done.")]);
    agent.permits.add_permits(10);
    agent
}

/// Starts a run, and leaves it in its second call.
async fn left(setup: Setup, permits: &tokio::sync::Semaphore) -> (Lab, String, Vec<Event>) {
    let lab = setup.start().await;
    let id = lab.start("agent", "Go.").await;
    permits.add_permits(1);
    let mut reader = lab.reader(&id, 0).await;
    let mut seen = Vec::new();
    while seen.iter().filter(|event: &&Event| event.kind == "tool_started").count() < 2 {
        seen.push(reader.next().await.unwrap());
    }
    (lab, id, numbered(&seen))
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_run_resumes_after_restart() {
    let agent = two_steps();
    let permits = Arc::clone(&agent.permits);
    let (old, id, seen) = left(Setup::of(vec![("agent", agent)]), &permits).await;
    let setup = Setup { dir: crashed(&old), ..Setup::of(vec![("agent", after_first())]) };
    let lab = setup.start().await;
    let last = seen.last().unwrap().number.unwrap();
    let rest = numbered(&lab.events(&id, last).await);
    // The reader of the old process loses no event, and no number comes twice.
    let numbers: Vec<u64> = rest.iter().filter_map(|event| event.number).collect();
    assert_eq!(numbers, (last + 1..=last + rest.len() as u64).collect::<Vec<u64>>());
    let run = lab.ended(&id).await;
    assert_eq!(run["termination"], "stop", "{run}");
    let mut whole = seen;
    whole.extend(rest);
    assert_eq!(numbered(&lab.events(&id, 0).await), whole);
    // The first call was finished, so it was not repeated.
    let finished = |event: &&Event| event.kind == "tool_finished" && event.data["status"] == "ok";
    assert_eq!(whole.iter().filter(finished).count(), 2, "{whole:?}");
}

/// The agent permits 50 turns, which a resumed run got back.
#[tokio::test(flavor = "multi_thread")]
async fn lowered_limit_survives_a_restart() {
    let agent = two_steps();
    let permits = Arc::clone(&agent.permits);
    let (old, id, _) = left(Setup::of(vec![("agent", agent)]), &permits).await;
    let limits = json!({"limits": {"max_turns": 2}});
    assert_eq!(old.post(&format!("/v1/runs/{id}/limits"), &limits).await.status, 202);
    old.event(&id, "limits_changed").await;
    let setup = Setup { dir: crashed(&old), ..Setup::of(vec![("agent", after_first())]) };
    let run = setup.start().await.ended(&id).await;
    assert_eq!(
        (&run["termination"], &run["turns"]),
        (&json!("error_max_turns"), &json!(2)),
        "{run}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_agent_ends_the_run() {
    let agent = two_steps();
    let permits = Arc::clone(&agent.permits);
    let (old, id, seen) = left(Setup::of(vec![("agent", agent)]), &permits).await;
    let changed = Scripted { system: "Be verbose.", ..after_first() };
    let lab = Setup { dir: crashed(&old), ..Setup::of(vec![("agent", changed)]) }.start().await;
    let run = lab.ended(&id).await;
    assert_eq!(run["termination"], "error_during_execution");
    assert!(run["evidence"].as_str().unwrap().contains("has changed"), "{run}");
    // The journal has the ending too, and a reader can resume.
    let events = numbered(&lab.events(&id, seen.len() as u64).await);
    assert_eq!(events.last().unwrap().kind, "finished", "{events:?}");
    assert_eq!(run["outcome"]["termination"], "error_during_execution");
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_agent_ends_the_run() {
    let agent = two_steps();
    let permits = Arc::clone(&agent.permits);
    let (old, id, _) = left(Setup::of(vec![("agent", agent)]), &permits).await;
    let lab =
        Setup { dir: crashed(&old), ..Setup::of(vec![("other", after_first())]) }.start().await;
    let run = lab.ended(&id).await;
    assert_eq!(run["termination"], "error_during_execution");
    assert!(run["evidence"].as_str().unwrap().contains("no longer configured"), "{run}");
}

#[tokio::test(flavor = "multi_thread")]
async fn accepted_stop_survives_a_restart() {
    let agent = Scripted::asking();
    let setup = Setup::of(vec![("agent", agent)]);
    let old = setup.start().await;
    let id = old.start("agent", "Go.").await;
    old.event(&id, "approval_requested").await;
    let dir = crashed(&old);
    // As if the process had died right after it had accepted the cancel.
    let file = dir.path().join("journal.db.serve");
    let store = rusqlite::Connection::open(file).unwrap();
    assert_eq!(store.execute("UPDATE runs SET stop = 'cancel'", []).unwrap(), 1);
    drop(store);
    let lab = Setup { dir, ..Setup::of(vec![("agent", Scripted::asking())]) }.start().await;
    let run = lab.ended(&id).await;
    assert_eq!(run["termination"], "cancelled", "{run}");
}

#[tokio::test(flavor = "multi_thread")]
async fn open_question_is_asked_again() {
    let old = Lab::of("agent", Scripted::asking()).await;
    let id = old.start("agent", "Go.").await;
    let asked = old.event(&id, "approval_requested").await;
    let next = Scripted::new(|_| vec![Turn::text("Done.")]);
    let lab = Setup { dir: crashed(&old), ..Setup::of(vec![("agent", next)]) }.start().await;
    let mut reader = lab.reader(&id, asked.number.unwrap()).await;
    let again = reader.next().await.unwrap();
    assert_eq!(again.kind, "approval_requested");
    assert_eq!(again.data["request_id"], asked.data["request_id"]);
    let allow = json!({"request_id": again.data["request_id"], "decision": "allow"});
    assert_eq!(lab.post(&format!("/v1/runs/{id}/answer"), &allow).await.status, 200);
    assert_eq!(lab.ended(&id).await["termination"], "stop");
}

#[tokio::test(flavor = "multi_thread")]
async fn queued_runs_survive_a_restart() {
    let mut setup = Setup::of(vec![("agent", Scripted::waiting())]);
    setup.options = ServeOptions { max_running: 1, ..ServeOptions::default() };
    let old = setup.start().await;
    let first = old.start("agent", "Go.").await;
    old.event(&first, "tool_started").await;
    let second = old.start("agent", "Later.").await;
    let next = Scripted::new(|task| match task {
        "Later." => vec![Turn::text("It was later.")],
        _ => vec![Turn::text("Resumed.")],
    });
    next.permits.add_permits(10);
    let lab = Setup { dir: crashed(&old), ..Setup::of(vec![("agent", next)]) }.start().await;
    assert_eq!(lab.ended(&first).await["termination"], "stop");
    assert_eq!(lab.ended(&second).await["outcome"]["last_text"], "It was later.");
}

#[tokio::test(flavor = "multi_thread")]
async fn second_server_is_refused() {
    let lab = Lab::of("echo", Scripted::echo()).await;
    let journal = endstop::journal::SqliteJournal::open(lab.journal()).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let agents = endstop_serve::Agents::default();
    let tokens = endstop_serve::Tokens::default();
    let options = ServeOptions::default();
    let second = endstop_serve::Server::open(listener, journal, agents, tokens, options, |_| {});
    assert!(second.unwrap_err().to_string().contains("another `endstop serve`"));
    let dir = lab.stop().await;
    // After the end of the first one the journal is free.
    let lab = Setup { dir, ..Setup::of(vec![("echo", Scripted::echo())]) }.start().await;
    assert_eq!(lab.get("/readyz").await.status, 200);
}
