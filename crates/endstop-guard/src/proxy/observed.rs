//! Gives an observer the decompressed copy of a response, and exactly one end. If the client is gone, the rest of the
//! response is still read, because it contains the usage.

use super::abort::{AbortToken, Waiter};
use super::decode::Decoder;
use super::head::ResponseHead;
use super::observer::{End, Flow, ReadOn, ResponseObserver};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use tokio::sync::mpsc;

/// The limit for the decompressed copy of a response, in bytes.
const LARGEST_COPY: u64 = 256 << 20;

/// An observer whose exchange has not ended.
pub(crate) struct Observed {
    observer: Option<Box<dyn ResponseObserver>>,
    decoder: Option<Decoder>,
    holding: bool,
}

impl Observed {
    pub(crate) fn new(observer: Box<dyn ResponseObserver>) -> Observed {
        Observed { observer: Some(observer), decoder: None, holding: false }
    }

    /// Returns a value that has no observer any more.
    pub(crate) fn ended() -> Observed {
        Observed { observer: None, decoder: None, holding: false }
    }

    /// Reports the head of the response.
    pub(crate) fn head(&mut self, status: StatusCode, headers: HeaderMap) {
        let decoder = Decoder::of(&headers, LARGEST_COPY);
        let encoded = decoder.is_encoded();
        self.decoder = encoded.then_some(decoder);
        if let Some(observer) = &mut self.observer {
            observer.head(&ResponseHead { status, headers, encoded });
        }
    }

    /// Returns the headers that the observer adds to the response.
    pub(crate) fn headers(&mut self) -> Vec<(HeaderName, HeaderValue)> {
        self.observer.as_mut().map(|observer| observer.headers()).unwrap_or_default()
    }

    /// Returns whether the observer reads other bytes than those that pass.
    pub(crate) fn is_encoded(&self) -> bool {
        self.decoder.is_some()
    }

    /// Reports a chunk and returns the decision about it.
    pub(crate) fn bytes(&mut self, chunk: &[u8]) -> Flow {
        match &mut self.observer {
            None => Flow::Pass,
            Some(observer) if self.decoder.is_none() => observer.bytes(chunk),
            Some(_) => self.encoded(chunk),
        }
    }

    /// Reports a chunk of a compressed body. Apart, because the decoders need kilobytes of stack for each call.
    #[inline(never)]
    fn encoded(&mut self, chunk: &[u8]) -> Flow {
        let (Some(observer), Some(decoder)) = (&mut self.observer, &mut self.decoder) else {
            return Flow::Pass;
        };
        let mut flow = if self.holding { Flow::Hold { pass: 0 } } else { Flow::Pass };
        let result = decoder.feed(chunk, &mut |part| {
            if flow != Flow::Abort {
                flow = for_encoded(&observer.bytes(part));
            }
        });
        if let Err(reason) = result
            && flow != Flow::Abort
        {
            flow = for_encoded(&observer.unreadable(reason));
        }
        self.holding = flow != Flow::Pass;
        flow
    }

    /// Reports that the upstream has sent everything.
    pub(crate) fn before_end(&mut self) -> Flow {
        let encoded = self.is_encoded();
        match &mut self.observer {
            Some(observer) if encoded => for_encoded(&observer.before_end()),
            Some(observer) => observer.before_end(),
            None => Flow::Pass,
        }
    }

    /// Reports that the client is gone.
    pub(crate) fn client_gone(&mut self) -> ReadOn {
        self.observer.as_mut().map_or(ReadOn::STOP, |observer| observer.client_gone())
    }

    /// Reports the end. Later calls change nothing.
    pub(crate) fn end(&mut self, end: End) {
        if let Some(observer) = self.observer.take() {
            observer.end(end);
        }
    }

    /// Returns whether the end was reported.
    pub(crate) fn is_ended(&self) -> bool {
        self.observer.is_none()
    }
}

impl Drop for Observed {
    // The exchange was dropped with its connection.
    fn drop(&mut self) {
        self.end(End::ClientGone { whole: false });
    }
}

/// For a compressed body, of which the observer sees other bytes than the client: a decision can only pass, hold
/// or abort.
fn for_encoded(flow: &Flow) -> Flow {
    match flow {
        Flow::Pass => Flow::Pass,
        Flow::Hold { .. } => Flow::Hold { pass: 0 },
        Flow::Change(_) | Flow::End { .. } | Flow::Abort => Flow::Abort,
    }
}

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
