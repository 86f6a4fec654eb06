//! The methods of the protocol that have one result.

use super::caller::Caller;
use super::envelope::{Failed, RpcError, params};
use super::message::Sent;
use super::task::Known;
use super::updates::{Update, of_frame};
use crate::api::EventReader;
use crate::backend::{After, ErrorKind, RunRequest, Stop};
use endstop::event::RequestId;
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

/// Time that a cancelled run has to end before the answer says that it still works.
const CANCEL_TIME: Duration = Duration::from_secs(10);

/// The parameters of methods about one task.
#[derive(Deserialize)]
pub(super) struct OfTask {
    pub(super) id: String,
}

/// A task that a message has started or continued, and a reader of its events since then; none if it has
/// ended.
pub(super) struct Begun {
    pub(super) id: String,
    /// The task before the events of the reader, if a run was started.
    pub(super) known: Option<Known>,
    pub(super) reader: Option<EventReader>,
}

impl Caller {
    /// Returns a task.
    pub(super) async fn known(&self, id: &str) -> Result<Known, Failed> {
        self.find(id).await?.ok_or_else(|| RpcError::unknown_task().into())
    }

    /// Returns a reader of a task's events after a place; `None` if the run has ended.
    pub(super) async fn reader(
        &self,
        known: &Known,
        after: After,
    ) -> Result<Option<EventReader>, Failed> {
        if known.has_ended() {
            return Ok(None);
        }
        let source = self.app.runs.follow(&known.run, after).await?;
        Ok(source.map(|source| EventReader::new(&self.app, source)))
    }

    /// Starts the run that a message asks for, or answers the request that its task waits for.
    pub(super) async fn begin(&self, sent: &Sent) -> Result<Begun, Failed> {
        let message = &sent.message;
        // Before anything is started: a message without an id could start a run twice.
        message.check()?;
        if sent.configuration.task_push_notification_config.is_some() {
            return Err(RpcError::new(-32003, "push notifications are not supported").into());
        }
        if !message.task_id.is_empty() {
            return self.answer(sent).await;
        }
        if !message.context_id.is_empty() {
            // Accepting it would pretend that the agent remembers the tasks of the context.
            return Err(RpcError::params(
                "message: `contextId` without `taskId`: every task is a conversation of its own; \
                 leave it out",
            )
            .into());
        }
        let request = RunRequest {
            agent: self.agent.clone(),
            task: message.task(),
            limits: message.limits()?,
            origin: None,
            trace_parent: self.trace_parent.clone(),
        };
        let started = self.app.runs.start(&self.client, Some(&message.key()), request).await?;
        let known = self.known(started.id()).await?;
        let reader = self.reader(&known, After::Number(0)).await?;
        Ok(Begun { id: known.run.id.clone(), known: Some(known), reader })
    }

    /// Answers the request for approval that a task waits for, or says something to one that works.
    async fn answer(&self, sent: &Sent) -> Result<Begun, Failed> {
        let message = &sent.message;
        let known = self.known(&message.task_id).await?;
        if !message.context_id.is_empty() && message.context_id != message.task_id {
            return Err(RpcError::params("message: `contextId` is not that of the task").into());
        }
        let unsupported = |why: &str| Err(RpcError::new(-32004, why).into());
        if known.has_ended() {
            return unsupported("the task has ended; send the message without `taskId`");
        }
        let id = message.task_id.clone();
        // Before the message, so that no event after it is missed.
        let reader = self.reader(&known, After::Now).await?;
        if known.open.is_empty() {
            let said = self.app.runs.say(&self.client, &id, message.task()).await;
            said.map_err(|error| match error.kind {
                ErrorKind::NotStarted => RpcError::new(
                    -32004,
                    "the task waits in the queue; send the message when it works",
                )
                .into(),
                ErrorKind::InvalidChange | ErrorKind::TooLarge => {
                    RpcError::params(format!("message: {error}")).into()
                }
                ErrorKind::NotOpen | ErrorKind::Parked => {
                    RpcError::new(-32004, error.message).into()
                }
                _ => Failed::from(error),
            })?;
            return Ok(Begun { id, known: None, reader });
        }
        let decision = message.decision()?;
        let open = &known.open;
        let only = (open.len() == 1).then(|| open[0]["request_id"].as_u64()).flatten();
        let Some(request) = decision.request.or(only) else {
            return Err(RpcError::params(
                "message: several calls wait; expected a part with `data` that has the `request_id`",
            )
            .into());
        };
        let answered =
            self.app.runs.answer(&self.client, &id, RequestId(request), decision.approval).await;
        answered.map_err(|error| match error.kind {
            ErrorKind::Unavailable | ErrorKind::Internal => Failed::from(error),
            _ => RpcError::new(-32004, error.message).into(),
        })?;
        Ok(Begun { id, known: None, reader })
    }
}

/// Waits until a run has ended or waits for a decision.
async fn settled(reader: Option<EventReader>) {
    // A run that ended in between has no reader, and its task is complete.
    let Some(mut reader) = reader else { return };
    while let Some(frame) = reader.next().await {
        if matches!(of_frame(&frame), Some(Update::Waits(_))) {
            return;
        }
    }
}

pub(super) async fn send(caller: &Caller, value: Value) -> Result<Value, Failed> {
    let sent: Sent = params(value)?;
    let begun = caller.begin(&sent).await?;
    if !sent.configuration.return_immediately {
        settled(begun.reader).await;
    }
    Ok(json!({"task": caller.known(&begun.id).await?.task()}))
}

pub(super) async fn get(caller: &Caller, value: Value) -> Result<Value, Failed> {
    let asked: OfTask = params(value)?;
    Ok(caller.known(&asked.id).await?.task())
}

pub(super) async fn cancel(caller: &Caller, value: Value) -> Result<Value, Failed> {
    let asked: OfTask = params(value)?;
    let known = caller.known(&asked.id).await?;
    if known.has_ended() {
        return Err(RpcError::new(-32002, "the task has ended").into());
    }
    // Before the stop, because a run that has ended has no reader.
    let reader = caller.reader(&known, After::Number(0)).await?;
    caller.app.runs.stop(&caller.client, &asked.id, Stop::Cancel).await?;
    // A cancel is a request, so the answer states what has become of the task.
    let ended = async {
        if let Some(mut reader) = reader {
            while reader.next().await.is_some() {}
        }
    };
    let _ = tokio::time::timeout(CANCEL_TIME, ended).await;
    Ok(caller.known(&asked.id).await?.task())
}
