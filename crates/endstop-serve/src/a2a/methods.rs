//! The methods of the protocol that have one result.

use super::caller::Caller;
use super::envelope::{Failed, RpcError, params};
use super::message::Sent;
use super::task::Known;
use super::updates::{Update, of_frame};
use crate::api::{EventReader, Failure, answer_run, blocking, refusal};
use crate::runs::{Created, RunRequest, Stop, StopError};
use endstop::agent::SteerError;
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

/// A task that a message has started or continued, and the number of its events before.
pub(super) struct Begun {
    pub(super) id: String,
    pub(super) numbers: u64,
}

impl Caller {
    /// Returns a task.
    pub(super) async fn known(&self, id: &str) -> Result<Known, Failed> {
        self.find(id).await?.ok_or_else(|| RpcError::unknown_task().into())
    }

    /// Returns a reader of a task's events after a number; `None` if the run has ended.
    pub(super) fn reader(&self, known: &Known, numbers: u64) -> Option<EventReader> {
        let live = known.live.clone()?;
        Some(EventReader::of_live(&self.app, known.row.id.clone(), live, numbers))
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
        };
        let (runs, client, key) = (self.app.runs.clone(), self.client.clone(), message.key());
        let created = blocking(move || runs.create(&client, Some(&key), request)).await?;
        match created {
            Ok(Created::New(id) | Created::Known(id)) => Ok(Begun { id, numbers: 0 }),
            Err(refused) => Err(refusal(&self.app, refused).into()),
        }
    }

    /// Answers the request for approval that a task waits for, or says something to one that works.
    async fn answer(&self, sent: &Sent) -> Result<Begun, Failed> {
        let message = &sent.message;
        let known = self.known(&message.task_id).await?;
        if !message.context_id.is_empty() && message.context_id != message.task_id {
            return Err(RpcError::params("message: `contextId` is not that of the task").into());
        }
        let unsupported = |why: &str| Err(RpcError::new(-32004, why).into());
        let Some(live) = known.live.filter(|_| known.row.ended_ms.is_none()) else {
            return unsupported("the task has ended; send the message without `taskId`");
        };
        let open = live.feed.open_requests();
        let numbers = live.feed.numbers();
        if open.is_empty() {
            let Some(steering) = live.steering() else {
                return unsupported("the task waits in the queue; send the message when it works");
            };
            steering.say(message.task()).map_err(|error| match error {
                SteerError::Ended | SteerError::Parked => RpcError::new(-32004, error.to_string()),
                _ => RpcError::params(format!("message: {error}")),
            })?;
            return Ok(Begun { id: message.task_id.clone(), numbers });
        }
        let decision = message.decision()?;
        let only = (open.len() == 1).then(|| open[0]["request_id"].as_u64()).flatten();
        let Some(request) = decision.request.or(only) else {
            return Err(RpcError::params(
                "message: several calls wait; expected a part with `data` that has the `request_id`",
            )
            .into());
        };
        let (client, id) = (self.client.clone(), message.task_id.clone());
        let answered =
            answer_run(&self.app, client, id, RequestId(request), decision.approval).await;
        answered.map_err(|failure| RpcError::new(-32004, failure.message()))?;
        Ok(Begun { id: message.task_id.clone(), numbers })
    }

    /// Waits until a run has ended or waits for a decision.
    async fn settled(&self, known: &Known, numbers: u64) {
        // A run that ended in between has no reader, and its task is complete.
        let Some(mut reader) = self.reader(known, numbers) else { return };
        while let Some(frame) = reader.next().await {
            if matches!(of_frame(&frame), Some(Update::Waits(_))) {
                return;
            }
        }
    }
}

pub(super) async fn send(caller: &Caller, value: Value) -> Result<Value, Failed> {
    let sent: Sent = params(value)?;
    let begun = caller.begin(&sent).await?;
    let mut known = caller.known(&begun.id).await?;
    if !sent.configuration.return_immediately {
        caller.settled(&known, begun.numbers).await;
        known = caller.known(&begun.id).await?;
    }
    Ok(json!({"task": known.task()}))
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
    let reader = caller.reader(&known, 0);
    let (runs, client, id) = (caller.app.runs.clone(), caller.client.clone(), asked.id.clone());
    let stopped = blocking(move || runs.stop(&client, &id, Stop::Cancel)).await?;
    stopped.map_err(|error| match error {
        StopError::Unknown => Failed::Rpc(RpcError::unknown_task()),
        StopError::Store(error) => Failed::Http(Failure::from(error)),
    })?;
    // A cancel is a request, so the answer states what has become of the task.
    let ended = async {
        if let Some(mut reader) = reader {
            while reader.next().await.is_some() {}
        }
    };
    let _ = tokio::time::timeout(CANCEL_TIME, ended).await;
    Ok(caller.known(&asked.id).await?.task())
}
