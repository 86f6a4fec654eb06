//! User code at every point at which a run calls it: code that vetoes, panics, hangs, blocks, or is
//! stopped in the meantime, and the single ending of each run.
//!
//! [`code`] is the misbehaving code; [`points`] are the places that call it.

mod blocks;
mod code;
mod ends;
mod journals;
mod points;
mod rest;
mod stops;

use crate::scenarios::{STRICT, Strict, events};
use code::Code;
use endstop::event::AgentEventKind;
use endstop::testkit::Turn;
use endstop::{Agent, AgentBuilder, Message, Outcome, RunHandle, Session, StartError, Termination};
use std::sync::{Arc, Mutex};

/// A loop with user code, and the events of its observers.
struct Case {
    point: &'static str,
    agent: Agent,
    session: Session,
    code: Code,
    busy: Arc<Mutex<Vec<bool>>>,
}

impl Case {
    fn new(point: &'static str, code: &Code, builder: AgentBuilder) -> Case {
        let busy = Arc::<Mutex<Vec<bool>>>::default();
        let heard = Arc::clone(&busy);
        let agent = builder.on_busy(move |now| heard.lock().unwrap().push(now)).build().unwrap();
        code.stands_in(&agent);
        let messages = if point == "forced compaction" { points::earlier() } else { Vec::new() };
        let session = agent.session_from(messages).unwrap();
        Case { point, agent, session, code: code.clone(), busy }
    }

    /// Returns the outcome of the first run, and asserts that it is the only ending and the last
    /// event.
    async fn ending(&self, handle: RunHandle) -> Outcome {
        let (events, outcome) = events(handle).await;
        let point = self.point;
        let endings =
            events.iter().filter(|e| matches!(e.kind, AgentEventKind::Finished { .. })).count();
        assert_eq!(endings, 1, "{point}: {events:?}");
        assert!(
            matches!(events.last().map(|event| &event.kind), Some(AgentEventKind::Finished { .. })),
            "{point}: the last event"
        );
        assert!(self.code.was_reached(), "{point}: it was never called: {outcome:?}");
        outcome
    }

    /// Asserts that nothing is left, that providers accept the conversation, and that the loop can
    /// run again unless it was terminated.
    ///
    /// Needs real time, because the conversation is sent to a server.
    async fn afterwards(self, outcome: &Outcome) {
        let point = self.point;
        let settled = tokio::time::timeout(crate::support::HANG, self.agent.settled()).await;
        assert!(settled.is_ok(), "{point}: something of the loop is still running");
        assert_eq!(self.code.under_way(), 0, "{point}: the user's code is still running");
        assert_eq!(*self.busy.lock().unwrap(), [true, false], "{point}");
        goes_on(point, &outcome.messages).await;
        match self.session.run("again") {
            Err(refused) => {
                assert_eq!(refused, StartError::Terminated, "{point}");
                assert!(self.code.terminated(), "{point}: it was not terminated");
                assert_eq!(*self.busy.lock().unwrap(), [true, false], "{point}");
            }
            Ok(handle) => {
                assert!(!self.code.terminated(), "{point}: a terminated loop runs");
                let again = handle.await;
                assert_eq!(again.termination, Termination::Stop, "{point}: {again:?}");
                assert_eq!(*self.busy.lock().unwrap(), [true, false, true, false], "{point}");
            }
        }
    }
}

/// Asserts that providers accept the conversation.
async fn goes_on(point: &str, messages: &[Message]) {
    for api in STRICT {
        let strict = Strict::new(api, [Turn::text("fine")]);
        let agent = strict.agent().build().unwrap().session_from(messages.to_vec()).unwrap();
        let outcome = agent.run("Go on.").unwrap().await;
        strict.accepted_all();
        assert_eq!(outcome.termination, Termination::Stop, "{point}: {outcome:?}");
    }
}

fn decided_by(outcome: &Outcome) -> (&str, &str) {
    (outcome.decided_by.layer.as_str(), outcome.decided_by.decision.as_str())
}
