//! A small world around the kernel: its open effects, the possible next actions, and the laws of
//! each step.
//!
//! ```text
//! let mut world = World::new(&config);
//! for action in world.enabled() { … world.step(action)? … }
//! ```

use super::checks::only_begins_no_work;
use super::configs::{Config, Steer};
use super::parks::approval;
use super::possible::Before;
use super::watch::Seen;
use crate::fallback_laws::ModelLaw;
use crate::laws::{
    CompactionLaw, StartedLaw, WindowLaw, check_compaction, check_history, only_stops,
    quotes_exactly, shortened, working_time,
};
use endstop_core::guest::Spending;
use endstop_core::*;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Maximum number of deltas of one model call.
const MOST_PIECES: u8 = 2;

/// The time for which the process is suspended: longer than most timeouts of a call.
const SUSPENSION: Duration = Duration::from_millis(100);

/// The wall clock at the start of each run.
const WALL_MS: u64 = 1_764_000_000_000;

/// Maximum number of uses of each way to steer.
const MOST_STEERS: u8 = 1;

/// No suspension begins after this time, so that the search has an end.
const MOST_TIME: Duration = Duration::from_millis(600);

/// A failure of user code.
fn scripted_fault() -> EventKind {
    EventKind::Fault { name: "script".to_owned(), message: "scripted fault".to_owned() }
}

/// A possible action.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Action {
    /// None: the initial state.
    Begin,
    Start,
    Cancel,
    Terminate,
    Fault,
    /// A tick, due or not.
    Tick,
    /// Time passes up to the requested tick; the kernel gets no event.
    Reach,
    /// Time passes to a millisecond after that tick; the kernel gets no event.
    Overrun,
    /// The process is suspended for [`SUSPENSION`] and then continues.
    Suspend,
    /// The user steers the run, in one of the ways of the world.
    Steer(u8),
    /// Streamed content, by index.
    Piece(u8),
    /// An answer to an open effect, by index, with the variant of the answer.
    Answer {
        open: u8,
        with: u8,
    },
    /// An answer to an effect that is no longer open, by index.
    Late(u8),
    /// A running tool spends something on its own model calls, once per run.
    Spend,
    /// The run is parked for an open approval, by index.
    Park(u8),
    /// The process dies and another one resumes the run, once per run.
    Resume,
}

/// An effect that the kernel waits for, or waited for.
#[derive(Clone, Debug)]
pub(super) enum Open {
    Call { id: EffectId, cap: Option<u64>, prompt: u64, text: String, pieces: u8 },
    Tool { id: EffectId, call: String, told_to_stop: bool, background: bool },
    Consult { id: EffectId, point: ConsultPoint },
    Compact { id: EffectId, short: Vec<Message> },
    Validate { id: EffectId },
    Verify { id: EffectId },
    Reserve { id: EffectId, usd: [u64; 2], tokens: [u64; 2] },
}

impl Open {
    pub(super) fn id(&self) -> EffectId {
        match self {
            Open::Call { id, .. }
            | Open::Tool { id, .. }
            | Open::Consult { id, .. }
            | Open::Compact { id, .. }
            | Open::Validate { id }
            | Open::Verify { id }
            | Open::Reserve { id, .. } => *id,
        }
    }
}

/// A run, and the world around it.
pub(super) struct World<'a> {
    pub(super) config: &'a Config,
    pub(super) limits: Limits,
    pub(super) verifier: bool,
    pub(super) output_schema: bool,
    /// The run that this one branches from.
    pub(super) branched_from: Option<BranchPoint>,
    /// Names of the tools whose calls run in the background.
    background: Vec<String>,
    run: Option<Run>,
    seen: Arc<Mutex<Seen>>,
    now: Duration,
    pub(super) wake: Option<Duration>,
    pub(super) open: Vec<Open>,
    /// The last effect of each kind that was answered or withdrawn.
    pub(super) closed: Vec<Open>,
    /// Amounts that reservations were granted.
    pub(super) held: Vec<(EffectId, [u64; 2])>,
    /// The rest of the shared budget: nano-dollars and tokens.
    pub(super) tool_budget: [u64; 2],
    /// The rest when it granted the last reservation.
    pub(super) offered: Option<(u64, u64)>,
    /// The calls of this turn for whose approval the run was parked.
    pub(super) parked: Vec<String>,
    /// Those of them that have started.
    pub(super) started: Vec<String>,
    pub(super) resumed: bool,
    /// The termination to come, if the run is being stopped.
    stopping: Option<String>,
    pub(super) cancelled: bool,
    pub(super) calls: u32,
    spent_by_tools: u64,
    /// Number of times that each way to steer was used.
    steered: Vec<u8>,
    compactions: CompactionLaw,
    windows: WindowLaw,
    started_calls: StartedLaw,
    tools: Arc<Vec<ToolPolicy>>,
    pub(super) models: ModelLaw,
    effects: Vec<Effect>,
}

/// Prints everything that determines what happens next.
impl fmt::Debug for World<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let World {
            run,
            now,
            wake,
            open,
            closed,
            held,
            tool_budget,
            stopping,
            cancelled,
            calls,
            parked,
            started,
            resumed,
            ..
        } = self;
        let spent = self.spent_by_tools;
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        write!(f, "{run:?}{seen:?}{now:?}{wake:?}{open:?}{closed:?}{held:?}{tool_budget:?}")?;
        let steered = &self.steered;
        write!(f, "{:?}{:?}", self.windows, self.started_calls)?;
        write!(f, "{stopping:?}{cancelled}{calls} {spent}{parked:?}{started:?}{resumed}{steered:?}")
    }
}

impl<'a> World<'a> {
    pub(super) fn new(config: &'a Config) -> World<'a> {
        let (run, seen) = config.run();
        let RunSpec { limits, verifier, output_schema, tools, branched_from, .. } = (config.spec)();
        let background = tools.iter().filter(|tool| tool.background).map(|tool| tool.name.clone());
        World {
            config,
            limits,
            verifier,
            output_schema,
            models: ModelLaw::of(&run),
            branched_from: branched_from.map(|point| *point),
            background: background.collect(),
            run: Some(run),
            seen,
            now: Duration::ZERO,
            wake: None,
            compactions: CompactionLaw::default(),
            windows: WindowLaw::new(WALL_MS, &[]),
            started_calls: StartedLaw::default(),
            tools: Arc::clone(&tools),
            open: Vec::new(),
            closed: Vec::new(),
            held: Vec::new(),
            tool_budget: config.tool_budget,
            offered: None,
            parked: Vec::new(),
            started: Vec::new(),
            resumed: false,
            stopping: None,
            cancelled: false,
            calls: 0,
            spent_by_tools: 0,
            steered: vec![0; config.steers.len()],
            effects: Vec::new(),
        }
    }

    /// Returns all possible next actions.
    pub(super) fn enabled(&self) -> Vec<Action> {
        let mut all = Vec::new();
        if self.phase() == "new" {
            all.push(Action::Start);
        }
        all.extend([Action::Cancel, Action::Terminate, Action::Fault, Action::Tick]);
        if let Some(wake) = self.wake {
            if self.now < wake {
                all.push(Action::Reach);
            }
            if self.now <= wake {
                all.push(Action::Overrun);
            }
        }
        let steers = self.steered.iter().enumerate().filter(|(_, used)| **used < MOST_STEERS);
        all.extend(steers.map(|(way, _)| Action::Steer(way as u8)));
        if self.config.suspends && self.now < MOST_TIME {
            all.push(Action::Suspend);
        }
        for (at, open) in self.open.iter().enumerate() {
            if matches!(open, Open::Call { pieces, .. } if *pieces < MOST_PIECES) {
                all.extend((0..self.config.pieces.len() as u8).map(Action::Piece));
            }
            let ways = self.ways(open);
            all.extend((0..ways).map(|with| Action::Answer { open: at as u8, with }));
            if self.config.parks
                && matches!(approval(open), Some(call) if !self.parked.contains(&call.id))
            {
                all.push(Action::Park(at as u8));
            }
        }
        all.extend((0..self.closed.len() as u8).map(Action::Late));
        if self.config.parks && !self.resumed && self.phase() != "new" {
            all.push(Action::Resume);
        }
        let runs = matches!(self.phase(), "tools" | "stopping");
        if runs && self.config.spends > self.spent_by_tools && self.config.spends <= self.left() {
            all.push(Action::Spend);
        }
        all
    }

    /// Number of variants in which an open effect may be answered.
    fn ways(&self, open: &Open) -> u8 {
        let ways = match open {
            Open::Call { .. } => self.config.replies.len() + self.config.failures.len(),
            Open::Tool { .. } => self.config.reports.len(),
            Open::Consult { .. } => self.config.answers.len(),
            Open::Compact { .. } | Open::Reserve { .. } => 3,
            Open::Validate { .. } | Open::Verify { .. } => 2,
        };
        ways as u8
    }

    /// Gives the first open effect its normal answer; if none is open, time passes.
    pub(super) fn well_answered(&self) -> Option<Action> {
        match self.open.first() {
            Some(_) => Some(Action::Answer { open: 0, with: 0 }),
            None => self.silence(),
        }
    }

    /// Answers the last open effect so that there is more to do.
    pub(super) fn stubborn(&self) -> Option<Action> {
        let Some(last) = self.open.last() else { return self.silence() };
        let ways = self.ways(last);
        Some(Action::Answer { open: self.open.len() as u8 - 1, with: 1.min(ways - 1) })
    }

    /// Lets time pass.
    pub(super) fn silence(&self) -> Option<Action> {
        if self.phase() == "new" {
            return Some(Action::Start);
        }
        self.wake.map(|wake| if self.now < wake { Action::Reach } else { Action::Tick })
    }

    /// `true` if a hook, a person or another run has yet to answer, without a time limit.
    pub(super) fn waits_for_somebody(&self) -> bool {
        self.limits.timeout.is_none()
            && self.open.iter().any(|open| match open {
                Open::Call { .. } | Open::Tool { .. } => false,
                Open::Verify { .. } => self.limits.verify_timeout.is_none(),
                _ => true,
            })
    }

    /// The amount that the run may still spend, in nano-dollars.
    fn left(&self) -> u64 {
        let max = self.limits.max_budget_usd.map_or(NanoUsd::ZERO, NanoUsd::from_usd);
        self.run.as_ref().map_or(0, |run| max.saturating_sub(run.committed()).0)
    }

    fn phase(&self) -> &'static str {
        self.run.as_ref().map_or("ended", |run| run.phase().as_str())
    }

    /// Plays a step that was checked before; `None` if the run ended with it.
    pub(super) fn play(&mut self, action: Action) -> Option<()> {
        matches!(self.act(action, false), Ok(None)).then_some(())
    }

    /// Takes a step and checks the laws; returns the termination if the run ended.
    pub(super) fn step(&mut self, action: Action) -> Result<Option<Termination>, String> {
        self.act(action, true)
    }

    fn act(&mut self, action: Action, check: bool) -> Result<Option<Termination>, String> {
        self.offered = None;
        let kind = match action {
            Action::Begin => return Ok(None),
            Action::Reach | Action::Overrun => {
                let more = Duration::from_millis(u64::from(action == Action::Overrun));
                self.now = self.now.max(self.wake.unwrap_or_default() + more);
                return Ok(None);
            }
            Action::Start => {
                EventKind::Start { seed: 7, price: self.config.price, wall_ms: Some(WALL_MS) }
            }
            Action::Cancel => EventKind::Cancel,
            Action::Terminate => EventKind::Terminate,
            Action::Fault => scripted_fault(),
            Action::Tick => {
                self.wake = self.wake.filter(|wake| *wake > self.now);
                EventKind::Tick
            }
            Action::Suspend => {
                self.now += SUSPENSION;
                EventKind::Suspended { time: SUSPENSION }
            }
            Action::Steer(way) => {
                self.steered[way as usize] += 1;
                self.steer(self.config.steers[way as usize])
            }
            Action::Piece(which) => self.piece(which)?,
            Action::Answer { open, with } => {
                let open = self.open.remove(open as usize);
                let kind = self.answer(&open, with);
                self.close(open);
                kind
            }
            Action::Late(which) => self.late(&self.closed[which as usize]),
            Action::Park(which) => self.park(which)?,
            Action::Resume => self.resume(),
            Action::Spend => {
                self.spent_by_tools = self.config.spends;
                let cost = NanoUsd(self.config.spends);
                EventKind::Spent(Spending { cost, ..Spending::default() })
            }
        };
        let run = self.run.take().ok_or("an event after the ending")?;
        // At the run's deadline every event ends the run, even one that answers nothing.
        let due = working_time(&self.limits).is_some_and(|deadline| self.now >= deadline);
        let nothing_new = matches!(action, Action::Late(_)) && run.elapsed() == self.now && !due;
        let before = Before {
            phase: run.phase().as_str(),
            stopping: self.stopping.clone(),
            cancelled: self.cancelled,
            printed: (check && nothing_new).then(|| format!("{run:?}")),
            event: kind.clone(),
        };
        let decided = self.stopping.is_some() || before.phase == "wrapping_up";
        self.cancelled |= kind == EventKind::Cancel && !decided;
        let mut effects = std::mem::take(&mut self.effects);
        let compacted = matches!(kind, EventKind::Compacted { .. });
        let history = (run.epoch(), run.messages().to_vec());
        let step = run.handle(Event::new(self.now, kind), &mut effects);
        if let Step::Continue(next) = &step {
            let switched = self.models.heard(&effects, next)?;
            let next = (next.epoch(), next.messages());
            if check {
                check_compaction(compacted, switched, (history.0, &history.1), next)?;
            }
        }
        let calls = effects.iter().any(|effect| matches!(effect, Effect::CallModel { .. }));
        if let (Step::Continue(run), true) = (&step, calls) {
            let offered = self.offered.take();
            // The law does not cover a budget that granted less than it had.
            let exact = offered.is_some() || !matches!(before.event, EventKind::Reserved { .. });
            if check && exact {
                quotes_exactly(&self.limits, run.price(), run, offered)?;
            }
        }
        self.compactions.heard(&effects);
        self.started_calls.heard(&self.limits, &self.tools, &before.event, &effects)?;
        self.windows.heard(&self.limits, &before.event, &effects, self.now)?;
        let wraps_up = matches!(&step, Step::Continue(run) if run.phase() == RunPhase::WrappingUp);
        if check && (self.cancelled || self.stopping.is_some() && !wraps_up) {
            only_stops(&effects)?;
        }
        let late = self.limits.timeout.is_some_and(|deadline| self.now > deadline);
        if check && late {
            only_begins_no_work(&effects)?;
        }
        for effect in effects.drain(..) {
            self.take(effect, &step)?;
        }
        self.effects = effects;
        match step {
            Step::Continue(run) => {
                if check {
                    self.check_state(&run, &before)?;
                }
                self.run = Some(run);
                Ok(None)
            }
            Step::Ended(outcome) => {
                if check {
                    self.check_ending(&outcome, &before)?;
                }
                Ok(Some(outcome.termination))
            }
        }
    }

    /// Returns the event of a way to steer.
    fn steer(&mut self, way: Steer) -> EventKind {
        match way {
            Steer::Say => EventKind::Said { text: "look at b".to_owned() },
            Steer::Window(used, seconds) => {
                let resets_at = (WALL_MS + self.now.as_millis() as u64) / 1000 + seconds;
                let window = Window::new("plan", 300, used, Some(resets_at));
                EventKind::Windows { windows: window.into_iter().collect() }
            }
            Steer::Limit(name, value) => {
                let value = serde_json::from_str(value).unwrap_or_default();
                let limits = LimitChanges::new().set(name, value).unwrap_or_default();
                limits.apply(&mut self.limits);
                EventKind::LimitsChanged { limits }
            }
        }
    }

    /// Returns the unspent part of a reservation to the budget.
    fn give_back(&mut self, granted: [u64; 2], spent: [u64; 2]) {
        for (left, (granted, spent)) in
            self.tool_budget.iter_mut().zip(granted.into_iter().zip(spent))
        {
            *left += granted - spent;
        }
    }

    pub(super) fn close(&mut self, open: Open) {
        self.closed.retain(|old| std::mem::discriminant(old) != std::mem::discriminant(&open));
        self.closed.push(open);
    }

    /// Removes an effect that is open, or that this very event answered.
    fn taken_back(&mut self, id: EffectId) -> Result<(), String> {
        if let Some(at) = self.open.iter().position(|open| open.id() == id) {
            let gone = self.open.remove(at);
            self.close(gone);
            return Ok(());
        }
        let just = self.closed.last().is_some_and(|closed| closed.id() == id);
        if just { Ok(()) } else { Err(format!("{id:?} was withdrawn, but was not open")) }
    }

    /// Performs an effect.
    fn take(&mut self, effect: Effect, step: &Step) -> Result<(), String> {
        match effect {
            Effect::CallModel { id, output_cap, .. } => {
                self.parked.clear();
                self.started.clear();
                self.calls += 1;
                let Step::Continue(run) = step else {
                    return Err("a call was made by a run that ended".to_owned());
                };
                check_history(run.messages())?;
                let prompt = run.messages().len() as u64;
                let call =
                    Open::Call { id, cap: output_cap, prompt, text: String::new(), pieces: 0 };
                self.open.push(call);
            }
            Effect::CallHandOver { id, output_cap } => {
                self.calls += 1;
                let Step::Continue(run) = step else {
                    return Err("a hand-over was asked for by a run that ended".to_owned());
                };
                check_history(run.messages())?;
                let prompt = run.messages().len() as u64;
                let call =
                    Open::Call { id, cap: output_cap, prompt, text: String::new(), pieces: 0 };
                self.open.push(call);
            }
            Effect::AbortModel { id } => self.taken_back(id)?,
            Effect::Abandon { id } => {
                self.taken_back(id)?;
                // A grant at the very same time is returned.
                if let Some(at) = self.held.iter().position(|(held, _)| *held == id) {
                    let (_, granted) = self.held.remove(at);
                    self.give_back(granted, [0, 0]);
                }
            }
            Effect::StartTools { calls } => {
                for ToolStart { id, call, .. } in calls {
                    self.starts_once(&call.id)?;
                    let background = self.background.contains(&call.name);
                    self.open.push(Open::Tool {
                        id,
                        call: call.id.clone(),
                        told_to_stop: false,
                        background,
                    });
                }
            }
            Effect::AbortTools { ids, .. } => {
                for id in ids {
                    let tool = self.open.iter_mut().find(|open| open.id() == id);
                    match tool {
                        Some(Open::Tool { told_to_stop, .. }) => *told_to_stop = true,
                        _ => self.taken_back(id)?,
                    }
                }
            }
            Effect::WakeAt { at } => self.wake = Some(at),
            Effect::Reserve { id, want, least, want_tokens, least_tokens } => {
                let (usd, tokens) = ([want.0, least.0], [want_tokens, least_tokens]);
                self.open.push(Open::Reserve { id, usd, tokens });
            }
            Effect::Settle { id, spent, tokens } => {
                let at = self.held.iter().position(|(held, _)| *held == id);
                let Some(at) = at else {
                    return Err(format!("{id:?} was settled, but was not reserved"));
                };
                let (_, granted) = self.held.remove(at);
                if spent.0 > granted[0] || tokens > granted[1] {
                    return Err(format!("settled {spent}, {tokens} tokens of {granted:?}"));
                }
                self.give_back(granted, [spent.0, tokens]);
            }
            Effect::Validate { id, .. } => self.open.push(Open::Validate { id }),
            Effect::Verify { id, .. } => self.open.push(Open::Verify { id }),
            Effect::Consult { id, point } => self.open.push(Open::Consult { id, point }),
            Effect::Compact { id, forced, task, .. } => {
                self.compactions.asked(id, forced)?;
                let Step::Continue(run) = step else {
                    return Err("a compaction was asked for by a run that ended".to_owned());
                };
                let messages = run.messages().to_vec();
                self.open.push(Open::Compact { id, short: shortened(messages, task) });
            }
            Effect::Emit(RunEvent::Stopping { reason, .. }) => self.stopping = Some(reason),
            // A tool that was asked to stop and then abandoned: the kernel no longer waits for it.
            Effect::Emit(RunEvent::ToolFinished { call_id, .. }) => {
                let at = self.open.iter().position(|open| {
                    matches!(open, Open::Tool { call, told_to_stop: true, background: false, .. } if *call == call_id)
                });
                if let Some(at) = at {
                    let gone = self.open.remove(at);
                    self.close(gone);
                }
            }
            // The law has checked it.
            Effect::Emit(_) | Effect::SwitchModel { .. } => {}
            other => return Err(format!("an effect that this world does not know: {other:?}")),
        }
        Ok(())
    }

    /// Describes an action for people.
    pub(super) fn told(&self, action: Action) -> String {
        let what = match action {
            Action::Answer { open, .. } => format!(" = {:?}", self.open.get(open as usize)),
            Action::Late(which) => format!(" = {:?}", self.closed.get(which as usize)),
            _ => String::new(),
        };
        format!("{:?} {}: {action:?}{what}", self.now, self.phase())
    }
}
