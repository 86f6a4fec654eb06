//! Pruning removes old runs, keeps those that are still needed, and makes the file smaller.

use super::{Place, agent, echo};
use endstop::journal::{
    Journal, JournalErrorKind, PruneSpec, RunHeader, RunJournal, SqliteJournal,
};
use endstop::testkit::Turn;
use endstop::{Message, MessageId, Role, core::RunSpec};
use serde_json::json;
use std::time::Duration;

/// Makes a run that has ended, with this many bytes that no other run shares.
async fn ended_run(journal: &SqliteJournal, nth: usize, bytes: usize) -> String {
    let text: String = format!("{nth} answer. ").chars().cycle().take(bytes).collect();
    let turns = [Turn::call("echo", &json!({"text": text})), Turn::text("done")];
    let agent = agent(turns, journal).tool(echo()).build().unwrap();
    agent.run(format!("task {nth}")).unwrap().outcome().await.run_id.unwrap()
}

/// Makes a run that has not ended. It is driven until the returned log is dropped.
fn begun_run(journal: &SqliteJournal, id: &str) -> Box<dyn RunJournal> {
    let task = Message::text(MessageId(0), Role::User, format!("the task of {id}"));
    let spec = RunSpec { run_id: Some(id.to_owned()), ..RunSpec::new(vec![task]) };
    journal.begin(&RunHeader { id: id.to_owned(), spec, ..RunHeader::default() }).unwrap()
}

fn ids(journal: &SqliteJournal) -> Vec<String> {
    let mut ids: Vec<String> = journal.runs(1000).unwrap().into_iter().map(|run| run.id).collect();
    ids.reverse();
    ids
}

fn file_size(place: &Place) -> u64 {
    std::fs::metadata(place.file()).unwrap().len()
}

#[tokio::test]
async fn keep_leaves_the_newest_runs() {
    let place = Place::new();
    let journal = place.journal();
    let mut made = Vec::new();
    for nth in 0..6 {
        made.push(ended_run(&journal, nth, 20_000).await);
    }
    let spec = PruneSpec { keep: Some(2), ..PruneSpec::default() };
    let tried = journal.prune(&PruneSpec { dry_run: true, ..spec.clone() }).unwrap();
    assert_eq!((tried.removed.as_slice(), tried.left), (&made[..4], 2));
    assert_eq!(ids(&journal), made, "a dry run removes nothing");

    let pruned = journal.prune(&spec).unwrap();
    assert_eq!((pruned.removed.as_slice(), pruned.left, pruned.spared), (&made[..4], 2, 0));
    assert_eq!(ids(&journal), made[4..]);
    assert!(pruned.freed() > 3 * 20_000, "{pruned:?}");
    assert_eq!(pruned.bytes_after, file_size(&place), "the space went back to the file system");
    assert!(
        tried.bytes_after <= pruned.bytes_after + 8192 && tried.freed() > 3 * 20_000,
        "{tried:?}"
    );
    for id in &made[4..] {
        let run = journal.load(id).unwrap();
        assert_eq!(run.damage, None);
        assert!(run.replay(None).unwrap().outcome().is_some());
    }
    assert_eq!(journal.load(&made[0]).unwrap_err().kind, JournalErrorKind::NotFound);
    let plain = rusqlite::Connection::open(place.file()).unwrap();
    for (table, of_a_run) in [("log", 4), ("parts", 3)] {
        let rows: i64 = plain
            .query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0))
            .unwrap();
        assert!(rows >= 2 * of_a_run && rows < 5 * of_a_run, "{table}: {rows}");
    }
    let nothing = journal.prune(&spec).unwrap();
    assert_eq!((nothing.removed.len(), nothing.freed()), (0, 0));
}

#[tokio::test]
async fn prune_ends_without_auto_vacuum() {
    let place = Place::new();
    let journal = place.journal();
    for nth in 0..3 {
        ended_run(&journal, nth, 20_000).await;
    }
    let plain = rusqlite::Connection::open(place.file()).unwrap();
    plain.execute_batch("PRAGMA auto_vacuum = none; VACUUM").unwrap();
    let pruned = journal.prune(&PruneSpec { keep: Some(0), ..PruneSpec::default() }).unwrap();
    assert_eq!((pruned.removed.len(), pruned.freed()), (3, 0));
}

#[tokio::test]
async fn older_than_counts_from_the_end() {
    let place = Place::new();
    let journal = place.journal();
    let mut made = Vec::new();
    for nth in 0..3 {
        made.push(ended_run(&journal, nth, 100).await);
    }
    let plain = rusqlite::Connection::open(place.file()).unwrap();
    let day = 86_400_000_i64;
    // The first began long ago and ended yesterday; the second did both long ago.
    let aged =
        "UPDATE runs SET started_ms = started_ms - ?1, ended_ms = ended_ms - ?2 WHERE id = ?3";
    plain.execute(aged, rusqlite::params![40 * day, day, made[0]]).unwrap();
    plain.execute(aged, rusqlite::params![40 * day, 39 * day, made[1]]).unwrap();
    let month = Duration::from_secs(30 * 86_400);
    let spec = PruneSpec { older_than: Some(month), ..PruneSpec::default() };
    assert_eq!(journal.prune(&spec).unwrap().removed, [made[1].clone()]);
    let spec = PruneSpec { older_than: Some(month), keep: Some(1), ..PruneSpec::default() };
    assert_eq!(journal.prune(&spec).unwrap().removed, [made[0].clone()], "all bounds hold");
}

#[tokio::test]
async fn max_bytes_removes_oldest_runs() {
    let place = Place::new();
    let journal = place.journal();
    let mut made = Vec::new();
    for nth in 0..30 {
        made.push(ended_run(&journal, nth, 30_000).await);
    }
    let most = 600_000;
    let spec = PruneSpec { max_bytes: Some(most), ..PruneSpec::default() };
    let tried = journal.prune(&PruneSpec { dry_run: true, ..spec.clone() }).unwrap();
    let pruned = journal.prune(&spec).unwrap();
    assert_eq!(tried.removed, pruned.removed);
    assert!(file_size(&place) <= most, "{pruned:?}");
    let left = ids(&journal);
    assert_eq!(left, made[made.len() - left.len()..]);
    assert!(left.len() >= 3, "not more than needed: {pruned:?}");
}

#[tokio::test]
async fn unfinished_runs_stay_unless_named() {
    let place = Place::new();
    let (journal, other) = (place.journal(), place.journal());
    drop(begun_run(&other, "died"));
    let live = begun_run(&other, "live");
    let ended = ended_run(&journal, 0, 100).await;
    let spec = PruneSpec {
        keep: Some(0),
        older_than: Some(Duration::ZERO),
        max_bytes: Some(0),
        ..PruneSpec::default()
    };
    let pruned = journal.prune(&spec).unwrap();
    assert_eq!((pruned.removed, pruned.spared), (vec![ended], 2));
    // No bound removes a run that another process drives.
    let spec = PruneSpec { unfinished: Some(Duration::ZERO), ..spec };
    let pruned = journal.prune(&spec).unwrap();
    assert_eq!((pruned.removed, pruned.spared), (vec!["died".to_owned()], 1));
    assert_eq!(journal.load("live").unwrap().task(), "the task of live");
    drop(live);
    assert_eq!(journal.prune(&spec).unwrap().removed, ["live"]);
}

#[tokio::test]
async fn unfinished_bound_spares_young_runs() {
    let place = Place::new();
    let journal = place.journal();
    drop(begun_run(&journal, "young"));
    drop(begun_run(&journal, "old"));
    let plain = rusqlite::Connection::open(place.file()).unwrap();
    let now = "UPDATE runs SET started_ms = unixepoch() * 1000 WHERE id = 'young'";
    plain.execute(now, []).unwrap();
    plain.execute("UPDATE runs SET started_ms = 1000 WHERE id = 'old'", []).unwrap();
    let spec = PruneSpec {
        keep: Some(0),
        unfinished: Some(Duration::from_secs(86_400)),
        ..PruneSpec::default()
    };
    let pruned = journal.prune(&spec).unwrap();
    assert_eq!((pruned.removed, pruned.spared), (vec!["old".to_owned()], 1));
}

#[tokio::test]
async fn stopped_prune_leaves_intact_journal() {
    let place = Place::new();
    let journal = place.journal();
    for nth in 0..5 {
        ended_run(&journal, nth, 1_000).await;
    }
    let spec = PruneSpec { keep: Some(1), ..PruneSpec::default() };
    let pruned = journal.prune_while(&spec, &|| false).unwrap();
    assert_eq!((pruned.removed.len(), pruned.left), (0, 5));
    for run in journal.runs(10).unwrap() {
        assert_eq!(journal.load(&run.id).unwrap().damage, None);
    }
}

#[tokio::test]
async fn runs_continue_while_others_are_removed() {
    let place = Place::new();
    let (journal, other) = (place.journal(), place.journal());
    for nth in 0..40 {
        ended_run(&journal, nth, 5_000).await;
    }
    let pruning = std::thread::spawn(move || {
        let mut removed = 0;
        for keep in (0..40).rev() {
            let spec = PruneSpec { keep: Some(keep), ..PruneSpec::default() };
            removed += other.prune(&spec).unwrap().removed.len();
        }
        removed
    });
    let mut made = Vec::new();
    for nth in 40..60 {
        made.push(ended_run(&journal, nth, 5_000).await);
    }
    assert!(pruning.join().unwrap() >= 40);
    for id in ids(&journal) {
        let run = journal.load(&id).unwrap();
        assert_eq!(run.damage, None);
        assert!(run.replay(None).unwrap().outcome().is_some(), "{id}");
    }
}

#[tokio::test]
async fn read_only_journal_refuses_prune() {
    let place = Place::new();
    let journal = place.journal();
    ended_run(&journal, 0, 100).await;
    let read = SqliteJournal::read(place.file()).unwrap();
    let spec = PruneSpec { keep: Some(0), ..PruneSpec::default() };
    assert!(read.prune(&spec).unwrap_err().problem.contains("read-only"));
    assert_eq!(read.runs(10).unwrap().len(), 1);
}

#[tokio::test]
async fn last_run_ignores_clock() {
    let place = Place::new();
    let journal = place.journal();
    ended_run(&journal, 0, 100).await;
    let plain = rusqlite::Connection::open(place.file()).unwrap();
    // The clock was an hour ahead, and was set back.
    plain.execute("UPDATE runs SET started_ms = started_ms + 3600000", []).unwrap();
    let second = ended_run(&journal, 1, 100).await;
    assert_eq!(journal.find("last").unwrap(), second);
    assert_eq!(journal.runs(1).unwrap()[0].id, second);
}
