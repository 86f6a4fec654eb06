//! A guest's run of the kernel, with additional data of a binding: its conversations and their open
//! calls, the price, and the messages for the model.
//!
//! A framework may call models in parallel, in agents that work at the same time. Each conversation is
//! a guest of the kernel of its own, in which repetition is detected; what one spends is charged to
//! all, so that the limits hold for their sum. The first one is the run: its outcome is that of the run.

use crate::conversation::Conversation;
pub use crate::conversation::{Ask, Turn};
pub use crate::declared::{DECLARED, Declared, InvalidDeclaration};
use crate::limits::apply;
use crate::pricing::Pricing;
use crate::response::Detection;
use crate::ticket::Ticket;
use endstop_core::guest::{Guest, Spending};
use endstop_core::{
    ErrorClass, GuestMode, Limit, LimitError, Limits, ModelError, NanoUsd, NestedEnding, Outcome,
    Run, RunSpec, Termination, ToolReport, TurnDelta, Usage, Window,
};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the wall clock in Unix milliseconds, for [`RunState::new`].
#[expect(clippy::disallowed_methods, reason = "a program's run begins at a wall-clock time")]
pub fn wall_ms() -> Option<u64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

/// The state of a run between two calls.
pub struct RunState {
    /// The first is the run itself.
    pub(crate) talks: Vec<Conversation>,
    /// The conversation that had the last response.
    pub(crate) last: usize,
    /// The specification of the run at its start, without its policy.
    pub(crate) spec: RunSpec,
    /// The limits that apply now, as the caller gave them.
    pub(crate) limits: Limits,
    /// The number of the next handle.
    handles: u32,
    /// Time of the last event, as the caller gave it.
    pub(crate) at: Duration,
    /// The part of its spending that the run around it was charged for.
    charged: Spending,
    /// `true` if the run is parked: its state is somewhere else now.
    pub(crate) parked: bool,
    /// The text that this process has taken, if the run was resumed.
    pub(crate) ticket: Option<Ticket>,
    /// The wall clock at the start, in Unix milliseconds.
    wall_ms: Option<u64>,
}

/// The effect of a tool result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a result that no call waits for is a mistake of the caller"]
pub enum Reported {
    /// The call was open, and has its result now.
    Taken,
    /// The call has a result, was held back, or the run has ended.
    Ignored,
    /// No response of the conversation has asked for the call.
    Unknown,
}

/// A handle for one model call at a time.
#[derive(Clone, Debug, Default)]
pub struct Handle {
    number: u32,
    /// The conversation that the calls belong to, by the name of its agent; empty: the run's own.
    of: String,
}

impl Handle {
    /// `true` for the run itself.
    fn is_own(&self) -> bool {
        self.number == 0
    }
}

impl RunState {
    /// Starts a run of the kernel. The price comes from `pricing`, and the bytes of the conversation
    /// so far from the messages of `spec`. `wall_ms` is the wall clock now, in Unix milliseconds; without it the
    /// reset of a subscription's window is not known.
    pub fn new(mut spec: RunSpec, pricing: Pricing, wall_ms: Option<u64>) -> RunState {
        spec.guest.get_or_insert_default();
        let copy = spec.clone_with(None);
        let lead = Conversation::new(String::new(), spec, pricing, wall_ms);
        RunState { wall_ms, ..RunState::of(vec![lead], copy) }
    }

    pub(crate) fn of(talks: Vec<Conversation>, spec: RunSpec) -> RunState {
        let limits = spec.limits.clone();
        RunState {
            talks,
            last: 0,
            spec,
            limits,
            handles: 0,
            at: Duration::ZERO,
            wall_ms: None,
            charged: Spending::default(),
            parked: false,
            ticket: None,
        }
    }

    /// The capabilities of the loop.
    pub fn mode(&self) -> GuestMode {
        self.spec.guest.unwrap_or_default()
    }

    /// `true` if the run is parked: nothing can be fed to it.
    pub fn is_parked(&self) -> bool {
        self.parked
    }

    /// Creates a handle for calls of the conversation with this name, which may be in flight at the same
    /// time as those of other handles.
    pub fn handle(&mut self, of: impl Into<String>) -> Handle {
        self.handles = self.handles.wrapping_add(1);
        Handle { number: self.handles, of: of.into() }
    }

    fn lead(&self) -> &Guest {
        &self.talks[0].guest
    }

    /// The run of the kernel, unless it has ended.
    pub fn run(&self) -> Option<&Run> {
        self.lead().run()
    }

    /// Returns the outcome, if the run has ended.
    pub fn outcome(&self) -> Option<Arc<Outcome>> {
        self.talks[0].outcome()
    }

    /// Performs a step of a conversation. What it spent is charged to the others, and the run ends if
    /// the conversation did.
    fn step<T>(
        &mut self,
        at: Duration,
        index: usize,
        work: impl FnOnce(&mut Conversation) -> T,
    ) -> T {
        self.at = self.at.max(at);
        let done = work(&mut self.talks[index]);
        self.share(at, index);
        if let Some(outcome) = self.talks[index].outcome().filter(|_| index != 0) {
            self.talks[0].guest.close_as(at, true, "", NestedEnding::from(&*outcome));
            self.talks[0].after_step();
        }
        if self.run().is_none() {
            self.settle_others(at);
            self.talks[0].settle(at);
        }
        done
    }

    /// Charges what a conversation has spent to the others.
    fn share(&mut self, at: Duration, index: usize) {
        let talk = &mut self.talks[index];
        let now = talk.guest.spending();
        let more = now.since(&talk.shared);
        talk.shared = now;
        if !more.is_nothing() {
            self.charge(at, &more, Some(index));
        }
    }

    /// Charges the calls of the other conversations that are in flight when the run ends: they may be billed.
    fn settle_others(&mut self, at: Duration) {
        for index in 1..self.talks.len() {
            if self.talks[index].is_calling() && self.talks[index].guest.run().is_some() {
                self.talks[index].guest.close(at, false, "the run has ended");
                self.talks[index].settle(at);
                self.share(at, index);
            }
        }
    }

    /// Checks the clock of the run before a step of another conversation. `false`: the run has ended.
    fn is_in_time(&mut self, at: Duration, index: usize) -> bool {
        if index != 0 {
            self.tick(at);
        }
        self.run().is_some()
    }

    /// Performs a step of a conversation's guest.
    fn guest_step<T>(
        &mut self,
        at: Duration,
        index: usize,
        work: impl FnOnce(&mut Guest) -> T,
    ) -> T {
        self.step(at, index, |talk| {
            let done = work(&mut talk.guest);
            talk.after_step();
            done
        })
    }

    /// Charges spending to all conversations but one.
    fn charge(&mut self, at: Duration, more: &Spending, but: Option<usize>) {
        for (index, talk) in self.talks.iter_mut().enumerate() {
            if Some(index) != but {
                let _ = talk.guest.spent(at, more.clone());
                talk.after_step();
                talk.shared = talk.guest.spending();
            }
        }
    }

    /// The conversation in which this handle has an open call.
    fn open_for(&self, handle: &Handle) -> Option<usize> {
        self.talks.iter().position(|talk| talk.is_open_for(handle.number))
    }

    /// The conversation for the next call of this handle: its own, or another one if that waits for the
    /// response of another handle.
    fn place(&mut self, handle: &Handle) -> usize {
        if let Some(open) = self.open_for(handle) {
            return open;
        }
        if self.talks.len() == 1 && !self.talks[0].is_used {
            // The first one leads, whatever its name.
            self.talks[0].of.clone_from(&handle.of);
        }
        let free = |talk: &Conversation| talk.of == handle.of && !talk.is_calling();
        let find = |fits: &dyn Fn(&Conversation) -> bool| {
            self.talks.iter().position(|talk| free(talk) && fits(talk))
        };
        // One that waits for its tools belongs to the handle that asked for them, if there are others.
        let found = find(&|talk| talk.last_handle == handle.number)
            .or_else(|| find(&|talk| !talk.is_open()))
            .or_else(|| find(&|_| true));
        if let Some(found) = found {
            return found;
        }
        let spec = RunState::spec_of_another(&self.spec, &self.limits);
        let pricing = self.talks[0].pricing.for_another();
        let mut talk = Conversation::new(handle.of.clone(), spec, pricing, self.wall_ms);
        let _ = talk.guest.spent(self.at, self.lead().spending());
        talk.after_step();
        let windows = self.run().map(|run| run.windows().to_vec()).unwrap_or_default();
        if !windows.is_empty() {
            let _ = talk.guest.windows(self.at, windows);
        }
        talk.after_step();
        talk.shared = talk.guest.spending();
        self.talks.push(talk);
        self.talks.len() - 1
    }

    /// The specification of another conversation of a run.
    pub(crate) fn spec_of_another(run: &RunSpec, limits: &Limits) -> RunSpec {
        let limits = limits.clone();
        let mut spec = RunSpec { limits, ..run.without_messages() };
        // Notes of another conversation would have no request.
        if let Some(mode) = &mut spec.guest {
            mode.inject = false;
            mode.forgets = true;
        }
        spec
    }

    /// Asks if the model may be called. `false`: the run has ended.
    pub fn ask(&mut self, at: Duration, handle: &Handle, ask: Ask) -> bool {
        if self.run().is_none() {
            return false;
        }
        let index = self.place(handle);
        // A deadline may have passed without a call of the first conversation.
        if !self.is_in_time(at, index) {
            return false;
        }
        let others = |(other, talk): (usize, &Conversation)| other != index && talk.is_calling();
        let in_flight = self.talks.iter().enumerate().filter(|talk| others(*talk)).count();
        let in_flight = u32::try_from(in_flight).unwrap_or(u32::MAX);
        self.step(at, index, |talk| talk.ask(at, handle.number, ask, in_flight))
    }

    /// Asks if the model may be called again, before it is known that it will be. `false`: the run has ended, because
    /// a limit is reached.
    pub fn may(&mut self, at: Duration) -> bool {
        self.tick(at);
        self.end_if_reached(at, |_| true)
    }

    /// Asks if a nested run, or another one that the run pays for, may call a model. `false`: the run has ended, also
    /// because its money or tokens are spent, or its time is over. Its turns are no limit for others.
    pub fn may_spend(&mut self, at: Duration) -> bool {
        self.tick(at);
        self.end_if_reached(at, |limit| matches!(limit, Limit::MaxBudgetUsd | Limit::MaxTokens))
    }

    /// Ends the run if a limit that counts is reached. `false`: it has ended.
    fn end_if_reached(&mut self, at: Duration, counts: impl Fn(Limit) -> bool) -> bool {
        let is_reached =
            |run: &Run| run.checks().iter().any(|check| check.met && counts(check.limit));
        if self.run().is_some_and(is_reached) {
            // The kernel refuses the call, with its own evidence.
            let handle = self.handle("");
            if self.ask(at, &handle, Ask::default()) {
                let problem = "the call was not made";
                self.failed(at, &handle, ModelError::new(ErrorClass::InvalidRequest, problem));
            }
        }
        self.is_running()
    }

    /// Feeds a response, after asking for its call if the caller did not.
    pub fn turn(&mut self, at: Duration, handle: &Handle, mut found: Detection) -> Turn {
        self.windows(at, &std::mem::take(&mut found.decoded.windows));
        // A loop that did not ask still counts against the limits that are checked before a turn.
        if self.open_for(handle).is_none() {
            self.ask(at, handle, Ask { streaming: found.decoded.streamed, ..Ask::default() });
        }
        let open = self.open_for(handle).filter(|index| self.is_in_time(at, *index));
        let Some(index) = open else {
            self.talks[0].api = found.api;
            return self.talks[0].ended_turn(found.decoded.signal, found.decoded.error);
        };
        self.last = index;
        let mut turn = self.step(at, index, |talk| talk.turn(at, found));
        // Another conversation's outcome is not that of the run.
        turn.outcome = self.outcome();
        if turn.outcome.is_some() {
            turn.held_back.append(&mut turn.calls);
        }
        turn
    }

    /// Feeds the failure of a model call.
    pub fn failed(&mut self, at: Duration, handle: &Handle, error: ModelError) {
        if self.open_for(handle).is_none() {
            self.ask(at, handle, Ask::default());
        }
        if let Some(index) = self.open_for(handle).filter(|index| self.is_in_time(at, *index)) {
            self.last = index;
            self.step(at, index, |talk| talk.failed(at, error));
        }
    }

    /// Feeds streamed content of the handle's open call.
    pub fn delta(&mut self, at: Duration, handle: &Handle, delta: TurnDelta) {
        if self.open_for(handle).is_none() {
            self.ask(at, handle, Ask { streaming: true, ..Ask::default() });
        }
        if let Some(index) = self.open_for(handle).filter(|index| self.is_in_time(at, *index)) {
            self.step(at, index, |talk| talk.delta(at, delta));
        }
    }

    /// `true` if the handle has a model call that waits for its response.
    pub fn is_open(&self, handle: &Handle) -> bool {
        self.open_for(handle).is_some()
    }

    /// Feeds the result of a tool. It belongs to the conversation of the handle; given to the run itself, to
    /// its own conversation, or to the only other one in which the call is open.
    pub fn result(
        &mut self,
        at: Duration,
        handle: &Handle,
        call_id: &str,
        report: ToolReport,
    ) -> Reported {
        let all = 0..self.talks.len();
        let waiting: Vec<usize> =
            all.clone().filter(|index| self.talks[*index].waits_for(call_id)).collect();
        let of_handle = |index: &&usize| self.talks[**index].of == handle.of;
        let index = if handle.is_own() {
            // Some servers number the calls of each response, so agents that work at the same time may wait for
            // the same id.
            let own = waiting.iter().find(|index| self.talks[**index].is_own);
            own.or(waiting.first()).copied()
        } else {
            // Calls of one name may be in flight at the same time, each in a conversation of its own.
            let last = |index: &&usize| self.talks[**index].last_handle == handle.number;
            waiting.iter().find(last).or_else(|| waiting.iter().find(of_handle)).copied()
        };
        let Some(index) = index else {
            let is_known = self.run().is_none()
                || all
                    .filter(|index| handle.is_own() || of_handle(&index))
                    .any(|index| self.talks[index].asked.contains(call_id));
            return if is_known { Reported::Ignored } else { Reported::Unknown };
        };
        if self.is_in_time(at, index) {
            self.step(at, index, |talk| talk.result(at, call_id, report));
        }
        Reported::Taken
    }

    /// `true` if a response of the run has asked for a tool call.
    pub fn has_asked(&self, call_id: &str) -> bool {
        self.talks.iter().any(|talk| talk.asked.contains(call_id))
    }

    /// Feeds named values and measurements for policies.
    pub fn observe(
        &mut self,
        at: Duration,
        variables: Map<String, Value>,
        metrics: Map<String, Value>,
    ) {
        self.guest_step(at, 0, |guest| drop(guest.observe(at, variables, metrics)));
    }

    /// Feeds the use of a subscription's windows, which all conversations share.
    fn windows(&mut self, at: Duration, windows: &[Window]) {
        if windows.is_empty() {
            return;
        }
        for index in 0..self.talks.len() {
            let windows = windows.to_vec();
            self.guest_step(at, index, |guest| drop(guest.windows(at, windows)));
        }
    }

    /// Adds what a nested run has spent. A ceiling that is reached ends the run, unless a response is on
    /// its way, or its last one was an answer: that was given before.
    pub fn spent(&mut self, at: Duration, spending: &Spending) {
        self.at = self.at.max(at);
        self.charge(at, spending, None);
        let deciding = self.deciding();
        let is_answered = self.talks[deciding].provisional().is_some_and(Termination::is_success);
        if is_answered || self.talks.iter().any(Conversation::is_calling) {
            return;
        }
        let is_reached = |run: &Run| {
            run.checks().iter().any(|check| {
                let counts = match check.limit {
                    Limit::MaxTurns => spending.turns > 0,
                    limit => matches!(limit, Limit::MaxBudgetUsd | Limit::MaxTokens),
                };
                check.met && counts
            })
        };
        if self.run().is_some_and(is_reached) {
            // The kernel refuses the next call by this ceiling, with its own evidence.
            self.step(at, deciding, |talk| talk.ask(at, 0, Ask::default(), 0));
        }
    }

    /// Takes what the run has spent that no run around it was charged for, if anything. Its turns and tool calls are its
    /// own.
    pub fn take_uncharged(&mut self) -> Option<Spending> {
        let now = self.spending();
        let more = Spending { turns: 0, tool_calls: 0, ..now.since(&self.charged) };
        // A bill in doubt is nothing new by itself.
        let is_new = now != self.charged && !more.is_nothing();
        self.charged = now;
        is_new.then_some(more)
    }

    /// Notes that the run around this one was charged for all that was spent so far.
    pub(crate) fn note_charged(&mut self) {
        self.charged = self.spending();
    }

    /// Adds what a response of another agent has cost: at the price of its own model, or the one that
    /// the caller gave. It is not a turn of the run.
    pub fn spent_on(&mut self, at: Duration, found: Detection) {
        let spending = self.talks[0].pricing.cost_of(found);
        self.spent(at, &spending);
    }

    /// Changes limits by name, and leaves the others. What was spent so far counts against the new ones.
    ///
    /// # Errors
    /// A limit is unknown, invalid, or without effect on the guest.
    pub fn change_limits(
        &mut self,
        at: Duration,
        changes: &Map<String, Value>,
    ) -> Result<(), LimitError> {
        let mut limits = self.limits.clone();
        apply(&mut limits, changes, self.mode())?;
        self.set_limits(at, &limits);
        Ok(())
    }

    /// Replaces the limits. What was spent so far counts against the new ones.
    pub(crate) fn set_limits(&mut self, at: Duration, limits: &Limits) {
        self.limits = limits.clone();
        for index in 0..self.talks.len() {
            self.guest_step(at, index, |guest| drop(guest.limits(at, limits.clone())));
        }
    }

    /// Checks the clock.
    pub fn tick(&mut self, at: Duration) {
        self.guest_step(at, 0, |guest| drop(guest.tick(at)));
    }

    /// Returns the time for which the next model call must wait, for a rate or a window of a subscription. `None`:
    /// it may start now, or the run has ended.
    pub fn pause(&mut self, at: Duration) -> Option<Duration> {
        // Not at each call, because a loop that waits asks often, and each event is stored.
        if self.wake_at().is_some_and(|wake| wake <= at) {
            self.tick(at);
        }
        // All that the other conversations spend is charged to the first one.
        self.lead().pause(at).map(|pause| pause.until.saturating_sub(at))
    }

    /// Time at which [`tick`](RunState::tick) must be called, if any.
    pub fn wake_at(&self) -> Option<Duration> {
        self.lead().wake_at()
    }

    /// Cancels the run.
    pub fn cancel(&mut self, at: Duration) {
        self.guest_step(at, 0, |guest| drop(guest.cancel(at)));
    }

    /// Terminates the run.
    pub fn terminate(&mut self, at: Duration) -> Arc<Outcome> {
        let raw = self.guest_step(at, 0, |guest| guest.terminate(at));
        self.outcome().unwrap_or(raw)
    }

    /// Reports that code around the run failed. Ends the run.
    pub fn fault(&mut self, at: Duration, name: String, message: String) -> Arc<Outcome> {
        let raw = self.guest_step(at, 0, |guest| guest.fault(at, name, message));
        self.outcome().unwrap_or(raw)
    }

    /// The conversation that decides how the run ends: that of the loop which calls the run itself or, if all
    /// calls have handles, the one that had the last response, because agents hand over to each other.
    fn deciding(&self) -> usize {
        self.talks.iter().position(|talk| talk.is_own).unwrap_or(self.last)
    }

    /// The ending that stands against a success of the conversation that decides: another one has a call
    /// without response, tools without results, or a response that must not be used.
    fn objection(&self, deciding: usize) -> Option<usize> {
        let is_bad = |talk: &Conversation| talk.provisional().is_some_and(|one| !one.is_success());
        let mut others = (0..self.talks.len()).filter(|index| *index != deciding);
        others.find(|index| self.talks[*index].is_open() || is_bad(&self.talks[*index]))
    }

    /// Reports that the loop is gone, and returns the outcome. The ending of the conversation that decides
    /// becomes final if `ok`, or the one that the loop declares. Without a model call, over a response that
    /// failed, was cut or was filtered, and while its retry has no response, a loop has no answer to declare.
    pub fn close(
        &mut self,
        at: Duration,
        ok: bool,
        detail: &str,
        declared: Option<Declared>,
    ) -> Arc<Outcome> {
        if self.run().is_none() {
            let raw = self.guest_step(at, 0, |guest| guest.close(at, ok, detail));
            return self.outcome().unwrap_or(raw);
        }
        let mut deciding = self.deciding();
        let is_answer = matches!(declared, Some(Declared::Submitted(_)));
        let (ok, detail) = match &declared {
            Some(declared) if declared.is_blank() => (false, "the answer is blank"),
            _ => (ok, detail),
        };
        let own = &self.talks[deciding];
        let is_bad = own.provisional().is_some_and(|ending| !ending.is_success());
        let has_none = is_bad || own.is_calling() || !self.talks.iter().any(|talk| talk.is_used);
        let declared = declared.filter(|_| !is_answer || ok && !has_none);
        if declared.is_none() && ok && !is_bad {
            deciding = self.objection(deciding).unwrap_or(deciding);
        }
        let decided = match declared {
            Some(declared) => Some(declared.nested(detail)),
            None if deciding != 0 => {
                // Its outcome would end the run without this detail.
                let outcome = self.talks[deciding].guest.close(at, ok, detail);
                self.share(at, deciding);
                Some(NestedEnding::from(&*outcome))
            }
            None => None,
        };
        let raw = self.guest_step(at, 0, |guest| match decided {
            Some(decided) => guest.close_as(at, true, detail, decided),
            None => guest.close(at, ok, detail),
        });
        self.outcome().unwrap_or(raw)
    }

    /// Ends the run with its last response if that was an answer, or a response from which a plain
    /// loop cannot continue.
    pub fn end_if_answered(&mut self, at: Duration) {
        if self.talks[self.deciding()].provisional().is_some() {
            self.close(at, true, "", None);
        }
    }

    /// `true` unless the run has ended.
    pub fn is_running(&self) -> bool {
        self.run().is_some()
    }

    /// Returns the format of the last response; empty if none is known.
    pub fn api(&self) -> &'static str {
        self.talks[self.last].api
    }

    /// Returns the ending that the run has if its loop ends now, or its ending.
    pub fn ending(&self) -> Option<Termination> {
        match self.outcome() {
            Some(outcome) => Some(outcome.termination),
            None => self.talks[self.deciding()].provisional(),
        }
    }

    /// Returns what the run has spent so far.
    pub fn spending(&self) -> Spending {
        self.lead().spending()
    }

    /// Returns the number of responses that became part of the conversation.
    pub fn turns(&self) -> u32 {
        self.spending().turns
    }

    /// Returns the token usage so far.
    pub fn usage(&self) -> Usage {
        self.spending().usage
    }

    /// Returns the known cost so far; `None` if no part of it is known.
    pub fn cost(&self) -> Option<NanoUsd> {
        self.spending().known_cost()
    }

    /// Takes the messages for the next request.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.talks[0].notes)
    }
}
