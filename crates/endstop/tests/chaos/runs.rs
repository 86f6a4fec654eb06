//! A conversation over the servers: runs that are steered, parked, answered and stopped in a random way
//! at a random moment, and checked.
//!
//! ```text
//! while world.take() { Conversation::new(&world, place)?.talk().await }
//! ```

use crate::budgets::Budgets;
use crate::checks::{self, Asked};
use crate::dice::Dice;
use crate::parks::{self, Next};
use crate::setup::{Conversation, Stored};
use crate::steer::{Plan, User};
use crate::stored::{self, Expected};
use crate::tally::Tally;
use endstop::agent::cancel_parked;
use endstop::core::EffectId;
use endstop::journal::SqliteJournal;
use endstop::park::{ParkRequest, RunStatus};
use endstop::provider::http::HttpProvider;
use endstop::{Lifecycle, Message, Outcome, Resume, Role, RunHandle, StartError, Termination};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Time limits for a run and for its end after a stop. Exceeding one is a failure.
// Far above the limits of a run, so that a busy machine does not cause failures.
const LONGEST: Duration = Duration::from_secs(30);
const LONGEST_END: Duration = Duration::from_secs(5);
/// The most parts of a run. Far above the number of its calls.
const MOST_PARTS: usize = 200;

/// The state that the conversations of a round share.
pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) round: u64,
    pub(crate) providers: Vec<HttpProvider>,
    pub(crate) budgets: Budgets,
    pub(crate) tally: Arc<Tally>,
    /// The journal of the runs that have one.
    pub(crate) journal: SqliteJournal,
    /// The same file, as another process opens it.
    pub(crate) other: SqliteJournal,
    /// `true` if denied calls are approved, messages are noted and never sent, and replays lose an event.
    pub(crate) planted: bool,
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

    /// Returns one of the models.
    pub(crate) fn provider(&self, dice: &mut Dice) -> Result<HttpProvider, String> {
        let at = dice.below(self.providers.len() as u64) as usize;
        self.providers.get(at).cloned().ok_or_else(|| "no provider".to_owned())
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

impl Stop {
    fn new(dice: &mut Dice) -> Stop {
        let others = [
            (14, Stop::Cancel),
            (12, Stop::CancelTheLoop),
            (8, Stop::Terminate),
            (4, Stop::TerminateFromAfar),
            (8, Stop::Drop),
            (4, Stop::Detach),
        ];
        dice.weighed(Stop::No, &others)
    }

    fn cancels(self) -> bool {
        matches!(self, Stop::Cancel | Stop::CancelTheLoop | Stop::Drop)
    }

    fn terminates(self) -> bool {
        matches!(self, Stop::Terminate | Stop::TerminateFromAfar)
    }
}

/// A run in this program: its parts end with a park or with the run.
struct Run {
    number: usize,
    id: String,
    /// The number of endings that observers had received before it.
    before: usize,
    /// The number of parks that observers had received before the present part.
    parked: usize,
    /// The conversation before it.
    conversation: Vec<Message>,
    parts: usize,
    asked: Asked,
    user: User,
    barred: Vec<EffectId>,
}

/// The end of a part of a run.
enum Part {
    Ended(Box<Outcome>),
    Parked(Box<ParkRequest>),
}

impl Conversation<'_> {
    fn broken(&self, what: &str) {
        self.world.tally.broken(&format!("conversation {:?}: {what}", self.place));
    }

    async fn talk(self) {
        let mut dice =
            Dice::new(self.world.seed, &[self.place[0], self.place[1], self.place[2], 1]);
        // Choices of their own, so that the other choices of a seed stay as they were.
        let mut user =
            Dice::new(self.world.seed, &[self.place[0], self.place[1], self.place[2], 4]);
        let (mut runs, mut parts) = (0, 0);
        let mut goes_on = true;
        while goes_on {
            runs += 1;
            let ended = self.run(&mut dice, &mut user, runs, &mut parts).await;
            goes_on = ended && dice.percent(60) && self.world.take();
        }
        if tokio::time::timeout(LONGEST, self.agent.settled()).await.is_err() {
            self.broken("some work of the loop does not end");
        }
        if self.heard.late() {
            self.broken("an event after the ending");
        }
        if !self.heard.busy_and_idle(parts) {
            self.broken(&format!("busy as {} in {parts} parts of {runs} runs", self.heard));
        }
        if let Some(Stored { project: Some((project, ceiling)), .. }) = &self.stored {
            for problem in stored::books(&self.world.other, project, *ceiling) {
                self.broken(&problem);
            }
        }
    }

    /// Makes one run with all its parts; returns `true` if the loop can run again.
    async fn run(
        &self,
        dice: &mut Dice,
        user: &mut Dice,
        number: usize,
        parts: &mut usize,
    ) -> bool {
        let mut run = Run {
            number,
            id: String::new(),
            before: self.heard.ended().len(),
            parked: 0,
            conversation: self.session.messages(),
            parts: 0,
            asked: Asked { rough: self.rough, ..Asked::default() },
            user: User::new(&self.world.tally),
            barred: Vec::new(),
        };
        let began = Instant::now();
        let mut how = None;
        loop {
            self.heard.begins();
            // Before the start, because a part may park at once.
            run.parked = self.heard.parked().len();
            let started = match how.take() {
                None => self.session.run("Go on."),
                Some(how) => self.session.resume(how),
            };
            let handle = match started {
                Ok(handle) => handle,
                Err(problem) => {
                    self.broken(&format!("run {number} does not start: {problem}"));
                    return false;
                }
            };
            *parts += 1;
            run.parts += 1;
            run.id = handle.run_id().to_owned();
            run.user.under(self.limits.clone());
            let stop = Stop::new(dice);
            self.world.tally.stopped(&format!("{stop:?}"));
            run.asked.cancel |= stop.cancels();
            run.asked.terminate |= stop.terminates();
            let Some(part) = self.part(&run, handle, stop, (dice, user)).await else {
                self.broken(&format!("run {number}, {stop:?}: it does not end"));
                self.agent.terminate();
                return false;
            };
            if self.at_work.count() > 0 {
                self.broken(&format!("run {number}, {stop:?}: a tool is still running"));
            }
            match part {
                Part::Ended(outcome) => {
                    run.asked.took = began.elapsed();
                    return self.ended(run, stop, &outcome).await;
                }
                Part::Parked(request) => match self.parked(&mut run, &request, stop, user) {
                    Some(resume) if run.parts < MOST_PARTS => how = Some(resume),
                    Some(_) => {
                        self.broken(&format!("run {number}: it parks again and again"));
                        return false;
                    }
                    None => return !stop.terminates(),
                },
            }
        }
    }

    /// Handles a parked run. Returns how it is resumed, or nothing if it was cancelled.
    fn parked(
        &self,
        run: &mut Run,
        request: &ParkRequest,
        stop: Stop,
        dice: &mut Dice,
    ) -> Option<Resume> {
        let (number, world) = (run.number, self.world);
        world.tally.acted("parks");
        let Some(stored) = &self.stored else {
            self.broken(&format!("run {number}: it was parked without a journal"));
            return None;
        };
        match world.other.pending() {
            Ok(pending) => {
                let found = pending.iter().find(|parked| parked.run_id == run.id);
                if found.is_none_or(|parked| parked.request != *request) {
                    self.broken(&format!("run {number}: parked, and pending as {found:?}"));
                }
            }
            Err(problem) => self.broken(&problem.to_string()),
        }
        if self.heard.ended().len() != run.before {
            self.broken(&format!("run {number}: a parked run has ended"));
        }
        let terminated = stop.terminates();
        let refused = terminated && {
            let again = self.session.resume(Resume::new(&run.id));
            matches!(again, Err(StartError::Terminated))
        };
        if terminated && !refused {
            self.broken("a terminated loop resumes a run");
        }
        let next = if terminated {
            Next::Cancel
        } else {
            let (journal, fault) = (&world.other, world.planted);
            let (parked, denied) = ((&*run.id, request), &mut run.barred);
            parks::answer(dice, journal, parked, &world.tally, denied, fault)
        };
        match next {
            Next::Resume(how) => Some(how),
            Next::Cancel => {
                match cancel_parked(&world.other, &run.id) {
                    Ok(outcome) => {
                        world.tally.ended(outcome.termination.as_str());
                        self.book(&outcome);
                        self.compare(run, stored, &outcome);
                    }
                    Err(problem) => self.broken(&format!("run {number}: {problem}")),
                }
                None
            }
        }
    }

    /// Makes one part of a run: until it parks or ends.
    async fn part(
        &self,
        run: &Run,
        handle: RunHandle,
        stop: Stop,
        (dice, user): (&mut Dice, &mut Dice),
    ) -> Option<Part> {
        // Within the time that most runs take, so that stops hit every phase.
        let at = Duration::from_micros(dice.below(80_000));
        let plan = Plan::new(user).perform(handle.steering(), &run.user);
        let followed = async {
            // A handle may be read, awaited or dropped; each has its own path to the outcome.
            match stop {
                Stop::Drop | Stop::Detach => self.left_alone(handle, stop, at, run).await,
                _ if dice.percent(70) => self.read(handle, stop, at, run).await,
                _ => self.unread(handle, stop, at).await,
            }
        };
        tokio::select! {
            part = followed => part,
            // Never, because a plan that is done waits for the end of the run.
            () = plan => None,
        }
    }

    /// Checks a run that has ended; returns `true` if the loop can run again.
    async fn ended(&self, mut run: Run, stop: Stop, outcome: &Outcome) -> bool {
        let number = run.number;
        self.world.tally.ended(outcome.termination.as_str());
        run.asked.limits = run.user.limits();
        for problem in checks::outcome(outcome, &run.asked) {
            self.broken(&format!("run {number}, {stop:?}: {problem}"));
        }
        for model in &outcome.models {
            if model.fallback > 0 {
                self.world.tally.acted("falls back");
            }
        }
        if outcome.hand_over.is_some() {
            self.world.tally.acted("hands over");
        }
        if !outcome.background.is_empty() {
            self.world.tally.acted("stops background work");
        }
        if self.world.planted {
            run.user.note("a message that was never sent".to_owned());
        }
        self.book(outcome);
        if let Some(stored) = &self.stored {
            // A run that was stopped does not wait until its ending is stored.
            if tokio::time::timeout(LONGEST, self.agent.settled()).await.is_err() {
                self.broken(&format!("run {number}, {stop:?}: its ending is not stored"));
            }
            self.compare(&run, stored, outcome);
        } else if outcome.compactions.iter().all(|one| one.after.is_none()) {
            let texts: Vec<String> = outcome.messages.iter().map(Message::plain_text).collect();
            for said in run.user.said() {
                if texts.iter().filter(|text| **text == said).count() != 1 {
                    self.broken(&format!("run {number}, {stop:?}: `{said}` was lost"));
                }
            }
        }
        self.after(&run, stop, outcome)
    }

    /// Adds the cost of a run within the shared budgets.
    fn book(&self, outcome: &Outcome) {
        if self.budget {
            // If the provider did not report the usage, the budget books the upper bound.
            let counted = outcome.cost_upper.unwrap_or(outcome.cost);
            self.world.cost.fetch_add(counted.0, Ordering::Relaxed);
        }
    }

    /// Compares an ended run with its journal.
    fn compare(&self, run: &Run, stored: &Stored, outcome: &Outcome) {
        let expected = Expected {
            outcome,
            said: run.user.said(),
            barred: &run.barred,
            replays: stored.replays,
            fault: self.world.planted,
        };
        for problem in stored::check(&stored.journal, &run.id, &expected) {
            self.broken(&format!("run {} ({}): {problem}", run.number, outcome.termination));
        }
        self.world.tally.acted("compared with its journal");
    }

    /// Checks the loop after a run; returns `true` if it can run again.
    fn after(&self, run: &Run, stop: Stop, outcome: &Outcome) -> bool {
        let number = run.number;
        let told = self.heard.ended();
        let told = told.get(run.before..).unwrap_or_default();
        if stop.terminates() {
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
                > run.conversation.iter().filter(|message| said(message)).count();
        let now = self.session.messages();
        if now != outcome.messages && (answered || now != run.conversation) {
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
    async fn read(
        &self,
        mut handle: RunHandle,
        stop: Stop,
        at: Duration,
        run: &Run,
    ) -> Option<Part> {
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
        let status = tokio::time::timeout(LONGEST, handle.wait_for_status()).await.ok()?;
        let problems = match &status {
            RunStatus::Ended(outcome) => checks::events(&events, outcome, run.parts == 1),
            _ => checks::parked(&events),
        };
        for problem in problems {
            self.broken(&problem);
        }
        // A stop after the end must have no effect on the outcome.
        if stopped.is_none() {
            self.stop(stop);
        }
        part_of(status)
    }

    /// Awaits only the outcome, and stops the run.
    async fn unread(&self, handle: RunHandle, stop: Stop, at: Duration) -> Option<Part> {
        let status = handle.wait_for_status();
        tokio::pin!(status);
        let ended = tokio::time::timeout(at, &mut status).await.ok();
        // Also if the run has ended, because a stop must then have no effect on the outcome.
        self.stop(stop);
        let since = Instant::now();
        if let Some(ended) = ended {
            return part_of(ended);
        }
        let status = tokio::time::timeout(LONGEST, status).await.ok()?;
        self.took((stop != Stop::No).then_some(since));
        part_of(status)
    }

    /// Drops or detaches the handle, and takes the outcome or the request from the observer.
    async fn left_alone(
        &self,
        handle: RunHandle,
        stop: Stop,
        at: Duration,
        run: &Run,
    ) -> Option<Part> {
        tokio::time::sleep(at).await;
        if stop == Stop::Detach {
            handle.detach();
        } else {
            drop(handle);
        }
        let since = Instant::now();
        tokio::time::timeout(LONGEST, self.agent.settled()).await.ok()?;
        self.took((stop == Stop::Drop).then_some(since));
        if let Some(outcome) = self.heard.ended().get(run.before) {
            return Some(Part::Ended(Box::new(Outcome::clone(outcome))));
        }
        let request = self.heard.parked().get(run.parked).cloned();
        request.map(|request| Part::Parked(Box::new(request)))
    }
}

fn part_of(status: RunStatus) -> Option<Part> {
    match status {
        RunStatus::Ended(outcome) => Some(Part::Ended(Box::new(Arc::unwrap_or_clone(outcome)))),
        RunStatus::Parked(request) => Some(Part::Parked(Box::new(Arc::unwrap_or_clone(request)))),
        _ => None,
    }
}
