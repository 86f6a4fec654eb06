//! A guest's run of the kernel, with additional data of a binding: its conversations and their open
//! calls, the price, and the messages for the model.
//!
//! A framework may call models in parallel, in agents that work at the same time. Each conversation is
//! a guest of the kernel of its own, in which repetition is detected; all hear what the others spend,
//! so that the limits hold for their sum. The first one is the run: its outcome is that of the run.

use crate::conversation::Conversation;
pub use crate::conversation::{Ask, Turn};
use crate::pricing::Pricing;
use endstop_core::guest::{Guest, Spending};
use endstop_core::{
    DecidedBy, Decision, GuestMode, Layer, Limit, Limits, ModelError, NanoUsd, NestedEnding,
    Outcome, Run, RunSpec, Termination, ToolReport, TurnDelta, Usage, is_blank,
};
use endstop_wire::Decoded;
use serde_json::{Map, Value};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

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
    /// `true` if the run is parked: its state is somewhere else now.
    pub(crate) parked: bool,
}

/// A handle for one model call at a time.
#[derive(Clone, Debug, Default)]
pub struct Handle {
    number: u32,
    /// The conversation that the calls belong to, by the name of its agent; empty: the run's own.
    of: String,
}

/// An ending that the loop declares, because only its framework knows it.
#[derive(Clone, Debug, PartialEq)]
pub enum Declared {
    /// The framework took an answer that was not a text: of an output tool, or a structured one.
    Submitted(Value),
    /// A limit of the framework on turns, money or tokens ended its loop.
    Limit(Limit),
    /// Another limit of the framework, or a guardrail, ended its loop.
    Halted,
}

/// The endings that a loop can declare.
pub const DECLARED: [Termination; 5] = [
    Termination::Submitted,
    Termination::ErrorMaxTurns,
    Termination::ErrorMaxBudgetUsd,
    Termination::ErrorMaxTokens,
    Termination::ErrorHalted,
];

/// An ending that no loop can declare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvalidDeclaration {
    /// The name is not one of [`DECLARED`].
    Name(String),
    /// `submitted` without a deliverable, or a deliverable without it.
    Deliverable,
    /// `error_halted` without the name of what halted the loop.
    Reason,
}

impl fmt::Display for InvalidDeclaration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidDeclaration::Name(name) => {
                let known = DECLARED.map(Termination::as_str).join(", ");
                write!(f, "a loop cannot declare the ending `{name}`; expected one of {known}")
            }
            InvalidDeclaration::Deliverable => {
                f.write_str("`submitted` needs a `deliverable`, and no other ending has one")
            }
            InvalidDeclaration::Reason => {
                f.write_str("`error_halted` needs a `detail`: the name of what halted the loop")
            }
        }
    }
}

impl std::error::Error for InvalidDeclaration {}

impl Declared {
    /// Reads an ending by its name.
    ///
    /// # Errors
    /// A loop cannot declare this ending, or it lacks what it owes.
    pub fn read(
        name: &str,
        deliverable: Option<Value>,
        detail: &str,
    ) -> Result<Declared, InvalidDeclaration> {
        let ending = DECLARED.into_iter().find(|known| known.as_str() == name);
        let declared = match (ending, deliverable) {
            (None, _) => return Err(InvalidDeclaration::Name(name.to_owned())),
            (Some(Termination::Submitted), Some(value)) => Declared::Submitted(value),
            (Some(Termination::Submitted), None) | (_, Some(_)) => {
                return Err(InvalidDeclaration::Deliverable);
            }
            (Some(Termination::ErrorMaxTurns), None) => Declared::Limit(Limit::MaxTurns),
            (Some(Termination::ErrorMaxBudgetUsd), None) => Declared::Limit(Limit::MaxBudgetUsd),
            (Some(Termination::ErrorMaxTokens), None) => Declared::Limit(Limit::MaxTokens),
            (Some(_), None) if is_blank(detail) => return Err(InvalidDeclaration::Reason),
            (Some(_), None) => Declared::Halted,
        };
        Ok(declared)
    }

    /// `true` if an answer has nothing in it.
    fn is_blank(&self) -> bool {
        match self {
            Declared::Submitted(Value::Null) => true,
            Declared::Submitted(Value::String(text)) => is_blank(text),
            Declared::Submitted(_) | Declared::Limit(_) | Declared::Halted => false,
        }
    }

    fn nested(self, detail: &str) -> NestedEnding {
        let told = |otherwise: &str| {
            let told = if detail.trim().is_empty() { otherwise } else { detail };
            told.to_owned()
        };
        let (termination, layer, decision, evidence, deliverable) = match self {
            Declared::Submitted(value) => {
                let evidence = told("the loop took an answer that is not a text");
                (Termination::Submitted, Layer::Caller, Decision::Closed, evidence, Some(value))
            }
            Declared::Limit(limit) => {
                let termination = match limit {
                    Limit::MaxBudgetUsd => Termination::ErrorMaxBudgetUsd,
                    Limit::MaxTokens => Termination::ErrorMaxTokens,
                    _ => Termination::ErrorMaxTurns,
                };
                let evidence = told("a limit of the framework ended its loop");
                (termination, Layer::Limit, Decision::Limit(limit), evidence, None)
            }
            Declared::Halted => {
                let name = detail.split(':').next().unwrap_or(detail).trim();
                let decision = Decision::of(Layer::Caller, name);
                (Termination::ErrorHalted, Layer::Caller, decision, told(""), None)
            }
        };
        NestedEnding {
            termination,
            decided_by: DecidedBy { layer, decision, evidence },
            last_text: None,
            deliverable,
            retry_after: None,
            error_diagnostic: None,
            would_fit: None,
            no_progress_snapshot: None,
        }
    }
}

impl RunState {
    /// Starts a run of the kernel. The price comes from `pricing`, and the bytes of the conversation
    /// so far from the messages of `spec`.
    pub fn new(mut spec: RunSpec, pricing: Pricing) -> RunState {
        spec.guest.get_or_insert_default();
        let copy = spec.clone_with(None);
        RunState::of(vec![Conversation::new(String::new(), spec, pricing)], copy)
    }

    pub(crate) fn of(talks: Vec<Conversation>, spec: RunSpec) -> RunState {
        let limits = spec.limits.clone();
        RunState { talks, last: 0, spec, limits, handles: 0, at: Duration::ZERO, parked: false }
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

    /// Performs a step of a conversation. The others hear what it spent, and the run ends if the
    /// conversation did.
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
        }
        done
    }

    /// Tells the others what a conversation has spent.
    fn share(&mut self, at: Duration, index: usize) {
        let talk = &mut self.talks[index];
        let now = talk.guest.spending();
        let news = now.since(&talk.told);
        talk.told = now;
        if !news.is_nothing() {
            self.tell(at, &news, Some(index));
        }
    }

    /// Books the calls of the other conversations that are in flight when the run ends: they may be billed.
    fn settle_others(&mut self, at: Duration) {
        for index in 1..self.talks.len() {
            if self.talks[index].is_calling() && self.talks[index].guest.run().is_some() {
                self.talks[index].guest.close(at, false, "the run has ended");
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

    /// Tells all conversations but one what was spent.
    fn tell(&mut self, at: Duration, news: &Spending, but: Option<usize>) {
        for (index, talk) in self.talks.iter_mut().enumerate() {
            if Some(index) != but {
                let _ = talk.guest.spent(at, news.clone());
                talk.after_step();
                talk.told = talk.guest.spending();
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
        if let Some(free) = self.talks.iter().position(free) {
            return free;
        }
        let spec = RunState::spec_beside(&self.spec, &self.limits);
        let pricing = self.talks[0].pricing.again();
        let mut talk = Conversation::new(handle.of.clone(), spec, pricing);
        let _ = talk.guest.spent(self.at, self.lead().spending());
        talk.after_step();
        talk.told = talk.guest.spending();
        self.talks.push(talk);
        self.talks.len() - 1
    }

    /// The specification of another conversation of a run.
    pub(crate) fn spec_beside(run: &RunSpec, limits: &Limits) -> RunSpec {
        let limits = limits.clone();
        let mut spec = RunSpec { limits, ..run.without_messages() };
        // The clock is that of the run, and notes of another conversation would have no request.
        spec.limits.timeout = None;
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

    /// Feeds a response in the format `api`, after asking for its call if the caller did not.
    pub fn turn(
        &mut self,
        at: Duration,
        handle: &Handle,
        decoded: Decoded,
        api: &'static str,
    ) -> Turn {
        // A loop that did not ask still counts against the limits that are checked before a turn.
        if self.open_for(handle).is_none() {
            self.ask(at, handle, Ask { streaming: decoded.streamed, ..Ask::default() });
        }
        let open = self.open_for(handle).filter(|index| self.is_in_time(at, *index));
        let Some(index) = open else {
            self.talks[0].api = api;
            return self.talks[0].ended_turn(decoded.signal, decoded.error);
        };
        self.last = index;
        let mut turn = self.step(at, index, |talk| talk.turn(at, decoded, api));
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
        if let Some(index) = self.open_for(handle) {
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

    /// Feeds the result of a tool to the conversation in which the call is open. `false`: it is open in
    /// none, so that the result was ignored.
    pub fn result(&mut self, at: Duration, call_id: &str, report: ToolReport) -> bool {
        let waits = |talk: &Conversation| {
            talk.guest.run().is_some_and(|run| run.open_tool(call_id).is_some())
        };
        let Some(index) = self.talks.iter().position(waits) else { return false };
        if !self.is_in_time(at, index) {
            return true;
        }
        self.step(at, index, |talk| talk.result(at, call_id, report));
        true
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

    /// Adds what a nested run has spent.
    pub fn spent(&mut self, at: Duration, spending: &Spending) {
        self.at = self.at.max(at);
        self.tell(at, spending, None);
    }

    /// Adds what a response of another agent has cost: at the price of its own model, or the one that
    /// the caller gave. It is not a turn of the run.
    pub fn spent_on(&mut self, at: Duration, decoded: Decoded, api: &'static str) {
        let spending = self.talks[0].pricing.cost_of(decoded, api);
        self.spent(at, &spending);
    }

    /// Changes the limits. What was spent so far counts against the new ones.
    pub fn set_limits(&mut self, at: Duration, limits: &Limits) {
        self.limits = limits.clone();
        for index in 0..self.talks.len() {
            let mut limits = limits.clone();
            if index != 0 {
                limits.timeout = None;
            }
            self.guest_step(at, index, |guest| drop(guest.limits(at, limits)));
        }
    }

    /// Checks the clock.
    pub fn tick(&mut self, at: Duration) {
        self.guest_step(at, 0, |guest| drop(guest.tick(at)));
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
        self.guest_step(at, 0, |guest| guest.terminate(at))
    }

    /// Reports that code around the run failed. Ends the run.
    pub fn fault(&mut self, at: Duration, name: String, message: String) -> Arc<Outcome> {
        self.guest_step(at, 0, |guest| guest.fault(at, name, message))
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
            return self.guest_step(at, 0, |guest| guest.close(at, ok, detail));
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
        self.guest_step(at, 0, |guest| match decided {
            Some(decided) => guest.close_as(at, true, detail, decided),
            None => guest.close(at, ok, detail),
        })
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

    /// Returns the known cost so far.
    pub fn cost(&self) -> NanoUsd {
        self.spending().cost
    }

    /// Takes the messages for the next request.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.talks[0].notes)
    }
}
