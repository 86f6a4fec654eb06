//! `GET /v1/runs/{id}/events`: the events of a run as an event stream. It can be resumed after any
//! numbered event, also after the server was restarted and after the run has ended.
//!
//! The stream takes frames from the feed of the run when the connection has room for them, and sends those of a
//! moment together. A client that does not read holds its place only.

use super::failure::Failure;
use crate::access::Client;
use crate::app::{App, Reader};
use crate::backend::{After, EventSource};
use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_core::Stream;
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, StatusCode};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;

/// The shortest time between two writes to a client. Each write is a system call and wakes the client: with one
/// for each delta, the stream of a run costs more than the run. A person does not notice a delay of this
/// length, and the first event after a pause is sent at once.
const SHORTEST_GAP: Duration = Duration::from_millis(50);

/// Bytes of frames above which no further one is added to a write, so that a client that was away for a
/// while does not get the whole run at once.
const MOST_TOGETHER: usize = 64 << 10;

/// The header with the number of the last event that a client has.
const LAST: HeaderName = HeaderName::from_static("last-event-id");

pub(super) async fn events(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let numbers = last(&headers, query.as_deref().unwrap_or_default())?;
    let run = app.runs.get(&client, &id).await?;
    let Some(source) = app.runs.follow(&run, After::Number(numbers)).await? else {
        // Tells a browser not to connect again: there is nothing after this event.
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    Ok(event_stream(EventStream::new(EventReader::new(&app, source))))
}

/// Returns the response whose body is an event stream.
pub(crate) fn event_stream(
    chunks: impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static,
) -> Response {
    let mut response = Body::from_stream(chunks).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // Proxies that collect a response before they pass it on would hold the events back.
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

/// Returns the number of the last event that the client has; 0 for a new reader.
fn last(headers: &HeaderMap, query: &str) -> Result<u64, Failure> {
    let header = headers.get(&LAST).map(|value| value.to_str().unwrap_or("?").trim());
    let parameter = query.split('&').find_map(|pair| pair.strip_prefix("after="));
    // The header first, because a browser that reconnects adds it to the address of its first
    // request.
    match header.filter(|text| !text.is_empty()).or(parameter) {
        None => Ok(0),
        Some(text) => text.parse().map_err(|_| {
            Failure::bad_request("invalid Last-Event-ID: expected the `id` of an event of this run")
        }),
    }
}

/// A reader of a run's events, which sends a comment if there are none for a while.
pub(crate) struct EventReader {
    app: Arc<App>,
    source: Box<dyn EventSource>,
    /// The time before which nothing is sent.
    not_before: Option<Instant>,
    #[expect(dead_code, reason = "counts the reader until it is dropped")]
    reader: Reader,
}

impl EventReader {
    pub(crate) fn new(app: &Arc<App>, source: Box<dyn EventSource>) -> EventReader {
        EventReader { app: Arc::clone(app), source, not_before: None, reader: Reader::new(app) }
    }

    /// Returns the bytes of the next events, as many as are there; `None` after the last one.
    async fn next_together(&mut self) -> Option<Bytes> {
        if let Some(not_before) = self.not_before {
            tokio::time::sleep_until(not_before).await;
        }
        let first = self.next().await?;
        let bytes = match self.source.ready() {
            // The usual case of a slow run, without a copy.
            None => first,
            Some(second) => {
                let mut length = first.len() + second.len();
                let mut frames = vec![first, second];
                while length < MOST_TOGETHER
                    && let Some(next) = self.source.ready()
                {
                    length += next.len();
                    frames.push(next);
                }
                frames.concat().into()
            }
        };
        self.not_before = Some(Instant::now() + SHORTEST_GAP);
        Some(bytes)
    }

    /// Returns the next bytes; `None` after the last event.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        let keep_alive = self.app.options.keep_alive;
        match tokio::time::timeout(keep_alive, self.source.next()).await {
            Ok(frame) => frame,
            Err(_) => Some(Bytes::from_static(b": keep-alive\n\n")),
        }
    }
}

type Step = Pin<Box<dyn Future<Output = (EventReader, Option<Bytes>)> + Send>>;

/// The bytes of an event stream.
struct EventStream(Option<Step>);

impl EventStream {
    fn new(source: EventReader) -> EventStream {
        // Sent at once, so that a client knows that the stream is open. Browsers wait two seconds
        // before they connect again.
        let first = Bytes::from_static(b"retry: 2000\n\n");
        EventStream(Some(Box::pin(async move { (source, Some(first)) })))
    }
}

impl Stream for EventStream {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(step) = &mut self.0 else { return Poll::Ready(None) };
        let (mut source, bytes) = ready!(step.as_mut().poll(cx));
        self.0 = bytes.as_ref().map(|_| -> Step {
            Box::pin(async move {
                let bytes = source.next_together().await;
                (source, bytes)
            })
        });
        Poll::Ready(bytes.map(Ok))
    }
}
