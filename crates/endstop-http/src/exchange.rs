//! A request in progress: finds or opens a connection, and sends the request on it.

use crate::body::Outgoing;
use crate::connection::start;
use crate::dial::Dialer;
use crate::error::{Error, Stage};
use crate::link::Sent;
use crate::pool::{Free, Origin};
use crate::received::Received;
use http::header::{HOST, PROXY_AUTHORIZATION};
use http::uri::{PathAndQuery, Uri};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Body as _, Incoming};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// A response whose head is expected, returned by [`Client::send`](crate::Client::send). Dropping it
/// gives the request up.
// Written by hand: the futures of nested async functions each have room for the whole request, and
// thousands of these may wait at the same time.
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture(Result<Box<Exchange>, Option<Error>>);

struct Exchange {
    dialer: Arc<Dialer>,
    origin: Arc<Origin>,
    /// The address as given; requests have it in a form that depends on the connection.
    uri: Uri,
    /// The request while it is not sent.
    request: Option<Request<Outgoing>>,
    /// A copy of the request, if the server may receive it twice.
    again: Option<Box<Request<Outgoing>>>,
    /// `true` if the connection was opened for this request.
    fresh: bool,
    /// The proxy that receives the request.
    proxy: Option<Uri>,
    /// Counts what the connection reads, if it has one response at a time.
    received: Option<Received>,
    step: Step,
}

type Future<T> = Pin<Box<dyn std::future::Future<Output = T> + Send>>;

enum Step {
    Start,
    Connecting(Future<Result<Free, Error>>),
    Waiting(Future<Sent>),
}

#[derive(Debug, thiserror::Error)]
#[error("the server changed the protocol, which is not supported")]
struct Upgraded;

impl ResponseFuture {
    pub(crate) fn new(
        dialer: Arc<Dialer>,
        origin: Arc<Origin>,
        request: Request<Outgoing>,
    ) -> ResponseFuture {
        let (uri, request) = (request.uri().clone(), Some(request));
        let exchange = Exchange {
            dialer,
            origin,
            uri,
            request,
            again: None,
            fresh: false,
            proxy: None,
            received: None,
            step: Step::Start,
        };
        ResponseFuture(Ok(Box::new(exchange)))
    }

    /// A request that cannot be sent.
    pub(crate) fn refused(error: Error) -> ResponseFuture {
        ResponseFuture(Err(Some(error)))
    }
}

impl std::future::Future for ResponseFuture {
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
            match &mut self.step {
                Step::Start => {
                    if let Some(free) = self.origin.take() {
                        self.send_on(free, false);
                    } else {
                        let (dialer, origin) = (Arc::clone(&self.dialer), Arc::clone(&self.origin));
                        self.step = Step::Connecting(Box::pin(connect(dialer, origin)));
                    }
                }
                Step::Connecting(connecting) => match ready!(connecting.as_mut().poll(cx)) {
                    Ok(free) => self.send_on(free, true),
                    Err(error) => return Poll::Ready(Err(error)),
                },
                Step::Waiting(sent) => {
                    let sent = ready!(sent.as_mut().poll(cx));
                    if let Some(response) = self.sent(sent) {
                        return Poll::Ready(response);
                    }
                }
            }
        }
    }

    /// Sends the request on a connection, in the form that the connection requires.
    fn send_on(&mut self, free: Free, fresh: bool) {
        // Each step that leads here has the request.
        let Some(mut request) = self.request.take() else { return };
        self.fresh = fresh;
        self.again = if fresh { None } else { copy_of(&request) };
        self.step = Step::Waiting(match free {
            // With HTTP/2 the address is sent as it is, and names the host.
            Free::Shared(mut sender) => {
                self.received = None;
                if request.headers().get(HOST) == self.origin.host.as_ref() {
                    request.headers_mut().remove(HOST);
                }
                Box::pin(sender.try_send_request(request))
            }
            Free::One(idle) => {
                self.received = Some(idle.link.received.clone());
                let headers = request.headers_mut();
                if let Some(host) = &self.origin.host {
                    headers.entry(HOST).or_insert_with(|| host.clone());
                }
                if let Some(proxy) = &idle.link.forward {
                    // A proxy gets the whole address.
                    self.proxy = Some(proxy.uri.clone());
                    if let Some(login) = &proxy.login {
                        headers.entry(PROXY_AUTHORIZATION).or_insert_with(|| login.clone());
                    }
                } else {
                    let path = self.uri.path_and_query().cloned();
                    let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
                    *request.uri_mut() = Uri::from(path);
                }
                Box::pin(idle.send(request))
            }
        });
    }

    /// Returns the result, or `None` if the request is sent again.
    fn sent(&mut self, sent: Sent) -> Option<Result<Response<Incoming>, Error>> {
        let (stage, error) = match sent {
            Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                return Some(Err(Error::new(Stage::Receive, &self.uri, Upgraded)));
            }
            Ok(mut response) => {
                if let Some(received) = self.received.take() {
                    response.extensions_mut().insert(received);
                }
                return Some(Ok(response));
            }
            Err(mut error) => match error.take_message() {
                // The server has closed a connection that was free.
                Some(mut unsent) if !self.fresh => {
                    // The next connection may need another form of the address.
                    *unsent.uri_mut() = self.uri.clone();
                    (self.request, self.step) = (Some(unsent), Step::Start);
                    return None;
                }
                // A new connection that fails is not retried, because the next would fail, too.
                Some(_) => (Stage::Send, error.into_error()),
                // The server closed the connection while the request was on its way.
                None if self.again.is_some() => {
                    let again = self.again.take().map(|again| *again);
                    (self.request, self.step) = (again, Step::Start);
                    return None;
                }
                None => (Stage::Receive, error.into_error()),
            },
        };
        Some(Err(Error::new(stage, &self.uri, error).through(self.proxy.as_ref())))
    }
}

/// Copies a request that may be sent twice if its connection breaks: one with a safe method and no
/// body. Source: RFC 9110, section 9.2.2.
fn copy_of(request: &Request<Outgoing>) -> Option<Box<Request<Outgoing>>> {
    if !request.method().is_safe() || !request.body().is_end_stream() {
        return None;
    }
    let mut copy = Request::new(Outgoing::Whole(Full::default()));
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    copy.headers_mut().clone_from(request.headers());
    copy.extensions_mut().clone_from(request.extensions());
    Some(Box::new(copy))
}

/// Opens a connection, or returns the shared one that another request opens in the meantime.
async fn connect(dialer: Arc<Dialer>, origin: Arc<Origin>) -> Result<Free, Error> {
    let mut dialing = std::pin::pin!(dialer.dial(&origin.uri));
    let dialed = loop {
        // Created before the check, so that no notification is missed.
        let shared = origin.shared.notified();
        if let Some(shared) = origin.take_shared() {
            return Ok(shared);
        }
        // A server that answers another request with HTTP/2 first saves this one its connection.
        tokio::select! {
            dialed = &mut dialing => break dialed?,
            () = shared => {}
        }
    };
    let proxy = dialed.forward.as_ref().map(|proxy| proxy.uri.clone());
    let started = start(dialed, &origin).await;
    started.map_err(|error| Error::new(Stage::Connect, &origin.uri, error).through(proxy.as_ref()))
}
