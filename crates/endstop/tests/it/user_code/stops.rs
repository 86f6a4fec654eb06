//! A cancel and a terminate while user code hangs or panics, or requested by the code itself.

use super::code::{Code, Does};
use super::points::{Runs, points};
use super::{Case, decided_by};
use crate::support::eventually;
use endstop::{Agent, Outcome, Termination};
use std::time::Duration;

pub type Stop = (fn(&Agent), Termination, &'static str);

pub const STOPS: [Stop; 2] = [
    (Agent::cancel, Termination::Cancelled, "cancel"),
    (Agent::terminate, Termination::Terminated, "terminate"),
];

pub fn is_stopped(point: &str, outcome: &Outcome, (_, termination, name): Stop) {
    assert_eq!(outcome.termination, termination, "{point}: {outcome:?}");
    assert_eq!(decided_by(outcome), ("caller", name), "{point}");
}

#[tokio::test(start_paused = true)]
async fn stop_ends_a_hang() {
    for stop in STOPS {
        for point in points().into_iter().filter(|point| point.waits) {
            let code = Code::new(Does::Hang);
            let case = Case::new(point.name, &code, (point.make)(&code));
            let handle = case.session.run("go").unwrap();
            eventually(point.name, || code.was_reached()).await;
            let asked = tokio::time::Instant::now();
            stop.0(&case.agent);
            let outcome = case.ending(handle).await;
            // A tool has its grace period, and some time to be dropped.
            assert!(asked.elapsed() < Duration::from_secs(5), "{}", point.name);
            is_stopped(point.name, &outcome, stop);
            tokio::time::resume();
            case.afterwards(&outcome).await;
            tokio::time::pause();
        }
    }
}

#[tokio::test]
async fn stop_outranks_simultaneous_panic() {
    for stop in STOPS {
        for stop_first in [true, false] {
            for point in points().into_iter().filter(|point| point.waits) {
                let code = Code::new(Does::PanicLater);
                let case = Case::new(point.name, &code, (point.make)(&code));
                let handle = case.session.run("go").unwrap();
                eventually(point.name, || code.was_reached()).await;
                // The run makes no progress between these two, so they are simultaneous for it.
                if stop_first {
                    stop.0(&case.agent);
                    code.go_on();
                } else {
                    code.go_on();
                    stop.0(&case.agent);
                }
                let outcome = case.ending(handle).await;
                is_stopped(point.name, &outcome, stop);
                case.afterwards(&outcome).await;
            }
        }
    }
}

#[tokio::test]
async fn stop_outranks_own_later_panic() {
    for (stop, does) in STOPS.into_iter().zip([Does::CancelAndPanic, Does::TerminateAndPanic]) {
        for point in points() {
            let code = Code::new(does);
            let case = Case::new(point.name, &code, (point.make)(&code));
            let outcome = case.ending(case.session.run("go").unwrap()).await;
            if point.runs == Runs::InKernel {
                // The step that the code was called for precedes stop requests made in the
                // meantime, so an answer in that step stands.
                if point.name == "step of text" {
                    assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
                    assert_eq!(outcome.also, [Termination::ErrorDuringExecution], "{outcome:?}");
                } else {
                    assert_eq!(
                        outcome.termination,
                        Termination::ErrorDuringExecution,
                        "{outcome:?}"
                    );
                    assert_eq!(decided_by(&outcome), ("fault", "watches"), "{}", point.name);
                }
            } else {
                is_stopped(point.name, &outcome, stop);
            }
            case.afterwards(&outcome).await;
        }
    }
}
