//! A request in progress, and the stage at which it failed.

use crate::body::Outgoing;
use crate::dial::Connector;
use crate::error::{Error, Stage};
use crate::stream::Link;
use http::{Extensions, Request, Response, StatusCode, Uri};
use http_body_util::{Either, Full};
use hyper::body::{Body as _, Incoming};
use hyper_util::client::legacy;
use std::error::Error as _;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

pub(crate) type Pool = legacy::Client<Connector, Outgoing>;

/// A response whose head is expected, returned by [`Client::send`](crate::Client::send). Dropping it
/// gives the request up.
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture(Result<Exchange, Option<Error>>);

struct Exchange {
    sending: legacy::ResponseFuture,
    uri: Uri,
    /// A copy of the request, if the server may receive it twice.
    again: Option<Box<Again>>,
}

struct Again {
    pool: Pool,
    request: Request<Outgoing>,
}

#[derive(Debug, thiserror::Error)]
#[error("the server changed the protocol, which is not supported")]
struct Upgraded;

impl ResponseFuture {
    pub(crate) fn new(pool: &Pool, request: Request<Outgoing>) -> ResponseFuture {
        let uri = request.uri().clone();
        let again = is_repeatable(&request)
            .then(|| Box::new(Again { pool: pool.clone(), request: copy_of(&request) }));
        ResponseFuture(Ok(Exchange { sending: pool.request(request), uri, again }))
    }

    /// A request that cannot be sent.
    pub(crate) fn refused(error: Error) -> ResponseFuture {
        ResponseFuture(Err(Some(error)))
    }
}

impl Future for ResponseFuture {
    type Output = Result<Response<Incoming>, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.get_mut().0 {
            Ok(exchange) => exchange.poll(cx),
            Err(error) => error.take().map_or(Poll::Pending, |error| Poll::Ready(Err(error))),
        }
    }
}

impl fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

impl Exchange {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response<Incoming>, Error>> {
        loop {
            let error = match ready!(Pin::new(&mut self.sending).poll(cx)) {
                Ok(response) => return Poll::Ready(self.answered(response)),
                Err(error) => error,
            };
            let link = link_of(&error);
            // The server may have closed the connection while the request was on its way. One that fails twice
            // without a response between is not used again.
            let was_open =
                link.as_ref().is_some_and(|it| it.answered.swap(false, Ordering::Relaxed));
            match &self.again {
                Some(again) if was_open => {
                    self.sending = again.pool.request(copy_of(&again.request));
                }
                _ => return Poll::Ready(Err(self.failed(error, link.as_deref()))),
            }
        }
    }

    fn answered(&self, mut response: Response<Incoming>) -> Result<Response<Incoming>, Error> {
        if let Some(link) = response.extensions_mut().remove::<Arc<Link>>() {
            link.answered.store(true, Ordering::Relaxed);
        }
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(Error::new(Stage::Receive, &self.uri, Upgraded));
        }
        Ok(response)
    }

    fn failed(&self, error: legacy::Error, link: Option<&Link>) -> Error {
        // The dialer has named the stage itself.
        if let Some(error) = error.source().and_then(|source| source.downcast_ref::<Error>()) {
            return error.clone();
        }
        let Some(link) = link else { return Error::new(Stage::Connect, &self.uri, error) };
        let cause = error.source().and_then(|source| source.downcast_ref::<hyper::Error>());
        // Of a request that was not sent. The next connection would fail, too, if a new one did.
        let unsent = cause.is_some_and(hyper::Error::is_canceled);
        let stage = if unsent { Stage::Send } else { Stage::Receive };
        Error::new(stage, &self.uri, error).through(link.forward.as_ref())
    }
}

/// Returns the connection of a request that failed, or `None` if there was none.
fn link_of(error: &legacy::Error) -> Option<Arc<Link>> {
    let mut extras = Extensions::new();
    error.connect_info()?.get_extras(&mut extras);
    extras.remove()
}

/// `true` for a request that may be sent twice if its connection breaks: one with a safe method and no
/// body. Source: RFC 9110, section 9.2.2.
fn is_repeatable(request: &Request<Outgoing>) -> bool {
    request.method().is_safe() && request.body().is_end_stream()
}

fn copy_of(request: &Request<Outgoing>) -> Request<Outgoing> {
    let mut copy = Request::new(Either::Left(Full::default()));
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    copy.headers_mut().clone_from(request.headers());
    copy.extensions_mut().clone_from(request.extensions());
    copy
}
