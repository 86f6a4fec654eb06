//! Streams over the events of a run: the text, the events of the run itself, and bytes for a
//! client.
//!
//! ```text
//! handle.text()       → "It", " is", " 42."
//! handle.sse()        → b"event: text_delta\ndata: {…}\n\n"
//! handle.own_events() → the events without those of nested runs
//! ```

use super::RunHandle;
use crate::event::{AgentEvent, AgentEventKind, EventWriter};
use endstop_core::Outcome;
use futures_core::Stream;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

impl RunHandle {
    /// Returns a stream of the model's visible text, in chunks as it arrives.
    ///
    /// ```
    /// # use endstop::{Agent, testkit::{ScriptedModel, Turn}};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let agent = Agent::builder(ScriptedModel::new([Turn::text("It is 42.")])).build()?;
    /// let mut text = agent.run("What is it?")?.text();
    /// while let Some(piece) = text.next().await {
    ///     print!("{piece}");
    /// }
    /// let outcome = text.outcome().await;
    /// # assert!(outcome.is_success());
    /// # Ok(()) }
    /// ```
    pub fn text(self) -> TextStream {
        TextStream::new(self)
    }

    /// Returns a stream of the events of this run only, without those of runs nested in it.
    pub fn own_events(self) -> OwnEvents {
        OwnEvents(self)
    }

    /// Returns the events as server-sent events, for the body of an HTTP response with the content
    /// type `text/event-stream`. Dropping the stream, for example because the client has gone,
    /// cancels the run.
    ///
    /// Secrets are redacted: the provider's key, the values of the run's headers, secrets in the
    /// environment, and credentials of a known format.
    ///
    /// ```
    /// # use endstop::{Agent, testkit::{ScriptedModel, Turn}};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let agent = Agent::builder(ScriptedModel::new([Turn::text("It is 42.")])).build()?;
    /// // With axum: `Body::from_stream(agent.run(task)?.sse())`.
    /// let mut bytes = agent.run("What is it?")?.sse();
    /// let first = String::from_utf8(bytes.next().await.unwrap())?;
    /// assert!(first.starts_with("event: turn_started\ndata: {\"type\":\"turn_started\","));
    /// # Ok(()) }
    /// ```
    pub fn sse(self) -> EventBytes {
        let writer = EventWriter::sse(self.secrets());
        EventBytes::new(self, writer)
    }

    /// Returns the events as lines of JSON. In all other respects the same as [`sse`](Self::sse).
    ///
    /// A chunk has one or more whole lines. For a socket with one event for each message, split it:
    ///
    /// ```
    /// # use endstop::{Agent, testkit::{ScriptedModel, Turn}};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let agent = Agent::builder(ScriptedModel::new([Turn::text("It is 42.")])).build()?;
    /// # let mut sent = 0;
    /// let run = agent.run("What is it?")?;
    /// let approvals = run.approvals(); // answers requests while the stream is read
    /// let mut events = run.json_lines();
    /// while let Some(lines) = events.next().await {
    ///     for line in String::from_utf8(lines)?.lines() {
    ///         // With axum: `socket.send(Message::text(line)).await?`.
    /// #       assert!(serde_json::from_str::<serde_json::Value>(line)?["type"].is_string());
    /// #       sent += 1;
    ///     }
    /// }
    /// # drop(approvals); assert!(sent > 2);
    /// # Ok(()) }
    /// ```
    pub fn json_lines(self) -> EventBytes {
        let writer = EventWriter::json_lines(self.secrets());
        EventBytes::new(self, writer)
    }
}

/// The model's visible text in chunks: see [`RunHandle::text`].
///
/// It is the text of the run itself, without that of nested runs. If the provider does not stream,
/// or if the reader lags, the rest of a turn's text comes as one piece at its end. If an attempt
/// fails in the middle of a text, the text of the next attempt follows.
#[must_use = "dropping the stream cancels the run"]
#[derive(Debug)]
pub struct TextStream {
    handle: RunHandle,
    /// The text of the current turn so far.
    shown: String,
}

impl TextStream {
    pub(in crate::agent) fn new(handle: RunHandle) -> TextStream {
        TextStream { handle, shown: String::new() }
    }

    /// Returns the next piece, or `None` after the run has ended. Cancel-safe.
    pub async fn next(&mut self) -> Option<String> {
        poll_fn(|cx| self.poll_piece(cx)).await
    }

    /// Waits for the outcome and discards the rest of the text.
    pub async fn outcome(self) -> Outcome {
        self.handle.outcome().await
    }

    /// Returns the handle.
    pub fn into_handle(self) -> RunHandle {
        self.handle
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<String>> {
        while let Some(event) = ready!(self.handle.poll_event(cx)) {
            if !self.handle.is_own(&event) {
                continue;
            }
            let piece = match event.kind {
                AgentEventKind::TurnStarted { .. } => {
                    self.shown.clear();
                    continue;
                }
                AgentEventKind::TextDelta { text, .. } => {
                    self.shown.push_str(&text);
                    text
                }
                AgentEventKind::TurnFinished { text, .. } => {
                    text.strip_prefix(&self.shown).unwrap_or_default().to_owned()
                }
                _ => continue,
            };
            if !piece.is_empty() {
                return Poll::Ready(Some(piece));
            }
        }
        Poll::Ready(None)
    }
}

impl Stream for TextStream {
    type Item = String;
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<String>> {
        self.get_mut().poll_piece(cx)
    }
}

/// The events of a run without those of nested runs: see [`RunHandle::own_events`].
#[must_use = "dropping the stream cancels the run"]
#[derive(Debug)]
pub struct OwnEvents(pub(in crate::agent) RunHandle);

impl OwnEvents {
    /// Returns the next event, or `None` after the event with the outcome. Cancel-safe.
    pub async fn next(&mut self) -> Option<AgentEvent> {
        poll_fn(|cx| self.poll_event(cx)).await
    }

    /// Returns the handle.
    pub fn into_handle(self) -> RunHandle {
        self.0
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<AgentEvent>> {
        loop {
            let event = ready!(self.0.poll_event(cx));
            if event.as_ref().is_none_or(|event| self.0.is_own(event)) {
                return Poll::Ready(event);
            }
        }
    }
}

impl Stream for OwnEvents {
    type Item = AgentEvent;
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<AgentEvent>> {
        self.get_mut().poll_event(cx)
    }
}

/// The events of a run as bytes for a client: see [`RunHandle::sse`] and [`RunHandle::json_lines`].
///
/// The items of the stream are results, because the bodies of web frameworks require that; there
/// are no errors.
#[must_use = "dropping the stream cancels the run"]
#[derive(Debug)]
pub struct EventBytes {
    handle: RunHandle,
    writer: EventWriter,
}

impl EventBytes {
    pub(in crate::agent) fn new(handle: RunHandle, writer: EventWriter) -> EventBytes {
        EventBytes { handle, writer }
    }

    /// Writes events as they are, with any secret in them. Must be called before the first event is
    /// read.
    pub fn unredacted(mut self) -> EventBytes {
        self.writer = self.writer.unredacted();
        self
    }

    /// Returns the bytes of the next events, or `None` after the event with the outcome.
    /// Cancel-safe.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        poll_fn(|cx| self.poll_bytes(cx)).await
    }

    /// Returns the handle.
    pub fn into_handle(self) -> RunHandle {
        self.handle
    }

    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Vec<u8>>> {
        while let Some(event) = ready!(self.handle.poll_event(cx)) {
            let bytes = self.writer.write(event);
            if !bytes.is_empty() {
                return Poll::Ready(Some(bytes));
            }
        }
        Poll::Ready(None)
    }
}

impl Stream for EventBytes {
    type Item = Result<Vec<u8>, Infallible>;
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_bytes(cx).map(|bytes| bytes.map(Ok))
    }
}
