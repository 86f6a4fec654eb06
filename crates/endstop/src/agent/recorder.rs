//! Keeps a run in its journal: each event before what it asks for is done, a turn's deltas joined.
//!
//! ```ignore
//! let before = recorder.before(&event);             // as JSON, before the kernel takes it
//! let step = run.handle(event, &mut effects);
//! recorder.after(before, &effects, ended);
//! poll_fn(|cx| recorder.poll_written(cx)).await;    // on disk
//! perform(effects);
//! ```
//!
//! A journal that can write without waiting does so in `after`. Otherwise another thread writes, because
//! the run's own thread has other runs to drive, and a cancel to hear.
//!
//! A journal that fails does not end the run: what could not be kept is given again with what comes
//! next, and the failure is told once. One that panics is given up.

use super::pending::Pending;
use super::user_code;
use crate::journal::{Journal, JournalError, JournalErrorKind, Record, RunHeader, RunJournal};
use crate::journal::{briefs, without_secrets};
use endstop_core::joiner::Mark;
use endstop_core::{Effect, EffectId, Event, EventKind, Joiner, Outcome, TurnDelta};
use endstop_wire::redact::KnownKeys;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Deltas that waited so long are kept: a call that is lost with its process is then booked for all
/// but its last moment.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// So much of them is kept at once.
const MOST_WAITING: u64 = 4096;
/// Most events are no longer, in bytes.
const USUAL_EVENT: usize = 1024;
/// What waits for a journal that fails, in bytes, before the journal is given up.
const MOST_BEHIND: usize = 64 << 20;

#[derive(Default)]
pub(super) struct Recorder {
    log: Option<Box<dyn RunJournal>>,
    /// Another thread writes, or begins the run; it has the log meanwhile.
    writing: Option<Pending<Written>>,
    keys: KnownKeys,
    joiner: Joiner,
    joined_at: Duration,
    /// Not kept yet.
    batch: Vec<Record>,
    behind: usize,
    problem: Option<JournalError>,
    told: bool,
}

/// What another thread writes, and what came of it.
struct Written {
    log: Option<Box<dyn RunJournal>>,
    /// Empty once it is written.
    batch: Vec<Record>,
    result: Result<(), Failure>,
}

/// Why a journal did not write.
enum Failure {
    Refused(JournalError),
    Panicked(Box<dyn Any + Send>),
}

/// What is kept of an event.
pub(super) enum Before {
    /// It waits with those before it.
    Delta {
        call: EffectId,
        at: Duration,
        mark: Mark,
    },
    /// A response that is whole, and counted: nothing is estimated by what was streamed of it.
    Turn(EffectId, Record),
    Other(Record),
}

impl Recorder {
    pub(super) fn new(log: Box<dyn RunJournal>, keys: KnownKeys) -> Recorder {
        Recorder { log: Some(log), keys, ..Recorder::default() }
    }

    /// Of a run that begins: another thread has the journal store it.
    pub(super) fn begin(
        journal: Arc<dyn Journal>,
        header: Box<RunHeader>,
        keys: KnownKeys,
    ) -> Recorder {
        let begin = move |written: &mut Written| {
            written.result = match catch_unwind(AssertUnwindSafe(|| journal.begin(&header))) {
                Ok(Ok(log)) => {
                    written.log = Some(log);
                    Ok(())
                }
                Ok(Err(problem)) => Err(Failure::Refused(problem)),
                Err(payload) => Err(Failure::Panicked(payload)),
            };
        };
        let nothing = Written { log: None, batch: Vec::new(), result: Ok(()) };
        let writing = Some(Pending::spawn(nothing, begin));
        Recorder { writing, keys, ..Recorder::default() }
    }

    /// Whether the journal takes this run, as far as is known.
    pub(super) fn is_recording(&self) -> bool {
        self.log.is_some() || self.writing.is_some()
    }

    pub(super) fn before(&mut self, event: &Event) -> Option<Before> {
        if !self.is_recording() {
            return None;
        }
        Some(match event.kind {
            EventKind::Delta { call, ref delta } => {
                for event in self.joiner.earlier(call) {
                    self.keep(&event, &[], None);
                }
                if self.joiner.waiting() == 0 {
                    self.joined_at = event.at;
                }
                let mark = self.joiner.push(call, delta, event.at);
                Before::Delta { call, at: event.at, mark }
            }
            EventKind::TurnEnded { call, ref turn }
                if turn.usage.input_tokens.is_some() && turn.usage.generated_tokens().is_some() =>
            {
                Before::Turn(call, self.record(event))
            }
            _ => Before::Other(self.record(event)),
        })
    }

    /// The kernel took the event, and asks for this. It is on disk when nothing is being written any
    /// more ([`poll_written`](Self::poll_written)), except deltas that nothing was decided on.
    pub(super) fn after(&mut self, before: Option<Before>, effects: &[Effect], ended: bool) {
        let Some(before) = before else { return };
        let record = match before {
            Before::Delta { at, .. } if effects.is_empty() && !ended => {
                let waited = at.saturating_sub(self.joined_at);
                if waited >= LONGEST_WAIT || self.joiner.waiting() >= MOST_WAITING {
                    self.join();
                }
                return self.commit();
            }
            Before::Delta { call, at, mark } => {
                let delta = self.joiner.take_back(mark);
                let delta = delta.unwrap_or(TurnDelta::Text(String::new()));
                self.record(&Event::new(at, EventKind::Delta { call, delta }))
            }
            Before::Turn(call, record) => {
                // One that came too late counts as cut, and is booked by its deltas.
                if !effects.iter().any(|effect| matches!(effect, Effect::AbortModel { .. })) {
                    self.joiner.forget(call);
                }
                record
            }
            Before::Other(record) => record,
        };
        self.join();
        self.push(Record { effects: briefs(effects).map(|text| self.clean(text)), ..record });
        self.commit();
    }

    /// Keeps an event as it is, with what was asked for then.
    pub(super) fn keep(&mut self, event: &Event, effects: &[Effect], wall_ms: Option<u64>) {
        if self.is_recording() {
            let record = self.record(event);
            let wall_ms = wall_ms.unwrap_or(record.wall_ms);
            let effects = briefs(effects).map(|text| self.clean(text));
            self.push(Record { wall_ms, effects, ..record });
        }
    }

    /// Keeps an event that asks for nothing, after the deltas that came before it.
    pub(super) fn add(&mut self, event: &Event) {
        self.join();
        self.keep(event, &[], None);
    }

    /// Ready when all that was given to be kept is on disk, or did not get there.
    pub(super) fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(writing) = &mut self.writing {
            let written = std::task::ready!(writing.poll(cx));
            self.writing = None;
            if !self.take_back(written) {
                break;
            }
            // What came meanwhile.
            self.commit();
        }
        Poll::Ready(())
    }

    /// Keeps now what was given to be kept. This may block the thread.
    pub(super) fn write(&mut self) {
        if let Some(writing) = self.writing.take() {
            self.take_back(writing.wait());
        }
        self.join();
        if self.batch.is_empty() {
            return;
        }
        let (log, batch) = (self.log.take(), std::mem::take(&mut self.batch));
        let mut written = Written { log, batch, result: Ok(()) };
        append(&mut written);
        self.take_back(written);
    }

    /// Lets go of the journal; what went wrong with it, if that was not told.
    pub(super) fn close(&mut self) -> Option<String> {
        user_code::let_go(self.log.take());
        self.problem()
    }

    /// The run has ended so. The outcome is changed only while it is written. This may block the
    /// thread.
    pub(super) fn ended(&mut self, outcome: &mut Outcome) {
        self.write();
        if !self.batch.is_empty() {
            return;
        }
        let Some(log) = &mut self.log else { return };
        let (messages, keys) = (&outcome.messages, &self.keys);
        let apart = match catch_unwind(AssertUnwindSafe(|| log.messages(messages, keys))) {
            Ok(apart) => apart,
            Err(payload) => return self.give_up(Some(payload)),
        };
        let messages = if apart { std::mem::take(&mut outcome.messages) } else { Vec::new() };
        let text = self.clean(serde_json::to_string(outcome).unwrap_or_default());
        if apart {
            outcome.messages = messages;
        }
        let outcome = &*outcome;
        let Some(log) = &mut self.log else { return };
        match catch_unwind(AssertUnwindSafe(|| log.ended(outcome, &text))) {
            Ok(Ok(())) => {}
            Ok(Err(problem)) => drop(self.problem.get_or_insert(problem)),
            Err(payload) => self.give_up(Some(payload)),
        }
    }

    /// What went wrong, once.
    pub(super) fn problem(&mut self) -> Option<String> {
        let problem = self.problem.as_ref().filter(|_| !self.told)?.to_string();
        self.told = true;
        Some(format!("the journal does not keep this run: {problem}"))
    }

    fn join(&mut self) {
        for event in self.joiner.take() {
            self.keep(&event, &[], None);
        }
    }

    fn record(&self, event: &Event) -> Record {
        let mut text = Vec::with_capacity(USUAL_EVENT);
        if serde_json::to_writer(&mut text, &event.kind).is_err() {
            text.clear();
        }
        // JSON is text.
        let text = String::from_utf8(text).unwrap_or_default();
        Record {
            at: event.at,
            wall_ms: crate::clock::wall_ms(),
            name: event.kind.name().to_owned(),
            event: self.clean(text),
            effects: None,
        }
    }

    fn clean(&self, record: String) -> String {
        without_secrets(&self.keys, record)
    }

    fn push(&mut self, record: Record) {
        self.behind += record.event.len();
        self.batch.push(record);
    }

    /// Writes what waits: here if the journal need not wait, else on another thread.
    fn commit(&mut self) {
        if self.batch.is_empty() || self.writing.is_some() {
            return;
        }
        let Some(log) = &mut self.log else { return };
        let batch = &self.batch;
        match catch_unwind(AssertUnwindSafe(|| log.try_append(batch))) {
            Ok(Some(Ok(()))) => {
                self.batch.clear();
                self.behind = 0;
            }
            Ok(Some(Err(problem))) => self.refused(problem),
            Ok(None) => {
                let (log, batch) = (self.log.take(), std::mem::take(&mut self.batch));
                let written = Written { log, batch, result: Ok(()) };
                self.writing = Some(Pending::spawn(written, append));
            }
            Err(payload) => self.give_up(Some(payload)),
        }
    }

    /// What another thread has written, or not; `false`: it failed.
    fn take_back(&mut self, written: Written) -> bool {
        let Written { log, mut batch, result } = written;
        // What was not written comes before what came meanwhile.
        batch.append(&mut self.batch);
        self.behind = batch.iter().map(|record| record.event.len()).sum();
        (self.log, self.batch) = (log, batch);
        let done = result.is_ok() && self.log.is_some();
        match result {
            Ok(()) => {}
            Err(Failure::Refused(problem)) => self.refused(problem),
            Err(Failure::Panicked(payload)) => self.give_up(Some(payload)),
        }
        if self.log.is_none() {
            // It did not take the run.
            self.batch = Vec::new();
        }
        done
    }

    fn refused(&mut self, problem: JournalError) {
        self.problem.get_or_insert(problem);
        if self.behind > MOST_BEHIND {
            self.give_up(None);
        }
    }

    /// A journal has no holes: what comes later would be none of this run.
    fn give_up(&mut self, payload: Option<Box<dyn Any + Send>>) {
        if let Some(payload) = payload {
            let problem = panicked(&self.keys, payload);
            self.problem.get_or_insert(problem);
        }
        self.batch = Vec::new();
        user_code::let_go(self.log.take());
    }
}

/// Has the journal append a batch, all or none of it. This may block the thread.
fn append(written: &mut Written) {
    let Written { log: Some(log), batch, result } = written else { return };
    *result = match catch_unwind(AssertUnwindSafe(|| log.append(batch))) {
        Ok(Ok(())) => {
            batch.clear();
            Ok(())
        }
        Ok(Err(problem)) => Err(Failure::Refused(problem)),
        Err(payload) => Err(Failure::Panicked(payload)),
    };
}

fn panicked(keys: &KnownKeys, payload: Box<dyn Any + Send>) -> JournalError {
    JournalError {
        journal: "the journal's code".to_owned(),
        problem: format!("it panicked: {}", user_code::words(keys, payload)),
        kind: JournalErrorKind::Io,
    }
}
