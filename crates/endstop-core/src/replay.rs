//! Runs again from their events: to the outcome that was, or on from where they stopped.
//!
//! ```
//! use endstop_core::{Event, EventKind, Replay, RunSpec, Step};
//! use std::time::Duration;
//!
//! // What a journal has of a run whose process died while the model was called.
//! let spec = || RunSpec::new(Vec::new());
//! let start = EventKind::Start { seed: 1, price: None, wall_ms: None };
//! let recorded = vec![Event::new(Duration::ZERO, start)];
//!
//! let mut replay = Replay::new(spec());
//! replay.feed(recorded[0].clone());
//! assert!(replay.outcome().is_none());
//! assert_eq!(replay.outstanding().len(), 1, "the call that was under way");
//!
//! let on = endstop_core::replay::go_on(spec, recorded, Default::default()).unwrap();
//! assert_eq!((on.kept, on.events.len()), (1, 2));
//! let Step::Continue(run) = on.step else { panic!("nothing has ended it") };
//! assert_eq!(run.phase(), "calling", "the call is made again");
//! ```
//!
//! The kernel decides by its events alone, so that the same events give the same outcome. A journal
//! is their list, with a turn's deltas joined.

use crate::kernel::{Effect, EffectId, Event, EventKind, Outcome, Resumption, Run, RunSpec, Step};
use crate::termination::Termination;
use crate::usage::Unreported;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// A run that is fed its recorded events.
#[derive(Debug)]
pub struct Replay {
    run: Option<Run>,
    outcome: Option<Box<Outcome>>,
    waiting: BTreeMap<EffectId, Effect>,
    effects: Vec<Effect>,
    at: Duration,
}

impl Replay {
    /// A run as it was before its first event.
    pub fn new(spec: RunSpec) -> Replay {
        Replay {
            run: Some(Run::new(spec)),
            outcome: None,
            waiting: BTreeMap::new(),
            effects: Vec::new(),
            at: Duration::ZERO,
        }
    }

    /// Feeds the next event; gives what the run asked for then. What a tool spent that ended behind
    /// its run is added to the outcome, other events behind it are dropped.
    pub fn feed(&mut self, event: Event) -> &[Effect] {
        self.effects.clear();
        self.at = self.at.max(event.at);
        if let Some(outcome) = &mut self.outcome {
            if let EventKind::Spent { usage, cost, cost_unknown, unreported } = &event.kind {
                let more = unreported.unwrap_or(Unreported::of_unknown(*cost_unknown));
                outcome.add_spent(usage, *cost, *cost_unknown, more);
            }
            return &self.effects;
        }
        let Some(run) = self.run.take() else { return &self.effects };
        self.answered(&event.kind);
        match run.handle(event, &mut self.effects) {
            Step::Continue(run) => self.run = Some(run),
            Step::Ended(outcome) => self.outcome = Some(outcome),
        }
        for effect in &self.effects {
            note(&mut self.waiting, effect);
        }
        &self.effects
    }

    /// The run, while it goes on.
    pub fn run(&self) -> Option<&Run> {
        self.run.as_ref()
    }

    /// How it ended, once it has.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_deref()
    }

    /// How it ended, once it has.
    pub fn into_outcome(self) -> Option<Box<Outcome>> {
        self.outcome
    }

    /// What the run asked for and was not answered, in the order of asking. A tool call is one of
    /// its own.
    pub fn outstanding(&self) -> Vec<&Effect> {
        self.waiting.values().collect()
    }

    /// When the last event was.
    pub fn at(&self) -> Duration {
        self.at
    }

    /// An answer of another kind than was asked for is none.
    fn answered(&mut self, event: &EventKind) {
        let (id, fits): (_, fn(&Effect) -> bool) = match event {
            EventKind::TurnEnded { call: id, .. } | EventKind::TurnFailed { call: id, .. } => {
                (id, |asked| matches!(asked, Effect::CallModel { .. }))
            }
            EventKind::ToolEnded { tool: id, .. } => {
                (id, |asked| matches!(asked, Effect::StartTools { .. }))
            }
            EventKind::Answered { id, .. } => (id, |asked| matches!(asked, Effect::Consult { .. })),
            EventKind::Compacted { id, .. } => {
                (id, |asked| matches!(asked, Effect::Compact { .. }))
            }
            EventKind::Validated { id, .. } => {
                (id, |asked| matches!(asked, Effect::Validate { .. }))
            }
            EventKind::Reserved { id, .. } => (id, |asked| matches!(asked, Effect::Reserve { .. })),
            EventKind::Resumed(with) => {
                for id in &with.lost {
                    self.waiting.remove(id);
                }
                return;
            }
            _ => return,
        };
        if self.waiting.get(id).is_some_and(fits) {
            self.waiting.remove(id);
        }
    }

    /// What is to be asked again, under its id: no event has answered it.
    fn questions(&self) -> Vec<Effect> {
        let asked = self.waiting.values();
        asked.filter(|effect| !is_in_flight(effect)).cloned().collect()
    }

    fn lost(&self) -> Vec<EffectId> {
        let asked = self.waiting.iter();
        asked.filter(|(_, effect)| is_in_flight(effect)).map(|(id, _)| *id).collect()
    }
}

/// What its process did, and of which nobody knows what became.
fn is_in_flight(effect: &Effect) -> bool {
    matches!(effect, Effect::CallModel { .. } | Effect::StartTools { .. })
}

/// Keeps the book of what is waited for.
fn note(waiting: &mut BTreeMap<EffectId, Effect>, effect: &Effect) {
    match effect {
        Effect::CallModel { id, .. }
        | Effect::Reserve { id, .. }
        | Effect::Validate { id, .. }
        | Effect::Consult { id, .. }
        | Effect::Compact { id, .. } => {
            waiting.insert(*id, effect.clone());
        }
        Effect::StartTools { calls } => {
            for start in calls {
                waiting.insert(start.id, Effect::StartTools { calls: vec![start.clone()] });
            }
        }
        Effect::AbortModel { id } | Effect::Abandon { id } => {
            waiting.remove(id);
        }
        // A tool that is told to stop still answers.
        _ => {}
    }
}

/// A run that goes on.
pub struct GoesOn {
    /// The run; it may have ended at once, where a ceiling is reached with what the lost call is
    /// booked for.
    pub step: Step,
    /// Its events from the beginning, those of the going on at the end.
    pub events: Vec<Event>,
    /// How many of `events` are recorded ones, and stand as they were recorded.
    pub kept: usize,
    /// What is to be performed now, in this order.
    pub perform: Vec<Effect>,
}

/// Why a run does not go on.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum CannotGoOn {
    /// It ended as a success.
    Succeeded(Box<Outcome>),
    /// It would end again at once, so: what ended it has not changed.
    EndsAgain(Box<Outcome>),
    /// The kernel panicked over one of the events.
    Broken,
}

impl fmt::Display for CannotGoOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CannotGoOn::Succeeded(outcome) => {
                write!(
                    f,
                    "the run ended as {}: there is nothing to go on with",
                    outcome.termination
                )
            }
            CannotGoOn::EndsAgain(outcome) => write!(
                f,
                "the run would end again at once as {} ({}): {}; raise what ended it",
                outcome.termination, outcome.decided_by.name, outcome.decided_by.evidence
            ),
            CannotGoOn::Broken => f.write_str("the run cannot be made of its events again"),
        }
    }
}

impl std::error::Error for CannotGoOn {}

/// Goes on with a run whose process is gone, or that ended otherwise than as a success.
///
/// What was in flight is lost ([`EventKind::Resumed`]), and all that is recorded stands. Of a run
/// that had ended, or whose ending was decided, all stands that was
/// before its ending was decided, and the results that came while it was stopped; a response, a
/// failure or a result that ended it is judged again, by the limits that `with` has, a call that had
/// failed is made again, and a compaction that had failed asked for again. A run that was stopped
/// before it began still wants its `Start`. `spec` is made twice.
///
/// # Errors
/// The run was a success, or had ended and would end again at once.
pub fn go_on(
    spec: impl Fn() -> RunSpec,
    recorded: Vec<Event>,
    with: Resumption,
) -> Result<GoesOn, CannotGoOn> {
    let mut first = Replay::new(spec());
    let mut decided = None;
    for (at, event) in recorded.iter().enumerate() {
        first.feed(event.clone());
        let stopping = first.run().is_none_or(|run| run.phase() == "stopping");
        if stopping && decided.is_none() {
            decided = Some(at);
        }
    }
    if let Some(outcome) = first.outcome.take_if(|outcome| outcome.is_success()) {
        return Err(CannotGoOn::Succeeded(outcome));
    }
    let not_shortened = first.outcome().is_some_and(|outcome| {
        let by = [Termination::ErrorPromptTooLong, Termination::ErrorCompactionFailed];
        by.contains(&outcome.termination)
    });
    let Some(decided) = decided else {
        return resume(first, recorded, with);
    };
    let mut again = Replay::new(spec());
    let mut events = recorded;
    let rest = events.split_off(decided);
    for event in &events {
        again.feed(event.clone());
    }
    let kept = events.len();
    let before = again.lost();
    let mut perform = again.questions();
    let mut feed = |again: &mut Replay, event: Event| {
        perform.extend(again.feed(event.clone()).iter().cloned());
        events.push(event);
    };
    let resumed = Resumption { lost: Vec::new(), call_again: true, ..with };
    let at = again.at();
    feed(&mut again, Event::new(at, EventKind::Resumed(Box::new(resumed))));
    for (place, event) in rest.into_iter().enumerate() {
        let stands = match &event.kind {
            EventKind::ToolEnded { .. } | EventKind::Spent { .. } => true,
            EventKind::Cancel | EventKind::Terminate | EventKind::Fault { .. } => false,
            // Another compactor may do better: it is asked again.
            EventKind::Compacted { .. } if not_shortened => false,
            // What decided the ending is judged again; what came behind it was not waited for.
            _ => place == 0,
        };
        if stands {
            feed(&mut again, event);
        }
    }
    let still = again.lost();
    let lost: Vec<EffectId> = before.into_iter().filter(|id| still.contains(id)).collect();
    if !lost.is_empty() {
        let at = again.at();
        let resumed = Resumption { lost, ..Resumption::default() };
        feed(&mut again, Event::new(at, EventKind::Resumed(Box::new(resumed))));
    }
    match finish(again, events, kept, perform)? {
        GoesOn { step: Step::Ended(outcome), .. } => Err(CannotGoOn::EndsAgain(outcome)),
        on => Ok(on),
    }
}

/// The process is gone in the middle of the run: all that is recorded stands.
fn resume(
    mut replay: Replay,
    mut events: Vec<Event>,
    with: Resumption,
) -> Result<GoesOn, CannotGoOn> {
    let kept = events.len();
    let lost = replay.lost();
    let mut perform = replay.questions();
    let resumed = Resumption { lost, ..with };
    let event = Event::new(replay.at(), EventKind::Resumed(Box::new(resumed)));
    perform.extend(replay.feed(event.clone()).iter().cloned());
    events.push(event);
    finish(replay, events, kept, perform)
}

/// Ends a run whose ending was decided when its process died: nothing that was still to end will.
/// The events of it, and the outcome; `None` where nothing was decided.
pub fn close(spec: RunSpec, recorded: &[Event]) -> Option<(Vec<Event>, Box<Outcome>)> {
    let mut replay = Replay::new(spec);
    for event in recorded {
        replay.feed(event.clone());
    }
    if let Some(outcome) = replay.outcome.take() {
        return Some((Vec::new(), outcome));
    }
    if replay.run()?.phase() != "stopping" {
        return None;
    }
    let resumed = Resumption { lost: replay.lost(), ..Resumption::default() };
    let event = Event::new(replay.at(), EventKind::Resumed(Box::new(resumed)));
    replay.feed(event.clone());
    Some((vec![event], replay.outcome?))
}

fn finish(
    replay: Replay,
    events: Vec<Event>,
    kept: usize,
    mut perform: Vec<Effect>,
) -> Result<GoesOn, CannotGoOn> {
    // What was asked for and taken back, or answered, in the going on itself is not to be done.
    let waiting = &replay.waiting;
    perform.retain(|effect| match effect {
        Effect::CallModel { id, .. }
        | Effect::Reserve { id, .. }
        | Effect::Validate { id, .. }
        | Effect::Consult { id, .. }
        | Effect::Compact { id, .. } => waiting.contains_key(id),
        _ => true,
    });
    match (replay.run, replay.outcome) {
        (Some(run), _) => Ok(GoesOn { step: Step::Continue(run), events, kept, perform }),
        (None, Some(outcome)) => Ok(GoesOn { step: Step::Ended(outcome), events, kept, perform }),
        (None, None) => Err(CannotGoOn::Broken),
    }
}
