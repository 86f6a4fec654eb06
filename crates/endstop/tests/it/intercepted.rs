//! Events that a function gets on the run's task: their order, their deltas, and its panic.

use crate::events::{all, kinds, text_of};
use crate::support::{agent, eventually};
use endstop::AgentEventKind;
use endstop::testkit::Turn;
use futures_core::Stream as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

#[tokio::test]
async fn intercepted_events_keep_their_order() {
    let turns = || [Turn::text("one two three").pace(Duration::from_millis(5))];
    let (expected, _) = all(agent(turns()).build().unwrap().run("go").unwrap()).await;
    // However many events wait already: none, the first one, or all of them.
    for waited in [0, 1, expected.len()] {
        let agent = agent(turns()).build().unwrap();
        let mut handle = agent.run("go").unwrap();
        match waited {
            0 => {}
            1 => drop(handle.next().await.unwrap()),
            _ => eventually("the run has ended", || handle.try_outcome().is_some()).await,
        }
        let taken = Arc::new(Mutex::new(Vec::new()));
        let all_of = Arc::clone(&taken);
        handle.intercept(move |event| {
            all_of.lock().unwrap().push(event.clone());
            matches!(event.kind, AgentEventKind::TurnFinished { .. }).then_some(event)
        });
        let (rest, outcome) = all(handle).await;
        assert_eq!(kinds(&rest), ["turn_finished"]);
        assert!(outcome.is_success());
        let first = usize::from(waited == 1);
        assert_eq!(kinds(&taken.lock().unwrap()), kinds(&expected)[first..]);
        assert_eq!(text_of(&taken.lock().unwrap()), "one two three");
        // Dropped with the handle, so that it may own what the reader waits for.
        assert_eq!(Arc::strong_count(&taken), 1);
    }
}

#[tokio::test]
async fn intercepted_deltas_are_never_dropped() {
    let long = "word ".repeat(5_000);
    let agent = agent([Turn::text(long.clone())]).build().unwrap();
    let mut handle = agent.run("go").unwrap();
    let written = Arc::new(Mutex::new(String::new()));
    let text = Arc::clone(&written);
    handle.intercept(move |event| {
        text.lock().unwrap().push_str(&text_of(&[event]));
        None
    });
    assert!(all(handle).await.1.is_success());
    assert_eq!(*written.lock().unwrap(), long);
}

#[tokio::test]
async fn panic_of_interceptor_is_the_readers() {
    let agent = agent([Turn::text("done")]).build().unwrap();
    let mut handle = agent.run("go").unwrap();
    handle.intercept(|event| match event.kind {
        AgentEventKind::TextDelta { .. } => panic!("of the interceptor"),
        _ => None,
    });
    eventually("the run has ended", || handle.try_outcome().is_some()).await;
    let polled = catch_unwind(AssertUnwindSafe(|| {
        let mut cx = Context::from_waker(Waker::noop());
        Pin::new(&mut handle).poll_next(&mut cx).is_ready()
    }));
    assert!(polled.is_err());
    assert!(handle.outcome().await.is_success());
}
