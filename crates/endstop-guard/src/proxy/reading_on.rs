//! Reads the end of a response whose client is gone, because it contains the usage.

use super::abort::{AbortToken, Waiter};
use super::observed::Observed;
use super::observer::{End, Flow, ReadOn};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use tokio::sync::mpsc;

pub(crate) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs tasks that outlive their connection, but not the proxy.
#[derive(Debug, Clone)]
pub(crate) struct Background {
    tasks: mpsc::UnboundedSender<Task>,
}

impl Background {
    /// Returns the sender, and the receiver that the proxy runs.
    pub(crate) fn new() -> (Background, mpsc::UnboundedReceiver<Task>) {
        // Not bounded, but there is at most one task for each exchange, and each has a time limit.
        let (tasks, receiver) = mpsc::unbounded_channel();
        (Background { tasks }, receiver)
    }

    /// Runs a task. If the proxy has ended, the task is dropped.
    pub(crate) fn run(&self, task: impl Future<Output = ()> + Send + 'static) {
        let _ = self.tasks.send(Box::pin(task));
    }
}

/// Reads a response for its observer until its end, an abort, or a limit.
pub(crate) async fn read_on(
    mut upstream: Incoming,
    mut observed: Observed,
    abort: AbortToken,
    limits: ReadOn,
) {
    let end = within(&abort, limits, async {
        let mut left = limits.bytes;
        loop {
            let chunk = match upstream.frame().await {
                None => {
                    observed.before_end();
                    return End::ClientGone { whole: true };
                }
                Some(Err(_)) => return End::ClientGone { whole: false },
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            };
            let Some(rest) = left.checked_sub(chunk.len() as u64) else {
                return End::ClientGone { whole: false };
            };
            left = rest;
            match observed.bytes(&chunk) {
                Flow::Abort => return End::Aborted,
                Flow::End { .. } => return End::Ended,
                Flow::Pass | Flow::Hold { .. } | Flow::Change(_) => {}
            }
        }
    })
    .await;
    observed.end(end);
}

/// Runs a future for at most the given time, and not after an abort.
pub(crate) async fn within(
    abort: &AbortToken,
    limits: ReadOn,
    future: impl Future<Output = End>,
) -> End {
    let mut future = pin!(tokio::time::timeout(limits.time, future));
    poll_fn(|context| {
        if abort.poll_aborted(Waiter::Exchange, context) {
            return Poll::Ready(End::Aborted);
        }
        let result = std::task::ready!(future.as_mut().poll(context));
        Poll::Ready(result.unwrap_or(End::ClientGone { whole: false }))
    })
    .await
}
