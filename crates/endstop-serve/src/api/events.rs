//! `GET /v1/runs/{id}/events`: the events of a run as an event stream. It can be resumed after any
//! numbered event, also after the server was restarted and after the run has ended.
//!
//! The stream takes one frame at a time from the feed of the run, when the connection has room for
//! it. A client that does not read holds its place only.

use super::answer::blocking;
use super::failure::Failure;
use crate::access::Client;
use crate::app::{App, Reader};
use crate::runs::{Cursor, Frame, Live, Next, RunState, Story};
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
use tokio::sync::watch;
use tokio::time::Instant;

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
    let (runs, name) = (app.runs.clone(), id.clone());
    let found = blocking(move || {
        let row = runs.get(&client, &name)?.ok_or_else(Failure::unknown_run)?;
        // The live run first: one that ends in between is still read to its end.
        let live = runs.live(&name);
        let story = match (&live, row.state) {
            (None, RunState::Ended | RunState::Running) => runs.story(&name).ok(),
            _ => None,
        };
        Ok::<_, Failure>((live, story))
    });
    let (live, story) = found.await??;
    if live.is_none() && story.as_ref().is_none_or(|story| story.frames.len() as u64 <= numbers) {
        // Tells a browser not to connect again: there is nothing after this event.
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let reader = Reader::new(&app);
    let changes = live.as_ref().map(|live| live.feed.changes());
    let source =
        EventReader { app, id, live, changes, story, cursor: Cursor { numbers, tail: 0 }, reader };
    Ok(event_stream(EventStream::new(source)))
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
    match header.filter(|text| !text.is_empty()).or(parameter) {
        None => Ok(0),
        Some(text) => text.parse().map_err(|_| {
            Failure::bad_request("invalid Last-Event-ID: expected the `id` of an event of this run")
        }),
    }
}

/// The place of a reader, and where its events come from.
pub(crate) struct EventReader {
    app: Arc<App>,
    id: String,
    live: Option<Arc<Live>>,
    changes: Option<watch::Receiver<()>>,
    /// The events from the journal: of a run that has ended, or those that a feed no longer has.
    story: Option<Arc<Story>>,
    cursor: Cursor,
    #[expect(dead_code, reason = "counts the reader until it is dropped")]
    reader: Reader,
}

impl EventReader {
    /// Returns a reader of a live run's events after a number.
    pub(crate) fn of_live(
        app: &Arc<App>,
        id: String,
        live: Arc<Live>,
        numbers: u64,
    ) -> EventReader {
        // Before the first frame is read, so that no change after it is missed.
        let changes = Some(live.feed.changes());
        EventReader {
            app: Arc::clone(app),
            id,
            live: Some(live),
            changes,
            story: None,
            cursor: Cursor { numbers, tail: 0 },
            reader: Reader::new(app),
        }
    }

    /// Returns the next bytes; `None` after the last event.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        let quiet = Instant::now() + self.app.runs.options().keep_alive;
        loop {
            if let Some(frame) = self.told_by_journal() {
                return Some(frame.bytes);
            }
            let Some(live) = &self.live else { return None };
            match live.feed.next(&mut self.cursor) {
                Next::Frame(frame) => {
                    self.story = None;
                    return Some(frame.bytes);
                }
                Next::Older => {
                    let (runs, id) = (self.app.runs.clone(), self.id.clone());
                    // Without the journal the gap cannot be filled, so the stream ends, and the
                    // client connects again.
                    let story = blocking(move || runs.story(&id)).await.ok()?.ok()?;
                    if story.frames.len() as u64 <= self.cursor.numbers {
                        return None;
                    }
                    self.story = Some(story);
                }
                Next::End => return None,
                Next::Wait => {
                    let changed = self.changes.as_mut()?.changed();
                    tokio::select! {
                        changed = changed => changed.ok()?,
                        () = tokio::time::sleep_until(quiet) => {
                            return Some(Bytes::from_static(b": keep-alive\n\n"));
                        }
                    }
                }
            }
        }
    }

    /// Returns the next event from the journal, if it was read.
    fn told_by_journal(&mut self) -> Option<Frame> {
        let at = usize::try_from(self.cursor.numbers).unwrap_or(usize::MAX);
        let frame = self.story.as_ref()?.frames.get(at)?.clone();
        self.cursor = Cursor { numbers: self.cursor.numbers + 1, tail: 0 };
        Some(frame)
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
                let bytes = source.next().await;
                (source, bytes)
            })
        });
        Poll::Ready(bytes.map(Ok))
    }
}
