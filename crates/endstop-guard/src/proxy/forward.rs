//! One exchange: the decision about a request, the call to the upstream, the response.

use super::abort::{AbortToken, Stop, Waiter};
use super::access::{Access, SecretPath};
use super::body::{self, BodyError, Limits, SendBody};
use super::connection::Connection;
use super::gatekeeper::{BodyMode, Disposition, Forward, Gatekeeper, Notice, RequestBody, Routed};
use super::head::RequestHead;
use super::headers;
use super::observed::{Background, Observed, read_on, within};
use super::observer::End;
use super::passing::{Closed, Passing};
use super::refusal::{self, Refused};
use super::response_body::ResponseBody;
use super::upstream::{NoAnswer, Sending, UpstreamClient};
use crate::answer::Answer;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{Extensions, HeaderValue, Request, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// State that all exchanges of a proxy share.
pub(crate) struct Shared<G> {
    pub(crate) gatekeeper: G,
    pub(crate) access: Access,
    pub(crate) upstream: UpstreamClient,
    pub(crate) limits: Limits,
    pub(crate) largest_hold: usize,
    pub(crate) background: Background,
}

/// Handles a request.
pub(crate) async fn exchange<G: Gatekeeper>(
    shared: Arc<Shared<G>>,
    connection: Arc<Connection>,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Closed> {
    connection.set_sending(None);
    let (parts, incoming) = request.into_parts();
    let head = RequestHead {
        method: parts.method,
        target: parts.uri,
        base: None,
        version: parts.version,
        headers: parts.headers,
        peer: connection.peer,
    };
    let head = match refusal::check(head, &connection, &shared.access) {
        Ok(head) => Arc::new(head),
        Err(refused) => {
            let Refused { notice, answer } = *refused;
            shared.gatekeeper.notice(notice);
            return Ok(ResponseBody::answer(answer));
        }
    };
    let Routed { route, line } = shared.gatekeeper.route(&head);
    if route != BodyMode::Refuse {
        connection.place.admit();
    }
    let (copy, body) = match route {
        BodyMode::Stream | BodyMode::Refuse => {
            (RequestBody::Streamed, SendBody::streamed(incoming))
        }
        BodyMode::Read => match body::read(&head.headers, incoming, &shared.limits).await {
            Ok(read) => read,
            Err(error) => {
                let target = head.redacted_target();
                shared.gatekeeper.notice(Notice::BodyCut { target });
                return match error {
                    BodyError::Broken => Err(Closed::Aborted),
                    BodyError::TooSlow => Ok(ResponseBody::answer(Answer::error(
                        StatusCode::REQUEST_TIMEOUT,
                        "invalid_request_error",
                        "endstop guard: the body of the request did not arrive in time",
                    ))),
                };
            }
        },
    };
    match shared.gatekeeper.decide(Arc::clone(&head), line, copy).await {
        Disposition::Forward(forward) => {
            let sent = Sent { forward, body, extensions: parts.extensions };
            call(&shared, &connection, &head, sent).await
        }
        Disposition::Answer(answer) => Ok(ResponseBody::answer(answer)),
        Disposition::Close => Err(Closed::Aborted),
    }
}

/// A request that the upstream gets.
struct Sent {
    forward: Forward,
    /// The body of the client.
    body: SendBody,
    /// They contain the case of the headers' names.
    extensions: Extensions,
}

/// Sends a request to the upstream and returns its response.
async fn call<G: Gatekeeper>(
    shared: &Shared<G>,
    connection: &Arc<Connection>,
    head: &RequestHead,
    sent: Sent,
) -> Result<Response<ResponseBody>, Closed> {
    let Sent { forward, mut body, extensions } = sent;
    let Forward { url, body: changed, headers, observer, abort } = forward;
    let mut waiting = Waiting {
        sending: None,
        observed: Some(Observed::new(observer)),
        abort: abort.clone(),
        background: shared.background.clone(),
    };
    let Ok(host) = host_of(&url) else {
        let error = "the URL has no host".to_owned();
        return Ok(waiting.no_response(&shared.gatekeeper, head, NoAnswer { error, sent: false }));
    };
    let secret = head.base.as_ref().map(SecretPath::secret);
    let mut copy = headers::for_upstream(&head.headers, &host, secret);
    if let Some(changed) = changed {
        copy.remove(CONTENT_ENCODING);
        if copy.remove(TRANSFER_ENCODING).is_some() || copy.contains_key(CONTENT_LENGTH) {
            copy.insert(CONTENT_LENGTH, HeaderValue::from(changed.len()));
        }
        body.replace(changed);
    }
    for (name, value) in headers {
        match value {
            Some(value) => drop(copy.insert(name, value)),
            None => drop(copy.remove(name)),
        }
    }
    let mut request = Request::new(body);
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = url;
    *request.version_mut() = Version::HTTP_11;
    *request.headers_mut() = copy;
    *request.extensions_mut() = extensions;

    waiting.sending = Some(shared.upstream.send(request));
    let response = poll_fn(|context| waiting.poll(context)).await;
    match response {
        Some(Ok(response)) => Ok(pass(shared, connection, head, waiting, response)),
        Some(Err(problem)) => Ok(waiting.no_response(&shared.gatekeeper, head, problem)),
        None => {
            waiting.end(End::Aborted);
            match abort.stop() {
                Some(Stop::Answer(answer)) => Ok(ResponseBody::answer(answer)),
                _ => Err(Closed::Aborted),
            }
        }
    }
}

/// Returns the upstream's response, whose body passes through its observer.
fn pass<G: Gatekeeper>(
    shared: &Shared<G>,
    connection: &Arc<Connection>,
    head: &RequestHead,
    mut waiting: Waiting,
    response: Response<Incoming>,
) -> Response<ResponseBody> {
    let (mut parts, upstream) = response.into_parts();
    let copy = headers::for_client(&parts.headers);
    let has_length = copy.contains_key(CONTENT_LENGTH);
    let original = std::mem::replace(&mut parts.headers, copy);
    // The server side writes the version that the client speaks.
    parts.version = Version::HTTP_11;
    let mut observed = waiting.observed.take().unwrap_or_else(Observed::ended);
    observed.head(parts.status, original);
    for (name, value) in observed.headers() {
        parts.headers.insert(name, value);
    }
    let abort = waiting.abort.clone();
    // With HTTP/2 a connection has several responses, so that none of them stands for it.
    if head.version != Version::HTTP_2 {
        connection.set_sending(Some(abort.clone()));
    }
    // HTTP/1.0 has no chunks: without a length, the end of the connection is the end of the body.
    connection.set_ends_by_closing(head.version < Version::HTTP_11 && !has_length);
    let background = shared.background.clone();
    let passing =
        Passing::new(upstream, observed, abort, background, shared.largest_hold, has_length);
    Response::from_parts(parts, ResponseBody::Passing(Box::new(passing)))
}

fn host_of(url: &Uri) -> Result<HeaderValue, ()> {
    let authority = url.authority().ok_or(())?.as_str();
    // Without the standard port, because servers compare this header with their plain name.
    let standard = if url.scheme_str() == Some("https") { ":443" } else { ":80" };
    HeaderValue::from_str(authority.strip_suffix(standard).unwrap_or(authority)).map_err(|_| ())
}

/// A request whose response has not started.
struct Waiting {
    sending: Option<Sending>,
    observed: Option<Observed>,
    abort: AbortToken,
    background: Background,
}

impl Waiting {
    /// Returns the response, or `None` after an abort.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Response<Incoming>, NoAnswer>>> {
        let Some(sending) = &mut self.sending else { return Poll::Ready(None) };
        if self.abort.poll_aborted(Waiter::Exchange, context) {
            self.sending = None;
            return Poll::Ready(None);
        }
        let response = std::task::ready!(Pin::new(sending).poll(context));
        self.sending = None;
        Poll::Ready(Some(response))
    }

    fn end(&mut self, end: End) {
        if let Some(observed) = &mut self.observed {
            observed.end(end);
        }
    }

    fn no_response<G: Gatekeeper>(
        &mut self,
        gatekeeper: &G,
        head: &RequestHead,
        NoAnswer { error, sent }: NoAnswer,
    ) -> Response<ResponseBody> {
        let answer = gatekeeper.no_response(head, &error);
        self.end(End::NoResponse { error, sent });
        ResponseBody::answer(answer)
    }
}

impl Drop for Waiting {
    // The connection drops an exchange only if the client is gone.
    fn drop(&mut self) {
        let (Some(sending), Some(mut observed)) = (self.sending.take(), self.observed.take())
        else {
            return;
        };
        let limits = observed.client_gone();
        // The request is dropped, and with it the call that would only cost money.
        if limits.time.is_zero() {
            return observed.end(End::ClientGone { whole: false });
        }
        let abort = self.abort.clone();
        self.background.run(async move {
            let mut response = None;
            let end = within(&abort, limits, async {
                response = sending.await.ok();
                End::ClientGone { whole: false }
            })
            .await;
            let Some(head) = response else { return observed.end(end) };
            let (parts, upstream) = head.into_parts();
            observed.head(parts.status, parts.headers);
            read_on(upstream, observed, abort, limits).await;
        });
    }
}
