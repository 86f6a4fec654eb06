//! Models of the ending and the control: loom goes through every order in which threads can take
//! their steps, and every value that each can see.
//!
//! ```sh
//! RUSTFLAGS="--cfg endstop_loom" CARGO_TARGET_DIR=target/loom cargo test -p endstop --lib models
//! ```
//!
//! Who waits is a thread that sleeps until its waker is woken: one that is missed is a deadlock,
//! and loom reports it. A waker that is left behind is a leak, which it reports too.

use super::control::{Control, Request};
use super::ending::{EndingCell, lost};
use super::handle::{AgentEvent, RunHandle};
use endstop_core::{Outcome, Termination};
use loom::future::block_on;
use loom::thread;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Goes through all orders, and says how many there were.
fn all_orders(of: &str, model: impl Fn() + Send + Sync + 'static) {
    orders(of, None, model);
}

/// Goes through all orders with so many preemptions at most: a thread that gives way of itself
/// (it waits for a lock, or to be woken) is none.
#[expect(clippy::print_stdout, reason = "the number of orders is what a reader wants to know")]
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

fn control() -> Control {
    Control::new(CancellationToken::new())
}

/// A waker that counts.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A driver's task that may go before it has given its outcome.
struct Guard(EndingCell);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.write(lost(false, Duration::ZERO));
    }
}

#[test]
fn of_two_writers_one_wins_and_all_who_wait_see_its_outcome() {
    orders("two writers, two waiters, two preemptions", Some(2), || {
        let cell = EndingCell::default();
        let writers = [Termination::Stop, Termination::Cancelled].map(|termination| {
            let cell = cell.clone();
            thread::spawn(move || cell.write(ended(termination)).then_some(termination))
        });
        let waiter = thread::spawn({
            let cell = cell.clone();
            move || block_on(cell.wait()).termination
        });
        let seen = block_on(cell.wait()).termination;
        let wrote = writers.map(|writer| writer.join().unwrap());
        let won: Vec<Termination> = wrote.into_iter().flatten().collect();
        assert_eq!(won, [seen]);
        assert_eq!(waiter.join().unwrap(), seen);
        assert_eq!(cell.get().unwrap().termination, seen);
    });
}

#[test]
fn who_waited_before_the_write_is_woken_and_who_waits_after_it_is_answered() {
    all_orders("waiters before and after", || {
        let cell = EndingCell::default();
        let woken = std::sync::Arc::<Woken>::default();
        let before = Waker::from(std::sync::Arc::clone(&woken));
        let mut waiting = pin!(cell.wait());
        assert!(waiting.as_mut().poll(&mut Context::from_waker(&before)).is_pending());
        let writer = thread::spawn({
            let cell = cell.clone();
            move || cell.write(ended(Termination::Stop))
        });
        let between = block_on(cell.wait()).termination;
        assert!(writer.join().unwrap());
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert_eq!(block_on(waiting).termination, between);
        assert_eq!(block_on(cell.wait()).termination, between);
    });
}

#[test]
fn a_task_that_goes_and_one_that_gives_its_outcome_write_once() {
    all_orders("a writer and a drop guard", || {
        let cell = EndingCell::default();
        let guard = Guard(cell.clone());
        let gone = thread::spawn(move || drop(guard));
        let writer = thread::spawn({
            let guard = Guard(cell.clone());
            move || guard.0.write(ended(Termination::Submitted))
        });
        let seen = block_on(cell.wait()).termination;
        gone.join().unwrap();
        let won = writer.join().unwrap();
        assert_eq!(won, seen == Termination::Submitted);
        assert_eq!(cell.get().unwrap().termination, seen);
    });
}

#[test]
fn a_wait_that_is_dropped_while_others_are_woken_leaves_nobody_unwoken() {
    all_orders("a wait that is dropped", || {
        let cell = EndingCell::default();
        let mut dropped = Box::pin(cell.wait());
        let first = Waker::from(std::sync::Arc::<Woken>::default());
        assert!(dropped.as_mut().poll(&mut Context::from_waker(&first)).is_pending());
        let writer = thread::spawn({
            let cell = cell.clone();
            move || cell.write(ended(Termination::Stop))
        });
        // Another registers, the first goes, and the other waits on.
        let mut waiting = pin!(cell.wait());
        let second = Waker::from(std::sync::Arc::<Woken>::default());
        let _ = waiting.as_mut().poll(&mut Context::from_waker(&second));
        drop(dropped);
        assert_eq!(block_on(waiting).termination, Termination::Stop);
        assert!(writer.join().unwrap());
    });
}

#[test]
fn a_wait_that_moves_to_another_task_is_woken_there() {
    all_orders("a wait that moves", || {
        let cell = EndingCell::default();
        let writer = thread::spawn({
            let cell = cell.clone();
            move || cell.write(ended(Termination::Stop))
        });
        let mut waiting = pin!(cell.wait());
        let first = Waker::from(std::sync::Arc::<Woken>::default());
        let _ = waiting.as_mut().poll(&mut Context::from_waker(&first));
        assert_eq!(block_on(waiting).termination, Termination::Stop);
        assert!(writer.join().unwrap());
    });
}

/// What a driver hears until it hears of a terminate.
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
fn a_terminate_is_heard_and_never_becomes_a_cancel() {
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
        assert!(control.token.is_cancelled());
    });
}

#[test]
fn a_cancel_is_heard_once_however_often_it_is_asked() {
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
fn a_driver_that_moves_to_another_task_hears_what_is_asked() {
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
fn a_handle_that_is_dropped_while_the_ending_is_written_changes_no_ending() {
    all_orders("a handle dropped while the ending is written", || {
        let (cell, control) = (EndingCell::default(), control());
        let (handle, sink) = RunHandle::new(cell.clone(), control.clone());
        let dropped = thread::spawn(move || drop(handle));
        // The driver: it ends the run as cancelled where it hears so first.
        let termination = match control.pending(None) {
            Some(_) => Termination::Cancelled,
            None => Termination::Stop,
        };
        let outcome = ended(termination);
        let event = AgentEvent::Ended(std::sync::Arc::new(outcome.clone()));
        assert!(cell.write(outcome));
        sink.send(event);
        dropped.join().unwrap();
        assert_eq!(cell.get().unwrap().termination, termination);
        assert_ne!(control.pending(None), Some(Request::Terminate));
    });
}

#[test]
fn an_outcome_that_is_awaited_while_it_is_written_cancels_nothing() {
    all_orders("an outcome awaited while it is written", || {
        let (cell, control) = (EndingCell::default(), control());
        let (handle, sink) = RunHandle::new(cell.clone(), control.clone());
        let driver = thread::spawn(move || {
            let outcome = ended(Termination::Stop);
            let event = AgentEvent::Ended(std::sync::Arc::new(outcome.clone()));
            assert!(cell.write(outcome));
            sink.send(event);
        });
        assert_eq!(block_on(handle.outcome()).termination, Termination::Stop);
        driver.join().unwrap();
        assert_eq!(control.pending(None), None);
    });
}
