//! The updates that an editor receives for the events of a run.

use crate::ending::first_line;
use crate::tool_call::{self, id_of};
use agent_client_protocol::v1::schema::{
    ContentChunk, MessageId, SessionUpdate, ToolCallId, ToolCallStatus, ToolCallUpdate,
    ToolCallUpdateFields,
};
use endstop::event::{AgentEvent, AgentEventKind};
use endstop::{Outcome, Termination};
use serde_json::Value;
use std::collections::HashSet;
use std::path::PathBuf;

/// Turns the events of one run into updates.
#[derive(Debug)]
pub(crate) struct Updates {
    /// The folder that paths of tools are relative to.
    dir: PathBuf,
    /// Text of the current attempt that has been sent.
    sent: String,
    /// Identifies the message that text belongs to. An attempt that is repeated begins another one,
    /// because the text of the first is void.
    message: MessageId,
    /// Text of the last message that was completed.
    last: String,
    /// The calls that the editor knows.
    announced: HashSet<ToolCallId>,
}

impl Updates {
    pub(crate) fn new(dir: PathBuf) -> Updates {
        Updates {
            dir,
            sent: String::new(),
            message: MessageId::new(""),
            last: String::new(),
            announced: HashSet::new(),
        }
    }

    /// Returns the updates for an event. Events of nested runs have none: their outer tool call
    /// represents them.
    pub(crate) fn of(&mut self, event: AgentEvent) -> Vec<SessionUpdate> {
        if !event.path().is_empty() {
            return Vec::new();
        }
        let AgentEvent { origin, kind, .. } = event;
        match kind {
            AgentEventKind::TurnStarted { attempt } => {
                self.sent.clear();
                let turn = origin.turn().unwrap_or_default();
                self.message = MessageId::new(format!("{}-{turn}-{attempt}", origin.run_id()));
                Vec::new()
            }
            AgentEventKind::TextDelta { text, .. } | AgentEventKind::RefusalDelta { text, .. } => {
                self.sent.push_str(&text);
                self.said(text)
            }
            AgentEventKind::ReasoningDelta { text, .. } => {
                vec![SessionUpdate::AgentThoughtChunk(self.chunk(text))]
            }
            AgentEventKind::TurnFinished { text, .. } => self.rest_of(text),
            AgentEventKind::ToolCallStarted { call_id: Some(call), name, .. } => {
                self.announced(&id_of(&origin, &call), &name).into_iter().collect()
            }
            AgentEventKind::ToolStarted { call_id, name, arguments, .. } => {
                let call = id_of(&origin, &call_id);
                let fields = tool_call::described(&name, &arguments, &self.dir)
                    .status(ToolCallStatus::InProgress);
                let announced = self.announced(&call, &name);
                announced.into_iter().chain([update(call, fields)]).collect()
            }
            AgentEventKind::ToolCallChanged { call_id, name, after, .. } => {
                let call = id_of(&origin, &call_id);
                let fields = tool_call::described(&name, &after, &self.dir);
                let announced = self.announced(&call, &name);
                announced.into_iter().chain([update(call, fields)]).collect()
            }
            AgentEventKind::ApprovalRequested { call_id, name, .. } => {
                self.announced(&id_of(&origin, &call_id), &name).into_iter().collect()
            }
            AgentEventKind::ToolFinished { call_id, name, status, content, .. } => {
                let call = id_of(&origin, &call_id);
                let announced = self.announced(&call, &name);
                let ended = tool_call::ended(call, status, content);
                announced.into_iter().chain([SessionUpdate::ToolCallUpdate(ended)]).collect()
            }
            AgentEventKind::HandOver { text, .. } => self.message_of(text, "hand-over"),
            AgentEventKind::Finished { outcome, .. } => self.at_end(&outcome),
            _ => Vec::new(),
        }
    }

    /// Returns the part of the turn's text that was not streamed: all of it if the response came as a
    /// whole, the rest if deltas were dropped.
    fn rest_of(&mut self, text: String) -> Vec<SessionUpdate> {
        let sent = std::mem::take(&mut self.sent);
        let updates = match text.strip_prefix(&*sent) {
            Some(rest) => self.said(rest.to_owned()),
            // Text of a refusal is streamed, but it is not part of the turn's text.
            None if text.is_empty() => Vec::new(),
            None => self.message_of(text.clone(), "whole"),
        };
        self.last = text;
        updates
    }

    /// Returns what the editor has not seen of the result: a declared answer, and how the run ended
    /// if the stop reason does not say it.
    fn at_end(&mut self, outcome: &Outcome) -> Vec<SessionUpdate> {
        let mut updates = Vec::new();
        let answer = match &outcome.deliverable {
            Some(Value::String(text)) => Some(text.clone()),
            Some(value) => serde_json::to_string_pretty(value).ok(),
            None => None,
        };
        // A model often writes the answer as text before it declares it.
        if let Some(answer) = answer.filter(|answer| answer.trim() != self.last.trim()) {
            updates.extend(self.message_of(answer, "answer"));
        }
        let is_said = outcome.is_success()
            || matches!(outcome.termination, Termination::Cancelled | Termination::Terminated)
            // The error has the same line as its message.
            || outcome.termination.as_acp().status == "error";
        if !is_said {
            updates.extend(self.message_of(format!("Endstop: {}", first_line(outcome)), "ending"));
        }
        updates
    }

    /// Returns the text as a message of its own.
    fn message_of(&mut self, text: String, part: &str) -> Vec<SessionUpdate> {
        let message = MessageId::new(format!("{}-{part}", self.message));
        let turn = std::mem::replace(&mut self.message, message);
        let updates = self.said(text);
        self.message = turn;
        updates
    }

    fn said(&self, text: String) -> Vec<SessionUpdate> {
        // An empty chunk would still open a message in the editor.
        if text.is_empty() {
            return Vec::new();
        }
        vec![SessionUpdate::AgentMessageChunk(self.chunk(text))]
    }

    fn chunk(&self, text: String) -> ContentChunk {
        ContentChunk::new(text.into()).message_id(self.message.clone())
    }

    /// Returns the update that introduces a call, unless the editor knows it.
    fn announced(&mut self, call: &ToolCallId, name: &str) -> Option<SessionUpdate> {
        // A call that was not streamed is first seen when it starts, and one that never starts when it
        // is answered.
        let is_new = self.announced.insert(call.clone());
        is_new.then(|| SessionUpdate::ToolCall(tool_call::pending(call.clone(), name)))
    }
}

fn update(call: ToolCallId, fields: ToolCallUpdateFields) -> SessionUpdate {
    SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(call, fields))
}

#[cfg(test)]
mod tests {
    use super::*;
    use endstop::event::Origin;

    /// Returns the id and the text of each message chunk.
    fn said(updates: &[SessionUpdate]) -> Vec<(String, String)> {
        let of = |update: &SessionUpdate| {
            let update = serde_json::to_value(update).unwrap();
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            (text(&update["messageId"]), text(&update["content"]["text"]))
        };
        updates.iter().map(of).collect()
    }

    fn origin() -> Origin {
        Origin::new("k3v9", [], Some(2))
    }

    fn delta(text: &str) -> AgentEvent {
        AgentEvent::new(origin(), AgentEventKind::TextDelta { text: text.to_owned() })
    }

    fn finished(text: &str) -> AgentEvent {
        let signal = serde_json::from_value(serde_json::json!({
            "should_terminate": true, "reason": "natural_completion", "confidence": "high",
            "provider_specific": {"original_field": "x", "original_value": "stop", "metadata": {}},
            "message": null,
        }));
        let (text, signal) = (text.to_owned(), signal.unwrap());
        AgentEvent::new(origin(), AgentEventKind::TurnFinished { text, signal, tool_calls: 0 })
    }

    #[test]
    fn repeated_attempt_is_another_message() {
        let mut updates = Updates::new("/".into());
        updates.of(AgentEvent::new(origin(), AgentEventKind::TurnStarted { attempt: 1 }));
        let first = said(&updates.of(delta("The answer is 4")));
        updates.of(AgentEvent::new(origin(), AgentEventKind::TurnStarted { attempt: 2 }));
        let second = said(&updates.of(delta("It is")));
        let rest = said(&updates.of(finished("It is 42.")));
        assert_eq!(first, [("k3v9-2-1".to_owned(), "The answer is 4".to_owned())]);
        assert_eq!(second, [("k3v9-2-2".to_owned(), "It is".to_owned())]);
        assert_eq!(rest, [("k3v9-2-2".to_owned(), " 42.".to_owned())]);
    }

    #[test]
    fn refused_text_is_not_repeated() {
        let mut updates = Updates::new("/".into());
        updates.of(AgentEvent::new(origin(), AgentEventKind::TurnStarted { attempt: 1 }));
        let text = "I cannot.".to_owned();
        updates.of(AgentEvent::new(origin(), AgentEventKind::RefusalDelta { text }));
        assert!(updates.of(finished("")).is_empty());
    }

    #[test]
    fn nested_runs_have_no_updates() {
        let mut updates = Updates::new("/".into());
        let origin = Origin::new("in", ["call".into()], Some(1));
        assert!(
            updates
                .of(AgentEvent::new(origin, AgentEventKind::TextDelta { text: "x".to_owned() }))
                .is_empty()
        );
    }
}
