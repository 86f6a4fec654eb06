//! Runs the tool calls of a turn: in call order, one question at a time, with bounded concurrency.
//!
//! Each call is answered exactly once. `finish` is the kernel's own tool: it declares the answer.

use super::outcome::Ending;
use super::progress::excerpt;
use super::watch::Watched;
use super::{
    Answer, ConsultPoint, Effect, EffectId, EventKind, Flow, Inner, Permission, Phase, RunEvent,
    ToolReport, ToolStart, earliest,
};
use crate::message::{Part, Role, ToolCall, ToolResult, ToolStatus};
use crate::streaming::StreamingState;
use serde_json::{Map, Value};
use std::time::Duration;

/// Time after the grace in which a stopped tool may still report before it is abandoned.
const GIVE_UP: Duration = Duration::from_secs(1);

/// Duration from which a call does not count as repetition, because it was waiting for something.
const WAITING: Duration = Duration::from_secs(1);

/// The result that the model receives for a call that was running when the process died.
const LOST: &str = "aborted: the process that ran it died. It had started, and may have done all or a part of its work: look before you do it again.";

/// The calls of a turn.
#[derive(Debug, Default)]
pub(super) struct OpenCalls {
    calls: Vec<OpenCall>,
    /// Index of the first call that may not be started or answered yet.
    next: usize,
    /// The calls that are started and not answered.
    running: Vec<Running>,
    /// Messages of hooks to the model, sent after the results.
    notes: Vec<String>,
}

#[derive(Debug)]
struct Running {
    id: EffectId,
    at: usize,
    started: Duration,
    deadline: Option<Duration>,
    parallel_safe: bool,
    /// The time limit that the call exceeded. If set, the call was asked to stop, and is abandoned
    /// at `deadline`.
    timed_out: Option<Duration>,
}

#[derive(Debug)]
struct OpenCall {
    call: ToolCall,
    state: CallState,
}

impl OpenCall {
    /// `true` if the call was started or answered.
    fn is_settled(&self) -> bool {
        matches!(self.state, CallState::Running | CallState::Finish(_) | CallState::Done(..))
    }
}

#[derive(Debug)]
enum CallState {
    Waiting,
    /// Waits for the answer of the hook.
    Hook(EffectId),
    /// Needs approval, and waits because another question is open.
    Unapproved,
    /// Waits for the answer of the approver.
    Approval(EffectId),
    /// May start as soon as the concurrency limit permits it.
    Ready(Map<String, Value>),
    Running,
    /// `finish`, which is evaluated when all other calls have ended.
    Finish(Map<String, Value>),
    /// Answered, with the duration of the call.
    Done(ToolResult, Duration),
}

/// The result of advancing a call by one step.
enum Progress {
    /// The call changed its state and must be examined again.
    Again,
    /// The call needs nothing at the moment; the next call may be examined.
    Past,
    /// The call and all calls after it must wait.
    Held,
}

impl OpenCalls {
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.running.iter().fold(None, |next, running| earliest(next, running.deadline))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    pub(super) fn running(&self) -> Vec<EffectId> {
        self.running.iter().map(|running| running.id).collect()
    }

    /// Withdraws the open questions and returns their ids.
    pub(super) fn take_asked(&mut self) -> Vec<EffectId> {
        let mut asked = Vec::new();
        for call in &mut self.calls {
            if let CallState::Hook(id) | CallState::Approval(id) = call.state {
                asked.push(id);
                call.state = CallState::Waiting;
            }
        }
        asked
    }

    /// `true` while the approver is asked about a call.
    fn asks_for_approval(&self) -> bool {
        self.calls.iter().any(|open| matches!(open.state, CallState::Approval(_)))
    }

    /// `true` if a call before this one still waits for approval.
    fn is_overtaking(&self, at: usize) -> bool {
        let before = self.calls.get(self.next..at).unwrap_or_default();
        before
            .iter()
            .any(|open| matches!(open.state, CallState::Unapproved | CallState::Approval(_)))
    }

    fn result(&self, at: usize) -> Option<&ToolResult> {
        match &self.calls.get(at)?.state {
            CallState::Done(result, _) => Some(result),
            _ => None,
        }
    }

    /// Returns the calls of `finish` that are not evaluated yet.
    pub(super) fn pending_finishes(&self) -> Vec<(usize, Map<String, Value>)> {
        let pending = self.calls.iter().enumerate().filter_map(|(at, open)| match &open.state {
            CallState::Finish(arguments) => Some((at, arguments.clone())),
            _ => None,
        });
        pending.collect()
    }

    /// Returns the tool name of the first call that failed.
    pub(super) fn first_failed(&self) -> Option<&str> {
        self.calls.iter().find_map(|open| match &open.state {
            CallState::Done(result, _) if result.status.is_error() => Some(open.call.name.as_str()),
            _ => None,
        })
    }

    pub(super) fn accept_finish(&mut self, at: usize) {
        self.finished(at, ToolStatus::Ok, "The run ends here.".to_owned(), true);
    }

    pub(super) fn refuse_finish(&mut self, at: usize, problem: String) {
        self.finished(at, ToolStatus::Error, problem, false);
    }

    fn finished(&mut self, at: usize, status: ToolStatus, content: String, started: bool) {
        let open = &mut self.calls[at];
        let result = ToolResult {
            call_id: open.call.id.clone(),
            name: open.call.name.clone(),
            status,
            content,
            started,
            pinned: false,
        };
        open.state = CallState::Done(result, Duration::ZERO);
    }

    /// Records the duration of an answered call.
    fn ran(&mut self, at: usize, ran: Duration) {
        if let CallState::Done(_, duration) = &mut self.calls[at].state {
            *duration = ran;
        }
    }

    /// Answers all open calls truthfully. Returns the index and the start time of the calls that
    /// had started.
    pub(super) fn close(&mut self, not_started: ToolStatus, why: &str) -> Vec<(usize, Duration)> {
        let running = std::mem::take(&mut self.running);
        let cut = running.iter().map(|running| (running.at, running.started)).collect();
        for running in running {
            self.finished(
                running.at,
                ToolStatus::Aborted,
                format!("aborted: {why}. It had started and may have done part of its work."),
                true,
            );
        }
        for at in 0..self.calls.len() {
            if !matches!(self.calls[at].state, CallState::Done(..)) {
                self.finished(at, not_started, format!("not run: {why}"), false);
            }
        }
        self.next = self.calls.len();
        cut
    }

    /// Returns the name of the tool that runs under an id.
    pub(super) fn name_of(&self, id: EffectId) -> Option<&str> {
        let running = self.running.iter().find(|running| running.id == id)?;
        Some(&self.calls.get(running.at)?.call.name)
    }

    /// Restarts a running call under a new id. Returns `None` if the call was already asked to
    /// stop.
    pub(super) fn begin_again(
        &mut self,
        id: EffectId,
        new: EffectId,
        now: Duration,
        limit: impl FnOnce(&Map<String, Value>) -> Option<Duration>,
    ) -> Option<ToolStart> {
        let running = self.running.iter_mut().find(|running| running.id == id)?;
        // Its time limit was reached before the process died, so a restart would exceed it.
        if running.timed_out.is_some() {
            return None;
        }
        let call = self.calls.get(running.at)?.call.clone();
        let arguments = call.parsed_arguments().unwrap_or_default();
        running.id = new;
        running.started = now;
        running.deadline = limit(&arguments).map(|limit| now.saturating_add(limit));
        Some(ToolStart { id: new, call, arguments })
    }

    /// Answers running calls whose result is lost. Returns the index and the start time of each.
    pub(super) fn lose(&mut self, lost: &[EffectId]) -> Vec<(usize, Duration)> {
        let (gone, kept) = std::mem::take(&mut self.running)
            .into_iter()
            .partition::<Vec<_>, _>(|running| lost.contains(&running.id));
        self.running = kept;
        for running in &gone {
            self.finished(running.at, ToolStatus::Aborted, LOST.to_owned(), true);
        }
        gone.into_iter().map(|running| (running.at, running.started)).collect()
    }

    /// Accepts a report. Returns `None` if no call runs under the id, because the report is late or
    /// the call never started.
    pub(super) fn report(
        &mut self,
        id: EffectId,
        report: &ToolReport,
    ) -> Option<(usize, Duration)> {
        let place = self.running.iter().position(|running| running.id == id)?;
        let running = self.running.swap_remove(place);
        let (status, content) = if let Some(limit) = running.timed_out {
            // The timeout was already decided, so a late answer does not change the status. Its
            // text is included because the work may be complete.
            let had = excerpt(&report.content);
            let had = if had.is_empty() { had } else { format!(" It had answered: {had}") };
            (
                ToolStatus::Timeout,
                format!(
                    "timed out after {limit:?} and was stopped; it may have done part of its work.{had}"
                ),
            )
        } else if report.status == ToolStatus::Aborted && report.started {
            let had = excerpt(&report.content);
            let had = if had.is_empty() { had } else { format!(" It had answered: {had}") };
            let why = "aborted: it had started and may have done part of its work.";
            (ToolStatus::Aborted, format!("{why}{had}"))
        } else {
            (report.status, report.content.clone())
        };
        self.finished(running.at, status, content, report.started);
        if let CallState::Done(result, _) = &mut self.calls[running.at].state {
            result.pinned = report.pinned;
        }
        Some((running.at, running.started))
    }
}

impl Inner {
    /// Enters the tool phase with the calls of a turn.
    pub(super) fn open(&mut self, calls: Vec<ToolCall>) {
        if calls.is_empty() {
            return;
        }
        self.state.pending_calls.extend(calls.iter().map(|call| call.id.clone()));
        self.phase = Phase::Tools(OpenCalls {
            calls: calls
                .into_iter()
                .map(|call| OpenCall { call, state: CallState::Waiting })
                .collect(),
            ..OpenCalls::default()
        });
    }

    /// Takes the calls out of the tool phase. Any other phase is not changed.
    fn take_open(&mut self) -> Option<OpenCalls> {
        match std::mem::replace(&mut self.phase, Phase::New) {
            Phase::Tools(open) => Some(open),
            other => {
                self.phase = other;
                None
            }
        }
    }

    pub(super) fn begin_tools(&mut self, fx: &mut Vec<Effect>) -> Flow {
        self.empties = 0;
        self.advance(fx)
    }

    /// Answers the open calls without running them, and appends the answers to the history.
    pub(super) fn answer_unrun(&mut self, why: &str) {
        if let Some(mut open) = self.take_open() {
            open.close(ToolStatus::Skipped, why);
            self.file(open);
        }
    }

    /// Appends the answers to the history, in call order.
    pub(super) fn file(&mut self, open: OpenCalls) {
        let mut parts = Vec::with_capacity(open.calls.len());
        for call in open.calls {
            if let CallState::Done(result, _) = call.state {
                // Calls that never started because the run ended are answered but not counted.
                let unrun = match result.status {
                    ToolStatus::Skipped => true,
                    ToolStatus::Aborted => !result.started,
                    _ => false,
                };
                if !unrun {
                    self.tool_calls = self.tool_calls.saturating_add(1);
                }
                parts.push(Part::ToolResult(result));
            }
        }
        self.state.complete_all(parts.iter().filter_map(|part| match part {
            Part::ToolResult(result) => Some(result),
            _ => None,
        }));
        if !parts.is_empty() {
            self.state.push(Role::Tool, parts);
        }
    }

    /// Starts the calls that may start, and asks the questions that are due.
    pub(super) fn advance(&mut self, fx: &mut Vec<Effect>) -> Flow {
        let Some(mut open) = self.take_open() else {
            return Ok(());
        };
        let mut starts = Vec::new();
        let mut at = open.next;
        while at < open.calls.len() {
            match self.advance_call(&mut open, at, &mut starts, fx) {
                Progress::Again => {}
                Progress::Past => at += 1,
                Progress::Held => break,
            }
        }
        // Only a prefix is settled: a call in the middle that still waits may not be skipped.
        let settled = open.calls[open.next..].iter().take_while(|call| call.is_settled()).count();
        open.next += settled;
        // One effect for all starts, so that the driver starts concurrent calls together.
        if !starts.is_empty() {
            fx.push(Effect::StartTools { calls: starts });
        }
        if open.next == open.calls.len() && open.running.is_empty() {
            return self.tools_done(open, fx);
        }
        self.phase = Phase::Tools(open);
        Ok(())
    }

    /// Advances a call by one step.
    ///
    /// While the approver decides about a parallel-safe call, later parallel-safe calls continue. A
    /// call that runs alone is never overtaken and overtakes nothing, because the model may have
    /// relied on the order of its calls.
    fn advance_call(
        &mut self,
        open: &mut OpenCalls,
        at: usize,
        starts: &mut Vec<ToolStart>,
        fx: &mut Vec<Effect>,
    ) -> Progress {
        let name = &open.calls[at].call.name;
        let tool = self.tools.iter().find(|tool| tool.name == *name);
        let parallel_safe = tool.is_some_and(|tool| tool.parallel_safe);
        if !parallel_safe && open.is_overtaking(at) {
            return Progress::Held;
        }
        match &open.calls[at].state {
            CallState::Waiting => {
                self.admit(open, at, fx);
                if matches!(open.calls[at].state, CallState::Done(..)) {
                    emit_ended(open, at, Duration::ZERO, fx);
                }
                Progress::Again
            }
            CallState::Unapproved if !open.asks_for_approval() => {
                self.approve(open, at, fx);
                Progress::Again
            }
            CallState::Unapproved | CallState::Approval(_) if parallel_safe => Progress::Past,
            CallState::Unapproved | CallState::Approval(_) | CallState::Hook(_) => Progress::Held,
            CallState::Ready(arguments) if self.is_finish(name) => {
                open.calls[at].state = CallState::Finish(arguments.clone());
                Progress::Past
            }
            CallState::Ready(arguments) => {
                let limit = match tool {
                    Some(tool) => tool.time_limit(arguments, &self.limits),
                    None => self.limits.tool_timeout,
                };
                // At least 1, because a limit of 0 would block the run forever.
                let room = if parallel_safe {
                    open.running.len() < self.limits.tool_concurrency.max(1) as usize
                        && open.running.iter().all(|running| running.parallel_safe)
                } else {
                    open.running.is_empty()
                };
                if !room {
                    return Progress::Held;
                }
                let id = self.effect_id();
                let state = std::mem::replace(&mut open.calls[at].state, CallState::Running);
                let arguments = if let CallState::Ready(map) = state { map } else { Map::new() };
                let call = open.calls[at].call.clone();
                fx.push(Effect::Emit(RunEvent::ToolStarted {
                    call_id: call.id.clone(),
                    name: call.name.clone(),
                    arguments: call.arguments.clone(),
                }));
                starts.push(ToolStart { id, call, arguments });
                open.running.push(Running {
                    id,
                    at,
                    started: self.now,
                    // Saturating, because a caller may set an arbitrarily large limit.
                    deadline: limit.map(|limit| self.now.saturating_add(limit)),
                    parallel_safe,
                    timed_out: None,
                });
                Progress::Past
            }
            CallState::Running | CallState::Finish(_) | CallState::Done(..) => Progress::Past,
        }
    }

    /// `true` for the kernel's own tool. Permissions and hooks apply to it like to any other tool.
    fn is_finish(&self, name: &str) -> bool {
        self.finish_tool && name == "finish"
    }

    /// Decides about a new call: refuse it, ask a question, or let it start.
    fn admit(&mut self, open: &mut OpenCalls, at: usize, fx: &mut Vec<Effect>) {
        let call = &open.calls[at].call;
        let arguments = call.parsed_arguments();
        let tool = self.tools.iter().find(|tool| tool.name == call.name);
        if tool.is_none() && !self.is_finish(&call.name) {
            let mut names: Vec<&str> = self.tools.iter().map(|tool| tool.name.as_str()).collect();
            if self.finish_tool {
                names.push("finish");
            }
            // The model chose the name, so it may be arbitrarily long.
            let name = excerpt(&call.name);
            let problem = if names.is_empty() {
                format!("unknown tool `{name}`: no tool is given, answer in text")
            } else {
                format!("unknown tool `{name}`; there are: {}", names.join(", "))
            };
            open.finished(at, ToolStatus::Error, problem, false);
            return;
        }
        if tool.is_some_and(|tool| tool.permission == Permission::Deny) {
            let problem = format!("permission denied: `{}` may not be run", call.name);
            open.finished(at, ToolStatus::Denied, problem, false);
            return;
        }
        // Checked before the hook and the approver, because neither should decide about a call that
        // cannot run.
        if let Err(problem) = arguments {
            open.finished(at, ToolStatus::Error, problem, false);
            return;
        }
        if self.hooks.pre_tool {
            let point = ConsultPoint::PreTool { call: call.clone() };
            let id = self.effect_id();
            fx.push(Effect::Consult { id, point });
            open.calls[at].state = CallState::Hook(id);
            return;
        }
        self.approve(open, at, fx);
    }

    fn approve(&mut self, open: &mut OpenCalls, at: usize, fx: &mut Vec<Effect>) {
        let call = &open.calls[at].call;
        let asks = self
            .tools
            .iter()
            .any(|tool| tool.name == call.name && tool.permission == Permission::Ask);
        if asks && open.asks_for_approval() {
            open.calls[at].state = CallState::Unapproved;
        } else if asks {
            let point = ConsultPoint::Approval { call: call.clone() };
            let id = self.effect_id();
            fx.push(Effect::Consult { id, point });
            open.calls[at].state = CallState::Approval(id);
        } else {
            open.calls[at].state = CallState::Ready(call.parsed_arguments().unwrap_or_default());
        }
    }

    pub(super) fn tool_answered(
        &mut self,
        id: EffectId,
        answer: Answer,
        fx: &mut Vec<Effect>,
    ) -> Flow {
        let Some(mut open) = self.take_open() else {
            return Ok(());
        };
        let asked = open.calls.iter().enumerate().find_map(|(at, open)| match open.state {
            CallState::Hook(waited) if waited == id => Some((at, true)),
            CallState::Approval(waited) if waited == id => Some((at, false)),
            _ => None,
        });
        let Some((at, by_hook)) = asked else {
            self.phase = Phase::Tools(open);
            return Ok(());
        };
        match answer {
            Answer::Halt(reason) => {
                // The question is answered, so `stop` must not withdraw it.
                open.calls[at].state = CallState::Waiting;
                self.phase = Phase::Tools(open);
                let name = if by_hook { "pre_tool" } else { "approval" };
                return self.stop(Ending::halted("hook", name, reason), fx);
            }
            Answer::Deny(reason) => {
                open.finished(at, ToolStatus::Denied, format!("denied: {reason}"), false);
                emit_ended(&open, at, Duration::ZERO, fx);
            }
            Answer::Proceed | Answer::ProceedWith(_) | Answer::OutputCap(_) => {
                if let Answer::ProceedWith(note) = answer {
                    open.notes.push(note);
                }
                if by_hook {
                    // A hook's consent does not replace the approval that a permission demands.
                    self.approve(&mut open, at, fx);
                    self.phase = Phase::Tools(open);
                    return self.advance(fx);
                }
                let arguments = open.calls[at].call.parsed_arguments().unwrap_or_default();
                open.calls[at].state = CallState::Ready(arguments);
            }
        }
        self.phase = Phase::Tools(open);
        self.advance(fx)
    }

    pub(super) fn tool_ended(&mut self, event: EventKind, fx: &mut Vec<Effect>) -> Flow {
        let EventKind::ToolEnded { tool, report } = event else {
            return Ok(());
        };
        let Some(mut open) = self.take_open() else {
            return Ok(());
        };
        let Some((at, started)) = open.report(tool, &report) else {
            self.phase = Phase::Tools(open);
            return Ok(());
        };
        let ran = self.now.saturating_sub(started);
        open.ran(at, ran);
        emit_ended(&open, at, ran, fx);
        let name = open.calls[at].call.name.clone();
        self.phase = Phase::Tools(open);
        // Before the halt, so that no part of the report is lost.
        self.variables(report.variables, report.metrics);
        if let Some(reason) = report.halt {
            return self.stop(Ending::halted("tool", name, reason), fx);
        }
        self.advance(fx)
    }

    /// Stops the tools whose time limit is reached; abandons those that were stopped and did not
    /// end.
    pub(super) fn tools_tick(&mut self, fx: &mut Vec<Effect>) -> Flow {
        let grace = self.limits.cancel_grace;
        let Phase::Tools(open) = &mut self.phase else {
            return Ok(());
        };
        let mut stopped = Vec::new();
        let mut given_up = Vec::new();
        for running in &mut open.running {
            let Some(deadline) = running.deadline.filter(|deadline| *deadline <= self.now) else {
                continue;
            };
            if running.timed_out.is_some() {
                given_up.push(running.id);
            } else {
                running.timed_out = Some(deadline.saturating_sub(running.started));
                running.deadline = Some(self.now.saturating_add(grace).saturating_add(GIVE_UP));
                stopped.push(running.id);
            }
        }
        if !stopped.is_empty() {
            fx.push(Effect::AbortTools { ids: stopped, grace });
        }
        let mut gone = Vec::new();
        for id in given_up {
            let silent = ToolReport::new(ToolStatus::Aborted, "");
            gone.extend(open.report(id, &silent));
        }
        if gone.is_empty() {
            return Ok(());
        }
        if let Some(open) = self.take_open() {
            for (at, started) in gone {
                emit_ended(&open, at, self.now.saturating_sub(started), fx);
            }
            self.phase = Phase::Tools(open);
        }
        self.advance(fx)
    }

    /// Completes the tool phase: counts and evaluates the results, then continues or ends the run.
    fn tools_done(&mut self, mut open: OpenCalls, fx: &mut Vec<Effect>) -> Flow {
        self.stream(StreamingState::Resuming);
        let finishes = open.pending_finishes();
        let declared = self.judge_finish(&mut open);
        for (at, _) in finishes {
            emit_ended(&open, at, Duration::ZERO, fx);
        }
        let text =
            self.state.messages.last().map(crate::message::Message::plain_text).unwrap_or_default();
        let mut judged = Vec::with_capacity(open.calls.len());
        let mut counted = Vec::with_capacity(open.calls.len());
        for open in &open.calls {
            if let CallState::Done(result, ran) = &open.state {
                judged.push((&open.call, result));
                if *ran < WAITING && !self.is_polling(&open.call.name) {
                    counted.push((&open.call, result));
                }
            }
        }
        // An aborted call is neither a mistake nor a success, because the model did not cause it.
        let mut ended = judged.iter().filter(|(_, result)| result.status != ToolStatus::Aborted);
        if let Some((_, first)) = ended.next() {
            let all_failed = first.status.is_error() && ended.all(|(_, r)| r.status.is_error());
            self.mistakes = if all_failed { self.mistakes + 1 } else { 0 };
        }
        let unproductive =
            if counted.is_empty() { 0 } else { self.progress.record(&text, &counted) };
        self.tool_turns += 1;

        let action = if declared.is_some() { "final" } else { "message" };
        let verdict = self.evaluate_policy(action, &text, &judged);
        let Watched { stop, nudges, .. } = self.watch(&text, &judged, fx);
        self.context.somebody_spoke = false;
        let notes = std::mem::take(&mut open.notes);
        self.file(open);
        // After the results, because providers require them directly after the calls.
        for note in notes {
            self.tell("hook", note, fx);
        }
        let (decided, told) = self.decide_step(verdict, stop, declared);
        if let Some(ending) = decided {
            return self.end_or_succeed(ending, fx);
        }
        self.nudge(nudges, fx);
        if let Some(told) = told {
            self.tell("policy", told, fx);
        }
        self.warn_of_repetition(unproductive, fx);
        self.before_turn(fx)
    }

    fn is_polling(&self, name: &str) -> bool {
        self.tools.iter().any(|tool| tool.name == name && tool.exempt_from_no_progress)
    }

    /// Sends the model a message that lists its repeated calls, once, one turn before the limit.
    fn warn_of_repetition(&mut self, unproductive: u32, fx: &mut Vec<Effect>) {
        let next_is_last = self.limits.max_unproductive_turns == Some(unproductive + 1);
        if !self.nudge || unproductive == 0 || !next_is_last {
            return;
        }
        let repeated = self.progress.snapshot().map_or_else(Vec::new, |snapshot| {
            let call = |call: &super::RepeatedCall| format!("{}({})", call.name, call.arguments);
            snapshot.calls.iter().map(call).collect()
        });
        self.tell(
            "no_progress",
            format!(
                "You are repeating yourself: {} gave the same result as before. Try something else, or say what is in the way.",
                repeated.join(", ")
            ),
            fx,
        );
    }
}

pub(super) fn emit_ended(open: &OpenCalls, at: usize, ran: Duration, fx: &mut Vec<Effect>) {
    if let Some(result) = open.result(at) {
        fx.push(Effect::Emit(RunEvent::ToolEnded {
            call_id: result.call_id.clone(),
            name: result.name.clone(),
            status: result.status,
            duration_ms: ran.as_millis() as u64,
            content: result.content.clone(),
        }));
    }
}
