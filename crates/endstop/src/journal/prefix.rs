//! The beginning of a recorded run: the conversation after one of its turns, as the model read it.
//!
//! ```text
//! let prefix = journal.load("k3v9")?.prefix(4, None)?; // turns 1 to 4, with their results
//! ```

use super::brief::brief;
use super::recorded::RecordedRun;
use endstop_core::{
    BranchPoint, Effect, Event, EventKind, InjectionReason, Message, MessageId, Outcome, Replay,
    Role, Run, RunEvent, RunSpec, StoppedWork, TerminationPolicy,
};
use serde_json::Value;
use std::fmt;
use std::time::Duration;

/// The beginning of a recorded run, from which another run can start.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Prefix {
    /// The conversation, byte for byte as the next request of the run contained it. If the run has
    /// ended at this turn, the conversation that it ended with. If background calls were running then, a
    /// message follows that informs the model that their results will not come.
    pub messages: Vec<Message>,
    /// The conversation's epoch.
    pub epoch: u64,
    /// The task of the run.
    pub task: String,
    /// The message with the task.
    pub task_message: Option<MessageId>,
    /// The place in the run, and what the run had spent by then.
    pub point: BranchPoint,
    /// `true` if the last message is an answer of the model, so that a model can only continue after
    /// a message of the user.
    pub answered: bool,
}

/// The reason why a run has no such prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PrefixError {
    /// The run has fewer complete turns.
    NoSuchTurn {
        /// Id of the run.
        run: String,
        /// The turn that was asked for.
        turn: u32,
        /// Number of complete turns.
        turns: u32,
    },
    /// The run belonged to another program, which owned the conversation.
    Guest {
        /// Id of the run.
        run: String,
    },
    /// A part of the run is lost, and the turn is in it.
    Damaged {
        /// Id of the run.
        run: String,
        /// Description of the lost part.
        damage: String,
    },
    /// This version of the kernel decides differently from the one that drove the run, so that the
    /// conversation cannot be restored.
    Differs {
        /// Id of the run.
        run: String,
        /// Number of the first event with another decision.
        event: usize,
        /// Version that drove the run.
        version: String,
    },
    /// The policy of the run was built in code, and was not passed.
    Policy {
        /// Id of the run.
        run: String,
        /// Description of the problem.
        problem: String,
    },
}

impl fmt::Display for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PrefixError::NoSuchTurn { run, turn, turns: 0 } => write!(
                f,
                "run {run} has no complete turn {turn}: none is complete; branch at turn 0, its beginning"
            ),
            PrefixError::NoSuchTurn { run, turn, turns } => write!(
                f,
                "run {run} has no complete turn {turn}; branch at one of its turns 1 to {turns}, or at 0, its beginning"
            ),
            PrefixError::Guest { run } => write!(
                f,
                "run {run} belonged to another program, which owned its conversation; only that program can continue it"
            ),
            PrefixError::Damaged { run, damage } => write!(
                f,
                "run {run} cannot be branched there because a part of it is lost: {damage}; branch at an earlier turn"
            ),
            PrefixError::Differs { run, event, version } => write!(
                f,
                "run {run} cannot be branched there: from event {event} on, this version of Endstop decides differently from version {version}; branch at an earlier turn, or use that version"
            ),
            PrefixError::Policy { run, problem } => write!(f, "run {run}: {problem}"),
        }
    }
}

impl std::error::Error for PrefixError {}

impl RecordedRun {
    /// Returns the conversation of the run after this turn, counted from 1: the response of the turn
    /// and the results of its tools are its last messages. 0 is the conversation that the run began
    /// with. A later compaction changes nothing, because the events before it are replayed.
    ///
    /// A policy that was built in code must be passed, as for [`replay`](Self::replay).
    ///
    /// ```
    /// # #[cfg(feature = "journal")]
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use endstop::Agent;
    /// # use endstop::journal::SqliteJournal;
    /// # use endstop::testkit::{ScriptedModel, Turn};
    /// # let dir = tempfile::tempdir()?;
    /// # let journal = SqliteJournal::open(dir.path().join("journal.db"))?;
    /// # let script = [Turn::call("look", &serde_json::json!({})), Turn::text("Paris.")];
    /// # let agent = Agent::builder(ScriptedModel::new(script)).journal(journal.clone()).build()?;
    /// let id = agent.run("What is the capital of France?")?.await.run_id.unwrap_or_default();
    /// let prefix = journal.load(&id)?.prefix(1, None)?;
    /// // The question, the call, and its result.
    /// assert_eq!((prefix.messages.len(), prefix.point.turn), (3, 1));
    /// # Ok(()) }
    /// # #[cfg(not(feature = "journal"))] fn main() {}
    /// ```
    ///
    /// # Errors
    /// The run has no such complete turn, belonged to another program, is damaged before that turn,
    /// or cannot be replayed up to it.
    pub fn prefix(
        &self,
        turn: u32,
        policy: Option<Box<dyn TerminationPolicy>>,
    ) -> Result<Prefix, PrefixError> {
        let run = self.header.id.clone();
        if self.header.spec.guest.is_some() {
            return Err(PrefixError::Guest { run });
        }
        let spec = self
            .spec(policy)
            .map_err(|error| PrefixError::Policy { run: run.clone(), problem: error.problem })?;
        let mut search = Search { turn, requested: 0, remaining: Vec::new(), request: None };
        let mut replay = Replay::new(spec);
        for (nth, event) in self.events.iter().enumerate() {
            let effects = replay.feed(event.clone()).to_vec();
            if self.differs(nth, &effects) && replay.run().is_some() {
                let version = self.header.version.clone();
                return Err(PrefixError::Differs { run, event: nth, version });
            }
            if let Some(live) = replay.run()
                && search.saw(event, &effects)
            {
                let mut prefix = self.of_live(live, &search);
                tell_open_work(replay, event.at, &mut prefix.messages);
                return Ok(prefix);
            }
        }
        match (replay.outcome(), replay.run(), &self.damage) {
            (Some(outcome), ..) if outcome.turns == turn => Ok(self.of_ended(outcome, &search)),
            (Some(outcome), ..) => Err(PrefixError::NoSuchTurn { run, turn, turns: outcome.turns }),
            (None, _, Some(damage)) => Err(PrefixError::Damaged { run, damage: damage.clone() }),
            // The run has not made its first request yet.
            (None, _, None) if turn == 0 => {
                let RunSpec { messages, epoch, .. } = self.header.spec.clone_with(None);
                Ok(Prefix { messages, epoch, ..self.with(0, &BranchPoint::default()) })
            }
            // A turn is complete when the next one is requested: until then a result may be missing.
            (None, _, None) => {
                let turns = search.requested.saturating_sub(1);
                Err(PrefixError::NoSuchTurn { run, turn, turns })
            }
        }
    }

    /// `true` if the kernel requested other effects then. Amounts are not compared, because they
    /// follow from prices, estimates and redacted text.
    fn differs(&self, nth: usize, effects: &[Effect]) -> bool {
        let now = effects.iter().filter_map(brief);
        self.effects.get(nth).is_some_and(|then| {
            !then.iter().map(shape).eq(now.map(|value| shape(&value)).collect::<Vec<_>>())
        })
    }

    fn of_live(&self, live: &Run, search: &Search) -> Prefix {
        let mut messages = live.messages().to_vec();
        // The branch states its own limits before its first turn.
        for text in &search.remaining {
            if let Some(at) = position(&messages, text) {
                messages.remove(at);
            }
        }
        let own = BranchPoint {
            cost: live.spent(),
            cost_unknown: live.cost_unknown(),
            tokens: live.usage().total_tokens(),
            ..BranchPoint::default()
        };
        Prefix { messages, epoch: live.epoch(), ..self.with(search.turn, &own) }
    }

    fn of_ended(&self, outcome: &Outcome, search: &Search) -> Prefix {
        let mut messages = outcome.messages.clone();
        // The request for a hand-over told the model that the run is over.
        if let Some(at) = search.request.as_ref().and_then(|text| position(&messages, text)) {
            messages.truncate(at);
        }
        let own = BranchPoint {
            cost: outcome.cost,
            cost_unknown: outcome.cost_unknown,
            tokens: outcome.usage.total_tokens(),
            ..BranchPoint::default()
        };
        let answered = messages.last().is_some_and(|last| last.role == Role::Assistant);
        Prefix { messages, epoch: outcome.epoch, answered, ..self.with(search.turn, &own) }
    }

    /// Returns a prefix without a conversation, for which the run itself has spent this.
    fn with(&self, turn: u32, own: &BranchPoint) -> Prefix {
        let spec = &self.header.spec;
        let before = spec.branched_from.as_deref().cloned().unwrap_or_default();
        let last = spec.messages.last().filter(|last| last.role == Role::User);
        Prefix {
            task: spec.task.clone(),
            task_message: spec.task_message.or_else(|| last.map(|last| last.id)),
            point: BranchPoint {
                run_id: self.header.id.clone(),
                turn,
                cost: before.cost + own.cost,
                cost_unknown: before.cost_unknown || own.cost_unknown,
                tokens: before.tokens.saturating_add(own.tokens),
                left_out: 0,
            },
            ..Prefix::default()
        }
    }
}

/// The search for the first request after a turn.
struct Search {
    turn: u32,
    /// The last turn that was requested.
    requested: u32,
    /// The messages about the rest of the limits before the request that comes next.
    remaining: Vec<String>,
    /// The request for a hand-over.
    request: Option<String>,
}

impl Search {
    /// Returns `true` if the effects request the turn after the one that is searched.
    fn saw(&mut self, event: &Event, effects: &[Effect]) -> bool {
        if event.kind.name() == "turn_ended" {
            self.remaining.clear();
        }
        for effect in effects {
            match effect {
                Effect::Emit(RunEvent::MessageInjected { why, text }) => match why {
                    InjectionReason::Remaining | InjectionReason::Warning => {
                        self.remaining.push(text.clone());
                    }
                    InjectionReason::WrapUp => self.request = Some(text.clone()),
                    _ => {}
                },
                Effect::CallModel { turn, .. } => {
                    self.requested = *turn;
                    if turn.checked_sub(1) == Some(self.turn) {
                        return true;
                    }
                }
                _ => {}
            }
        }
        false
    }
}

/// Informs the model about background calls that were running then: their results are not part of
/// the conversation, and the model would wait for them.
fn tell_open_work(mut replay: Replay, at: Duration, messages: &mut Vec<Message>) {
    // A run that ends lists the calls that it stops.
    replay.feed(Event::new(at, EventKind::Terminate));
    let open = replay.into_outcome().map(|outcome| outcome.background).unwrap_or_default();
    let text: Vec<String> = open.iter().map(no_result).collect();
    if text.is_empty() {
        return;
    }
    let last = messages.iter().map(|message| message.id.0).max().unwrap_or(0);
    let id = MessageId(last.saturating_add(1));
    messages.push(Message::text(id, Role::User, text.join("\n")));
}

/// Returns the line about a background call.
fn no_result(work: &StoppedWork) -> String {
    format!(
        "Background call {} ({}) was started before this run branched off from another one. It does not run here, and its result will not follow. It may have done its work.",
        work.handle, work.name
    )
}

/// Returns the position of the last message with this text from the loop.
fn position(messages: &[Message], text: &str) -> Option<usize> {
    messages.iter().rposition(|message| message.role == Role::User && message.plain_text() == text)
}

/// Returns the kind of an effect, and the ids in it.
fn shape(effect: &Value) -> (Value, Value, Vec<Value>) {
    let calls = effect["calls"].as_array().into_iter().flatten();
    let kind = effect.get("effect").or_else(|| effect.get("type"));
    (
        kind.cloned().unwrap_or_default(),
        effect["id"].clone(),
        calls.map(|c| c["id"].clone()).collect(),
    )
}
