//! Ceilings of a profile and a period, and of the calls of a tool.

use super::Lab;
use crate::proxy::support::run;
use endstop::journal::{SpendBudget, SqliteJournal};
use endstop_core::Termination;
use endstop_guard::standing::{Hour, OpenBudget};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const FILE: &str = r#"
    [upstream]
    openai = "UPSTREAM"
    [profile.default]
    price = "in=1,out=1"
    spend = { max_usd_per_hour = 0.0022, max_usd_per_day = 0.0044 }
"#;

/// Opens the budgets of the profiles in a journal, at an hour of 2026-11-23 UTC.
fn budgets(journal: &SqliteJournal, hour: &Arc<AtomicU64>) -> OpenBudget {
    let (journal, hour) = (journal.clone(), Arc::clone(hour));
    Box::new(move |profile| {
        let hour = Arc::clone(&hour);
        let at = move || 1_795_392_000_000 + hour.load(Ordering::Relaxed) * 3_600_000;
        let budget = SpendBudget::new().project(&profile.name).project_ceilings(&profile.spend);
        budget.clock(at).open(&journal).map(Some).map_err(|error| error.to_string())
    })
}

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
    panic!("the ceiling does not hold");
}

#[test]
fn ceilings_of_periods_hold_over_restarts() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let journal = SqliteJournal::open(folder.path().join("journal.db")).unwrap();
        let hour = Arc::new(AtomicU64::new(0));
        let lab = Lab::on(FILE, budgets(&journal, &hour)).await;
        // A call costs $0.0011, so two fit.
        assert_eq!(calls_until_refused(&lab, "a").await, 2);
        drop(lab);
        let mut lab = Lab::on(FILE, budgets(&journal, &hour)).await;
        assert_eq!(calls_until_refused(&lab, "b").await, 0);
        // The next hour begins at zero, within the day.
        hour.store(1, Ordering::Relaxed);
        lab.keeper.tick(Hour(1)).unwrap();
        assert_eq!(calls_until_refused(&lab, "c").await, 2);
        hour.store(2, Ordering::Relaxed);
        lab.keeper.tick(Hour(2)).unwrap();
        assert_eq!(calls_until_refused(&lab, "d").await, 0);
        // A clock that is set back does not give a ceiling a second time.
        hour.store(0, Ordering::Relaxed);
        lab.keeper.tick(Hour(0)).unwrap();
        assert_eq!(calls_until_refused(&lab, "e").await, 0);
    });
}

#[test]
fn profile_limits_calls_of_a_tool() {
    run(async {
        let file =
            "[upstream]\nopenai = \"UPSTREAM\"\n[profile.default]\nmax_calls = { bash = 1 }\n";
        let lab = Lab::start(file).await;
        assert_eq!(lab.turn("a", 1, "").await.0, 200);
        let (_, handle) = lab.standing.runs().pop().unwrap();
        let _ = lab.turn("a", 2, "").await;
        let (status, body) = lab.turn("a", 3, "").await;
        assert_eq!(status, 400, "{body}");
        let outcome = handle.outcome().unwrap();
        assert_eq!(outcome.termination, Termination::ErrorMaxToolCalls);
        assert!(outcome.decided_by.evidence.contains("1 of 1 calls of `bash`"), "{outcome:?}");
    });
}
