//! User code that blocks its thread. A stop returns at once anyway. Code on a separate task does
//! not delay the run; code on the run's task does, until it returns.

use super::Case;
use super::code::{Code, Does};
use super::points::{Runs, points};
use super::stops::{STOPS, Stop, is_stopped};
use crate::support::{HANG, eventually};
use endstop::Termination;
use std::time::Duration;
use tokio::task::JoinSet;

/// Number of cases at once: fewer than there are threads to block.
const AT_ONCE: usize = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 10)]
async fn stop_does_not_wait_for_code() {
    let mut cases = JoinSet::new();
    for stop in STOPS {
        for point in points() {
            let code = Code::new(Does::Block);
            let case = Case::new(point.name, &code, (point.make)(&code));
            cases.spawn(blocks(case, point.runs, point.answered, stop));
            if cases.len() == AT_ONCE {
                cases.join_next().await.unwrap().unwrap();
            }
        }
    }
    cases.join_all().await;
}

async fn blocks(case: Case, runs: Runs, answered: bool, stop: Stop) {
    let (point, code, session) = (case.point, case.code.clone(), case.session.clone());
    // Starting the run may block as well.
    let mut start = JoinSet::new();
    start.spawn(async move { session.run("go").unwrap() });
    eventually(point, || code.was_reached()).await;
    // The stop returns while the code blocks, because the code is released only later.
    stop.0(&case.agent);
    let outcome = if runs == Runs::Apart {
        let ending = case.ending(start.join_next().await.unwrap().unwrap());
        let outcome = tokio::time::timeout(HANG, ending).await;
        assert_eq!(code.under_way(), 1, "{point}: it blocks still");
        let settled = tokio::time::timeout(Duration::ZERO, case.agent.settled()).await;
        assert!(settled.is_err(), "{point}: settled, and it blocks still");
        code.go_on();
        outcome.expect("the run waits for code that blocks")
    } else {
        code.go_on();
        case.ending(start.join_next().await.unwrap().unwrap()).await
    };
    if answered {
        assert_eq!(outcome.termination, Termination::Stop, "{point}: {outcome:?}");
    } else {
        is_stopped(point, &outcome, stop);
    }
    case.afterwards(&outcome).await;
}
