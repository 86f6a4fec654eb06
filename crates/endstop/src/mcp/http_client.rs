//! The requests of MCP over HTTP: what is sent, which answers are accepted, and how much of them is read.

use super::lines::LARGEST_MESSAGE;
use bytes::Bytes;
use endstop_http::{BodyError, Client, Decoded, Full};
use futures_core::Stream;
use futures_core::stream::BoxStream;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ErrorData, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, InsufficientScopeError, SseError, StreamableHttpClient,
    StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

/// Largest answer in plain JSON, in bytes.
const LARGEST_JSON: usize = 16 << 20;

/// Largest answer without success that is read, in bytes.
const LARGEST_ERROR: usize = 64 << 10;

/// Length of the start of an invalid answer that is shown, in bytes.
const SHOWN: usize = 256;

const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";
const ACCEPTED: &str = "text/event-stream, application/json";
const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

type CustomHeaders = HashMap<HeaderName, HeaderValue>;
type HttpResult<T> = Result<T, StreamableHttpError<HttpError>>;

/// Sends the messages of a connection. Cheap to clone.
#[derive(Clone)]
pub(super) struct HttpClient {
    client: Client,
    /// `true` after an event that was too large, until a stream is to be resumed.
    too_large: Arc<AtomicBool>,
}

/// The reason why a request has no usable answer. Contains no header and no path.
#[derive(Debug, thiserror::Error)]
pub(super) enum HttpError {
    #[error(transparent)]
    Network(#[from] endstop_http::Error),
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error("HTTP {0}")]
    Status(StatusCode),
    #[error("the request is not valid")]
    Request(#[from] http::Error),
}

#[derive(Debug, thiserror::Error)]
enum StreamError {
    #[error(transparent)]
    Body(BodyError),
    #[error("an event has more than {LARGEST_MESSAGE} bytes")]
    TooLarge,
}

impl From<HttpError> for StreamableHttpError<HttpError> {
    fn from(error: HttpError) -> Self {
        StreamableHttpError::Client(error)
    }
}

impl HttpClient {
    pub(super) fn new(client: Client) -> HttpClient {
        HttpClient { client, too_large: Arc::default() }
    }

    /// Sends a request with these headers, of which the custom ones take precedence.
    async fn send(
        &self,
        (method, uri, body): (Method, &str, Vec<u8>),
        custom: CustomHeaders,
        headers: &[(HeaderName, Option<&str>)],
    ) -> HttpResult<Response<Decoded>> {
        let request = Request::builder().method(method).uri(uri).body(Full::new(Bytes::from(body)));
        let mut request = request.map_err(HttpError::Request)?;
        for (name, value) in custom {
            if [ACCEPT, SESSION_ID, LAST_EVENT_ID].contains(&name) {
                return Err(StreamableHttpError::ReservedHeaderConflict(name.to_string()));
            }
            request.headers_mut().insert(name, value);
        }
        for (name, value) in [&[(ACCEPT_ENCODING, Some("gzip"))], headers].concat() {
            let Some(value) = value else { continue };
            let value = HeaderValue::from_str(value).map_err(http::Error::from);
            let value = value.map_err(HttpError::Request)?;
            request.headers_mut().entry(name).or_insert(value);
        }
        let response = self.client.send(request).await.map_err(HttpError::Network)?;
        refusal(response.status(), response.headers())?;
        Ok(Decoded::new(response))
    }

    fn events(&self, body: Decoded) -> BoxStream<'static, Result<Sse, SseError>> {
        Box::pin(SseStream::from_bytes_stream(EventBytes {
            body,
            too_large: Arc::clone(&self.too_large),
            event: 0,
            line: 0,
            is_comment: false,
            is_after_return: false,
        }))
    }
}

// The tokens are not used: the key of a user is among the custom headers.
impl StreamableHttpClient for HttpClient {
    type Error = HttpError;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _token: Option<String>,
        custom: CustomHeaders,
    ) -> HttpResult<StreamableHttpPostResponse> {
        // Left by a stream that could not be resumed; the others are resumed at once.
        self.too_large.store(false, Ordering::Relaxed);
        let request = (Method::POST, &*uri, serde_json::to_vec(&message)?);
        let headers = [
            (ACCEPT, Some(ACCEPTED)),
            (CONTENT_TYPE, Some(JSON)),
            (SESSION_ID, session.as_deref()),
        ];
        let (head, mut body) = self.send(request, custom, &headers).await?.into_parts();
        let (status, kind) = (head.status, text(&head.headers, &CONTENT_TYPE));
        // Only requests have an answer. Some servers answer other messages with an empty 200.
        let is_request = matches!(message, ClientJsonRpcMessage::Request(_));
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT)
            || status.is_success() && body.is_end_stream() && !is_request
        {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if status == StatusCode::NOT_FOUND && session.is_some() {
            return Err(StreamableHttpError::SessionExpired);
        }
        let is = |expected| kind.as_deref().is_some_and(|kind| kind.starts_with(expected));
        if !status.is_success() {
            return explained(&message, (&head, body), session.is_some()).await;
        }
        let opened = text(&head.headers, &SESSION_ID);
        if is(EVENTS) {
            return Ok(StreamableHttpPostResponse::Sse(self.events(body), opened));
        }
        if !is(JSON) {
            return Err(StreamableHttpError::UnexpectedContentType(kind));
        }
        let Some(body) = body.read(LARGEST_JSON).await.map_err(HttpError::Body)? else {
            return Err(too_large(LARGEST_JSON));
        };
        match serde_json::from_slice(&body) {
            Ok(answer) => Ok(StreamableHttpPostResponse::Json(answer, opened)),
            Err(_) if !is_request => Ok(StreamableHttpPostResponse::Accepted),
            Err(error) => {
                let start = String::from_utf8_lossy(&body[..body.len().min(SHOWN)]).into_owned();
                Err(unexpected(format!("the answer is not a message of MCP: {error}: {start}")))
            }
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        _token: Option<String>,
        custom: CustomHeaders,
    ) -> HttpResult<()> {
        let request = (Method::DELETE, &*uri, Vec::new());
        let response = self.send(request, custom, &[(SESSION_ID, Some(&session))]).await?;
        match response.status() {
            // The server does not end sessions by request.
            StatusCode::METHOD_NOT_ALLOWED => Ok(()),
            status => Ok(successful(status)?),
        }
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        _token: Option<String>,
        custom: CustomHeaders,
    ) -> HttpResult<BoxStream<'static, Result<Sse, SseError>>> {
        if self.too_large.swap(false, Ordering::Relaxed) {
            // The event would come again. This error ends the attempts to resume.
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        let headers = [
            (ACCEPT, Some(ACCEPTED)),
            (SESSION_ID, session.as_deref()),
            (LAST_EVENT_ID, last_event.as_deref()),
        ];
        let request = (Method::GET, &*uri, Vec::new());
        let (head, body) = self.send(request, custom, &headers).await?.into_parts();
        if head.status == StatusCode::METHOD_NOT_ALLOWED {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        if let Some(failure) = failure(head.status, &head.headers) {
            return Err(failure.into());
        }
        successful(head.status)?;
        match text(&head.headers, &CONTENT_TYPE) {
            Some(kind) if kind.starts_with(EVENTS) || kind.starts_with(JSON) => {
                Ok(self.events(body))
            }
            kind => Err(StreamableHttpError::UnexpectedContentType(kind)),
        }
    }
}

/// Returns the answer of a server that did not accept a message, if it is one in JSON.
async fn explained(
    message: &ClientJsonRpcMessage,
    (head, mut body): (&Parts, Decoded),
    has_session: bool,
) -> HttpResult<StreamableHttpPostResponse> {
    let status = head.status;
    let is_json = text(&head.headers, &CONTENT_TYPE).is_some_and(|kind| kind.starts_with(JSON));
    let failure = match failure(status, &head.headers) {
        // A server may explain in JSON why it failed, but not that it is busy.
        Some(failure) if !is_json || status == StatusCode::TOO_MANY_REQUESTS => {
            return Err(failure.into());
        }
        failure => failure.map(StreamableHttpError::from),
    };
    let explanation = match body.read(LARGEST_ERROR).await {
        Ok(Some(body)) => String::from_utf8_lossy(&body).into_owned(),
        Ok(None) => return Err(failure.unwrap_or_else(|| too_large(LARGEST_ERROR))),
        Err(_) => "(the rest of the answer is missing)".to_owned(),
    };
    let error = match serde_json::from_str(&explanation) {
        Ok(ServerJsonRpcMessage::Error(error)) => Some(error),
        Ok(_) | Err(_) => None,
    };
    let needs_key = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    if let ClientJsonRpcMessage::Request(asked) = message
        && matches!(asked.request, ClientRequest::DiscoverRequest(_))
        && status.is_client_error()
        && !(has_session || needs_key)
    {
        // An older server refuses the request, which it does not know, and need not repeat its id.
        let error = match error {
            Some(error) => error.error,
            None => ErrorData::invalid_request(format!("HTTP {status}: {explanation}"), None),
        };
        let answer = ServerJsonRpcMessage::error(error, Some(asked.id.clone()));
        return Ok(StreamableHttpPostResponse::Json(answer, None));
    }
    match error {
        Some(error) if is_json && !needs_key => {
            let opened = text(&head.headers, &SESSION_ID);
            Ok(StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Error(error), opened))
        }
        Some(_) | None => {
            let answer = || unexpected(format!("HTTP {status}: {explanation}"));
            Err(failure.unwrap_or_else(answer))
        }
    }
}

/// The bytes of a stream of events, which ends with an error if an event is too large.
struct EventBytes {
    body: Decoded,
    too_large: Arc<AtomicBool>,
    /// Length of the lines of an event, without comments, and of the line that follows them.
    event: usize,
    line: usize,
    is_comment: bool,
    /// The last byte was a carriage return, which ends a line with or without a line feed.
    is_after_return: bool,
}

impl EventBytes {
    /// Returns `false` if an event is too large with these bytes.
    fn fits(&mut self, chunk: &[u8]) -> bool {
        for &byte in chunk {
            let is_after_return = std::mem::replace(&mut self.is_after_return, byte == b'\r');
            match byte {
                b'\n' if is_after_return => {}
                b'\r' | b'\n' => {
                    match (self.line, self.is_comment) {
                        (0, _) => self.event = 0,
                        (_, true) => {}
                        (line, false) => self.event += line + 1,
                    }
                    self.line = 0;
                }
                other => {
                    self.is_comment = if self.line == 0 { other == b':' } else { self.is_comment };
                    self.line += 1;
                }
            }
            if self.event + self.line > LARGEST_MESSAGE {
                return false;
            }
        }
        true
    }
}

impl Stream for EventBytes {
    type Item = Result<Bytes, StreamError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = match ready!(self.body.poll_data(cx)) {
            Some(Ok(chunk)) if !self.fits(&chunk) => {
                self.too_large.store(true, Ordering::Relaxed);
                Some(Err(StreamError::TooLarge))
            }
            next => next.map(|chunk| chunk.map_err(StreamError::Body)),
        };
        Poll::Ready(next)
    }
}

/// Returns an error if the server requires another key.
fn refusal(status: StatusCode, headers: &HeaderMap) -> HttpResult<()> {
    let Some(required) = text(headers, &WWW_AUTHENTICATE) else { return Ok(()) };
    match status {
        StatusCode::UNAUTHORIZED => {
            Err(StreamableHttpError::AuthRequired(AuthRequiredError::new(required)))
        }
        StatusCode::FORBIDDEN => {
            Err(StreamableHttpError::InsufficientScope(InsufficientScopeError::new(required, None)))
        }
        _ => Ok(()),
    }
}

/// Returns the error of a server that is busy or failed.
fn failure(status: StatusCode, headers: &HeaderMap) -> Option<HttpStatusError> {
    (status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error())
        .then(|| HttpStatusError::new(status.as_u16(), text(headers, &RETRY_AFTER)))
}

fn successful(status: StatusCode) -> Result<(), HttpError> {
    let is_error = status.is_client_error() || status.is_server_error();
    if is_error { Err(HttpError::Status(status)) } else { Ok(()) }
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

fn too_large(max_size: usize) -> StreamableHttpError<HttpError> {
    StreamableHttpError::ResponseBodyTooLarge { max_size }
}

fn unexpected(answer: String) -> StreamableHttpError<HttpError> {
    StreamableHttpError::UnexpectedServerResponse(answer.into())
}
