//! Tests of what the journal stores, when it is written, and who may read it.

use super::{Note, Place, agent, echo};
use endstop::journal::{Journal, JournalErrorKind, SqliteJournal};
use endstop::testkit::Turn;
use endstop::tool::{ToolOutput, tool_fn};
use endstop::{Termination, policy::Registry};
use serde_json::json;

#[tokio::test]
async fn run_is_stored_with_its_configuration() {
    let place = Place::new();
    let journal = place.journal();
    let turns = [Turn::call("echo", &json!({"text": "hello"})), Turn::text("FINAL(42)")];
    let policy = Registry::new().build(&json!("final_pattern")).unwrap();
    let agent = agent(turns, &journal)
        .tool(echo())
        .system("Be brief.")
        .policy(policy)
        .journal_settings(json!({"dir": "/tmp"}))
        .build()
        .unwrap();
    let outcome = agent.run("What is it?").unwrap().outcome().await;
    assert_eq!(outcome.termination, Termination::Submitted);

    let runs = journal.runs(10).unwrap();
    assert_eq!(runs.len(), 1);
    let run = &runs[0];
    assert_eq!(Some(&run.id), outcome.run_id.as_ref());
    assert_eq!(run.task, "What is it?");
    assert_eq!(run.termination.as_deref(), Some("submitted"));
    assert_eq!((run.turns, run.running), (Some(outcome.turns), false));
    assert_eq!(run.cost, Some(outcome.cost));
    assert!(run.ended_ms.unwrap() >= run.started_ms && run.started_ms > 1_700_000_000_000);

    let whole = journal.load(&run.id).unwrap();
    assert_eq!(whole.header.system.as_deref(), Some("Be brief."));
    assert_eq!(whole.header.policy, Some(json!("final_pattern")));
    assert_eq!(whole.header.settings, json!({"dir": "/tmp"}));
    let tools: Vec<&str> = whole.header.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(tools, ["echo", "finish"]);
    let names: Vec<&str> = whole.events.iter().map(|event| event.kind.name()).collect();
    // A complete turn contains everything that was streamed, so it has no deltas. The policy
    // stopped the last turn in mid-stream.
    assert_eq!(names.first(), Some(&"start"));
    assert_eq!(names.iter().filter(|name| **name == "tool_ended").count(), 1);
    assert!(whole.damage.is_none());
    assert_eq!(whole.outcome.unwrap(), serde_json::to_value(&outcome).unwrap());
    let asked: Vec<&str> =
        whole.effects.iter().flatten().filter_map(|effect| effect["effect"].as_str()).collect();
    assert_eq!(asked[0], "call_model");
    assert!(asked.contains(&"start_tools"));
}

#[tokio::test]
async fn record_is_on_disk_before_effect() {
    let place = Place::new();
    let journal = place.journal();
    let file = place.file();
    // The tool opens the journal itself, as another process would.
    let look = tool_fn("look", "Looks.", move |_: Note, _| {
        let file = file.clone();
        async move {
            let other = SqliteJournal::read(&file).unwrap();
            let run = other.load(&other.find("last").unwrap()).unwrap();
            assert!(run.outcome.is_none());
            let last = run.effects.last().unwrap();
            ToolOutput::ok(last[0]["calls"][0]["name"].as_str().unwrap_or("not there"))
        }
    });
    let turns = [Turn::call("look", &json!({"text": ""})), Turn::text("done")];
    let agent = agent(turns, &journal).tool(look).build().unwrap();
    let outcome = agent.run("look").unwrap().outcome().await;
    let result =
        outcome.messages.iter().flat_map(|message| &message.parts).find_map(|part| match part {
            endstop::Part::ToolResult(result) => Some(result.content.clone()),
            _ => None,
        });
    assert_eq!(result.as_deref(), Some("look"));
}

#[tokio::test]
async fn file_is_private_and_marked() {
    let place = Place::new();
    let journal = place.journal();
    agent([Turn::text("a")], &journal).build().unwrap().run("q").unwrap().outcome().await;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode =
            |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&place.file()), 0o600);
        assert_eq!(mode(place.file().parent().unwrap()), 0o700);
    }
    let plain = rusqlite::Connection::open(place.file()).unwrap();
    let (version, names): (i64, String) = (
        plain.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap(),
        plain.query_row("SELECT group_concat(name) FROM events", [], |row| row.get(0)).unwrap(),
    );
    assert_eq!(version, 2);
    assert!(names.starts_with("start,"), "{names}");
    // Triggers keep ended runs and stored events unchanged, whichever program writes.
    for change in [
        "UPDATE runs SET termination = 'stop', outcome = '{}'",
        "UPDATE log SET event = '{}'",
        "UPDATE texts SET text = '{}'",
        "UPDATE conversations SET text = 1",
    ] {
        plain.execute(change, []).unwrap_err();
    }
}

#[tokio::test]
async fn run_is_found_by_id_prefix() {
    let place = Place::new();
    let journal = place.journal();
    assert!(journal.find("last").unwrap_err().problem.contains("contains no run yet"));
    for _ in 0..3 {
        agent([Turn::text("a")], &journal).build().unwrap().run("q").unwrap().outcome().await;
    }
    let runs = journal.runs(2).unwrap();
    assert_eq!(runs.len(), 2, "the last two");
    let id = &runs[1].id;
    assert_eq!(journal.find(id).unwrap(), *id);
    assert_eq!(journal.find(&id[..8]).unwrap(), *id);
    assert!(journal.find("").is_err());
    let error = journal.find("nosuch").unwrap_err();
    assert_eq!(error.kind, JournalErrorKind::NotFound);
    assert!(error.to_string().contains("SqliteJournal::runs"), "{error}");
    let opened: &dyn Journal = &journal;
    assert_eq!(opened.load("nosuch").unwrap_err().kind, JournalErrorKind::NotFound);
}
