//! The calls of a turn, from the response to their results, and the background calls of the run. Each
//! call is answered exactly once.

use crate::kernel::effect::{EffectId, ToolStart};
use crate::kernel::event::ToolReport;
use crate::kernel::outcome::ending::excerpt;
use crate::media::Attachment;
use crate::message::{Part, ToolCall, ToolResult, ToolStatus};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

/// Time after the grace period in which a tool may still report its end. Then the run ends without
/// it, so that a tool that ignores its kill cannot hold up the run.
pub(crate) const GIVE_UP: Duration = Duration::from_secs(1);

/// Message to the model about a call that was running when its process died.
pub(super) const LOST: &str = "aborted: the process that ran it died. It had started, and may have done all or a part of its work: look before you do it again.";

/// Message to the model about a call of a guest that has no result.
const NO_RESULT: &str = "aborted: the client called the model again and reported no result of this call. The call may have run: look before you do it again.";

/// The calls of a turn.
#[derive(Debug, Default)]
pub(crate) struct OpenCalls {
    pub(crate) calls: Vec<OpenCall>,
    /// All before this one are started or answered, and none waits for a hook.
    pub(crate) next: usize,
    /// Started and not answered: the id and the place.
    pub(crate) running: Vec<Running>,
    /// Notes of hooks for the model, added after the results.
    pub(crate) notes: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) id: EffectId,
    pub(crate) at: usize,
    pub(crate) started: Duration,
    pub(crate) deadline: Option<Duration>,
    pub(crate) parallel_safe: bool,
    /// The time limit that the call exceeded. If set, the call was asked to stop, and is abandoned at
    /// `deadline`.
    pub(crate) timed_out: Option<Duration>,
}

#[derive(Debug)]
pub(crate) struct OpenCall {
    pub(crate) call: Arc<ToolCall>,
    pub(crate) state: CallState,
    /// `true` if the run was parked for an approval of the call, which then runs at most once.
    pub(crate) parked: bool,
}

impl OpenCall {
    /// `true` if the call was started or answered.
    pub(super) fn is_settled(&self) -> bool {
        matches!(self.state, CallState::Running | CallState::Finish(_) | CallState::Done(..))
    }
}

#[derive(Debug)]
pub(crate) enum CallState {
    Waiting,
    /// The hook is asked.
    Hook(EffectId),
    /// The call needs approval, and another call is being asked for: one question at a time.
    Unapproved,
    /// A person is asked.
    Approval(EffectId),
    /// The call may start as soon as there is room.
    Ready(Map<String, Value>),
    Running,
    /// `finish`, which is judged when all other calls have ended.
    Finish(Map<String, Value>),
    /// The call has run, and the hook is asked about its result.
    Review(Box<Review>),
    /// Answered, and how long it ran.
    Done(ToolResult, Duration),
}

/// A result that waits for the `post_tool` hook.
#[derive(Debug)]
pub(crate) struct Review {
    pub(crate) id: EffectId,
    result: ToolResult,
    ran: Duration,
    /// The reason if the tool requested that the run halt.
    halt: Option<String>,
}

/// The result of taking a call a step further.
pub(crate) enum Progress {
    /// The call changed its state and is looked at again.
    Again,
    /// The call needs nothing at the moment; the next one may go ahead.
    Past,
    /// The call and all calls after it have to wait.
    Held,
}

impl OpenCalls {
    pub(crate) fn new(calls: Vec<Arc<ToolCall>>) -> OpenCalls {
        let open = |call| OpenCall { call, state: CallState::Waiting, parked: false };
        let calls = calls.into_iter().map(open).collect();
        OpenCalls { calls, ..OpenCalls::default() }
    }

    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.running.iter().fold(None, |next, running| earliest(next, running.deadline))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    pub(crate) fn running(&self) -> Vec<EffectId> {
        self.running.iter().map(|running| running.id).collect()
    }

    /// Takes back the questions that are still open.
    pub(crate) fn take_asked(&mut self) -> Vec<EffectId> {
        let mut asked = Vec::new();
        for call in &mut self.calls {
            if let CallState::Hook(id) | CallState::Approval(id) = call.state {
                asked.push(id);
                call.state = CallState::Waiting;
            }
        }
        asked
    }

    /// Marks the call whose approval is asked for under this id; `false` if there is none.
    pub(crate) fn park(&mut self, id: EffectId) -> bool {
        let asked =
            |open: &&mut OpenCall| matches!(open.state, CallState::Approval(of) if of == id);
        let Some(open) = self.calls.iter_mut().find(asked) else { return false };
        open.parked = true;
        true
    }

    /// `true` if the run was parked for the approval that is asked for under this id.
    pub(super) fn is_parked(&self, id: EffectId) -> bool {
        let asked = |state: &CallState| matches!(state, CallState::Approval(of) if *of == id);
        self.calls.iter().any(|open| open.parked && asked(&open.state))
    }

    /// `true` while a person is asked about a call.
    pub(super) fn asks_for_approval(&self) -> bool {
        self.calls.iter().any(|open| matches!(open.state, CallState::Approval(_)))
    }

    /// `true` if a call before this one still waits for approval, or for a hook's answer about its
    /// result.
    pub(super) fn is_overtaking(&self, at: usize) -> bool {
        let before = self.calls.get(self.next..at).unwrap_or_default();
        before.iter().any(|open| {
            matches!(
                open.state,
                CallState::Unapproved | CallState::Approval(_) | CallState::Review(_)
            )
        })
    }

    /// Holds the result of an answered call until the hook has answered about it.
    pub(crate) fn review(&mut self, at: usize, id: EffectId, halt: Option<String>) {
        // A running call counts as settled; now it waits again.
        self.next = self.next.min(at);
        let open = &mut self.calls[at];
        open.state = match std::mem::replace(&mut open.state, CallState::Waiting) {
            CallState::Done(result, ran) => {
                CallState::Review(Box::new(Review { id, result, ran, halt }))
            }
            other => other,
        };
    }

    /// Releases a result that the hook has answered about. Returns how long the call ran, and the
    /// reason if its tool requested a halt.
    pub(crate) fn reviewed(&mut self, at: usize) -> Option<(Duration, Option<String>)> {
        let open = &mut self.calls[at];
        match std::mem::replace(&mut open.state, CallState::Waiting) {
            CallState::Review(review) => {
                let Review { result, ran, halt, .. } = *review;
                open.state = CallState::Done(result, ran);
                Some((ran, halt))
            }
            other => {
                open.state = other;
                None
            }
        }
    }

    /// Replaces a result. Nothing of the old one stays, neither its images nor its documents.
    pub(super) fn replace_result(
        &mut self,
        at: usize,
        status: ToolStatus,
        content: String,
        attachments: Vec<Attachment>,
    ) {
        if let CallState::Done(result, _) = &mut self.calls[at].state {
            (result.status, result.content, result.attachments) = (status, content, attachments);
        }
    }

    /// Answers a call without its result, because no hook has passed that. Returns how long the
    /// call ran.
    pub(crate) fn withhold(&mut self, at: usize) -> Duration {
        self.reviewed(at);
        let CallState::Done(result, ran) = &mut self.calls[at].state else { return Duration::ZERO };
        result.content = format!(
            "aborted: the call had ended ({}), but the run was stopped before a hook had passed its result.",
            result.status.as_str()
        );
        result.status = ToolStatus::Aborted;
        result.attachments.clear();
        *ran
    }

    /// Withholds the results that still wait for the hook. Returns the question and the place of
    /// each, and how long the call ran.
    pub(super) fn take_reviews(&mut self) -> Vec<(EffectId, usize, Duration)> {
        let mut taken = Vec::new();
        for at in 0..self.calls.len() {
            if let CallState::Review(review) = &self.calls[at].state {
                let id = review.id;
                taken.push((id, at, self.withhold(at)));
            }
        }
        taken
    }

    pub(crate) fn result(&self, at: usize) -> Option<&ToolResult> {
        match &self.calls.get(at)?.state {
            CallState::Done(result, _) => Some(result),
            _ => None,
        }
    }

    /// The calls of `finish` that are not judged yet.
    pub(super) fn pending_finishes(&self) -> Vec<(usize, Map<String, Value>)> {
        let pending = self.calls.iter().enumerate().filter_map(|(at, open)| match &open.state {
            CallState::Finish(arguments) => Some((at, arguments.clone())),
            _ => None,
        });
        pending.collect()
    }

    /// The first call that ended and failed.
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

    pub(crate) fn finished(
        &mut self,
        at: usize,
        status: ToolStatus,
        content: String,
        started: bool,
    ) {
        let open = &mut self.calls[at];
        let result = ToolResult {
            call_id: open.call.id.clone(),
            name: open.call.name.clone(),
            status,
            content,
            attachments: Vec::new(),
            started,
            pinned: false,
        };
        open.state = CallState::Done(result, Duration::ZERO);
    }

    /// Records how long an answered call ran.
    pub(super) fn ran(&mut self, at: usize, ran: Duration) {
        if let CallState::Done(_, duration) = &mut self.calls[at].state {
            *duration = ran;
        }
    }

    /// Answers all that are still open with what is true of them; those that had started come back,
    /// with when.
    pub(crate) fn close(&mut self, not_started: ToolStatus, why: &str) -> Vec<(usize, Duration)> {
        let running = take(&mut self.running);
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

    /// Answers the open calls of a guest: with the results that its client sends back, and the others
    /// as aborted, because the client may have run them. Returns the place of each call that was
    /// running, and when it had started.
    pub(crate) fn answer(
        &mut self,
        results: &mut HashMap<String, ToolResult>,
    ) -> Vec<(usize, Duration)> {
        let running = take(&mut self.running);
        let started: HashMap<usize, Duration> =
            running.into_iter().map(|running| (running.at, running.started)).collect();
        let mut ended = Vec::new();
        for at in 0..self.calls.len() {
            let OpenCall { call, state, .. } = &mut self.calls[at];
            if matches!(state, CallState::Done(..)) {
                continue;
            }
            match results.remove(&call.id) {
                Some(result) => {
                    // The model's call determines the name, because many formats return results by
                    // their id only.
                    let result = ToolResult { name: call.name.clone(), ..result };
                    *state = CallState::Done(result, Duration::ZERO);
                }
                None => self.finished(at, ToolStatus::Aborted, NO_RESULT.to_owned(), true),
            }
            ended.extend(started.get(&at).map(|started| (at, *started)));
        }
        self.next = self.calls.len();
        ended
    }

    /// `true` if a call was answered.
    pub(crate) fn any_done(&self) -> bool {
        self.calls.iter().any(|open| matches!(open.state, CallState::Done(..)))
    }

    /// The id under which the call with this id of the provider runs.
    pub(crate) fn running_id(&self, call_id: &str) -> Option<EffectId> {
        let is = |running: &&Running| {
            self.calls.get(running.at).is_some_and(|open| open.call.id == call_id)
        };
        self.running.iter().find(is).map(|running| running.id)
    }

    /// The tool that runs under an id.
    pub(crate) fn name_of(&self, id: EffectId) -> Option<&str> {
        let running = self.running.iter().find(|running| running.id == id)?;
        Some(&self.calls.get(running.at)?.call.name)
    }

    /// Restarts a running call under another id; `None` if the call was asked to stop, or may run
    /// only once.
    pub(crate) fn restart_call(
        &mut self,
        id: EffectId,
        new: EffectId,
        now: Duration,
        limit: impl FnOnce(&Map<String, Value>) -> Option<Duration>,
    ) -> Option<ToolStart> {
        let running = self.running.iter_mut().find(|running| running.id == id)?;
        if running.timed_out.is_some() {
            return None;
        }
        let call = self.calls.get(running.at).filter(|open| !open.parked)?.call.clone();
        let arguments = call.parsed_arguments().unwrap_or_default();
        running.id = new;
        running.started = now;
        running.deadline = limit(&arguments).map(|limit| now.saturating_add(limit));
        Some(ToolStart { id: new, call, arguments })
    }

    /// Answers running calls whose result is lost. Returns the index of each, and
    /// when it had started.
    pub(crate) fn mark_lost(&mut self, lost: &[EffectId]) -> Vec<(usize, Duration)> {
        let (gone, kept) = take(&mut self.running)
            .into_iter()
            .partition::<Vec<_>, _>(|running| lost.contains(&running.id));
        self.running = kept;
        for running in &gone {
            self.finished(running.at, ToolStatus::Aborted, LOST.to_owned(), true);
        }
        gone.into_iter().map(|running| (running.at, running.started)).collect()
    }

    /// Takes the result out of a report; `None` where the id is not running (late, or never started).
    pub(crate) fn report(
        &mut self,
        id: EffectId,
        report: &mut ToolReport,
    ) -> Option<(usize, Duration)> {
        let place = self.running.iter().position(|running| running.id == id)?;
        // Their order has no meaning, because each result goes to the place of its call.
        let running = self.running.swap_remove(place);
        let (status, content, attachments) = reported(running.timed_out, report);
        self.finished(running.at, status, content, report.started);
        if let CallState::Done(result, _) = &mut self.calls[running.at].state {
            result.pinned = report.pinned;
            result.attachments = attachments;
        }
        Some((running.at, running.started))
    }
}

/// Takes the status, the content and the attachments of a call that has ended out of its report.
/// `timed_out` is the time limit that it exceeded, if any.
pub(crate) fn reported(
    timed_out: Option<Duration>,
    report: &mut ToolReport,
) -> (ToolStatus, String, Vec<Attachment>) {
    let had = || {
        let had = excerpt(&report.content);
        if had.is_empty() { had } else { format!(" It had answered: {had}") }
    };
    if let Some(limit) = timed_out {
        let content = format!(
            "timed out after {limit:?} and was stopped; it may have done part of its work.{}",
            had()
        );
        return (ToolStatus::Timeout, content, Vec::new());
    }
    if report.status == ToolStatus::Aborted && report.started {
        let why = "aborted: it had started and may have done part of its work.";
        return (ToolStatus::Aborted, format!("{why}{}", had()), Vec::new());
    }
    (report.status, take(&mut report.content), take(&mut report.attachments))
}

pub(crate) fn earliest(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// The background calls of a run.
#[derive(Debug, Default)]
pub(crate) struct Background {
    /// Number of the last handle.
    pub(super) handles: u32,
    pub(crate) open: Vec<Work>,
    /// Results that no model call has read.
    pub(crate) ended: Vec<Ended>,
}

/// A call that runs in the background.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) id: EffectId,
    pub(crate) handle: String,
    pub(crate) call: ToolCall,
    pub(crate) started: Duration,
    pub(crate) deadline: Option<Duration>,
    /// The time limit that the call exceeded. If set, the call was asked to stop, and is abandoned at
    /// `deadline`.
    pub(crate) timed_out: Option<Duration>,
}

/// A call that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) handle: String,
    pub(crate) call: ToolCall,
    pub(crate) result: ToolResult,
    pub(super) ran: Duration,
    /// `true` if the hook has passed the result, or need not see it.
    pub(crate) passed: bool,
}

impl Background {
    /// `true` if a call runs under this id.
    pub(crate) fn runs(&self, id: EffectId) -> bool {
        self.open.iter().any(|work| work.id == id)
    }

    /// `true` while a call runs.
    pub(crate) fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// `true` if there is a result that no model call has read.
    pub(crate) fn has_results(&self) -> bool {
        !self.ended.is_empty()
    }

    /// The ids of the calls that run.
    pub(crate) fn running(&self) -> Vec<EffectId> {
        self.open.iter().map(|work| work.id).collect()
    }

    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.open.iter().fold(None, |next, work| earliest(next, work.deadline))
    }
}

impl Ended {
    /// Withholds the result, because no hook has passed it.
    pub(crate) fn withhold(&mut self) {
        self.result.content = format!(
            "the call had ended ({}), but the run was stopped before a hook had passed its result.",
            self.result.status.as_str()
        );
        self.result.attachments.clear();
        self.passed = true;
    }

    /// Returns the message to the model.
    pub(super) fn into_message(self) -> (String, Vec<Part>) {
        let Ended { handle, result, ran, .. } = self;
        let ToolResult { name, status, content, attachments, .. } = result;
        let ran = Duration::from_millis(ran.as_millis() as u64);
        let text = format!(
            "Background call {handle} (`{name}`) has ended: {}, after {ran:?}. This is the result of a tool, not a message of the user:\n\n{content}",
            status.as_str()
        );
        let mut parts = vec![Part::Text { text: text.clone() }];
        parts.extend(attachments.into_iter().map(|attachment| match attachment {
            Attachment::Image(image) => Part::Image(image),
            Attachment::Document(document) => Part::Document(document),
        }));
        (text, parts)
    }
}
