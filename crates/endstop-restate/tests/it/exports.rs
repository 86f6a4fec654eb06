//! Runs in the store as runs of a local journal.

use crate::support::{Worker, next};
use endstop::journal::SqliteJournal;
use endstop_restate::{Cause, ExportError, Past, Store, end_run, export_run};

#[tokio::test(flavor = "multi_thread")]
async fn exported_run_is_explained_like_a_local_one() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("store")).unwrap();
    let journal = SqliteJournal::open(folder.path().join("journal.db")).unwrap();
    assert!(matches!(export_run(&store, "r1", &journal), Err(ExportError::Unknown(_))));
    let worker = Worker { size: 40_000, ..Worker::new(2) };
    let mut past = Past::default();
    let mut attempt = worker.attempt(&past);
    loop {
        let step = next(&mut attempt).await;
        store.put("r1", past.steps(), &step).unwrap();
        past.take(&step);
        attempt.stored();
        if step.outcome().is_some() {
            break;
        }
        assert!(matches!(export_run(&store, "r1", &journal), Err(ExportError::Running(_))));
    }
    export_run(&store, "r1", &journal).unwrap();
    let recorded = journal.load("r1").unwrap();
    assert_eq!(recorded.events, past.recorded().unwrap().events);
    let replay = recorded.replay(None).unwrap();
    let replayed = serde_json::to_value(replay.outcome().unwrap()).unwrap();
    assert_eq!(recorded.outcome.unwrap()["termination"], replayed["termination"]);
    let again = export_run(&store, "r1", &journal).unwrap_err();
    assert!(matches!(again, ExportError::Journal(_)), "{again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_run_can_be_exported() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("store")).unwrap();
    let journal = SqliteJournal::open(folder.path().join("journal.db")).unwrap();
    // One that has started, and one that has not.
    for (run, begun) in [("r1", true), ("r2", false)] {
        let worker = Worker::new(1);
        let past = Past::default();
        if begun {
            let mut attempt = worker.attempt(&past);
            store.put(run, 0, &next(&mut attempt).await).unwrap();
        }
        let past = store.past(run).unwrap();
        let (step, _) = end_run(&past, run, "Work.", &Cause::Killed, 7);
        store.put(run, past.steps(), &step).unwrap();
        export_run(&store, run, &journal).unwrap();
        let recorded = journal.load(run).unwrap();
        assert_eq!(recorded.outcome.as_ref().unwrap()["termination"], "terminated");
        assert!(recorded.replay(None).unwrap().outcome().is_some());
    }
}
