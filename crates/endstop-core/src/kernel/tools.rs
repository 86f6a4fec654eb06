//! Runs the tool calls of a turn: in call order, one question at a time, with bounded concurrency.
//!
//! Each call is answered exactly once. `finish` is the kernel's own tool: it declares the answer.

use super::decided_by::{Decision, Layer};
use super::effect::{ConsultPoint, Effect, EffectId, InjectionReason, RunEvent, ToolStart};
use super::event::{Answer, EventKind, ToolReport};
use super::guard::Flow;
use super::machine::{Machine, Phase};
use super::open_calls::{CallState, GIVE_UP, OpenCall, OpenCalls, Progress, Running};
use super::outcome::Ending;
use super::progress::excerpt;
use super::spec::Permission;
use super::watchers::Watched;
use crate::message::{Part, Role, ToolCall, ToolStatus};
use crate::streaming::StreamingState;
use serde_json::Map;
use std::ops::ControlFlow::Continue;
use std::time::Duration;

/// Duration from which a call does not count as repetition, because it was waiting for something.
const WAITING: Duration = Duration::from_secs(1);

impl Machine {
    /// Opens the calls of a turn.
    pub(super) fn begin_tool_calls(&mut self, calls: Vec<ToolCall>) {
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

    pub(super) fn begin_tools(&mut self, effects: &mut Vec<Effect>) -> Flow {
        self.counts.empty_turns = 0;
        self.advance(effects)
    }

    /// Answers the open calls without running them, and appends the answers to the history.
    pub(super) fn answer_unrun(&mut self, why: &str) {
        if let Some(mut open) = self.take_open() {
            open.close(ToolStatus::Skipped, why);
            self.record_results(open);
        }
    }

    /// Puts the answers into the history, in call order.
    pub(super) fn record_results(&mut self, open: OpenCalls) {
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
                    self.counts.tool_calls = self.counts.tool_calls.saturating_add(1);
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

    /// Starts what may start, and asks what must be asked.
    pub(super) fn advance(&mut self, effects: &mut Vec<Effect>) -> Flow {
        let Some(mut open) = self.take_open() else {
            return Continue(());
        };
        let mut starts = Vec::new();
        let mut at = open.next;
        while at < open.calls.len() {
            match self.advance_call(&mut open, at, &mut starts, effects) {
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
            effects.push(Effect::StartTools { calls: starts });
        }
        if open.next == open.calls.len() && open.running.is_empty() {
            return self.tools_done(open, effects);
        }
        self.phase = Phase::Tools(open);
        Continue(())
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
        effects: &mut Vec<Effect>,
    ) -> Progress {
        let name = &open.calls[at].call.name;
        let tool = self.settings.tools.iter().find(|tool| tool.name == *name);
        let parallel_safe = tool.is_some_and(|tool| tool.parallel_safe);
        if !parallel_safe && open.is_overtaking(at) {
            return Progress::Held;
        }
        match &open.calls[at].state {
            CallState::Waiting => {
                self.admit(open, at, effects);
                if matches!(open.calls[at].state, CallState::Done(..)) {
                    emit_ended(open, at, Duration::ZERO, effects);
                }
                Progress::Again
            }
            CallState::Unapproved if !open.asks_for_approval() => {
                self.approve(open, at, effects);
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
                    Some(tool) => tool.time_limit(arguments, &self.settings.limits),
                    None => self.settings.limits.tool_timeout,
                };
                // At least 1, because a limit of 0 would block the run forever.
                let room = if parallel_safe {
                    open.running.len() < self.settings.limits.tool_concurrency.max(1) as usize
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
                effects.push(Effect::Emit(RunEvent::ToolStarted {
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
        self.settings.finish_tool && name == "finish"
    }

    /// Decides about a new call: refuse it, ask, or let it start.
    fn admit(&mut self, open: &mut OpenCalls, at: usize, effects: &mut Vec<Effect>) {
        let call = &open.calls[at].call;
        let arguments = call.parsed_arguments();
        let tool = self.settings.tools.iter().find(|tool| tool.name == call.name);
        if tool.is_none() && !self.is_finish(&call.name) {
            let mut names: Vec<&str> =
                self.settings.tools.iter().map(|tool| tool.name.as_str()).collect();
            if self.settings.finish_tool {
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
        if self.settings.hooks.pre_tool {
            let point = ConsultPoint::PreTool { call: call.clone() };
            let id = self.effect_id();
            effects.push(Effect::Consult { id, point });
            open.calls[at].state = CallState::Hook(id);
            return;
        }
        self.approve(open, at, effects);
    }

    fn approve(&mut self, open: &mut OpenCalls, at: usize, effects: &mut Vec<Effect>) {
        let call = &open.calls[at].call;
        let asks = self
            .settings
            .tools
            .iter()
            .any(|tool| tool.name == call.name && tool.permission == Permission::Ask);
        if asks && open.asks_for_approval() {
            open.calls[at].state = CallState::Unapproved;
        } else if asks {
            let point = ConsultPoint::Approval { call: call.clone() };
            let id = self.effect_id();
            effects.push(Effect::Consult { id, point });
            open.calls[at].state = CallState::Approval(id);
        } else {
            open.calls[at].state = CallState::Ready(call.parsed_arguments().unwrap_or_default());
        }
    }

    pub(super) fn tool_answered(
        &mut self,
        id: EffectId,
        answer: Answer,
        effects: &mut Vec<Effect>,
    ) -> Flow {
        let Some(mut open) = self.take_open() else {
            return Continue(());
        };
        let asked = open.calls.iter().enumerate().find_map(|(at, open)| match open.state {
            CallState::Hook(waited) if waited == id => Some((at, true)),
            CallState::Approval(waited) if waited == id => Some((at, false)),
            _ => None,
        });
        let Some((at, by_hook)) = asked else {
            self.phase = Phase::Tools(open);
            return Continue(());
        };
        match answer {
            Answer::Halt(reason) => {
                // The question is answered, so `stop` must not withdraw it.
                open.calls[at].state = CallState::Waiting;
                self.phase = Phase::Tools(open);
                let by = if by_hook { Decision::PreToolHook } else { Decision::Approval };
                return self.stop(Ending::halted(Layer::Hook, by, reason), effects);
            }
            Answer::Deny(reason) => {
                open.finished(at, ToolStatus::Denied, format!("denied: {reason}"), false);
                emit_ended(&open, at, Duration::ZERO, effects);
            }
            Answer::Proceed | Answer::ProceedWith(_) | Answer::OutputCap(_) => {
                if let Answer::ProceedWith(note) = answer {
                    open.notes.push(note);
                }
                if by_hook {
                    self.approve(&mut open, at, effects);
                    self.phase = Phase::Tools(open);
                    return self.advance(effects);
                }
                let arguments = open.calls[at].call.parsed_arguments().unwrap_or_default();
                open.calls[at].state = CallState::Ready(arguments);
            }
        }
        self.phase = Phase::Tools(open);
        self.advance(effects)
    }

    pub(super) fn tool_ended(&mut self, event: EventKind, effects: &mut Vec<Effect>) -> Flow {
        let EventKind::ToolEnded { tool, report } = event else {
            return Continue(());
        };
        let Some(mut open) = self.take_open() else {
            return Continue(());
        };
        let Some((at, started)) = open.report(tool, &report) else {
            self.phase = Phase::Tools(open);
            return Continue(());
        };
        let ran = self.now.saturating_sub(started);
        open.ran(at, ran);
        emit_ended(&open, at, ran, effects);
        let tool = Decision::of(Layer::Tool, &open.calls[at].call.name);
        self.phase = Phase::Tools(open);
        // Before the halt, so that no part of the report is lost.
        self.variables(report.variables, report.metrics);
        if let Some(reason) = report.halt {
            return self.stop(Ending::halted(Layer::Tool, tool, reason), effects);
        }
        self.advance(effects)
    }

    /// Stops the tools whose time is up; abandons those that were asked to stop and did not end.
    pub(super) fn tools_tick(&mut self, effects: &mut Vec<Effect>) -> Flow {
        let grace = self.settings.limits.cancel_grace;
        let Phase::Tools(open) = &mut self.phase else {
            return Continue(());
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
            effects.push(Effect::AbortTools { ids: stopped, grace });
        }
        let mut gone = Vec::new();
        for id in given_up {
            let silent = ToolReport::new(ToolStatus::Aborted, "");
            gone.extend(open.report(id, &silent));
        }
        if gone.is_empty() {
            return Continue(());
        }
        if let Some(open) = self.take_open() {
            for (at, started) in gone {
                emit_ended(&open, at, self.now.saturating_sub(started), effects);
            }
            self.phase = Phase::Tools(open);
        }
        self.advance(effects)
    }

    /// All calls are answered: count, judge, and continue or end.
    fn tools_done(&mut self, mut open: OpenCalls, effects: &mut Vec<Effect>) -> Flow {
        self.stream(StreamingState::Resuming);
        let finishes = open.pending_finishes();
        let declared = self.judge_finish(&mut open);
        for (at, _) in finishes {
            emit_ended(&open, at, Duration::ZERO, effects);
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
            self.counts.mistakes = if all_failed { self.counts.mistakes + 1 } else { 0 };
        }
        let unproductive =
            if counted.is_empty() { 0 } else { self.progress.record(&text, &counted) };
        self.counts.tool_turns += 1;

        let action = if declared.is_some() { "final" } else { "message" };
        let verdict = self.evaluate_policy(action, &text, &judged);
        let Watched { stop, nudges, .. } = self.watch(&text, &judged, effects);
        self.context.message_arrived = false;
        let notes = std::mem::take(&mut open.notes);
        self.record_results(open);
        // Messages to the model come after the results, because a result must follow its call.
        for note in notes {
            self.inject_message(InjectionReason::Hook, note, effects);
        }
        let (decided, told) = self.decide_step(verdict, stop, declared);
        if let Some(ending) = decided {
            return self.end_or_succeed(ending, effects);
        }
        self.nudge(nudges, effects);
        if let Some(told) = told {
            self.inject_message(InjectionReason::Policy, told, effects);
        }
        self.warn_of_repetition(unproductive, effects);
        self.before_turn(effects)
    }

    fn is_polling(&self, name: &str) -> bool {
        self.settings.tools.iter().any(|tool| tool.name == name && tool.exempt_from_no_progress)
    }

    /// Warns the model about its repetition, once, one turn before the limit.
    fn warn_of_repetition(&mut self, unproductive: u32, effects: &mut Vec<Effect>) {
        let next_is_last = self.settings.limits.max_unproductive_turns == Some(unproductive + 1);
        if !self.settings.nudge || unproductive == 0 || !next_is_last {
            return;
        }
        let repeated = self.progress.snapshot().map_or_else(Vec::new, |snapshot| {
            let call = |call: &super::RepeatedCall| format!("{}({})", call.name, call.arguments);
            snapshot.calls.iter().map(call).collect()
        });
        self.inject_message(
            InjectionReason::NoProgress,
            format!(
                "You are repeating yourself: {} gave the same result as before. Try something else, or say what is in the way.",
                repeated.join(", ")
            ),
            effects,
        );
    }
}

pub(super) fn emit_ended(open: &OpenCalls, at: usize, ran: Duration, effects: &mut Vec<Effect>) {
    if let Some(result) = open.result(at) {
        effects.push(Effect::Emit(RunEvent::ToolEnded {
            call_id: result.call_id.clone(),
            name: result.name.clone(),
            status: result.status,
            duration_ms: ran.as_millis() as u64,
            content: result.content.clone(),
        }));
    }
}
