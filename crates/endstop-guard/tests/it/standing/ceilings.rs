//! Ceilings of a profile and a day.

use super::Lab;
use crate::proxy::support::run;
use endstop_guard::standing::{Day, StateFile};
use std::time::Duration;

const FILE: &str = r#"
    [upstream]
    openai = "UPSTREAM"
    [profile.default]
    price = "in=1,out=1"
    day = { max_budget_usd = 0.0022 }
"#;

/// Makes first turns of new runs until one is refused, and returns how many were made.
async fn calls_until_refused(lab: &Lab, prefix: &str) -> usize {
    for made in 0..10 {
        let (status, body) = lab.turn(&format!("{prefix}{made}"), 1, "").await;
        if status != 200 {
            assert!(body.contains("error_max_budget_usd"), "{body}");
            return made;
        }
        for (_, run) in lab.standing.runs() {
            run.idle().await;
        }
    }
    panic!("the ceiling of the day does not hold");
}

#[test]
fn ceiling_of_day_holds_over_runs_and_restarts() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("guard/state.json");
        let mut lab = Lab::on(FILE, Some(&state), Day(20_000)).await;
        // A call costs $0.0011, so two fit.
        assert_eq!(calls_until_refused(&lab, "a").await, 2);
        lab.keeper.tick(Day(20_000)).unwrap();
        drop(lab);
        let mut lab = Lab::on(FILE, Some(&state), Day(20_000)).await;
        assert_eq!(calls_until_refused(&lab, "b").await, 0);
        // The next day begins at zero, and a clock that is set back does not.
        lab.keeper.tick(Day(20_001)).unwrap();
        assert_eq!(calls_until_refused(&lab, "c").await, 2);
        lab.keeper.tick(Day(20_000)).unwrap();
        assert_eq!(calls_until_refused(&lab, "d").await, 0);
    });
}

#[test]
fn state_file_has_one_owner() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state.json");
    let first = StateFile::open(&state).unwrap();
    let error = StateFile::open(&state).unwrap_err().to_string();
    assert!(error.contains("another guard uses this file"), "{error}");
    drop(first);
    std::fs::write(&state, "no JSON").unwrap();
    let error = StateFile::open(&state).unwrap_err().to_string();
    assert!(error.contains("state.json: not the state of a guard"), "{error}");
}

#[test]
fn day_changes_at_midnight_utc() {
    // 2026-11-23 00:00:00 UTC.
    let midnight = Duration::from_secs(1_795_392_000);
    let before = midnight - Duration::from_nanos(1);
    assert_eq!(Day::of(before).0 + 1, Day::of(midnight).0);
    assert_eq!(Day::of(midnight), Day(20_780));
}
