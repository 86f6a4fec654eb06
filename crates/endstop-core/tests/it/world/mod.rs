//! A random world around the kernel: models, tools, hooks, people and clocks that answer, send
//! wrong ids, answer late or twice, and interrupt. One seed determines everything.
//!
//! `play(seed)` plays one run and checks the laws of the kernel on the way. The test `kernel_laws`
//! plays some thousands of seeds, the example `soak` a million.

mod altered;
mod answers;
mod setup;

pub use altered::cut_elsewhere;
#[allow(unused_imports, reason = "the soak does not set clocks back")]
pub use altered::set_back;
// The soak program shares this module, and has no guests.
#[allow(unused_imports, reason = "guests only")]
pub use setup::Marks;
pub use setup::{Rng, Setup, spec};

use crate::changes::{ChangeLaw, only_reviewed};
use crate::fallback_laws::ModelLaw;
use crate::laws::{
    CompactionLaw, RateLaw, SAID, StartedLaw, WindowLaw, check_branch, check_ceilings,
    check_compaction, check_declared, check_hand_over, check_outcome, check_spent, check_verified,
    only_stops, quotes_exactly,
};
use endstop_core::replay::{self, Resumed};
use endstop_core::*;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// The record of a run in this world.
pub struct Played {
    pub outcome: Outcome,
    pub events: Vec<Event>,
    /// Pairs of phase and event that occurred.
    pub pairs: Vec<(&'static str, &'static str)>,
}

#[derive(Clone)]
enum Waiting {
    Call { id: EffectId, cap: Option<u64>, prompt: u64 },
    Tool(EffectId),
    Consult(EffectId, ConsultPoint),
    Compact(EffectId, Vec<Message>, Option<MessageId>),
    Validate(EffectId),
    Verify(EffectId),
    Reserve(EffectId, [NanoUsd; 2], [u64; 2]),
}

impl Waiting {
    fn id(&self) -> EffectId {
        match self {
            Waiting::Call { id, .. }
            | Waiting::Tool(id)
            | Waiting::Consult(id, _)
            | Waiting::Compact(id, ..)
            | Waiting::Validate(id)
            | Waiting::Verify(id)
            | Waiting::Reserve(id, ..) => *id,
        }
    }
}

/// A failure of user code.
fn scripted_fault() -> EventKind {
    EventKind::Fault { name: "script".to_owned(), message: "scripted fault".to_owned() }
}

pub const KINDS: [&str; 21] = [
    "start",
    "delta",
    "turn_ended",
    "turn_failed",
    "tool_ended",
    "answered",
    "parked",
    "decided",
    "compacted",
    "validated",
    "verified",
    "reserved",
    "observe",
    "said",
    "limits_changed",
    "suspended",
    "windows",
    "tick",
    "cancel",
    "terminate",
    "fault",
];
pub const PHASES: [&str; 16] = [
    "new",
    "consulting_prompt",
    "consulting_pre_iteration",
    "consulting_chat_params",
    "consulting_pre_call",
    "consulting_background",
    "consulting_stop",
    "reserving",
    "calling",
    "backoff",
    "tools",
    "compacting",
    "validating",
    "verifying",
    "waiting",
    "wrapping_up",
];

/// The wall clock at the start of each run.
const WALL_MS: u64 = 1_764_000_000_000;

struct World {
    rng: Rng,
    waiting: Vec<Waiting>,
    old: Vec<Waiting>,
    wake: Option<Duration>,
    now: Duration,
    stopped: bool,
    reasons: u64,
    /// The rest of the shared budget: nano-dollars and tokens.
    shared_left: (u64, u64),
    /// The rest when it was last asked.
    offered: Option<(u64, u64)>,
    held: BTreeMap<EffectId, (u64, u64)>,
    partial: String,
    /// Consecutive times that nothing was due.
    idle: u32,
    compactions: CompactionLaw,
    changes: ChangeLaw,
    models: ModelLaw,
    windows: WindowLaw,
    rates: RateLaw,
    started: StartedLaw,
}

/// Plays one run; `Err` names the violated law.
pub fn play(seed: u64) -> Result<Played, String> {
    play_on(seed, &[])
}

/// Plays one run whose process dies after each of these numbers of events, and is then resumed.
pub fn play_on(seed: u64, deaths: &[usize]) -> Result<Played, String> {
    let mut rng = Rng(seed);
    let (spec, setup) = spec(&mut rng);
    play_from(seed, (rng, setup), Run::new(spec), Vec::new(), Vec::new(), deaths)
}

/// Resumes a run of this seed, and plays it to its end.
pub fn resume_and_play(seed: u64, on: Resumed) -> Result<Played, String> {
    let mut rng = Rng(seed);
    let (_, setup) = spec(&mut rng);
    let mut limits = setup.limits;
    for event in &on.events {
        match &event.kind {
            EventKind::Resumed(with) => limits = with.limits.clone().unwrap_or(limits),
            EventKind::LimitsChanged { limits: changes } => changes.apply(&mut limits),
            _ => {}
        }
    }
    let setup = Setup { limits, ..setup };
    // A different random sequence from the one that the run had before.
    let Step::Continue(run) = on.step else { return Err("it ended".to_owned()) };
    play_from(seed, (Rng(!seed), setup), run, on.events, on.perform, &[])
}

fn play_from(
    seed: u64,
    (rng, mut setup): (Rng, Setup),
    run: Run,
    mut events: Vec<Event>,
    perform: Vec<Effect>,
    deaths: &[usize],
) -> Result<Played, String> {
    let mut started = events.iter().any(|event| matches!(event.kind, EventKind::Start { .. }));
    let mut world = World {
        rng,
        waiting: Vec::new(),
        old: Vec::new(),
        wake: None,
        now: run.elapsed(),
        stopped: false,
        reasons: seed,
        shared_left: (300_000_000, if seed % 3 == 0 { 60_000 } else { 10_000_000 }),
        offered: None,
        held: BTreeMap::new(),
        partial: String::new(),
        idle: 0,
        compactions: CompactionLaw::default(),
        changes: ChangeLaw::of(|| self::spec(&mut Rng(seed)).0, &events),
        models: ModelLaw::of(&run),
        windows: WindowLaw::new(WALL_MS, &events),
        rates: RateLaw::new(&events, deaths),
        started: StartedLaw::new(&events),
    };
    let mut pairs = Vec::new();
    let mut effects = Vec::new();
    // The highest ceilings so far: what was spent under them may exceed the current ones.
    let mut highest = setup.limits.clone();
    if events.iter().any(|event| matches!(event.kind, EventKind::LimitsChanged { .. })) {
        (highest.max_budget_usd, highest.max_tokens) = (None, None);
    }
    let mut died = 0;
    let alive = Step::Continue(run);
    for effect in perform {
        world.take(effect, &alive)?;
    }
    let Step::Continue(mut run) = alive else { return Err("the run has ended".to_owned()) };
    for _ in 0..3000 {
        // A run whose ending is decided is closed instead of resumed.
        let dies = deaths.get(died).is_some_and(|after| *after <= events.len());
        if dies && !matches!(run.phase().as_str(), "stopping" | "wrapping_up") {
            died += 1;
            let again = || self::spec(&mut Rng(seed)).0;
            let on = replay::resume(again, std::mem::take(&mut events), Resumption::default())
                .map_err(|problem| format!("a run that had not ended: {problem}"))?;
            events = on.events;
            if let Step::Ended(outcome) = on.step {
                return Ok(Played { outcome: *outcome, events, pairs });
            }
            // Calls of the dead process are gone, and none of them answers any more.
            let gone = std::mem::take(&mut world.waiting);
            world.old.extend(gone);
            world.held.clear();
            world.wake = None;
            world.changes = ChangeLaw::of(again, &events);
            let alive = on.step;
            for effect in on.perform {
                world.take(effect, &alive)?;
            }
            let Step::Continue(on) = alive else { return Err("the run has ended".to_owned()) };
            run = on;
        }
        let kind = if started {
            world.next_event(&setup, run.phase().as_str())
        } else if world.rng.chance(4) {
            match world.rng.below(40) {
                0 => EventKind::Cancel,
                1 => EventKind::Terminate,
                2 => scripted_fault(),
                3 => EventKind::Said { text: SAID.to_owned() },
                4 => world.changed_limits(&setup),
                _ => world.noise(),
            }
        } else {
            started = true;
            EventKind::Start { seed, price: setup.price, wall_ms: Some(WALL_MS) }
        };
        if world.idle > 3 {
            return Err(format!(
                "stuck in {}: no open effect and no requested tick",
                run.phase().as_str()
            ));
        }
        if let EventKind::LimitsChanged { limits } = &kind {
            limits.apply(&mut setup.limits);
            raise_ceilings(&mut highest, &setup.limits);
        }
        let event = Event::new(world.now, kind);
        pairs.push((run.phase().as_str(), event.kind.name()));
        let cancelled =
            matches!(event.kind, EventKind::Cancel) && run.phase().as_str() != "stopping";
        world.stopped |= cancelled;
        events.push(event.clone());
        let before = (run.epoch(), run.messages().to_vec());
        let (phase, kind) = (run.phase().as_str(), event.kind.clone());
        let compacted = matches!(event.kind, EventKind::Compacted { .. });
        world.changes.answered(&kind);
        let step = run.handle(event, &mut effects);
        let calls = effects.iter().any(|effect| matches!(effect, Effect::CallModel { .. }));
        if let (Step::Continue(next), true) = (&step, calls) {
            quotes_exactly(&setup.limits, next.price(), next, world.offered.take())?;
        }
        if let Step::Continue(next) = &step {
            let after = (next.epoch(), next.messages());
            let switched = world.models.heard(&effects, next)?;
            check_compaction(compacted, switched, (before.0, &before.1), after)?;
        }
        world.compactions.heard(&effects);
        world.changes.heard(&effects)?;
        world.started.heard(&setup.limits, &setup.tools, &kind, &effects)?;
        world.windows.heard(&setup.limits, &kind, &effects, world.now)?;
        if let Step::Continue(run) = &step {
            world.rates.heard(&setup.limits, &kind, &effects, run)?;
        }
        if world.stopped {
            only_stops(&effects)?;
        }
        for effect in effects.drain(..) {
            world.take(effect, &step)?;
        }
        match step {
            Step::Continue(next) => {
                check_ceilings(
                    &highest,
                    next.committed(),
                    next.reserved(),
                    next.committed_tokens(),
                    NanoUsd::ZERO,
                )?;
                run = next;
            }
            Step::Ended(outcome) => {
                check_spent(&highest, &outcome)?;
                check_outcome(&outcome, setup.output_schema)?;
                only_reviewed(setup.hooks, &outcome)?;
                check_declared(phase, &kind, &outcome, setup.verifies())?;
                check_verified(setup.verifier, &setup.limits, &outcome)?;
                check_hand_over(&setup.limits, &outcome)?;
                let others = events.iter().any(|event| matches!(event.kind, EventKind::Spent(_)));
                world.models.ended(setup.falls_back, others, &outcome)?;
                check_branch(setup.branched_from.as_ref(), &outcome)?;
                if !world.held.is_empty() {
                    return Err(format!(
                        "a reservation was not settled; {:?} {:?}",
                        outcome.termination,
                        events.iter().rev().take(4).collect::<Vec<_>>()
                    ));
                }
                return Ok(Played { outcome: *outcome, events, pairs });
            }
        }
    }
    Err("no ending after 3000 events".to_owned())
}

/// Raises ceilings to those of other limits, if they are higher.
fn raise_ceilings(highest: &mut Limits, limits: &Limits) {
    highest.max_budget_usd =
        highest.max_budget_usd.zip(limits.max_budget_usd).map(|(one, other)| one.max(other));
    highest.max_tokens =
        highest.max_tokens.zip(limits.max_tokens).map(|(one, other)| one.max(other));
}

/// Replays recorded events on a fresh run of the same seed.
pub fn replay(seed: u64, events: &[Event]) -> Result<Outcome, String> {
    replayed_with(seed, events, &mut |_| ())
}

/// Like [`replay`], with a callback after each event.
pub fn replayed_with(
    seed: u64,
    events: &[Event],
    look: &mut dyn FnMut(&Run),
) -> Result<Outcome, String> {
    let (spec, _) = spec(&mut Rng(seed));
    let mut run = Run::new(spec);
    let mut effects = Vec::new();
    for event in events {
        effects.clear();
        match run.handle(event.clone(), &mut effects) {
            Step::Continue(next) => {
                look(&next);
                run = next;
            }
            Step::Ended(outcome) => return Ok(*outcome),
        }
    }
    Err("the replay did not end".to_owned())
}

impl World {
    fn take(&mut self, effect: Effect, step: &Step) -> Result<(), String> {
        let run = match step {
            Step::Continue(run) => Some(run),
            Step::Ended(_) => None,
        };
        match effect {
            Effect::CallModel { id, output_cap, .. } => {
                self.partial.clear();
                let prompt = run.map_or(0, |run| run.messages().len() as u64);
                self.waiting.push(Waiting::Call { id, cap: output_cap, prompt });
            }
            Effect::CallHandOver { id, output_cap } => {
                self.partial.clear();
                let prompt = run.map_or(0, |run| run.messages().len() as u64);
                self.waiting.push(Waiting::Call { id, cap: output_cap, prompt });
            }
            Effect::AbortModel { id } | Effect::Abandon { id } => {
                self.held.remove(&id);
                self.drop_waiting(id);
            }
            Effect::StartTools { calls } => {
                self.waiting.extend(calls.iter().map(|call| Waiting::Tool(call.id)));
            }
            Effect::AbortTools { .. } => {}
            Effect::WakeAt { at } => self.wake = Some(at),
            Effect::Reserve { id, want, least, want_tokens, least_tokens } => {
                self.waiting.push(Waiting::Reserve(id, [want, least], [want_tokens, least_tokens]));
            }
            Effect::Settle { id, spent, tokens } => {
                if let Some(granted) = self.held.remove(&id) {
                    if spent.0 > granted.0 || tokens > granted.1 {
                        return Err(format!("settled {spent}, {tokens} tokens of {granted:?}"));
                    }
                    self.shared_left.0 += granted.0 - spent.0;
                    self.shared_left.1 += granted.1 - tokens;
                }
            }
            Effect::Validate { id, .. } => self.waiting.push(Waiting::Validate(id)),
            Effect::Verify { id, .. } => self.waiting.push(Waiting::Verify(id)),
            Effect::Consult { id, point } => self.waiting.push(Waiting::Consult(id, point)),
            Effect::Compact { id, forced, task, .. } => {
                self.compactions.asked(id, forced)?;
                let messages = run.map(|run| run.messages().to_vec()).unwrap_or_default();
                self.waiting.push(Waiting::Compact(id, messages, task));
            }
            _ => {}
        }
        Ok(())
    }

    fn drop_waiting(&mut self, id: EffectId) {
        if let Some(at) = self.waiting.iter().position(|waiting| waiting.id() == id) {
            let gone = self.waiting.swap_remove(at);
            self.old.push(gone);
        }
    }

    fn next_event(&mut self, setup: &Setup, phase: &str) -> EventKind {
        self.now += Duration::from_millis(self.rng.below(8));
        if phase == "stopping" && self.rng.chance(10) {
            return match self.rng.below(3) {
                0 => EventKind::Cancel,
                1 => EventKind::Terminate,
                _ => scripted_fault(),
            };
        }
        match self.rng.below(1000) {
            0..=1 => return EventKind::Cancel,
            5..=6 => return EventKind::Terminate,
            7 => {
                return scripted_fault();
            }
            4..=90 => return self.noise(),
            91..=140 => return EventKind::Tick,
            141..=143 => {
                let text = if self.rng.chance(20) { " " } else { SAID };
                return EventKind::Said { text: text.to_owned() };
            }
            144..=146 => return self.changed_limits(setup),
            _ => {}
        }
        let must_wait = self.waiting.is_empty();
        if (must_wait || self.rng.chance(6))
            && let Some(at) = self.wake
            && (must_wait || at < self.now + Duration::from_millis(500))
        {
            self.now = self.now.max(at);
            self.wake = None;
            self.idle = 0;
            return EventKind::Tick;
        }
        if must_wait {
            // Nothing is due: only time can help, and the kernel must have asked for a tick.
            self.now += Duration::from_secs(2);
            self.idle += 1;
            return EventKind::Tick;
        }
        self.idle = 0;
        let at = self.rng.below(self.waiting.len() as u64) as usize;
        if let Waiting::Consult(id, ConsultPoint::Approval { .. } | ConsultPoint::Reply) =
            self.waiting[at]
            && self.rng.chance(30)
        {
            return self.parks(id);
        }
        if let Waiting::Call { id, .. } = self.waiting[at]
            && self.rng.chance(55)
        {
            return EventKind::Delta { call: id, delta: self.delta() };
        }
        let waiting = self.waiting.swap_remove(at);
        self.old.push(waiting.clone());
        self.answer(waiting, setup)
    }
}

/// `true` if other deltas could lead to another outcome, because a policy ended the run mid-stream.
pub fn cut_in_mid_stream(outcome: &Outcome) -> bool {
    outcome.decided_by.evidence.contains("mid-stream")
}

/// Returns a value that contains the whole outcome, for comparisons.
pub fn all_of(outcome: &Outcome) -> Value {
    serde_json::to_value(outcome).unwrap_or_default()
}
