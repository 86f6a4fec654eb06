//! The body of a response on its way to the client: each chunk passes when it arrives.

use super::abort::{AbortToken, Waiter};
use super::headers::trailers_for_client;
use super::observed::{Background, Observed, read_on};
use super::observer::{End, Flow};
use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Closes the client's connection without a clean end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Closed {
    #[error("the exchange was aborted")]
    Aborted,
    #[error("the upstream broke off")]
    Cut,
}

/// The body of a response that is forwarded.
pub(crate) struct Passing {
    // None after the end.
    upstream: Option<Incoming>,
    observed: Observed,
    abort: AbortToken,
    background: Background,
    held: VecDeque<Bytes>,
    held_length: usize,
    largest_hold: usize,
    output: VecDeque<Bytes>,
    trailers: Option<HeaderMap>,
    failed: Option<Closed>,
    // The connection was given something since it could last flush it.
    unflushed: bool,
    // The client knows the length of the body.
    has_length: bool,
}

impl Passing {
    pub(crate) fn new(
        upstream: Incoming,
        observed: Observed,
        abort: AbortToken,
        background: Background,
        largest_hold: usize,
        has_length: bool,
    ) -> Passing {
        let mut passing = Passing {
            upstream: Some(upstream),
            observed,
            abort,
            background,
            held: VecDeque::new(),
            held_length: 0,
            largest_hold,
            output: VecDeque::new(),
            trailers: None,
            failed: None,
            // The head.
            unflushed: true,
            has_length,
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
                // The fast path: nothing is held.
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
                self.trailers = frame.into_trailers().ok().map(trailers_for_client);
                self.complete();
                None
            }
        }
    }

    fn next_output(&mut self) -> Option<Frame<Bytes>> {
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
                    this.unflushed = false;
                    return Poll::Pending;
                }
                Poll::Ready(Some(Ok(frame))) => {
                    if let Some(frame) = this.receive(frame) {
                        this.unflushed = true;
                        return Poll::Ready(Some(Ok(frame)));
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
