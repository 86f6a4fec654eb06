//! A conversation over the servers: runs that are stopped in a random way at a random moment, and
//! checked.
//!
//! ```text
//! while world.take() { Conversation::new(&world, place)?.talk().await }
//! ```

use crate::budgets::Budgets;
use crate::checks::{self, Asked};
use crate::dice::Dice;
use crate::rough::Rough;
use crate::tally::Tally;
use crate::tools::{Act, AtWork, Deaf};
use crate::verdicts::Picky;
use endstop::event::AgentEvent;
use endstop::provider::http::HttpProvider;
use endstop::tool::{AgentTool, Shell};
use endstop::{
    Agent, AgentBuilder, Lifecycle, Limits, Message, NanoUsd, Outcome, Price, Role, RunHandle,
    Session, StartError, Termination,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time limits for a run and for its end after a stop. Exceeding one is a failure.
// Far above the limits of a run, so that a busy machine does not cause failures.
const LONGEST: Duration = Duration::from_secs(30);
const LONGEST_END: Duration = Duration::from_secs(5);

/// The state that the conversations of a round share.
pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) round: u64,
    pub(crate) providers: Vec<HttpProvider>,
    pub(crate) budgets: Budgets,
    pub(crate) tally: Arc<Tally>,
    /// Number of runs that are left.
    pub(crate) runs: AtomicU64,
    /// Sum of the costs in the outcomes of runs with a budget, in nano-dollars.
    pub(crate) cost: AtomicU64,
}

impl World {
    fn take(&self) -> bool {
        let less = |runs: u64| runs.checked_sub(1);
        self.runs.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

/// Makes one conversation after the other while there are runs left.
pub(crate) async fn lane(world: Arc<World>, lane: u64) {
    let mut number = 0;
    while world.take() {
        number += 1;
        let place = [world.round, lane, number];
        match Conversation::new(&world, place) {
            Ok(conversation) => conversation.talk().await,
            Err(problem) => world.tally.broken(&format!("{place:?}: {problem}")),
        }
    }
}

/// A way to stop a run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stop {
    No,
    Cancel,
    CancelTheLoop,
    Terminate,
    /// Terminates from a thread outside of the runtime.
    TerminateFromAfar,
    Drop,
    Detach,
}

/// The notifications that observers received.
#[derive(Default)]
struct Heard {
    ended: Mutex<Vec<Arc<Outcome>>>,
    over: AtomicBool,
    late: AtomicBool,
    busy: Mutex<Vec<bool>>,
}

impl Heard {
    fn event(&self, event: &AgentEvent) {
        if self.over.load(Ordering::SeqCst) {
            self.late.store(true, Ordering::SeqCst);
        }
        if let AgentEvent::Finished { outcome, .. } = event {
            self.over.store(true, Ordering::SeqCst);
            self.ended.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(outcome));
        }
    }

    fn busy(&self, busy: bool) {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner).push(busy);
    }

    fn ended(&self) -> Vec<Arc<Outcome>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns `true` if the beginning and the end of each of these runs was reported.
    fn busy_and_idle(&self, runs: usize) -> bool {
        let told = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        // A loop that is terminated while it is idle reports that once more.
        let whole = told.len() == 2 * runs || told.len() == 2 * runs + 1;
        whole
            && told.iter().take(2 * runs).enumerate().all(|(at, busy)| *busy == (at % 2 == 0))
            && told.last() == Some(&false)
    }
}

struct Conversation<'a> {
    world: &'a World,
    place: [u64; 3],
    agent: Agent,
    session: Session,
    limits: Limits,
    budget: bool,
    rough: bool,
    heard: Arc<Heard>,
    at_work: AtWork,
}

/// Returns the price of the scripted model, so that budgets and reservations have an effect.
fn price() -> Price {
    Price {
        input: NanoUsd::from_usd(1.0),
        output: NanoUsd::from_usd(4.0),
        cached_input: None,
        cache_write: None,
        cache_write_1h: None,
        ..Price::default()
    }
}

/// Returns short limits, so that many runs end by them.
fn limits(dice: &mut Dice) -> Limits {
    let at_times = |dice: &mut Dice, share: u64| dice.percent(share);
    Limits {
        max_turns: Some(dice.between(1, 8) as u32),
        max_budget_usd: at_times(dice, 10).then(|| dice.between(1, 40) as f64 / 10_000.0),
        max_tokens: at_times(dice, 6).then(|| dice.between(300, 20_000)),
        timeout: at_times(dice, 12).then(|| dice.millis(1, 150)),
        turn_timeout: Some(dice.millis(20, 400)),
        first_content_timeout: Some(dice.millis(20, 80)),
        stall_timeout: Some(dice.millis(20, 80)),
        tool_timeout: Some(dice.millis(20, 60)),
        cancel_grace: dice.millis(0, 20),
        max_retries: Some(dice.below(3) as u32),
        max_empty_turns: dice.pick(Some(1), &[None, Some(0)]),
        max_continuations: dice.below(2) as u32,
        tool_concurrency: dice.between(1, 4) as u32,
        accept_unknown_finish: dice.percent(20),
        ..Limits::default()
    }
}

impl<'a> Conversation<'a> {
    fn new(world: &'a World, place: [u64; 3]) -> Result<Conversation<'a>, String> {
        let dice = &mut Dice::new(world.seed, &place);
        let at = dice.below(world.providers.len() as u64) as usize;
        let provider = world.providers.get(at).ok_or("no provider")?.clone();
        let (mut limits, heard, at_work) =
            (limits(dice), Arc::<Heard>::default(), AtWork::default());
        let budget = if dice.percent(40) { world.budgets.one(dice) } else { None };
        let within = budget.is_some();
        let rough = dice.percent(30).then(|| Rough::new(dice, within, &at_work, &world.tally));
        if rough.is_some() {
            // Only the time limit of the run can end a hook that hangs.
            limits.timeout = limits.timeout.or(Some(dice.millis(50, 400)));
        }
        let tally = Arc::clone(&world.tally);
        let (told, told_busy) = (Arc::clone(&heard), Arc::clone(&heard));
        let mut builder = tools(provider.clone(), &at_work)
            .limits(limits.clone())
            .streaming(!dice.percent(15))
            .system("Be brief.")
            .on_event(move |event| {
                if let AgentEvent::ToolStarted { name, .. } = event {
                    tally.tool(name);
                }
                told.event(event);
            })
            .on_busy(move |busy| told_busy.busy(busy));
        if dice.percent(3) {
            builder = builder.tool(Shell::default());
        }
        if dice.percent(8) {
            let (inner, at_work, rough) = (limits.clone(), at_work.clone(), rough.clone());
            let mut other = tools(provider.clone(), &at_work).limits(inner);
            if let Some(rough) = &rough {
                other = rough.stand_in(other);
            }
            let other = other.build().map_err(|problem| problem.to_string())?;
            let ask = AgentTool::new("ask", "Asks another.", other);
            // Half of the nested runs are stopped by the time limit of their tool.
            let ask = if dice.percent(50) { ask.timeout(dice.millis(20, 200)) } else { ask };
            builder = builder.tool(ask);
        }
        if let Some(rough) = &rough {
            builder = rough.stand_in(builder);
        }
        if let Some(budget) = budget {
            builder = builder.shared_budget(budget);
        }
        // Choices of their own, so that the other choices of a seed stay as they were.
        let dice = &mut Dice::new(world.seed, &[place[0], place[1], place[2], 2]);
        if dice.percent(20) {
            limits.verify_rounds = dice.percent(80).then(|| dice.between(1, 3) as u32);
            limits.verify_timeout = Some(dice.millis(20, 60));
            builder = builder.limits(limits.clone()).verifier(Picky::new(dice, &world.tally));
        }
        if dice.percent(30) {
            (limits.wrap_up, limits.tell_remaining) = (true, dice.percent(30));
            builder = builder.limits(limits.clone());
        }
        let agent = builder.build().map_err(|problem| problem.to_string())?;
        let session = agent.session();
        let rough = rough.is_some();
        Ok(Conversation {
            world,
            place,
            agent,
            session,
            limits,
            budget: within,
            rough,
            heard,
            at_work,
        })
    }

    fn broken(&self, what: &str) {
        self.world.tally.broken(&format!("conversation {:?}: {what}", self.place));
    }

    async fn talk(self) {
        let mut dice =
            Dice::new(self.world.seed, &[self.place[0], self.place[1], self.place[2], 1]);
        let mut runs = 0;
        let mut goes_on = true;
        while goes_on {
            runs += 1;
            let ended = self.run(&mut dice, runs).await;
            goes_on = ended && dice.percent(60) && self.world.take();
        }
        if tokio::time::timeout(LONGEST, self.agent.settled()).await.is_err() {
            self.broken("some work of the loop does not end");
        }
        if self.heard.late.load(Ordering::SeqCst) {
            self.broken("an event after the ending");
        }
        if !self.heard.busy_and_idle(runs) {
            self.broken(&format!("busy as {:?} in {runs} runs", self.heard.busy));
        }
    }

    /// Makes one run; returns `true` if the loop can run again.
    async fn run(&self, dice: &mut Dice, number: usize) -> bool {
        let before = self.heard.ended().len();
        let conversation = self.session.messages();
        self.heard.over.store(false, Ordering::SeqCst);
        let began = Instant::now();
        let handle = match self.session.run("Go on.") {
            Ok(handle) => handle,
            Err(problem) => {
                self.broken(&format!("run {number} does not start: {problem}"));
                return false;
            }
        };
        let others = [
            (14, Stop::Cancel),
            (12, Stop::CancelTheLoop),
            (8, Stop::Terminate),
            (4, Stop::TerminateFromAfar),
            (8, Stop::Drop),
            (4, Stop::Detach),
        ];
        let stop = dice.weighed(Stop::No, &others);
        self.world.tally.stopped(&format!("{stop:?}"));
        // Within the time that most runs take, so that stops hit every phase.
        let at = Duration::from_micros(dice.below(80_000));
        let mut asked =
            Asked { limits: self.limits.clone(), rough: self.rough, ..Asked::default() };
        asked.cancel = matches!(stop, Stop::Cancel | Stop::CancelTheLoop | Stop::Drop);
        asked.terminate = matches!(stop, Stop::Terminate | Stop::TerminateFromAfar);

        // A handle may be read, awaited or dropped; each has its own path to the outcome.
        let followed = match stop {
            Stop::Drop | Stop::Detach => self.left_alone(handle, stop, at, before).await,
            _ if dice.percent(70) => self.read(handle, stop, at).await,
            _ => self.unread(handle, stop, at).await,
        };
        let Some(outcome) = followed else {
            self.broken(&format!("run {number}, {stop:?}: it does not end"));
            self.agent.terminate();
            return false;
        };
        asked.took = began.elapsed();
        self.world.tally.ended(outcome.termination.as_str());
        for problem in checks::outcome(&outcome, &asked) {
            self.broken(&format!("run {number}, {stop:?}: {problem}"));
        }
        if self.at_work.count() > 0 {
            self.broken(&format!("run {number}, {stop:?}: a tool is still running"));
        }
        if self.budget {
            // If the provider did not report the usage, the budget books the upper bound.
            let counted = outcome.cost_upper.unwrap_or(outcome.cost);
            self.world.cost.fetch_add(counted.0, Ordering::Relaxed);
        }
        self.after(number, stop, (before, &conversation), &outcome)
    }

    /// Checks the loop after a run; returns `true` if it can run again.
    fn after(
        &self,
        number: usize,
        stop: Stop,
        (before, conversation): (usize, &[Message]),
        outcome: &Outcome,
    ) -> bool {
        let told = self.heard.ended();
        let told = told.get(before..).unwrap_or_default();
        if matches!(stop, Stop::Terminate | Stop::TerminateFromAfar) {
            // The ending is reported if the run had ended before it was terminated.
            if told.len() > 1 || self.agent.lifecycle() != Lifecycle::Terminated {
                self.broken(&format!("run {number}, {stop:?}: {} endings reported", told.len()));
            }
            if !matches!(self.session.run("Again."), Err(StartError::Terminated)) {
                self.broken("a terminated loop runs");
            }
            return false;
        }
        match told {
            [one] if **one == *outcome => {}
            [one] => self.broken(&format!("observers got {one:?}, the outcome is {outcome:?}")),
            _ => self.broken(&format!("run {number}, {stop:?}: {} endings reported", told.len())),
        }
        if self.agent.lifecycle() != Lifecycle::Idle {
            self.broken(&format!("run {number}, {stop:?}: {:?} after it", self.agent.lifecycle()));
        }
        // A run without any answer of the model leaves the conversation unchanged.
        let said = |message: &Message| message.role == Role::Assistant;
        let answered = outcome.turns > 0
            || outcome.messages.iter().filter(|message| said(message)).count()
                > conversation.iter().filter(|message| said(message)).count();
        let now = self.session.messages();
        if now != outcome.messages && (answered || now != conversation) {
            self.broken(&format!(
                "run {number}, {stop:?}: the conversation differs from the outcome's"
            ));
        }
        outcome.termination != Termination::Terminated
    }

    fn stop(&self, stop: Stop) {
        match stop {
            Stop::CancelTheLoop | Stop::Cancel => self.agent.cancel(),
            Stop::Terminate => self.agent.terminate(),
            Stop::TerminateFromAfar => {
                let agent = self.agent.clone();
                if std::thread::spawn(move || agent.terminate()).join().is_err() {
                    self.broken("terminate panicked");
                }
            }
            Stop::No | Stop::Drop | Stop::Detach => {}
        }
    }

    fn took(&self, since: Option<Instant>) {
        let Some(took) = since.map(|since| since.elapsed()) else { return };
        self.world.tally.took(took);
        if took > LONGEST_END {
            self.broken(&format!("it ended {took:?} after it was stopped"));
        }
    }

    /// Reads all events, and stops the run.
    async fn read(&self, mut handle: RunHandle, stop: Stop, at: Duration) -> Option<Outcome> {
        let mut events = Vec::new();
        let mut stopped = None;
        let reading = async {
            let wait = tokio::time::sleep(at);
            tokio::pin!(wait);
            loop {
                tokio::select! {
                    event = handle.next() => match event {
                        Some(event) => events.push(event),
                        None => break,
                    },
                    () = &mut wait, if stopped.is_none() && stop != Stop::No => {
                        stopped = Some(Instant::now());
                        if stop == Stop::Cancel { handle.cancel() } else { self.stop(stop) }
                    }
                }
            }
        };
        tokio::time::timeout(LONGEST, reading).await.ok()?;
        self.took(stopped);
        let outcome = tokio::time::timeout(LONGEST, handle.outcome()).await.ok()?;
        for problem in checks::events(&events, &outcome) {
            self.broken(&problem);
        }
        // A stop after the end must have no effect on the outcome.
        if stopped.is_none() {
            self.stop(stop);
        }
        Some(outcome)
    }

    /// Awaits only the outcome, and stops the run.
    async fn unread(&self, handle: RunHandle, stop: Stop, at: Duration) -> Option<Outcome> {
        let outcome = handle.outcome();
        tokio::pin!(outcome);
        let ended = tokio::time::timeout(at, &mut outcome).await.ok();
        self.stop(stop);
        let since = Instant::now();
        if ended.is_some() {
            return ended;
        }
        let outcome = tokio::time::timeout(LONGEST, outcome).await.ok()?;
        self.took((stop != Stop::No).then_some(since));
        Some(outcome)
    }

    /// Drops or detaches the handle, and takes the outcome from the observer.
    async fn left_alone(
        &self,
        handle: RunHandle,
        stop: Stop,
        at: Duration,
        before: usize,
    ) -> Option<Outcome> {
        tokio::time::sleep(at).await;
        if stop == Stop::Detach {
            handle.detach();
        } else {
            drop(handle);
        }
        let since = Instant::now();
        tokio::time::timeout(LONGEST, self.agent.settled()).await.ok()?;
        self.took((stop == Stop::Drop).then_some(since));
        self.heard.ended().get(before).map(|outcome| Outcome::clone(outcome))
    }
}

/// Returns a loop over this provider with the tools that all loops have.
fn tools(provider: HttpProvider, at_work: &AtWork) -> AgentBuilder {
    Agent::builder(provider)
        .price(price())
        .max_output_tokens(300)
        .tool(Act(at_work.clone()))
        .tool(Deaf(at_work.clone()))
}
