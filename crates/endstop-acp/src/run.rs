//! A prompt: one run, its updates, and its answer.

use crate::ending;
use crate::lines::Backlog;
use crate::permission::Asked;
use crate::sessions::Open;
use crate::tool_call::id_of;
use crate::updates::Updates;
use agent_client_protocol::v1::schema::{PromptResponse, SessionId, SessionNotification};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{Client, Error};
use endstop::agent::RunHandle;
use endstop::event::{AgentEvent, AgentEventKind, EventWriter};
use endstop::{Approval, Outcome};
use std::sync::Arc;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A run on behalf of a prompt.
pub(crate) struct PromptRun {
    pub(crate) id: SessionId,
    pub(crate) open: Arc<Open>,
    pub(crate) handle: RunHandle,
    pub(crate) editor: ConnectionTo<Client>,
    pub(crate) backlog: Backlog,
}

/// Removes secrets from events, also those that are split over several deltas.
struct Redacted(EventWriter);

impl Redacted {
    /// Returns the events to show now: none while a text could be the beginning of a secret.
    fn events(&mut self, event: AgentEvent) -> Vec<AgentEvent> {
        read(&self.0.write(event))
    }
}

/// Reads back what the writer wrote: the JSON form of an event is the same event.
fn read(lines: &[u8]) -> Vec<AgentEvent> {
    let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

impl PromptRun {
    /// Sends the run's updates until it ends, and answers the prompt.
    pub(crate) async fn drive(mut self, responder: Responder<PromptResponse>) -> Result<(), Error> {
        let cancellation = responder.cancellation();
        let mut updates = Updates::new(self.open.dir.clone());
        let mut redacted = Redacted(EventWriter::json_lines(self.open.secrets.clone()));
        // Ends the questions that are still open when the run ends.
        let asking = CancellationToken::new();
        let _ended: DropGuard = asking.clone().drop_guard();
        let mut outcome = None;
        // A cancellation stays cancelled, so without this the loop would spin.
        let mut asked_to_stop = false;
        loop {
            let event = tokio::select! {
                event = self.handle.next() => event,
                () = cancellation.cancelled(), if !asked_to_stop => {
                    asked_to_stop = true;
                    self.handle.cancel();
                    continue;
                }
            };
            let Some(event) = event else { break };
            if let AgentEventKind::Finished { outcome: ended, .. } = &event.kind {
                outcome = Some(Arc::clone(ended));
            }
            for event in redacted.events(event) {
                // Announced before the question, which names the call.
                let question = self.question(&event);
                for update in updates.of(event) {
                    self.backlog.room().await;
                    self.backlog.sent();
                    let notification = SessionNotification::new(self.id.clone(), update);
                    // A connection that is gone ends this task; the run is then cancelled.
                    self.editor.send_notification(notification)?;
                }
                if let Some((request, asked)) = question {
                    self.ask(request, asked, &asking)?;
                }
            }
        }
        self.backlog.sent();
        // The last event of a run is always `Finished`, unless the reader was detached.
        let missing = || Error::internal_error().data("the run ended without an outcome");
        let answered = outcome
            .ok_or_else(missing)
            .and_then(|outcome: Arc<Outcome>| ending::answer(&outcome, &self.open.secrets));
        responder.respond_with_result(answered)
    }

    /// Returns the question that an event asks.
    fn question(&self, event: &AgentEvent) -> Option<(endstop::event::RequestId, Asked)> {
        let AgentEventKind::ApprovalRequested { request_id, call_id, name, canonical, .. } =
            &event.kind
        else {
            return None;
        };
        let asked = Asked {
            session: self.id.clone(),
            call: id_of(&event.origin, call_id),
            name: name.clone(),
            // The arguments as they will be used: a key that is given twice is shown once.
            arguments: canonical.to_string(),
        };
        Some((*request_id, asked))
    }

    /// Asks the editor in a task of its own, because the run continues to stream.
    fn ask(
        &self,
        request: endstop::event::RequestId,
        asked: Asked,
        asking: &CancellationToken,
    ) -> Result<(), Error> {
        let approvals = self.handle.approvals();
        if self.open.allowed.has(&asked.name) {
            // An error means that the run was stopped, so the call does not run.
            let _ = approvals.answer(request, Approval::Allow);
            return Ok(());
        }
        let (open, editor, asking) = (Arc::clone(&self.open), self.editor.clone(), asking.clone());
        self.backlog.sent();
        self.editor.spawn(async move {
            let decided = asked.decide(&editor, &open.dir, &open.allowed);
            // Dropping the question withdraws it, so that the editor does not show it for ever.
            if let Some(approval) = asking.run_until_cancelled(decided).await {
                let _ = approvals.answer(request, approval);
            }
            Ok(())
        })
    }
}
