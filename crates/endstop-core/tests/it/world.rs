//! A random world around the kernel: models, tools, hooks, people and clocks that answer, send
//! wrong ids, answer late or twice, and interrupt. One seed determines everything.
//!
//! `play(seed)` plays one run and checks the laws of the kernel on the way. The test `kernel_laws`
//! plays some thousands of seeds, the example `soak` a million.

use crate::changes::{ChangeLaw, SECRET, only_reviewed};
use crate::laws::{
    CompactionLaw, check_ceilings, check_compaction, check_declared, check_outcome, check_spent,
    only_stops, quotes_exactly, shortened,
};
use endstop_core::replay::{GoesOn, go_on};
use endstop_core::*;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// The SplitMix64 generator: one `u64` of state, so that a seed reproduces a world on every
/// platform.
#[derive(Clone)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }
}

/// A policy that stops, tells or panics if marks in the text say so. Mid-stream it sees the text in
/// chunks.
#[derive(Clone, Default)]
struct Marks {
    seen: String,
    steps: u32,
    counted_to: u32,
}

const END_MARKS: [(&str, PolicyEnd); 4] = [
    ("[submit]", PolicyEnd::Submitted),
    ("[stuck]", PolicyEnd::NoProgress),
    ("[mistaken]", PolicyEnd::ConsecutiveMistakes),
    ("[halt]", PolicyEnd::Halted),
];

impl TerminationPolicy for Marks {
    fn name(&self) -> &str {
        "marks"
    }
    fn should_terminate(&mut self, step: &StepResult, context: &StepContext) -> Verdict {
        self.steps += 1;
        assert!(context.step >= i64::from(self.steps) - 1, "each step is seen once");
        let text = step.output.clone().unwrap_or_default();
        assert!(!text.contains("[panic]"), "asked to panic");
        if text.contains("[tell]") {
            return Verdict::Tell("told".to_owned());
        }
        for output in &step.outputs {
            if output.output.contains("[submit]") {
                return Verdict::Stop(Stop::submitted("marks", "a tool said so").answer("tool"));
            }
        }
        match END_MARKS.iter().find(|(mark, _)| text.contains(mark)) {
            Some((mark, end)) => Verdict::Stop(Stop {
                ends_as: *end,
                ..Stop::submitted("marks", *mark).answer("text")
            }),
            None => Verdict::Continue,
        }
    }
    fn begin_turn(&mut self) {
        self.seen.clear();
    }
    fn on_delta(&mut self, piece: &str, _: &StepContext) -> Option<Stop> {
        self.seen.push_str(piece);
        // Mid-stream only submissions are seen, so a mark that spans two chunks is missed on
        // purpose.
        self.seen.contains("[submit]").then(|| Stop::submitted("marks", "[submit]").answer("text"))
    }
    fn reset(&mut self) {
        (self.steps, self.counted_to) = (0, 0);
        self.seen.clear();
    }
}

/// The parameters of a world, derived from its seed.
pub struct Setup {
    pub price: Option<Price>,
    pub limits: Limits,
    pub shared: bool,
    pub window: u64,
    pub hooks: Hooks,
}

pub fn spec(rng: &mut Rng) -> (RunSpec, Setup) {
    let maybe = |rng: &mut Rng, percent: u64, value: u32| rng.chance(percent).then_some(value);
    let default = Limits::default();
    // No `..default`, so that the random worlds do not compile without a value for a new limit.
    let mut limits = Limits {
        max_turns: if rng.chance(4) {
            None
        } else {
            Some([0, 4, 12, 20, 30][rng.below(5) as usize])
        },
        max_consecutive_mistakes: {
            let n = 1 + rng.below(4) as u32;
            maybe(rng, 80, n)
        },
        max_unproductive_turns: {
            let n = 1 + rng.below(4) as u32;
            maybe(rng, 80, n)
        },
        max_structured_output_retries: {
            let n = rng.below(3) as u32;
            maybe(rng, 90, n)
        },
        max_retries: Some(rng.below(3) as u32),
        max_empty_turns: {
            let n = rng.below(3) as u32;
            maybe(rng, 90, n)
        },
        max_continuations: rng.below(3) as u32,
        tool_concurrency: 1 + rng.below(4) as u32,
        accept_unknown_finish: rng.chance(20),
        tool_timeout: rng.chance(70).then(|| Duration::from_millis(50)),
        turn_timeout: rng.chance(50).then(|| Duration::from_millis(400)),
        first_content_timeout: rng.chance(70).then(|| Duration::from_millis(200)),
        stall_timeout: rng.chance(70).then(|| Duration::from_millis(150)),
        cancel_grace: Duration::from_millis(rng.below(3) * 20),
        // Some of these are set below.
        max_budget_usd: None,
        max_tokens: None,
        timeout: None,
        max_tool_timeout: default.max_tool_timeout,
        retry_for: default.retry_for,
    };
    if limits.max_turns == Some(0) && rng.chance(90) {
        limits.max_turns = Some(25);
    }
    let price = rng.chance(60).then(|| Price {
        input: NanoUsd(rng.below(5_000_000_000)),
        output: NanoUsd(rng.below(20_000_000_000)),
        ..Price::default()
    });
    if price.is_some() && rng.chance(40) {
        limits.max_budget_usd = Some(rng.below(4000) as f64 / 1000.0);
    }
    if rng.chance(20) {
        limits.max_tokens = Some(rng.below(90_000));
    }
    if rng.chance(25) {
        limits.timeout = Some(Duration::from_millis(20 + rng.below(2000)));
    }
    let permission = |rng: &mut Rng| match rng.below(8) {
        0 | 1 => Permission::Ask,
        2 if rng.chance(40) => Permission::Deny,
        _ => Permission::Allow,
    };
    let tools = ["read", "write", "wait", "code"]
        .into_iter()
        .map(|name| ToolPolicy {
            name: name.to_owned(),
            parallel_safe: name == "read" || name == "wait",
            runs_code: name == "code",
            repeatable: name == "read",
            exempt_from_no_progress: name == "wait",
            timeout: None,
            timeout_argument: None,
            permission: permission(rng),
        })
        .collect();
    let shared = rng.chance(20);
    let window = [2_000, 32_000, 128_000][rng.below(3) as usize];
    let spec = RunSpec {
        limits: limits.clone(),
        policy: rng.chance(60).then(|| Box::new(Marks::default()) as Box<dyn TerminationPolicy>),
        tools,
        finish_tool: rng.chance(80),
        hooks: Hooks {
            prompt: rng.chance(10),
            pre_iteration: rng.chance(15),
            chat_params: rng.chance(15),
            pre_tool: rng.chance(20),
            post_tool: rng.chance(25),
            pre_call: rng.chance(10),
            stop: rng.chance(20),
            ..Hooks::default()
        },
        output_schema: rng.chance(25),
        compaction: CompactionSpec {
            proactive: match rng.below(4) {
                0 => ProactiveCompaction::Ask,
                1 => ProactiveCompaction::AtShare(0.02),
                _ => ProactiveCompaction::Never,
            },
            reactive: rng.chance(50),
            ..CompactionSpec::default()
        },
        context_window: rng.chance(80).then_some(window),
        prompt_overhead: rng.below(200),
        output_cap: rng.chance(60).then(|| 1 + rng.below(3000)),
        thinking_budget: if rng.chance(20) { 300 } else { 0 },
        reserve: true,
        shared_budget: shared,
        nudge: rng.chance(80),
        ..RunSpec::new(vec![Message::text(MessageId(1), Role::User, "do it")])
    };
    let hooks = spec.hooks;
    (spec, Setup { price, limits, shared, window, hooks })
}

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
            | Waiting::Reserve(id, ..) => *id,
        }
    }
}

/// A failure of user code.
fn scripted_fault() -> EventKind {
    EventKind::Fault { name: "script".to_owned(), message: "scripted fault".to_owned() }
}

pub const KINDS: [&str; 14] = [
    "start",
    "delta",
    "turn_ended",
    "turn_failed",
    "tool_ended",
    "answered",
    "compacted",
    "validated",
    "reserved",
    "observe",
    "tick",
    "cancel",
    "terminate",
    "fault",
];
pub const PHASES: [&str; 12] = [
    "new",
    "consulting_prompt",
    "consulting_pre_iteration",
    "consulting_chat_params",
    "consulting_pre_call",
    "consulting_stop",
    "reserving",
    "calling",
    "backoff",
    "tools",
    "compacting",
    "validating",
];

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
pub fn go_on_and_play(seed: u64, on: GoesOn) -> Result<Played, String> {
    let mut rng = Rng(seed);
    let (_, setup) = spec(&mut rng);
    let limits = on.events.iter().rev().find_map(|event| match &event.kind {
        EventKind::Resumed(with) => with.limits.clone(),
        _ => None,
    });
    let setup = Setup { limits: limits.unwrap_or(setup.limits), ..setup };
    // A different random sequence from the one that the run had before.
    let Step::Continue(run) = on.step else { return Err("it ended".to_owned()) };
    play_from(seed, (Rng(!seed), setup), run, on.events, on.perform, &[])
}

fn play_from(
    seed: u64,
    (rng, setup): (Rng, Setup),
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
    };
    let mut pairs = Vec::new();
    let mut effects = Vec::new();
    let mut died = 0;
    let alive = Step::Continue(run);
    for effect in perform {
        world.take(effect, &alive)?;
    }
    let Step::Continue(mut run) = alive else { return Err("the run has ended".to_owned()) };
    for _ in 0..3000 {
        // A run whose ending is decided is closed instead of resumed.
        let dies = deaths.get(died).is_some_and(|after| *after <= events.len());
        if dies && run.phase().as_str() != "stopping" {
            died += 1;
            let again = || self::spec(&mut Rng(seed)).0;
            let on = go_on(again, std::mem::take(&mut events), Resumption::default())
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
                _ => world.noise(),
            }
        } else {
            started = true;
            EventKind::Start { seed, price: setup.price, wall_ms: None }
        };
        if world.idle > 3 {
            return Err(format!(
                "stuck in {}: no open effect and no requested tick",
                run.phase().as_str()
            ));
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
            quotes_exactly(&setup.limits, setup.price, next, world.offered.take())?;
        }
        if let Step::Continue(next) = &step {
            let after = (next.epoch(), next.messages());
            check_compaction(compacted, (before.0, &before.1), after)?;
        }
        world.compactions.heard(&effects);
        world.changes.heard(&effects)?;
        if world.stopped {
            only_stops(&effects)?;
        }
        for effect in effects.drain(..) {
            world.take(effect, &step)?;
        }
        match step {
            Step::Continue(next) => {
                check_ceilings(
                    &setup.limits,
                    next.committed(),
                    next.reserved(),
                    next.committed_tokens(),
                    NanoUsd::ZERO,
                )?;
                run = next;
            }
            Step::Ended(outcome) => {
                check_spent(&setup.limits, &outcome)?;
                check_outcome(&outcome)?;
                only_reviewed(setup.hooks, &outcome)?;
                check_declared(phase, &kind, &outcome)?;
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

/// The recorded events with a clock that is sometimes set back: some events get an earlier time
/// than the previous one.
pub fn set_back(events: &[Event], rng: &mut Rng) -> Vec<Event> {
    let mut latest = Duration::ZERO;
    let mut told = Vec::with_capacity(events.len());
    for event in events {
        // An event at the same time as the previous one may also be reported as earlier than it.
        let repeats = event.at <= latest;
        latest = latest.max(event.at);
        let at = if repeats && rng.chance(60) {
            latest.saturating_sub(Duration::from_millis(1 + rng.below(10_000_000)))
        } else {
            event.at
        };
        told.push(Event::new(at, event.kind.clone()));
    }
    told
}

/// Splits the text deltas of recorded events at random positions.
pub fn cut_elsewhere(events: &[Event], rng: &mut Rng) -> Vec<Event> {
    let mut out = Vec::new();
    for event in events {
        match &event.kind {
            EventKind::Delta { call, delta: TurnDelta::Text(text) } if text.len() > 1 => {
                let chars: Vec<char> = text.chars().collect();
                let at = rng.below(chars.len() as u64 + 1) as usize;
                for part in [&chars[..at], &chars[at..]] {
                    let delta = TurnDelta::Text(part.iter().collect());
                    out.push(Event::new(event.at, EventKind::Delta { call: *call, delta }));
                }
            }
            _ => out.push(event.clone()),
        }
    }
    out
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
        if let Waiting::Call { id, .. } = self.waiting[at]
            && self.rng.chance(55)
        {
            return EventKind::Delta { call: id, delta: self.delta() };
        }
        let waiting = self.waiting.swap_remove(at);
        self.old.push(waiting.clone());
        self.answer(waiting, setup)
    }

    /// Returns an event that answers nothing: late, repeated, never requested, or only informative.
    fn noise(&mut self) -> EventKind {
        let id = if self.old.is_empty() || self.rng.chance(30) {
            EffectId(self.rng.below(200) + 1_000_000)
        } else {
            let at = self.rng.below(self.old.len() as u64) as usize;
            self.old[at].id()
        };
        match self.rng.below(11) {
            0 => EventKind::Start { seed: 1, price: None, wall_ms: None },
            1 => EventKind::Delta { call: id, delta: TurnDelta::Text("late [submit]".to_owned()) },
            2 => EventKind::TurnEnded {
                call: id,
                turn: Box::new(ModelTurn::new(
                    vec![Part::Text { text: "late".to_owned() }],
                    TerminationSignal::new(SignalReason::NaturalCompletion, Confidence::High),
                )),
            },
            3 => EventKind::TurnFailed {
                call: id,
                error: ModelError::new(ErrorClass::ServerError, "late"),
                partial: None,
            },
            4 => EventKind::ToolEnded { tool: id, report: ToolReport::new(ToolStatus::Ok, "late") },
            5 => EventKind::Answered { id, answer: HookDecision::Halt("late".to_owned()) },
            6 => EventKind::Compacted { id, result: Compaction::Failed("late".to_owned()) },
            7 => EventKind::Validated { id, result: Err("late".to_owned()) },
            8 => EventKind::Reserved {
                id,
                granted: NanoUsd(1),
                granted_tokens: None,
                refused_by: None,
            },
            9 => EventKind::Tick,
            _ => {
                let mut metrics = Map::new();
                metrics.insert("last_reward".to_owned(), json!(0.1));
                EventKind::Observe { variables: Map::new(), metrics }
            }
        }
    }

    fn text(&mut self) -> String {
        self.reasons += 1;
        match self.rng.below(200) {
            0 => "done [submit] now".to_owned(),
            1 => "done [stuck]".to_owned(),
            2 => "done [mistaken]".to_owned(),
            3 => "done [halt]".to_owned(),
            4 => "oh [panic]".to_owned(),
            5..=12 => "well [tell]".to_owned(),
            13..=80 => String::new(),
            81..=110 => "again".to_owned(),
            _ => format!("thought {}", self.reasons),
        }
    }

    fn delta(&mut self) -> TurnDelta {
        match self.rng.below(12) {
            0 => TurnDelta::Text(String::new()),
            1..=3 => TurnDelta::Reasoning(self.rng.below(20)),
            4 => TurnDelta::ToolArguments(self.rng.below(20)),
            5 if self.rng.chance(20) => self.piece("[sub"),
            6 => self.piece("mit]"),
            _ => self.piece("word "),
        }
    }

    fn piece(&mut self, piece: &str) -> TurnDelta {
        self.partial.push_str(piece);
        TurnDelta::Text(piece.to_owned())
    }

    fn answer(&mut self, waiting: Waiting, setup: &Setup) -> EventKind {
        match waiting {
            Waiting::Call { id, cap, prompt } => self.model(id, cap, prompt, setup),
            Waiting::Tool(tool) => {
                let mut report = match self.rng.below(14) {
                    0..=1 => ToolReport::new(ToolStatus::Error, "no"),
                    2 => {
                        let mut report = ToolReport::new(ToolStatus::Ok, "never forget this");
                        report.pinned = true;
                        report
                    }
                    3 if self.rng.chance(15) => ToolReport::new(ToolStatus::Ok, "[submit]"),
                    4..=8 => ToolReport::new(ToolStatus::Ok, format!("r{}", self.rng.next())),
                    _ => ToolReport::new(ToolStatus::Ok, "same"),
                };
                if setup.hooks.post_tool && self.rng.chance(50) {
                    report.content = SECRET.to_owned();
                }
                if self.rng.below(400) == 0 {
                    report.halt = Some("the tool says halt".to_owned());
                }
                EventKind::ToolEnded { tool, report }
            }
            Waiting::Consult(id, point) => {
                let secret = matches!(
                    &point,
                    ConsultPoint::PostTool { result, .. } if result.content.contains(SECRET)
                );
                let answer = match (self.rng.below(16), point) {
                    (0, ConsultPoint::Stop { .. } | ConsultPoint::Approval { .. }) => {
                        HookDecision::Halt("halt".to_owned())
                    }
                    (0, _) if self.rng.chance(8) => HookDecision::Halt("halt".to_owned()),
                    (
                        1..=4,
                        ConsultPoint::Stop { .. }
                        | ConsultPoint::PreTool { .. }
                        | ConsultPoint::Approval { .. },
                    ) => HookDecision::Deny("not so".to_owned()),
                    (5, _) => HookDecision::ProceedWith("by the way".to_owned()),
                    (6, _) => HookDecision::OutputCap(1 + self.rng.below(2000)),
                    (12..=14, point) => self.changed(point),
                    _ => HookDecision::Proceed,
                };
                // The hook removes the secret, whatever else it does.
                let answer = match (answer, secret) {
                    (answer @ (HookDecision::Halt(_) | HookDecision::Deny(_)), _)
                    | (answer, false) => answer,
                    (_, true) => HookDecision::ChangeResult(ChangedResult::ok("clean")),
                };
                EventKind::Answered { id, answer }
            }
            Waiting::Compact(id, messages, task) => {
                let result = match self.rng.below(12) {
                    0 => Compaction::Failed("could not".to_owned()),
                    1..=3 => Compaction::done("tells the truth", shortened(messages, task)),
                    4 if self.rng.chance(50) => {
                        Compaction::done("lies", self.spoiled(messages, task))
                    }
                    _ => Compaction::NotNeeded,
                };
                EventKind::Compacted { id, result }
            }
            Waiting::Validate(id) => {
                let result =
                    if self.rng.chance(40) { Err("wrong".to_owned()) } else { Ok(json!({"k": 1})) };
                EventKind::Validated { id, result }
            }
            Waiting::Reserve(id, [want, least], [want_tokens, least_tokens]) => {
                let left = self.shared_left;
                let granted = (want.0.min(left.0), want_tokens.min(left.1));
                if granted.0 >= least.0 && granted.1 >= least_tokens {
                    self.shared_left = (left.0 - granted.0, left.1 - granted.1);
                    self.held.insert(id, granted);
                    self.offered = Some(left);
                }
                let (usd, tokens) = granted;
                EventKind::Reserved {
                    id,
                    granted: NanoUsd(usd),
                    granted_tokens: Some(tokens),
                    refused_by: None,
                }
            }
        }
    }

    /// Returns an answer that changes a call or a result, rarely one that is not valid.
    fn changed(&mut self, point: ConsultPoint) -> HookDecision {
        let answer = match point {
            ConsultPoint::PreTool { call } | ConsultPoint::Approval { call } => {
                let mut call = ToolCall { arguments: json!({"n": 7}).to_string(), ..call };
                match self.rng.below(60) {
                    0 => call.name = "write".to_owned(),
                    1 => call.id = "other".to_owned(),
                    2..=8 => call.arguments = "{broken".to_owned(),
                    9..=30 => call.arguments = json!({"n": self.rng.below(9000)}).to_string(),
                    _ => {}
                }
                HookDecision::ChangeCall(call)
            }
            ConsultPoint::PostTool { .. } if self.rng.chance(30) => {
                HookDecision::ChangeResult(ChangedResult::error("failed after all"))
            }
            ConsultPoint::PostTool { .. } => HookDecision::ChangeResult(ChangedResult::ok("same")),
            _ if self.rng.chance(5) => {
                HookDecision::ChangeResult(ChangedResult::ok("not a result"))
            }
            _ => HookDecision::Proceed,
        };
        if self.rng.chance(20) {
            return HookDecision::WithNote {
                note: "by the way".to_owned(),
                answer: Box::new(answer),
            };
        }
        answer
    }

    /// Returns a compaction result that grows, changes nothing, or breaks the conversation.
    fn spoiled(&mut self, mut messages: Vec<Message>, task: Option<MessageId>) -> Vec<Message> {
        let at = self.rng.below(messages.len() as u64) as usize;
        match self.rng.below(8) {
            0 => {}
            1 => messages.clear(),
            2 => messages.push(Message::text(MessageId(900), Role::User, "and much more of it")),
            3 => drop(messages.remove(at)),
            4 => messages.truncate(at),
            5 => messages[at].role = Role::User,
            6 => messages.retain(|message| task != Some(message.id)),
            _ => messages = vec![Message::text(MessageId(901), Role::User, "summary")],
        }
        messages
    }

    fn model(&mut self, call: EffectId, cap: Option<u64>, prompt: u64, setup: &Setup) -> EventKind {
        let classes = ErrorClass::ALL;
        if self.rng.chance(6) {
            let class = *self.rng.pick(&classes);
            let mut error = ModelError::new(class, "scripted");
            if self.rng.chance(20) {
                error.retry_after_ms = Some(*self.rng.pick(&[10, 1000, 120_000]));
            }
            return EventKind::TurnFailed { call, error, partial: None };
        }
        let streamed = std::mem::take(&mut self.partial);
        // Reasoning uses up the whole cap.
        let starves = streamed.is_empty() && self.rng.below(36) == 0;
        let text = match streamed {
            _ if starves => String::new(),
            streamed if streamed.is_empty() => self.text(),
            streamed => streamed,
        };
        let mut parts = Vec::new();
        let calls = if starves { 99 } else { self.rng.below(100) };
        let mut wants_tools = false;
        if !text.is_empty() {
            parts.push(Part::Text { text: text.clone() });
        }
        if calls < 90 {
            wants_tools = true;
            for n in 0..=self.rng.below(3) {
                let name = *self.rng.pick(&[
                    "read", "read", "read", "read", "write", "write", "wait", "code", "code",
                    "nope",
                ]);
                let name = if self.rng.below(150) == 0 { "finish" } else { name };
                let arguments = match self.rng.below(20) {
                    0 => "{broken".to_owned(),
                    1 if name == "finish" => json!({"infeasible": "cannot"}).to_string(),
                    2..=6 if name == "finish" => json!({"infeasible": true}).to_string(),
                    _ if name == "finish" => {
                        json!({"deliverable": "d", "summary": "s"}).to_string()
                    }
                    2..=8 => json!({"n": 1}).to_string(),
                    _ => json!({"n": self.rng.next() % 1000}).to_string(),
                };
                // Sometimes the same id twice in one response.
                let id = if self.rng.chance(3) { "c0".to_owned() } else { format!("c{n}") };
                parts.push(Part::ToolCall(ToolCall { id, name: name.to_owned(), arguments }));
            }
        }
        let reason = match self.rng.below(300) {
            0..=3 => SignalReason::TokenLimitReached,
            4 => SignalReason::ContentFiltered,
            5..=6 => SignalReason::Unknown,
            7..=20 => SignalReason::Paused,
            21 => SignalReason::ErrorTermination,
            22 => SignalReason::InProgress,
            23 => SignalReason::StopSequence,
            _ if wants_tools => SignalReason::ToolUse,
            _ => SignalReason::NaturalCompletion,
        };
        let signal =
            TerminationSignal::new(reason, Confidence::High).from_field("f", reason.as_str());
        let starving = starves || (!wants_tools && text.is_empty() && self.rng.chance(40));
        let mut turn = ModelTurn::new(parts, signal);
        // A correct provider: no more prompt tokens than bytes, and no more output than the cap.
        let most = cap.unwrap_or(2_000);
        let output = if starving { most } else { 1 + self.rng.below(most.min(900)) };
        // One token per message, so that a counted message counts the same in the next prompt.
        turn.usage.input_tokens = Some(prompt);
        turn.usage.output_tokens = Some(output);
        if self.rng.chance(5) {
            turn.usage = Usage::default();
        }
        if self.rng.chance(1) && self.rng.chance(50) {
            turn.unparseable = Some("broken".to_owned());
        }
        let _ = setup;
        EventKind::TurnEnded { call, turn: Box::new(turn) }
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
