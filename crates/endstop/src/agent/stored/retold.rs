//! Tells the events of a recorded run again, by a replay.
//!
//! ```text
//! journal.load("k3v9")?.events_again()? → TurnStarted, Usage, TurnFinished, ToolStarted …
//! ```

use crate::agent::handle::approvals::canonical;
use crate::event::{AgentEvent, AgentEventKind, Origin, RequestId, turn_of};
use crate::journal::{JournalError, RecordedRun};
use endstop_core::{ConsultPoint, Effect, EffectId, Event, EventKind, Outcome, Replay, ToolCall};
use std::sync::Arc;

impl RecordedRun {
    /// Returns the events that the run has reported, in the same order, derived from its records:
    /// without deltas, warnings and the events of nested runs. A run of an agent with
    /// [`approval_events`](crate::AgentBuilder::approval_events) has reported the same; its
    /// requests for approval are included. The last one is [`AgentEventKind::Finished`] if the run has
    /// ended.
    ///
    /// ```
    /// # #[cfg(feature = "journal")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use endstop::Agent;
    /// # use endstop::journal::SqliteJournal;
    /// # use endstop::testkit::{ScriptedModel, Turn};
    /// # let dir = tempfile::tempdir()?;
    /// # let journal = SqliteJournal::open(dir.path().join("journal.db"))?;
    /// # let agent = Agent::builder(ScriptedModel::new([Turn::text("Paris.")])).journal(journal.clone()).build()?;
    /// let id = agent.run("What is the capital of France?")?.await.run_id.unwrap_or_default();
    /// let events = journal.load(&id)?.events_again()?;
    /// let kinds: Vec<&str> = events.iter().map(|event| event.kind.name()).collect();
    /// assert_eq!(kinds, ["turn_started", "usage", "turn_finished", "finished"]);
    /// # Ok(()) }
    /// # #[cfg(not(feature = "journal"))] fn main() {}
    /// ```
    ///
    /// # Errors
    /// The policy of the run was built in code, so the run cannot be replayed.
    pub fn events_again(&self) -> Result<Vec<AgentEvent>, JournalError> {
        let mut teller = Teller { run: self.header.id.as_str().into(), turn: 0, told: Vec::new() };
        let mut replay = Replay::new(self.spec(None)?);
        for (at, event) in self.events.iter().enumerate() {
            if matches!(event.kind, EventKind::Resumed(_)) {
                // The process that resumed the run asked the open questions again, but not those
                // that were decided while the run was parked.
                let open = replay.outstanding().into_iter();
                let open: Vec<Effect> = open
                    .filter(|effect| !matches!(effect, Effect::Consult { id, .. } if self.is_decided(*id, at)))
                    .cloned()
                    .collect();
                teller.turn = replay.run().map_or(teller.turn, endstop_core::Run::turns);
                for effect in open {
                    teller.ask(effect);
                }
            }
            let effects = replay.feed(event.clone()).to_vec();
            for effect in effects {
                teller.tell(effect);
            }
        }
        let stored = self.outcome.clone().and_then(|outcome| serde_json::from_value(outcome).ok());
        let outcome: Option<Outcome> = match (stored, &self.outcome) {
            (None, Some(_)) => replay.into_outcome().map(|outcome| *outcome),
            (stored, _) => stored,
        };
        if let Some(outcome) = outcome {
            teller.push(AgentEventKind::Finished { outcome: Arc::new(outcome) });
        }
        Ok(teller.told)
    }

    /// `true` if the process that resumed the run with this event had a decision about a question,
    /// or found that its request had expired.
    fn is_decided(&self, question: EffectId, resumed: usize) -> bool {
        let decides =
            |event: &Event| matches!(event.kind, EventKind::Decided { id, .. } if id == question);
        let (before, after) = self.events.split_at(resumed);
        let this_process = after.iter().skip(1).take_while(|event| match &event.kind {
            EventKind::Resumed(_) => false,
            EventKind::Parked { request } => request.id != question,
            _ => true,
        });
        before.iter().chain(this_process).any(decides)
    }
}

struct Teller {
    run: Box<str>,
    turn: u32,
    told: Vec<AgentEvent>,
}

impl Teller {
    fn push(&mut self, kind: AgentEventKind) {
        let origin = Origin::new(self.run.clone(), [], Some(self.turn));
        self.told.push(AgentEvent::new(origin, kind));
    }

    fn tell(&mut self, effect: Effect) {
        let Effect::Emit(event) = effect else { return self.ask(effect) };
        self.turn = turn_of(&event).unwrap_or(self.turn);
        for kind in AgentEventKind::of_kernel(event).into_iter().flatten() {
            self.push(kind);
        }
    }

    fn ask(&mut self, effect: Effect) {
        if let Effect::Consult { id, point: ConsultPoint::Approval { call } } = effect {
            self.approval(id, call);
        }
    }

    fn approval(&mut self, id: EffectId, call: ToolCall) {
        self.push(AgentEventKind::ApprovalRequested {
            request_id: RequestId::of(&self.run, id.0),
            canonical: canonical(&call).into(),
            call_id: call.id.into(),
            name: call.name,
            arguments: call.arguments.into(),
        });
    }
}
