//! The body of a response on its way to the client: each chunk passes when it arrives.

use super::abort::{AbortToken, Waiter};
use super::connection::Connection;
use super::gathering::Gathering;
use super::observed::Observed;
use super::observer::{End, Flow};
use super::reading_on::{Background, read_on};
use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// The time after which an observer reads what it has put off since it last read, or since the first chunk.
const LATEST: Duration = Duration::from_secs(1);

/// Closes the client's connection without a clean end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Closed {
    #[error("the exchange was aborted")]
    Aborted,
    #[error("the upstream broke off")]
    Cut,
}

/// The timer of an observer that puts off reading.
#[derive(Default)]
struct Late {
    // Kept for the next time, also by the connection, because it is cheaper to move than to create.
    timer: Option<Pin<Box<Sleep>>>,
    is_running: bool,
    // The observer has read, so the time begins anew.
    is_due_later: bool,
    // The task that the timer wakes.
    waker: Option<Waker>,
}

impl Late {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if std::mem::take(&mut self.is_due_later) {
            let due = Instant::now() + LATEST;
            match &mut self.timer {
                Some(timer) => timer.as_mut().reset(due),
                None => self.timer = Some(Box::pin(sleep_until(due))),
            }
            self.is_running = true;
            self.waker = None;
        }
        let Some(timer) = self.timer.as_mut().filter(|_| self.is_running) else {
            return Poll::Pending;
        };
        let is_known = self.waker.as_ref().is_some_and(|one| one.will_wake(context.waker()));
        // Each chunk comes here several times, and a timer is slow to ask.
        if is_known && !timer.is_elapsed() {
            return Poll::Pending;
        }
        self.waker = Some(context.waker().clone());
        // Always registers the task, also if this has used up its share of time.
        std::task::ready!(pin!(tokio::task::unconstrained(timer.as_mut())).poll(context));
        self.is_running = false;
        Poll::Ready(())
    }
}

/// The body of a response that is forwarded.
pub(crate) struct Passing {
    // None after the end.
    upstream: Option<Incoming>,
    observed: Observed,
    abort: AbortToken,
    connection: Arc<Connection>,
    background: Background,
    held: VecDeque<Bytes>,
    held_length: usize,
    largest_hold: usize,
    output: VecDeque<Bytes>,
    // Decides whether the output waits for chunks that arrived with it.
    gathering: Gathering,
    trailers: Option<HeaderMap>,
    failed: Option<Closed>,
    // The connection was given something since it could last flush it.
    unflushed: bool,
    // The client knows the length of the body.
    has_length: bool,
    // The task of the client's connection asks for the body itself, as with HTTP/1.1.
    is_alone: bool,
    // The turn of that task in which there was nothing to pass.
    waits_since: Option<usize>,
    late: Late,
}

impl Passing {
    pub(crate) fn new(
        upstream: Incoming,
        (observed, abort, gathering): (Observed, AbortToken, Gathering),
        connection: Arc<Connection>,
        background: Background,
        options: (usize, bool, bool),
    ) -> Passing {
        let (largest_hold, has_length, is_alone) = options;
        let late = Late { timer: connection.take_timer(), ..Late::default() };
        let mut passing = Passing {
            upstream: Some(upstream),
            observed,
            abort,
            connection,
            background,
            held: VecDeque::new(),
            held_length: 0,
            largest_hold,
            output: VecDeque::new(),
            gathering,
            trailers: None,
            failed: None,
            // The head.
            unflushed: true,
            has_length,
            is_alone,
            waits_since: None,
            late,
        };
        passing.end_if_complete();
        passing
    }

    /// Ends the exchange if the upstream has sent everything. The connection does not ask again for
    /// a body whose length is reached.
    fn end_if_complete(&mut self) {
        if self.upstream.as_ref().is_some_and(Incoming::is_end_stream) {
            self.complete();
        }
    }

    fn complete(&mut self) {
        self.upstream = None;
        let flow = self.observed.before_end();
        self.apply(flow, Bytes::new());
        // Bytes that are still held belong to a call that never became whole.
        if !self.held.is_empty() {
            self.fail(Closed::Aborted, End::Aborted);
        }
        if self.failed.is_none() {
            self.abort.set_over();
        }
        self.observed.end(End::Complete);
    }

    fn fail(&mut self, closed: Closed, end: End) {
        self.upstream = None;
        self.held.clear();
        // They would end the response cleanly.
        self.trailers = None;
        self.failed = Some(closed);
        self.observed.end(end);
    }

    /// Carries out a decision about a chunk.
    fn apply(&mut self, flow: Flow, chunk: Bytes) {
        self.held_length += chunk.len();
        if !chunk.is_empty() {
            self.held.push_back(chunk);
        }
        let fixed = self.has_length || self.observed.is_encoded();
        match flow {
            Flow::Pass => self.release(usize::MAX),
            Flow::Hold { pass } => {
                self.release(pass);
                if self.held_length > self.largest_hold {
                    self.fail(Closed::Aborted, End::Aborted);
                }
            }
            Flow::Change(bytes) if !fixed => {
                self.drop_held();
                self.output.push_back(bytes);
            }
            Flow::End { pass, last } if !fixed => {
                self.release(pass);
                self.drop_held();
                self.output.push_back(last);
                self.upstream = None;
                self.abort.set_over();
                self.observed.end(End::Ended);
            }
            Flow::Change(_) | Flow::End { .. } | Flow::Abort => {
                self.fail(Closed::Aborted, End::Aborted);
            }
        }
    }

    /// Moves the first bytes that are held to the output.
    fn release(&mut self, mut bytes: usize) {
        while bytes > 0
            && let Some(mut chunk) = self.held.pop_front()
        {
            if chunk.len() > bytes {
                self.held.push_front(chunk.split_off(bytes));
            }
            bytes -= chunk.len();
            self.held_length -= chunk.len();
            self.output.push_back(chunk);
        }
    }

    fn drop_held(&mut self) {
        self.held.clear();
        self.held_length = 0;
    }

    /// Handles a frame of the upstream. Returns it if it passes at once; otherwise what passes of it is in the output.
    fn receive(&mut self, frame: Frame<Bytes>) -> Option<Frame<Bytes>> {
        match frame.into_data() {
            Ok(chunk) => {
                let flow = self.observed.bytes(&chunk);
                // From the last chunk that was read on.
                let is_behind = self.observed.is_behind();
                self.late.is_due_later |= is_behind && !self.late.is_running;
                self.late.is_due_later |= !is_behind && self.observed.may_put_off();
                // As almost always.
                let nothing_waits = self.held.is_empty() && self.output.is_empty();
                let mut passes = None;
                if matches!(flow, Flow::Pass) && nothing_waits && !chunk.is_empty() {
                    passes = Some(Frame::data(chunk));
                } else {
                    self.apply(flow, chunk);
                }
                self.end_if_complete();
                passes
            }
            Err(frame) => {
                self.trailers = frame.into_trailers().ok();
                self.complete();
                None
            }
        }
    }

    /// Lets the observer read what it has put off, when it is time. Returns `true` if it was.
    fn catch_up(&mut self, context: &mut Context<'_>) -> bool {
        if self.late.poll(context).is_pending() {
            return false;
        }
        let flow = self.observed.catch_up();
        self.apply(flow, Bytes::new());
        true
    }

    fn next_output(&mut self) -> Option<Frame<Bytes>> {
        // After the end there is nothing to wait for.
        if self.gathering.waits() && self.upstream.is_some() {
            return None;
        }
        while let Some(chunk) = self.output.pop_front() {
            if !chunk.is_empty() {
                return Some(Frame::data(chunk));
            }
        }
        self.trailers.take_if(|_| self.upstream.is_none()).map(Frame::trailers)
    }
}

impl Body for Passing {
    type Data = Bytes;
    type Error = Closed;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Closed>>> {
        let this = &mut *self;
        let turn = this.connection.turn();
        // hyper asks twice in each turn. What comes in the meantime has woken the task.
        if this.waits_since == Some(turn) {
            return Poll::Pending;
        }
        // Once, because a later abort wakes this task again.
        if this.failed.is_none() && this.abort.poll_aborted(Waiter::Exchange, context) {
            // After the end of the response there is nothing to abort.
            if !this.observed.is_ended() {
                this.fail(Closed::Aborted, End::Aborted);
            }
        }
        loop {
            if let Some(frame) = this.next_output() {
                this.unflushed = true;
                return Poll::Ready(Some(Ok(frame)));
            }
            if let Some(closed) = &this.failed {
                // An error closes the connection at once, so what came before it is flushed first.
                if std::mem::take(&mut this.unflushed) {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                return Poll::Ready(Some(Err(closed.clone())));
            }
            let Some(upstream) = &mut this.upstream else { return Poll::Ready(None) };
            match Pin::new(upstream).poll_frame(context) {
                Poll::Pending => {
                    if this.catch_up(context) || this.gathering.ends_waiting(context) {
                        continue;
                    }
                    this.unflushed = false;
                    this.waits_since = this.is_alone.then_some(turn);
                    return Poll::Pending;
                }
                Poll::Ready(Some(Ok(frame))) => {
                    let length = frame.data_ref().map_or(0, Bytes::len);
                    let passes = this.receive(frame);
                    this.gathering.add(length);
                    if let Some(frame) = passes {
                        if !this.gathering.waits() || this.upstream.is_none() {
                            this.unflushed = true;
                            return Poll::Ready(Some(Ok(frame)));
                        }
                        this.output.extend(frame.into_data());
                    }
                }
                Poll::Ready(Some(Err(error))) => {
                    let error = super::upstream::describe(&error);
                    this.fail(Closed::Cut, End::Cut { error });
                }
                Poll::Ready(None) => this.complete(),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.upstream.is_none()
            && self.output.is_empty()
            && self.trailers.is_none()
            && self.failed.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        // The header `Content-Length` of the upstream stays valid, because no bytes are changed then.
        SizeHint::default()
    }
}

impl Drop for Passing {
    // The connection drops the body early only if the client is gone.
    fn drop(&mut self) {
        if let Some(timer) = self.late.timer.take() {
            self.connection.keep_timer(timer);
        }
        let Some(upstream) = self.upstream.take() else { return };
        if self.observed.is_ended() {
            return;
        }
        let limits = self.observed.client_gone();
        if limits.time.is_zero() {
            self.observed.end(End::ClientGone { whole: false });
            return;
        }
        let observed = std::mem::replace(&mut self.observed, Observed::ended());
        let abort = self.abort.clone();
        self.background.run(read_on(upstream, observed, abort, limits));
    }
}

#[cfg(test)]
mod tests {
    use super::{LATEST, Late};
    use std::future::poll_fn;
    use std::task::{Context, Waker};
    use std::time::{Duration, Instant};
    use tokio::task::JoinSet;

    #[tokio::test]
    async fn timer_wakes_the_task_that_polled_last() {
        let began = Instant::now();
        let mut late = Late::default();
        for times in 1..=2 {
            late.is_due_later = true;
            // Another task, which is never woken.
            assert!(late.poll(&mut Context::from_waker(Waker::noop())).is_pending());
            // A task of its own, because nothing but the timer must poll it.
            let mut tasks = JoinSet::new();
            tasks.spawn(async move {
                poll_fn(|context| late.poll(context)).await;
                late
            });
            let woken = tokio::time::timeout(Duration::from_secs(60), tasks.join_next()).await;
            late = woken.unwrap().unwrap().unwrap();
            assert!(began.elapsed() >= times * LATEST);
            let again = late.poll(&mut Context::from_waker(Waker::noop()));
            assert!(again.is_pending(), "it fires once");
        }
    }
}
