//! User code that holds its thread: a stop returns at once all the same. Code on a task of its own
//! does not hold the run up; code on the run's task does, until it returns.

use super::Case;
use super::code::{Code, Does};
use super::points::{Runs, points};
use super::stops::{STOPS, is_stopped};
use crate::support::eventually;
use endstop::Termination;
use std::time::Duration;
use tokio::task::JoinSet;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_stop_waits_for_no_code_that_blocks() {
    for stop in STOPS {
        for point in points() {
            let code = Code::new(Does::Block);
            let case = Case::new(point.name, &code, (point.make)(&code));
            let agent = case.agent.clone();
            // The start itself may block.
            let mut start = JoinSet::new();
            start.spawn(async move { agent.run("go").unwrap() });
            eventually(point.name, || code.was_reached()).await;
            // It returns while the code blocks: nobody lets that go on before.
            stop.0(&case.agent);
            let outcome = if point.runs == Runs::Apart {
                let ending = case.ending(start.join_next().await.unwrap().unwrap());
                let outcome = tokio::time::timeout(Duration::from_secs(10), ending).await;
                assert_eq!(code.under_way(), 1, "{}: it blocks still", point.name);
                let settled = case.agent.settled();
                let settled = tokio::time::timeout(Duration::ZERO, settled).await;
                assert!(settled.is_err(), "{}: settled, and it blocks still", point.name);
                code.go_on();
                outcome.expect("the run waits for code that blocks")
            } else {
                code.go_on();
                case.ending(start.join_next().await.unwrap().unwrap()).await
            };
            if point.answered {
                assert_eq!(outcome.termination, Termination::Stop, "{}: {outcome:?}", point.name);
            } else {
                is_stopped(point.name, &outcome, stop);
            }
            case.afterwards(&outcome).await;
        }
    }
}
