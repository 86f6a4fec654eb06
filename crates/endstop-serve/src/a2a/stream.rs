//! The methods of the protocol whose results are streamed.

use super::caller::Caller;
use super::envelope::{Failed, RpcError, envelope, params};
use super::message::Sent;
use super::methods::OfTask;
use super::task::Known;
use super::updates::{Update, last_updates, of_frame, status_update};
use crate::api::{EventReader, event_stream};
use crate::backend::After;
use axum::response::Response;
use bytes::Bytes;
use futures_core::Stream;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

pub(super) async fn send(caller: &Caller, id: &Value, value: Value) -> Result<Response, Failed> {
    let sent: Sent = params(value)?;
    let begun = caller.begin(&sent).await?;
    if let Some(known) = begun.known {
        // Not looked up again: a fast run may have ended by now, and its updates are still to be sent.
        return Ok(open(caller, id, &known, begun.reader));
    }
    let known = caller.known(&begun.id).await?;
    // Without a reader the task is in its last state.
    let reader = begun.reader.filter(|_| !known.has_ended());
    Ok(open(caller, id, &known, reader))
}

pub(super) async fn subscribe(
    caller: &Caller,
    id: &Value,
    value: Value,
) -> Result<Response, Failed> {
    let asked: OfTask = params(value)?;
    let known = caller.known(&asked.id).await?;
    if known.has_ended() {
        return Err(RpcError::new(-32004, "the task has ended; GetTask returns it").into());
    }
    let reader = caller.reader(&known, After::Now).await?;
    Ok(open(caller, id, &known, reader))
}

/// Streams a task: first as it was found, then its updates, until it has ended or waits for a decision.
fn open(caller: &Caller, call: &Value, known: &Known, reader: Option<EventReader>) -> Response {
    let first = json!({"task": known.task()});
    let updates = Updates {
        caller: Caller {
            app: caller.app.clone(),
            client: caller.client.clone(),
            agent: caller.agent.clone(),
            trace_parent: None,
        },
        call: call.clone(),
        task: known.run.id.clone(),
        // Without a reader the run has ended, and the task is its last state.
        is_over: reader.is_none(),
        reader,
        ready: VecDeque::from([first]),
    };
    event_stream(Chunks(Some(Box::pin(updates.next()))))
}

/// The results of a streamed call that are still to come.
struct Updates {
    caller: Caller,
    /// The id of the call, which every result repeats.
    call: Value,
    task: String,
    reader: Option<EventReader>,
    ready: VecDeque<Value>,
    is_over: bool,
}

impl Updates {
    /// Returns the next bytes with the rest; `None` at the end.
    async fn next(mut self) -> Option<(Updates, Bytes)> {
        loop {
            if let Some(result) = self.ready.pop_front() {
                let text = envelope(&self.call, Ok(result));
                return Some((self, format!("data: {text}\n\n").into()));
            }
            if self.is_over {
                return None;
            }
            let frame = self.reader.as_mut()?.next().await;
            let Some(frame) = frame else {
                // The feed closes after the ending was stored.
                self.is_over = true;
                let known = self.caller.known(&self.task).await.ok()?;
                // A server that shuts down closes the feeds of runs that wait.
                if known.has_ended() {
                    self.ready.extend(last_updates(&known));
                }
                continue;
            };
            if frame.starts_with(b":") {
                // A comment keeps the connection alive, in this stream too.
                return Some((self, frame));
            }
            match of_frame(&frame) {
                None | Some(Update::Ended) => {}
                Some(update) => {
                    // The other agent has to act now, which it does by another call.
                    self.is_over = matches!(update, Update::Waits(_));
                    self.ready.push_back(status_update(&self.task, &update));
                }
            }
        }
    }
}

type Step = Pin<Box<dyn Future<Output = Option<(Updates, Bytes)>> + Send>>;

/// The bytes of a streamed call.
struct Chunks(Option<Step>);

impl Stream for Chunks {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(step) = &mut self.0 else { return Poll::Ready(None) };
        let next = ready!(step.as_mut().poll(cx));
        let (step, bytes): (Option<Step>, _) = match next {
            Some((updates, bytes)) => (Some(Box::pin(updates.next())), Some(Ok(bytes))),
            None => (None, None),
        };
        self.0 = step;
        Poll::Ready(bytes)
    }
}
