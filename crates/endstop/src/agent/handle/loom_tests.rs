//! loom tests of `control` and of the handle: loom explores every order of the threads' steps, and
//! every value that each thread can observe. The outcome is in a cell of tokio, whose own tests
//! explore its steps; here they happen at once.
//!
//! ```sh
//! RUSTFLAGS="--cfg endstop_loom" CARGO_TARGET_DIR=target/loom cargo test -p endstop --lib loom_tests
//! ```
//!
//! A waiter is a thread that sleeps until its waker is woken. A missed wake-up is a deadlock and a
//! waker that is left behind is a leak; loom reports both.

use super::RunHandle;
use super::ending::{EndingCell, lost};
use super::steering::SteerError;
use crate::control::{Control, Request};
use crate::event::{AgentEvent, AgentEventKind, Origin};
use endstop_core::{EventKind, Outcome, Termination};
use loom::future::block_on;
use loom::sync::atomic::AtomicBool;
use loom::thread;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Poll, Wake, Waker};
use std::time::Duration;

/// Explores all orders and prints their number.
fn all_orders(of: &str, model: impl Fn() + Send + Sync + 'static) {
    orders(of, None, model);
}

/// Explores all orders with at most this many preemptions. A thread that yields on its own, because
/// it waits for a lock or for a wake-up, is not preempted.
#[expect(clippy::print_stdout, reason = "the number of orders is the result of the test")]
fn orders(of: &str, preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let orders = std::sync::Arc::new(AtomicU64::new(0));
    let counted = std::sync::Arc::clone(&orders);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    println!("{of}: {} orders", orders.load(Ordering::Relaxed));
}

fn ended(termination: Termination) -> Outcome {
    Outcome { termination, ..lost(false, Duration::ZERO) }
}

fn finished(outcome: &Outcome) -> AgentEvent {
    let origin = Origin::new("", [], None);
    let outcome = std::sync::Arc::new(outcome.clone());
    AgentEvent::new(origin, AgentEventKind::Finished { outcome })
}

fn control() -> Control {
    Control::within(None)
}

/// A waker that counts its wake-ups.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns the requests that a driver receives, up to a terminate.
fn heard(control: &Control) -> Vec<Request> {
    let mut heard = Vec::new();
    while heard.last() != Some(&Request::Terminate) {
        let known = heard.last().copied();
        let request = block_on(poll_fn(|cx| match control.poll(known, cx.waker()) {
            Some(request) => Poll::Ready(request),
            None => Poll::Pending,
        }));
        heard.push(request);
    }
    heard
}

#[test]
fn terminate_never_degrades_to_cancel() {
    all_orders("cancel, terminate, and the driver's look", || {
        let control = control();
        let cancel = thread::spawn({
            let control = control.clone();
            move || control.cancel()
        });
        let terminate = thread::spawn({
            let control = control.clone();
            move || control.terminate()
        });
        let heard = heard(&control);
        let both = [Request::Cancel, Request::Terminate];
        assert!(heard == both || heard == both[1..], "{heard:?}");
        cancel.join().unwrap();
        terminate.join().unwrap();
        assert_eq!(control.pending(heard.last().copied()), None);
        assert_eq!(control.pending(None), Some(Request::Terminate));
        assert!(control.token().is_cancelled());
    });
}

#[test]
fn repeated_cancel_is_reported_once() {
    all_orders("two cancels, and the driver's look", || {
        let control = control();
        let cancels = [(), ()].map(|()| {
            let control = control.clone();
            thread::spawn(move || control.cancel())
        });
        let request = block_on(poll_fn(|cx| match control.poll(None, cx.waker()) {
            Some(request) => Poll::Ready(request),
            None => Poll::Pending,
        }));
        assert_eq!(request, Request::Cancel);
        for cancel in cancels {
            cancel.join().unwrap();
        }
        assert_eq!(control.pending(Some(request)), None);
    });
}

#[test]
fn moved_driver_receives_requests() {
    all_orders("a driver with another waker", || {
        let control = control();
        let cancel = thread::spawn({
            let control = control.clone();
            move || control.cancel()
        });
        let first = Waker::from(std::sync::Arc::<Woken>::default());
        if control.poll(None, &first).is_none() {
            block_on(poll_fn(|cx| match control.poll(None, cx.waker()) {
                Some(request) => Poll::Ready(request),
                None => Poll::Pending,
            }));
        }
        cancel.join().unwrap();
    });
}

#[test]
fn handle_drop_during_write_keeps_outcome() {
    all_orders("a handle dropped while the ending is written", || {
        let (cell, control) = (EndingCell::default(), control());
        let (handle, sink) = RunHandle::new(cell.clone(), control.clone());
        let dropped = thread::spawn(move || drop(handle));
        // The driver: ends the run as cancelled if it sees the cancel first.
        let termination = match control.pending(None) {
            Some(_) => Termination::Cancelled,
            None => Termination::Stop,
        };
        let outcome = ended(termination);
        let event = finished(&outcome);
        assert!(cell.write(outcome));
        sink.send(event);
        dropped.join().unwrap();
        assert_eq!(cell.get().unwrap().termination, termination);
        assert_ne!(control.pending(None), Some(Request::Terminate));
    });
}

#[test]
fn outcome_await_during_write_cancels_nothing() {
    all_orders("an outcome awaited while it is written", || {
        let (cell, control) = (EndingCell::default(), control());
        let (handle, sink) = RunHandle::new(cell.clone(), control.clone());
        let driver = thread::spawn(move || {
            let outcome = ended(Termination::Stop);
            let event = finished(&outcome);
            assert!(cell.write(outcome));
            sink.send(event);
        });
        assert_eq!(block_on(handle.outcome()).termination, Termination::Stop);
        driver.join().unwrap();
        assert_eq!(control.pending(None), None);
    });
}

/// A flag for the return of a stop; code that checks it must not start afterwards.
#[derive(Clone)]
struct Returned(loom::sync::Arc<AtomicBool>);

impl Returned {
    fn new() -> Returned {
        Returned(loom::sync::Arc::new(AtomicBool::new(false)))
    }
    fn now(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
    /// Called by the first instruction of a body.
    fn is_not_yet(&self) {
        assert!(!self.0.load(Ordering::SeqCst), "it started after the stop had returned");
    }
}

#[test]
fn no_body_starts_after_stop_returns() {
    for stop in [Control::cancel, Control::terminate] {
        orders("two bodies and a stop, two preemptions", Some(2), move || {
            let (control, returned) = (control(), Returned::new());
            let bodies = [(), ()].map(|()| {
                let (control, returned) = (control.clone(), returned.clone());
                thread::spawn(move || {
                    let ran = control.start(Request::Cancel, || returned.is_not_yet()).is_some();
                    assert!(ran || control.pending(None).is_some(), "refused without a request");
                })
            });
            stop(&control);
            returned.now();
            for body in bodies {
                body.join().unwrap();
            }
        });
    }
}

#[test]
fn bodies_that_cancel_their_run_return() {
    orders("two bodies that cancel, two preemptions", Some(2), || {
        let (control, returned) = (control(), Returned::new());
        let body = |control: &Control, returned: &Returned| {
            let _ = control.start(Request::Cancel, || {
                returned.is_not_yet();
                control.cancel();
            });
        };
        let other = thread::spawn({
            let (control, returned) = (control.clone(), returned.clone());
            move || body(&control, &returned)
        });
        body(&control, &returned);
        control.cancel();
        returned.now();
        other.join().unwrap();
        assert_eq!(control.pending(None), Some(Request::Cancel));
    });
}

#[test]
fn no_inner_body_starts_after_stop() {
    orders("a body of an inner run, and a stop of the outer, three preemptions", Some(3), || {
        let (outer, returned) = (control(), Returned::new());
        let inner = Control::within(Some(&outer));
        let body = thread::spawn({
            let (inner, returned) = (inner.clone(), returned.clone());
            move || {
                let ran = inner.start(Request::Cancel, || {
                    returned.is_not_yet();
                    // The body may stop its own run, which does not wait for the outer one.
                    inner.cancel();
                });
                assert!(
                    ran.is_some() || inner.pending(None).is_some(),
                    "refused without a request"
                );
            }
        });
        outer.cancel();
        returned.now();
        body.join().unwrap();
    });
}

#[test]
fn bodies_that_stop_both_runs_return() {
    for order in [[0, 1], [1, 0]] {
        orders("a body in each of two runs that stops both, two preemptions", Some(2), move || {
            let (runs, returned) = ([control(), control()], Returned::new());
            let body = |run: usize, runs: [Control; 2], order: [usize; 2], returned: &Returned| {
                let stops = order.map(|at| runs[at].clone());
                let _ = runs[run].start(Request::Cancel, || {
                    returned.is_not_yet();
                    Control::stop_all(&stops, Request::Cancel);
                });
            };
            let other = thread::spawn({
                let (runs, returned) = (runs.clone(), returned.clone());
                move || body(1, runs, order, &returned)
            });
            body(0, runs.clone(), [0, 1], &returned);
            Control::stop_all(&runs, Request::Cancel);
            returned.now();
            other.join().unwrap();
            assert!(runs.iter().all(|run| run.pending(None) == Some(Request::Cancel)));
        });
    }
}

#[test]
fn only_terminate_blocks_observers() {
    orders("an observer, a cancel and a terminate, two preemptions", Some(2), || {
        let (control, returned) = (control(), Returned::new());
        control.cancel();
        let observer = thread::spawn({
            let (control, returned) = (control.clone(), returned.clone());
            move || control.start(Request::Terminate, || returned.is_not_yet())
        });
        let cancel = thread::spawn({
            let control = control.clone();
            move || control.cancel()
        });
        control.terminate();
        returned.now();
        observer.join().unwrap();
        cancel.join().unwrap();
        assert_eq!(control.start(Request::Terminate, || ()), None);
    });
}

#[test]
fn panicking_body_does_not_delay_stop() {
    all_orders("a body that panics, and a stop", || {
        let control = control();
        let body = thread::spawn({
            let control = control.clone();
            move || {
                let code = std::panic::AssertUnwindSafe(|| {
                    control.start(Request::Cancel, || std::panic::resume_unwind(Box::new(())))
                });
                let _: Result<Option<()>, _> = std::panic::catch_unwind(code);
            }
        });
        control.cancel();
        body.join().unwrap();
    });
}

#[test]
fn reported_spending_always_wakes_the_driver() {
    all_orders("a report of spending, and the driver's look", || {
        let (control, said) = (control(), loom::sync::Arc::new(AtomicBool::new(false)));
        let reports = thread::spawn({
            let (control, said) = (control.clone(), said.clone());
            move || {
                said.store(true, Ordering::SeqCst);
                control.spent();
            }
        });
        block_on(poll_fn(|cx| {
            assert_eq!(control.poll(None, cx.waker()), None);
            if control.take_news().spent { Poll::Ready(()) } else { Poll::Pending }
        }));
        assert!(said.load(Ordering::SeqCst));
        reports.join().unwrap();
        assert!(!control.take_news().spent);
    });
}

fn say(control: &Control) -> Result<(), SteerError> {
    control.send(|_| Ok(EventKind::Said { text: "x".to_owned() }))
}

#[test]
fn message_is_taken_or_refused() {
    all_orders("a message, and the end of the run", || {
        let control = control();
        let sender = thread::spawn({
            let control = control.clone();
            move || say(&control).is_ok()
        });
        let taken = usize::from(control.take_news().letter.is_some());
        let left = control.close_mailbox().len();
        // Exactly once: a sender without an error was heard.
        assert_eq!(taken + left, usize::from(sender.join().unwrap()));
    });
}

#[test]
fn message_is_taken_before_the_park() {
    all_orders("a message, and the park of the run", || {
        let control = control();
        let sender = thread::spawn({
            let control = control.clone();
            move || say(&control)
        });
        let mut taken = 0;
        while !control.close_empty_mailbox() {
            taken += usize::from(control.take_news().letter.is_some());
        }
        let sent = sender.join().unwrap();
        assert_eq!(sent, if taken == 1 { Ok(()) } else { Err(SteerError::Parked) });
        assert!(control.close_mailbox().is_empty());
    });
}

#[test]
fn message_always_wakes_the_driver() {
    all_orders("a message, and the driver's look", || {
        let control = control();
        let sender = thread::spawn({
            let control = control.clone();
            move || say(&control).unwrap()
        });
        block_on(poll_fn(|cx| {
            assert_eq!(control.poll(None, cx.waker()), None);
            if control.take_news().letter.is_some() { Poll::Ready(()) } else { Poll::Pending }
        }));
        sender.join().unwrap();
        assert!(control.close_mailbox().is_empty());
    });
}
