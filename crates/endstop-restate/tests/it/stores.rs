//! The store that workers share.

use endstop_restate::{Kept, Past, Step, StepEnd, Store, StoreError};

fn refused(why: &str) -> Step {
    Step { end: Some(StepEnd::Refused { why: why.to_owned() }), ..Step::default() }
}

#[test]
fn workers_of_one_folder_see_one_store() {
    let folder = tempfile::tempdir().unwrap();
    let one = Store::open(folder.path()).unwrap();
    let other = Store::open(folder.path()).unwrap();
    assert_eq!(one.id(), other.id());
    let kept = one.put("r1", 0, &refused("why")).unwrap();
    assert_eq!(other.get("r1", &kept).unwrap(), refused("why"));
    let elsewhere = tempfile::tempdir().unwrap();
    let elsewhere = Store::open(elsewhere.path()).unwrap();
    assert_ne!(one.id(), elsewhere.id());
    let missing = elsewhere.get("r1", &kept).unwrap_err();
    assert!(missing.to_string().contains("is missing"), "{missing}");
}

#[test]
fn changed_step_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let kept = store.put("r1", 0, &refused("why")).unwrap();
    let files = std::fs::read_dir(folder.path().join("runs/r1")).unwrap();
    for file in files {
        std::fs::write(file.unwrap().path(), "{}").unwrap();
    }
    let changed = store.get("r1", &kept).unwrap_err();
    assert!(matches!(changed, StoreError::Damaged { .. }), "{changed:?}");
    assert!(changed.to_string().contains("has changed"), "{changed}");
}

#[test]
fn hostile_names_leave_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("inner")).unwrap();
    for run in ["..", "../x", "a/b", "", "a\0b"] {
        assert!(
            matches!(store.put(run, 0, &Step::default()), Err(StoreError::RunId(_))),
            "{run:?}"
        );
        assert!(matches!(store.past(run), Err(StoreError::RunId(_))), "{run:?}");
    }
    let kept = Kept { number: 0, sha256: "../../../../etc/passwd".to_owned(), bytes: 1 };
    assert!(store.get("r1", &kept).is_err());
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "{names:?}");
}

/// Stores a step after these, and takes it into them.
fn put(store: &Store, past: &mut Past, step: Step) {
    let step = Step { after: past.last().map(str::to_owned), ..step };
    store.put("r1", past.steps(), &step).unwrap();
    past.take(&step);
}

#[test]
fn step_of_a_cut_off_worker_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let mut past = Past::default();
    put(&store, &mut past, Step { header: Some("{}".to_owned()), ..Step::default() });
    let mut cut_off = past.clone();
    put(&store, &mut past, Step::default());
    put(&store, &mut cut_off, refused("the engine never had this step"));
    put(&store, &mut past, refused("end"));
    assert_eq!(store.past("r1").unwrap(), past);
}

#[test]
fn earlier_run_of_the_same_id_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    let mut earlier = Past::default();
    for number in 0..5 {
        put(&store, &mut earlier, refused(&format!("earlier {number}")));
    }
    // Files of one moment have the same time.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let mut past = Past::default();
    let outcome = StepEnd::Ended { outcome: "new".to_owned() };
    put(&store, &mut past, Step { end: Some(outcome), ..Step::default() });
    assert_eq!(store.past("r1").unwrap(), past);
}

#[test]
fn missing_step_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    assert_eq!(store.past("r1").unwrap(), Past::default());
    let mut past = Past::default();
    put(&store, &mut past, Step::default());
    let first = std::fs::read_dir(folder.path().join("runs/r1")).unwrap().next().unwrap().unwrap();
    put(&store, &mut past, refused("end"));
    std::fs::remove_file(first.path()).unwrap();
    let missing = store.past("r1").unwrap_err();
    assert!(missing.to_string().contains("step 1 of run r1 follows a step"), "{missing}");
}
