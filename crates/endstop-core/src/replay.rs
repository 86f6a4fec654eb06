//! Replays runs from their recorded events: to the recorded outcome, or to resume an interrupted
//! run.
//!
//! ```
//! use endstop_core::{Event, EventKind, Replay, RunSpec, Step};
//! use std::time::Duration;
//!
//! // The journal of a run whose process died during a model call.
//! let spec = || RunSpec::new(Vec::new());
//! let start = EventKind::Start { seed: 1, price: None, wall_ms: None };
//! let recorded = vec![Event::new(Duration::ZERO, start)];
//!
//! let mut replay = Replay::new(spec());
//! replay.feed(recorded[0].clone());
//! assert!(replay.outcome().is_none());
//! assert_eq!(replay.outstanding().len(), 1, "the call that was under way");
//!
//! let on = endstop_core::replay::resume(spec, recorded, Default::default()).unwrap();
//! assert_eq!((on.kept, on.events.len()), (1, 2));
//! let Step::Continue(run) = on.step else { panic!("nothing has ended it") };
//! assert_eq!(run.phase().as_str(), "calling", "the call is made again");
//! ```
//!
//! The kernel's decisions depend on its events alone, so the same events lead to the same outcome.
//! A journal is the list of these events, with the deltas of a turn merged.

use crate::kernel::{
    Effect, EffectId, Event, EventKind, Outcome, ParkDecision, Resumption, Run, RunPhase, RunSpec,
    Spending, Step,
};
use crate::termination::Termination;
use crate::usage::{NanoUsd, Unreported, Usage};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// A run that is fed with recorded events.
#[derive(Debug)]
pub struct Replay {
    run: Option<Run>,
    outcome: Option<Box<Outcome>>,
    waiting: BTreeMap<EffectId, Effect>,
    effects: Vec<Effect>,
    at: Duration,
}

impl Replay {
    /// Creates a run before its first event.
    pub fn new(spec: RunSpec) -> Replay {
        Replay {
            run: Some(Run::new(spec)),
            outcome: None,
            waiting: BTreeMap::new(),
            effects: Vec::new(),
            at: Duration::ZERO,
        }
    }

    /// Feeds the next event and returns the effects that the run requested. After the end, spending
    /// of tools that outlived the run is added to the outcome, and so is a message of the user; other
    /// events are ignored.
    pub fn feed(&mut self, event: Event) -> &[Effect] {
        self.effects.clear();
        self.at = self.at.max(event.at);
        if let Some(outcome) = &mut self.outcome {
            if let EventKind::Spent(spent) = &event.kind {
                outcome.add_spent(spent);
            }
            if let EventKind::Said { text } = event.kind {
                outcome.add_said(text);
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

    /// Returns the run, unless it has ended.
    pub fn run(&self) -> Option<&Run> {
        self.run.as_ref()
    }

    /// Returns the outcome, if the run has ended.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_deref()
    }

    /// Returns the outcome, if the run has ended.
    pub fn into_outcome(self) -> Option<Box<Outcome>> {
        self.outcome
    }

    /// Returns the requested effects that are not answered yet, in order. Each tool call is an
    /// effect of its own.
    pub fn outstanding(&self) -> Vec<&Effect> {
        self.waiting.values().collect()
    }

    /// Time of the last event.
    pub fn at(&self) -> Duration {
        self.at
    }

    /// Removes the effect that an event answers. An event of the wrong kind answers nothing,
    /// because a damaged journal may contain one.
    fn answered(&mut self, event: &EventKind) {
        let (id, fits): (_, fn(&Effect) -> bool) = match event {
            EventKind::TurnEnded { call: id, .. } | EventKind::TurnFailed { call: id, .. } => {
                (id, |asked| {
                    matches!(asked, Effect::CallModel { .. } | Effect::CallHandOver { .. })
                })
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
            EventKind::Verified { id, .. } => (id, |asked| matches!(asked, Effect::Verify { .. })),
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

    /// Returns the questions that no event has answered; they must be asked again under the same
    /// id.
    fn questions(&self) -> Vec<Effect> {
        let asked = self.waiting.values();
        asked.filter(|effect| !is_in_flight(effect)).cloned().collect()
    }

    fn lost(&self) -> Vec<EffectId> {
        let asked = self.waiting.iter();
        asked.filter(|(_, effect)| is_in_flight(effect)).map(|(id, _)| *id).collect()
    }
}

/// `true` if only the old process knew the result of this effect.
fn is_in_flight(effect: &Effect) -> bool {
    matches!(
        effect,
        Effect::CallModel { .. } | Effect::CallHandOver { .. } | Effect::StartTools { .. }
    )
}

/// Updates the set of outstanding effects.
fn note(waiting: &mut BTreeMap<EffectId, Effect>, effect: &Effect) {
    match effect {
        Effect::CallModel { id, .. }
        | Effect::CallHandOver { id, .. }
        | Effect::Reserve { id, .. }
        | Effect::Validate { id, .. }
        | Effect::Verify { id, .. }
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
        // A tool that was asked to stop must still report its end.
        _ => {}
    }
}

/// A resumed run.
pub struct Resumed {
    /// The run. It may have ended at once, for example because the booked cost of the lost call
    /// reaches a ceiling.
    pub step: Step,
    /// All events from the beginning, with those of the resumption at the end.
    pub events: Vec<Event>,
    /// Number of recorded `events` that remain valid, from the start.
    pub kept: usize,
    /// Effects to perform now, in this order.
    pub perform: Vec<Effect>,
}

/// The reason why a run cannot be resumed.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum CannotResume {
    /// The run ended as a success.
    Succeeded(Box<Outcome>),
    /// The run would end again at once, because the cause of its ending has not changed.
    EndsAgain(Box<Outcome>),
    /// The loop of the run belonged to another program, so only that program can continue it.
    Guest,
    /// The kernel panicked on one of the events.
    Broken,
}

impl fmt::Display for CannotResume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CannotResume::Succeeded(outcome) => {
                write!(
                    f,
                    "the run already ended as {}; there is nothing to resume",
                    outcome.termination
                )
            }
            CannotResume::EndsAgain(outcome) => write!(
                f,
                "the resumed run would end again at once as {} ({}): {}; raise the limit or fix the cause",
                outcome.termination, outcome.decided_by.decision, outcome.decided_by.evidence
            ),
            CannotResume::Guest => f.write_str(
                "the run belonged to another program, and only that program can resume it",
            ),
            CannotResume::Broken => f.write_str(
                "the recorded events cannot be replayed: the kernel panicked on one of them",
            ),
        }
    }
}

impl std::error::Error for CannotResume {}

/// Resumes a run whose process died, or that did not end as a success.
///
/// Calls in flight are lost ([`EventKind::Resumed`]). What else happens depends on the state of the
/// run:
///
/// - **Not ended**: all recorded events stay valid.
/// - **Ended, or its ending was decided**: the events before the decision stay valid, and so do
///   tool results that arrived while the run was being stopped. The response, failure or result
///   that ended the run is evaluated again under the limits in `with`. A model call that failed is
///   repeated, and a failed compaction is requested again. If the run was cancelled or terminated, a
///   decision about a request that was still open is void, and the request is made again.
///
/// A run that was stopped before it began still needs its `Start` event. `spec` is called twice,
/// because a policy cannot be cloned.
///
/// # Errors
/// The run was a success, or had ended and would end again at once as a failure; or it was the run
/// of a guest. A run that ends at once as a success is not an error: the changed limits accept its
/// answer.
pub fn resume(
    spec: impl Fn() -> RunSpec,
    recorded: Vec<Event>,
    with: Resumption,
) -> Result<Resumed, CannotResume> {
    let original = spec();
    if original.guest.is_some() {
        return Err(CannotResume::Guest);
    }
    let end = recorded.len();
    let (mut first, decided, mut hand_over) = until_decided(original, &recorded);
    // A success cannot be resumed: the caller continues it with a new run instead.
    if let Some(outcome) = first.outcome.take_if(|outcome| outcome.is_success()) {
        return Err(CannotResume::Succeeded(outcome));
    }
    let not_shortened = first.outcome().is_some_and(|outcome| {
        let by = [Termination::ErrorPromptTooLong, Termination::ErrorCompactionFailed];
        by.contains(&outcome.termination)
    });
    let Some(decided) = decided else {
        return resume_undecided(first, recorded, with);
    };
    // Second pass: replay up to the decision, with a fresh policy, and change the limits there.
    let mut again = Replay::new(spec());
    let mut events = recorded;
    let rest = events.split_off(decided);
    let is_withdrawn = rest
        .first()
        .is_some_and(|event| matches!(event.kind, EventKind::Cancel | EventKind::Terminate));
    let kept = if is_withdrawn { without_open_decisions(&mut events) } else { events.len() };
    for event in &events {
        again.feed(event.clone());
    }
    // Calls that were running before the decision. Some of their results may follow in `rest`.
    let before = again.lost();
    let mut perform = again.questions();
    let mut feed = |again: &mut Replay, event: Event| {
        perform.extend(again.feed(event.clone()).iter().cloned());
        events.push(event);
    };
    let has_limits = with.limits.is_some();
    let resumed = Resumption { lost: Vec::new(), call_again: true, ..with };
    let at = again.at();
    feed(&mut again, Event::new(at, EventKind::Resumed(Box::new(resumed))));
    for (place, event) in rest.into_iter().enumerate() {
        // The hand-over is void, but it was paid for.
        if let Some(spent) = hand_over.of_event(decided + place) {
            feed(&mut again, Event::new(event.at, spent));
            continue;
        }
        if stands(&event.kind, place == 0, has_limits, not_shortened) {
            feed(&mut again, event);
        }
    }
    let at = again.at();
    if let Some(spent) = hand_over.of_event(end) {
        feed(&mut again, Event::new(at, spent));
    }
    // Only calls that no recorded result has answered are lost.
    let still = again.lost();
    let lost: Vec<EffectId> = before.into_iter().filter(|id| still.contains(id)).collect();
    if !lost.is_empty() {
        let resumed = Resumption { lost, ..Resumption::default() };
        feed(&mut again, Event::new(at, EventKind::Resumed(Box::new(resumed))));
    }
    if again.run().is_some_and(|run| run.phase() == RunPhase::WrappingUp) {
        // Only another hand-over is left, so the run would end again.
        let resumed = Resumption { lost: again.lost(), ..Resumption::default() };
        feed(&mut again, Event::new(at, EventKind::Resumed(Box::new(resumed))));
    }
    match finish(again, events, kept, perform)? {
        // A change of the limits may accept the answer that was refused before.
        Resumed { step: Step::Ended(outcome), .. } if !outcome.is_success() => {
            Err(CannotResume::EndsAgain(outcome))
        }
        on => Ok(on),
    }
}

/// Removes the decisions about requests that were still open: the user who stopped the run withdrew
/// them, so the resumed run asks again. An expired request stays expired. Returns the number of
/// events before the first removed one.
fn without_open_decisions(events: &mut Vec<Event>) -> usize {
    let answered: Vec<EffectId> = events
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::Answered { id, .. } => Some(id),
            _ => None,
        })
        .collect();
    let is_open = |event: &Event| match &event.kind {
        EventKind::Decided { id, decision, .. } => {
            *decision != ParkDecision::Expired && !answered.contains(id)
        }
        _ => false,
    };
    let kept = events.iter().position(is_open).unwrap_or(events.len());
    events.retain(|event| !is_open(event));
    kept
}

/// Returns `true` if a recorded event from the decision on also belongs to the resumed run.
fn stands(kind: &EventKind, has_decided: bool, has_limits: bool, not_shortened: bool) -> bool {
    match kind {
        EventKind::ToolEnded { .. } | EventKind::Spent(_) | EventKind::Said { .. } => true,
        // The limits that end the run again must not outrank those of the resumption.
        EventKind::LimitsChanged { .. } => !has_limits,
        EventKind::Cancel | EventKind::Terminate | EventKind::Fault { .. } => false,
        // Another compactor may do better, so ask again.
        EventKind::Compacted { .. } if not_shortened => false,
        // The event that decided the ending is evaluated again. Later events answered effects
        // that the new run has not requested.
        _ => has_decided,
    }
}

/// Replays all events. Returns the position of the event that decided the ending, if any, and the
/// cost of the hand-over.
fn until_decided(original: RunSpec, recorded: &[Event]) -> (Replay, Option<usize>, HandOverCost) {
    let mut first = Replay::new(original);
    let (mut decided, mut hand_over) = (None, HandOverCost::default());
    for (at, event) in recorded.iter().enumerate() {
        first.feed(event.clone());
        if first.run().is_none_or(|run| is_over(run.phase())) && decided.is_none() {
            decided = Some(at);
        }
        hand_over.saw(at, &event.kind, &first);
    }
    if first.run().is_some_and(|run| run.phase() == RunPhase::WrappingUp) {
        // The process died during the hand-over, which is charged as an aborted call.
        let lost = Resumption { lost: first.lost(), ..Resumption::default() };
        let kind = EventKind::Resumed(Box::new(lost));
        first.feed(Event::new(first.at(), kind.clone()));
        hand_over.saw(recorded.len(), &kind, &first);
    }
    (first, decided, hand_over)
}

/// `true` if the ending of the run is decided.
fn is_over(phase: RunPhase) -> bool {
    matches!(phase, RunPhase::Stopping | RunPhase::WrappingUp)
}

/// The cost of the hand-over of a run, which counts although a resume makes the hand-over void.
#[derive(Default)]
struct HandOverCost {
    /// The amounts when the hand-over was requested.
    before: Option<(Usage, NanoUsd, Unreported)>,
    /// The event that ended the hand-over, and what it had used.
    spent: Option<(usize, EventKind)>,
}

impl HandOverCost {
    /// Notes the amounts after an event.
    fn saw(&mut self, at: usize, event: &EventKind, replay: &Replay) {
        if let Some(run) = replay.run() {
            // Amounts that tools spent meanwhile are not those of the hand-over.
            let spent = matches!(event, EventKind::Spent(_));
            if run.phase() == RunPhase::WrappingUp && (self.before.is_none() || spent) {
                self.before = Some((run.usage().clone(), run.spent(), run.unreported()));
            }
            return;
        }
        let (Some((usage, cost, unreported)), Some(outcome)) =
            (self.before.take(), replay.outcome())
        else {
            return;
        };
        let more = outcome.unreported().since(unreported);
        let spent = Spending {
            usage: outcome.usage.since(&usage),
            cost: outcome.cost.saturating_sub(cost),
            cost_unknown: more != Unreported::NOTHING,
            unreported: Some(more),
            ..Spending::default()
        };
        self.spent = Some((at, EventKind::Spent(spent)));
    }

    /// Returns what the hand-over used, if this event ended it.
    fn of_event(&mut self, at: usize) -> Option<EventKind> {
        self.spent.take_if(|(ended, _)| *ended == at).map(|(_, kind)| kind)
    }
}

/// Resumes a run that has not ended: all recorded events stay valid.
fn resume_undecided(
    mut replay: Replay,
    mut events: Vec<Event>,
    with: Resumption,
) -> Result<Resumed, CannotResume> {
    let kept = events.len();
    let lost = replay.lost();
    let mut perform = replay.questions();
    let resumed = Resumption { lost, ..with };
    let event = Event::new(replay.at(), EventKind::Resumed(Box::new(resumed)));
    perform.extend(replay.feed(event.clone()).iter().cloned());
    events.push(event);
    finish(replay, events, kept, perform)
}

/// Ends a run whose ending was already decided when its process died: nothing that still had to end
/// can do so. Returns the added events and the outcome; `None` if no ending was decided.
pub fn close(spec: RunSpec, recorded: &[Event]) -> Option<(Vec<Event>, Box<Outcome>)> {
    let mut replay = Replay::new(spec);
    for event in recorded {
        replay.feed(event.clone());
    }
    if let Some(outcome) = replay.outcome.take() {
        return Some((Vec::new(), outcome));
    }
    if !is_over(replay.run()?.phase()) {
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
) -> Result<Resumed, CannotResume> {
    // Drop requests that were withdrawn or answered during the resumption itself.
    let waiting = &replay.waiting;
    perform.retain(|effect| match effect {
        Effect::CallModel { id, .. }
        | Effect::CallHandOver { id, .. }
        | Effect::Reserve { id, .. }
        | Effect::Validate { id, .. }
        | Effect::Verify { id, .. }
        | Effect::Consult { id, .. }
        | Effect::Compact { id, .. } => waiting.contains_key(id),
        _ => true,
    });
    match (replay.run, replay.outcome) {
        (Some(run), _) => Ok(Resumed { step: Step::Continue(run), events, kept, perform }),
        (None, Some(outcome)) => Ok(Resumed { step: Step::Ended(outcome), events, kept, perform }),
        (None, None) => Err(CannotResume::Broken),
    }
}
